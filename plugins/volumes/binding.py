"""VolumeBinding: a pod goes where its volumes are, or where they can be bound or made, and is bound when they have been.

For each node Filter makes a *plan*: which of the volumes that are there the claims that wait would get (`matching`), and which volumes somebody
would have to make (`provisioning`). Reserve turns the chosen node's plan into writes. The first of them put volume and claim together, the
others name the node to whoever makes volumes; the pod is bound when they have been answered (`answers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod, Quantity
from tidelog.api.quantity import parse_units
from tidelog.api.selectors import SelectorError
from tidelog.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from tidelog.api.volumes import (
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_uses,
    class_of,
    is_fully_bound,
    is_made_for,
)
from tidelog.api.writes import Write
from tidelog.framework.arithmetic import round_half_away
from tidelog.framework.behaviours import NODES_WAKE_FOR_VOLUMES
from tidelog.framework.effort import Effort
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    Answer,
    CycleState,
    Depends,
    FilterPlugin,
    Handle,
    Plugin,
    PluginArgs,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
    WritesBeforeBinding,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import ConcernsPods, PodParts, SignsAttempts, SignsPods
from tidelog.framework.storage import Storage
from tidelog.plugins.node_resources.scoring import (
    MAX_UTILIZATION,
    UtilizationShapePoint,
    interpolate,
    shape_errors,
)
from tidelog.plugins.volumes.answers import answer, writes_of
from tidelog.plugins.volumes.claims import LookupFailed, concerns_claim, error, not_found, not_owner, queue_if
from tidelog.plugins.volumes.in_tree import TranslationError, affinity_for, affinity_of_migrated, kind_of
from tidelog.plugins.volumes.matching import Candidates, affinity_of, reaches, requested, volumes_for
from tidelog.plugins.volumes.offered import may_get
from tidelog.plugins.volumes.plan import Binding, Plan
from tidelog.plugins.volumes.provisioning import Lacking, Provision, Provisioning, limit_of
from tidelog.plugins.volumes.signing import signed

REASON_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
DEFAULT_SHAPE = (
    UtilizationShapePoint(utilization=0, score=10),
    UtilizationShapePoint(utilization=100, score=0),
)
_STATE = "VolumeBinding"
_STEPS_OF_QUESTION = 3
"""So much of an attempt's turn takes the plan for a node; arbitrary."""


def mode_not_set(name: str) -> str:
    """Of a class that was never defaulted."""
    return f'VolumeBindingMode not set for StorageClass "{name}"'


class Bound(NamedTuple):
    """A claim that has its volume."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume | None
    """None if it is not there."""


class Claims:
    """The findings of PreFilter about the pod, and the plans that Filter has made."""

    def __init__(self, bound: Sequence[Bound], delayed: Sequence[PersistentVolumeClaim]) -> None:
        self.bound = bound
        self.delayed = delayed
        """They get their volumes when the pod has a node, in the pod's order."""
        self.by_size = sorted(delayed, key=requested)
        self.plans: dict[str, Plan] = {}
        """Node → what would become of the claims there."""
        self._candidates: dict[int, Candidates] = {}
        self._provisioning: dict[int, Provisioning] = {}

    def candidates(self, claim: PersistentVolumeClaim, storage: Storage, effort: Effort) -> Candidates:
        """The volumes that would do for one of them. Raises SelectorError."""
        found = self._candidates.get(id(claim))
        if found is None:
            found = Candidates(claim, volumes_for(claim, storage), storage.local_volumes, effort)
            self._candidates[id(claim)] = found
        return found

    def provisioning(self, claim: PersistentVolumeClaim, storage: Storage) -> Provisioning:
        """How volumes are made for one of them. Raises LookupFailed."""
        found = self._provisioning.get(id(claim))
        if found is None:
            found = self._provisioning[id(claim)] = Provisioning(claim, storage)
        return found


class VolumeBindingArgs(PluginArgs, frozen=True, kw_only=True):
    bind_timeout_seconds: int = 600
    """How long a pod waits for its volumes before it is tried again."""
    shape: tuple[UtilizationShapePoint, ...] = DEFAULT_SHAPE
    """How a node scores whose storage would be used up to a part: the emptier the better, by default."""


class VolumeBinding(Plugin):
    """Places pods where their volumes are or can be."""

    name = "VolumeBinding"
    too_late: ClassVar[str] = "binding volumes: context deadline exceeded"
    Args = VolumeBindingArgs
    filter_depends = Depends.NODE | Depends.OCCUPANTS | Depends.STORAGE
    score_depends = Depends.NODE | Depends.OCCUPANTS | Depends.STORAGE
    signed_depends: ClassVar[Depends] = Depends.STORAGE
    signed_parts = PodParts.SPEC

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._driver_may_end = not handle.upstream and handle.behaves(NODES_WAKE_FOR_VOLUMES)
        self._shape = [(point.utilization, point.score * 10) for point in args.shape]

    @classmethod
    def validate_args(cls, args: VolumeBindingArgs, path: str, gates: FeatureGates) -> list[FieldError]:
        """A time, and a shape as RequestedToCapacityRatio has it."""
        found = list(shape_errors(args.shape, f"{path}.shape"))
        if args.bind_timeout_seconds < 0:
            rule = "invalid BindTimeoutSeconds, should not be a negative value"
            where = f"{path}.bindTimeoutSeconds"
            found.append(FieldError(path=where, kind="Invalid", value=args.bind_timeout_seconds, rule=rule))
        return found

    @property
    def _storage(self) -> Storage:
        return self.handle.listers.storage

    # --- which nodes --------------------------------------------------------------------------------------------------

    def sign_pod(self, pod: PodInfo) -> object:
        return bool(signed(pod))

    def concerns(self, pod: PodInfo) -> bool:
        return bool(signed(pod))

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """From where the volumes can be reached, what the claims that wait may get, and which of them is asked about first: not which claims they are."""
        try:
            found = self._looked_up(state, pod)
        except LookupFailed as failure:
            return failure.status.reasons
        if found is None:
            return None
        storage = self._storage
        reach = [self._reach_of(volume) for _, volume in found.bound if not _is_everywhere(volume)]
        offered = [may_get(claim, storage) for claim in found.delayed]
        order = [found.delayed.index(claim) for claim in found.by_size]
        return reach, offered, order, storage.class_generation

    def _reach_of(self, volume: PersistentVolume | None) -> object:
        if volume is None:
            return REASON_VOLUME_GONE
        if kind_of(volume.spec) is None:
            return affinity_of(volume)
        # Each node says by its CSINode how a volume of the old kinds is read there.
        return volume.spec, volume.metadata.labels, self._storage.csi_generation

    def _looked_up(self, state: CycleState, pod: PodInfo) -> Claims | None:
        """The pod's claims; None if it has none. Raises LookupFailed."""
        found: Claims | None = state.read(_STATE)
        if found is None:
            claims = [self._claim_of(pod.pod, use.claim, use.is_ephemeral) for use in claim_uses(pod.pod)]
            if not claims:
                return None
            found = self._sorted(claims)
            state.write(_STATE, found)
        return found

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Looks claims and volumes up; the first problem rejects the pod."""
        if not pod.pod.spec.volumes:
            return PreFilterResult(status=SKIP)
        try:
            found = self._looked_up(state, pod)
        except LookupFailed as failure:
            return PreFilterResult(status=_of_pre_filter(failure.status))
        if found is None or (not found.delayed and all(_is_everywhere(volume) for _, volume in found.bound)):
            return PreFilterResult(status=SKIP)
        if state.is_shared:
            # Other pods than this one are asked about, and there may be other volumes for its claims by then.
            for claim in found.delayed:
                found.candidates(claim, self._storage, self.handle.snapshot.effort)
        return PreFilterResult()

    def _claim_of(self, pod: Pod, name: str, is_ephemeral: bool) -> PersistentVolumeClaim:
        claim = self._storage.claim(pod.metadata.namespace, name)
        if claim is None:
            waits = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            raise LookupFailed(unresolvable(waits if is_ephemeral else not_found(name)))
        if claim.status.phase == "Lost":
            gone = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
            raise LookupFailed(unresolvable(gone))
        if claim.metadata.deletion_timestamp:
            raise LookupFailed(unresolvable(f'persistentvolumeclaim "{name}" is being deleted'))
        if is_ephemeral and not is_made_for(claim, pod):
            raise LookupFailed(unresolvable(not_owner(name, pod)))
        return claim

    def _sorted(self, claims: Iterable[PersistentVolumeClaim]) -> Claims:
        """Those that have their volume, and those that get one with the pod's node. Others are somebody else's to bind first."""
        bound, delayed, immediate = [], [], False
        for claim in claims:
            if is_fully_bound(claim):
                bound.append(Bound(claim, self._storage.volume(claim.spec.volume_name)))
            elif self._waits_for_consumer(claim) and not claim.spec.volume_name:
                delayed.append(claim)
            else:
                immediate = True
        if immediate:
            raise LookupFailed(unresolvable(REASON_IMMEDIATE))
        return Claims(bound, delayed)

    def _waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        found = self._storage.storage_class(class_of(claim))
        if found is None:
            return False
        if not found.volume_binding_mode:
            raise LookupFailed(error(mode_not_set(found.metadata.name)))
        return found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Keeps the plan for a node that passes."""
        claims: Claims = state.read(_STATE)
        try:
            reasons = [*self._bound_reasons(claims.bound, node)]
            plan = self._plan(claims, node) if claims.delayed else Plan()
        except LookupFailed as failure:
            return failure.status
        if isinstance(plan, Lacking):
            reasons.append(REASON_NO_VOLUMES if plan is Lacking.VOLUMES else REASON_NO_SPACE)
        if reasons:
            return unresolvable(*sorted(reasons, key=_ORDER.index))
        assert isinstance(plan, Plan)
        claims.plans[node.name] = plan
        return None

    def _bound_reasons(self, bound: Iterable[Bound], node: NodeInfo) -> Iterable[str]:
        csi_node = self._storage.csi_node(node.name)
        for _, volume in bound:
            if volume is None:
                return (REASON_VOLUME_GONE,)
            if not _is_reached(volume, node, csi_node):
                return (REASON_AFFINITY,)
        return ()

    def _plan(self, claims: Claims, node: NodeInfo) -> Plan | Lacking:
        """How the claims that wait get their volumes on the node, or why they do not."""
        to_match: list[PersistentVolumeClaim] = []
        to_make: list[PersistentVolumeClaim] = []
        for claim in claims.delayed:
            chosen = claim.metadata.annotations.get(SELECTED_NODE)
            if chosen is None:
                to_match.append(claim)
            elif chosen == node.name:
                to_make.append(claim)
            else:
                return Lacking.VOLUMES
        effort = self.handle.snapshot.effort
        effort.charge(_STEPS_OF_QUESTION)
        bindings: list[Binding] = []
        taken: set[str] = set()
        if to_match:
            try:
                for claim in claims.by_size:
                    if SELECTED_NODE in claim.metadata.annotations:
                        continue
                    volume = claims.candidates(claim, self._storage, effort).on(node.labels, taken)
                    if volume is None:
                        to_make.append(claim)
                    else:
                        taken.add(volume.metadata.name)
                        bindings.append(Binding(claim, volume))
            except SelectorError as problem:
                raise LookupFailed(
                    error(f"error converting claim selector to label selector: {problem}")
                ) from None
        made: list[Provision] = []
        for claim in to_make:
            provision = claims.provisioning(claim, self._storage).on(node.labels)
            if isinstance(provision, Lacking):
                return provision
            made.append(provision)
        return Plan(tuple(bindings), tuple(made))

    # --- which node is better -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Skips a pod for which nothing is to be bound or made: every node would score 0."""
        claims: Claims | None = state.read(_STATE)
        return SKIP if claims is None or not claims.delayed else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The emptier the storage that would be used, the better; of each class alone, and the mean of them."""
        uses = _storage_used(plan_for(state, node.name))
        if not uses:
            return 0
        return round_half_away(sum(self._score_of(*use) for use in uses) / len(uses))

    def _score_of(self, wanted: int, capacity: int) -> int:
        is_full = capacity == 0 or wanted > capacity
        return interpolate(self._shape, MAX_UTILIZATION if is_full else wanted * MAX_UTILIZATION // capacity)

    # --- what is written, and answered --------------------------------------------------------------------------------

    @property
    def answer_timeout_seconds(self) -> float:
        return float(self.args.bind_timeout_seconds)

    def reads(self, state: CycleState, pod: PodInfo, node: str) -> Sequence[str]:
        """The claims, their volumes, and what the node can attach."""
        claims: Claims | None = state.read(_STATE)
        if claims is None:
            return ()
        found = [f"CSINode//{node}"]
        for claim in (*(claim for claim, _ in claims.bound), *claims.delayed):
            found.append(object_key(claim))
            if claim.spec.volume_name:
                found.append(f"PersistentVolume//{claim.spec.volume_name}")
        return [*found, *(object_key(volume) for _, volume in plan_for(state, node).bindings)]

    def writes(self, state: CycleState, pod: PodInfo, node: str) -> Sequence[Write]:
        """Volume and claim put together, and the node named to whoever makes volumes."""
        claims: Claims | None = state.read(_STATE)
        if claims is None or not claims.delayed:
            return ()
        return writes_of(plan_for(state, node), node)

    def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Everything has been answered."""
        return None

    def answer(self, pod: PodInfo, node: NodeInfo | None, writes: Sequence[Write]) -> Answer:
        """Whether every volume is bound."""
        return answer(writes, node, self._storage)

    # --- what may help ------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Everything of which a plan is made."""
        add, update = Action.ADD, Action.UPDATE

        def on(resource: Resource, action: Action) -> ClusterEvent:
            return ClusterEvent(resource, action)

        ended = on(Resource.CSI_DRIVER, Action.DELETE)
        counts_no_more = [EventRegistration(ended, self._when_driver_ends)] if self._driver_may_end else []
        return [
            *counts_no_more,
            EventRegistration(on(Resource.STORAGE_CLASS, add | update), _when_class_changes),
            EventRegistration(on(Resource.PERSISTENT_VOLUME_CLAIM, add | update), concerns_claim),
            EventRegistration(on(Resource.PERSISTENT_VOLUME, add | update)),
            EventRegistration(on(Resource.NODE, add | Action.UPDATE_NODE_LABEL)),
            EventRegistration(on(Resource.CSI_NODE, add | update), _when_csi_node_changes),
            EventRegistration(on(Resource.CSI_DRIVER, update), self._when_driver_changes),
            EventRegistration(on(Resource.CSI_STORAGE_CAPACITY, add | update), _when_capacity_changes),
        ]

    def _when_driver_ends(self, waiting: WaitingPod, old: CSIDriver, _new: None) -> Hint:
        """As when it does not count space any more. kube-scheduler has the pod wait for a flush."""
        return queue_if(bool(old.spec.storage_capacity) and any(claim_uses(waiting.pod)))

    def _when_driver_changes(self, waiting: WaitingPod, old: CSIDriver, new: CSIDriver) -> Hint:
        """Space is not counted any more. kube-scheduler looks at inline volumes only, for which it never was; we look at claims too."""
        if not old.spec.storage_capacity or new.spec.storage_capacity:
            return Hint.SKIP
        name = new.metadata.name
        volumes = waiting.pod.spec.volumes
        if any(volume.csi is not None and volume.csi.get("driver") == name for volume in volumes):
            return Hint.QUEUE
        return Hint.SKIP if self.handle.upstream else queue_if(any(claim_uses(waiting.pod)))


def _of_pre_filter(status: Status) -> Status:
    """An error is told with its place, as kube-scheduler does."""
    return (
        status if status.is_rejected else error(f'running PreFilter plugin "VolumeBinding": {status.message}')
    )


def plan_for(state: CycleState, node: str) -> Plan:
    """Return the plan for the pod's claims on this node, which passed."""
    claims: Claims | None = state.read(_STATE)
    return Plan() if claims is None else claims.plans.get(node, Plan())


_ORDER = (REASON_AFFINITY, REASON_NO_VOLUMES, REASON_NO_SPACE, REASON_VOLUME_GONE)


def _is_everywhere(volume: PersistentVolume | None) -> bool:
    """It is there, and every node reaches it."""
    if volume is None or volume.spec.node_affinity is not None:
        return False
    if kind_of(volume.spec) is None:
        return True
    try:
        return affinity_of_migrated(volume) is None
    except TranslationError:
        return False


def _is_reached(volume: PersistentVolume, node: NodeInfo, csi_node: CSINode | None) -> bool:
    try:
        return reaches(affinity_for(volume, csi_node))(node.labels)
    except TranslationError as problem:
        raise LookupFailed(error(f"could not translate pv: {problem}")) from None


def _storage_used(plan: Plan) -> list[tuple[int, int]]:
    """(requested, capacity) of each class: of the volumes that are bound if there are any, else of those that are made where space is counted."""
    uses: dict[str, tuple[int, int]] = {}
    for claim, volume in plan.bindings:
        wanted, capacity = uses.get(volume.spec.storage_class_name, (0, 0))
        wanted += _units(claim.spec.resources.requests.get(STORAGE, 0))
        capacity += _units(volume.spec.capacity.get(STORAGE, 0))
        uses[volume.spec.storage_class_name] = wanted, capacity
    if plan.bindings:
        return list(uses.values())
    for claim, space in plan.provisions:
        if space is None:
            continue
        # What only says how large a volume may be says nothing of how full it is. (kube-scheduler crashes.)
        name = class_of(claim)
        wanted = uses.get(name, (0, 0))[0] + _units(claim.spec.resources.requests.get(STORAGE, 0))
        uses[name] = wanted, _units(space.capacity or 0)
    return list(uses.values())


def _units(quantity: Quantity) -> int:
    return parse_units(quantity)


# --- hints --------------------------------------------------------------------------------------------------------------


def _when_class_changes(_waiting: WaitingPod, old: StorageClass | None, new: StorageClass) -> Hint:
    return queue_if(old is None or old.allowed_topologies != new.allowed_topologies)


def _when_csi_node_changes(_waiting: WaitingPod, old: CSINode | None, new: CSINode) -> Hint:
    def migrated(found: CSINode) -> str:
        return found.metadata.annotations.get(MIGRATED_PLUGINS, "")

    return queue_if(old is None or migrated(old) != migrated(new))


def _when_capacity_changes(
    _waiting: WaitingPod, old: CSIStorageCapacity | None, new: CSIStorageCapacity
) -> Hint:
    if old is None:
        return Hint.QUEUE
    before, after = limit_of(old), limit_of(new)
    return queue_if(after is not None and (before is None or before < after))


_pre_filter: type[PreFilterPlugin] = VolumeBinding
_filter: type[FilterPlugin] = VolumeBinding
_pre_score: type[PreScorePlugin] = VolumeBinding
_score: type[ScorePlugin] = VolumeBinding
_pre_bind: type[PreBindPlugin] = VolumeBinding
_writes: type[WritesBeforeBinding] = VolumeBinding
_signs: type[SignsPods] = VolumeBinding
_concerns: type[ConcernsPods] = VolumeBinding
_signs_attempts: type[SignsAttempts] = VolumeBinding
