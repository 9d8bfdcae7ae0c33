"""Which columns `tidelog get` shows of each kind: what matters to a scheduler.

`columns_of(kind)` gives the columns, each a heading and a function of the object and a `View`, which holds what an object
does not know itself: the moment that ages count from, and the pods on each node. The name and the namespace are not among
them; whoever prints the table puts them in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from tidelog.api.objects import (
    DeviceClass,
    GroupPolicy,
    GroupSchedulingConstraints,
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Service,
    StatefulSet,
    Taint,
    Workload,
    pod_condition,
)
from tidelog.api.resources import Requests, occupied_requests
from tidelog.api.text import age
from tidelog.api.times import parse_time
from tidelog.api.well_known import REGION, ZONE

_O = TypeVar("_O")


class View:
    """What the table's reader sees beside the objects themselves."""

    def __init__(self, now: int, pods: Iterable[Pod]) -> None:
        self.now = now
        self._pods = pods

    @cached_property
    def pods_on(self) -> Mapping[str, list[Pod]]:
        """The pods that take room on each node; finished ones do not."""
        found: dict[str, list[Pod]] = {}
        for pod in self._pods:
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                found.setdefault(pod.spec.node_name, []).append(pod)
        return found


class Column(NamedTuple):
    """A heading, what stands under it, and whether it takes `-o wide` to see it."""

    heading: str
    cell: Callable[[Any, View], object]
    wide: bool = False


def columns_of(type: type[Object], wide: bool) -> tuple[Column, ...]:
    """The columns of a kind, in order."""
    shown = [column for column in _COLUMNS[type] if wide or not column.wide]
    if wide:
        shown.append(Column("LABELS", lambda o, _: _pairs(o.metadata.labels)))
    return (*shown, Column("AGE", _age))


def _age(obj: Object, view: View) -> str:
    try:
        return age(view.now - parse_time(obj.metadata.creation_timestamp))
    except ValueError:
        return "<unknown>"


# --- pods -----------------------------------------------------------------------------------------------------------


def pod_status(pod: Pod) -> str:
    """One word for where a pod is on its way, kubectl's where it has one."""
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.status.phase and pod.status.phase != "Pending":
        return pod.status.phase
    if pod.spec.scheduling_gates:
        return "SchedulingGated"
    if pod.spec.node_name:
        return "Scheduled"
    scheduled = pod_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason:
        return scheduled.reason
    return "Pending"


def _pod_group(pod: Pod) -> str:
    if pod.spec.scheduling_group is not None:
        return pod.spec.scheduling_group.pod_group_name
    if pod.spec.workload_ref is not None:
        return f"{pod.spec.workload_ref.name}/{pod.spec.workload_ref.pod_group}"
    return ""


def _requests_of(pod: Pod) -> Requests:
    try:
        return occupied_requests(pod)
    except ValueError:
        # Only a log that another program wrote can hold a quantity that does not parse.
        return {}


# --- nodes ----------------------------------------------------------------------------------------------------------


def node_status(node: Node) -> str:
    """As kubectl words it; Unknown when nobody reports the node's readiness."""
    ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "")
    word = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{word},SchedulingDisabled" if node.spec.unschedulable else word


def _used_of_cpu(node: Node, view: View) -> str:
    used = sum(_requests_of(pod).get("cpu", 0) for pod in view.pods_on.get(node.metadata.name, ()))
    return f"{_decimal(used / 1000)}/{_decimal(_allocatable(node).get('cpu', 0) / 1000)}"


def _used_of_memory(node: Node, view: View) -> str:
    used = sum(_requests_of(pod).get("memory", 0) for pod in view.pods_on.get(node.metadata.name, ()))
    return f"{_bytes(used)}/{_bytes(_allocatable(node).get('memory', 0))}"


def _used_of_pods(node: Node, view: View) -> str:
    return f"{len(view.pods_on.get(node.metadata.name, ()))}/{_allocatable(node).get('pods', 0)}"


def _allocatable(node: Node) -> Requests:
    from tidelog.api.resources import parse_requests

    try:
        return parse_requests(node.status.allocatable)
    except ValueError:
        return {}


def _decimal(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _bytes(value: int) -> str:
    """In the largest binary unit that leaves at least one, to one decimal."""
    amount, unit = float(value), ""
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount < 1024 or unit == "Pi":
            break
        amount /= 1024
    return f"{amount:.1f}".removesuffix(".0") + unit


def _taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


# --- selectors, policies --------------------------------------------------------------------------------------------


def selector_words(selector: LabelSelector | None) -> str:
    """A selector as `kubectl -l` takes it; the absent one selects nothing, the empty one everything."""
    if selector is None:
        return ""
    words = [_pairs(selector.match_labels)] if selector.match_labels else []
    return ",".join(words + [_requirement_words(r) for r in selector.match_expressions]) or "<all>"


def _requirement_words(requirement: LabelSelectorRequirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values)})"


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _policy(policy: GroupPolicy | None) -> str:
    if policy is None:
        return ""
    if policy.gang is not None:
        return f"gang of {policy.gang.min_count}"
    count = policy.basic.desired_count if policy.basic is not None else None
    return "basic" if count is None else f"basic, {count} desired"


def _level(constraints: GroupSchedulingConstraints | None) -> str:
    if constraints is None:
        return ""
    return ",".join(c.level or c.key for c in (*constraints.topology_constraints, *constraints.topology))


def _claim_state(claim: ResourceClaim) -> str:
    if claim.status.allocation is None:
        return "pending"
    return "allocated,reserved" if claim.status.reserved_for else "allocated"


# --- the table ------------------------------------------------------------------------------------------------------


def _column(_type: type[_O], heading: str, cell: Callable[[_O], object], wide: bool = False) -> Column:
    """A column that needs only the object; the type is named so that the function is checked against it."""
    return Column(heading, lambda obj, _view: cell(obj), wide)


_SELECTOR = "SELECTOR"
_COLUMNS: dict[type[Object], tuple[Column, ...]] = {
    Pod: (
        _column(Pod, "STATUS", pod_status),
        _column(Pod, "NODE", lambda p: p.spec.node_name),
        _column(Pod, "PRIORITY", lambda p: p.spec.priority if p.spec.priority is not None else 0),
        _column(Pod, "CPU", lambda p: _decimal(_requests_of(p).get("cpu", 0) / 1000), wide=True),
        _column(Pod, "MEMORY", lambda p: _bytes(_requests_of(p).get("memory", 0)), wide=True),
        _column(Pod, "NOMINATED NODE", lambda p: p.status.nominated_node_name, wide=True),
        _column(Pod, "GROUP", _pod_group, wide=True),
        _column(Pod, "GATES", lambda p: ",".join(g.name for g in p.spec.scheduling_gates), wide=True),
    ),
    Node: (
        _column(Node, "STATUS", node_status),
        _column(Node, "ZONE", lambda n: n.metadata.labels.get(ZONE)),
        Column("CPU", _used_of_cpu),
        Column("MEMORY", _used_of_memory),
        Column("PODS", _used_of_pods),
        _column(Node, "TAINTS", lambda n: ",".join(map(_taint, n.spec.taints))),
        _column(Node, "REGION", lambda n: n.metadata.labels.get(REGION), wide=True),
    ),
    Namespace: (),
    PriorityClass: (
        _column(PriorityClass, "VALUE", lambda c: c.value),
        _column(PriorityClass, "GLOBAL-DEFAULT", lambda c: str(c.global_default).lower()),
        _column(PriorityClass, "PREEMPTIONPOLICY", lambda c: c.preemption_policy or "PreemptLowerPriority"),
        _column(
            PriorityClass,
            "DISRUPTION-BY",
            lambda c: c.allow_disruption_by_priority_greater_than_or_equal,
            wide=True,
        ),
        _column(PriorityClass, "DESCRIPTION", lambda c: c.description, wide=True),
    ),
    PodDisruptionBudget: (
        _column(PodDisruptionBudget, "MIN AVAILABLE", lambda b: _or_none(b.spec.min_available)),
        _column(PodDisruptionBudget, "MAX UNAVAILABLE", lambda b: _or_none(b.spec.max_unavailable)),
        _column(PodDisruptionBudget, "ALLOWED DISRUPTIONS", lambda b: b.status.disruptions_allowed),
        _column(PodDisruptionBudget, _SELECTOR, lambda b: selector_words(b.spec.selector), wide=True),
    ),
    Service: (_column(Service, _SELECTOR, lambda s: _pairs(s.spec.selector)),),
    ReplicationController: (_column(ReplicationController, _SELECTOR, lambda s: _pairs(s.spec.selector)),),
    ReplicaSet: (_column(ReplicaSet, _SELECTOR, lambda s: selector_words(s.spec.selector)),),
    StatefulSet: (_column(StatefulSet, _SELECTOR, lambda s: selector_words(s.spec.selector)),),
    Workload: (
        _column(
            Workload,
            "GROUPS",
            lambda w: ", ".join(
                f"{g.name} ({_policy(g.policy or g.scheduling_policy)})" for g in w.spec.pod_groups
            ),
        ),
    ),
    PodGroup: (
        _column(PodGroup, "POLICY", lambda g: _policy(g.spec.policy or g.spec.scheduling_policy)),
        _column(PodGroup, "TOPOLOGY", lambda g: _level(g.spec.scheduling_constraints)),
        _column(PodGroup, "PRIORITY-CLASS", lambda g: g.spec.priority_class_name, wide=True),
    ),
    ResourceSlice: (
        _column(ResourceSlice, "NODE", lambda s: s.spec.node_name),
        _column(ResourceSlice, "DRIVER", lambda s: s.spec.driver),
        _column(ResourceSlice, "POOL", lambda s: s.spec.pool.name),
        _column(ResourceSlice, "DEVICES", lambda s: len(s.spec.devices)),
    ),
    DeviceClass: (
        _column(DeviceClass, "EXTENDED RESOURCE", lambda c: c.spec.extended_resource_name),
        _column(DeviceClass, "SELECTORS", lambda c: len(c.spec.selectors)),
    ),
    ResourceClaim: (_column(ResourceClaim, "STATE", _claim_state),),
    ResourceClaimTemplate: (
        _column(ResourceClaimTemplate, "REQUESTS", lambda t: len(t.spec.spec.devices.requests)),
    ),
}


def _or_none(value: int | str | None) -> object:
    return "N/A" if value is None else value
