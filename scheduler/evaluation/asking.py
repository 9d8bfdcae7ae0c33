"""How often each plugin of a profile is asked: what its declaration and what it offers come to (docs/decisions/0011).

This is the only place that looks at declarations. Everything a plugin says is checked here as the plain evaluation checks it; where it
fails, `NotFast` is raised, and the plain evaluation tells what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from tidelog.api.objects import Container, Pod, PodSpec, ResourceRequirements
from tidelog.api.selectors import SelectorError
from tidelog.framework.framework import MAX_NODE_SCORE, Framework
from tidelog.framework.interface import (
    Code,
    CycleState,
    Depends,
    NormalizeScore,
    PreFilterResult,
    Status,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import (
    EVERYTHING,
    ConcernsPods,
    CountsDomains,
    LooksBeyond,
    NotCountable,
    PodParts,
    SignsAttempts,
    SignsPods,
    Together,
    UseRooms,
    UseScores,
)

_POINTS = ("pre_filter", "filter", "pre_score", "score")
SPEC_AND_REQUESTS = PodParts.SPEC | PodParts.REQUESTS
_LATER = ("reserve", "permit", "pre_bind", "bind", "post_bind")

T = TypeVar("T")


class NotFast(Exception):
    """The plain evaluation has to answer: for this shape, at least as the cluster is now."""


class Way(IntEnum):
    """How often a plugin is asked, the rarest first."""

    SHAPE = 0
    """Once for a shape of pods."""
    STATE = 1
    """Once for each state of nodes."""
    OBJECT = 2
    """Once for each node, until its object changes."""
    NODE = 3
    """Once for each node, until its object or its pods change."""
    DOMAINS = 4
    """Never: it counts domains, and answers with sets of nodes."""
    PLAIN = 5
    """In each attempt, about each node that is left."""


def way_of(plugin: Any, depends: Depends) -> Way:
    """The way for an answer that is declared so."""
    if isinstance(plugin, LooksBeyond):
        depends &= ~(Depends.ALL_NODES | Depends.DOMAINS)
    if isinstance(plugin, SignsAttempts):
        depends &= ~getattr(plugin, "signed_depends", Depends.POD)
    if not depends:
        return Way.SHAPE
    if not depends & ~Depends.STATE:
        return Way.STATE
    if not depends & ~Depends.NODE:
        return Way.OBJECT
    return Way.PLAIN if depends & ~(Depends.NODE | Depends.OCCUPANTS) else Way.NODE


class Asked:
    """A plugin at one extension point."""

    __slots__ = (
        "has_use_rooms",
        "has_use_score",
        "name",
        "normalizes",
        "of_traits",
        "plugin",
        "together",
        "way",
        "weight",
    )

    def __init__(
        self, plugin: Any, way: Way, depends: Depends, weight: int = 0, *, scores: bool = False
    ) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self.way = way
        self.weight = weight
        """Of its score."""
        self.of_traits = not depends & ~Depends.TRAITS
        """The answer depends on the nodes' traits only."""
        self.normalizes = isinstance(plugin, NormalizeScore)
        """Its raw scores are brought into 0..100 by a look at all of them."""
        self.has_use_score = way is Way.STATE and isinstance(plugin, UseScores)
        self.has_use_rooms = way is Way.STATE and isinstance(plugin, UseRooms)
        offer = getattr(plugin, "scores_together" if scores else "rooms_together", None)
        self.together: Together | None = None if offer is None else offer()
        """Its answers for many pods and uses of nodes at once, if it offers that."""

    def verdict(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return its filter's answer about the node, with its name. Raises NotFast."""
        plugin = self.plugin
        try:
            status = plugin.filter(state, pod, node)
        except Exception as error:
            raise NotFast(f"{plugin.name} failed") from error
        if status is None:
            return None
        if not isinstance(status, Status):
            raise NotFast(f"{plugin.name} answered with something else")
        if status.code is Code.SUCCESS:
            return None
        if not status.is_rejected:
            raise NotFast(f"{plugin.name} failed")
        return status.by(plugin.name)

    def raw_score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Raises NotFast."""
        try:
            score = self.plugin.score(state, pod, node)
        except Exception as error:
            raise NotFast(f"{self.plugin.name} failed") from error
        if not self.normalizes:
            self._check(score)
        return score  # type: ignore[no-any-return]

    def normalized(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], raws: list[int]
    ) -> list[int]:
        """Raises NotFast."""
        try:
            scores = self.plugin.normalize_scores(state, pod, nodes, list(raws))
        except Exception as error:
            raise NotFast(f"{self.plugin.name} failed") from error
        if not isinstance(scores, list) or len(scores) != len(raws):
            raise NotFast(f"{self.plugin.name} normalises to something else")
        for score in scores:
            self._check(score)
        return scores

    def _check(self, score: object) -> None:
        if type(score) is not int or not 0 <= score <= MAX_NODE_SCORE:
            raise NotFast(f"{self.plugin.name} gives something that is not a score")


class Evaluation(NamedTuple):
    """How the plugins are asked for the pods of a shape. Filters are in the order of the profile."""

    state: CycleState
    pod: PodInfo
    filters: Sequence[Asked]
    """By state, or once."""
    scorers: Sequence[Asked]
    """By state, whose scores count as they are."""
    raw_scorers: Sequence[Asked]
    """By state, whose scores are normalised."""
    node_filters: Sequence[Asked]
    node_scorers: Sequence[Asked]
    rooms: Sequence[Asked]
    """Those of `filters` that do not go by traits alone."""
    uses: Sequence[Asked]
    """Those of `scorers` that do not."""
    most: int
    """No sum of these scores is higher."""


class Ways:
    """Of the plugins of one framework."""

    def __init__(self, framework: Framework) -> None:
        plugins = {plugin.name: plugin for point in _POINTS for plugin in getattr(framework, point)}
        self._way: dict[str, tuple[Way, Way]] = {
            name: _ways(framework, plugin) for name, plugin in plugins.items()
        }
        self.filters = [
            Asked(plugin, self.of_filter(plugin), _declared(plugin, "filter_depends"))
            for plugin in framework.filter
        ]
        """In the order of the profile: the first one that rejects a node is to blame."""
        self.scorers = [
            Asked(
                plugin,
                self.of_score(plugin),
                _declared(plugin, "score_depends"),
                framework.weights.get(plugin.name, 1),
                scores=True,
            )
            for plugin in framework.score
        ]
        self.choosy: list[Any] = [plugin for plugin in plugins.values() if isinstance(plugin, ConcernsPods)]
        """They have nothing to do with most pods."""
        self.plain_pre_filters = [p for p in framework.pre_filter if self._is_asked_anew(p)]
        """Those whose PreFilter runs in each attempt."""
        self.plain_pre_scores = [p for p in framework.pre_score if self.of_score(p) is Way.PLAIN]
        plain = (one.plugin for one in (*self.filters, *self.scorers) if one.way is Way.PLAIN)
        self.plain = frozenset(plugin.name for plugin in (*self.plain_pre_filters, *plain))
        """The names of all that are asked in each attempt."""
        later = {id(plugin) for point in _LATER for plugin in getattr(framework, point)}
        self.settling = [
            plugin
            for plugin in plugins.values()
            if id(plugin) in later and hasattr(plugin, "filter") and self.of_filter(plugin) < Way.DOMAINS
        ]
        """They take part after the choice as well, and may look for what their PreFilter and Filter wrote."""
        self.counting = [
            (plugin, framework.weights.get(plugin.name, 1))
            for plugin in plugins.values()
            if self.of_filter(plugin) is Way.DOMAINS
        ]
        """They count domains, in the order of the profile."""
        self.looking_beyond = [
            plugin
            for plugin in plugins.values()
            if isinstance(plugin, LooksBeyond) and not self._counts(plugin)
        ]
        self.pre_filtering = frozenset(plugin.name for plugin in framework.pre_filter)
        of_spec = [p for p in plugins.values() if self._parts(p) is PodParts.SPEC]
        of_requests = [
            p for p in plugins.values() if self._parts(p) == SPEC_AND_REQUESTS and not self._counts(p)
        ]
        others = [p for p in plugins.values() if p not in (*of_spec, *of_requests)]
        self.bundles = [
            Bundle(framework, self, PodParts.SPEC, of_spec),
            Bundle(framework, self, SPEC_AND_REQUESTS, of_requests),
            *(Bundle(framework, self, self._parts(p), [p]) for p in sorted(others, key=self._reads_more)),
        ]
        """All that have a say about nodes, those first that read the least of a pod."""
        self.signs_all = any(bundle.parts is EVERYTHING for bundle in self.bundles)
        """Some plugin does not say of what its signature is made."""

    def of_filter(self, plugin: Any) -> Way:
        """How often PreFilter and Filter are asked."""
        return self._way[plugin.name][0]

    def of_score(self, plugin: Any) -> Way:
        """How often PreScore and Score are asked."""
        return self._way[plugin.name][1]

    def _parts(self, plugin: Any) -> PodParts:
        """Of what its signature is made."""
        if not isinstance(plugin, SignsPods):
            return EVERYTHING
        found: PodParts = getattr(plugin, "signed_parts", EVERYTHING)
        return found

    def _reads_more(self, plugin: Any) -> bool:
        """It reads more than the spec."""
        return self._parts(plugin) not in SPEC_AND_REQUESTS

    def _counts(self, plugin: Any) -> bool:
        return Way.DOMAINS in self._way[plugin.name]

    def _is_asked_anew(self, plugin: Any) -> bool:
        return Way.PLAIN in self._way[plugin.name]


class Bundle:
    """Plugins whose signatures go together: a pod is prepared for all of them at once (`parts`)."""

    def __init__(self, framework: Framework, ways: Ways, parts: PodParts, plugins: Sequence[Any]) -> None:
        self.parts = parts
        """Of what their signatures are made."""
        self.signs = [plugin.sign_pod if isinstance(plugin, SignsPods) else all_of for plugin in plugins]
        """The fields of a pod read by each of them."""
        self.pre_filters = [
            p for p in framework.pre_filter if p in plugins and ways.of_filter(p) < Way.DOMAINS
        ]
        """Those whose PreFilter runs for a shape."""
        self.pre_scores = [p for p in framework.pre_score if p in plugins and ways.of_score(p) < Way.DOMAINS]
        self.counting = [(p, weight) for p, weight in ways.counting if p in plugins]
        self.choosy = [p for p in ways.choosy if p in plugins]
        self.varying: list[Any] = [p for p in plugins if isinstance(p, SignsAttempts)]
        """For them each attempt may be another one."""
        self.looking_beyond = [p for p in ways.looking_beyond if p in plugins]


def _ways(framework: Framework, plugin: Any) -> tuple[Way, Way]:
    if isinstance(plugin, CountsDomains) and _takes_full_part(framework, plugin):
        return Way.DOMAINS, Way.DOMAINS
    filters = way_of(plugin, _declared(plugin, "filter_depends"))
    scores = way_of(plugin, _declared(plugin, "score_depends"))
    if not any(p is plugin for p in (*framework.filter, *framework.pre_filter)):
        filters = Way.SHAPE
    if not any(p is plugin for p in (*framework.score, *framework.pre_score)):
        scores = Way.SHAPE
    if filters is Way.PLAIN and hasattr(plugin, "score"):
        # Its score may look at what PreFilter wrote, and that is of this attempt.
        scores = Way.PLAIN
    return filters, scores


def _takes_full_part(framework: Framework, plugin: Any) -> bool:
    """Whether it is enabled wherever it can be: what it counts stands for all of its points together."""
    return all(
        any(p is plugin for p in getattr(framework, point)) == hasattr(plugin, point) for point in _POINTS
    )


def _declared(plugin: Any, attribute: str) -> Depends:
    found: Depends = getattr(plugin, attribute, Depends.CLUSTER)
    return found


def spec_alone(pod: Pod) -> PodSpec:
    """Without the group: its own cycle looks at that, and so the pods of all gangs of one kind are alike."""
    spec = pod.spec
    if spec.scheduling_group is None and spec.workload_ref is None:
        return spec
    return replace(spec, scheduling_group=None, workload_ref=None)


_NOTHING = ResourceRequirements()


def spec_without_requests(pod: Pod) -> PodSpec:
    """As `spec_alone`, without what containers request."""
    spec = spec_alone(pod)
    return replace(
        spec, containers=_unasking(spec.containers), init_containers=_unasking(spec.init_containers)
    )


def _unasking(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple([replace(one, resources=_NOTHING) for one in containers]) if containers else ()


def all_of(pod: PodInfo) -> object:
    """The fields that a plugin may read that does not say which."""
    meta = pod.pod.metadata
    return (meta.namespace, meta.labels, meta.annotations, meta.owner_references, spec_alone(pod.pod))


def pre_filtered(plugin: Any, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
    """Return the answer of this plugin's PreFilter, which is neither a rejection nor an error. Raises NotFast."""
    result = answered(plugin.pre_filter, state, pod, nodes)
    if not isinstance(result, PreFilterResult):
        raise NotFast(f"{plugin.name} answered with something else")
    if result.status is None or result.status.code in (Code.SKIP, Code.SUCCESS):
        return result
    raise NotFast(f"{plugin.name} rejects the pod")


def skips_score(plugin: Any, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> bool:
    """Whether PreScore leaves the plugin's scores out. Raises NotFast."""
    status = answered(plugin.pre_score, state, pod, nodes)
    if status is None:
        return False
    if isinstance(status, Status) and status.code in (Code.SKIP, Code.SUCCESS):
        return status.code is Code.SKIP
    raise NotFast(f"{plugin.name} failed")


def is_skipped(result: PreFilterResult) -> bool:
    """Whether the plugin has nothing to check."""
    return result.status is not None and result.status.code is Code.SKIP


def answered(ask: Callable[..., T], *given: Any) -> T:
    """Return what a plugin answers. Raises NotFast where it fails, or NotCountable, or SelectorError."""
    try:
        return ask(*given)
    except (NotFast, NotCountable, SelectorError):
        raise
    except Exception as error:
        raise NotFast("a plugin failed") from error


def beyond_nodes(plugins: Sequence[LooksBeyond], pod: PodInfo) -> tuple[Hashable, ...]:
    """Return versions of what these read beyond the nodes. Raises as `answered` does."""
    return tuple([answered(plugin.beyond_node, pod) for plugin in plugins])
