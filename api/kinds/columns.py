"""Columns of a kind's table, and the functions that fill them: what matters to a scheduler.

A cell is a function of the object and a `View`, which holds what an object does not know itself: the moment that ages count
from, and the pods on each node. A kind's declaration lists its columns; name, namespace and age stand in every table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from tidelog.api.objects import (
    GroupPolicy,
    GroupSchedulingConstraints,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    ResourceClaim,
    Taint,
    pod_condition,
)
from tidelog.api.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Requests,
    occupied_requests,
    parse_requests,
)

_O = TypeVar("_O")


class View:
    """The context of a table: facts that an object does not know itself."""

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
    if_any: bool = False
    """Shown without `-o wide` too, where any of the rows has something in it."""


def column(_type: type[_O], heading: str, cell: Callable[[_O], object], wide: bool = False) -> Column:
    """A column that needs only the object; the type is named so that the function is checked against it."""
    return Column(heading, lambda obj, _view: cell(obj), wide)


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


def _group_name(pod: Pod) -> str:
    if pod.spec.scheduling_group is not None:
        return pod.spec.scheduling_group.pod_group_name
    if pod.spec.workload_ref is not None:
        return f"{pod.spec.workload_ref.name}/{pod.spec.workload_ref.pod_group}"
    return ""


def requests_of(pod: Pod) -> Requests:
    """Resources that the pod takes of its node."""
    try:
        return occupied_requests(pod)
    except ValueError:
        # Only a log that another program wrote can hold a quantity that does not parse.
        return {}


POD_COLUMNS = (
    column(Pod, "STATUS", pod_status),
    column(Pod, "NODE", lambda p: p.spec.node_name),
    column(Pod, "PRIORITY", lambda p: p.spec.priority if p.spec.priority is not None else 0),
    column(Pod, "CPU", lambda p: _decimal(requests_of(p).get("cpu", 0) / 1000), wide=True),
    column(Pod, "MEMORY", lambda p: _binary(requests_of(p).get("memory", 0)), wide=True),
    column(Pod, "NOMINATED NODE", lambda p: p.status.nominated_node_name, wide=True),
    column(Pod, "GROUP", _group_name, wide=True),
    column(Pod, "GATES", lambda p: ",".join(g.name for g in p.spec.scheduling_gates), wide=True),
)


# --- nodes ----------------------------------------------------------------------------------------------------------


def node_status(node: Node) -> str:
    """As kubectl words it; Unknown when nobody reports the node's readiness."""
    ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "")
    word = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{word},SchedulingDisabled" if node.spec.unschedulable else word


def used_cpu(node: Node, view: View) -> str:
    """`used/allocatable` in cores."""
    used = sum(requests_of(pod).get("cpu", 0) for pod in view.pods_on.get(node.metadata.name, ()))
    return f"{_decimal(used / 1000)}/{_decimal(_allocatable(node).get('cpu', 0) / 1000)}"


def used_memory(node: Node, view: View) -> str:
    """`used/allocatable` in bytes."""
    used = sum(requests_of(pod).get("memory", 0) for pod in view.pods_on.get(node.metadata.name, ()))
    return f"{_binary(used)}/{_binary(_allocatable(node).get('memory', 0))}"


def used_pods(node: Node, view: View) -> str:
    """`pods/allocatable`."""
    return f"{len(view.pods_on.get(node.metadata.name, ()))}/{_allocatable(node).get('pods', 0)}"


def used_extended(node: Node, view: View) -> str:
    """`name=used/allocatable` of each resource that only some nodes have."""
    pods = [requests_of(pod) for pod in view.pods_on.get(node.metadata.name, ())]
    return ",".join(
        f"{name}={sum(found.get(name, 0) for found in pods)}/{allocatable}"
        for name, allocatable in sorted(_allocatable(node).items())
        if allocatable and name not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
    )


def _allocatable(node: Node) -> Requests:
    try:
        return parse_requests(node.status.allocatable)
    except ValueError:
        return {}


def _decimal(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _binary(value: int) -> str:
    """In the largest binary unit that leaves at least one, to one decimal."""
    amount, unit = float(value), ""
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount < 1024 or unit == "Pi":
            break
        amount /= 1024
    return f"{amount:.1f}".removesuffix(".0") + unit


def taint_words(taint: Taint) -> str:
    """`key=value:effect`, as `kubectl taint` takes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


# --- selectors, policies --------------------------------------------------------------------------------------------


def selector_words(selector: LabelSelector | None) -> str:
    """A selector as `kubectl -l` takes it; the absent one selects nothing, the empty one everything."""
    if selector is None:
        return ""
    words = [label_words(selector.match_labels)] if selector.match_labels else []
    return ",".join(words + [_requirement_words(r) for r in selector.match_expressions]) or "<all>"


def _requirement_words(requirement: LabelSelectorRequirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values)})"


def label_words(labels: Mapping[str, str]) -> str:
    """`key=value,key=value`."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def policy_words(policy: GroupPolicy | None) -> str:
    """`gang of 4` or `basic, 4 desired`."""
    if policy is None:
        return ""
    if policy.gang is not None:
        return f"gang of {policy.gang.min_count}"
    count = policy.basic.desired_count if policy.basic is not None else None
    return "basic" if count is None else f"basic, {count} desired"


def level_words(constraints: GroupSchedulingConstraints | None) -> str:
    """The keys of a group's topology levels."""
    if constraints is None:
        return ""
    return ",".join(c.level or c.key for c in (*constraints.topology_constraints, *constraints.topology))


def claim_state(claim: ResourceClaim) -> str:
    """kubectl's word for a claim's state."""
    if claim.status.allocation is None:
        return "pending"
    return "allocated,reserved" if claim.status.reserved_for else "allocated"


def number_or_none(value: int | str | None) -> object:
    """kubectl's way to write a count that is not set."""
    return "N/A" if value is None else value
