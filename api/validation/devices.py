"""The rules of devices and claims (DRA)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.api.device_selectors import DeviceSelectorError, device_matcher
from tidelog.api.objects import (
    CapacityRequestPolicy,
    Counter,
    Device,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
    Taint,
)
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import names
from tidelog.api.validation import placement as validate_placement
from tidelog.api.validation.field_errors import IMMUTABLE, POSITIVE, ErrorList
from tidelog.api.validation.resources import quantity

DEVICES_MAX = 128
ATTRIBUTES_MAX = 32
REQUESTS_MAX = 32
RESULTS_MAX = 32
CONSTRAINTS_MAX = 32
SELECTORS_MAX = 32
RESERVED_MAX = 256
ALTERNATIVES_MAX = 8
CONFIGS_MAX = 32
COUNTER_SETS_MAX = 8
POLICY_VALUES_MAX = 10
TOLERATIONS_MAX = 16
ALLOCATION_MODES = ("ExactCount", "All")
NODE_FIELDS = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"


def validate_slice(found: ResourceSlice, errors: ErrorList) -> None:
    """Driver, pool, exactly one way to say where the devices are, and the devices."""
    spec = found.spec
    _required_name(errors, spec.driver, "spec.driver")
    _required_name(errors, spec.pool.name, "spec.pool.name")
    if spec.pool.resource_slice_count < 1:
        errors.invalid("spec.pool.resourceSliceCount", spec.pool.resource_slice_count, POSITIVE)
    given = [
        bool(spec.node_name),
        spec.node_selector is not None,
        bool(spec.all_nodes),
        bool(spec.per_device_node_selection),
    ]
    if sum(given) != 1:
        rule = f"exactly one of {NODE_FIELDS} is required"
        errors.invalid("spec", f"{sum(given)} of them are set", rule)
    if spec.node_name:
        errors.invalid_each("spec.nodeName", spec.node_name, names.dns_subdomain(spec.node_name))
    if spec.node_selector is not None:
        validate_placement.node_selector(errors, spec.node_selector, "spec.nodeSelector")
    if len(spec.devices) > DEVICES_MAX:
        errors.too_many("spec.devices", len(spec.devices), DEVICES_MAX)
    if spec.devices and spec.shared_counters:
        errors.invalid("spec", None, "only one of `sharedCounters`, `devices` is allowed")
    if len(spec.shared_counters) > COUNTER_SETS_MAX:
        errors.too_many("spec.sharedCounters", len(spec.shared_counters), COUNTER_SETS_MAX)
    for index, counters in enumerate(spec.shared_counters):
        path = f"spec.sharedCounters[{index}]"
        if not counters.name:
            errors.required(f"{path}.name")
        _counters(errors, counters.counters, path)
    seen: set[str] = set()
    for index, device in enumerate(spec.devices):
        path = f"spec.devices[{index}]"
        _device(errors, device, path)
        errors.unique(f"{path}.name", device.name, seen)


def _required_name(errors: ErrorList, value: str, path: str) -> None:
    if value:
        errors.invalid_each(path, value, names.dns_subdomain(value))
    else:
        errors.required(path)


def _device(errors: ErrorList, device: Device, path: str) -> None:
    if device.name:
        errors.invalid_each(f"{path}.name", device.name, names.dns_label(device.name))
    else:
        errors.required(f"{path}.name")
    count = len(device.attributes) + len(device.capacity)
    if count > ATTRIBUTES_MAX:
        errors.too_many(f"{path}.attributes", count, ATTRIBUTES_MAX)
    for name, attribute in device.attributes.items():
        where = f"{path}.attributes[{name}]"
        errors.invalid_each(where, name, names.label_key(name))
        values = (attribute.int_value, attribute.bool_value, attribute.string, attribute.version)
        if sum(value is not None for value in values) != 1:
            errors.invalid(where, None, "exactly one of `int`, `bool`, `string`, `version` is required")
    for name, capacity in device.capacity.items():
        where = f"{path}.capacity[{name}]"
        errors.invalid_each(where, name, names.label_key(name))
        quantity(errors, "", capacity.value, f"{where}.value")
        if capacity.request_policy is not None:
            _policy(errors, capacity.request_policy, f"{where}.requestPolicy")
    for index, consumption in enumerate(device.consumes_counters):
        where = f"{path}.consumesCounters[{index}]"
        if not consumption.counter_set:
            errors.required(f"{where}.counterSet")
        _counters(errors, consumption.counters, where)
    for index, taint in enumerate(device.taints):
        _taint(errors, taint, f"{path}.taints[{index}]")
    if device.node_selector is not None:
        validate_placement.node_selector(errors, device.node_selector, f"{path}.nodeSelector")


def _taint(errors: ErrorList, taint: Taint, path: str) -> None:
    errors.invalid_each(f"{path}.key", taint.key, names.label_key(taint.key))
    if taint.effect not in ("NoSchedule", "NoExecute", "None"):
        errors.not_supported(f"{path}.effect", taint.effect, ("NoSchedule", "NoExecute", "None"))


def _counters(errors: ErrorList, counters: Mapping[str, Counter], path: str) -> None:
    if not counters:
        errors.required(f"{path}.counters")
    if len(counters) > ATTRIBUTES_MAX:
        errors.too_many(f"{path}.counters", len(counters), ATTRIBUTES_MAX)
    for name, counter in counters.items():
        errors.invalid_each(f"{path}.counters[{name}]", name, names.dns_label(name))
        quantity(errors, "", counter.value, f"{path}.counters[{name}].value")


def _policy(errors: ErrorList, policy: CapacityRequestPolicy, path: str) -> None:
    limits = policy.valid_range
    if policy.valid_values and limits is not None:
        errors.invalid(
            path,
            None,
            "exactly one policy must be specified, cannot specify both `validValues` and `validRange`",
        )
    if len(policy.valid_values) > POLICY_VALUES_MAX:
        errors.too_many(f"{path}.validValues", len(policy.valid_values), POLICY_VALUES_MAX)
    amounts = {"default": policy.default}
    amounts |= {f"validValues[{index}]": value for index, value in enumerate(policy.valid_values)}
    if limits is not None:
        amounts |= {
            "validRange.min": limits.min,
            "validRange.max": limits.max,
            "validRange.step": limits.step,
        }
        if limits.min is None:
            errors.required(f"{path}.validRange.min")
    for field, amount in amounts.items():
        if amount is not None:
            quantity(errors, "", amount, f"{path}.{field}")


def validate_taint_rule(found: DeviceTaintRule, errors: ErrorList) -> None:
    """Its taint."""
    _taint(errors, found.spec.taint, "spec.taint")


def validate_slice_update(old: ResourceSlice, new: ResourceSlice, errors: ErrorList) -> None:
    """A slice stays with its driver, its pool and its node."""
    for path, was, now in (
        ("spec.driver", old.spec.driver, new.spec.driver),
        ("spec.pool.name", old.spec.pool.name, new.spec.pool.name),
        ("spec.nodeName", old.spec.node_name, new.spec.node_name),
    ):
        if was != now:
            errors.invalid(path, now, IMMUTABLE)


def validate_device_class(found: DeviceClass, errors: ErrorList) -> None:
    """Its selectors and configuration."""
    _selectors(errors, found.spec.selectors, "spec.selectors")
    for index, config in enumerate(found.spec.config):
        path = f"spec.config[{index}].opaque"
        if config.opaque is None:
            errors.required(path)
        else:
            validate_common.raw(errors, config.opaque.parameters, f"{path}.parameters")


def _selectors(errors: ErrorList, selectors: Collection[DeviceSelector], path: str) -> None:
    if len(selectors) > SELECTORS_MAX:
        errors.too_many(path, len(selectors), SELECTORS_MAX)
    for index, selector in enumerate(selectors):
        where = f"{path}[{index}].cel"
        if selector.cel is None:
            errors.required(where)
            continue
        try:
            device_matcher(selector.cel.expression)
        except DeviceSelectorError as error:
            errors.invalid(f"{where}.expression", selector.cel.expression, str(error))


def validate_claim(found: ResourceClaim, errors: ErrorList) -> None:
    """Validate requests, allocation and consumers."""
    _claim(errors, found.spec.devices, "spec.devices")
    allocation, reserved = found.status.allocation, found.status.reserved_for
    if allocation is not None:
        results = allocation.devices.results
        if len(results) > RESULTS_MAX:
            errors.too_many("status.allocation.devices.results", len(results), RESULTS_MAX)
        if allocation.node_selector is not None:
            path = "status.allocation.nodeSelector"
            validate_placement.node_selector(errors, allocation.node_selector, path)
    if len(reserved) > RESERVED_MAX:
        errors.too_many("status.reservedFor", len(reserved), RESERVED_MAX)
    seen: set[tuple[str, str]] = set()
    for index, consumer in enumerate(reserved):
        path = f"status.reservedFor[{index}]"
        for field, value in (("resource", consumer.resource), ("name", consumer.name)):
            if not value:
                errors.required(f"{path}.{field}")
        if (consumer.resource, consumer.uid or consumer.name) in seen:
            errors.duplicate(path, consumer.name)
        seen.add((consumer.resource, consumer.uid or consumer.name))


def validate_claim_update(old: ResourceClaim, new: ResourceClaim, errors: ErrorList) -> None:
    """Refuse a change of a claim's spec."""
    _spec_update(errors, old.spec, new.spec)


def validate_template(found: ResourceClaimTemplate, errors: ErrorList) -> None:
    """The claim that it makes."""
    _claim(errors, found.spec.spec.devices, "spec.spec.devices")


def validate_template_update(
    old: ResourceClaimTemplate, new: ResourceClaimTemplate, errors: ErrorList
) -> None:
    """Templates stay."""
    _spec_update(errors, old.spec.spec, new.spec.spec)


def _spec_update(errors: ErrorList, old: ResourceClaimSpec, new: ResourceClaimSpec) -> None:
    if old != new:
        errors.invalid("spec", None, IMMUTABLE)


def _claim(errors: ErrorList, claim: DeviceClaim, path: str) -> None:
    if len(claim.requests) > REQUESTS_MAX:
        errors.too_many(f"{path}.requests", len(claim.requests), REQUESTS_MAX)
    if len(claim.constraints) > CONSTRAINTS_MAX:
        errors.too_many(f"{path}.constraints", len(claim.constraints), CONSTRAINTS_MAX)
    request_names: set[str] = set()
    for index, request in enumerate(claim.requests):
        _request(errors, request, f"{path}.requests[{index}]")
        if request.name in request_names:
            errors.duplicate(f"{path}.requests[{index}].name", request.name)
        request_names.add(request.name)
    if len(claim.config) > CONFIGS_MAX:
        errors.too_many(f"{path}.config", len(claim.config), CONFIGS_MAX)
    for index, config in enumerate(claim.config):
        _config(errors, config, f"{path}.config[{index}]", request_names)
    for index, constraint in enumerate(claim.constraints):
        _constraint(errors, constraint, f"{path}.constraints[{index}]", request_names)


def _config(
    errors: ErrorList, config: DeviceClaimConfiguration, path: str, request_names: Iterable[str]
) -> None:
    for index, name in enumerate(config.requests):
        if name.partition("/")[0] not in request_names:
            errors.invalid(f"{path}.requests[{index}]", name, "must be the name of a request in the claim")
    if config.opaque is None:
        errors.required(f"{path}.opaque")
    else:
        validate_common.raw(errors, config.opaque.parameters, f"{path}.opaque.parameters")


def _request(errors: ErrorList, request: DeviceRequest, path: str) -> None:
    if request.name:
        errors.invalid_each(f"{path}.name", request.name, names.dns_label(request.name))
    else:
        errors.required(f"{path}.name")
    if (request.exactly is None) == (not request.first_available):
        errors.invalid(path, None, "exactly one of `exactly`, `firstAvailable` is required")
    if request.exactly is not None:
        _exactly(errors, request.exactly, f"{path}.exactly")
    if len(request.first_available) > ALTERNATIVES_MAX:
        errors.too_many(f"{path}.firstAvailable", len(request.first_available), ALTERNATIVES_MAX)
    seen: set[str] = set()
    for index, sub in enumerate(request.first_available):
        where = f"{path}.firstAvailable[{index}]"
        errors.invalid_each(f"{where}.name", sub.name, names.dns_label(sub.name))
        errors.unique(f"{where}.name", sub.name, seen)
        _exactly(errors, sub, where)


def _exactly(errors: ErrorList, exact: ExactDeviceRequest | DeviceSubRequest, path: str) -> None:
    _required_name(errors, exact.device_class_name, f"{path}.deviceClassName")
    _selectors(errors, exact.selectors, f"{path}.selectors")
    if exact.allocation_mode and exact.allocation_mode not in ALLOCATION_MODES:
        errors.not_supported(f"{path}.allocationMode", exact.allocation_mode, ALLOCATION_MODES)
    if exact.count is not None and exact.allocation_mode == "All":
        errors.invalid(f"{path}.count", exact.count, "must not be specified when allocationMode is 'All'")
    elif exact.count is not None and exact.count < 1:
        errors.invalid(f"{path}.count", exact.count, POSITIVE)
    for name, amount in ({} if exact.capacity is None else exact.capacity.requests).items():
        quantity(errors, "", amount, f"{path}.capacity.requests[{name}]")
    if len(exact.tolerations) > TOLERATIONS_MAX:
        errors.too_many(f"{path}.tolerations", len(exact.tolerations), TOLERATIONS_MAX)
    for index, toleration in enumerate(exact.tolerations):
        where = f"{path}.tolerations[{index}]"
        if toleration.operator not in ("", "Equal", "Exists"):
            errors.not_supported(f"{where}.operator", toleration.operator, ("Equal", "Exists"))
        elif not toleration.key and toleration.operator != "Exists":
            errors.invalid(
                f"{where}.operator", toleration.operator, "operator must be Exists when `key` is empty"
            )


def _constraint(
    errors: ErrorList, constraint: DeviceConstraint, path: str, request_names: Iterable[str]
) -> None:
    attributes = (constraint.match_attribute, constraint.distinct_attribute)
    if (attributes[0] is None) == (attributes[1] is None):
        errors.invalid(path, None, "exactly one of `matchAttribute`, `distinctAttribute` is required")
    for field, attribute in zip(("matchAttribute", "distinctAttribute"), attributes, strict=True):
        if attribute is None:
            continue
        errors.invalid_each(f"{path}.{field}", attribute, names.label_key(attribute))
        if "/" not in attribute:
            errors.invalid(f"{path}.{field}", attribute, "must include a domain")
    for index, name in enumerate(constraint.requests):
        if name.partition("/")[0] not in request_names:
            errors.invalid(f"{path}.requests[{index}]", name, "must be the name of a request in the claim")
