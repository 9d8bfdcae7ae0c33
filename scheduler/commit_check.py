"""Checks at the commit whether a newer record takes away what the decision relies on (DESIGN rule 4).

While attempts are in flight the core notes for every change of a pod or node how it could hurt a decision that did not
see it. At the commit, the notes since the decision's `observed` are held against what the decision relies on. The rule is
deliberately simple and errs on one side only: an attempt that is aborted without need costs one more attempt, a binding
that should have been aborted would be wrong for ever.

Our own outcomes are not among them, `Scheduled` and `Evicted`: they come in attempt order, and every later attempt saw
those pods assumed, and those victims going. An outcome that is aborted is one, because later attempts saw it too.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    ResourceSlice,
    Workload,
)
from tidelog.api.pod_status import is_terminal
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from tidelog.framework.disruption_budgets import is_ready
from tidelog.framework.interface import Depends
from tidelog.framework.object_events import same_quantities
from tidelog.framework.results import ANY_DEVICE
from tidelog.scheduler.aborts import AbortCause, AbortReason, Conflict
from tidelog.scheduler.decision import Relies
from tidelog.scheduler.fallback import withdraws_fallback

_TOPOLOGY = Depends.DOMAINS | Depends.CLUSTER


class Disturbance(msgspec.Struct, frozen=True, gc=False):
    """One change that a decision may not have seen."""

    seq: int
    key: str
    """Of the object that changed."""
    node: str = ""
    """The node that changed, or whose pods did."""
    takes: AbortReason | None = None
    """How it hurts a pod that chose this node; None if it only gives room."""
    touches: Depends = Depends.POD
    """Further parts of the cluster that changed, for pods that chose another node."""
    own: AbortReason | None = None
    """How it hurts the attempt of this very pod; None if it does not."""
    repels: bool = False
    """A pod that keeps others away (required anti-affinity) has come: it may hit pods whose filters do not look at it."""
    forbids: AbortReason | None = None
    """How a disruption budget forbids more than it did."""
    withdraws: AbortReason | None = None
    """How a place that was found for this very pod may not be one any more; None if it does not."""
    loses: AbortReason | None = None
    """How it hurts who counts on this very pod's place; None if it keeps that."""
    opens: AbortReason | None = None
    """How it helps a pod that found no node, and cannot know by an event."""
    stays: bool = False
    """It is about a pod that was on the node before and asks for no more than it did: it takes no room, and keeps nobody away that it did not before."""
    after: int = 0
    """Only attempts after this one can have gone by what is different now; 0: all that did not see it."""
    devices: frozenset[str] = frozenset()
    """Devices that somebody else has now, or that are gone: `Device/driver/pool/name`, as plugins name what they read."""


def disturbance(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    """Return the disturbance by the change from `old` to `new`; None if nothing."""
    if isinstance(old, Pod) or isinstance(new, Pod):
        return _of_pod(seq, old if isinstance(old, Pod) else None, new if isinstance(new, Pod) else None)
    if isinstance(old, Node) or isinstance(new, Node):
        return _of_node(seq, old if isinstance(old, Node) else None, new if isinstance(new, Node) else None)
    if isinstance(old or new, PodGroup | Workload):
        return _of_group(seq, old, new)
    if isinstance(old or new, ResourceClaim | ResourceSlice):
        return _of_devices(seq, old, new)
    if isinstance(old or new, PersistentVolumeClaim | PersistentVolume | CSINode):
        # Who was placed by it names it in what he reads.
        found = new if old is None else old
        assert found is not None
        return Disturbance(seq, object_key(found))
    if isinstance(new, PodDisruptionBudget):
        return _of_budget(seq, old if isinstance(old, PodDisruptionBudget) else None, new)
    return None


def released(seq: int, key: str, node: str, after: int = 0) -> Disturbance:
    """A pod that was assumed on the node, in attempt `after`, is not coming after all; whoever counted on its presence is wrong."""
    loses = AbortCause.MEMBER_RELEASED.of(_name(key))
    return Disturbance(seq, key, node, touches=_TOPOLOGY, loses=loses, after=after)


def spared(seq: int, key: str, node: str) -> Disturbance:
    """A pod that was going from the node stays after all; whoever counted on its absence is wrong."""
    return Disturbance(seq, key, node, touches=_TOPOLOGY)


def called_off(seq: int, node: str) -> Disturbance:
    """A preemption is not coming: whoever found no node beside it has to look again. No event tells of what never was in the log."""
    opens = AbortCause.PREEMPTION_CALLED_OFF.of(node)
    return Disturbance(seq, "", node, opens=opens)


def promised_again(seq: int, node: str) -> Disturbance:
    """Nominations to the node that did not count for a while do so again; whoever used their room is wrong."""
    return Disturbance(seq, "", node, AbortCause.ROOM_PROMISED.of(node))


def conflict(relies: Relies, notes: Iterable[Disturbance], *, staying_hurts: bool = False) -> Conflict | None:
    """The first of the notes that takes away what the decision relies on. `staying_hurts`: pods that stay hurt as if they had come."""
    for note in notes:
        reason = _hurt(relies, note, staying_hurts=staying_hurts)
        if reason is not None:
            return Conflict(note.seq, reason)
    return None


def looks_at_pods(relies: Relies) -> bool:
    """Whether the node was chosen by the pods that are there, and not only by what they take."""
    return bool(relies.victims) or bool(relies.on & Depends.PODS)


def _hurt(relies: Relies, note: Disturbance, *, staying_hurts: bool) -> AbortReason | None:
    """How this note takes away what the decision relies on; None if it does not."""
    came = staying_hurts or not note.stays
    if note.key == relies.pod_key:
        if relies.counts_place:
            return note.own or note.loses
        return note.own or (note.withdraws if relies.node else None)
    if note.key in relies.victims:
        return AbortCause.VICTIM_CHANGED.of(_name(note.key))
    if note.key in relies.reads:
        return AbortCause.OBJECT_CHANGED.of(note.key)
    if note.devices and relies.reads >= ANY_DEVICE:
        return AbortCause.OBJECT_CHANGED.of(note.key)
    if note.devices & relies.reads:
        return AbortCause.DEVICE_TAKEN.of(min(note.devices & relies.reads), note.key)
    if note.forbids:
        return note.forbids if note.key.split("/")[1] in relies.budgets else None
    if not relies.node:
        return note.opens if relies.found_none else None
    if note.node == relies.node and note.takes and (came or looks_at_pods(relies)):
        return note.takes
    if note.touches & relies.on or (note.repels and came):
        return AbortCause.CLUSTER_CHANGED.of(note.key)
    return None


def _of_node(seq: int, old: Node | None, new: Node | None) -> Disturbance | None:
    node = new or old
    assert node is not None
    name, key = node.metadata.name, object_key(node)
    touches = _TOPOLOGY | Depends.ALL_NODES
    if new is None:
        return Disturbance(seq, key, name, AbortCause.NODE_DELETED.of(name), touches)
    if old is None:
        return Disturbance(seq, key, name, AbortCause.NODE_CREATED_ANEW.of(name), touches)
    if old.metadata.uid != new.metadata.uid:
        return Disturbance(seq, key, name, AbortCause.NODE_REPLACED.of(name), touches)
    if new.spec.unschedulable and not old.spec.unschedulable:
        return Disturbance(seq, key, name, AbortCause.NODE_CORDONED.of(name), touches)
    if old.spec.unschedulable != new.spec.unschedulable or old.spec.taints != new.spec.taints:
        return Disturbance(seq, key, name, AbortCause.NODE_TAINTS.of(name), touches)
    if old.metadata.labels != new.metadata.labels:
        return Disturbance(seq, key, name, AbortCause.NODE_LABELS.of(name), touches)
    if not same_quantities(old.status.allocatable, new.status.allocatable):
        return Disturbance(seq, key, name, AbortCause.NODE_ALLOCATABLE.of(name), touches)
    return None


def _of_pod(seq: int, old: Pod | None, new: Pod | None) -> Disturbance | None:
    before = None if old is None or is_terminal(old) else old
    after = None if new is None or is_terminal(new) else new
    pod = after or before
    if pod is None:
        return None
    left = before.spec.node_name if before else ""
    taken = after.spec.node_name if after else ""
    if before is None and not taken:
        return None  # A new pod takes nothing. Whoever was about an earlier one of its name is hurt since that went.
    key = object_key(pod)
    own = _own_change(before, after)
    if not left and not taken:
        withdraws = _withdrawn(before, after)
        if not own and not withdraws:
            return None
        return Disturbance(seq, key, own=own, withdraws=withdraws)
    if before is not None and after is not None and left == taken and not _counts_differently(before, after):
        if is_ready(before) == is_ready(after) and before.status.phase == after.status.phase:
            return None
        # Budgets count it differently from now on, which only matters to who wants its place.
        return Disturbance(seq, key, taken, own=own)
    takes = AbortCause.ROOM_TAKEN.of(_name(key), taken) if taken else None
    repels = bool(taken) and _repels(after)
    stays = left == taken and _asks_for_as_much(before, after)
    return Disturbance(seq, key, taken or left, takes, _TOPOLOGY, own, repels, stays=stays)


def _of_group(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    """Return the disturbance of a group that asks for something else; pods placed before do not matter to those being placed."""
    found = new if old is None else old
    assert found is not None
    before = old.spec if isinstance(old, PodGroup | Workload) else None
    after = new.spec if isinstance(new, PodGroup | Workload) else None
    if before == after:
        return None
    cause = AbortCause.GROUP_DELETED if after is None else AbortCause.GROUP_CHANGED
    return Disturbance(seq, object_key(found), own=cause.of())


def _of_devices(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    found = new if old is None else old
    assert found is not None
    if isinstance(old, ResourceClaim) and isinstance(new, ResourceClaim):
        if old.spec == new.spec and old.status.allocation == new.status.allocation:
            return None
    if isinstance(old, ResourceSlice) and isinstance(new, ResourceSlice) and old.spec == new.spec:
        return None
    key = object_key(found)
    gone = _devices_of(old) - _devices_of(new) if isinstance(old, ResourceSlice) else frozenset()
    taken = _devices_of(new) - _devices_of(old) if isinstance(new, ResourceClaim) else frozenset()
    own = AbortCause.OBJECT_CHANGED.of(key)
    return Disturbance(seq, key, own=own, devices=gone | taken)


def _devices_of(obj: Object | None) -> frozenset[str]:
    """Return the devices that a claim has, or a slice offers."""
    if isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
        results = obj.status.allocation.devices.results
        return frozenset(f"Device/{r.driver}/{r.pool}/{r.device}" for r in results)
    if isinstance(obj, ResourceSlice):
        spec = obj.spec
        return frozenset(f"Device/{spec.driver}/{spec.pool.name}/{device.name}" for device in spec.devices)
    return frozenset()


def given_back(seq: int, claim: str) -> Disturbance:
    """The claim does not get the devices that an attempt had for it: who went by them must not."""
    return Disturbance(seq, claim, own=AbortCause.CLAIM_NOT_ALLOCATED.of(claim))


def not_written(seq: int, key: str) -> Disturbance:
    """The object was not changed as an attempt had promised: who went by that must not, and who found it taken may look again."""
    return Disturbance(seq, key, opens=AbortCause.OBJECT_GIVEN_BACK.of(key))


def _of_budget(seq: int, old: PodDisruptionBudget | None, new: PodDisruptionBudget) -> Disturbance | None:
    """A budget that is new, or may forbid an eviction that it allowed. One that only allows more hurts nobody."""
    key = object_key(new)
    forbids = _forbidden(_name(key), old, new)
    return None if forbids is None else Disturbance(seq, key, forbids=forbids)


def _forbidden(name: str, old: PodDisruptionBudget | None, new: PodDisruptionBudget) -> AbortReason | None:
    if old is None:
        return AbortCause.BUDGET_APPEARED.of(name)
    before, after = old.status, new.status
    if after.disruptions_allowed < before.disruptions_allowed:
        return AbortCause.BUDGET_ALLOWS_LESS.of(name, after.disruptions_allowed, before.disruptions_allowed)
    same = (
        old.spec == new.spec
        and old.metadata.generation == new.metadata.generation
        and before.observed_generation == after.observed_generation
        and before.disrupted_pods == after.disrupted_pods
        and (before.current_healthy, before.desired_healthy) == (after.current_healthy, after.desired_healthy)
    )
    return None if same else AbortCause.BUDGET_CHANGED.of(name)


def _name(key: str) -> str:
    """`namespace/name` of a record key."""
    return key.partition("/")[2]


def _repels(pod: Pod | None) -> bool:
    affinity = None if pod is None else pod.spec.affinity
    return (
        affinity is not None
        and affinity.pod_anti_affinity is not None
        and bool(affinity.pod_anti_affinity.required)
    )


def _own_change(before: Pod | None, after: Pod | None) -> AbortReason | None:
    """Return how a pod that is being tried changed."""
    if after is None:
        return AbortCause.POD_GONE.of()
    if before is None or before.metadata.uid != after.metadata.uid:
        return AbortCause.POD_CREATED_ANEW.of()
    if after.spec.node_name:
        return AbortCause.POD_BOUND.of(after.spec.node_name)
    if after.metadata.deletion_timestamp:
        return AbortCause.POD_DELETED.of()
    if before.spec != after.spec or before.metadata.labels != after.metadata.labels:
        return AbortCause.POD_CHANGED.of()
    return None


def _withdrawn(before: Pod | None, after: Pod | None) -> AbortReason | None:
    """Return how a pod changed that was placed in spite of a spread constraint."""
    if before is None or after is None or not withdraws_fallback(before, after):
        return None
    return AbortCause.FALLBACK_WITHDRAWN.of()


def _asks_for_as_much(before: Pod | None, after: Pod | None) -> bool:
    """Whether the pod needs the same of its node in both versions."""
    return (
        before is not None
        and after is not None
        and before.metadata.uid == after.metadata.uid
        and before.spec == after.spec
        and before.status.container_statuses == after.status.container_statuses
        and before.status.init_container_statuses == after.status.init_container_statuses
    )


def _counts_differently(before: Pod, after: Pod) -> bool:
    """Whether other pods' filters can tell the two versions of a pod on its node apart."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.metadata.uid != after.metadata.uid
        or bool(before.metadata.deletion_timestamp) != bool(after.metadata.deletion_timestamp)
        or before.status.container_statuses != after.status.container_statuses
        or before.status.init_container_statuses != after.status.init_container_statuses
    )
