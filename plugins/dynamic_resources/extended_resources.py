"""Extended resources that a device class backs: `example.com/gpu: 2` becomes a claim of two devices of the class.

The claim belongs to the pod and is made when the pod has its node, because what it asks for depends on that: a node that offers the resource
by a device plugin needs none. A plain init container may use what the containers after it have; only the largest rest of all of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.objects import (
    Container,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ObjectMeta,
    OwnerReference,
    Pod,
    ResourceClaim,
    ResourceClaimSpec,
)
from tidelog.api.quantity import parse_exact
from tidelog.api.resources import CLASS_PREFIX, is_extended, is_sidecar

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IN_MEMORY = "<extended-resources>"
"""The name of the claim before it is made."""

Backing = Callable[[str], DeviceClass | None]
"""The class that backs a resource."""


class Mapped(NamedTuple):
    """Which request of the claim serves which container, as the pod's status says it."""

    container: str
    resource: str
    request: str


def can_be_backed(resource: str) -> bool:
    """Whether a class may serve requests for it."""
    return is_extended(resource) or resource.startswith(CLASS_PREFIX)


def backed_requests(requests: Mapping[str, int], backing: Backing) -> dict[str, int]:
    """Those of the pod's requests that a class may serve, if any is backed by one; of all of them."""
    for name in requests:
        if "/" in name:
            break
    else:
        return {}  # As for nearly all pods.
    wanted = {name: amount for name, amount in requests.items() if amount and can_be_backed(name)}
    return wanted if any(backing(name) is not None for name in wanted) else {}


def is_special(claim: ResourceClaim) -> bool:
    """Whether it was made for a pod's extended resources."""
    return claim.metadata.annotations.get(ANNOTATION) == "true"


def special_claim(pod: Pod, stored: Sequence[ResourceClaim]) -> ResourceClaim:
    """The claim that an earlier attempt left, or one that nobody has made yet."""
    for claim in stored:
        if is_special(claim):
            return claim
    meta = pod.metadata
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    return ResourceClaim(
        metadata=ObjectMeta(
            namespace=meta.namespace,
            name=IN_MEMORY,
            generate_name=f"{meta.name}-extended-resources-",
            annotations={ANNOTATION: "true"},
            owner_references=(owner,),
        )
    )


def with_requests(claim: ResourceClaim, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    """The claim, asking for these."""
    return replace(claim, spec=ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))))


def requests_and_mappings(
    pod: Pod, resources: Sequence[str], backing: Backing
) -> tuple[list[DeviceRequest], list[Mapped]]:
    """Return the claim's requests where devices back these resources, and the containers that get them."""
    requests: list[DeviceRequest] = []
    mappings: list[Mapped] = []
    for resource in sorted(resources):
        device_class = backing(resource)
        if device_class is not None:
            more, mapped = _of_resource(pod, resource, device_class.metadata.name)
            requests += more
            mappings += mapped
    return sorted(requests, key=lambda request: request.name), mappings


def _of_resource(pod: Pod, resource: str, class_name: str) -> tuple[list[DeviceRequest], list[Mapped]]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    inits = len(pod.spec.init_containers)
    plain = [i for i, c in enumerate(containers) if i < inits and not is_sidecar(c)]
    lasting: list[DeviceRequest | None] = [None] * len(containers)
    long_mapped: list[Mapped] = []
    for index, container in enumerate(containers):
        if index not in plain:
            lasting[index], mapped = _request(index, container, resource, class_name, ())
            long_mapped += mapped
    largest: DeviceRequest | None = None
    names: set[str] = set()
    short_mapped: list[Mapped] = []
    for index in plain:
        rest, mapped = _request(index, containers[index], resource, class_name, lasting[index:])
        short_mapped += mapped
        if rest is not None:
            names.add(rest.name)
            largest = rest if largest is None or _count(largest) < _count(rest) else largest
    if largest is not None:
        short_mapped = [m._replace(request=largest.name) if m.request in names else m for m in short_mapped]
    found = [*(() if largest is None else (largest,)), *(one for one in lasting if one is not None)]
    return found, long_mapped + short_mapped


def _request(
    index: int, container: Container, resource: str, class_name: str, reusable: Sequence[DeviceRequest | None]
) -> tuple[DeviceRequest | None, list[Mapped]]:
    """Return the container's requests beyond what it can use of others, and all that serves it."""
    asked = container.resources.requests
    amount = _whole(asked[resource]) if resource in asked else 0
    mapped: list[Mapped] = []
    if not amount:
        return None, mapped
    covered = 0
    for one in reusable:
        if one is not None:
            covered += _count(one)
            mapped.append(Mapped(container.name, resource, one.name))
            if covered >= amount:
                return None, mapped
    name = f"container-{index}-request-{sorted(asked).index(resource)}"
    exact = ExactDeviceRequest(
        device_class_name=class_name, allocation_mode="ExactCount", count=amount - covered
    )
    return DeviceRequest(name=name, exactly=exact), [*mapped, Mapped(container.name, resource, name)]


def _count(request: DeviceRequest) -> int:
    return (request.exactly.count if request.exactly is not None else 0) or 0


def _whole(quantity: str | float) -> int:
    """0 for amounts that are no whole number: they cannot be devices."""
    numerator, denominator = parse_exact(quantity)
    return numerator // denominator if numerator % denominator == 0 else 0
