"""What of an object may change once it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import ABSENT, made
from tidelog.api.features import FeatureGates
from tidelog.api.validation.rules import validate_update

OFF = FeatureGates()
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
MAIN = "spec.containers[0]"
EXISTS_A = {"key": "a", "operator": "Exists"}
EXISTS_B = {"key": "b", "operator": "Exists"}
GATED = {"spec.schedulingGates": [{"name": "a"}, {"name": "b"}]}
CHANGE = "pod updates may not change fields other than"

Settings = dict[str, Any]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("Pod", {f"{MAIN}.image": "a:1"}, {f"{MAIN}.image": "a:2"}),
        ("Pod", {}, {"metadata.labels": {"app": "other"}}),
        ("Pod", {}, {"status.phase": "Running"}),
        ("Pod", {}, {"spec.activeDeadlineSeconds": 30}),
        ("Pod", {"spec.activeDeadlineSeconds": 30}, {"spec.activeDeadlineSeconds": 20}),
        ("Pod", {}, {"spec.tolerations[0].operator": "Exists"}),
        (
            "Pod",
            {"spec.tolerations[0]": {"key": "k", "effect": "NoExecute"}},
            {"spec.tolerations[0]": {"key": "k", "effect": "NoExecute", "tolerationSeconds": 5}},
        ),
        ("Pod", {"spec.terminationGracePeriodSeconds": -5}, {"spec.terminationGracePeriodSeconds": 1}),
        ("Pod", {}, {"spec.nodeName": "n1"}),
        ("Pod", GATED, {"spec.schedulingGates": [{"name": "b"}]}),
        ("Pod", GATED, {}),
        ("Pod", GATED, {**GATED, "spec.nodeSelector": {"disk": "ssd"}}),
        ("Pod", GATED, {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A]}),
        (
            "Pod",
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A]},
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A, EXISTS_B]},
        ),
        ("PriorityClass", {}, {"allowDisruptionByPriorityGreaterThanOrEqual": 5000}),
        ("PriorityClass", {}, {"globalDefault": True}),
        ("Node", {}, {"spec.unschedulable": True, "status.allocatable.cpu": "1"}),
        ("PodDisruptionBudget", {}, {"spec.minAvailable": 2}),
        ("PodGroup", {}, {"spec.schedulingPolicy.gang.minCount": 5}),
        (
            "PodGroup",
            {"spec.schedulingPolicy": {"basic": {"desiredCount": 2}}},
            {"spec.schedulingPolicy": {"basic": {"desiredCount": 3}}},
        ),
        ("Workload", {}, {"spec.podGroups[0].policy.gang.minCount": 5}),
        (
            "PodGroup",
            {"spec.schedulingConstraints.topology[0].key": "rack"},
            {"spec.schedulingConstraints.topology[0].key": "rack", "metadata.labels": {"a": "b"}},
        ),
        ("ResourceSlice", {}, {"spec.devices[1].name": "gpu-1"}),
        ("Service", {}, {"spec.selector": {"app": "other"}}),
    ],
)
def test_change_is_allowed(kind: str, old: Settings, new: Settings) -> None:
    errors = validate_update(made(kind, old), made(kind, new), OFF)

    assert errors == []


@pytest.mark.parametrize(
    ("kind", "old", "new", "path", "error_kind", "text"),
    [
        (
            "Pod",
            {"metadata.uid": "a"},
            {"metadata.uid": "b"},
            "metadata.uid",
            "Invalid",
            "field is immutable",
        ),
        (
            "Pod",
            {},
            {f"{MAIN}.resources.requests.cpu": "1"},
            "spec",
            "Forbidden",
            "(changed: spec.containers)",
        ),
        ("Pod", {}, {"spec.nodeSelector.disk": "ssd"}, "spec", "Forbidden", "(changed: spec.nodeSelector)"),
        ("Pod", {"spec.nodeName": "n1"}, {"spec.nodeName": "n2"}, "spec", "Forbidden", CHANGE),
        ("Pod", {"spec.priority": 1}, {"spec.priority": 2}, "spec", "Forbidden", "(changed: spec.priority)"),
        ("Pod", {}, {"spec.schedulingGroup.podGroupName": "g"}, "spec", "Forbidden", "spec.schedulingGroup"),
        ("Pod", {}, {"spec.terminationGracePeriodSeconds": 1}, "spec", "Forbidden", CHANGE),
        (
            "Pod",
            {"spec.allowDisruptionByPriorityGreaterThanOrEqual": 5},
            {"spec.allowDisruptionByPriorityGreaterThanOrEqual": 6},
            "spec",
            "Forbidden",
            CHANGE,
        ),
        (
            "Pod",
            {},
            {"spec.containers[1].name": "b"},
            "spec.containers",
            "Forbidden",
            "pod updates may not add or remove containers",
        ),
        (
            "Pod",
            {"spec.activeDeadlineSeconds": 30},
            {"spec.activeDeadlineSeconds": 40},
            "spec.activeDeadlineSeconds",
            "Invalid",
            "must be less than or equal to previous value",
        ),
        (
            "Pod",
            {"spec.activeDeadlineSeconds": 30},
            {},
            "spec.activeDeadlineSeconds",
            "Invalid",
            "must not update from a positive integer to nil value",
        ),
        (
            "Pod",
            {"spec.tolerations[0].operator": "Exists"},
            {},
            "spec.tolerations",
            "Forbidden",
            "existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            "Pod",
            GATED,
            {"spec.schedulingGates": [{"name": "c"}]},
            "spec.schedulingGates[0].name",
            "Forbidden",
            "only deletion is allowed, but found new scheduling gate 'c'",
        ),
        (
            "Pod",
            {**GATED, "spec.nodeSelector": {"disk": "ssd"}},
            {**GATED, "spec.nodeSelector": {"disk": "hdd"}},
            "spec.nodeSelector",
            "Invalid",
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ),
        (
            "Pod",
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A]},
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_B]},
            f"{TERMS}[0]",
            "Invalid",
            "only additions are allowed (no mutations or deletions)",
        ),
        (
            "Pod",
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A]},
            GATED,
            TERMS,
            "Invalid",
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ),
        (
            "Pod",
            {**GATED, f"{TERMS}": [{}]},
            {**GATED, f"{TERMS}[0].matchExpressions": [EXISTS_A]},
            f"{TERMS}[0]",
            "Invalid",
            "only additions are allowed (no mutations or deletions)",
        ),
        (
            "Pod",
            GATED,
            {**GATED, "spec.nodeName": "n1"},
            "spec.nodeName",
            "Forbidden",
            "until all schedulingGates",
        ),
        ("PriorityClass", {}, {"value": 2}, "value", "Forbidden", "may not be changed in an update."),
        (
            "PriorityClass",
            {},
            {"preemptionPolicy": "Never"},
            "preemptionPolicy",
            "Invalid",
            "field is immutable",
        ),
        (
            "PodGroup",
            {},
            {"spec.schedulingPolicy": {"basic": {}}},
            "spec.schedulingPolicy",
            "Invalid",
            "field is immutable",
        ),
        ("PodGroup", {}, {"spec.priority": 5}, "spec.priority", "Invalid", "field is immutable"),
        ("Workload", {}, {"spec.podGroups[0].name": "b"}, "spec.podGroups", "Invalid", "field is immutable"),
        (
            "Workload",
            {},
            {"spec.podGroups[1]": {"name": "b", "policy": {"basic": {}}}},
            "spec.podGroups",
            "Invalid",
            "field is immutable",
        ),
        (
            "ReplicaSet",
            {},
            {"spec.selector.matchLabels": {"a": "b"}},
            "spec.selector",
            "Invalid",
            "field is immutable",
        ),
        ("ResourceSlice", {}, {"spec.driver": "a.b"}, "spec.driver", "Invalid", "field is immutable"),
        ("ResourceSlice", {}, {"spec.nodeName": "n2"}, "spec.nodeName", "Invalid", "field is immutable"),
        (
            "ResourceClaim",
            {},
            {"spec.devices.requests[0].exactly.count": 2},
            "spec",
            "Invalid",
            "field is immutable",
        ),
        (
            "ResourceClaimTemplate",
            {},
            {"spec.spec.devices.requests[0].exactly.count": 2},
            "spec",
            "Invalid",
            "field is immutable",
        ),
    ],
)
def test_change_is_refused(
    kind: str, old: Settings, new: Settings, path: str, error_kind: str, text: str
) -> None:
    errors = validate_update(made(kind, old), made(kind, new), OFF)

    assert [(error.path, error.kind) for error in errors] == [(path, error_kind)]
    assert text in errors[0].rule


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        ({"requests": {"cpu": "2", "memory": "1Gi"}}, True),
        ({"requests": {"cpu": "1"}}, False),
        ({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}}, False),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}, False),
    ],
)
def test_resize_changes_cpu_and_memory_only(new: Settings, allowed: bool) -> None:
    old = made("Pod", {f"{MAIN}.resources": {"requests": {"cpu": "1", "memory": "1Gi"}}})

    errors = validate_update(old, made("Pod", {f"{MAIN}.resources": new}), OFF, resize=True)

    assert (errors == []) == allowed


def test_stored_fallback_criteria_stay_valid_when_their_gate_goes_off() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "fallbackCriteria": ["PreemptionFailed"],
    }
    old = made("Pod", {"spec.topologySpreadConstraints[0]": constraint})
    new = made("Pod", {"spec.topologySpreadConstraints[0]": constraint, "metadata.labels": ABSENT})

    assert validate_update(old, new, OFF) == []
