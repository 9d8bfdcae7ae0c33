"""The cluster as a log tells it, read by the judge's own fold: plain objects with integers in them, nothing of the scheduler's.

    cluster = SeenCluster()
    for record in records: cluster.consume(record, decode_body(record))

A record costs some microseconds. The rules that bindings are held to are in `rules.py`, who applies them in `judge.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tests.simulation.plugins import SLOW
from tests.simulation.promises import after
from tidelog.api.objects import (
    AllocationResult,
    ClaimConsumer,
    Condition,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    Workload,
)
from tidelog.api.quantity import parse_resource
from tidelog.api.times import NANOS, format_time
from tidelog.api.writes import Write
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Body,
    ConfigurationLoaded,
    Evicted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    PlacementChosen,
    PodConditionSet,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
)

SPREAD = "PodTopologySpread"
EXPIRY = 120 * NANOS
"""So long an eviction counts against its budgets without the pod's end."""


class SeenPod:
    """A pod, as far as anybody judges it."""

    __slots__ = (
        "changed",
        "conditions",
        "cpu",
        "ended",
        "evicted",
        "fallback_node",
        "fell_back",
        "group",
        "key",
        "labels",
        "memory",
        "name",
        "namespace",
        "node",
        "nominated",
        "obj",
        "phase",
        "ports",
        "promise",
        "rejected_since",
        "reserved",
        "terminating",
        "uid",
    )

    def __init__(self, key: str, pod: Pod) -> None:
        self.key = key
        self.changed = 0
        """The last record of somebody else that changed it."""
        self.rejected_since: int | None = None
        """When topology spread first rejected it, in this life and since its gates were taken away."""
        self.evicted = False
        """We have asked it to go."""
        self.reserved = ""
        """The node whose resources it holds while it waits for a permit, or for answers."""
        self.promise: Reserved | Waiting | None = None
        """Its volumes and devices are promised, and it waits for answers; or it waits for those of its group."""
        self.fallback_node = ""
        """Where it was nominated to in an attempt in which these constraints had fallen back."""
        self.fell_back: frozenset[int] = frozenset()
        self.take(pod)

    def take(self, pod: Pod) -> None:
        """The pod's newest version."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        self.obj = pod
        self.uid = meta.uid
        self.namespace, self.name = meta.namespace, meta.name
        if spec.node_name or not self.reserved:
            # While it waits for a permit it counts for others as what it was when it was given its place, as in kube-scheduler.
            self.labels = meta.labels
        self.node = spec.node_name
        self.nominated = status.nominated_node_name
        self.terminating = bool(meta.deletion_timestamp)
        self.phase = status.phase
        self.ended = status.phase in ("Succeeded", "Failed")
        self.conditions = {c.type: c for c in status.conditions}
        self.cpu, self.memory = _requested(pod, "cpu"), _requested(pod, "memory")
        self.ports = [
            (p.host_port, p.protocol or "TCP") for c in spec.containers for p in c.ports if p.host_port
        ]
        self.group = _group_of(pod)

    def release(self) -> None:
        """It waits for no permit any more, nor for answers."""
        self.reserved, self.promise, self.labels = "", None, self.obj.metadata.labels

    @property
    def place(self) -> str:
        """Where it takes room; empty if nowhere."""
        return "" if self.ended else self.node or self.reserved

    @property
    def priority(self) -> int:
        return self.obj.spec.priority or 0

    @property
    def is_pending(self) -> bool:
        """It wants a node."""
        return not (self.node or self.ended or self.terminating)

    @property
    def is_left_alone(self) -> bool:
        """It wants a node, and nothing but the lack of one holds it."""
        held = self.obj.spec.scheduling_gates or self.group or SLOW in self.labels
        return self.is_pending and not (held or self.reserved)

    @property
    def is_ready(self) -> bool:
        return self.is_said("Ready", "True")

    def is_said(self, type: str, status: str) -> bool:
        """Its condition of this type has this status."""
        condition = self.conditions.get(type)
        return condition is not None and condition.status == status

    def say(self, type: str, status: str, reason: str, at: int, message: str = "") -> None:
        """Set a condition. Its time is that of the last change of its status."""
        old = self.conditions.get(type)
        since = old.last_transition_time if old is not None and old.status == status else format_time(at)
        self.conditions[type] = Condition(
            type=type, status=status, reason=reason, message=message, last_transition_time=since
        )


def _requested(pod: Pod, name: str) -> int:
    """Containers together, or the largest init container."""
    total = sum(parse_resource(name, c.resources.requests.get(name, 0)) for c in pod.spec.containers)
    first = (parse_resource(name, c.resources.requests.get(name, 0)) for c in pod.spec.init_containers)
    return max(total, max(first, default=0))


def _group_of(pod: Pod) -> str:
    """The record key of its group."""
    spec, namespace = pod.spec, pod.metadata.namespace
    if spec.scheduling_group is not None:
        return f"PodGroup/{namespace}/{spec.scheduling_group.pod_group_name}"
    reference = spec.workload_ref
    if reference is None:
        return ""
    key = f"Workload/{namespace}/{reference.name}/{reference.pod_group}"
    return f"{key}/{reference.pod_group_replica_key}" if reference.pod_group_replica_key else key


class SeenNode:
    """A node."""

    __slots__ = ("cpu", "labels", "memory", "name", "obj", "pods")

    def __init__(self, node: Node) -> None:
        self.obj = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels
        given = node.status.allocatable
        self.cpu, self.memory, self.pods = (
            parse_resource(name, given.get(name, 0)) for name in ("cpu", "memory", "pods")
        )


class SeenBudget:
    """A disruption budget."""

    def __init__(self, key: str, budget: PodDisruptionBudget) -> None:
        status = budget.status
        self.key = key
        self.obj = budget
        self.namespace = budget.metadata.namespace
        self.selector = budget.spec.selector
        self.observed = status.observed_generation >= budget.metadata.generation
        self.allowed = status.disruptions_allowed
        self.disrupted = dict(status.disrupted_pods)
        self.has_enough = status.current_healthy >= status.desired_healthy > 0


class GroupRule(NamedTuple):
    """What is asked of a group."""

    min_count: int
    """0 for a group that is no gang."""
    level: str
    """All of it has to be in one domain of this topology key; empty if it need not."""


class SeenCluster:
    """All of it after some record."""

    def __init__(self) -> None:
        self.seq = 0
        self.at = 0
        self.pods: dict[str, SeenPod] = {}
        self.nodes: dict[str, SeenNode] = {}
        """By name."""
        self.budgets: dict[str, SeenBudget] = {}
        self.budgets_changed = 0
        """The last record of somebody else that changed any budget."""
        self.charges: dict[str, dict[str, tuple[str, int]]] = {}
        """Budget → uid → (name, time) of the evictions of ours that were charged to it, of pods that are still there."""
        self.others: dict[str, Object] = {}
        """Every other object by key."""
        self.others_changed = 0
        """The last record of somebody else that changed any of them."""
        self.groups: dict[str, PodGroup | Workload] = {}
        self.said: dict[int, Unschedulable] = {}
        """Rejections by seq, for those that only refer to them."""
        self.configuration: dict[str, object] = {}

    # --- looking ----------------------------------------------------------------------------------------------------

    def on(self, node: str) -> Iterator[SeenPod]:
        """The pods that take room on the node."""
        return (pod for pod in self.pods.values() if pod.place == node)

    def reserved(self) -> list[str]:
        """Keys of the pods that have a place, and wait for a permit."""
        return [pod.key for pod in self.pods.values() if pod.reserved]

    def left(self, budget: SeenBudget, at: int) -> int:
        """How many more may go by this budget, counted with the evictions that its status does not know of."""
        if not budget.observed:
            return 0
        charged = self.charges.get(budget.key, {}).values()
        return budget.allowed - sum(
            name not in budget.disrupted for name, since in charged if at - since < EXPIRY
        )

    def members(self, group: str) -> list[SeenPod]:
        """The pods of the group of this record key."""
        return [pod for pod in self.pods.values() if pod.group == group]

    def rule(self, group: str) -> GroupRule | None:
        """What its object asks of the group; None without one."""
        if not group:
            return None
        kind, namespace, name, *more = group.split("/")
        found = self.groups.get(f"{kind}/{namespace}/{name}")
        if isinstance(found, PodGroup):
            policy, asked = found.spec.scheduling_policy, found.spec.scheduling_constraints
            levels = [c.key for c in asked.topology] if asked else []
        elif isinstance(found, Workload):
            of = next((g for g in found.spec.pod_groups if g.name == more[0]), None)
            if of is None:
                return None
            policy, asked = of.policy, of.scheduling_constraints
            levels = [c.level for c in asked.topology_constraints] if asked else []
        else:
            return None
        gang = policy.gang if policy else None
        return GroupRule(gang.min_count if gang else 0, levels[0] if levels else "")

    def in_full(self, body: Unschedulable) -> Unschedulable:
        """A rejection that only refers to an earlier one, written out."""
        if not body.same_as:
            return body
        return replace(
            self.said[body.same_as],
            attempt=body.attempt,
            observed=body.observed,
            at=body.at,
            epoch=body.epoch,
        )

    # --- the fold -----------------------------------------------------------------------------------------------------

    def consume(self, record: Record, body: Body) -> None:
        """Take the next record into account."""
        self.seq, self.at = record.seq, record.at
        key = record.key
        pod = self.pods.get(key)
        match body:
            case ObjectPut():
                self._put(key, body.object)
                if (put := self.pods.get(key)) is not None:
                    put.changed = record.seq
            case ObjectDeleted():
                self._delete(key)
            case ConfigurationLoaded():
                self.configuration = body.configuration
            case PodConditionSet() if pod is not None:
                new, pod.changed = body.condition, record.seq
                pod.say(new.type, new.status, new.reason, record.at, new.message)
            case Scheduled() if pod is not None:
                self._bind(pod, body.node)
            case Waiting() if pod is not None:
                pod.reserved = body.node
                if body.group:
                    pod.promise = body
            case Reserved():
                self._write(body.writes)
                if pod is not None:
                    pod.reserved, pod.promise = body.node, body
            case PlacementChosen():
                for claim, result in body.claims.items():
                    self._allocate(claim, result, key)
                for member, node in body.assignment.items():
                    if member not in body.waiting and (found := self.pods.get(member)) is not None:
                        self._bind(found, node)
            case Unschedulable():
                self._write(body.writes)
                self._rejected(record, self.in_full(body), "Unschedulable")
            case AttemptError():
                self._failed(body.members or (key,), "SchedulerError")
            case AttemptAborted():
                self._aborted(body, key)
            case Nominated():
                self._nominated(key, body)
            case Evicted() if pod is not None:
                self._evicted(pod, body)
            case _:
                pass

    def _put(self, key: str, obj: Object) -> None:
        if isinstance(obj, Pod):
            old = self.pods.get(key)
            if old is None or old.uid != obj.metadata.uid:
                self._forget(old)
                self.pods[key] = SeenPod(key, obj)
                return
            if old.obj.spec.scheduling_gates and not obj.spec.scheduling_gates:
                old.rejected_since = None
            old.take(obj)
            if not old.is_pending:
                old.release()
            if old.ended:
                self._forget(old)
        elif isinstance(obj, Node):
            self.nodes[obj.metadata.name] = SeenNode(obj)
        elif isinstance(obj, PodDisruptionBudget):
            self.budgets[key] = SeenBudget(key, obj)
            self.budgets_changed = self.seq
        elif isinstance(obj, PodGroup | Workload):
            self.groups[key] = obj
        else:
            self.others[key] = obj
            self.others_changed = self.seq

    def _write(self, writes: Iterable[Write]) -> None:
        """The record itself does them."""
        for write in writes:
            found = after(self.others, write)
            if found is not None:
                self.others[write.key] = found
            else:
                self.others.pop(write.key, None)

    def _allocate(self, key: str, result: AllocationResult, group: str) -> None:
        """The devices are for a whole group, which is the claim's one user."""
        claim = self.others.get(key)
        if isinstance(claim, ResourceClaim):
            kind, _, name = group.split("/", 2)
            user = ClaimConsumer(
                api_group="scheduling.k8s.io", resource=f"{kind.lower()}s", name=name, uid=""
            )
            users = [*claim.status.reserved_for, *([] if user in claim.status.reserved_for else [user])]
            status = replace(claim.status, allocation=result, reserved_for=tuple(users))
            self.others[key] = replace(claim, status=status)

    def _delete(self, key: str) -> None:
        self._forget(self.pods.pop(key, None))
        if self.budgets.pop(key, None) is not None:
            self.budgets_changed = self.seq
        self.groups.pop(key, None)
        if self.others.pop(key, None) is not None:
            self.others_changed = self.seq
        if key.startswith("Node/"):
            self.nodes.pop(key.rpartition("/")[2], None)

    def _forget(self, pod: SeenPod | None) -> None:
        """The pod is gone, or has ended: it costs no budget any more."""
        if pod is None:
            return
        for charged in self.charges.values():
            charged.pop(pod.uid, None)

    def _bind(self, pod: SeenPod, node: str) -> None:
        pod.node, pod.nominated = node, ""
        pod.release()
        pod.say("PodScheduled", "True", "", self.at)

    def _rejected(self, record: Record, body: Unschedulable, reason: str) -> None:
        self.said[record.seq] = body
        keys = body.members or (record.key,)
        self._failed(keys, reason)
        if SPREAD in body.plugins:
            for key in keys:
                pod = self.pods.get(key)
                if pod is not None and pod.rejected_since is None:
                    pod.rejected_since = record.at

    def _failed(self, keys: Iterable[str], reason: str) -> None:
        for key in keys:
            pod = self.pods.get(key)
            if pod is not None:
                pod.release()
                pod.say("PodScheduled", "False", reason, self.at)

    def _aborted(self, body: AttemptAborted, key: str) -> None:
        for other in (key, *body.assignment):
            if (pod := self.pods.get(other)) is not None:
                pod.release()

    def _nominated(self, key: str, body: Nominated) -> None:
        for other in body.cleared:
            if (pod := self.pods.get(other)) is not None:
                pod.nominated = ""
        pod = self.pods.get(key)
        if pod is not None:
            pod.nominated = body.node
            pod.fallback_node = body.node if body.fallback else ""
            pod.fell_back = frozenset(f.constraint for f in body.fallback)

    def _evicted(self, pod: SeenPod, body: Evicted) -> None:
        if not pod.node:  # It only loses the place that was reserved for it.
            self._failed([pod.key], "SchedulerError")
            return
        pod.evicted = pod.terminating = True
        pod.say("DisruptionTarget", "True", "PreemptionByScheduler", self.at)
        for key in body.budgets:
            self.charges.setdefault(key, {})[pod.uid] = (pod.name, body.at)
            budget = self.budgets.get(key)
            if budget is None:
                continue
            if pod.name not in budget.disrupted:
                budget.allowed = max(budget.allowed - 1, 0)
                budget.disrupted[pod.name] = format_time(self.at)
