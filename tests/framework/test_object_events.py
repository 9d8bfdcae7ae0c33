"""Which cluster events a change is, in which order, and what else it does to cache and queue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.api.objects import (
    Container,
    ContainerStatus,
    DeviceClass,
    Node,
    NodeStatus,
    Pod,
    PodResourceClaimStatus,
    ResourceRequirements,
    Workload,
)
from tidelog.framework.events import Action, ClusterEvent, Resource
from tidelog.framework.object_events import Effect, QueueStep, Raised, Rules, effects, node_events, pod_events
from tidelog.testing.builders import (
    NodeBuilder,
    PodBuilder,
    namespace,
    node,
    pdb,
    pod,
    pod_group,
    priority_class,
    service,
)

OURS = Rules(schedulers=("default-scheduler",))
UPSTREAM = Rules(schedulers=("default-scheduler",), upstream=True)
N = Resource.NODE
ASSIGNED, TARGET, UNSCHEDULED = Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.UNSCHEDULED_POD


def labels(events: list[ClusterEvent]) -> list[str]:
    return [event.label for event in events]


# --- nodes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (node("n"), node("n"), []),
        (node("n"), node("n").cordon(), ["NodeUpdateNodeTaint"]),
        (node("n"), replace(node("n"), unschedulable=True), []),
        (replace(node("n"), unschedulable=True), node("n"), ["NodeUpdateNodeTaint"]),
        (node("n").cordon(), node("n"), ["NodeUpdateNodeTaint", "NodeUpdateNodeTaint"]),
        (node("n").capacity(cpu="1"), node("n").capacity(cpu="1000m"), []),
        (node("n").capacity(cpu="1"), node("n").capacity(cpu="1001m"), ["NodeUpdateNodeAllocatable"]),
        (node("n"), node("n").capacity(gpu=0), ["NodeUpdateNodeAllocatable"]),
        (node("n"), node("n").label(zone="a"), ["NodeUpdateNodeLabel"]),
        (node("n").taint("a"), node("n").taint("b"), ["NodeUpdateNodeTaint"]),
        (node("n").condition("Ready", reason="A"), node("n").condition("Ready", reason="B"), []),
        (node("n").condition("Ready"), node("n").condition("Ready", "False"), ["NodeUpdateNodeCondition"]),
        (node("n"), node("n").annotate({"a": "b"}), ["NodeUpdateNodeAnnotation"]),
        (node("n"), node("n").image("one:latest", 7), []),
    ],
)
def test_node_update_is_one_event_per_kind_of_change(
    old: NodeBuilder, new: NodeBuilder, expected: list[str]
) -> None:
    assert labels(node_events(old.build(), new.build())) == expected


def test_node_events_come_in_a_fixed_order() -> None:
    old = node("n").cordon().build()
    new = node("n").capacity(cpu=1).label(a="b").taint("t").condition("Ready").annotate({"a": "b"}).build()
    new = replace(
        new,
        spec=replace(new.spec, pod_preemption_policy={"mode": "x"}),
        status=replace(new.status, declared_features=("f",)),
    )

    assert labels(node_events(old, new)) == [
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeAllocatable",
        "NodeUpdateNodeLabel",
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeCondition",
        "NodeUpdateNodeAnnotation",
        "NodeUpdateNodePreemptionPolicy",
        "NodeUpdateNodeDeclaredFeature",
    ]


def test_only_allocatable_counts_of_a_nodes_resources() -> None:
    old = Node(status=NodeStatus(capacity={"cpu": "1"}, allocatable={"cpu": "1"}))
    new = Node(status=NodeStatus(capacity={"cpu": "2"}, allocatable={"cpu": 1}))

    assert node_events(old, new) == []


# --- pods ---------------------------------------------------------------------------------------------------------------------

P = pod("p").label(app="web").request(cpu=1, memory="1Gi")


def claimed(builder: PodBuilder) -> Pod:
    built = builder.build()
    claims = (PodResourceClaimStatus(name="gpu", resource_claim_name="p-gpu"),)
    return replace(built, status=replace(built.status, resource_claim_statuses=claims))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (P, P.label(app="db"), ["UpdatePodLabel"]),
        (P, P.request(cpu="500m"), ["UpdatePodScaleDown"]),
        (P, P.request(cpu=2), ["UpdatePodScaleUp"]),
        (P, P.request(cpu="1000m"), ["Update"]),
        (P, P.request(cpu=2, memory="1Mi"), ["UpdatePodScaleDown", "UpdatePodScaleUp"]),
        (P, P.request({"example.com/gpu": 0}), ["UpdatePodScaleUp"]),
        (P.overhead(cpu=1), P, ["UpdatePodScaleDown"]),
        (P, P.pod_level({"cpu": "250m"}), ["UpdatePodScaleDown"]),
        (P.gate("a", "b"), P.gate("a"), ["Update"]),
        (P.gate("a"), P, ["UpdatePodSchedulingGatesEliminated"]),
        (P, P.tolerate("a"), ["UpdatePodToleration"]),
        (P.tolerate("a"), P.tolerate("b"), ["Update"]),
        (P, P.annotate({"a": "b"}), ["Update"]),
        (P, P.priority(5), ["Update"]),
        (
            P.gate("a"),
            P.label(app="db").request(cpu=2).tolerate("a"),
            [
                "UpdatePodLabel",
                "UpdatePodScaleUp",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
            ],
        ),
    ],
)
def test_pod_update_is_one_event_per_kind_of_change_or_the_general_one(
    old: PodBuilder, new: PodBuilder, expected: list[str]
) -> None:
    events = pod_events(old.build(), new.build(), target=True)

    assert labels(events) == [f"TargetPod{name}" for name in expected]


def test_generated_claims_are_an_event_of_their_own() -> None:
    assert labels(pod_events(P.build(), claimed(P), target=True)) == [
        "TargetPodUpdatePodGeneratedResourceClaim"
    ]


def test_resource_tells_whose_pod_it_is() -> None:
    relabelled = P.label(app="db")

    bound = pod_events(P.on("n").build(), relabelled.on("n").build(), target=False)
    own = pod_events(P.build(), relabelled.build(), target=True)
    other = pod_events(P.build(), relabelled.build(), target=False)

    assert [event.resource for event in (*bound, *own, *other)] == [ASSIGNED, TARGET, UNSCHEDULED]


def test_finished_resize_is_a_scale_down_although_the_spec_stays() -> None:
    """The node frees the old amount only when the container has been resized."""
    resized = P.request(cpu="500m").on("n").build()

    def actual(cpu: str) -> Pod:
        resources = ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"})
        status = ContainerStatus(name="main", allocated_resources={"cpu": cpu}, resources=resources)
        return replace(resized, status=replace(resized.status, container_statuses=(status,)))

    assert labels(pod_events(actual("1"), actual("500m"), target=False)) == ["AssignedPodUpdatePodScaleDown"]


def test_more_containers_that_request_nothing_are_no_scale_event() -> None:
    one = P.build()
    two = replace(one, spec=replace(one.spec, containers=(*one.spec.containers, Container(name="more"))))

    assert labels(pod_events(one, two, target=True)) == ["TargetPodUpdate"]


# --- the pod events that kube-scheduler does not have ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "added"),
    [
        (P, P.condition("PodScheduled", "False", "Unschedulable"), "UpdatePodCondition"),
        (P.condition("A", "False"), P.condition("A", "True"), "UpdatePodCondition"),
        (P.condition("A", "False", "B"), P.condition("A", "False", "C"), "UpdatePodCondition"),
        (P, P.nominated("n"), "UpdatePodNominatedNode"),
        (P, P.terminating(), "UpdatePodTerminating"),
    ],
)
def test_our_own_pod_events_come_in_addition_and_not_in_upstream_mode(
    old: PodBuilder, new: PodBuilder, added: str
) -> None:
    def found(after: PodBuilder, **mode: bool) -> list[str]:
        return labels(pod_events(old.build(), after.build(), target=True, **mode))

    assert found(new) == ["TargetPodUpdate", f"TargetPod{added}"]
    assert found(new, upstream=True) == ["TargetPodUpdate"]
    assert found(new.label(app="db")) == ["TargetPodUpdatePodLabel", f"TargetPod{added}"]


def test_message_of_a_condition_is_no_event() -> None:
    old, new = P.condition("A", "False", "B", "one"), P.condition("A", "False", "B", "two")

    assert labels(pod_events(old.build(), new.build(), target=True)) == ["TargetPodUpdate"]


# --- effects: pods --------------------------------------------------------------------------------------------------------------

WAITING = P.scheduler("default-scheduler").priority(7)
FOREIGN = P.scheduler("other-scheduler")
ADDED, DELETED = ClusterEvent(ASSIGNED, Action.ADD), ClusterEvent(ASSIGNED, Action.DELETE)


def of(old: Any, new: Any, rules: Rules = OURS, assumed: PodBuilder | None = None) -> list[Effect]:
    before, after = (one.build() if hasattr(one, "build") else one for one in (old, new))
    return effects(before, after, rules, assumed.build() if assumed else None)


def test_new_pod_enters_the_queue_silently_without_gangs() -> None:
    (effect,) = of(None, WAITING)

    assert effect == Effect(None, WAITING.build(), QueueStep.ADD)


def test_new_pod_is_told_to_waiting_gangs() -> None:
    (effect,) = of(None, WAITING, OURS._replace(gangs=True))

    added = ClusterEvent(UNSCHEDULED, Action.ADD)
    assert effect.raised == (Raised(added, None, WAITING.build()),)


def test_pods_of_other_schedulers_concern_us_only_once_they_are_bound() -> None:
    bound = FOREIGN.on("n")

    assert of(None, FOREIGN) == []
    assert of(FOREIGN, FOREIGN.label(a="b")) == []
    assert of(FOREIGN, None) == []
    assert of(FOREIGN, bound) == [
        Effect(FOREIGN.build(), bound.build(), raised=(Raised(ADDED, None, bound.build()),))
    ]
    assert of(None, bound) == [Effect(None, bound.build(), raised=(Raised(ADDED, None, bound.build()),))]
    assert of(bound, None) == [Effect(bound.build(), None, raised=(Raised(DELETED, bound.build(), None),))]


def test_waiting_pod_that_changes_is_updated_in_the_queue() -> None:
    assert of(WAITING, WAITING.label(a="b")) == [
        Effect(WAITING.build(), WAITING.label(a="b").build(), QueueStep.UPDATE)
    ]


def test_nothing_happens_when_nothing_changed() -> None:
    assert of(WAITING, WAITING) == []


@pytest.mark.parametrize("new", [WAITING, WAITING.nominated("m")])
def test_nomination_that_goes_frees_its_place_for_pods_of_no_higher_priority(new: PodBuilder) -> None:
    old = WAITING.nominated("n")

    (effect,) = of(old, new)

    assert effect.queue is QueueStep.UPDATE
    assert effect.raised == (Raised(DELETED, old.build(), None, priority_max=7),)


@pytest.mark.parametrize("new", [WAITING.label(app="db"), WAITING.priority(3), WAITING.request(cpu="1m")])
def test_nominated_pod_that_becomes_another_may_leave_room_for_others(new: PodBuilder) -> None:
    old = WAITING.nominated("n")

    (effect,) = of(old, new.nominated("n"))
    (upstream,) = of(old, new.nominated("n"), UPSTREAM)

    assert effect.raised == (Raised(DELETED, old.build(), None, priority_max=7),)
    assert upstream.raised == ()
    assert of(old, old.condition("A"))[0].raised == (), "what only the status says changes nothing there"


def test_nomination_that_comes_frees_nothing() -> None:
    (effect,) = of(WAITING, WAITING.nominated("n"))

    assert effect.raised == ()


def test_binding_takes_the_pod_out_of_the_queue_and_tells_the_others() -> None:
    bound = WAITING.on("n")

    assert of(WAITING, bound) == [
        Effect(WAITING.build(), bound.build(), QueueStep.DELETE, (Raised(ADDED, None, bound.build()),))
    ]


def test_pod_bound_elsewhere_frees_what_was_set_aside_for_it() -> None:
    nominated, bound, assumed = WAITING.nominated("m"), WAITING.on("n"), WAITING.on("o")
    added = Raised(ADDED, None, bound.build())
    no_nomination = Raised(DELETED, nominated.build(), None, priority_max=7)
    not_assumed = Raised(DELETED, assumed.build(), None)

    def raised(old: PodBuilder, rules: Rules = OURS, assumed: PodBuilder | None = None) -> list[Raised]:
        (effect,) = of(old, bound, rules, assumed)
        return list(effect.raised)

    assert raised(nominated) == [added, no_nomination]
    assert raised(WAITING, assumed=assumed) == [added, not_assumed]
    assert raised(nominated, assumed=assumed) == [added, not_assumed, no_nomination]
    assert raised(nominated, UPSTREAM, assumed) == [added]
    # In its own place, or as a pod that is not ours to count, it frees nothing.
    assert raised(WAITING.nominated("n"), assumed=WAITING.on("n")) == [added]
    assert raised(FOREIGN.nominated("m")) == [added]


def test_update_of_a_bound_pod_is_one_event_per_kind_of_change() -> None:
    old, new = WAITING.on("n"), WAITING.on("n").label(app="db").request(cpu="100m")

    (effect,) = of(old, new)

    assert effect.queue is QueueStep.NOTHING
    assert [one.event.label for one in effect.raised] == [
        "AssignedPodUpdatePodLabel",
        "AssignedPodUpdatePodScaleDown",
    ]
    assert all(one.old == old.build() and one.new == new.build() for one in effect.raised)


def test_deleted_waiting_pod_leaves_the_queue_silently() -> None:
    assert of(WAITING, None) == [Effect(WAITING.build(), None, QueueStep.DELETE)]


def test_deleted_nominated_pod_frees_its_place() -> None:
    old = WAITING.nominated("n")

    (effect,) = of(old, None)

    assert effect.queue is QueueStep.DELETE
    assert effect.raised == (Raised(DELETED, old.build(), None, priority_max=7),)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_run_is_as_good_as_deleted(phase: str) -> None:
    running, done = WAITING.on("n"), WAITING.on("n").phase(phase)

    (effect,) = of(running, done)

    assert effect.raised == (Raised(DELETED, running.build(), None),)
    assert of(None, done) == []
    assert of(done, None) == []
    assert of(done, done.label(a="b")) == []


def test_changes_of_an_assumed_pod_are_only_heard_but_for_its_deletion() -> None:
    assumed = WAITING.on("n")
    freed = (Raised(DELETED, assumed.build(), None),)

    (changed,) = of(WAITING.nominated("m"), WAITING.label(a="b"), assumed=assumed)
    (deleting,) = of(WAITING, WAITING.terminating(), assumed=assumed)
    (deleted,) = of(WAITING, None, assumed=assumed)

    assert (changed.queue, changed.forgets, changed.raised) == (QueueStep.HEAR, False, ())
    assert (deleting.queue, deleting.forgets, deleting.raised) == (QueueStep.DELETE, True, freed)
    assert (deleted.queue, deleted.forgets, deleted.raised) == (QueueStep.DELETE, True, freed)


def test_same_name_with_another_uid_is_another_pod() -> None:
    old, new = WAITING.uid("1"), WAITING.uid("2")

    assert of(old, new) == [
        Effect(old.build(), None, QueueStep.DELETE),
        Effect(None, new.build(), QueueStep.ADD),
    ]


def test_pod_that_loses_its_node_gives_its_place_up_and_waits_again() -> None:
    bound = WAITING.on("n")

    assert of(bound, WAITING) == [
        Effect(bound.build(), None, raised=(Raised(DELETED, bound.build(), None),)),
        Effect(None, WAITING.build(), QueueStep.ADD),
    ]


# --- effects: other objects -------------------------------------------------------------------------------------------------------


def test_node_is_announced_after_the_cache_knows_it_and_mourned_before_it_forgets() -> None:
    one = node("n").build()

    (added,) = of(None, one)
    (deleted,) = of(one, None)

    assert added == Effect(None, one, raised=(Raised(ClusterEvent(N, Action.ADD), None, one),))
    assert deleted == Effect(
        one, None, raised=(Raised(ClusterEvent(N, Action.DELETE), one, None),), events_first=True
    )


def test_node_update_raises_its_events_and_a_heartbeat_none() -> None:
    old, relabelled = node("n").build(), node("n").label(a="b").build()
    heartbeat = node("n").condition("Ready", reason="x").build()

    (changed,) = of(old, relabelled)
    (beat,) = of(node("n").condition("Ready").build(), heartbeat)

    assert changed.raised == (Raised(ClusterEvent(N, Action.UPDATE_NODE_LABEL), old, relabelled),)
    assert beat.raised == ()


GROUP = pod_group("g", min_count=2)


@pytest.mark.parametrize(
    ("old", "new", "ours", "upstream"),
    [
        (None, GROUP, "scheduling.k8s.io/PodGroupAdd", True),
        (GROUP, pod_group("g", min_count=3), "scheduling.k8s.io/PodGroupUpdate", True),
        (GROUP, None, "scheduling.k8s.io/PodGroupDelete", True),
        (None, DeviceClass(), "resource.k8s.io/DeviceClassAdd", True),
        (namespace("a"), namespace("a", {"team": "x"}), "NamespaceUpdate", False),
        (None, pdb("b", "app=web", min_available=1), "policy/PodDisruptionBudgetAdd", False),
        (priority_class("c", 1), None, "scheduling.k8s.io/PriorityClassDelete", False),
        (None, Workload(), "scheduling.k8s.io/WorkloadAdd", False),
        (None, service("s", {"app": "web"}), "", False),
    ],
)
def test_events_of_other_kinds(old: Any, new: Any, ours: str, upstream: bool) -> None:
    (default,) = of(old, new)
    (same_as_upstream,) = of(old, new, UPSTREAM)

    assert [one.event.label for one in default.raised] == ([ours] if ours else [])
    assert [one.event.label for one in same_as_upstream.raised] == ([ours] if upstream else [])
    assert all((one.old, one.new) == (old, new) for one in default.raised)


def test_events_survive_the_log() -> None:
    """What is derived from stored objects is what was derived from the objects as they came."""
    old, new = P.build(), P.label(app="db").request(cpu="1500m").tolerate("a").build()
    stored = [msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Pod) for one in (old, new)]

    assert pod_events(*stored, target=True) == pod_events(old, new, target=True)
