"""Annotations that stand for fields an API server would drop: what they become, when, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import (
    GangPolicy,
    GroupPolicy,
    GroupSchedulingConstraints,
    Node,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PriorityClass,
    TopologyConstraint,
)
from tidelog.api.overrides import (
    DESIRED_COUNT,
    PREFERRED_TOPOLOGY,
    SPREAD_FALLBACK,
    THRESHOLD,
    TOPOLOGY_LEVELS,
    fold,
)
from tidelog.testing.builders import pod

ON = FeatureGates(
    pod_topology_spread_fallback_mode=True,
    topology_aware_workload_scheduling=True,
    workload_basic_policy_desired_count=True,
    disruption_policy_in_priority_class=True,
)
ZONE = "topology.kubernetes.io/zone"
NOTHING = ObjectTable()


def spread_pod(value: str) -> Pod:
    return pod("web").spread(ZONE).annotate({SPREAD_FALLBACK: value}).build()


def criteria(found: Pod) -> list[tuple[str, ...]]:
    return [one.fallback_criteria for one in found.spec.topology_spread_constraints]


def test_criteria_of_a_spread_constraint_are_taken() -> None:
    found, said = fold(
        spread_pod(f'{{"{ZONE}":["NodeProvisioningFailed","PreemptionFailed"]}}'), None, NOTHING, ON
    )

    assert (criteria(found), said) == ([("NodeProvisioningFailed", "PreemptionFailed")], ())


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        (f'{{"{ZONE}":"NodeProvisioningFailed"}}', "must be a JSON object"),
        (f'{{"{ZONE}":[]}}', "must have at least one criterion"),
        ('{"rack":["NodeProvisioningFailed"]}', "no constraint of the pod"),
        (f'{{"{ZONE}":["Weather"]}}', "supported values"),
        (f'{{"{ZONE}":["PreemptionFailed","PreemptionFailed"]}}', "Duplicate"),
        ("{" * 2000, "must be a JSON object"),
        (" " * 5000, "must be at most 4096 bytes"),
    ],
)
def test_wrong_criteria_are_left_out_and_told(value: str, rule: str) -> None:
    given = spread_pod(value)
    found, said = fold(given, None, NOTHING, ON)

    assert found == given
    assert len(said) == 1
    assert said[0].startswith(SPREAD_FALLBACK)
    assert rule in said[0]


def test_a_gate_that_is_off_leaves_them_out() -> None:
    found, said = fold(spread_pod(f'{{"{ZONE}":["PreemptionFailed"]}}'), None, NOTHING, FeatureGates())

    assert criteria(found) == [()]
    assert "PodTopologySpreadFallbackMode is off" in said[0]


def test_the_first_value_counts_for_as_long_as_the_pod_lives() -> None:
    first, _ = fold(spread_pod(f'{{"{ZONE}":["PreemptionFailed"]}}'), None, NOTHING, ON)

    again, said_again = fold(spread_pod(f'{{"{ZONE}":["PreemptionFailed"]}}'), first, NOTHING, ON)
    later, said_later = fold(spread_pod(f'{{"{ZONE}":["NodeProvisioningFailed"]}}'), first, NOTHING, ON)
    gone, said_gone = fold(pod("web").spread(ZONE).build(), first, NOTHING, ON)

    assert criteria(again) == criteria(later) == criteria(gone) == [("PreemptionFailed",)]
    assert said_again == ()
    assert "changed after" in said_later[0]
    assert "changed after" in said_gone[0]


def a_class(value: str) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name="high", annotations={THRESHOLD: value}), value=1000)


def test_a_class_gives_its_threshold_to_pods_that_are_seen_after_it() -> None:
    high, said = fold(a_class("2000"), None, NOTHING, ON)
    table = ObjectTable([high])
    web = replace(pod("web").build(), spec=replace(pod("web").build().spec, priority_class_name="high"))

    found, _ = fold(web, None, table, ON)
    table.put(fold(a_class("3000"), high, NOTHING, ON)[0])
    again, _ = fold(web, found, table, ON)
    other, _ = fold(web, None, table, ON)
    without, _ = fold(web, None, table, FeatureGates())

    assert said == ()
    thresholds = [
        p.spec.allow_disruption_by_priority_greater_than_or_equal for p in (found, again, other, without)
    ]
    assert thresholds == [2000, 2000, 3000, None]


@pytest.mark.parametrize("value", ["", "1.5", "0x1", "high", "2000000001", "99999999999", "١"])
def test_a_wrong_threshold_is_left_out_and_told(value: str) -> None:
    found, said = fold(a_class(value), None, NOTHING, ON)

    assert found.allow_disruption_by_priority_greater_than_or_equal is None
    assert len(said) == 1


def test_a_pod_cannot_protect_itself() -> None:
    table = ObjectTable([fold(a_class("2000"), None, NOTHING, ON)[0]])
    plain = pod("web").annotate({THRESHOLD: "2000000000"}).build()
    same = pod("web").annotate({THRESHOLD: "2000"}).build()
    same = replace(same, spec=replace(same.spec, priority_class_name="high"))

    found, said = fold(plain, None, table, ON)
    agreed, nothing = fold(same, None, table, ON)

    assert found.spec.allow_disruption_by_priority_greater_than_or_equal is None
    assert "is ignored" in said[0]
    assert agreed.spec.allow_disruption_by_priority_greater_than_or_equal == 2000
    assert nothing == ()


def group(levels: tuple[str, ...] = ("rack",), **annotations: str) -> PodGroup:
    constraints = GroupSchedulingConstraints(topology=tuple(TopologyConstraint(key=key) for key in levels))
    return PodGroup(
        metadata=ObjectMeta(name="g", namespace="default", annotations=annotations),
        spec=PodGroupSpec(
            scheduling_policy=GroupPolicy(gang=GangPolicy(min_count=3)), scheduling_constraints=constraints
        ),
    )


def test_a_group_gets_its_count_and_its_levels() -> None:
    table = ObjectTable()
    table.constraints_max = 3
    wanted = {DESIRED_COUNT: "5", PREFERRED_TOPOLOGY: "true", TOPOLOGY_LEVELS: '["block","rack"]'}

    found, said = fold(group(**wanted), None, table, ON)

    assert said == ()
    assert found.spec.scheduling_policy == GroupPolicy(gang=GangPolicy(min_count=3, desired_count=5))
    assert found.spec.scheduling_constraints == GroupSchedulingConstraints(
        topology=(TopologyConstraint(key="block"), TopologyConstraint(key="rack", preferred=True))
    )
    assert fold(group(**wanted), found, table, ON) == (found, ())
    assert fold(group(), found, table, ON)[0].spec == found.spec


@pytest.mark.parametrize(
    ("levels", "annotations", "rule"),
    [
        (("rack",), {DESIRED_COUNT: "2"}, "minCount"),
        (("rack",), {DESIRED_COUNT: "many"}, "decimal number"),
        (("rack",), {PREFERRED_TOPOLOGY: "yes"}, "true"),
        ((), {PREFERRED_TOPOLOGY: "true"}, "one topology constraint"),
        (("rack",), {TOPOLOGY_LEVELS: '["rack","block"]'}, "the last level must be the group's own"),
        (("rack",), {TOPOLOGY_LEVELS: "[]"}, "1 to 3 levels"),
        (("rack",), {TOPOLOGY_LEVELS: '["a","b","c","rack"]'}, "1 to 3 levels"),
        (("rack",), {TOPOLOGY_LEVELS: '["a b","rack"]'}, "topology"),
    ],
)
def test_wrong_values_of_a_group_are_left_out_and_told(
    levels: tuple[str, ...], annotations: dict[str, Any], rule: str
) -> None:
    table = ObjectTable()
    table.constraints_max = 3
    given = group(levels, **annotations)

    found, said = fold(given, None, table, ON)

    assert found == given
    assert len(said) == 1
    assert rule in said[0]


def test_objects_that_break_other_rules_are_folded_all_the_same() -> None:
    """A cluster may hold what we would refuse: only what the annotation adds is judged."""
    odd = replace(
        spread_pod(f'{{"{ZONE}":["PreemptionFailed"]}}'),
        metadata=ObjectMeta(
            name="Not A Name",
            namespace="default",
            annotations={SPREAD_FALLBACK: f'{{"{ZONE}":["PreemptionFailed"]}}'},
        ),
    )

    assert criteria(fold(odd, None, NOTHING, ON)[0]) == [("PreemptionFailed",)]


def test_other_kinds_have_no_overrides() -> None:
    found = Node(metadata=ObjectMeta(name="n", annotations={THRESHOLD: "5"}))

    assert fold(found, None, NOTHING, ON) == (found, ())
