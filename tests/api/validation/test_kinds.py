"""Every rule of the other kinds: one row a rule, with a value that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import ABSENT, Row, duplicate, forbidden, invalid, made, required, unsupported
from tidelog.api.features import FeatureGates
from tidelog.api.validation.field_errors import NOT_NEGATIVE
from tidelog.api.validation.rules import validate, warnings

ON = FeatureGates(topology_aware_workload_scheduling=True, workload_basic_policy_desired_count=True)
POSITIVE = "must be greater than zero"
GROUP = "spec.podGroups[0]"
CLAIM = "spec.devices.requests[0]"
THRESHOLD = "allowDisruptionByPriorityGreaterThanOrEqual"
CEL = 'device.driver == "gpu.example.com"'
BASIC: dict[str, Any] = {"spec.schedulingPolicy": {"basic": {}}}


def claims(count: int) -> list[dict[str, str]]:
    return [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(count)]


NODE = [
    invalid("metadata.name", "n.1", "N1", "RFC 1123 subdomain"),
    forbidden("metadata.namespace", "", "default", "not allowed on this type"),
    invalid(
        "spec.taints[0].key",
        "a/b",
        "a b",
        "name part must consist of",
        given={"spec.taints[0].effect": "NoExecute"},
    ),
    invalid(
        "spec.taints[0].value",
        "x",
        "x y",
        "a valid label must be",
        given={"spec.taints[0]": {"key": "k", "effect": "NoSchedule"}},
    ),
    required("spec.taints[0].effect", "NoSchedule", "", given={"spec.taints[0].key": "k"}),
    unsupported(
        "spec.taints[0].effect",
        "PreferNoSchedule",
        "Never",
        '"NoExecute", "NoSchedule"',
        given={"spec.taints[0].key": "k"},
    ),
    Row(
        "spec.taints[1].effect",
        "NoExecute",
        "NoSchedule",
        "spec.taints[1]",
        "Duplicate",
        "taints must be unique by key and effect pair",
        {"spec.taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v"}]},
    ),
    invalid(
        "spec.taints[0].timeAdded",
        "2024-01-01T00:00:00Z",
        "x",
        "RFC 3339",
        given={"spec.taints[0]": {"key": "k", "effect": "NoSchedule"}},
    ),
    invalid(
        "status.capacity", {"cpu": "4"}, {"cpu": "four"}, "quantities must match", at="status.capacity[cpu]"
    ),
    invalid("status.allocatable", {"pods": 110}, {"pods": "-1"}, NOT_NEGATIVE, at="status.allocatable[pods]"),
    invalid(
        "status.allocatable",
        {"a.b/c": 1},
        {"a b": 1},
        "name part must consist of",
        at="status.allocatable[a b]",
    ),
    invalid(
        "status.allocatable",
        {"a.b/c": 1},
        {"a.b/c": "0.5"},
        "must be an integer",
        at="status.allocatable[a.b/c]",
    ),
    unsupported(
        "status.conditions[0].status",
        "True",
        "yes",
        '"Unknown"',
        given={"status.conditions[0].type": "Ready"},
    ),
    invalid("status.images[0].sizeBytes", 0, -1, NOT_NEGATIVE),
]
NAMESPACE = [invalid("metadata.name", "team-a", "team.a", "RFC 1123 label")]
CLASS = [
    Row(
        "value",
        1_000_000_000,
        1_000_000_001,
        "value",
        "Forbidden",
        "maximum allowed value of a user defined priority is 1000000000",
        {},
    ),
    forbidden(
        "metadata.name",
        "systemic",
        "system-x",
        "priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class",
    ),
    forbidden(
        "value",
        2_000_000_000,
        5,
        "value of system-cluster-critical PriorityClass must be 2000000000",
        at="metadata.name",
        given={"metadata.name": "system-cluster-critical"},
    ),
    forbidden(
        "globalDefault",
        False,
        True,
        "globalDefault of system-node-critical PriorityClass must be false",
        at="metadata.name",
        given={"metadata.name": "system-node-critical", "value": 2_000_001_000},
    ),
    unsupported("preemptionPolicy", "Never", "Sometimes", '"Never", "PreemptLowerPriority"'),
    invalid(THRESHOLD, 2_000_000_000, 2_000_000_001, "must not be greater than 2000000000"),
]
BUDGET = [
    invalid(
        "spec.maxUnavailable",
        ABSENT,
        1,
        "minAvailable and maxUnavailable cannot be both set",
        at="spec",
        given={"spec.minAvailable": 1},
    ),
    invalid("spec.minAvailable", 0, -1, NOT_NEGATIVE),
    invalid("spec.minAvailable", "50%", "50", "must be an integer or percentage (e.g '5%')"),
    invalid("spec.maxUnavailable", "100%", "101%", "must not be greater than 100%"),
    invalid("spec.maxUnavailable", 1, 1 << 31, "must fit in 32 bits"),
    invalid("spec.selector.matchLabels", {"a": "b"}, {"a": "b c"}, "a valid label must be"),
    unsupported(
        "spec.unhealthyPodEvictionPolicy", "AlwaysAllow", "Never", '"AlwaysAllow", "IfHealthyBudget"'
    ),
    *(
        invalid(f"status.{field}", 0, -1, NOT_NEGATIVE)
        for field in (
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
            "observedGeneration",
        )
    ),
    invalid(
        "status.disruptedPods",
        {"a": "2024-01-01T00:00:00Z"},
        {"a": "x"},
        "RFC 3339",
        at="status.disruptedPods[a]",
    ),
]
SERVICE = [
    invalid("spec.selector", {"a": "b"}, {"a": "b c"}, "a valid label must be"),
    invalid("metadata.name", "web", "web.a", "RFC 1123 label"),
]
REPLICA_SET = [
    required("spec.selector", {"matchLabels": {"a": "b"}}, ABSENT),
    invalid("spec.selector", {"matchLabels": {"a": "b"}}, {}, "empty selector is invalid"),
]
POD_GROUP = [
    invalid("spec.schedulingPolicy", {"basic": {}}, {}, "must specify one of: `basic`, `gang`"),
    invalid(
        "spec.schedulingPolicy.basic",
        ABSENT,
        {},
        "exactly one of `basic`, `gang` is required",
        at="spec.schedulingPolicy",
    ),
    invalid(
        "spec.policy", ABSENT, {"gang": {"minCount": 1}}, "may not be set together with schedulingPolicy"
    ),
    required("spec.schedulingPolicy.gang.minCount", 1, 0),
    invalid("spec.schedulingPolicy.gang.minCount", 1, -1, POSITIVE),
    invalid("spec.schedulingPolicy.basic.desiredCount", 1, 0, POSITIVE, given=BASIC),
    invalid("spec.schedulingPolicy.gang.desiredCount", 2, 1, "must be greater than or equal to minCount"),
    required("spec.schedulingConstraints.topology[0].key", "rack", ""),
    invalid("spec.schedulingConstraints.topology[0].key", "a/rack", "a b", "name part must consist of"),
    Row(
        "spec.schedulingConstraints.topology",
        [{"key": "rack"}],
        [{"key": "rack"}, {"key": "zone"}],
        "spec.schedulingConstraints.topology",
        "TooMany",
        "must have at most 1 item",
    ),
    Row(
        "spec.resourceClaims",
        claims(4),
        claims(5),
        "spec.resourceClaims",
        "TooMany",
        "must have at most 4 items",
    ),
    invalid(
        "spec.resourceClaims[0].resourceClaimTemplateName",
        ABSENT,
        "t",
        "at most one of",
        at="spec.resourceClaims[0]",
        given={"spec.resourceClaims": claims(1)},
    ),
    invalid(
        "spec.disruptionMode",
        {"all": {}},
        {"all": {}, "single": {}},
        "exactly one of `single`, `all` is required",
    ),
    invalid("spec.priority", 1_000_000_000, 1_000_000_001, "must be less than or equal to 1000000000"),
    unsupported("spec.preemptionPolicy", "Never", "x", '"Never"'),
    invalid("spec.priorityClassName", "high", "High", "RFC 1123 subdomain"),
    forbidden("spec.parentCompositePodGroupName", "", "x", "composite pod groups are not supported"),
]
WORKLOAD = [
    required("spec.podGroups", [{"name": "a", "policy": {"basic": {}}}], [], "must have at least one item"),
    Row(
        "spec.podGroups",
        [{"name": f"g{i}", "policy": {"basic": {}}} for i in range(8)],
        [{"name": f"g{i}", "policy": {"basic": {}}} for i in range(9)],
        "spec.podGroups",
        "TooMany",
        "must have at most 8 items",
    ),
    required(f"{GROUP}.name", "a", ""),
    invalid(f"{GROUP}.name", "a", "a.b", "RFC 1123 label"),
    duplicate(
        "spec.podGroups[1].name", "b", "workers", given={"spec.podGroups[1]": {"policy": {"basic": {}}}}
    ),
    invalid(f"{GROUP}.policy", {"basic": {}}, {}, "must specify one of: `basic`, `gang`"),
    required(f"{GROUP}.policy.gang.minCount", 1, 0),
    invalid(f"{GROUP}.policy.basic.desiredCount", 3, -3, POSITIVE, given={f"{GROUP}.policy": {"basic": {}}}),
    required(f"{GROUP}.schedulingConstraints.topologyConstraints[0].level", "rack", ""),
    Row(
        f"{GROUP}.schedulingConstraints.topologyConstraints",
        [{"level": "a"}],
        [{"level": "a"}, {"level": "b"}],
        f"{GROUP}.schedulingConstraints.topologyConstraints",
        "TooMany",
        "at most 1",
    ),
    Row(f"{GROUP}.resourceClaims", claims(4), claims(5), f"{GROUP}.resourceClaims", "TooMany", "at most 4"),
]
SLICE = [
    required("spec.driver", "gpu.example.com", ""),
    invalid("spec.driver", "gpu.example.com", "GPU", "RFC 1123 subdomain"),
    required("spec.pool.name", "n1", ""),
    invalid("spec.pool.resourceSliceCount", 1, 0, POSITIVE),
    invalid(
        "spec.allNodes",
        False,
        True,
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        at="spec",
    ),
    invalid("spec.nodeName", "n1", ABSENT, "exactly one of", at="spec"),
    required(
        "spec.nodeSelector.nodeSelectorTerms",
        [{}],
        [],
        "must have at least one",
        given={"spec.nodeName": ABSENT},
    ),
    Row(
        "spec.devices",
        [{"name": f"d{i}"} for i in range(128)],
        [{"name": f"d{i}"} for i in range(129)],
        "spec.devices",
        "TooMany",
        "at most 128",
    ),
    required("spec.devices[0].name", "a", ""),
    duplicate("spec.devices[1].name", "gpu-1", "gpu-0"),
    invalid(
        "spec.devices[0].attributes",
        {"a.b/model": {"string": "x"}},
        {"a b": {"string": "x"}},
        "name part",
        at="spec.devices[0].attributes[a b]",
    ),
    invalid(
        "spec.devices[0].attributes",
        {"model": {"int": 0}},
        {"model": {"int": 1, "bool": True}},
        "exactly one of `int`, `bool`, `string`, `version`",
        at="spec.devices[0].attributes[model]",
    ),
    Row(
        "spec.devices[0].attributes",
        {f"a{i}": {"int": 1} for i in range(32)},
        {f"a{i}": {"int": 1} for i in range(33)},
        "spec.devices[0].attributes",
        "TooMany",
        "at most 32",
    ),
    invalid(
        "spec.devices[0].capacity",
        {"memory": {"value": "80Gi"}},
        {"memory": {"value": "x"}},
        "quantities must match",
        at="spec.devices[0].capacity[memory].value",
    ),
    unsupported(
        "spec.devices[0].taints[0].effect",
        "NoSchedule",
        "x",
        '"NoExecute"',
        given={"spec.devices[0].taints[0].key": "k"},
    ),
]
DEVICE_CLASS = [
    invalid(
        "spec.selectors[0].cel.expression",
        CEL,
        "device.uid == 1",
        "position 7: undefined field 'uid'",
    ),
    required("spec.selectors[0].cel", {"expression": CEL}, ABSENT, given={"spec.selectors": [{}]}),
    Row(
        "spec.selectors",
        [{"cel": {"expression": CEL}}] * 32,
        [{"cel": {"expression": CEL}}] * 33,
        "spec.selectors",
        "TooMany",
        "at most 32",
    ),
]
RESOURCE_CLAIM = [
    required(
        "status.allocation.nodeSelector.nodeSelectorTerms",
        [{}],
        [],
        "must have at least one",
        given={"status.allocation.nodeSelector": {}},
    ),
    required(f"{CLAIM}.name", "gpu", ""),
    invalid(f"{CLAIM}.name", "gpu", "g.u", "RFC 1123 label"),
    duplicate(
        "spec.devices.requests[1].name",
        "b",
        "gpu",
        given={"spec.devices.requests[1]": {"exactly": {"deviceClassName": "gpu"}}},
    ),
    invalid(
        f"{CLAIM}.exactly",
        {"deviceClassName": "gpu"},
        ABSENT,
        "exactly one of `exactly`, `firstAvailable`",
        at=CLAIM,
    ),
    required(f"{CLAIM}.exactly.deviceClassName", "gpu", ""),
    unsupported(f"{CLAIM}.exactly.allocationMode", "All", "Some", '"All", "ExactCount"'),
    invalid(f"{CLAIM}.exactly.count", 1, 0, POSITIVE),
    invalid(
        f"{CLAIM}.exactly.count",
        ABSENT,
        1,
        "must not be specified when allocationMode is 'All'",
        given={f"{CLAIM}.exactly.allocationMode": "All"},
    ),
    Row(
        "spec.devices.requests",
        [{"name": f"r{i}", "exactly": {"deviceClassName": "g"}} for i in range(32)],
        [{"name": f"r{i}", "exactly": {"deviceClassName": "g"}} for i in range(33)],
        "spec.devices.requests",
        "TooMany",
        "at most 32",
    ),
    invalid(
        "spec.devices.constraints[0]",
        {"matchAttribute": "a.b/c"},
        {},
        "exactly one of `matchAttribute`, `distinctAttribute`",
    ),
    invalid("spec.devices.constraints[0].matchAttribute", "a.b/c", "c", "must include a domain"),
    invalid(
        "spec.devices.constraints[0].requests[0]",
        "gpu",
        "tpu",
        "must be the name of a request in the claim",
        given={"spec.devices.constraints[0].matchAttribute": "a.b/c"},
    ),
    Row(
        "spec.devices.constraints",
        [{"matchAttribute": "a.b/c"}] * 32,
        [{"matchAttribute": "a.b/c"}] * 33,
        "spec.devices.constraints",
        "TooMany",
        "at most 32",
    ),
    Row(
        "status.reservedFor",
        [{"resource": "pods", "name": f"p{i}"} for i in range(256)],
        [{"resource": "pods", "name": f"p{i}"} for i in range(257)],
        "status.reservedFor",
        "TooMany",
        "at most 256",
    ),
    required("status.reservedFor[0].name", "p", "", given={"status.reservedFor[0].resource": "pods"}),
    duplicate(
        "status.reservedFor[1].uid",
        "v",
        "u",
        at="status.reservedFor[1]",
        given={
            "status.reservedFor": [
                {"resource": "pods", "name": "p", "uid": "u"},
                {"resource": "pods", "name": "p"},
            ]
        },
    ),
    Row(
        "status.allocation.devices.results",
        [{}] * 32,
        [{}] * 33,
        "status.allocation.devices.results",
        "TooMany",
        "at most 32",
    ),
]
EMPTY_CONSTRAINTS = made("PodGroup", {"spec.schedulingConstraints": {}})
TEMPLATE = [required("spec.spec.devices.requests[0].name", "gpu", "")]

TABLE = {
    "Node": NODE,
    "Namespace": NAMESPACE,
    "PriorityClass": CLASS,
    "PodDisruptionBudget": BUDGET,
    "Service": SERVICE,
    "ReplicaSet": REPLICA_SET,
    "PodGroup": POD_GROUP,
    "Workload": WORKLOAD,
    "ResourceSlice": SLICE,
    "DeviceClass": DEVICE_CLASS,
    "ResourceClaim": RESOURCE_CLAIM,
    "ResourceClaimTemplate": TEMPLATE,
}
ROWS = [pytest.param(kind, row, id=f"{kind} {row}") for kind, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_value_that_keeps_the_rule_is_valid(kind: str, row: Row) -> None:
    obj = made(kind, {**row.given, row.field: row.good})

    assert validate(obj, ON) == []


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_value_that_breaks_the_rule_is_told_with_path_kind_and_text(kind: str, row: Row) -> None:
    obj = made(kind, {**row.given, row.field: row.bad})

    errors = validate(obj, ON)

    assert {(error.path, error.kind) for error in errors} == {(row.path, row.kind)}
    assert any(row.text in error.rule for error in errors), [error.rule for error in errors]


def test_constraints_without_a_level_need_no_gate() -> None:
    assert validate(EMPTY_CONSTRAINTS, FeatureGates()) == []


@pytest.mark.parametrize(
    ("kind", "settings", "path", "gate"),
    [
        (
            "PodGroup",
            {"spec.schedulingConstraints.topology[0].key": "rack"},
            "spec.schedulingConstraints.topology",
            "TopologyAwareWorkloadScheduling",
        ),
        (
            "Workload",
            {f"{GROUP}.schedulingConstraints.topologyConstraints[0].level": "rack"},
            f"{GROUP}.schedulingConstraints.topologyConstraints",
            "TopologyAwareWorkloadScheduling",
        ),
        (
            "Workload",
            {f"{GROUP}.policy": {"basic": {"desiredCount": 3}}},
            f"{GROUP}.policy.basic.desiredCount",
            "WorkloadBasicPolicyDesiredCount",
        ),
    ],
)
def test_field_of_a_disabled_gate_is_refused(
    kind: str, settings: dict[str, Any], path: str, gate: str
) -> None:
    obj = made(kind, settings)

    errors = validate(obj, FeatureGates())

    assert [(error.path, error.kind, error.rule) for error in errors] == [
        (path, "Forbidden", f"may not be set while the feature gate {gate} is off")
    ]


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("Pod", {}, ()),
        ("Node", {"status.capacity.cpu": "4", "status.allocatable.cpu": "4000m"}, ()),
        (
            "Node",
            {"status.capacity.cpu": "4", "status.allocatable.cpu": "5"},
            ("status.allocatable[cpu]: 5 is more than the capacity of 4",),
        ),
        (
            "Node",
            {"metadata.labels": {"topology.kubernetes.io/zone": ""}},
            (
                "metadata.labels[topology.kubernetes.io/zone]: the empty value is a topology domain like any other",
            ),
        ),
        ("PriorityClass", {THRESHOLD: 1002}, ()),
        (
            "PriorityClass",
            {THRESHOLD: 1001},
            (
                f"{THRESHOLD}: 1001 protects from nobody: preemptors of pods with priority 1000 have at least 1001",
            ),
        ),
        ("PodDisruptionBudget", {"status.disruptionsAllowed": 1}, ()),
        (
            "PodDisruptionBudget",
            {},
            (
                "status.disruptionsAllowed: stays 0, which allows no disruption, until a disruption controller sets it",
            ),
        ),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(
    kind: str, settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    obj = made(kind, settings)

    assert warnings(obj) == expected
