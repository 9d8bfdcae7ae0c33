"""The fast evaluation: the same node as the plain one of `Framework.schedule_pod` finds, without asking every plugin about every node.

    pod ─► shape (what plugins read of it) ─► its table, brought up to date ─► sets of nodes ─► best total ─► first from the scan's start

It knows the default plugins, by their classes, and how they may be asked: once per state of nodes, once per node's own object, or by
counts of domains that are kept (`shape`, `spread`, `affinity`). It answers None, and the plain evaluation decides,
wherever something else has a say: another plugin, a set of nodes from PreFilter, a pod that can fall back, a nomination beside counted
domains; and where counted domains leave no node, because then it takes every node's own reason.

Its tables are caches: nothing of them is state, and an answer does not depend on which of them exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Pod, PodSpec
from tidelog.api.selectors import SelectorError
from tidelog.api.volumes import matters
from tidelog.framework.arithmetic import scan_start
from tidelog.framework.diagnosis import Diagnosis, FitError
from tidelog.framework.interface import Code, CycleState, Plugin, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_statuses import NodeStatuses
from tidelog.plugins.default_preemption.plugin import DefaultPreemption
from tidelog.plugins.dynamic_resources.plugin import DynamicResources
from tidelog.plugins.image_locality import ImageLocality
from tidelog.plugins.inter_pod_affinity.plugin import Incoming, InterPodAffinity
from tidelog.plugins.node_affinity import NodeAffinity
from tidelog.plugins.node_name import NodeName
from tidelog.plugins.node_ports import NodePorts
from tidelog.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.plugins.node_unschedulable import NodeUnschedulable
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.plugins.taint_toleration import TaintToleration
from tidelog.plugins.volumes.binding import VolumeBinding
from tidelog.plugins.volumes.limits import NodeVolumeLimits
from tidelog.plugins.volumes.restrictions import VolumeRestrictions
from tidelog.plugins.volumes.zone import VolumeZone
from tidelog.queue.nominator import Nominator
from tidelog.scheduler.evaluation.affinity import Affinity
from tidelog.scheduler.evaluation.first_pod import find_once
from tidelog.scheduler.evaluation.node_index import Bits, NodeIndex, bits_of, picked
from tidelog.scheduler.evaluation.placements import PlacementMemory, Watch
from tidelog.scheduler.evaluation.shape import Domains, Evaluation, Found, NotFast, Shape
from tidelog.scheduler.evaluation.spread import Spread

if TYPE_CHECKING:
    from tidelog.framework.framework import Framework

SHAPES_MAX = 64
"""So many tables are kept. One costs some ten bytes a node, and as many sets of nodes as there are different scores."""

_KNOWN: frozenset[type] = frozenset(
    (
        NodeName,
        NodeUnschedulable,
        TaintToleration,
        NodeAffinity,
        NodePorts,
        NodeResourcesFit,
        PodTopologySpread,
        InterPodAffinity,
        NodeResourcesBalancedAllocation,
        ImageLocality,
        VolumeRestrictions,
        NodeVolumeLimits,
        VolumeBinding,
        VolumeZone,
        DynamicResources,
    )
)
_BY_DOMAINS = (PodTopologySpread, InterPodAffinity)
_ABOUT_VOLUMES = (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone)
"""They skip a pod without volumes, whatever else there is."""
_FAILURES = (NotFast, SelectorError)


class _Unknown(Enum):
    """In place of what is known about a shape."""

    UNKNOWN = 0


_UNKNOWN = _Unknown.UNKNOWN

_encode = msgspec.msgpack.Encoder().encode


def shape_key(pod: Pod) -> bytes:
    """Equal for pods that no default plugin tells apart."""
    meta = pod.metadata
    return _encode((meta.namespace, meta.labels, meta.owner_references, _spec_alone(pod)))


def _spec_alone(pod: Pod) -> PodSpec:
    """Without the group: its own cycle looks at that, and so the pods of all gangs of one kind are alike."""
    spec = pod.spec
    if spec.scheduling_group is None and spec.workload_ref is None:
        return spec
    return replace(spec, scheduling_group=None, workload_ref=None)


class FastEvaluation:
    """Of one framework. Costs nothing until it is asked."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._knows_all = _knows_all(framework)
        self._post_filter_needs_no_state = all(
            type(p) in (DefaultPreemption, DynamicResources) for p in framework.post_filter
        )
        """As long as there is no node to try."""
        self._index = NodeIndex(framework.snapshot)
        self._shapes: dict[bytes, _Prepared | _Unknown | None] = {}
        """The latest used last; None: only the plain evaluation can tell."""
        self._candidates: tuple[Sequence[NodeInfo], int, Bits] = ((), -1, 0)
        """The latest candidates, for which epoch, and as a set."""
        self._valid_for = (-1, -1)
        """Epoch of the index, and generation of the listers, for which the tables hold."""
        self.placements = PlacementMemory(self, self._index)
        self.watch: Watch | None = None
        """Shown every choice, if somebody wants to know among whom."""

    def choose(
        self, state: CycleState, pod: PodInfo, turn: int, candidates: Sequence[NodeInfo] | None = None
    ) -> tuple[str, Found] | FitError | None:
        """The node for the pod, or why there is none; None where the plain evaluation has to answer. Leaves `state` as PreFilter would leave it.

        `candidates` are those of a placement: a list that does not change as long as it is in use.
        """
        if not self._knows_all:
            return None
        index = self._index
        index.refresh()
        prepared = self._prepared(pod)
        if prepared is None:
            self._tell_watch()
            return None
        nodes = self._framework.snapshot.nodes
        start = scan_start(turn, len(nodes))
        if prepared.shape is None and candidates is None:
            found = self._find_once(prepared, start)
            if found is not None:
                state.skip_filter = prepared.skip_filter()
                return nodes[found.place].name, found
        shape = self._table(prepared)
        if shape is None:
            self._tell_watch()
            return None
        skipped = prepared.skip_filter()
        feasible = shape.feasible()
        if candidates is not None:
            feasible &= self._bits_of(candidates)
        if feasible:
            feasible = self._without_nominated(feasible, prepared, pod, skipped)
        if not feasible:
            return self._nowhere(prepared, state, pod, candidates)
        found = shape.choose(feasible, start)
        if self.watch is not None:
            self.watch.chosen(shape.winners, found.place)
        state.skip_filter = skipped
        return nodes[found.place].name, found

    # --- for groups ---------------------------------------------------------------------------------------------------

    def told_apart(self, pods: Sequence[PodInfo]) -> tuple[Bits, ...] | None:
        """The sets of nodes that these pods tell apart by labels, where they look at nothing else but the nodes' states.

        None if they do, or may while some of them are placed: at domains of pods, or at what only the plain evaluation knows.
        """
        if not self._knows_all:
            return None
        self._index.refresh()
        shapes: dict[bytes, PodInfo] = {}
        for pod in pods:
            if pod.has_affinity:
                return None
            shapes.setdefault(shape_key(pod.pod), pod)
            if len(shapes) > SHAPES_MAX:
                return None
        apart: dict[Bits, None] = {}
        for pod in shapes.values():
            prepared = self._prepared(pod)
            shape = None if prepared is None else self._table(prepared)
            if prepared is None or shape is None or not prepared.decides_by_nodes_alone():
                return None
            apart.update(dict.fromkeys(shape.apart))
        return tuple(apart)

    def spec_key(self, pod: Pod) -> bytes:
        """Equal for pods that no plugin tells apart that looks at nodes alone."""
        return _encode(_spec_alone(pod))

    def nominated_nodes(self) -> Sequence[str]:
        """Where more counts than the pods that are there."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        return nominator.nodes()

    # --- one pod ------------------------------------------------------------------------------------------------------

    def _tell_watch(self) -> None:
        """The plain evaluation chooses, and nobody is shown among whom."""
        if self.watch is not None:
            self.watch.is_blind = True

    def _table(self, prepared: _Prepared) -> Shape | None:
        """The shape's table, up to date; None where only the plain evaluation can tell."""
        try:
            shape = prepared.made_shape()
            shape.refresh()
        except _FAILURES:
            self._shapes.clear()
            return None
        return shape

    def _nowhere(
        self,
        prepared: _Prepared,
        state: CycleState,
        pod: PodInfo,
        candidates: Sequence[NodeInfo] | None,
    ) -> FitError | None:
        """Why no node is left, in groups. None where a filter counts domains."""
        framework, index = self._framework, self._index
        skipped = prepared.skip_filter()
        if prepared.filters_by_domains(skipped):
            return None
        state.skip_filter = skipped
        nodes = framework.snapshot.nodes
        among = index.all if candidates is None else self._bits_of(candidates)

        def names_of(bits: Bits) -> Callable[[], list[str]]:
            # Where the nodes get other places or names, everything that was prepared goes.
            return lambda: [node.name for node in picked(nodes, bits)]

        beside = self._rejections_beside_nominated(among, state, pod)
        if beside is None:
            return None
        alone = among
        for bits in beside.values():
            alone ^= bits
        for status, bits in prepared.made_shape().rejections(alone):
            beside[status] = beside.get(status, 0) | bits
        if not self._post_filter_needs_no_state or any(s.code is Code.UNSCHEDULABLE for s in beside):
            # Preemption will try nodes, and others may do what they like: with the state that PreFilter leaves.
            outcome = framework.run_pre_filter(state, pod)
            if outcome.status is not None or outcome.nodes is not None:
                return None
        rejected = list(beside.items())
        if prepared.nowhere is None or prepared.nowhere[:2] != (among, rejected):
            groups = [(status, bits.bit_count(), names_of(bits)) for status, bits in rejected]
            diagnosis = Diagnosis()
            diagnosis.reject_nodes(NodeStatuses(groups, names_of(among)))
            prepared.nowhere = (among, rejected, diagnosis)
        return FitError(among.bit_count(), prepared.nowhere[2])

    def _rejections_beside_nominated(
        self, among: Bits, state: CycleState, pod: PodInfo
    ) -> dict[Status, Bits] | None:
        """What is said of the nodes to which somebody is nominated, one by one; None if a plugin fails."""
        framework, snapshot = self._framework, self._framework.snapshot
        assert isinstance(framework.nominated, Nominator)
        found: dict[Status, Bits] = {}
        for name in framework.nominated.nodes():
            node = snapshot.get(name)
            if node is None:
                continue
            bit = 1 << snapshot.place_of(name)
            if among & bit:
                status = framework.run_filters(state, pod, node)
                if status is None or not status.is_rejected:
                    return None
                found[status] = found.get(status, 0) | bit
        return found

    def _find_once(self, prepared: _Prepared, start: int) -> Found | None:
        """The first pod of a shape, perhaps the only one: without a table."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        if len(nominator) or not prepared.decides_by_nodes_alone():
            return None
        return find_once(self._index, prepared.evaluation, start)

    def _bits_of(self, candidates: Sequence[NodeInfo]) -> Bits:
        """A placement's nodes, which every member of its group asks for."""
        index = self._index
        latest, epoch, bits = self._candidates
        if latest is not candidates or epoch != index.epoch:
            nodes, place_of = self._framework.snapshot.nodes, self._framework.snapshot.place_of
            everything = len(candidates) == len(nodes)
            bits = index.all if everything else bits_of([place_of(n.name) for n in candidates], len(nodes))
            self._candidates = (candidates, index.epoch, bits)
        return bits

    def _prepared(self, pod: PodInfo) -> _Prepared | None:
        shapes = self._shapes
        valid_for = (self._index.epoch, self._framework.handle.listers.generation)
        if valid_for != self._valid_for:
            shapes.clear()
            self._valid_for = valid_for
        if pod.pod.status.container_statuses or pod.pod.status.init_container_statuses:
            return None  # What it requests is not told by its spec alone.
        key = shape_key(pod.pod)
        found = shapes.pop(key, _UNKNOWN)
        if isinstance(found, _Prepared) and found.shape is None:
            # It was used once, and without a table, so what it knows is as old as that.
            found = _UNKNOWN
            again = True
        else:
            again = False
        if found is _UNKNOWN:
            if len(shapes) >= SHAPES_MAX:
                del shapes[next(iter(shapes))]
            try:
                found = _Prepared(self._framework, self._index, pod)
                if again:
                    found.made_shape()
            except _FAILURES:
                found = None
        assert not isinstance(found, _Unknown)
        shapes[key] = found
        return found

    def _without_nominated(
        self, feasible: Bits, prepared: _Prepared, pod: PodInfo, skipped: set[str]
    ) -> Bits:
        """Leave out nodes on which the pod would be in the way of others that are nominated there."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        if not len(nominator):
            return feasible
        framework, snapshot = self._framework, self._framework.snapshot
        state = prepared.state
        state.skip_filter = skipped
        for name in nominator.nodes():
            node = snapshot.get(name)
            if node is None:
                continue
            place = snapshot.place_of(name)
            bit = 1 << place
            if not feasible & bit:
                continue
            if prepared.filters_by_domains(skipped):
                return 0
            looked_at = (node.generation, self._index.state_at[place], nominator.pods_on(name))
            known = prepared.beside_nominated.get(name)
            if known is None or known[0] != looked_at:
                passes = framework.run_filters(state, pod, node) is None
                known = prepared.beside_nominated[name] = (looked_at, passes)
            if not known[1]:
                feasible ^= bit
        return feasible


class _Prepared:
    """A shape, and what the cycle's state is to hold for its pods."""

    def __init__(self, framework: Framework, index: NodeIndex, pod: PodInfo) -> None:
        """Raises NotFast, or SelectorError."""
        self.state = CycleState()
        self._skipped = _pre_filtered(framework, self.state, pod)
        self.beside_nominated: dict[str, tuple[tuple[object, ...], bool]] = {}
        """Node with nominated pods → what decided whether a pod of the shape may go there beside them, and whether it may."""
        self.nowhere: tuple[Bits, list[tuple[Status, Bits]], Diagnosis] | None = None
        """The last time that no node was left: among which, who rejected which of them, and that as a diagnosis, which pods share."""
        self._skipped_sets: dict[tuple[bool, ...], set[str]] = {}
        """What `skip_filter` has answered; nobody changes such a set."""
        self._dynamic: list[tuple[str, Domains]] = []
        self.evaluation = _evaluation(framework, self.state, pod, self._skipped)
        self.shape: Shape | None = None
        self._index = index
        self._domains: list[tuple[Domains, int]] = []
        for plugin in framework.pre_filter:
            if isinstance(plugin, _BY_DOMAINS):
                counted = _domains_of(plugin, framework, index, pod)
                self._domains.append((counted, framework.weights.get(plugin.name, 1)))
                self._dynamic.append((plugin.name, counted))

    def made_shape(self) -> Shape:
        """The table, which is made when it is first asked for: in the attempt for which this was prepared."""
        if self.shape is None:
            self.shape = Shape(self._index, self.evaluation, self._domains)
        return self.shape

    def decides_by_nodes_alone(self) -> bool:
        """Whether no plugin counts domains for the pod."""
        return all(domain.has_no_say for domain, _ in self._domains)

    def skip_filter(self) -> set[str]:
        """The names of the plugins that PreFilter skips, as things are now."""
        silent = tuple(counted.skips_filter for _, counted in self._dynamic)
        known = self._skipped_sets.get(silent)
        if known is None:
            known = self._skipped | {name for name, counted in self._dynamic if counted.skips_filter}
            self._skipped_sets[silent] = known
        return known

    def filters_by_domains(self, skipped: set[str]) -> bool:
        """Whether a plugin counts domains for the filter: then PreFilter's state would be needed."""
        return any(name not in skipped for name, _ in self._dynamic)


def _knows_all(framework: Framework) -> bool:
    """Whether every plugin that could have a say is a default one that takes part as it does by default."""
    if not isinstance(framework.nominated, Nominator):
        return False
    points: Mapping[str, tuple[Any, ...]] = {
        "pre_filter": framework.pre_filter,
        "filter": framework.filter,
        "pre_score": framework.pre_score,
        "score": framework.score,
    }
    plugins: dict[str, Plugin] = {plugin.name: plugin for enabled in points.values() for plugin in enabled}
    if any(type(plugin) not in _KNOWN for plugin in plugins.values()):
        return False
    return all(
        (plugin in enabled) == hasattr(plugin, point)
        for plugin in plugins.values()
        for point, enabled in points.items()
    )


def _pre_filtered(framework: Framework, state: CycleState, pod: PodInfo) -> set[str]:
    """PreFilter of the plugins that do not count domains: who skips."""
    skipped = set()
    for plugin in framework.pre_filter:
        if isinstance(plugin, _BY_DOMAINS):
            continue
        if isinstance(plugin, _ABOUT_VOLUMES) and any(map(matters, pod.pod.spec.volumes)):
            raise NotFast("the pod has volumes")
        if isinstance(plugin, DynamicResources) and pod.pod.spec.resource_claims:
            raise NotFast("the pod has claims of devices")
        result = plugin.pre_filter(state, pod, framework.snapshot.nodes)
        if result.nodes is not None:
            raise NotFast(f"{plugin.name} narrows the nodes")
        if result.status is None and isinstance(plugin, DynamicResources):
            raise NotFast("a resource of the pod is backed by devices")
        if result.status is not None:
            if result.status.code is not Code.SKIP:
                raise NotFast(f"{plugin.name} rejects the pod")
            skipped.add(plugin.name)
    return skipped


def _evaluation(framework: Framework, state: CycleState, pod: PodInfo, skipped: set[str]) -> Evaluation:
    unscored = set()
    for plugin in framework.pre_score:
        if not isinstance(plugin, _BY_DOMAINS):
            status = plugin.pre_score(state, pod, ())
            if status is not None:
                if status.code is not Code.SKIP:
                    raise NotFast(f"{plugin.name} failed")
                unscored.add(plugin.name)
    filtering = [plugin for plugin in framework.filter if plugin.name not in skipped]
    scoring = [
        (plugin, framework.weights.get(plugin.name, 1))
        for plugin in framework.score
        if plugin.name not in unscored
        and not isinstance(plugin, DynamicResources)  # 0 for all without claims.
    ]

    def only(kind: type) -> Callable[[Any], bool]:
        return lambda plugin: isinstance(plugin, kind)

    return Evaluation(
        state=state,
        pod=pod,
        filters=[p for p in filtering if not isinstance(p, (*_BY_DOMAINS, NodeAffinity))],
        scorers=[
            (p, weight)
            for p, weight in scoring
            if not isinstance(p, (*_BY_DOMAINS, NodeAffinity, TaintToleration))
        ],
        tainted=next((pair for pair in scoring if isinstance(pair[0], TaintToleration)), None),
        labelled=next(filter(only(NodeAffinity), filtering), None),
        after_labels=_after(NodeAffinity.name, filtering),
        preferring=next((pair for pair in scoring if isinstance(pair[0], NodeAffinity)), None),
    )


def _after(name: str, plugins: Sequence[Any]) -> frozenset[str]:
    """The names of those that come after the one of this name, if there is one."""
    names = [plugin.name for plugin in plugins]
    return frozenset(names[names.index(name) :]) if name in names else frozenset()


def _domains_of(
    plugin: PodTopologySpread | InterPodAffinity, framework: Framework, index: NodeIndex, pod: PodInfo
) -> Domains:
    if isinstance(plugin, PodTopologySpread):
        if plugin.can_fall_back(pod):
            raise NotFast("the pod can fall back")
        return Spread(pod, *plugin.constraints_of(pod), index)
    if pod.terms.errors:
        raise NotFast("a term does not parse")
    return Affinity(plugin, Incoming(pod, framework.handle.listers), index)
