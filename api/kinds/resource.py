"""The kinds of the group resource.k8s.io (DRA): slices of devices, their classes, claims of them and templates of claims."""

from __future__ import annotations

from tidelog.api.kinds.columns import claim_state, column
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from tidelog.api.validation.devices import (
    validate_claim,
    validate_claim_update,
    validate_device_class,
    validate_slice,
    validate_slice_update,
    validate_taint_rule,
    validate_template,
    validate_template_update,
)

GROUP = "resource.k8s.io"
_BINDING = ("bindingConditions", "bindingFailureConditions")
"""Types of conditions, which are kept where they are told."""

_CLAIM_REDACTION = Redaction(
    kept=(
        *_BINDING,
        "allocationMode", "apiGroup", "capacity", "distinctAttribute", "driver", "expression", "matchAttribute", "resource",
        "allocationTimestamp", "consumedCapacity", "effect", "operator", "source",
    ),
    dropped=("data", "networkData", "parameters"),
)  # fmt: skip

RESOURCE_SLICE = Kind(
    name="ResourceSlice",
    type=ResourceSlice,
    group=GROUP,
    version="v1",
    plural="resourceslices",
    namespaced=False,
    other_versions=("v1beta2",),
    validate=validate_slice,
    validate_update=validate_slice_update,
    events="upstream",
    columns=(
        column(ResourceSlice, "NODE", lambda s: s.spec.node_name),
        column(ResourceSlice, "DRIVER", lambda s: s.spec.driver),
        column(ResourceSlice, "POOL", lambda s: s.spec.pool.name),
        column(ResourceSlice, "DEVICES", lambda s: len(s.spec.devices)),
    ),
    redaction=Redaction(
        kept=(*_BINDING, "attributes", "capacity", "counters", "driver", "effect", "timeAdded")
    ),
)
DEVICE_CLASS = Kind(
    name="DeviceClass",
    type=DeviceClass,
    group=GROUP,
    version="v1",
    plural="deviceclasses",
    namespaced=False,
    other_versions=("v1beta2",),
    validate=validate_device_class,
    events="upstream",
    columns=(
        column(DeviceClass, "EXTENDED RESOURCE", lambda c: c.spec.extended_resource_name),
        column(DeviceClass, "SELECTORS", lambda c: len(c.spec.selectors)),
    ),
    redaction=Redaction(
        kept=("driver", "expression"), dropped=("parameters",), resources=("extendedResourceName",)
    ),
)
DEVICE_TAINT_RULE = Kind(
    name="DeviceTaintRule",
    type=DeviceTaintRule,
    group=GROUP,
    version="v1",
    plural="devicetaintrules",
    namespaced=False,
    other_versions=("v1beta2", "v1alpha3"),
    validate=validate_taint_rule,
    columns=(
        column(DeviceTaintRule, "TAINT", lambda r: r.spec.taint.key),
        column(DeviceTaintRule, "EFFECT", lambda r: r.spec.taint.effect),
    ),
    redaction=Redaction(kept=("driver", "effect", "timeAdded")),
)
RESOURCE_CLAIM = Kind(
    name="ResourceClaim",
    type=ResourceClaim,
    group=GROUP,
    version="v1",
    plural="resourceclaims",
    other_versions=("v1beta2",),
    subresources=("status",),
    validate=validate_claim,
    validate_update=validate_claim_update,
    events="upstream",
    columns=(column(ResourceClaim, "STATE", claim_state),),
    redaction=_CLAIM_REDACTION,
)
RESOURCE_CLAIM_TEMPLATE = Kind(
    name="ResourceClaimTemplate",
    type=ResourceClaimTemplate,
    group=GROUP,
    version="v1",
    plural="resourceclaimtemplates",
    other_versions=("v1beta2",),
    validate=validate_template,
    validate_update=validate_template_update,
    columns=(column(ResourceClaimTemplate, "REQUESTS", lambda t: len(t.spec.spec.devices.requests)),),
    redaction=_CLAIM_REDACTION,
)
