"""Plugins of somebody else's that make offers (`tidelog.framework.offers`), at least one for each kind of offer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from tidelog.api.selectors import Labels
from tidelog.api.well_known import ZONE
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    NormalizeScore,
    Plugin,
    PodHooks,
    PreFilterPlugin,
    PreFilterResult,
    ReservePlugin,
    ScorePlugin,
    Status,
    unschedulable,
)
from tidelog.framework.lanes import WIDTH, Lanes
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, NodeSets, places_in
from tidelog.framework.offers import (
    ConcernsPods,
    CountsDomains,
    FollowsMoves,
    LooksBeyond,
    NodeSize,
    NodeUse,
    PodParts,
    RoomsTogether,
    ScoresTogether,
    SignsAttempts,
    SignsPods,
    SumsUp,
    Together,
    UseRooms,
    UseScores,
)

MINUTE = 60_000_000_000

# --- pods in a zone: counted in PreFilter, beyond the node, or as domains -------------------------------------------------

CROWDED = unschedulable("enough of these in the zone")
_IN_ZONE_MAX = 4


class ZoneCounts:
    """Zone → how many pods there are like one."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(counts)

    def clone(self) -> ZoneCounts:
        return ZoneCounts(self._counts)

    def add(self, zone: str | None, by: int) -> None:
        if zone is not None and by:
            self._counts[zone] = self._counts.get(zone, 0) + by

    def of(self, zone: str | None) -> int:
        return 0 if zone is None else self._counts.get(zone, 0)

    def all(self) -> list[tuple[str, int]]:
        return sorted(self._counts.items())


def is_alike(pod: PodInfo, other: PodInfo) -> bool:
    return other.namespace == pod.namespace and other.labels.get("app") == pod.labels.get("app")


def count_on(pod: PodInfo, node: NodeInfo) -> int:
    return sum(is_alike(pod, other) for other in node.pods.values())


def counted(pod: PodInfo, nodes: Sequence[NodeInfo]) -> ZoneCounts:
    found = ZoneCounts({})
    for node in nodes:
        found.add(node.labels.get(ZONE), count_on(pod, node))
    return found


class ByZone(Plugin):
    """Depends on the pods in the node's zone, and offers nothing."""

    name = "ByZone"
    filter_depends = Depends.DOMAINS
    score_depends = Depends.DOMAINS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write(self.name, counted(pod, nodes))
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._counts(state).add(node.labels.get(ZONE), is_alike(pod, added))
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._counts(state).add(node.labels.get(ZONE), -is_alike(pod, removed))
        return None

    def _counts(self, state: CycleState) -> ZoneCounts:
        found: ZoneCounts = state.read(self.name)
        return found

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return CROWDED if self._counts(state).of(node.labels.get(ZONE)) >= _IN_ZONE_MAX else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return self._counts(state).of(node.labels.get(ZONE))

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        most = max(scores)
        return [100 - 100 * score // most if most else 100 for score in scores]


class BeyondZone(ByZone):
    """The same; it says what it read of the other nodes."""

    name = "BeyondZone"
    filter_depends = Depends.NODE | Depends.DOMAINS
    score_depends = Depends.NODE | Depends.DOMAINS

    def beyond_node(self, pod: PodInfo) -> Hashable:
        return tuple(counted(pod, self.handle.snapshot.nodes).all())


class ZoneDomains:
    """Implements `tidelog.framework.offers.Domains`."""

    skips_filter = False
    has_no_say = False
    reads_labels: Sequence[str] = (ZONE,)
    reads_nodes = False
    reads_pods = True

    def __init__(self, plugin: str, pod: PodInfo, nodes: NodeSets) -> None:
        self._plugin = plugin
        self._pod = pod
        self._nodes = nodes
        self._at: dict[int, int] = {}
        """Place → how many pods there are like this one."""
        for place, node in nodes.occupied():
            self.follow(place, node)

    def follow(self, place: int, node: NodeInfo) -> None:
        self._at[place] = count_on(self._pod, node)

    def _zones(self) -> list[tuple[str, int, Bits]]:
        """Each zone with the number of such pods in it, and its nodes."""
        return [
            (zone, sum(self._at.get(place, 0) for place in places_in(bits)), bits)
            for zone, bits in self._nodes.topology(ZONE).bits.items()
        ]

    def allowed(self) -> Bits | None:
        found = self._nodes.all
        for _, count, bits in self._zones():
            if count >= _IN_ZONE_MAX:
                found &= ~bits
        return found

    def rejections(self, among: Bits) -> Sequence[tuple[Status, Bits]]:
        allowed = self.allowed()
        assert allowed is not None
        left = among & ~allowed
        return [(CROWDED.by(self._plugin), left)] if left else []

    def scores(self, feasible: Bits) -> Groups | None:
        raws: dict[int, Bits] = {}
        rest = feasible
        for _, count, bits in self._zones():
            if bits & feasible:
                raws[count] = raws.get(count, 0) | bits & feasible
                rest &= ~bits
        if rest:
            raws[0] = raws.get(0, 0) | rest
        most = max(raws)
        found: dict[int, Bits] = {}
        for raw, bits in raws.items():
            score = 100 - 100 * raw // most if most else 100
            found[score] = found.get(score, 0) | bits
        return list(found.items())

    def fill(self, state: CycleState) -> None:
        state.write(self._plugin, ZoneCounts({zone: count for zone, count, _ in self._zones()}))


class MovingZoneDomains(ZoneDomains):
    """The same, as sums that follow nodes which come, go or get into another zone."""

    def __init__(self, plugin: str, pod: PodInfo, nodes: NodeSets) -> None:
        self._sums = ZoneCounts({})
        super().__init__(plugin, pod, nodes)

    def follow(self, place: int, node: NodeInfo) -> None:
        before = self._at.get(place, 0)
        super().follow(place, node)
        self._sums.add(node.labels.get(ZONE), self._at[place] - before)

    def follow_moves(self, moves: Mapping[int, Labels | None]) -> bool:
        for place, labels in moves.items():
            if labels is not None:
                self._sums.add(labels.get(ZONE), -self._at.pop(place, 0))
        return True

    def _zones(self) -> list[tuple[str, int, Bits]]:
        zones = self._nodes.topology(ZONE).bits
        return [(zone, self._sums.of(zone), bits) for zone, bits in zones.items()]


class CountingZone(ByZone):
    """The same; it counts, and answers with sets of nodes."""

    name = "CountingZone"

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.namespace, pod.labels.get("app")

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> ZoneDomains | None:
        return ZoneDomains(self.name, pod, nodes)


class FollowingZone(CountingZone):
    """The same; it need not count anew when nodes move."""

    name = "FollowingZone"

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> ZoneDomains | None:
        return MovingZoneDomains(self.name, pod, nodes)


# --- what an attempt's answers depend on ----------------------------------------------------------------------------------


def local_volumes(plugin: Plugin) -> int:
    """How many volumes of a class there are."""
    return len(plugin.handle.listers.storage.volumes_of_class("local"))


class ByStorage(Plugin):
    """Depends on the objects of storage, and offers nothing about them."""

    name = "ByStorage"
    filter_depends = Depends.STORAGE | Depends.OCCUPANTS
    score_depends = Depends.STORAGE | Depends.OCCUPANTS

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get("app")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        is_odd = pod.labels.get("app") == "db" and (local_volumes(self) + len(node.pods)) % 3 == 2
        return unschedulable("odd volumes") if is_odd else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return (local_volumes(self) + len(node.pods)) % 5 * 20


class SigningStorage(ByStorage):
    """The same; it says which of them its answers follow from."""

    name = "SigningStorage"
    signed_depends: ClassVar[Depends] = Depends.STORAGE

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        return local_volumes(self)


class ByMinute(Plugin):
    """Depends on the time of the attempt."""

    name = "ByMinute"
    score_depends = Depends.LABELS

    def sign_pod(self, pod: PodInfo) -> object:
        return None

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        return state.at // MINUTE % 3

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return (len(node.labels) + state.at // MINUTE) % 3 * 50


class Choosy(Plugin):
    """Has to do with few pods only, and says so."""

    name = "Choosy"

    def sign_pod(self, pod: PodInfo) -> object:
        return self.concerns(pod)

    def concerns(self, pod: PodInfo) -> bool:
        return "choosy" in pod.labels or pod.labels.get("app") == "cache"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult(status=None if self.concerns(pod) else SKIP)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if len(node.pods) < 2 else unschedulable("too many neighbours")

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Nothing was set aside."""


class ChoosyByState(Choosy):
    """The same, with a declaration."""

    name = "ChoosyByState"
    filter_depends = Depends.STATE


class Sizes(Plugin):
    """Reads something of all nodes, and says what."""

    name = "Sizes"
    score_depends = Depends.NODE | Depends.ALL_NODES

    def beyond_node(self, pod: PodInfo) -> Hashable:
        return len(self.handle.snapshot.nodes)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return (len(node.name) + len(self.handle.snapshot.nodes)) % 100


# --- functions of use, and their answers in lanes -------------------------------------------------------------------------

JudgeUse = Callable[[PodInfo, NodeUse, NodeSize], int]
"""A number below 256."""


def use_of(node: NodeInfo) -> NodeUse:
    taken = node.requested
    return NodeUse(taken.get("cpu", 0), taken.get("memory", 0), node.non_zero_cpu, node.non_zero_memory)


def size_of(node: NodeInfo) -> NodeSize:
    return NodeSize(node.allocatable.get("cpu", 0), node.allocatable.get("memory", 0))


def has_headroom(pod: PodInfo, use: NodeUse, size: NodeSize) -> int:
    """A quarter of the cpu stays free."""
    return int(use.cpu + pod.requests.get("cpu", 0) <= size.cpu * 3 // 4)


def calm(pod: PodInfo, use: NodeUse, size: NodeSize) -> int:
    """The less memory is taken the more; it falls with the use."""
    left = size.memory - use.scored_memory - pod.score_requests.get("memory", 0)
    return 100 * left // size.memory if left > 0 else 0


class PodsInLanes:
    """Implements `tidelog.framework.offers.ManyPods`: one by one. Of every third lane it is not sure."""

    def __init__(self, judge: JudgeUse) -> None:
        self._judge = judge
        self._pods: dict[int, PodInfo] = {}

    def put(self, lane: int, pod: PodInfo) -> None:
        self._pods[lane] = pod

    def answers(self, use: NodeUse, size: NodeSize) -> tuple[Lanes, Lanes]:
        found = unsure = 0
        for lane, pod in self._pods.items():
            if lane % 3 == 2:
                unsure |= 1 << WIDTH * lane
            else:
                found |= self._judge(pod, use, size) << WIDTH * lane
        return found, unsure


class UsesInLanes:
    """Implements `tidelog.framework.offers.ManyUses` and, of what falls with the use, `Bounds`."""

    def __init__(self, judge: JudgeUse) -> None:
        self._judge = judge
        self._uses: dict[int, tuple[NodeUse, NodeSize]] = {}

    def put_use(self, lane: int, use: NodeUse, size: NodeSize) -> None:
        self._uses[lane] = use, size

    def put_range(self, lane: int, low: NodeUse, high: NodeUse, size: NodeSize) -> None:
        self.put_use(lane, low, size)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        found = unsure = 0
        for lane, (use, size) in self._uses.items():
            if lane % 3 == 2:
                unsure |= 1 << WIDTH * lane
            else:
                found |= self._judge(pod, use, size) << WIDTH * lane
        return found, unsure

    def bounds_for(self, pod: PodInfo) -> Lanes:
        found = 0
        for lane, (use, size) in self._uses.items():
            found |= self._judge(pod, use, size) << WIDTH * lane
        return found


def has_memory(size: NodeSize) -> bool:
    return size.memory > 0


class ByUse(Plugin):
    """Goes by used cpu and memory, and has functions of these."""

    name = "ByUse"
    filter_depends = Depends.STATE
    score_depends = Depends.STATE
    signed_parts = PodParts.SPEC | PodParts.REQUESTS

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.requests.get("cpu", 0), pod.score_requests.get("memory", 0)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if has_headroom(pod, use_of(node), size_of(node)) else unschedulable("no headroom")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        size = size_of(node)
        return calm(pod, use_of(node), size) if has_memory(size) else 0

    def use_fits(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], bool] | None:
        size = size_of(node)
        return lambda use: bool(has_headroom(pod, use, size))

    def use_score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], int] | None:
        size = size_of(node)
        return (lambda use: calm(pod, use, size)) if has_memory(size) else None


class ByUseTogether(ByUse):
    """The same; it answers about many pods or nodes at once."""

    name = "ByUseTogether"

    def rooms_together(self) -> Together | None:
        return Together(has_memory, partial(PodsInLanes, has_headroom), partial(UsesInLanes, has_headroom))

    def scores_together(self) -> Together | None:
        uses = partial(UsesInLanes, calm)
        return Together(has_memory, partial(PodsInLanes, calm), uses, uses)


class SpareCpu(Plugin):
    """Leaves some cpu free on each node, and says how much a pod needs at least."""

    name = "SpareCpu"
    filter_depends = Depends.STATE

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.requests.get("cpu", 0)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        free = size_of(node).cpu - use_of(node).cpu
        return None if pod.requests.get("cpu", 0) + 250 <= free else unschedulable("no cpu to spare")

    def needs(self, pod: PodInfo) -> Mapping[str, int]:
        return {"cpu": pod.requests.get("cpu", 0)}


OFFERING: tuple[type[Plugin], ...] = (
    BeyondZone,
    CountingZone,
    FollowingZone,
    SigningStorage,
    ByMinute,
    Choosy,
    ChoosyByState,
    Sizes,
    ByUse,
    ByUseTogether,
    SpareCpu,
)

_pre_filter: type[PreFilterPlugin] = ByZone
_hooks: type[PodHooks] = ByZone
_filter: type[FilterPlugin] = ByZone
_score: type[ScorePlugin] = ByZone
_normalize: type[NormalizeScore] = ByZone
_reserve: type[ReservePlugin] = Choosy
_signs: type[SignsPods] = CountingZone
_concerns: type[ConcernsPods] = Choosy
_attempts: type[SignsAttempts] = SigningStorage
_beyond: type[LooksBeyond] = BeyondZone
_counts: type[CountsDomains] = CountingZone
_moves: type[FollowsMoves] = MovingZoneDomains
_rooms: type[UseRooms] = ByUse
_use_scores: type[UseScores] = ByUse
_rooms_together: type[RoomsTogether] = ByUseTogether
_scores_together: type[ScoresTogether] = ByUseTogether
_sums: type[SumsUp] = SpareCpu
