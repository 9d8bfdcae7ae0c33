"""The rules of requests and limits: of containers, of pods, of overhead, and of what nodes offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.api.objects import Container, ContainerClaim, Pod, Quantity, ResourceRequirements
from tidelog.api.quantity import canonical, compare, format_binary, parse_exact
from tidelog.api.resources import (
    HUGEPAGES_PREFIX,
    container_sum,
    is_extended,
    is_native,
    is_pod_level,
    pod_level_requests,
    spec_requests,
)
from tidelog.api.validation import names
from tidelog.api.validation.field_errors import NOT_NEGATIVE, ErrorList

STANDARD = ("cpu", "memory", "ephemeral-storage")


def is_hugepages(name: str) -> bool:
    """`hugepages-2Mi` and the like."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_overcommit_allowed(name: str) -> bool:
    """Whether a limit may be higher than the request: not of extended resources and huge pages."""
    return is_native(name) and not is_hugepages(name)


def _parsed(errors: ErrorList, quantity: Quantity, path: str) -> tuple[int, int] | None:
    try:
        return parse_exact(quantity)
    except ValueError as error:
        errors.invalid(path, quantity, str(error))
        return None


def quantity(errors: ErrorList, name: str, value: Quantity, path: str) -> bool:
    """Readable, not negative, whole where the resource counts things. Whether it is readable."""
    exact = _parsed(errors, value, path)
    if exact is None:
        return False
    numerator, denominator = exact
    if numerator < 0:
        errors.invalid(path, canonical(value), NOT_NEGATIVE)
    if (name == "pods" or is_extended(name)) and numerator % denominator:
        errors.invalid(path, canonical(value), "must be an integer")
    if is_hugepages(name) and not _is_page_multiple(name, exact):
        errors.invalid(
            path, canonical(value), f"{canonical(value)} is not positive integer multiple of {name}"
        )
    return True


def _is_page_multiple(name: str, value: tuple[int, int]) -> bool:
    try:
        size, denominator = parse_exact(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError:
        return False
    return size > 0 and denominator == 1 and value[0] % (value[1] * size) == 0


def _container_resource_name(errors: ErrorList, name: str, path: str) -> None:
    if name in STANDARD:
        return
    rules = names.label_key(name)
    errors.invalid_each(path, name, rules)
    if "/" not in name:
        if not is_hugepages(name):
            errors.invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and (not is_extended(name) or names.label_key(f"requests.{name}")):
        if not rules:
            errors.invalid(path, name, "doesn't follow extended resource name standard")


def _pod_resource_name(errors: ErrorList, name: str, path: str) -> None:
    if not is_pod_level(name):
        errors.not_supported(path, name, ("cpu", "memory", "hugepages-*"))


def quantities(errors: ErrorList, found: Mapping[str, Quantity], path: str) -> None:
    """Validate the resources of a node or a status: any resource with a qualified name."""
    for name, value in found.items():
        errors.invalid_each(f"{path}[{name}]", name, names.label_key(name))
        quantity(errors, name, value, f"{path}[{name}]")


def overhead(errors: ErrorList, found: Mapping[str, Quantity], path: str) -> None:
    """Checked as limits are."""
    for name, value in found.items():
        where = f"{path}[{name}]"
        _container_resource_name(errors, name, where)
        quantity(errors, name, value, where)
    _huge_pages_company(errors, found, path)


def requirements(
    errors: ErrorList, found: ResourceRequirements, path: str, claims: Collection[str] = (), pod: bool = False
) -> None:
    """Limits, requests, how they relate, and the claims of a container. `claims` are the pod's."""
    check_name = _pod_resource_name if pod else _container_resource_name
    for part, values in (("limits", found.limits), ("requests", found.requests)):
        for name, value in values.items():
            where = f"{path}.{part}[{name}]"
            check_name(errors, name, where)
            if quantity(errors, name, value, where) and part == "requests":
                _against_limit(errors, name, value, found.limits, path)
    _huge_pages_company(errors, {**found.limits, **found.requests}, path)
    if pod and found.claims:
        errors.forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level")
    elif found.claims:
        _container_claims(errors, found.claims, claims, f"{path}.claims")


def _against_limit(
    errors: ErrorList, name: str, request: Quantity, limits: Mapping[str, Quantity], path: str
) -> None:
    limit = limits.get(name)
    if limit is None:
        if not is_overcommit_allowed(name):
            errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    try:
        order = compare(request, limit)
    except ValueError:
        return  # The limit itself has been reported.
    if order and not is_overcommit_allowed(name):
        rule = f"must be equal to {name} limit of {canonical(limit)}"
        errors.invalid(f"{path}.requests", canonical(request), rule)
    elif order > 0:
        rule = f"must be less than or equal to {name} limit of {canonical(limit)}"
        errors.invalid(f"{path}.requests", canonical(request), rule)


def _huge_pages_company(errors: ErrorList, found: Mapping[str, Quantity], path: str) -> None:
    if any(map(is_hugepages, found)) and "cpu" not in found and "memory" not in found:
        errors.forbidden(path, "HugePages require cpu or memory")


def _container_claims(
    errors: ErrorList, found: Iterable[ContainerClaim], claims: Collection[str], path: str
) -> None:
    seen: set[str] = set()
    in_parts: set[str] = set()
    for index, claim in enumerate(found):
        where = f"{path}[{index}]"
        key = f"{claim.name}/{claim.request}" if claim.request else claim.name
        if not claim.name:
            errors.required(where)
            continue
        if claim.request:
            errors.invalid_each(f"{where}.request", claim.request, names.dns_label(claim.request))
        whole_after_part = not claim.request and claim.name in in_parts
        if key in seen or claim.name in seen or whole_after_part:
            errors.duplicate(where, key)
        seen.add(key)
        if claim.request:
            in_parts.add(claim.name)
        if claim.name not in claims:
            listed = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            errors.not_found(
                where, claim.name, f"must be one of the names in pod.spec.resourceClaims{listed}"
            )


def pod_level(errors: ErrorList, pod: Pod) -> None:
    """Pod-level resources by themselves, and against the containers'."""
    found = pod.spec.resources
    if found is None:
        return
    own = ErrorList()
    requirements(own, found, "spec.resources", pod=True)
    for index, container in enumerate(pod.spec.containers):
        _limits_within_pod(own, container, found, f"spec.containers[{index}].resources.limits")
    if not own:
        _requests_within_pod(own, pod, found)
    errors.extend(own)


def _limits_within_pod(errors: ErrorList, container: Container, pod: ResourceRequirements, path: str) -> None:
    for name, limit in container.resources.limits.items():
        if name not in pod.limits:
            continue
        try:
            above = compare(limit, pod.limits[name]) > 0
        except ValueError:
            continue  # Reported where it stands.
        if above:
            rule = f"must be less than or equal to pod limits of {canonical(pod.limits[name])}"
            errors.invalid(f"{path}[{name}]", canonical(limit), rule)


def _requests_within_pod(errors: ErrorList, pod: Pod, found: ResourceRequirements) -> None:
    try:
        sums = container_sum(pod, spec_requests)
    except ValueError:
        return  # A container's quantity does not parse, which has been reported.
    for name, value in pod_level_requests(pod).items():
        if sums.get(name, 0) > value:
            shown = canonical(f"{sums[name]}m") if name == "cpu" else format_binary(sums[name])
            rule = f"must be greater than or equal to aggregate container requests of {shown}"
            errors.invalid(f"spec.resources.requests[{name}]", canonical(found.requests[name]), rule)
