"""DynamicResources: a pod goes where its claims' devices are, or where devices can be found for them, and is bound when it has them.

    PreEnqueue  every claim must be there
    PreFilter   what of them is allocated, what has to be
    Filter      can this node reach what is allocated, and has it devices for the rest (`search`)
    PostFilter  gives back what an earlier attempt allocated where no node can use it
    Score       alternatives that were wanted more
    Generate    for a group that shares a claim, a placement for each set of devices that it may get (`placement`)
    PreBind     writes allocation and reservation to the claims, and waits for devices that have to get ready first (`binding`)

What is taken is told by the claims alone, promised ones included, so nothing is kept here that a replay would not know: the inventory of
devices and the sum of the allocations are caches, brought up to date from what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tidelog.api.cel.program import COST_MAX, COST_OF_A_PAUSE
from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod, ResourceClaim
from tidelog.api.selectors import SelectorError, node_selector_matcher
from tidelog.api.times import DURATION_RULE, NANOS, parse_duration
from tidelog.api.validation.field_errors import ErrorList
from tidelog.api.writes import Write
from tidelog.framework.arithmetic import scaled_to_maximum
from tidelog.framework.behaviours import (
    DEVICE_PLACEMENTS,
    MEMBERS_ARE_TOLD_APART,
    OBSTACLES_GONE_WAKE,
    SEARCHES_OF_THEIR_OWN,
    SELECTORS_PAUSE_NOBODY,
)
from tidelog.framework.events import EventRegistration
from tidelog.framework.interface import (
    SKIP,
    Answer,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    GroupInfo,
    Handle,
    Placement,
    PlacementGeneratePlugin,
    PlacementStatePlugin,
    Plugin,
    PluginArgs,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    ReservePlugin,
    ScorePlugin,
    Status,
    WritesBeforeBinding,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import ConcernsPods, NotCountable, PodParts, SignsAttempts, SignsPods
from tidelog.plugins.dynamic_resources.allocator import (
    AllocationError,
    Allocator,
    NodeLocalFailure,
    SearchGivenUp,
)
from tidelog.plugins.dynamic_resources.binding import (
    answer_of,
    claim_writes,
    deallocation,
    deletion,
    is_for,
    special_writes,
)
from tidelog.plugins.dynamic_resources.claims import NoClaim, claims_of, is_reserved_for
from tidelog.plugins.dynamic_resources.conditions import Failed, is_late, unready
from tidelog.plugins.dynamic_resources.cycle import STATE, Cycle, NodePlan, SeenClaim, cycle_of, points
from tidelog.plugins.dynamic_resources.extended_resources import (
    IN_MEMORY,
    Mapped,
    backed_requests,
    requests_and_mappings,
    special_claim,
    with_requests,
)
from tidelog.plugins.dynamic_resources.hints import registrations
from tidelog.plugins.dynamic_resources.placement import shared_claims
from tidelog.plugins.dynamic_resources.requests import PreparedClaim
from tidelog.plugins.dynamic_resources.result import share_name
from tidelog.plugins.dynamic_resources.search import STEPS_OF_OWN
from tidelog.plugins.dynamic_resources.stock import Stock

CANNOT_ALLOCATE = "cannot allocate all claims"
NOT_AVAILABLE = "resourceclaim not available on the node"
LEFT_OVER = "cannot schedule extended resource claim"
DEALLOCATED = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"
CANNOT_FIT = "cannot fit resource"
CONSUMERS_MAX = 256
_RUNNING = 'running PreFilter plugin "DynamicResources": '
"""kube-scheduler's framework says this before a plugin's error."""


class DynamicResourcesArgs(PluginArgs, frozen=True, kw_only=True):
    filter_timeout: str = "10s"
    """Taken for kube-scheduler's sake: the search counts steps instead of seconds (docs/devices.md)."""
    binding_timeout: str = "10m0s"
    """How long a pod waits for devices that have to be made ready, before it is tried again."""


class DynamicResources(Plugin):
    """Finds devices for the claims of pods."""

    name = "DynamicResources"
    Args = DynamicResourcesArgs
    filter_depends = Depends.NODE | Depends.OCCUPANTS | Depends.CLUSTER
    score_depends = Depends.NODE | Depends.OCCUPANTS | Depends.CLUSTER
    signed_depends: ClassVar[Depends] = Depends.CLUSTER
    signed_parts = PodParts.SPEC | PodParts.REQUESTS
    ours_at = ("placementGenerate", "placementState")
    tries_resolvable_only = True
    reads_first_member = False
    too_late: ClassVar[str] = "device binding timeout"

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        pauses_nobody = handle.behaves(SELECTORS_PAUSE_NOBODY) and not handle.upstream
        self._binding_timeout = parse_duration(args.binding_timeout)
        self._tells_members_apart = handle.behaves(MEMBERS_ARE_TOLD_APART)
        self._stock = Stock(
            handle,
            COST_OF_A_PAUSE if pauses_nobody else COST_MAX,
            STEPS_OF_OWN if handle.behaves(SEARCHES_OF_THEIR_OWN) else 0,
        )

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        """Both are durations, and the wait for devices is at least a second."""
        errors = ErrorList()
        for name, value, least, rule in (
            ("filterTimeout", args.filter_timeout, 0, "must be zero or greater"),
            ("bindingTimeout", args.binding_timeout, NANOS, "must be at least 1 second"),
        ):
            try:
                if parse_duration(value) < least:
                    errors.invalid(f"{path}.{name}", value, rule)
            except ValueError:
                errors.invalid(f"{path}.{name}", value, DURATION_RULE)
        return errors

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        return claims_of(pod, self.handle.listers.devices.claim)

    # --- before any node --------------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """All claims must be there before it makes sense to look for a node."""
        if not pod.spec.resource_claims:
            return None
        try:
            self._claims_of(pod)
        except NoClaim as problem:
            return unresolvable(str(problem))
        return None

    def sign_pod(self, pod: PodInfo) -> object:
        """Whether it has claims; of extended resources all that the search is told."""
        extended = backed_requests(pod.requests, self.handle.listers.devices.class_backing)
        spec = pod.pod.spec
        asked = [(c.resources, c.restart_policy) for c in (*spec.init_containers, *spec.containers)]
        return len(spec.resource_claims), extended, asked if extended else ()

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """Return the claims' requests, or from where they can be used: not which claims they are."""
        devices = self.handle.listers.devices
        try:
            claims = self._claims_of(pod.pod)
        except NoClaim as problem:
            return str(problem)
        has_left = (
            bool(devices.claims_controlled_by(pod.pod.metadata.uid)) and self._left_over(pod) is not None
        )
        if not self._tells_members_apart and (has_left or any(map(self._was_not_told, claims))):
            return state.turn, state.at
        told = [self._told(claim, state.at) for claim in claims]
        own = (state.turn, state.at, pod.uid) if has_left else None
        return told, own, devices.classes_generation, devices.shared_generation, self._stock.shared()

    def _told(self, claim: ResourceClaim, now: int) -> object:
        """Return what of the claim the answers go by."""
        allocation, given = claim.status.allocation, self._stock.given_to(claim)
        if given is not None:
            return given.node_selector, points(claim, given), False
        if allocation is None:
            return claim.spec
        if self.handle.upstream and self.handle.listers.devices.is_promised(claim):
            return claim.metadata.namespace, claim.metadata.name
        is_usable = self._may_get_ready(claim, now)
        return allocation.node_selector, points(claim, allocation), True, is_usable

    def _may_get_ready(self, claim: ResourceClaim, now: int) -> bool:
        """Its devices are ready, or there is time left for them."""
        try:
            return unready(claim) is None or not is_late(claim, now, self._binding_timeout)
        except Failed:
            return False

    def _was_not_told(self, claim: ResourceClaim) -> bool:
        """Before behaviour 23 the answers for a pod with such a claim were those for all members of its group that were asked about after it."""
        if claim.status.allocation is None or self._stock.given_to(claim) is not None:
            return False
        if self.handle.upstream and self.handle.listers.devices.is_promised(claim):
            return True
        try:
            return unready(claim) is not None
        except Failed:
            return True

    def _left_over(self, pod: PodInfo) -> ResourceClaim | None:
        """A claim of extended resources that an earlier attempt has made."""
        devices = self.handle.listers.devices
        if not backed_requests(pod.requests, devices.class_backing):
            return None
        found = special_claim(pod.pod, devices.claims_controlled_by(pod.pod.metadata.uid))
        return None if found.metadata.name == IN_MEMORY else found

    def concerns(self, pod: PodInfo) -> bool:
        backing = self.handle.listers.devices.class_backing
        return bool(pod.pod.spec.resource_claims or backed_requests(pod.requests, backing))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        devices = self.handle.listers.devices
        try:
            claims = self._claims_of(pod.pod)
        except NoClaim as problem:
            return PreFilterResult(status=unresolvable(str(problem)))
        extended = backed_requests(pod.requests, devices.class_backing)
        special = (
            special_claim(pod.pod, devices.claims_controlled_by(pod.pod.metadata.uid)) if extended else None
        )
        if not claims and special is None:
            return PreFilterResult(status=SKIP)
        seen: list[SeenClaim] = []
        for claim in claims:
            found = self._seen(claim, state.at)
            if isinstance(found, Status):
                return PreFilterResult(status=found)
            seen.append(found)
        cycle = Cycle(seen, special, extended, is_shared=state.is_shared)
        if cycle.to_allocate or special is not None:
            about = (pod.uid, state.turn)
            cycle.allocator = Allocator(
                self._stock.inventory(),
                self._stock.allocated(),
                devices.device_class,
                cycle.to_allocate,
                lambda claim, result: share_name(*about, claim, result),
                self._stock.memory.of(devices.classes_generation, self._stock.allocated()),
                cost_max=self._stock.selector_cost_max,
                asks_again=state.is_shared,
                effort=self.handle.snapshot.effort,
                of_own=self._stock.steps_of_own,
            )
        state.write(STATE, cycle)
        return PreFilterResult()

    def _seen(self, claim: ResourceClaim, now: int) -> SeenClaim | Status:
        """Note from where an allocated claim can be used; of the others only the classes are checked."""
        given = self._stock.given_to(claim)
        allocation = claim.status.allocation or given
        own = f"{claim.metadata.namespace}/{claim.metadata.name}"
        if self.handle.upstream and self.handle.listers.devices.is_promised(claim):
            # By default the pod shares what was promised: if the promise is not kept, its attempt is aborted.
            return unresolvable(f"resource claim {own} is in the process of being allocated")
        if allocation is not None:
            selector = allocation.node_selector
            try:
                reach = None if selector is None else node_selector_matcher(selector)
            except SelectorError as problem:
                return Status(Code.ERROR, (f"{_RUNNING}{problem}",))
            is_usable = given is not None or self._may_get_ready(claim, now)
            return SeenClaim(claim, allocation, given is not None, reach, is_usable)
        for request in claim.spec.devices.requests:
            named = (
                [(request.name, request.exactly.device_class_name)]
                if request.exactly is not None
                else [
                    (f"{request.name}/{sub.name}", sub.device_class_name) for sub in request.first_available
                ]
            )
            if not named:
                return unresolvable(f"resource claim {own}, request {request.name}: unknown request type")
            for name, device_class in named:
                if not device_class:
                    return Status(Code.ERROR, (f"{_RUNNING}request {name}: unsupported request type",))
                if self.handle.listers.devices.device_class(device_class) is None:
                    return unresolvable(f"request {name}: device class {device_class} does not exist")
        return SeenClaim(claim, None, False, None, True)

    # --- one node ---------------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        cycle = cycle_of(state)
        if cycle is None:
            return None
        wanted = self._wanted_of_devices(cycle, node)
        if isinstance(wanted, Status):
            return wanted
        if not cycle.claims and not wanted:
            return None
        plan: NodePlan | Status | None = None
        if cycle.allocator is not None and (cycle.to_allocate or wanted):
            plan = self._plan(cycle, pod.pod, node, wanted)
            if isinstance(plan, Status):
                return plan
        if not all(_is_available(seen, node) for seen in cycle.claims):
            return unresolvable(NOT_AVAILABLE)
        if isinstance(plan, NodePlan):
            cycle.plans[node.name] = plan
        return None

    def _wanted_of_devices(self, cycle: Cycle, node: NodeInfo) -> tuple[str, ...] | Status:
        """The extended resources that this node has to give as devices: it offers none of them itself."""
        special = cycle.special
        if special is None:
            return ()
        if special.spec.devices.requests:
            return unresolvable(LEFT_OVER)
        listed = node.node.status.allocatable
        backing = self.handle.listers.devices.class_backing
        wanted: list[str] = []
        for resource in sorted(cycle.extended):
            if not node.allocatable.get(resource, 0) and backing(resource) is not None:
                wanted.append(resource)
            elif resource not in listed:
                return unresolvable(CANNOT_FIT)
        return tuple(wanted)

    def _plan(self, cycle: Cycle, pod: Pod, node: NodeInfo, wanted: tuple[str, ...]) -> NodePlan | Status:
        assert cycle.allocator is not None
        special: PreparedClaim | None = None
        mappings: Sequence[Mapped] = ()
        if wanted and cycle.special is not None:
            found = cycle.specials.get(wanted)
            if found is None:
                backing = self.handle.listers.devices.class_backing
                requests, mappings = requests_and_mappings(pod, wanted, backing)
                special = cycle.allocator.prepare(with_requests(cycle.special, requests))
                found = cycle.specials[wanted] = (special, mappings)
            special, mappings = found
        if cycle.is_shared:
            cycle.allocator.look_again(self._stock.inventory(), self._stock.allocated())
        try:
            allocations = cycle.allocator.allocate(node.node, special)
        except NodeLocalFailure as failure:
            return unresolvable(str(failure))
        except SearchGivenUp as limit:
            if cycle.is_shared:
                # Which node is the one where that happens depends on the order in which they are asked.
                raise NotCountable(str(limit)) from limit
            text = str(limit)
            # Upstream ends the attempt when its ten seconds are over; here the other nodes are still looked at.
            return (
                Status(Code.ERROR, (f"node {node.name}: {text}",))
                if self.handle.upstream
                else unresolvable(text)
            )
        except AllocationError as problem:
            return Status(Code.ERROR, (str(problem),))
        return (
            unresolvable(CANNOT_ALLOCATE)
            if allocations is None
            else NodePlan(allocations, special and special.claim, mappings)
        )

    # --- after all nodes --------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult:
        """Give back what is allocated where no node can use it: the first claim that nobody else uses, or what was left of extended resources."""
        cycle = self._own_cycle(state, pod) if self.concerns(pod) else None
        if cycle is None:
            return PostFilterResult(unschedulable())
        for claim in self._in_vain(cycle, pod.pod, statuses):
            return PostFilterResult(unschedulable(DEALLOCATED), writes=(deallocation(claim),))
        if cycle.special is not None and cycle.special.metadata.name != IN_MEMORY:
            return PostFilterResult(unschedulable(DELETED), writes=tuple(deletion(cycle.special)))
        return PostFilterResult(unschedulable())

    def _own_cycle(self, state: CycleState, pod: PodInfo) -> Cycle | None:
        """Of this very pod."""
        cycle = cycle_of(state)
        if cycle is None or cycle.is_shared:
            own = CycleState(state.at, state.waiting, state.turn)
            self.pre_filter(own, pod, ())
            cycle = cycle_of(own)
        return cycle

    def _in_vain(self, cycle: Cycle, pod: Pod, statuses: Mapping[str, Status]) -> Iterator[ResourceClaim]:
        """The claims that are allocated where the pod cannot use them, and that nobody else uses."""
        mine = [s for s in cycle.claims if s.claim.status.allocation and is_for(pod, s.claim)]
        if not mine:
            return
        there = [
            node
            for name, status in statuses.items()
            if status.plugin == self.name and status.reasons == (NOT_AVAILABLE,)
            if (node := self.handle.snapshot.get(name)) is not None
        ]
        for seen in mine:
            if not all(_is_available(seen, node) for node in there):
                yield seen.claim

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        cycle = cycle_of(state)
        plan = None if cycle is None else cycle.plans.get(node.name)
        return 0 if cycle is None or plan is None else cycle.points_on(plan)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        return scaled_to_maximum(scores)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Everything was found in Filter; what is promised is written (`writes`)."""
        cycle = cycle_of(state)
        if cycle is None:
            return None
        if cycle.to_allocate and node not in cycle.plans:
            return Status(Code.ERROR, ("claim allocation not found for node",))
        for claim, *_ in cycle.claims:
            is_full = len(claim.status.reserved_for) >= CONSUMERS_MAX
            if is_full and not is_reserved_for(claim, pod.pod):
                own = f"{claim.metadata.namespace}/{claim.metadata.name}"
                return unresolvable(f"resource claim {own} has {CONSUMERS_MAX} consumers already")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Forget with the attempt what was promised."""

    # --- before binding ---------------------------------------------------------------------------------------------------

    @property
    def answer_timeout_seconds(self) -> float:
        return self._binding_timeout / NANOS

    def writes(self, state: CycleState, pod: PodInfo, node: str) -> Sequence[Write]:
        """Allocation and reservation of each claim, in the pod's order."""
        cycle = cycle_of(state)
        if cycle is None:
            return ()
        plan = cycle.plans.get(node)
        fresh = iter(() if plan is None else plan.allocations)
        found: list[Write] = []
        for seen in cycle.claims:
            new = seen.allocation if seen.is_given else None
            if seen.allocation is None:
                new = next(fresh)
            found += claim_writes(seen.claim, pod.pod, new, state.at)
        if plan is not None and plan.special is not None:
            found += special_writes(plan.special, pod.pod, next(fresh), plan.mappings, state.turn, state.at)
        return found

    def reads(self, state: CycleState, pod: PodInfo, node: str) -> Iterable[str]:
        """The claims, and the devices that they get: nobody else may have taken one of them meanwhile."""
        cycle = cycle_of(state)
        if cycle is None:
            return
        yield from (object_key(seen.claim) for seen in cycle.claims)
        plan = cycle.plans.get(node)
        given = (seen.allocation for seen in cycle.claims if seen.is_given and seen.allocation is not None)
        for allocation in (*given, *(() if plan is None else plan.allocations)):
            for result in allocation.devices.results:
                yield f"Device/{result.driver}/{result.pool}/{result.device}"

    def answer(self, pod: PodInfo, node: NodeInfo | None, writes: Sequence[Write]) -> Answer:
        """Whether every device is ready."""
        return answer_of(pod.pod, writes, self.handle.listers.devices.claim)

    def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Everything is written, and answered."""
        return None

    # --- groups -----------------------------------------------------------------------------------------------------------

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]:
        """A placement for each set of devices that the claims may get that all members share (`placement`); the parents, if there are none."""
        if self.handle.upstream or not self.handle.behaves(DEVICE_PLACEMENTS):
            return parents, None
        placements, effort = parents, self.handle.snapshot.effort
        for name in shared_claims(group):
            claim = self.handle.listers.devices.claim(group.members[0].namespace, name)
            if (
                claim is not None
                and claim.status.allocation is None
                and not claim.metadata.deletion_timestamp
            ):
                placements = [
                    one
                    for parent in placements
                    for one in self._stock.split(parent, claim, state.turn, self._nodes_of(parent), effort)
                ]
        if placements is parents:
            return parents, None
        return sorted(placements, key=lambda placement: (placement.rank, placement.name)), None

    def _nodes_of(self, placement: Placement) -> list[NodeInfo]:
        return [node for name in placement.nodes if (node := self.handle.snapshot.get(name)) is not None]

    def assume(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        """The members see the claims with the placement's devices, and nobody else gets these."""
        self._stock.give(placement)
        return None

    def revert(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        self._stock.take_back(placement)
        return None

    # --- hints ------------------------------------------------------------------------------------------------------------

    def events_to_register(self) -> list[EventRegistration]:
        wider = not self.handle.upstream and self.handle.behaves(OBSTACLES_GONE_WAKE)
        return registrations(lambda: self.handle.listers.devices, wider=wider)


def _is_available(seen: SeenClaim, node: NodeInfo) -> bool:
    """Whether a claim that has devices can be used from the node, or may still be."""
    if seen.allocation is None:
        return True
    return (seen.reach is None or seen.reach(node.node)) and seen.is_usable


_pre_enqueue: type[PreEnqueuePlugin] = DynamicResources
_pre_filter: type[PreFilterPlugin] = DynamicResources
_filter: type[FilterPlugin] = DynamicResources
_post_filter: type[PostFilterPlugin] = DynamicResources
_score: type[ScorePlugin] = DynamicResources
_reserve: type[ReservePlugin] = DynamicResources
_signs: type[SignsPods] = DynamicResources
_concerns: type[ConcernsPods] = DynamicResources
_signs_attempts: type[SignsAttempts] = DynamicResources
_generate: type[PlacementGeneratePlugin] = DynamicResources
_placement_state: type[PlacementStatePlugin] = DynamicResources
_pre_bind: type[PreBindPlugin] = DynamicResources
_writes: type[WritesBeforeBinding] = DynamicResources

__all__ = ["DynamicResources", "DynamicResourcesArgs"]
