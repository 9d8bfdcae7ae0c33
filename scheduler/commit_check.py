"""What may take away the ground under a decision between its making and its commit (DESIGN rule 4).

While attempts are in flight the core notes for every change of a pod or node how it could hurt a decision that did not
see it. At the commit, the notes since the decision's `observed` are held against what the decision relies on. The rule is
deliberately simple and errs on one side only: an attempt that is aborted without need costs one more attempt, a binding
that should have been aborted would be wrong for ever.

Our own outcomes are not among them, `Scheduled` and `Evicted`: they come in attempt order, and every later attempt saw
those pods assumed, and those victims going. An outcome that is aborted is one, because later attempts saw it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
from tidelog.scheduler.decision import Relies
from tidelog.scheduler.fallback import withdraws_fallback

_TOPOLOGY = Depends.DOMAINS | Depends.CLUSTER


class Disturbance(msgspec.Struct, frozen=True, gc=False):
    """One change that a decision may not have seen."""

    seq: int
    key: str
    """Of the object that changed."""
    node: str
    """The node that changed, or whose pods did."""
    takes: str
    """How it hurts who chose this node; empty if it only gives room."""
    touches: Depends
    """What else changed for who chose another node."""
    own: str = ""
    """How it hurts the attempt of this very pod; empty if it does not."""
    repels: bool = False
    """A pod that keeps others away (required anti-affinity) has come: also who had no filter looking at it may be hit."""
    forbids: str = ""
    """How a disruption budget forbids more than it did."""
    withdraws: str = ""
    """How a place that was found for this very pod may not be one any more; empty if it does not."""
    opens: str = ""
    """How it helps who found no node, and cannot know by an event."""
    devices: frozenset[str] = frozenset()
    """Devices that somebody else has now, or that are gone: `Device/driver/pool/name`, as plugins name what they read."""


class Conflict(NamedTuple):
    """Why an attempt is aborted, and by which record."""

    seq: int
    reason: str


def disturbance(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    """What the change from `old` to `new` could hurt; None if nothing."""
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
        return Disturbance(seq, object_key(found), "", "", Depends.POD)
    if isinstance(new, PodDisruptionBudget):
        return _of_budget(seq, old if isinstance(old, PodDisruptionBudget) else None, new)
    return None


def released(seq: int, key: str, node: str) -> Disturbance:
    """A pod that was assumed on the node is not coming after all; whoever counted on its presence is wrong."""
    return Disturbance(seq, key, node, "", _TOPOLOGY)


def called_off(seq: int, node: str) -> Disturbance:
    """A preemption is not coming: whoever found no node beside it has to look again. No event tells of what never was in the log."""
    return Disturbance(seq, "", node, "", Depends.POD, opens=f"the preemption on node {node} was called off")


def promised_again(seq: int, node: str) -> Disturbance:
    """Nominations to the node that did not count for a while do so again; whoever used their room is wrong."""
    return Disturbance(seq, "", node, f"room on node {node} is promised to others after all", Depends.POD)


def conflict(relies: Relies, notes: Iterable[Disturbance]) -> Conflict | None:
    """The first of the notes that takes away what the decision relies on."""
    for note in notes:
        if note.key == relies.pod_key:
            reason = note.own or (note.withdraws if relies.node else "")
        elif note.key in relies.victims:
            reason = f"{_name(note.key)}, which was to make room, changed"
        elif note.key in relies.reads:
            reason = f"{note.key} changed"
        elif note.devices & relies.reads:
            reason = f"{min(note.devices & relies.reads)} is not to be had any more: {note.key} changed"
        elif note.forbids:
            reason = note.forbids if note.key.split("/")[1] in relies.budgets else ""
        elif not relies.node:
            reason = note.opens if relies.found_none else ""
        elif note.node == relies.node and note.takes:
            reason = note.takes
        elif note.touches & relies.on or (note.repels and relies.node):
            reason = f"{note.key} changed, and the choice depends on more than its own node"
        else:
            reason = ""
        if reason:
            return Conflict(note.seq, reason)
    return None


def _of_node(seq: int, old: Node | None, new: Node | None) -> Disturbance | None:
    node = new or old
    assert node is not None
    name, key = node.metadata.name, object_key(node)
    touches = _TOPOLOGY | Depends.ALL_NODES
    if new is None:
        return Disturbance(seq, key, name, f"node {name} was deleted", touches)
    if old is None:
        return Disturbance(seq, key, name, f"node {name} was created anew", touches)
    if old.metadata.uid != new.metadata.uid:
        return Disturbance(seq, key, name, f"node {name} was replaced", touches)
    if new.spec.unschedulable and not old.spec.unschedulable:
        return Disturbance(seq, key, name, f"node {name} was cordoned", touches)
    if old.spec.unschedulable != new.spec.unschedulable or old.spec.taints != new.spec.taints:
        return Disturbance(seq, key, name, f"the taints of node {name} changed", touches)
    if old.metadata.labels != new.metadata.labels:
        return Disturbance(seq, key, name, f"the labels of node {name} changed", touches)
    if not same_quantities(old.status.allocatable, new.status.allocatable):
        return Disturbance(seq, key, name, f"the allocatable resources of node {name} changed", touches)
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
        return Disturbance(seq, key, "", "", Depends.POD, own, withdraws=withdraws)
    if before is not None and after is not None and left == taken and not _counts_differently(before, after):
        if is_ready(before) == is_ready(after) and before.status.phase == after.status.phase:
            return None
        # Budgets count it differently from now on, which only matters to who wants its place.
        return Disturbance(seq, key, taken, "", Depends.POD, own)
    takes = f"{pod.metadata.namespace}/{pod.metadata.name} took room on node {taken}" if taken else ""
    return Disturbance(seq, key, taken or left, takes, _TOPOLOGY, own, bool(taken) and _repels(after))


def _of_group(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    """What the group asks for changed; who was placed before does not matter to who is being placed."""
    found = new if old is None else old
    assert found is not None
    before = old.spec if isinstance(old, PodGroup | Workload) else None
    after = new.spec if isinstance(new, PodGroup | Workload) else None
    if before == after:
        return None
    what = "was deleted" if after is None else "changed"
    return Disturbance(seq, object_key(found), "", "", Depends.POD, own=f"the group's object {what}")


def _of_devices(seq: int, old: Object | None, new: Object | None) -> Disturbance | None:
    found = new if old is None else old
    assert found is not None
    if isinstance(old, ResourceClaim) and isinstance(new, ResourceClaim):
        if old.spec == new.spec and old.status.allocation == new.status.allocation:
            return None
    if isinstance(old, ResourceSlice) and isinstance(new, ResourceSlice) and old.spec == new.spec:
        return None
    own = f"{object_key(found)} changed"
    gone = _devices_of(old) - _devices_of(new) if isinstance(old, ResourceSlice) else frozenset()
    taken = _devices_of(new) - _devices_of(old) if isinstance(new, ResourceClaim) else frozenset()
    return Disturbance(seq, object_key(found), "", "", Depends.POD, own=own, devices=gone | taken)


def _devices_of(obj: Object | None) -> frozenset[str]:
    """What a claim has, or a slice offers."""
    if isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
        results = obj.status.allocation.devices.results
        return frozenset(f"Device/{r.driver}/{r.pool}/{r.device}" for r in results)
    if isinstance(obj, ResourceSlice):
        spec = obj.spec
        return frozenset(f"Device/{spec.driver}/{spec.pool.name}/{device.name}" for device in spec.devices)
    return frozenset()


def given_back(seq: int, claim: str) -> Disturbance:
    """The claim does not get the devices that an attempt had for it: who went by them must not."""
    return Disturbance(seq, claim, "", "", Depends.POD, own=f"{claim} was not allocated after all")


def not_written(seq: int, key: str) -> Disturbance:
    """The object was not changed as an attempt had promised: who went by that must not, and who found it taken may look again."""
    return Disturbance(seq, key, "", "", Depends.POD, opens=f"{key} was given back")


def _of_budget(seq: int, old: PodDisruptionBudget | None, new: PodDisruptionBudget) -> Disturbance | None:
    """A budget that is new, or may forbid an eviction that it allowed. One that only allows more hurts nobody."""
    key = object_key(new)
    if old is None:
        return Disturbance(seq, key, "", "", Depends.POD, forbids=f"PDB {_name(key)} appeared")
    before, after = old.status, new.status
    if after.disruptions_allowed < before.disruptions_allowed:
        text = f"PDB {_name(key)} allows {after.disruptions_allowed} disruptions instead of {before.disruptions_allowed}"
        return Disturbance(seq, key, "", "", Depends.POD, forbids=text)
    same = (
        old.spec == new.spec
        and old.metadata.generation == new.metadata.generation
        and before.observed_generation == after.observed_generation
        and before.disrupted_pods == after.disrupted_pods
        and (before.current_healthy, before.desired_healthy) == (after.current_healthy, after.desired_healthy)
    )
    return None if same else Disturbance(seq, key, "", "", Depends.POD, forbids=f"PDB {_name(key)} changed")


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


def _own_change(before: Pod | None, after: Pod | None) -> str:
    """What happened to a pod that is being tried."""
    if after is None:
        return "the pod is gone"
    if before is None or before.metadata.uid != after.metadata.uid:
        return "the pod was created anew"
    if after.spec.node_name:
        return f"the pod was bound to {after.spec.node_name}"
    if after.metadata.deletion_timestamp:
        return "the pod is being deleted"
    if before.spec != after.spec or before.metadata.labels != after.metadata.labels:
        return "the pod changed"
    return ""


def _withdrawn(before: Pod | None, after: Pod | None) -> str:
    """What happened to a pod that was placed in spite of a spread constraint."""
    if before is None or after is None or not withdraws_fallback(before, after):
        return ""
    return "the pod's conditions or nomination changed, and its spread constraints may be hard again"


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
