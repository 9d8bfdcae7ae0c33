"""The disruption controller: keeps the status of every disruption budget in step with the pods, as Kubernetes' own does.

`disruption_status` says what a budget's status has to be; it is a pure function of the objects and the time. The actor around it looks
again at the budgets of a namespace whenever something in it changes.

Counting: a pod that the budget selects and that has not finished is *expected*, and *healthy* if it is Ready, does not terminate and
was not evicted on the budget's account. Budgets with a percentage or with maxUnavailable depend on how many pods there should be, which
only the pods' controllers know. Where one of the pods has none, or one that is not in the log with its `replicas`, the budget allows nothing,
and its condition says why (reason SyncFailed): counting the pods that are left would give one away after the other.

`disruptedPods` names the pods whose eviction was charged. A name stays until its pod is gone, or until the eviction is `EXPIRY` old and
the pod does not even terminate: then it is not coming. (Kubernetes' controller drops a name when it sees the pod terminate. Here it says to
the scheduler that this status knows of the eviction.)

A look at a budget costs the pods of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.conditions import merged
from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import KIND_OF_TYPE, object_key
from tidelog.api.objects import (
    Condition,
    IntOrString,
    Object,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from tidelog.api.pod_status import is_terminal
from tidelog.api.times import parse_time
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, put
from tidelog.eventlog.records import (
    Body,
    Evicted,
    ObjectDeleted,
    ObjectPut,
    PodConditionSet,
    Record,
    Scheduled,
)
from tidelog.framework.disruption_budgets import has_paid, is_ready, selects
from tidelog.framework.node_info import PodInfo
from tidelog.scheduler.preemption import EXPIRY

LOOK = "look at the budget"
_CONTROLLERS = (ReplicaSet, StatefulSet, ReplicationController)
_WATCHED = ("Pod", "PodDisruptionBudget", *(KIND_OF_TYPE[kind].name for kind in _CONTROLLERS))


# --- the status ---------------------------------------------------------------------------------------------------------


class _UnknownScale(Exception):
    """Nobody says how many there should be of this pod."""

    def __init__(self, pod: Pod, why: str) -> None:
        name = pod.metadata.name
        super().__init__(
            f'found no controllers for pod "{name}": {why}; only minAvailable as a number can do without'
        )


def disruption_status(
    budget: PodDisruptionBudget, pods: Iterable[Pod], replicas: Mapping[str, int], at: int
) -> PodDisruptionBudgetStatus:
    """The budget's status as it has to be at this time. `pods`: those that it selects; `replicas`: of controllers, by `owner_key`."""
    counted = [pod for pod in pods if not is_terminal(pod)]
    disrupted = _disrupted(budget, counted, at)
    healthy = sum(
        is_ready(pod) and not pod.metadata.deletion_timestamp and pod.metadata.name not in disrupted
        for pod in counted
    )
    try:
        expected, desired = _wanted(budget, counted, replicas)
    except _UnknownScale as problem:
        expected = desired = allowed = 0
        reason, message = "SyncFailed", str(problem)
    else:
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        reason, message = "SufficientPods" if allowed else "InsufficientPods", ""
    condition = Condition(
        type="DisruptionAllowed", status="True" if allowed else "False", reason=reason, message=message
    )
    return PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disrupted_pods=disrupted,
        conditions=merged(budget.status.conditions, condition, at),
    )


def _disrupted(budget: PodDisruptionBudget, pods: Sequence[Pod], at: int) -> dict[str, str]:
    """The names that stay."""
    kept = {}
    for pod in pods:
        name = pod.metadata.name
        since = budget.status.disrupted_pods.get(name)
        if since is None or not has_paid(budget, pod):
            continue
        if pod.metadata.deletion_timestamp or at - parse_time(since) < EXPIRY:
            kept[name] = since
    return dict(sorted(kept.items()))


def _wanted(budget: PodDisruptionBudget, pods: Sequence[Pod], replicas: Mapping[str, int]) -> tuple[int, int]:
    """How many pods there should be, and how many of them have to be healthy. Raises `_UnknownScale`."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        expected = _expected(pods, replicas)
        return expected, max(expected - _scaled(spec.max_unavailable, expected), 0)
    if isinstance(spec.min_available, str):
        expected = _expected(pods, replicas)
        return expected, _scaled(spec.min_available, expected)
    return (0, 0) if spec.min_available is None else (len(pods), spec.min_available)


def _expected(pods: Sequence[Pod], replicas: Mapping[str, int]) -> int:
    """The number of pods that their controllers want."""
    owners: dict[str, None] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        owner = _owner_of(pod)
        if not owner:
            raise _UnknownScale(pod, "it has no owner")
        if owner not in replicas:
            raise _UnknownScale(pod, f"the log does not tell how many replicas {owner} has")
        owners[owner] = None
    return sum(replicas[owner] for owner in owners)


def _scaled(amount: IntOrString, of: int) -> int:
    """The number, or the percentage of `of`, rounded up as Kubernetes does it."""
    if isinstance(amount, int):
        return amount
    return -(-int(amount.removesuffix("%")) * of // 100)


def _owner_of(pod: Pod) -> str:
    for reference in pod.metadata.owner_references:
        if reference.controller:
            return owner_key(reference, pod.metadata.namespace)
    return ""


def owner_key(reference: OwnerReference, namespace: str) -> str:
    """The record key of a pod's controller."""
    return f"{reference.kind}/{namespace}/{reference.name}"


# --- the actor ----------------------------------------------------------------------------------------------------------


class DisruptionControllerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """It has none."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        yield from ()


class DisruptionController:
    """Implements `tidelog.daemon.actors.protocol.Actor`."""

    name = "disruption-controller"
    Settings = DisruptionControllerSettings

    def __init__(self, settings: DisruptionControllerSettings | None = None) -> None:
        self._budgets: dict[str, dict[str, None]] = {}
        """Namespace → keys of its budgets."""
        self._members: dict[str, dict[str, None]] = {}
        """Namespace → keys of its pods and their controllers."""

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        """Find all budgets, and look at each."""
        self._budgets.clear()
        self._members.clear()
        for kind in _WATCHED:
            for obj in objects.of_kind(kind):
                self._notice(object_key(obj), obj)
        return [Errand(at, LOOK, key, seq) for keys in self._budgets.values() for key in keys]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        """Budgets of the namespace in which something changed."""
        if not isinstance(body, ObjectPut | ObjectDeleted | PodConditionSet | Scheduled | Evicted):
            return ()
        kind, _, place = record.key.partition("/")
        if kind not in _WATCHED:
            return ()
        self._notice(record.key, objects.get(record.key))
        budgets = self._budgets.get(place.partition("/")[0])
        if not budgets:
            return ()
        if kind == "PodDisruptionBudget":
            # Its own words, too: they change nothing when it looks again.
            return [Errand(record.at, LOOK, record.key, record.seq)] if record.key in budgets else ()
        return [Errand(record.at, LOOK, key, record.seq) for key in budgets]

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        """Write the budget's status, if it has to be another one."""
        budget = objects.get(errand.key)
        if not isinstance(budget, PodDisruptionBudget):
            return NOTHING
        pods, replicas = self._look_around(budget, objects)
        status = disruption_status(budget, pods, replicas, at)
        due = _next_expiry(status, pods)
        later = () if due is None else (Errand(due, LOOK, errand.key, errand.cause),)
        if status == budget.status:
            return Deeds((), later)
        return Deeds((put(replace(budget, status=status)),), later)

    def _notice(self, key: str, obj: Object | None) -> None:
        kind, _, place = key.partition("/")
        table = self._budgets if kind == "PodDisruptionBudget" else self._members
        namespace = place.partition("/")[0]
        if obj is not None:
            table.setdefault(namespace, {})[key] = None
        elif namespace in table:
            table[namespace].pop(key, None)
            if not table[namespace]:
                del table[namespace]

    def _look_around(self, budget: PodDisruptionBudget, objects: Objects) -> tuple[list[Pod], dict[str, int]]:
        pods: list[Pod] = []
        replicas: dict[str, int] = {}
        for key in self._members.get(budget.metadata.namespace, {}):
            obj = objects.get(key)
            if isinstance(obj, Pod):
                if selects(budget, PodInfo(obj)):
                    pods.append(obj)
            elif isinstance(obj, _CONTROLLERS) and obj.spec.replicas is not None:
                replicas[key] = obj.spec.replicas
        return pods, replicas


def _next_expiry(status: PodDisruptionBudgetStatus, pods: Iterable[Pod]) -> int | None:
    """When the next eviction of a pod that does not terminate is given up."""
    return min(
        (
            parse_time(status.disrupted_pods[pod.metadata.name]) + EXPIRY
            for pod in pods
            if pod.metadata.name in status.disrupted_pods and not pod.metadata.deletion_timestamp
        ),
        default=None,
    )
