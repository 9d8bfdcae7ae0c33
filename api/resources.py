"""What a pod requests: the effective sum over containers, sidecars, init steps, pod-level resources and overhead.

Requests are plain dicts of integers (millicores for cpu, units for all else), keyed by resource name, with only the names
that occur. Costs one pass over the pod's containers; the scheduler computes it once per pod (`PodInfo`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.api.objects import Container, ContainerStatus, Pod, Quantity, pod_condition
from tidelog.api.quantity import parse_resource

Requests = dict[str, int]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"
DEFAULT_MILLI_CPU = 100
"""What a container that does not mention cpu counts for in scores."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""What a container that does not mention memory counts for in scores."""

_NATIVE_DOMAIN = "kubernetes.io/"


def is_native(name: str) -> bool:
    """A name without a domain, or in kubernetes.io's."""
    return "/" not in name or _NATIVE_DOMAIN in name


def is_extended(name: str) -> bool:
    """A name with a domain of its own (`nvidia.com/gpu`)."""
    return not is_native(name) and not name.startswith("requests.")


def is_scalar(name: str) -> bool:
    """The resources beside cpu, memory, ephemeral-storage and pods that count; any other name is ignored."""
    return (
        is_extended(name)
        or name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-"))
        or _NATIVE_DOMAIN in name
    )


def counts(name: str) -> bool:
    """Whether the scheduler counts a resource of this name at all."""
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name)


def is_pod_level(name: str) -> bool:
    """The resources that pod-level requests may name."""
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


def is_sidecar(container: Container) -> bool:
    """An init container that goes on running."""
    return container.restart_policy == "Always"


def parse_requests(quantities: Mapping[str, Quantity]) -> Requests:
    """Every quantity as an integer. Raises ValueError on one that does not parse (admission refuses those)."""
    return {name: parse_resource(name, quantity) for name, quantity in quantities.items()}


def _add(total: Requests, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Requests, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if value > total.get(name, 0) or name not in total:
            total[name] = value


ContainerRequests = Callable[[Container], Requests]


def spec_requests(container: Container) -> Requests:
    """What the spec of a container requests."""
    requests = container.resources.requests
    return parse_requests(requests) if requests else {}


def container_sum(pod: Pod, of: ContainerRequests) -> Requests:
    """Containers and sidecars together, or the largest step of the initialisation if that needs more."""
    total: Requests = {}
    for container in pod.spec.containers:
        _add(total, of(container))
    if not pod.spec.init_containers:
        return total
    running: Requests = {}
    peak: Requests = {}
    for container in pod.spec.init_containers:
        if is_sidecar(container):
            requests = of(container)
            _add(total, requests)
            _add(running, requests)
            _raise_to(peak, running)
        else:
            step = dict(running)
            _add(step, of(container))
            _raise_to(peak, step)
    _raise_to(total, peak)
    return total


def pod_level_requests(pod: Pod) -> Requests:
    """The pod-level requests for the resources that may be named there."""
    resources = pod.spec.resources
    if resources is None or not resources.requests:
        return {}
    return {n: parse_resource(n, q) for n, q in resources.requests.items() if is_pod_level(n)}


def _finish(pod: Pod, total: Requests) -> Requests:
    """Pod-level values replace, overhead is added last."""
    total.update(pod_level_requests(pod))
    if pod.spec.overhead:
        _add(total, parse_requests(pod.spec.overhead))
    return total


def pod_requests(pod: Pod) -> Requests:
    """The effective request of a pod that looks for a node."""
    return _finish(pod, container_sum(pod, spec_requests))


def occupied_requests(pod: Pod) -> Requests:
    """The effective request of a pod on its node, which an in-place resize under way can make larger than its spec.

    Three sums are made, of what the spec asks, what the node has allocated and what the containers have, and the largest
    counts per resource; a resize that is infeasible leaves the spec's sum out.
    """
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    if not statuses:
        return pod_requests(pod)
    resize = pod_condition(pod, "PodResizePending")
    infeasible = resize is not None and resize.reason == "Infeasible"
    sums = [
        container_sum(pod, lambda c: _status_requests(c, statuses, lambda s: s.allocated_resources)),
        container_sum(
            pod,
            lambda c: _status_requests(c, statuses, lambda s: s.resources.requests if s.resources else {}),
        ),
    ]
    if not infeasible:
        sums.append(container_sum(pod, spec_requests))
    total: Requests = {}
    for one in sums:
        _raise_to(total, one)
    return _finish(pod, total)


def _status_requests(
    container: Container,
    statuses: Mapping[str, ContainerStatus],
    part: Callable[[ContainerStatus], Mapping[str, Quantity]],
) -> Requests:
    status = statuses.get(container.name)
    return spec_requests(container) if status is None else parse_requests(part(status))


def with_defaults(requests: Requests) -> Requests:
    """A container's requests, with the scoring defaults where cpu or memory are not mentioned (an explicit 0 stays)."""
    if CPU in requests and MEMORY in requests:
        return requests
    return {CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY} | requests
