"""A pod's effective request: the sum over containers, sidecars, init steps, pod-level resources and overhead.

Requests are plain dicts of integers (millicores for cpu, units for all else), keyed by resource name, with only the names
that occur. Costs one pass over the pod's containers; the scheduler computes it once per pod (`PodInfo`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from tidelog.api.objects import Container, Pod, Quantity, pod_condition
from tidelog.api.quantity import parse_resource

Requests = dict[str, int]

CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A resource of this name is backed by the device class whose name follows."""
CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"
DEFAULT_MILLI_CPU = 100
"""The cpu that scores assume for a container without a request."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""The memory that scores assume for a container without a request."""
DEFAULTS: Requests = {CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY}

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
    """The requests in a container's spec."""
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


def _add_overhead(pod: Pod, total: Requests) -> Requests:
    if pod.spec.overhead:
        _add(total, parse_requests(pod.spec.overhead))
    return total


def _finish(pod: Pod, total: Requests) -> Requests:
    """Pod-level values replace, overhead is added last."""
    total.update(pod_level_requests(pod))
    return _add_overhead(pod, total)


def pod_requests(pod: Pod) -> Requests:
    """The effective request of a pod that looks for a node."""
    return _finish(pod, container_sum(pod, spec_requests))


def score_requests(pod: Pod) -> Requests:
    """The request of a pending pod as NodeResourcesFit's score counts it.

    Every container that does not mention cpu or memory gets the default. kube-scheduler ignores pod-level requests here
    (and only here), so we do too: one rule for a pod's score before and after it asks for a pod-level amount.
    """
    return _add_overhead(pod, container_sum(pod, _with_defaults(spec_requests, DEFAULTS)))


def occupied_requests(pod: Pod) -> Requests:
    """The effective request of a pod on its node, which an in-place resize under way can make larger than its spec."""
    return _finish(pod, _occupied_sum(pod, {}))


def non_zero_requests(pod: Pod, occupied: Requests) -> tuple[int, int]:
    """cpu and memory of a pod on its node (`occupied`), where NodeResourcesFit scores others.

    As `occupied_requests`, but with the default for each container that does not mention one of them. When the pod has
    any pod-level request, the default is used only for what the pod as a whole has no value for.
    """
    if pod_level_requests(pod):
        missing = {name: value for name, value in DEFAULTS.items() if name not in occupied}
    else:
        missing = DEFAULTS
    if missing:
        occupied = _finish(pod, _occupied_sum(pod, missing))
    return occupied.get(CPU, 0), occupied.get(MEMORY, 0)


def _occupied_sum(pod: Pod, defaults: Requests) -> Requests:
    """Three sums, of what the spec asks, what the node has allocated and what the containers have: the largest per resource.

    A resize that is infeasible leaves the spec out; the sums are compared, not the containers, as kube-scheduler does.
    """
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    if not statuses:
        return container_sum(pod, _with_defaults(spec_requests, defaults))
    resize = pod_condition(pod, "PodResizePending")
    infeasible = resize is not None and resize.reason == "Infeasible"

    def allocated(container: Container) -> Requests:
        status = statuses.get(container.name)
        if status is not None and status.allocated_resources:
            return parse_requests(status.allocated_resources)
        return {} if infeasible else spec_requests(container)

    def actual(container: Container) -> Requests:
        status = statuses.get(container.name)
        if status is not None and status.resources is not None and status.resources.requests:
            return parse_requests(status.resources.requests)
        return allocated(container)

    total: Requests = {}
    for of in (allocated, actual) if infeasible else (spec_requests, allocated, actual):
        _raise_to(total, container_sum(pod, _with_defaults(of, defaults)))
    return total


def _with_defaults(of: ContainerRequests, defaults: Requests) -> ContainerRequests:
    """A container's requests, and the defaults for what it does not mention (an explicit 0 stays)."""
    return (lambda container: defaults | of(container)) if defaults else of


def counted(requests: Requests) -> Requests:
    """The requests without names that the scheduler does not count."""
    if all(counts(name) for name in requests):
        return requests
    return {name: value for name, value in requests.items() if counts(name)}


class EffectiveRequests(NamedTuple):
    """Everything that the scheduler counts of one pod. The dicts may be one and the same: do not change them."""

    requests: Requests
    """Requested of a node."""
    scored: Requests
    """Requested of a node, as NodeResourcesFit scores this pod."""
    occupied: Requests
    """Taken from its node."""
    non_zero_cpu: int
    non_zero_memory: int
    """Taken from its node, as NodeResourcesFit scores other pods."""


def effective_requests(pod: Pod) -> EffectiveRequests:
    """All at once, because for nearly every pod one pass over the containers, or two, answers everything. The answer is not to be changed."""
    spec, status = pod.spec, pod.status
    if spec.resources is not None or status.container_statuses or status.init_container_statuses:
        return _effective_requests(pod)
    key = _encode((spec.containers, spec.init_containers, spec.overhead))
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        found = _known[key] = _effective_requests(pod)
    return found


_encode = msgspec.msgpack.Encoder().encode
_known: dict[bytes, EffectiveRequests] = {}
"""Encoded containers → what they request: replicas have the same ones."""
_KNOWN_MAX = 1024


def _effective_requests(pod: Pod) -> EffectiveRequests:
    requests = counted(pod_requests(pod))
    scored = requests if _needs_no_defaults(pod) else counted(score_requests(pod))
    status = pod.status
    if pod.spec.resources is None and not status.container_statuses and not status.init_container_statuses:
        return EffectiveRequests(requests, scored, requests, scored.get(CPU, 0), scored.get(MEMORY, 0))
    occupied = counted(occupied_requests(pod))
    return EffectiveRequests(requests, scored, occupied, *non_zero_requests(pod, occupied))


def _needs_no_defaults(pod: Pod) -> bool:
    """Nothing is requested for the pod as a whole, and each container mentions cpu and memory."""
    spec = pod.spec
    return spec.resources is None and all(
        DEFAULTS.keys() <= c.resources.requests.keys() for c in (*spec.containers, *spec.init_containers)
    )
