"""Every pod's requests and limits as metrics: the answer to `/metrics/resources`.

As in kube-scheduler these series are per pod, so the text grows with the cluster: about four lines, 500 bytes and 7 µs a pod.
It is therefore made in small pieces, in whatever thread asked for it, from pods that nobody changes (objects are immutable).
Sending a piece lets the event loop's thread have the interpreter; one that computed without a break would keep it for 5 ms each
time, and the event loop would wait as long whenever it comes back from the system.

Terminated pods are left out. Pods that wait for a node are shown with an empty `node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog.api.objects import Container, Pod
from tidelog.api.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    Requests,
    container_sum,
    is_pod_level,
    parse_requests,
    pod_requests,
)
from tidelog.daemon.metrics.families import Description, Family, escaped_label, number

PODS_IN_A_PIECE = 128
"""About 0.4 ms of work: what the event loop may have to wait for."""

LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
REQUEST = Description(
    name="kube_pod_resource_request",
    kind="gauge",
    help="What a pod requests of a resource, as the scheduler counts it.",
    labels=LABELS,
)
LIMIT = Description(
    name="kube_pod_resource_limit",
    kind="gauge",
    help="What a pod may use of a resource at most.",
    labels=LABELS,
)
DESCRIPTIONS = (REQUEST, LIMIT)

_TERMINATED = ("Succeeded", "Failed")
_BYTES = (MEMORY, EPHEMERAL_STORAGE, "storage")


class _Table(NamedTuple):
    description: Description
    amounts: Callable[[Pod], Requests]


def pod_resource_lines(pods: Sequence[Pod]) -> Iterator[str]:
    """Both families in Prometheus' text format, some pods at a time."""
    for description, amounts in (_Table(REQUEST, pod_requests), _Table(LIMIT, pod_limits)):
        yield Family(description).head
        for start in range(0, len(pods), PODS_IN_A_PIECE):
            piece = pods[start : start + PODS_IN_A_PIECE]
            yield "".join([line for pod in piece for line in _lines(description.name, pod, amounts)])


def _lines(name: str, pod: Pod, amounts: Callable[[Pod], Requests]) -> Iterator[str]:
    spec = pod.spec
    if spec.node_name and pod.status.phase in _TERMINATED:
        return
    values = (
        pod.metadata.namespace,
        pod.metadata.name,
        spec.node_name,
        spec.scheduler_name,
        "" if spec.priority is None else str(spec.priority),
    )
    whose = ",".join([f'{n}="{escaped_label(v)}"' for n, v in zip(LABELS, values, strict=False)])
    for resource, amount in amounts(pod).items():
        if amount:
            value = number(amount / 1000) if resource == CPU else str(amount)
            label = escaped_label(resource)
            yield f'{name}{{{whose},resource="{label}",unit="{unit_of(resource)}"}} {value}\n'


def unit_of(resource: str) -> str:
    """As kube-scheduler names it; empty for resources that it does not know."""
    if resource == CPU:
        return "cores"
    if resource in _BYTES or resource.startswith(HUGEPAGES_PREFIX):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""


def pod_limits(pod: Pod) -> Requests:
    """The sum over containers, the pod's own limits in place of it, and overhead on what has a limit."""
    total = container_sum(pod, _container_limits)
    if pod.spec.resources is not None:
        own = parse_requests(pod.spec.resources.limits)
        total.update({name: amount for name, amount in own.items() if is_pod_level(name)})
    for name, amount in parse_requests(pod.spec.overhead).items():
        if total.get(name):
            total[name] += amount
    return total


def _container_limits(container: Container) -> Requests:
    return parse_requests(container.resources.limits)
