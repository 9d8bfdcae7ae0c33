"""Small clusters for the tests of the plugins that look at topology domains: built by hand, or at random by Hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    Object,
    ObjectMeta,
    Pod,
    PodAffinityTerm,
)
from tidelog.framework.events import ClusterEvent, Hint
from tidelog.framework.events import matches as matches_event
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import SKIP, CycleState, Plugin
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.object_events import Rules, effects, pod_events
from tidelog.framework.snapshot import Snapshot
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import NodeBuilder, PodBuilder, node, pod

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
RACK = "rack"


class Cluster:
    """Objects, and plugins that see them."""

    def __init__(
        self,
        *objects: Object | PodBuilder | NodeBuilder,
        upstream: bool = False,
        gates: FeatureGates | None = None,
    ) -> None:
        self._cache = Cache()
        self._snapshot = Snapshot()
        self.listers = Listers()
        self.handle = FrameworkHandle(self._snapshot, self.listers, gates, upstream=upstream)
        self.put(*objects)

    def put(self, *objects: Object | PodBuilder | NodeBuilder) -> None:
        """New objects, or new versions of old ones."""
        for built in objects:
            obj = built.build() if isinstance(built, PodBuilder | NodeBuilder) else built
            if isinstance(obj, Node):
                self._cache.put_node(obj)
            elif isinstance(obj, Pod):
                self._cache.put_pod(PodInfo(obj))
            else:
                self.listers.put(obj)

    def delete(self, obj: Object) -> None:
        """The object is gone."""
        if isinstance(obj, Node):
            self._cache.remove_node(obj.metadata.name)
        elif isinstance(obj, Pod):
            self._cache.remove_pod(PodInfo(obj).uid)
        else:
            self.listers.delete(obj)

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes as an attempt sees them now."""
        self._snapshot.refresh(self._cache)
        return self._snapshot.nodes

    def node(self, name: str) -> NodeInfo:
        """The node of this name."""
        return next(n for n in self.nodes if n.name == name)

    def plugin(self, kind: type[Plugin], **args: Any) -> Any:
        """A plugin of this class in the cluster, with these arguments."""
        assert kind.Args is not None
        return kind(msgspec.convert(args, kind.Args, str_keys=True), self.handle)


def prepared(plugin: Any, cluster: Cluster, incoming: PodBuilder | Pod) -> tuple[CycleState, PodInfo, bool]:
    """The state after PreFilter, the pod, and whether the plugin has something to filter for it."""
    info = PodInfo(incoming.build() if isinstance(incoming, PodBuilder) else incoming)
    state = CycleState()
    result = plugin.pre_filter(state, info, cluster.nodes)
    assert result.nodes is None
    assert result.status in (None, SKIP), result.status
    return state, info, result.status is None


def verdicts(plugin: Any, cluster: Cluster, incoming: PodBuilder | Pod) -> dict[str, str | None]:
    """For each node the reason why the pod may not go there, or None."""
    state, info, asked = prepared(plugin, cluster, incoming)
    return {n.name: _reason(plugin, state, info, n) if asked else None for n in cluster.nodes}


def _reason(plugin: Any, state: CycleState, info: PodInfo, on: NodeInfo) -> str | None:
    status = plugin.filter(state, info, on)
    return None if status is None else status.message


def feasible(plugin: Any, cluster: Cluster, incoming: PodBuilder | Pod) -> list[str]:
    """The names of the nodes that the plugin does not rule out, sorted."""
    return sorted(name for name, reason in verdicts(plugin, cluster, incoming).items() if reason is None)


def scored(
    plugin: Any, cluster: Cluster, incoming: PodBuilder | Pod, among: list[str] | None = None
) -> dict[str, int] | None:
    """The normalised scores of the feasible nodes (all of them unless named), or None if the plugin skips."""
    info = PodInfo(incoming.build() if isinstance(incoming, PodBuilder) else incoming)
    state = CycleState()
    nodes = [n for n in cluster.nodes if among is None or n.name in among]
    status = plugin.pre_score(state, info, nodes)
    assert status in (None, SKIP), status
    if status is SKIP:
        return None
    raw = [plugin.score(state, info, n) for n in nodes]
    return dict(zip([n.name for n in nodes], plugin.normalize_scores(state, info, nodes, raw), strict=True))


# --- at random ------------------------------------------------------------------------------------------------------------

NAMESPACES: dict[str, Mapping[str, str] | None] = {
    "n1": {"env": "dev"},
    "n2": {"env": "prod"},
    "unknown": None,
}
"""Name → labels; None: pods are there, but the namespace itself is not known."""


def namespaces() -> list[Namespace]:
    """The namespaces that are known."""
    return [
        Namespace(metadata=ObjectMeta(name=name, labels=dict(labels)))
        for name, labels in NAMESPACES.items()
        if labels is not None
    ]


def _requirement(key: str, operator: str, *values: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelector(match_expressions=(requirement,))


SELECTORS: list[LabelSelector | None] = [
    None,
    LabelSelector(),
    LabelSelector(match_labels={"app": "x"}),
    LabelSelector(
        match_labels={"app": "x"}, match_expressions=_requirement("rev", "Exists").match_expressions
    ),
    _requirement("app", "In", "x", "y"),
    _requirement("app", "NotIn", "x"),
    _requirement("rev", "DoesNotExist"),
]
NAMESPACE_SELECTORS: list[LabelSelector | None] = [
    None,
    None,
    LabelSelector(),
    LabelSelector(match_labels={"env": "dev"}),
    _requirement("env", "NotIn", "dev"),
]

selectors = st.sampled_from([*SELECTORS, *[LabelSelector(match_labels={"app": "x"})] * 9])
keys = st.sampled_from([HOST, ZONE, ZONE, RACK])


def _mostly(**choices: list[str]) -> st.SearchStrategy[dict[str, str]]:
    """Labels with one of these values each; an empty value means that the label is missing."""
    drawn = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in choices.items()})
    return drawn.map(lambda found: {name: value for name, value in found.items() if value})


labels = _mostly(app=["x", "x", "x", "y", ""], rev=["1", "1", "2", ""])
node_labels = _mostly(
    zone=["a", "a", "b", "b", "c", ""], rack=["r1", "r1", "r2", ""], disk=["ssd", "ssd", "hdd", ""]
)
taints = st.lists(
    st.sampled_from([("dedicated", "NoSchedule"), ("spot", "NoExecute"), ("old", "PreferNoSchedule")]),
    max_size=1,
)


@st.composite
def nodes(draw: st.DrawFn, name: str = "n") -> Node:
    """A node with or without its host name, zone, rack and a taint."""
    found = draw(node_labels)
    if zone := found.pop("zone", ""):
        found[ZONE] = "" if zone == "c" else zone
    built = node(name).label(found)
    for key, effect in draw(taints):
        built = built.taint(key, effect=effect)
    plain = built.build()
    if draw(st.integers(0, 9)) == 9:
        without = {k: v for k, v in plain.metadata.labels.items() if k != HOST}
        plain = replace(plain, metadata=replace(plain.metadata, labels=without))
    return plain


terms = st.builds(
    PodAffinityTerm,
    label_selector=selectors,
    topology_key=keys,
    namespaces=st.sampled_from([(), (), ("n1",), ("n2", "unknown")]),
    namespace_selector=st.sampled_from(NAMESPACE_SELECTORS),
)


def with_term(built: PodBuilder, kind: str, term: PodAffinityTerm, weight: int = 1) -> PodBuilder:
    """One more term: `pod_affinity`, `pod_anti_affinity`, or one of them after `prefer_`."""
    rest = {"namespaces": term.namespaces, "namespace_selector": term.namespace_selector}
    method = getattr(built, kind)
    arguments = (weight,) if kind.startswith("prefer_") else ()
    changed: PodBuilder = method(*arguments, term.topology_key, term.label_selector, **rest)
    return changed


KINDS = ["pod_affinity", "pod_anti_affinity", "prefer_pod_affinity", "prefer_pod_anti_affinity"]


@st.composite
def pods(draw: st.DrawFn, name: str = "p", terms_max: int = 0) -> PodBuilder:
    """A pod somewhere among the namespaces, perhaps terminating, with up to so many affinity terms."""
    built = pod(name, namespace=draw(st.sampled_from([*["n1"] * 6, *NAMESPACES]))).label(draw(labels))
    if draw(st.integers(0, 9)) == 9:
        built = built.terminating()
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=terms_max)):
        built = with_term(built, kind, draw(terms), draw(st.integers(1, 5)))
    return built


@st.composite
def clusters(draw: st.DrawFn, terms_max: int = 0, pods_max: int = 8) -> list[Object]:
    """Up to five nodes with pods on them, and the namespaces."""
    count = draw(st.sampled_from([3, 4, 2, 1, 5]))
    found: list[Object] = [*namespaces(), *(draw(nodes(name=f"n{i}")) for i in range(count))]
    for i in range(draw(st.sampled_from(range(pods_max, -1, -1)))):
        built = draw(pods(name=f"p{i}", terms_max=terms_max))
        found.append(built.on(f"n{draw(st.integers(0, count - 1))}").build())
    return found


# --- matching, written from the documentation of the API, so that it shares nothing with the code under test ----------------


def matches(selector: LabelSelector | None, have: Mapping[str, str]) -> bool:
    """Whether a selector matches these labels; null matches nothing."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if have.get(key) != value:
            return False
    for r in selector.match_expressions:
        fits = {
            "In": have.get(r.key) in r.values,
            "NotIn": have.get(r.key) not in r.values,
            "Exists": r.key in have,
            "DoesNotExist": r.key not in have,
        }[r.operator]
        if not fits:
            return False
    return True


# --- events ---------------------------------------------------------------------------------------------------------------------


class Waiting:
    """A waiting pod, as hints see it."""

    attempted_at = 0
    first_rejected_at: Mapping[str, int] = {}

    def __init__(self, waiting: Pod) -> None:
        self.pod = waiting


def hint(plugin: Any, waiting: PodBuilder | Pod, event: ClusterEvent, old: Any, new: Any) -> Hint | None:
    """What the plugin says to an event; None if it did not register it."""
    target = waiting.build() if isinstance(waiting, PodBuilder) else waiting
    registered = [r for r in plugin.events_to_register() if matches_event(r.event, event)]
    answers = [Hint.QUEUE if r.hint is None else r.hint(Waiting(target), old, new) for r in registered]
    if not answers:
        return None
    return Hint.QUEUE if Hint.QUEUE in answers else Hint.SKIP


def says_queue(plugin: Any, waiting: Pod, old: Object | None, new: Object | None, upstream: bool) -> bool:
    """Whether some event of this change wakes the waiting pod; the change may be one of the waiting pod itself."""
    name = waiting.metadata.name
    if isinstance(old, Pod) and isinstance(new, Pod) and new.metadata.name == name:
        raised = [(event, old, new) for event in pod_events(old, new, target=True, upstream=upstream)]
    else:
        changes = effects(old, new, Rules(schedulers=("",), upstream=upstream))
        raised = [(one.event, one.old, one.new) for change in changes for one in change.raised]
    return any(hint(plugin, waiting, *one) is Hint.QUEUE for one in raised)


@st.composite
def changes(
    draw: st.DrawFn, objects: list[Object], terms_max: int = 0
) -> tuple[Object | None, Object | None]:
    """One object that comes, goes or changes."""
    here = sorted({o.spec.node_name for o in objects if isinstance(o, Pod)} | {"n0"})
    what = draw(st.sampled_from(["node", "new node", "pod", "new pod", "pod", "namespace"]))
    if what == "new node":
        return None, draw(nodes(name="new"))
    if what == "new pod":
        return None, draw(pods(name="new", terms_max=terms_max)).on(draw(st.sampled_from(here))).build()
    kind: type = {"node": Node, "pod": Pod, "namespace": Namespace}[what]
    candidates = [o for o in objects if isinstance(o, kind)]
    if not candidates:
        return None, draw(nodes(name="new"))
    old = draw(st.sampled_from(candidates))
    if draw(st.integers(0, 2)) == 0:
        return old, None
    if isinstance(old, Node):
        return old, draw(nodes(name=old.metadata.name))
    if isinstance(old, Namespace):
        env = draw(st.sampled_from(["dev", "prod", "other"]))
        return old, replace(old, metadata=replace(old.metadata, labels={"env": env}))
    if draw(st.integers(0, 3)) == 0:
        gone = "2030-01-01T00:00:00Z"
        return old, replace(old, metadata=replace(old.metadata, deletion_timestamp=gone))
    return old, replace(old, metadata=replace(old.metadata, labels=draw(labels)))


def apply(cluster: Cluster, old: Object | None, new: Object | None) -> None:
    """Make the change."""
    if new is not None:
        cluster.put(new)
    elif old is not None:
        cluster.delete(old)


def opened(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> bool:
    """Whether a node became possible for a pod that had been rejected."""
    return any(before.values()) and any(
        reason is None and before.get(name, "no such node") is not None for name, reason in after.items()
    )
