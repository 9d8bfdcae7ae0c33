"""What becomes of an object on its way into the log."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.api.conftest import made
from tidelog.api.admission import admit, admit_delete
from tidelog.api.cluster import Stamp, uid_of
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Workload,
)
from tidelog.testing import builders as build

OFF = FeatureGates()
GUARDED = FeatureGates(disruption_policy_in_priority_class=True)
STAMP = Stamp(seq=7, at=1_700_000_000_000_000_000)
LATER = Stamp(seq=9, at=1_700_000_060_000_000_000)


def admitted(
    obj: Any, *others: Object, old: Any = None, gates: FeatureGates = OFF, stamp: Stamp = STAMP
) -> Any:
    return admit(obj, old, ObjectTable(others), gates, stamp)[0]


def told(obj: Any, *others: Object, old: Any = None, gates: FeatureGates = OFF) -> tuple[str, ...]:
    return admit(obj, old, ObjectTable(others), gates, STAMP)[1]


def refusal(
    obj: Any, *others: Object, old: Any = None, gates: FeatureGates = OFF
) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidObjects) as caught:
        admit(obj, old, ObjectTable(others), gates, STAMP)
    return [(error.path, error.kind, error.rule) for error in caught.value.errors]


# --- identity -----------------------------------------------------------------------------------------------------------


def test_new_object_gets_uid_time_generation_and_version_from_its_place_in_the_log() -> None:
    pod = admitted(build.pod("a").build())

    assert pod.metadata.uid == uid_of("Pod/default/a", STAMP)
    assert pod.metadata.creation_timestamp == "2023-11-14T22:13:20Z"
    assert pod.metadata.generation == 1
    assert pod.metadata.resource_version == "7"


def test_uid_is_a_uuid_that_differs_by_name_and_by_place() -> None:
    uids = {
        uid_of("Pod/default/a", STAMP),
        uid_of("Pod/default/b", STAMP),
        uid_of("Pod/default/a", LATER),
        uid_of("Pod/default/a", Stamp(seq=8, at=STAMP.at)),
    }

    assert len(uids) == 4
    assert uid_of("Pod/default/a", STAMP) == "89ab7cdc-6670-8113-9050-7cf9103fd484"


def test_recording_keeps_its_identity() -> None:
    pod = build.pod("a").uid("abc").created("2020-01-01T00:00:00Z").build()

    stored = admitted(pod)

    assert (stored.metadata.uid, stored.metadata.creation_timestamp) == ("abc", "2020-01-01T00:00:00Z")


def test_generated_name_is_the_same_for_the_same_place_only() -> None:
    pod = replace(
        build.pod("").build(), metadata=replace(build.pod("").build().metadata, generate_name="web-")
    )

    first, again, other = admitted(pod), admitted(pod), admitted(pod, stamp=LATER)

    assert first.metadata.name == again.metadata.name
    assert first.metadata.name != other.metadata.name
    assert first.metadata.name.startswith("web-")
    assert len(first.metadata.name) == len("web-") + 5


def test_putting_the_same_manifest_again_changes_nothing() -> None:
    manifest = (
        build.pod("a")
        .label(app="web", rev="1")
        .limit(cpu="0.5")
        .port(80)
        .gate("wait")
        .spread("zone", "app=web", match_label_keys=("rev",))
        .pod_anti_affinity("zone", "app=web", mismatch_label_keys=("rev",))
        .build()
    )
    stored = admitted(manifest)

    again, warnings = admit(manifest, stored, ObjectTable(), OFF, LATER)

    assert again is stored
    assert warnings == ()


def test_update_counts_changes_of_the_spec_only() -> None:
    node = build.node("n1")
    stored = admitted(node.build())

    labelled = admitted(node.label(a="b").build(), old=stored, stamp=LATER)
    cordoned = admitted(node.cordon().build(), old=labelled, stamp=LATER)

    assert labelled.metadata.generation == 1
    assert labelled.metadata.resource_version == "9"
    assert cordoned.metadata.generation == 2
    assert cordoned.metadata.uid == stored.metadata.uid
    assert cordoned.metadata.creation_timestamp == stored.metadata.creation_timestamp


def test_manifest_without_status_leaves_the_stored_status() -> None:
    manifest = build.pod("a")
    stored = admitted(manifest.condition("NodeProvisioningInProgress", "False").build())

    changed = admitted(manifest.label(a="b").build(), old=stored)

    assert changed.status == stored.status


def test_manifest_of_a_bound_pod_need_not_say_where_it_is() -> None:
    stored = admitted(build.pod("a").on("n1").build())

    changed = admitted(build.pod("a").label(a="b").build(), old=stored)

    assert changed.spec.node_name == "n1"


def test_binding_by_somebody_else_is_taken() -> None:
    stored = admitted(build.pod("a").build())

    changed = admitted(build.pod("a").on("n1").build(), old=stored)

    assert changed.spec.node_name == "n1"


def test_refused_object_is_named_with_all_its_errors() -> None:
    pod = build.pod("a").priority_class("none").label({"a b": "c"}).build()

    with pytest.raises(InvalidObjects) as caught:
        admit(pod, None, ObjectTable(), OFF, STAMP)

    assert caught.value.subject == 'Pod "a"'
    assert [error.path for error in caught.value.errors] == ["spec.priorityClassName", "metadata.labels"]


# --- defaults -----------------------------------------------------------------------------------------------------------


def test_pod_gets_the_defaults_that_scheduling_reads() -> None:
    pod = admitted(build.pod("a").limit(cpu="0.5", memory="1024Mi").request(memory="512Mi").port(80).build())

    main = pod.spec.containers[0]
    assert pod.spec.scheduler_name == "default-scheduler"
    assert pod.status.phase == "Pending"
    assert main.resources.requests == {"memory": "512Mi", "cpu": "500m"}
    assert main.resources.limits == {"cpu": "500m", "memory": "1Gi"}
    assert main.ports[0].protocol == "TCP"


def test_host_network_takes_every_container_port() -> None:
    pod = made("Pod", {"spec.hostNetwork": True, "spec.containers[0].ports[0].containerPort": 80})

    stored = admitted(pod)

    assert stored.spec.containers[0].ports[0].host_port == 80


@pytest.mark.parametrize(
    ("limits", "requests", "containers", "expected"),
    [
        ({"cpu": "2"}, {}, {}, {"cpu": "2"}),
        ({"cpu": "2"}, {}, {"cpu": "500m"}, {"cpu": "500m"}),
        ({"cpu": "2"}, {"cpu": "1"}, {"cpu": "500m"}, {"cpu": "1"}),
        ({}, {"cpu": "1"}, {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1"}),
        ({"cpu": "2"}, {}, {"memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
    ],
)
def test_pod_level_request_defaults_to_the_containers_or_the_limit(
    limits: dict[str, str], requests: dict[str, str], containers: dict[str, str], expected: dict[str, str]
) -> None:
    pod = build.pod("a").request(dict(containers)).pod_level(dict(requests), dict(limits)).build()

    stored = admitted(pod)

    assert stored.spec.resources.requests == expected


def test_gated_pod_says_so_in_its_condition() -> None:
    pod = admitted(build.pod("a").gate("wait").build())

    (condition,) = pod.status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
        "Scheduling is blocked due to non-empty scheduling gates",
    )
    assert condition.last_transition_time == "2023-11-14T22:13:20Z"


def test_node_offers_what_it_has_unless_it_says_less() -> None:
    node = admitted(made("Node", {"status.capacity": {"cpu": "4000m", "memory": 1024}}))

    assert node.status.capacity == {"cpu": "4", "memory": "1024"}
    assert node.status.allocatable == {"cpu": "4", "memory": "1024"}


def test_namespace_is_labelled_with_its_name() -> None:
    namespace: Namespace = admitted(
        Namespace(metadata=replace(build.namespace("x").metadata, labels={"a": "b"}))
    )

    assert namespace.metadata.labels == {"a": "b", "kubernetes.io/metadata.name": "x"}


def test_namespace_that_has_the_label_is_left_alone() -> None:
    namespace = build.namespace("x", {"a": "b"})

    assert admitted(namespace).metadata.labels == namespace.metadata.labels


def test_quantities_that_do_not_parse_are_left_to_validation() -> None:
    pod = build.pod("a").limit(cpu="x").pod_level(limits={"cpu": "y"}).build()

    assert [path for path, _, _ in refusal(pod)] == [
        "spec.containers[0].resources.limits[cpu]",
        "spec.containers[0].resources.requests[cpu]",
        "spec.resources.limits[cpu]",
        "spec.resources.requests[cpu]",
    ]


def test_budget_status_written_by_hand_is_about_the_budget_as_it_is() -> None:
    budget: PodDisruptionBudget = admitted(build.pdb("web", "app=web", allowed=1))

    assert budget.status.observed_generation == budget.metadata.generation


def requirement(key: str, operator: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=(value,))


def test_label_keys_are_folded_into_selectors_at_creation() -> None:
    pod: Pod = admitted(
        build.pod("a")
        .label(app="web", rev="1")
        .spread("zone", "app=web", match_label_keys=("rev", "absent"))
        .pod_affinity("zone", "app=web", match_label_keys=("rev",))
        .prefer_pod_anti_affinity(1, "zone", "app=web", mismatch_label_keys=("rev",))
        .pod_anti_affinity("zone", None)
        .build()
    )

    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.pod_affinity is not None
    assert affinity.pod_anti_affinity is not None
    folded = LabelSelector(match_labels={"app": "web"}, match_expressions=(requirement("rev", "In", "1"),))
    assert pod.spec.topology_spread_constraints[0].label_selector == folded
    assert affinity.pod_affinity.required[0].label_selector == folded
    assert affinity.pod_anti_affinity.preferred[0].pod_affinity_term.label_selector == LabelSelector(
        match_labels={"app": "web"}, match_expressions=(requirement("rev", "NotIn", "1"),)
    )
    assert affinity.pod_anti_affinity.required[0].label_selector is None


def test_folded_selectors_of_a_recording_stay_as_they_are() -> None:
    manifest = build.pod("a").label(rev="1").spread("zone", "app=web", match_label_keys=("rev",))
    stored = admitted(manifest.build())

    again = admitted(replace(stored, metadata=replace(stored.metadata, uid="abc")))

    assert again.spec == stored.spec


def test_update_folds_the_values_of_the_creation() -> None:
    manifest = build.pod("a").label(rev="1").spread("zone", "app=web", match_label_keys=("rev",))
    stored = admitted(manifest.build())

    relabelled = admitted(manifest.label(rev="2").build(), old=stored)

    assert relabelled.spec == stored.spec
    assert relabelled.metadata.labels == {"rev": "2"}


# --- gates --------------------------------------------------------------------------------------------------------------


def test_min_domains_are_dropped_while_their_gate_is_off() -> None:
    """KEP-3022: "the newly created Pod's minDomains field is silently dropped"."""
    pod = build.pod("a").spread("zone", "a=b", min_domains=3).build()
    gates = FeatureGates(min_domains_in_pod_topology_spread=False)

    stored = admitted(pod, gates=gates)

    assert stored.spec.topology_spread_constraints[0].min_domains is None
    assert told(pod, gates=gates) == (
        "spec.topologySpreadConstraints: minDomains dropped: feature gate MinDomainsInPodTopologySpread is off",
    )
    assert admitted(pod, old=stored, gates=gates) is stored


def test_stored_min_domains_are_kept_when_their_gate_goes_off() -> None:
    """KEP-3022: "the already created Pod's minDomains field is preserved"."""
    pod = build.pod("a").spread("zone", "a=b", min_domains=3)
    stored = admitted(pod.build())

    changed = admitted(
        pod.label(a="b").build(), old=stored, gates=FeatureGates(min_domains_in_pod_topology_spread=False)
    )

    assert changed.spec.topology_spread_constraints[0].min_domains == 3


def test_fallback_criteria_are_refused_while_their_gate_is_off() -> None:
    """KEP-3990: "kube-apiserver will reject Pod creation with fallbackCriteria"; existing ones are kept."""
    pod = build.pod("a").spread("zone", "a=b", fallback=("PreemptionFailed",))
    stored = admitted(pod.build(), gates=FeatureGates(pod_topology_spread_fallback_mode=True))

    changed = admitted(pod.label(a="b").build(), old=stored)

    assert refusal(pod.build()) == [
        (
            "spec.topologySpreadConstraints[0].fallbackCriteria",
            "Forbidden",
            "may not be set while the feature gate PodTopologySpreadFallbackMode is off",
        )
    ]
    assert changed.spec.topology_spread_constraints[0].fallback_criteria == ("PreemptionFailed",)


# --- priority -----------------------------------------------------------------------------------------------------------

HIGH = build.priority_class("high", 1000, never_preempts=True, guarded_below=5000)


def priority_of(pod: Pod) -> tuple[str, int | None, str | None, int | None]:
    spec = pod.spec
    return (
        spec.priority_class_name,
        spec.priority,
        spec.preemption_policy,
        spec.allow_disruption_by_priority_greater_than_or_equal,
    )


@pytest.mark.parametrize(
    ("pod", "classes", "gates", "expected"),
    [
        (build.pod("a"), (), GUARDED, ("", 0, "PreemptLowerPriority", None)),
        (build.pod("a"), (HIGH,), GUARDED, ("", 0, "PreemptLowerPriority", None)),
        (build.pod("a").priority_class("high"), (HIGH,), GUARDED, ("high", 1000, "Never", 5000)),
        (build.pod("a").priority_class("high"), (HIGH,), OFF, ("high", 1000, "Never", None)),
        (build.pod("a").priority_class("high").priority(1000), (HIGH,), OFF, ("high", 1000, "Never", None)),
        (build.pod("a").guarded_below(9), (), OFF, ("", 0, "PreemptLowerPriority", None)),
        (
            build.pod("a"),
            (replace(HIGH, global_default=True),),
            GUARDED,
            ("high", 1000, "Never", 5000),
        ),
        (
            build.pod("a"),
            (build.priority_class("b", 7, default=True), build.priority_class("a", 5, default=True)),
            OFF,
            ("a", 5, "PreemptLowerPriority", None),
        ),
        (
            build.pod("a").priority_class("system-node-critical"),
            (),
            OFF,
            ("system-node-critical", 2_000_001_000, "PreemptLowerPriority", None),
        ),
    ],
)
def test_pod_gets_the_priority_of_its_class(
    pod: build.PodBuilder, classes: tuple[PriorityClass, ...], gates: FeatureGates, expected: object
) -> None:
    assert priority_of(admitted(pod.build(), *classes, gates=gates)) == expected


@pytest.mark.parametrize(
    ("pod", "path", "rule"),
    [
        (
            build.pod("a").priority_class("low"),
            "spec.priorityClassName",
            "no PriorityClass with name low was found",
        ),
        (
            build.pod("a").priority(5),
            "spec.priority",
            (
                "the integer value of priority (5) must not be provided in pod spec; "
                "priority admission controller computed 0 from the given PriorityClass name"
            ),
        ),
        (
            build.pod("a").never_preempts(),
            "spec.preemptionPolicy",
            (
                "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
                "priority admission controller computed PreemptLowerPriority from the given PriorityClass name"
            ),
        ),
        (
            build.pod("a").priority_class("high").guarded_below(9),
            "spec.allowDisruptionByPriorityGreaterThanOrEqual",
            (
                "the integer value of allowDisruptionByPriorityGreaterThanOrEqual (9) must not be provided in pod spec; "
                "priority admission controller computed 5000 from the given PriorityClass name"
            ),
        ),
        (
            build.pod("a").guarded_below(9),
            "spec.allowDisruptionByPriorityGreaterThanOrEqual",
            (
                "the integer value of allowDisruptionByPriorityGreaterThanOrEqual (9) must not be provided in pod spec; "
                "priority admission controller computed none from the given PriorityClass name"
            ),
        ),
    ],
)
def test_pod_cannot_choose_its_priority(pod: build.PodBuilder, path: str, rule: str) -> None:
    assert refusal(pod.build(), HIGH, gates=GUARDED) == [(path, "Forbidden", rule)]


def test_recording_keeps_its_priority_though_its_class_is_not_known() -> None:
    pod = build.pod("a").uid("abc").priority_class("gone").priority(77).build()

    assert priority_of(admitted(pod)) == ("gone", 77, None, None)


def test_update_that_leaves_the_threshold_out_keeps_it() -> None:
    pod = build.pod("a").priority_class("high")
    stored = admitted(pod.build(), HIGH, gates=GUARDED)

    changed = admitted(pod.label(a="b").build(), HIGH, old=stored, gates=OFF)

    assert priority_of(changed) == ("high", 1000, "Never", 5000)


def test_threshold_of_a_class_is_dropped_while_its_gate_is_off_and_kept_once_stored() -> None:
    dropped = admitted(HIGH)
    stored = admitted(HIGH, gates=GUARDED)
    changed = admitted(replace(HIGH, allow_disruption_by_priority_greater_than_or_equal=6000), old=stored)

    assert dropped.allow_disruption_by_priority_greater_than_or_equal is None
    assert stored.allow_disruption_by_priority_greater_than_or_equal == 5000
    assert changed.allow_disruption_by_priority_greater_than_or_equal == 6000
    assert told(HIGH) == (
        "allowDisruptionByPriorityGreaterThanOrEqual dropped: feature gate DisruptionPolicyInPriorityClass is off",
    )


def test_class_preempts_unless_it_says_otherwise() -> None:
    stored: PriorityClass = admitted(build.priority_class("low", 1))

    assert stored.preemption_policy == "PreemptLowerPriority"


def test_there_is_one_global_default() -> None:
    first = admitted(build.priority_class("a", 1, default=True))

    assert refusal(build.priority_class("b", 2, default=True), first) == [
        (
            "globalDefault",
            "Forbidden",
            "PriorityClass a is already marked as default. Only one default can exist",
        )
    ]
    assert admitted(replace(first, description="x"), first, old=first).description == "x"


# --- groups -------------------------------------------------------------------------------------------------------------


def test_group_gets_its_priority_as_pods_do() -> None:
    named: PodGroup = admitted(build.pod_group("g", min_count=2, priority_class_name="high"), HIGH)
    given: PodGroup = admitted(build.pod_group("g", min_count=2, priority=50), HIGH)
    plain: PodGroup = admitted(build.pod_group("g", min_count=2), HIGH)

    assert [group.spec.priority for group in (named, given, plain)] == [1000, 50, 0]
    assert admitted(build.pod_group("g", min_count=2), HIGH, old=plain) is plain
    assert refusal(build.pod_group("g", min_count=2, priority_class_name="none")) == [
        ("spec.priorityClassName", "Forbidden", "no PriorityClass with name none was found")
    ]


def test_workload_group_that_names_a_class_has_its_priority() -> None:
    group = replace(build.workload_group("workers", min_count=2), priority_class_name="high")

    workload: Workload = admitted(build.workload("w", group), HIGH)

    assert workload.spec.pod_groups[0].priority == 1000


def test_group_cannot_contradict_its_class() -> None:
    group = build.pod_group("g", min_count=2, priority_class_name="high", priority=5)
    named = replace(build.workload_group("workers", min_count=2), priority_class_name="none")

    assert [(path, kind) for path, kind, _ in refusal(group, HIGH)] == [("spec.priority", "Forbidden")]
    assert refusal(build.workload("w", named)) == [
        ("spec.podGroups[0].priorityClassName", "Forbidden", "no PriorityClass with name none was found")
    ]


def test_recorded_group_keeps_its_priority() -> None:
    group = build.pod_group("g", min_count=2, priority_class_name="gone", priority=77)
    recorded = replace(group, metadata=replace(group.metadata, uid="abc"))

    assert admitted(recorded).spec.priority == 77


def test_member_of_an_unknown_workload_waits_for_it() -> None:
    assert told(build.pod("m1").workload("unknown", "g").build()) == ()


GROUP = build.pod_group("g", min_count=2, priority=1000, preemption_policy="Never")


def test_member_must_be_like_its_group() -> None:
    member = build.pod("m1").group("g").build()

    assert refusal(member, GROUP) == [
        ("spec.priority", "Invalid", "must be 1000, like all of pod group g"),
        ("spec.preemptionPolicy", "Invalid", "must be Never, like all of pod group g"),
    ]
    assert (
        admitted(build.pod("m1").group("g").priority_class("high").build(), GROUP, HIGH).spec.priority == 1000
    )


def test_members_must_be_like_one_another() -> None:
    workload = build.workload("w", build.workload_group("workers", min_count=2))
    first = admitted(build.pod("m1").workload("w", "workers").build(), workload)
    second = build.pod("m2").workload("w", "workers").scheduler("other").priority_class("high").build()

    assert refusal(second, workload, first, HIGH) == [
        (
            "spec.schedulerName",
            "Invalid",
            "must be default-scheduler, like all of group workers of workload w",
        ),
        ("spec.priority", "Invalid", "must be 0, like all of group workers of workload w"),
        (
            "spec.preemptionPolicy",
            "Invalid",
            "must be PreemptLowerPriority, like all of group workers of workload w",
        ),
    ]


def test_member_of_an_unknown_group_waits_for_it() -> None:
    assert told(build.pod("m1").group("unknown").build()) == ()


def test_member_of_a_group_that_its_workload_lacks_is_warned() -> None:
    workload = build.workload("w", build.workload_group("workers", min_count=2))

    assert told(build.pod("m1").workload("w", "typo").build(), workload) == (
        "spec.workloadRef.podGroup: workload w has no group typo",
    )


def test_pod_under_two_budgets_is_told() -> None:
    budgets = (build.pdb("a", "app=web"), build.pdb("b", {}), build.pdb("c", None), build.pdb("d", "app=db"))

    assert told(build.pod("p").label(app="web").build(), *budgets) == (
        "pod p is under 2 disruption budgets (a, b); an eviction is charged to all of them",
    )


def test_budget_whose_selector_does_not_parse_counts_for_nobody() -> None:
    broken = build.pdb("b", LabelSelector(match_expressions=(requirement("app", "Near", "x"),)))

    assert told(build.pod("p").label(app="web").build(), broken, build.pdb("a", "app=web")) == ()


# --- deletion -----------------------------------------------------------------------------------------------------------


def test_unassigned_pod_goes_at_once() -> None:
    assert admit_delete(build.pod("a").build(), None, STAMP) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_goes_at_once(phase: str) -> None:
    assert admit_delete(build.pod("a").on("n1").phase(phase).build(), None, STAMP) is None


def test_forced_deletion_does_not_wait_for_the_node() -> None:
    assert admit_delete(build.pod("a").on("n1").build(), 0, STAMP) is None


@pytest.mark.parametrize(
    ("spec_grace", "grace", "seconds", "until"),
    [
        (None, None, 30, "2023-11-14T22:13:50Z"),
        (60, None, 60, "2023-11-14T22:14:20Z"),
        (60, 5, 5, "2023-11-14T22:13:25Z"),
        (-1, None, 1, "2023-11-14T22:13:21Z"),
    ],
)
def test_assigned_pod_terminates_for_its_grace_period(
    spec_grace: int | None, grace: int | None, seconds: int, until: str
) -> None:
    pod = build.pod("a").on("n1")
    pod = pod if spec_grace is None else pod.grace(spec_grace)

    remaining = admit_delete(pod.build(), grace, STAMP)

    assert remaining is not None
    assert remaining.metadata.deletion_timestamp == until
    assert remaining.metadata.deletion_grace_period_seconds == seconds
    assert remaining.metadata.resource_version == "7"


def test_second_deletion_can_only_shorten_the_first() -> None:
    first = admit_delete(build.pod("a").on("n1").build(), 30, STAMP)
    assert first is not None

    longer = admit_delete(first, 60, LATER)
    shorter = admit_delete(first, 5, LATER)

    assert longer is first
    assert shorter is not None
    assert shorter.metadata.deletion_grace_period_seconds == 5


def test_terminating_pod_stays_so_when_it_is_put_again() -> None:
    stored = admit_delete(admitted(build.pod("a").on("n1").build()), 30, STAMP)
    assert stored is not None

    changed = admitted(build.pod("a").label(a="b").build(), old=stored)

    assert changed.metadata.deletion_timestamp == stored.metadata.deletion_timestamp


def test_nodes_go_at_once() -> None:
    node: Node = build.node("n1").build()

    assert admit_delete(node, None, STAMP) is None


@pytest.mark.parametrize(
    ("kind", "name", "rule"),
    [
        ("PriorityClass", "system-cluster-critical", "this is a system priority class and cannot be deleted"),
        ("PriorityClass", "system-node-critical", "this is a system priority class and cannot be deleted"),
        ("Namespace", "default", "this namespace may not be deleted"),
        ("Namespace", "kube-system", "this namespace may not be deleted"),
    ],
)
def test_what_every_cluster_has_cannot_be_deleted(kind: str, name: str, rule: str) -> None:
    found = ObjectTable().get(kind, "", name)
    assert found is not None

    with pytest.raises(InvalidObjects) as caught:
        admit_delete(found, None, STAMP)

    assert str(caught.value) == f'{kind} "{name}" is invalid: metadata.name: Forbidden: {rule}'


def test_system_classes_may_be_put_again_as_they_are() -> None:
    stored = ObjectTable().get("PriorityClass", "", "system-node-critical")
    dump = made(
        "PriorityClass",
        {"metadata.name": "system-node-critical", "metadata.uid": "abc", "value": 2_000_001_000},
    )

    changed = admitted(dump, old=stored)

    assert changed.metadata.uid == "abc"
