"""Every rule of devices, claims, classes and volumes that `test_kinds` and `test_storage` leave: one row a rule, one a forbidden change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import ABSENT, Row, duplicate, invalid, made, required, unsupported
from tidelog.api.features import FeatureGates
from tidelog.api.validation.field_errors import NOT_NEGATIVE, POSITIVE
from tidelog.api.validation.rules import validate, validate_update

GATES = FeatureGates()
DEVICE = "spec.devices[0]"
POLICY = f"{DEVICE}.capacity[memory].requestPolicy"
EXACTLY = "spec.devices.requests[0].exactly"
CAPACITY = {f"{DEVICE}.capacity": {"memory": {"value": "8Gi"}}}
COUNTERS = {"slots": {"value": "2"}}
SHARED: dict[str, Any] = {
    "spec.devices": ABSENT,
    "spec.sharedCounters": [{"name": "a", "counters": COUNTERS}],
}
LABELS = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
TERM = {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}


def too_many(
    field: str, good: Any, bad: Any, text: str, at: str = "", given: dict[str, Any] | None = None
) -> Row:
    return Row(field, good, bad, at or field, "TooMany", text, given or {})


def devices_with(policy: dict[str, Any]) -> dict[str, Any]:
    return {"memory": {"value": "8Gi", "requestPolicy": policy}}


SLICE = [
    invalid("spec.nodeName", "n1", "N 1", "RFC 1123 subdomain"),
    invalid(
        "spec.devices",
        ABSENT,
        [{"name": "a"}],
        "only one of `sharedCounters`, `devices` is allowed",
        at="spec",
        given=SHARED,
    ),
    required("spec.sharedCounters[0].name", "a", "", given=SHARED),
    required("spec.sharedCounters[0].counters", COUNTERS, {}, given=SHARED),
    invalid(
        "spec.sharedCounters[0].counters",
        COUNTERS,
        {"slots": {"value": "two"}},
        "quantities must match",
        at="spec.sharedCounters[0].counters[slots].value",
        given=SHARED,
    ),
    invalid(
        "spec.sharedCounters[0].counters",
        COUNTERS,
        {"a.b": {"value": "2"}},
        "RFC 1123 label",
        at="spec.sharedCounters[0].counters[a.b]",
        given=SHARED,
    ),
    too_many(
        "spec.sharedCounters[0].counters",
        {f"c{i}": {"value": "1"} for i in range(32)},
        {f"c{i}": {"value": "1"} for i in range(33)},
        "at most 32",
        given=SHARED,
    ),
    too_many(
        "spec.sharedCounters",
        [{"name": f"s{i}", "counters": COUNTERS} for i in range(8)],
        [{"name": f"s{i}", "counters": COUNTERS} for i in range(9)],
        "at most 8",
        given=SHARED,
    ),
    invalid(f"{DEVICE}.name", "gpu-0", "GPU", "RFC 1123 label"),
    required(
        f"{DEVICE}.consumesCounters[0].counterSet",
        "a",
        "",
        given={f"{DEVICE}.consumesCounters": [{"counterSet": "a", "counters": COUNTERS}]},
    ),
    required(
        f"{DEVICE}.consumesCounters[0].counters",
        COUNTERS,
        {},
        given={f"{DEVICE}.consumesCounters": [{"counterSet": "a", "counters": COUNTERS}]},
    ),
    required(
        f"{DEVICE}.nodeSelector.nodeSelectorTerms",
        [{}],
        [],
        "must have at least one",
        given={"spec.nodeName": ABSENT, "spec.perDeviceNodeSelection": True},
    ),
    invalid(
        f"{DEVICE}.taints[0].key",
        "a.b/c",
        "a b",
        "name part",
        given={f"{DEVICE}.taints": [{"key": "a", "effect": "NoSchedule"}]},
    ),
    invalid(
        f"{DEVICE}.capacity",
        devices_with({"validValues": ["1Gi"]}),
        devices_with({"validValues": ["1Gi"], "validRange": {"min": "1Gi"}}),
        "exactly one policy must be specified",
        at=POLICY,
    ),
    too_many(
        f"{DEVICE}.capacity",
        devices_with({"validValues": [f"{i}Gi" for i in range(10)]}),
        devices_with({"validValues": [f"{i}Gi" for i in range(11)]}),
        "at most 10",
        at=f"{POLICY}.validValues",
    ),
    required(
        f"{DEVICE}.capacity",
        devices_with({"validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"}}),
        devices_with({"validRange": {"max": "2Gi"}}),
        at=f"{POLICY}.validRange.min",
    ),
    invalid(
        f"{DEVICE}.capacity",
        devices_with({"default": "1Gi"}),
        devices_with({"default": "some"}),
        "quantities must match",
        at=f"{POLICY}.default",
    ),
]
TAINT_RULE = [
    invalid("spec.taint.key", "a.b/c", "a b", "name part"),
    unsupported("spec.taint.effect", "NoExecute", "Never", '"NoExecute", "NoSchedule", "None"'),
]
DEVICE_CLASS = [
    required("spec.config[0].opaque", {"driver": "d", "parameters": {}}, ABSENT, given={"spec.config": [{}]}),
]
CLAIM = [
    invalid(
        "spec.devices.config[0].requests[0]",
        "gpu",
        "other",
        "must be the name of a request in the claim",
        given={"spec.devices.config": [{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {}}}]},
    ),
    required(
        "spec.devices.config[0].opaque",
        {"driver": "d", "parameters": {}},
        ABSENT,
        given={"spec.devices.config": [{"requests": ["gpu"]}]},
    ),
    too_many(
        "spec.devices.config",
        [{"opaque": {"driver": "d", "parameters": {}}}] * 32,
        [{"opaque": {"driver": "d", "parameters": {}}}] * 33,
        "at most 32",
    ),
    too_many(
        "spec.devices.requests[0].firstAvailable",
        [{"name": f"a{i}", "deviceClassName": "gpu"} for i in range(8)],
        [{"name": f"a{i}", "deviceClassName": "gpu"} for i in range(9)],
        "at most 8",
        given={EXACTLY: ABSENT},
    ),
    duplicate(
        "spec.devices.requests[0].firstAvailable[1].name",
        "b",
        "a",
        given={
            EXACTLY: ABSENT,
            "spec.devices.requests[0].firstAvailable": [
                {"name": "a", "deviceClassName": "gpu"},
                {"name": "b", "deviceClassName": "gpu"},
            ],
        },
    ),
    invalid(
        f"{EXACTLY}.capacity.requests",
        {"memory": "1Gi"},
        {"memory": "some"},
        "quantities must match",
        at=f"{EXACTLY}.capacity.requests[memory]",
    ),
    unsupported(
        f"{EXACTLY}.tolerations[0].operator",
        "Exists",
        "In",
        '"Equal", "Exists"',
        given={f"{EXACTLY}.tolerations": [{}]},
    ),
    invalid(
        f"{EXACTLY}.tolerations[0].operator",
        "Exists",
        "Equal",
        "operator must be Exists when `key` is empty",
        given={f"{EXACTLY}.tolerations": [{}]},
    ),
    too_many(
        f"{EXACTLY}.tolerations", [{"operator": "Exists"}] * 16, [{"operator": "Exists"}] * 17, "at most 16"
    ),
    required(
        "status.reservedFor[0].resource",
        "pods",
        "",
        given={"status.reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
    ),
    too_many(
        "status.reservedFor",
        [{"resource": "pods", "name": f"p{i}"} for i in range(256)],
        [{"resource": "pods", "name": f"p{i}"} for i in range(257)],
        "at most 256",
    ),
]
VOLUME_CLAIM = [
    unsupported("status.phase", "Bound", "Gone", '"Bound", "Lost", "Pending"'),
    unsupported("spec.accessModes", ["ReadWriteMany"], ["WriteOnly"], "ReadWriteOncePod"),
    invalid("spec.storageClassName", "fast", "Fast", "RFC 1123 subdomain"),
    invalid("spec.volumeName", "pv-1", "PV 1", "RFC 1123 subdomain"),
    invalid("spec.volumeAttributesClassName", "gold", "Gold", "RFC 1123 subdomain"),
    invalid(
        "spec.resources.limits",
        {"storage": "2Gi"},
        {"storage": "x"},
        "quantities must match",
        at="spec.resources.limits[storage]",
    ),
]
VOLUME = [
    required("spec.accessModes", ["ReadWriteOnce"], []),
    unsupported("spec.volumeMode", "Block", "Tape", '"Block", "Filesystem"'),
    invalid("spec.storageClassName", "fast", "Fast", "RFC 1123 subdomain"),
    unsupported("spec.persistentVolumeReclaimPolicy", "Retain", "Keep", '"Delete", "Recycle", "Retain"'),
    required(
        "spec.nodeAffinity.required",
        {"nodeSelectorTerms": [LABELS]},
        ABSENT,
        "must specify",
        given={"spec.nodeAffinity": {}},
    ),
    required("spec.claimRef.name", "data", "", given={"spec.claimRef": {"namespace": "default"}}),
    required("spec.claimRef.namespace", "default", "", given={"spec.claimRef": {"name": "data"}}),
    required("spec.csi.driver", "d.example.com", "", given={"spec.csi": {"volumeHandle": "h"}}),
    invalid(
        "spec.csi.driver",
        "D.example.com",
        "d/x",
        "RFC 1123 subdomain",
        given={"spec.csi": {"volumeHandle": "h"}},
    ),
    unsupported("status.phase", "Available", "Lost", '"Available", "Bound", "Failed", "Pending", "Released"'),
]
STORAGE_CLASS = [
    invalid("provisioner", "csi.example.com/disk", "a b", "name part"),
    unsupported("reclaimPolicy", "Retain", "Recycle", '"Delete", "Retain"'),
    required(
        "allowedTopologies[0].matchLabelExpressions[0].values", ["a"], [], given={"allowedTopologies": [TERM]}
    ),
    duplicate(
        "allowedTopologies[0].matchLabelExpressions[1].key",
        "rack",
        "zone",
        given={
            "allowedTopologies": [
                {"matchLabelExpressions": [*TERM["matchLabelExpressions"], {"key": "rack", "values": ["b"]}]}
            ]
        },
    ),
    invalid(
        "allowedTopologies[0].matchLabelExpressions[0].key",
        "a.b/zone",
        "a b",
        "name part",
        given={"allowedTopologies": [TERM]},
    ),
]
CSI_NODE = [
    required("spec.drivers[0].name", "d", ""),
    duplicate("spec.drivers[1].name", "e", "d", given={"spec.drivers": [{"name": "d"}, {"name": "e"}]}),
    invalid(
        "spec.drivers[0].allocatable.count", 0, -1, NOT_NEGATIVE, given={"spec.drivers": [{"name": "d"}]}
    ),
    too_many(
        "spec.drivers[0].topologyKeys",
        [f"k{i}" for i in range(16)],
        [f"k{i}" for i in range(17)],
        "at most 16",
        given={"spec.drivers": [{"name": "d"}]},
    ),
    invalid(
        "spec.drivers[0].topologyKeys",
        ["zone"],
        ["a b"],
        "name part",
        given={"spec.drivers": [{"name": "d"}]},
    ),
]
STORAGE_CAPACITY = [
    invalid("storageClassName", "fast", "Fast", "RFC 1123 subdomain"),
    invalid("capacity", "1Gi", "some", "quantities must match"),
    invalid("maximumVolumeSize", "1Gi", "some", "quantities must match"),
]
ATTACHMENT = [
    required("spec.attacher", "d.example.com", ""),
    required("spec.nodeName", "n1", ""),
    invalid("spec.nodeName", "n1", "N 1", "RFC 1123 subdomain"),
]
TABLE = {
    "ResourceSlice": SLICE,
    "DeviceTaintRule": TAINT_RULE,
    "DeviceClass": DEVICE_CLASS,
    "ResourceClaim": CLAIM,
    "PersistentVolumeClaim": VOLUME_CLAIM,
    "PersistentVolume": VOLUME,
    "StorageClass": STORAGE_CLASS,
    "CSINode": CSI_NODE,
    "CSIStorageCapacity": STORAGE_CAPACITY,
    "VolumeAttachment": ATTACHMENT,
}
ROWS = [pytest.param(kind, row, id=f"{kind} {row}") for kind, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_value_that_keeps_the_rule_is_valid(kind: str, row: Row) -> None:
    assert validate(made(kind, {**row.given, row.field: row.good}), GATES) == []


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_value_that_breaks_the_rule_is_told_with_path_kind_and_text(kind: str, row: Row) -> None:
    errors = validate(made(kind, {**row.given, row.field: row.bad}), GATES)

    assert {(error.path, error.kind) for error in errors} == {(row.path, row.kind)}
    assert any(row.text in error.rule for error in errors), [error.rule for error in errors]


@pytest.mark.parametrize(
    ("kind", "field", "before", "after"),
    [
        ("ResourceSlice", "spec.driver", "a.example.com", "b.example.com"),
        ("ResourceSlice", "spec.pool.name", "n1", "n2"),
        ("ResourceSlice", "spec.nodeName", "n1", "n2"),
        ("ResourceClaim", "spec.devices.requests[0].name", "gpu", "tpu"),
        ("ResourceClaimTemplate", "spec.spec.devices.requests[0].name", "gpu", "tpu"),
        ("PersistentVolumeClaim", "spec.selector", {"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "c"}}),
        ("PersistentVolumeClaim", "spec.volumeMode", "Block", "Filesystem"),
        ("PersistentVolumeClaim", "spec.storageClassName", "fast", "slow"),
        ("PersistentVolume", "spec.volumeMode", "Block", "Filesystem"),
        ("PersistentVolume", "spec.nodeAffinity", {"required": {"nodeSelectorTerms": [LABELS]}}, ABSENT),
        ("StorageClass", "provisioner", "a.example.com", "b.example.com"),
        ("StorageClass", "parameters", {"a": "b"}, {"a": "c"}),
        ("StorageClass", "reclaimPolicy", "Delete", "Retain"),
        ("StorageClass", "volumeBindingMode", "Immediate", "WaitForFirstConsumer"),
        ("CSIStorageCapacity", "storageClassName", "fast", "slow"),
        ("CSIStorageCapacity", "nodeTopology", {"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "c"}}),
        ("VolumeAttachment", "spec.nodeName", "n1", "n2"),
    ],
)
def test_field_that_must_stay_cannot_change(kind: str, field: str, before: Any, after: Any) -> None:
    old, new = made(kind, {field: before}), made(kind, {field: after})

    assert validate_update(old, old, GATES) == []
    (error,) = validate_update(old, new, GATES)
    assert field.startswith(error.path)
    assert error.kind in ("Invalid", "Forbidden")


def test_amount_must_be_positive_and_only_grows() -> None:
    two, one, none = (
        made("PersistentVolumeClaim", {"spec.resources.requests": {"storage": size}})
        for size in ("2Gi", "1Gi", "0")
    )

    assert [error.rule for error in validate(none, GATES)] == [POSITIVE]
    assert validate_update(one, two, GATES) == []
    (error,) = validate_update(two, one, GATES)
    assert (error.path, error.kind, error.rule) == (
        "spec.resources.requests[storage]",
        "Forbidden",
        "field can not be less than previous value",
    )


@pytest.mark.parametrize("kind", TABLE)
def test_name_that_breaks_the_rule_is_told_once(kind: str) -> None:
    errors = validate(made(kind, {"metadata.name": "A B"}), GATES)

    assert [error.path for error in errors] == ["metadata.name"]
