"""Every rule of a pod: one row a rule, with a value that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import ABSENT, Row, duplicate, forbidden, invalid, made, required, unsupported
from tidelog.api.features import FeatureGates
from tidelog.api.validation.field_errors import NOT_NEGATIVE
from tidelog.api.validation.rules import validate

ON = FeatureGates(pod_topology_spread_fallback_mode=True)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
PREFERRED_NODE = f"spec.affinity.nodeAffinity.{PREFERRED}[0]"
ANTI = f"spec.affinity.podAntiAffinity.{REQUIRED}[0]"
PREFERRED_POD = f"spec.affinity.podAffinity.{PREFERRED}[0]"
SPREAD = "spec.topologySpreadConstraints[0]"
MAIN = "spec.containers[0]"
REQUESTS = f"{MAIN}.resources.requests"
LIMITS = f"{MAIN}.resources.limits"
POSITIVE = "must be greater than zero"
LONG = "a" * 64
GPU = "nvidia.com/gpu"


GT = {"key": "cores", "operator": "Gt", "values": ["4"]}
SPREAD_GIVEN = {
    SPREAD: {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
}
SOFT_GIVEN = {
    SPREAD: {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
}
ANTI_GIVEN = {ANTI: {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}}
TERM = {"topologyKey": "zone", "labelSelector": {}}

METADATA = [
    required("metadata.name", "a", "", "name or generateName is required"),
    invalid("metadata.name", "a.b-c", "A_b", "a lowercase RFC 1123 subdomain must consist of"),
    invalid("metadata.name", "a" * 253, "a" * 254, "must be no more than 253 characters"),
    invalid("metadata.generateName", "web-", "Web-", "RFC 1123 subdomain", given={"metadata.name": ABSENT}),
    required("metadata.namespace", "x", ""),
    invalid("metadata.namespace", "team-a", "team.a", "a lowercase RFC 1123 label must consist of"),
    invalid("metadata.namespace", "a" * 63, LONG, "must be no more than 63 characters"),
    invalid("metadata.generation", 3, -1, NOT_NEGATIVE),
    invalid("metadata.labels", {"a/b": ""}, {"a/b/c": ""}, "a qualified name must consist of"),
    invalid("metadata.labels", {"a/b": ""}, {"/b": ""}, "prefix part must be non-empty"),
    invalid("metadata.labels", {"a.b/c": ""}, {"A_/b": ""}, "prefix part a lowercase RFC 1123 subdomain"),
    invalid("metadata.labels", {"a" * 63: ""}, {LONG: ""}, "name part must be no more than 63 characters"),
    invalid("metadata.labels", {"a": ""}, {"a-": ""}, "name part must consist of alphanumeric characters"),
    invalid("metadata.labels", {"a": "b.c"}, {"a": "-"}, "a valid label must be an empty string or consist"),
    invalid("metadata.labels", {"a": "b" * 63}, {"a": LONG}, "must be no more than 63 characters"),
    invalid("metadata.annotations", {"A/b": ""}, {"a b": ""}, "name part must consist of"),
    Row(
        "metadata.annotations",
        {"a": "x" * 1000},
        {"a": "x" * 262144},
        "metadata.annotations",
        "TooLong",
        "262144",
    ),
    invalid("metadata.finalizers", ["a.b/c"], ["a b"], "name part must consist of"),
    invalid("metadata.creationTimestamp", "2024-01-01T00:00:00Z", "yesterday", "RFC 3339"),
    invalid("metadata.deletionTimestamp", "2024-01-01T00:00:00.5+01:00", "2024-13-01T00:00:00Z", "RFC 3339"),
    invalid(
        "metadata.ownerReferences[0].apiVersion",
        "v1",
        "",
        "version must not be empty",
        given={"metadata.ownerReferences[0]": {"kind": "Node", "name": "n", "uid": "u"}},
    ),
    invalid(
        "metadata.ownerReferences[0].kind",
        "Node",
        "",
        "must not be empty",
        given={"metadata.ownerReferences[0]": {"apiVersion": "v1", "name": "n"}},
    ),
    invalid(
        "metadata.ownerReferences[0].name",
        "n",
        "",
        "must not be empty",
        given={"metadata.ownerReferences[0]": {"apiVersion": "v1", "kind": "Node"}},
    ),
    invalid(
        "metadata.ownerReferences[1].controller",
        False,
        True,
        "Only one reference can have Controller set to true",
        at="metadata.ownerReferences",
        given={
            f"metadata.ownerReferences[{i}]": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": "n",
                "controller": not i,
            }
            for i in (0, 1)
        },
    ),
]

CONTAINERS = [
    required("spec.containers", [{"name": "a"}], []),
    required(f"{MAIN}.name", "a", ""),
    invalid(f"{MAIN}.name", "a-b", "a.b", "RFC 1123 label"),
    duplicate("spec.containers[1].name", "other", "main"),
    duplicate("spec.initContainers[0].name", "other", "main"),
    unsupported(
        "spec.initContainers[0].restartPolicy",
        "Always",
        "Sometimes",
        '"Always", "Never", "OnFailure"',
        given={"spec.initContainers[0].name": "i"},
    ),
    unsupported("spec.restartPolicy", "Never", "Sometimes", '"Always"'),
    invalid(f"{REQUESTS}.cpu", "100m", "1x", "quantities must match", at=f"{REQUESTS}[cpu]"),
    invalid(f"{REQUESTS}.cpu", "0", "-1", NOT_NEGATIVE, at=f"{REQUESTS}[cpu]"),
    invalid(
        f"{REQUESTS}.cpu",
        "1",
        "2",
        "must be less than or equal to cpu limit of 1",
        at=REQUESTS,
        given={f"{LIMITS}.cpu": "1000m"},
    ),
    invalid(
        f"{REQUESTS}.storage",
        ABSENT,
        "1",
        "must be a standard resource for containers",
        at=f"{REQUESTS}[storage]",
    ),
    invalid(f"{LIMITS}[{GPU}]", "2", "0.5", "must be an integer", given={f"{REQUESTS}[{GPU}]": ABSENT}),
    required(
        f"{LIMITS}[{GPU}]",
        "1",
        ABSENT,
        "Limit must be set for non overcommitable resources",
        at=LIMITS,
        given={f"{REQUESTS}[{GPU}]": "1"},
    ),
    invalid(
        f"{REQUESTS}[{GPU}]",
        "2",
        "1",
        "must be equal to nvidia.com/gpu limit of 2",
        at=REQUESTS,
        given={f"{LIMITS}[{GPU}]": "2"},
    ),
    invalid(f"{LIMITS}[requests.x.com/a]", ABSENT, "1", "doesn't follow extended resource name standard"),
    invalid(
        f"{LIMITS}[hugepages-2Mi]",
        "4Mi",
        "3Mi",
        "3Mi is not positive integer multiple of hugepages-2Mi",
        given={f"{LIMITS}.cpu": "1"},
    ),
    forbidden(
        f"{LIMITS}.cpu",
        "1",
        ABSENT,
        "HugePages require cpu or memory",
        at=f"{MAIN}.resources",
        given={f"{LIMITS}[hugepages-2Mi]": "2Mi"},
    ),
    invalid("spec.overhead.cpu", "10m", "-10m", NOT_NEGATIVE, at="spec.overhead[cpu]"),
    invalid(
        "spec.overhead.foo",
        ABSENT,
        "1",
        "must be a standard resource for containers",
        at="spec.overhead[foo]",
    ),
    required(f"{MAIN}.ports[0].containerPort", 80, 0),
    invalid(f"{MAIN}.ports[0].containerPort", 65535, 65536, "must be between 1 and 65535, inclusive"),
    invalid(
        f"{MAIN}.ports[0].hostPort",
        1,
        -1,
        "must be between 1 and 65535, inclusive",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    unsupported(
        f"{MAIN}.ports[0].protocol",
        "UDP",
        "ICMP",
        '"SCTP", "TCP", "UDP"',
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].hostIP",
        "::1",
        "1.2.3",
        "must be a valid IP address",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].name",
        "http-1",
        "http--1",
        "must not contain consecutive hyphens",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].name",
        "a" * 15,
        "a" * 16,
        "must be no more than 15 characters",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].name",
        "a1",
        "1",
        "must contain at least one letter",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].name",
        "a-1",
        "-a",
        "must not begin or end with a hyphen",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    invalid(
        f"{MAIN}.ports[0].name",
        "a",
        "aB",
        "alpha-numeric characters (a-z, 0-9), and hyphens",
        given={f"{MAIN}.ports[0].containerPort": 1},
    ),
    duplicate(
        f"{MAIN}.ports[1].name",
        "b",
        "a",
        given={f"{MAIN}.ports": [{"name": "a", "containerPort": 1}, {"containerPort": 2}]},
    ),
    Row(
        "spec.containers[1].ports[0].hostIP",
        "10.0.0.1",
        ABSENT,
        "spec.containers[1].ports[0].hostPort",
        "Duplicate",
        "",
        {
            "spec.containers": [
                {"name": "a", "ports": [{"containerPort": 1, "hostPort": 80}]},
                {"name": "b", "ports": [{"containerPort": 2, "hostPort": 80, "protocol": "TCP"}]},
            ]
        },
    ),
    Row(
        "spec.initContainers[0].ports[1].hostPort",
        81,
        80,
        "spec.initContainers[0].ports[1].hostPort",
        "Duplicate",
        "",
        {
            "spec.initContainers[0]": {
                "name": "i",
                "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81}],
            },
        },
    ),
    invalid(
        f"{MAIN}.ports[0].hostPort",
        80,
        81,
        "must match `containerPort` when `hostNetwork` is true",
        given={"spec.hostNetwork": True, f"{MAIN}.ports[0].containerPort": 80},
    ),
    unsupported(
        "spec.resources.limits",
        {"memory": "1Gi"},
        {"ephemeral-storage": "1Gi"},
        '"cpu", "hugepages-*", "memory"',
        at="spec.resources.limits[ephemeral-storage]",
    ),
    forbidden(
        "spec.resources.claims",
        [],
        [{"name": "c"}],
        "claims cannot be set for Resources at pod-level",
        given={"spec.resources.requests.cpu": "1"},
    ),
    invalid(
        "spec.resources.requests.cpu",
        "1500m",
        "1",
        "must be greater than or equal to aggregate container requests of 1500m",
        at="spec.resources.requests[cpu]",
        given={f"{REQUESTS}.cpu": "1500m"},
    ),
    invalid(
        f"{LIMITS}.memory",
        "1Gi",
        "2Gi",
        "must be less than or equal to pod limits of 1Gi",
        at=f"{LIMITS}[memory]",
        given={"spec.resources.limits.memory": "1Gi"},
    ),
    required(
        f"{MAIN}.resources.claims[0].name",
        "gpu",
        "",
        at=f"{MAIN}.resources.claims[0]",
        given={"spec.resourceClaims[0]": {"name": "gpu", "resourceClaimName": "c"}},
    ),
    Row(
        f"{MAIN}.resources.claims[0].name",
        "gpu",
        "tpu",
        f"{MAIN}.resources.claims[0]",
        "NotFound",
        "must be one of the names in pod.spec.resourceClaims: gpu",
        {"spec.resourceClaims[0]": {"name": "gpu", "resourceClaimName": "c"}},
    ),
    duplicate(
        f"{MAIN}.resources.claims[1].request",
        "b",
        "a",
        at=f"{MAIN}.resources.claims[1]",
        given={
            "spec.resourceClaims[0]": {"name": "gpu", "resourceClaimName": "c"},
            f"{MAIN}.resources.claims": [{"name": "gpu", "request": "a"}, {"name": "gpu"}],
        },
    ),
]

PLACEMENT = [
    invalid("spec.nodeSelector", {"disk": "ssd"}, {"disk": "s d"}, "a valid label must be"),
    required(
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        [{}],
        [],
        "must have at least one node selector term",
    ),
    required(
        f"{NODE}.matchExpressions[0].values",
        ["a"],
        [],
        "must be specified when `operator` is 'In' or 'NotIn'",
        given={f"{NODE}.matchExpressions[0]": {"key": "k", "operator": "NotIn"}},
    ),
    forbidden(
        f"{NODE}.matchExpressions[0].values",
        [],
        ["a"],
        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        given={f"{NODE}.matchExpressions[0]": {"key": "k", "operator": "Exists"}},
    ),
    required(
        f"{NODE}.matchExpressions[0].values",
        ["4"],
        ["4", "5"],
        "must be specified single value when `operator` is 'Lt' or 'Gt'",
        given={f"{NODE}.matchExpressions[0]": GT},
    ),
    invalid(
        f"{NODE}.matchExpressions[0].values[0]",
        "4",
        "x4",
        "must be an integer when `operator` is 'Lt' or 'Gt'",
        given={f"{NODE}.matchExpressions[0]": GT},
    ),
    invalid(
        f"{NODE}.matchExpressions[0].operator",
        "In",
        "Matches",
        "not a valid selector operator",
        given={f"{NODE}.matchExpressions[0]": {"key": "k", "values": ["a"]}},
    ),
    invalid(
        f"{NODE}.matchExpressions[0].key",
        "k",
        "k k",
        "name part must consist of",
        given={f"{NODE}.matchExpressions[0]": {"operator": "Exists"}},
    ),
    invalid(
        f"{NODE}.matchExpressions[0].values[0]",
        "a",
        "a b",
        "a valid label must be",
        given={f"{NODE}.matchExpressions[0]": {"key": "k", "operator": "In"}},
    ),
    invalid(
        f"{NODE}.matchFields[0].key",
        "metadata.name",
        "metadata.labels",
        "not a valid field selector key",
        given={f"{NODE}.matchFields[0]": {"operator": "In", "values": ["n"]}},
    ),
    required(
        f"{NODE}.matchFields[0].values",
        ["n"],
        ["n", "m"],
        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        given={f"{NODE}.matchFields[0]": {"key": "metadata.name", "operator": "In"}},
    ),
    invalid(
        f"{NODE}.matchFields[0].operator",
        "NotIn",
        "Gt",
        "not a valid selector operator",
        given={f"{NODE}.matchFields[0]": {"key": "metadata.name", "values": ["n"]}},
    ),
    invalid(
        f"{NODE}.matchFields[0].values[0]",
        "n",
        "N_",
        "RFC 1123 subdomain",
        given={f"{NODE}.matchFields[0]": {"key": "metadata.name", "operator": "In"}},
    ),
    invalid(f"{PREFERRED_NODE}.weight", 1, 0, "must be in the range 1-100"),
    invalid(f"{PREFERRED_NODE}.weight", 100, 101, "must be in the range 1-100"),
    required(f"{ANTI}.topologyKey", "zone", "", "can not be empty"),
    invalid(f"{ANTI}.topologyKey", "zone", "zo ne", "name part must consist of"),
    invalid(
        f"{PREFERRED_POD}.weight",
        100,
        0,
        "must be in the range 1-100",
        given={f"{PREFERRED_POD}.podAffinityTerm": TERM},
    ),
    invalid(f"{ANTI}.namespaces[0]", "team-a", "Team", "RFC 1123 label", given=ANTI_GIVEN),
    invalid(
        f"{ANTI}.namespaceSelector.matchLabels",
        {"a": "b"},
        {"a": "b c"},
        "a valid label must be",
        given=ANTI_GIVEN,
    ),
    required(
        f"{ANTI}.labelSelector.matchExpressions[0].values",
        ["x"],
        [],
        "must be specified when `operator`",
        given={**ANTI_GIVEN, f"{ANTI}.labelSelector.matchExpressions[0]": {"key": "k", "operator": "In"}},
    ),
    forbidden(
        f"{ANTI}.labelSelector.matchExpressions[0].values",
        [],
        ["x"],
        "may not be specified when",
        given={
            **ANTI_GIVEN,
            f"{ANTI}.labelSelector.matchExpressions[0]": {"key": "k", "operator": "DoesNotExist"},
        },
    ),
    invalid(
        f"{ANTI}.labelSelector.matchExpressions[0].operator",
        "Exists",
        "Gt",
        "not a valid selector operator",
        given={**ANTI_GIVEN, f"{ANTI}.labelSelector.matchExpressions[0]": {"key": "k"}},
    ),
    invalid(
        f"{ANTI}.labelSelector.matchExpressions[0].key",
        "k",
        "",
        "name part must consist of",
        given={**ANTI_GIVEN, f"{ANTI}.labelSelector.matchExpressions[0]": {"operator": "Exists"}},
    ),
    invalid(
        f"{ANTI}.labelSelector.matchExpressions[0].values[0]",
        "x",
        "x y",
        "a valid label must be",
        given={**ANTI_GIVEN, f"{ANTI}.labelSelector.matchExpressions[0]": {"key": "k", "operator": "In"}},
    ),
    invalid(
        f"{ANTI}.matchLabelKeys[0]",
        "tier",
        "app",
        "exists in both matchLabelKeys and labelSelector",
        given=ANTI_GIVEN,
    ),
    invalid(f"{ANTI}.matchLabelKeys[0]", "tier", "a b", "name part must consist of", given=ANTI_GIVEN),
    invalid(
        f"{ANTI}.mismatchLabelKeys[0]",
        "tier",
        "rev",
        "exists in both matchLabelKeys and mismatchLabelKeys",
        at=f"{ANTI}.matchLabelKeys[0]",
        given={**ANTI_GIVEN, f"{ANTI}.matchLabelKeys[0]": "rev"},
    ),
    forbidden(
        f"{ANTI}.labelSelector",
        {},
        ABSENT,
        "must not be specified when labelSelector is not set",
        at=f"{ANTI}.mismatchLabelKeys",
        given={ANTI: {"topologyKey": "zone", "mismatchLabelKeys": ["rev"]}},
    ),
    invalid(
        "spec.tolerations[0].operator",
        "Exists",
        "Equal",
        "operator must be Exists when `key` is empty",
        given={"spec.tolerations[0]": {}},
    ),
    invalid(
        "spec.tolerations[0].key",
        "gpu",
        "g p",
        "name part must consist of",
        given={"spec.tolerations[0].operator": "Exists"},
    ),
    invalid(
        "spec.tolerations[0].value",
        "",
        "x",
        "value must be empty when `operator` is 'Exists'",
        at="spec.tolerations[0].operator",
        given={"spec.tolerations[0]": {"key": "k", "operator": "Exists"}},
    ),
    invalid(
        "spec.tolerations[0].value",
        "x",
        "x y",
        "a valid label must be",
        at="spec.tolerations[0].operator",
        given={"spec.tolerations[0]": {"key": "k"}},
    ),
    invalid(
        "spec.tolerations[0].effect",
        "NoExecute",
        "NoSchedule",
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
        given={"spec.tolerations[0]": {"key": "k", "tolerationSeconds": 30}},
    ),
    unsupported(
        "spec.tolerations[0].effect",
        "",
        "Never",
        '"NoExecute", "NoSchedule", "PreferNoSchedule"',
        given={"spec.tolerations[0]": {"key": "k"}},
    ),
    unsupported(
        "spec.tolerations[0].operator",
        "Equal",
        "Gt",
        '"Equal", "Exists"',
        given={"spec.tolerations[0]": {"key": "k"}},
    ),
    invalid(f"{SPREAD}.maxSkew", 1, 0, POSITIVE, given=SPREAD_GIVEN),
    required(f"{SPREAD}.topologyKey", "zone", "", "can not be empty", given=SPREAD_GIVEN),
    unsupported(
        f"{SPREAD}.whenUnsatisfiable",
        "ScheduleAnyway",
        "Maybe",
        '"DoNotSchedule", "ScheduleAnyway"',
        given=SPREAD_GIVEN,
    ),
    Row(
        "spec.topologySpreadConstraints[1].whenUnsatisfiable",
        "ScheduleAnyway",
        "DoNotSchedule",
        f"{SPREAD}.{{topologyKey, whenUnsatisfiable}}",
        "Duplicate",
        "",
        {**SPREAD_GIVEN, "spec.topologySpreadConstraints[1]": {"maxSkew": 2, "topologyKey": "zone"}},
    ),
    invalid(f"{SPREAD}.minDomains", 1, 0, POSITIVE, given=SPREAD_GIVEN),
    invalid(
        f"{SPREAD}.minDomains",
        ABSENT,
        2,
        "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        given=SOFT_GIVEN,
    ),
    unsupported(f"{SPREAD}.nodeAffinityPolicy", "Ignore", "honor", '"Honor", "Ignore"', given=SPREAD_GIVEN),
    unsupported(f"{SPREAD}.nodeTaintsPolicy", "Honor", "", '"Honor", "Ignore"', given=SPREAD_GIVEN),
    invalid(f"{SPREAD}.matchLabelKeys[0]", "rev", "r v", "name part must consist of", given=SPREAD_GIVEN),
    invalid(
        f"{SPREAD}.matchLabelKeys[0]",
        "rev",
        "app",
        "exists in both matchLabelKeys and labelSelector",
        given=SPREAD_GIVEN,
    ),
    invalid(
        f"{SPREAD}.labelSelector.matchExpressions[0]",
        {"key": "other", "operator": "Exists"},
        {"key": "rev", "operator": "Exists"},
        "exists in both matchLabelKeys and labelSelector",
        at=f"{SPREAD}.matchLabelKeys[0]",
        given={**SPREAD_GIVEN, f"{SPREAD}.matchLabelKeys[0]": "rev"},
    ),
    forbidden(
        f"{SPREAD}.labelSelector",
        {},
        ABSENT,
        "must not be specified when labelSelector is not set",
        at=f"{SPREAD}.matchLabelKeys",
        given={**SPREAD_GIVEN, f"{SPREAD}.matchLabelKeys[0]": "rev"},
    ),
    invalid(
        f"{SPREAD}.labelSelector.matchLabels",
        {"a": "b"},
        {"a": "b c"},
        "a valid label must be",
        given=SPREAD_GIVEN,
    ),
    unsupported(
        f"{SPREAD}.fallbackCriteria[0]",
        "PreemptionFailed",
        "Whatever",
        '"NodeProvisioningFailed", "PreemptionFailed"',
        given=SPREAD_GIVEN,
    ),
    duplicate(
        f"{SPREAD}.fallbackCriteria[1]",
        "NodeProvisioningFailed",
        "PreemptionFailed",
        given={**SPREAD_GIVEN, f"{SPREAD}.fallbackCriteria[0]": "PreemptionFailed"},
    ),
    invalid(
        f"{SPREAD}.fallbackCriteria",
        [],
        ["PreemptionFailed"],
        "can only use fallbackCriteria if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        given=SOFT_GIVEN,
    ),
]

REST = [
    invalid(
        "spec.schedulingGates[0].name",
        "a.b/c",
        "a b",
        "name part must consist of",
        at="spec.schedulingGates[0]",
    ),
    duplicate(
        "spec.schedulingGates[1].name",
        "b",
        "a",
        at="spec.schedulingGates[1]",
        given={"spec.schedulingGates[0].name": "a"},
    ),
    forbidden(
        "spec.nodeName",
        "",
        "n1",
        "cannot be set until all schedulingGates have been cleared",
        given={"spec.schedulingGates[0].name": "a"},
    ),
    invalid("spec.nodeName", "n1", "N 1", "RFC 1123 subdomain"),
    invalid("spec.priorityClassName", "high", "High", "RFC 1123 subdomain"),
    unsupported("spec.preemptionPolicy", "Never", "Always", '"Never", "PreemptLowerPriority"'),
    required("spec.preemptionPolicy", "PreemptLowerPriority", ""),
    invalid("spec.activeDeadlineSeconds", 1, 0, "must be between 1 and 2147483647, inclusive"),
    required("spec.schedulingGroup.podGroupName", "train", ""),
    invalid("spec.schedulingGroup.podGroupName", "train", "Train", "RFC 1123 subdomain"),
    forbidden(
        "spec.evictionResponders",
        [],
        [{"name": "x"}],
        "may not be set together with schedulingGroup",
        given={"spec.schedulingGroup.podGroupName": "train"},
    ),
    invalid(
        "spec.workloadRef",
        ABSENT,
        {"name": "w", "podGroup": "g"},
        "may not be set together with schedulingGroup",
        given={"spec.schedulingGroup.podGroupName": "train"},
    ),
    required("spec.workloadRef.name", "w", "", given={"spec.workloadRef.podGroup": "g"}),
    required("spec.workloadRef.podGroup", "g", "", given={"spec.workloadRef.name": "w"}),
    invalid("spec.workloadRef.podGroup", "g", "g.g", "RFC 1123 label", given={"spec.workloadRef.name": "w"}),
    invalid(
        "spec.workloadRef.podGroupReplicaKey",
        "0",
        "r_0",
        "RFC 1123 label",
        given={"spec.workloadRef": {"name": "w", "podGroup": "g"}},
    ),
    required(
        "spec.resourceClaims[0].name", "gpu", "", given={"spec.resourceClaims[0].resourceClaimName": "c"}
    ),
    duplicate(
        "spec.resourceClaims[1].name",
        "b",
        "a",
        given={f"spec.resourceClaims[{i}]": {"name": "a", "resourceClaimName": "c"} for i in (0, 1)},
    ),
    invalid(
        "spec.resourceClaims[0].name",
        "gpu",
        "g.u",
        "RFC 1123 label",
        given={"spec.resourceClaims[0].resourceClaimName": "c"},
    ),
    invalid(
        "spec.resourceClaims[0].resourceClaimName",
        "c",
        ABSENT,
        "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        at="spec.resourceClaims[0]",
        given={"spec.resourceClaims[0].name": "a"},
    ),
    invalid(
        "spec.resourceClaims[0].resourceClaimTemplateName",
        ABSENT,
        "t",
        "at most one of `resourceClaimName` or `resourceClaimTemplateName`",
        at="spec.resourceClaims[0]",
        given={"spec.resourceClaims[0]": {"name": "a", "resourceClaimName": "c"}},
    ),
    invalid(
        "spec.resourceClaims[0].resourceClaimName",
        "c",
        "C",
        "RFC 1123 subdomain",
        given={"spec.resourceClaims[0].name": "a"},
    ),
    required("spec.volumes[0].name", "v", ""),
    duplicate("spec.volumes[1].name", "b", "a", given={"spec.volumes": [{"name": "a"}, {"name": "a"}]}),
    invalid("spec.volumes[0].name", "v", "v.v", "RFC 1123 label"),
    invalid(
        "spec.volumes[0].csi",
        {"a": 1},
        {"a": 1 << 64},
        "must fit in 64 bits",
        at="spec.volumes[0]",
        given={"spec.volumes[0].name": "v"},
    ),
    invalid(
        "spec.volumes[0].csi",
        {"a": 1.5},
        {"a": float("nan")},
        "must be a finite number",
        at="spec.volumes[0]",
        given={"spec.volumes[0].name": "v"},
    ),
    unsupported(
        "status.phase", "Running", "Sleeping", '"Failed", "Pending", "Running", "Succeeded", "Unknown"'
    ),
    invalid("status.nominatedNodeName", "n1", "N1", "RFC 1123 subdomain"),
    invalid("status.startTime", "2024-01-01T00:00:00Z", "now", "RFC 3339"),
    invalid(
        "status.conditions[0].type",
        "a.b/C",
        "a b",
        "name part must consist of",
        given={"status.conditions[0].status": "True"},
    ),
    duplicate(
        "status.conditions[1].type",
        "B",
        "A",
        given={"status.conditions": [{"type": "A", "status": "True"}, {"type": "A", "status": "True"}]},
    ),
    unsupported(
        "status.conditions[0].status",
        "Unknown",
        "true",
        '"False", "True", "Unknown"',
        given={"status.conditions[0].type": "A"},
    ),
    invalid(
        "status.conditions[0].observedGeneration",
        1,
        -1,
        NOT_NEGATIVE,
        given={"status.conditions[0]": {"type": "A", "status": "True"}},
    ),
    invalid(
        "status.conditions[0].lastTransitionTime",
        "2024-01-01T00:00:00Z",
        "x",
        "RFC 3339",
        given={"status.conditions[0]": {"type": "A", "status": "True"}},
    ),
    invalid(
        "status.containerStatuses[0].allocatedResources.cpu",
        "1",
        "x",
        "quantities must match",
        at="status.containerStatuses[0].allocatedResources[cpu]",
    ),
    invalid(
        "status.containerStatuses[0].resources.requests.cpu",
        "1",
        "-1",
        NOT_NEGATIVE,
        at="status.containerStatuses[0].resources.requests[cpu]",
    ),
    invalid(
        "status.resourceClaimStatuses[0].name",
        "a",
        "b",
        "must match the name of an entry in `spec.resourceClaims`",
        given={"spec.resourceClaims[0]": {"name": "a", "resourceClaimName": "c"}},
    ),
]
ROWS = [*METADATA, *CONTAINERS, *PLACEMENT, *REST]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value_that_keeps_the_rule_is_valid(row: Row) -> None:
    pod = made("Pod", {**row.given, row.field: row.good})

    assert validate(pod, ON) == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value_that_breaks_the_rule_is_told_with_path_kind_and_text(row: Row) -> None:
    pod = made("Pod", {**row.given, row.field: row.bad})

    errors = validate(pod, ON)

    assert {(error.path, error.kind) for error in errors} == {(row.path, row.kind)}
    assert any(row.text in error.rule for error in errors), [error.rule for error in errors]


def test_fallback_criteria_are_refused_while_their_gate_is_off() -> None:
    pod = made("Pod", {**SPREAD_GIVEN, f"{SPREAD}.fallbackCriteria": ["PreemptionFailed"]})

    errors = validate(pod, FeatureGates())

    assert [str(error) for error in errors] == [
        (
            f"{SPREAD}.fallbackCriteria: Forbidden: "
            "may not be set while the feature gate PodTopologySpreadFallbackMode is off"
        )
    ]


def test_all_errors_of_a_pod_are_told_at_once() -> None:
    pod = made(
        "Pod",
        {
            "metadata.labels": {"a b": "c d"},
            f"{REQUESTS}.cpu": "x",
            "spec.tolerations[0].effect": "Never",
            f"{SPREAD}.maxSkew": 0,
        },
    )

    errors = validate(pod, ON)

    assert [(error.path, error.kind) for error in errors] == [
        ("metadata.labels", "Invalid"),
        ("metadata.labels", "Invalid"),
        (f"{REQUESTS}[cpu]", "Invalid"),
        ("spec.tolerations[0].operator", "Invalid"),
        ("spec.tolerations[0].effect", "NotSupported"),
        (f"{SPREAD}.maxSkew", "Invalid"),
        (f"{SPREAD}.topologyKey", "Required"),
        (f"{SPREAD}.whenUnsatisfiable", "NotSupported"),
    ]


def test_error_reads_as_the_api_server_words_it() -> None:
    pod = made("Pod", {**SOFT_GIVEN, f"{SPREAD}.minDomains": 2, "spec.restartPolicy": "Maybe"})

    errors = validate(pod, ON)

    assert [str(error) for error in errors] == [
        (
            f"{SPREAD}.minDomains: Invalid value: 2: "
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
        ),
        'spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "Never", "OnFailure"',
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {f"{REQUESTS}.cpu": "1", f"{LIMITS}.cpu": "x"},
            [f"{LIMITS}[cpu]"],
        ),
        (
            {f"{LIMITS}.cpu": "x", "spec.resources.limits.cpu": "1"},
            [f"{LIMITS}[cpu]"],
        ),
        (
            {f"{REQUESTS}.cpu": "x", "spec.resources.requests.cpu": "1"},
            [f"{REQUESTS}[cpu]"],
        ),
        ({f"{LIMITS}[hugepages-x]": "2Mi", f"{LIMITS}.cpu": "1"}, [f"{LIMITS}[hugepages-x]"]),
        ({f"{LIMITS}[a b/c]": "1"}, [f"{LIMITS}[a b/c]"]),
        ({f"{REQUESTS}[kubernetes.io/batteries]": "1"}, []),
        (
            {f"{MAIN}.resources.claims[0]": {"name": "a", "request": "b c"}},
            [f"{MAIN}.resources.claims[0].request", f"{MAIN}.resources.claims[0]"],
        ),
    ],
)
def test_error_is_told_where_it_stands_and_nowhere_else(
    settings: dict[str, Any], expected: list[str]
) -> None:
    errors = validate(made("Pod", settings), ON)

    assert list(dict.fromkeys(error.path for error in errors)) == expected


def test_deep_data_in_a_volume_is_refused() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    pod = made("Pod", {"spec.volumes[0]": {"name": "v", "csi": deep}})

    errors = validate(pod, ON)

    assert [(error.path, error.rule) for error in errors] == [
        ("spec.volumes[0]", "must not be nested deeper than 32 levels")
    ]
