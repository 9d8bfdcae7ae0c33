"""Feature gates by text, by configuration, and what is said of them."""

from __future__ import annotations

import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.features import GATE_NAMES, GATES, FeatureGates, feature_gates, parse_feature_gates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", FeatureGates()),
        ("SchedulerQueueingHints=false", FeatureGates(scheduler_queueing_hints=False)),
        (
            " DisruptionPolicyInPriorityClass = TRUE , MinDomainsInPodTopologySpread=False,",
            FeatureGates(disruption_policy_in_priority_class=True, min_domains_in_pod_topology_spread=False),
        ),
    ],
)
def test_text_is_read_as_kubernetes_reads_it(text: str, expected: FeatureGates) -> None:
    assert parse_feature_gates(text) == expected


def test_all_errors_of_the_text_are_told() -> None:
    with pytest.raises(InvalidObjects) as caught:
        parse_feature_gates("Gang=true,SchedulerQueueingHints=maybe,MinDomainsInPodTopologySpread")

    assert [(error.path, error.kind, error.value) for error in caught.value.errors] == [
        ("featureGates", "NotSupported", "Gang"),
        ("featureGates.SchedulerQueueingHints", "Invalid", "maybe"),
        ("featureGates.MinDomainsInPodTopologySpread", "Invalid", ""),
    ]
    assert str(caught.value).startswith('--feature-gates is invalid: featureGates: Unsupported value: "Gang"')


def test_configuration_needs_booleans() -> None:
    assert feature_gates({"TopologyAwareWorkloadScheduling": True}).topology_aware_workload_scheduling
    with pytest.raises(InvalidObjects, match="must be true or false"):
        feature_gates({"TopologyAwareWorkloadScheduling": "true"})


def test_defaults_are_the_proposals() -> None:
    assert {gate.name: gate.default for gate in GATES} == {
        "PodTopologySpreadFallbackMode": False,
        "MinDomainsInPodTopologySpread": True,
        "SchedulerQueueingHints": True,
        "TopologyAwareWorkloadScheduling": False,
        "WorkloadBasicPolicyDesiredCount": False,
        "DisruptionPolicyInPriorityClass": False,
    }


def test_every_gate_is_explained() -> None:
    assert tuple(gate.name for gate in GATES) == GATE_NAMES
    assert all(gate.proposal and gate.on and gate.off for gate in GATES)
