"""The table of current objects: what each kind of record does to it, snapshots, and loading."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.errors import LogDamaged, LogError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    AllocationResult,
    ClaimConsumer,
    Condition,
    DeviceAllocation,
    DeviceResult,
    Namespace,
    Node,
    Object,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    PodGroup,
    PodSpec,
    PodStatus,
    ResourceClaim,
)
from tidelog.api.times import NANOS
from tidelog.eventlog.log import memory_log
from tidelog.eventlog.objects import SNAPSHOT, ObjectTable, load_objects
from tidelog.eventlog.records import (
    KIND_OF_BODY,
    AttemptAborted,
    AttemptError,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    Cursor,
    Draft,
    Evicted,
    EvictionRefused,
    KindGap,
    KindSynced,
    LeadershipChanged,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Scheduled,
    SchedulerStarted,
    ShadowVerdict,
    Tick,
    Unschedulable,
    Waiting,
    WriteFailed,
    encode_body,
)
from tidelog.eventlog.store import EMPTY, Snapshot
from tidelog.eventlog.verify import verify
from tidelog.testing.store_contract import head_after

START = 1_700_000_000 * NANOS
KEY = "Pod/default/web"
ATTEMPT: dict[str, Any] = {"attempt": 1, "observed": 1, "at": 1, "epoch": 1}


class Story:
    """A table, and records applied to it one second apart."""

    def __init__(self) -> None:
        self.table = ObjectTable()

    def put(self, obj: Object) -> Story:
        return self.say(object_key(obj), ObjectPut(object=obj))

    def say(self, key: str, body: Body) -> Story:
        seq = self.table.seq + 1
        kind = KIND_OF_BODY[type(body)]
        self.table.apply(Record(seq, START + seq * NANOS, "test", kind, key, 0, encode_body(body), bytes(32)))
        return self

    @property
    def pod(self) -> Pod:
        found = self.table.get(KEY)
        assert isinstance(found, Pod)
        return found

    def condition(self, type: str = "PodScheduled") -> tuple[str, str, str, str]:
        (found,) = [c for c in self.pod.status.conditions if c.type == type]
        return found.status, found.reason, found.message, found.last_transition_time


def web(**changes: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="web", namespace="default"), **changes)


@pytest.fixture
def story() -> Story:
    return Story().put(web())


def test_objects_are_found_by_key_and_listed_in_order() -> None:
    story = Story()
    for namespace, name in (("b", "x"), ("a", "y"), ("a", "x")):
        story.put(Pod(metadata=ObjectMeta(name=name, namespace=namespace)))
    story.put(Node(metadata=ObjectMeta(name="n1"))).put(Namespace(metadata=ObjectMeta(name="a")))

    pods = story.table.of_kind("Pod")

    assert [(e.seq, object_key(e.object)) for e in pods] == [(3, "Pod/a/x"), (2, "Pod/a/y"), (1, "Pod/b/x")]
    assert len(story.table) == 5
    assert story.table.get("Node//n1") == Node(metadata=ObjectMeta(name="n1"))
    assert story.table.get("Node//n2") is None
    assert story.table.get("Nonsense//n2") is None


def test_put_replaces_the_whole_object(story: Story) -> None:
    changed = web(spec=PodSpec(node_name="n1"))

    story.put(changed)

    assert story.pod == changed
    assert story.table.entry(KEY).seq == 2  # type: ignore[union-attr]


def test_deleted_object_is_gone_and_deleting_it_again_is_no_error(story: Story) -> None:
    story.say(KEY, ObjectDeleted()).say(KEY, ObjectDeleted())

    assert story.table.get(KEY) is None
    assert len(story.table) == 0


def test_scheduled_pod_has_its_node_and_condition(story: Story) -> None:
    story.say(KEY, Nominated(**ATTEMPT, node="n1")).say(KEY, Scheduled(**ATTEMPT, node="n1"))

    assert story.pod.spec.node_name == "n1"
    assert story.pod.status.nominated_node_name == ""
    assert story.condition() == ("True", "", "", "2023-11-14T22:13:23Z")


def test_unschedulable_pod_says_why_and_since_when(story: Story) -> None:
    story.say(KEY, Unschedulable(**ATTEMPT, message="0/1 nodes are available"))
    story.say(KEY, Unschedulable(**ATTEMPT, message="0/2 nodes are available"))

    assert story.condition() == ("False", "Unschedulable", "0/2 nodes are available", "2023-11-14T22:13:22Z")


def test_failure_like_an_earlier_one_changes_nothing(story: Story) -> None:
    story.say(KEY, Unschedulable(**ATTEMPT, message="0/1 nodes are available"))
    before = story.table.entry(KEY)

    story.say(KEY, Unschedulable(**ATTEMPT, same_as=2))
    story.say(KEY, Unschedulable(**ATTEMPT, message="0/1 nodes are available"))

    assert story.table.entry(KEY) == before


def test_error_is_a_scheduler_error(story: Story) -> None:
    story.say(KEY, AttemptError(**ATTEMPT, message="boom", plugin="P"))

    assert story.condition()[:3] == ("False", "SchedulerError", "boom")


def test_condition_takes_the_place_of_the_one_of_its_type(story: Story) -> None:
    kind = "NodeProvisioningInProgress"
    story.say(KEY, PodConditionSet(condition=Condition(type=kind, status="True")))
    story.say(KEY, PodConditionSet(condition=Condition(type=kind, status="True", reason="Asked")))
    assert story.condition(kind) == ("True", "Asked", "", "2023-11-14T22:13:22Z")

    story.say(KEY, PodConditionSet(condition=Condition(type=kind, status="False")))
    assert story.condition(kind) == ("False", "", "", "2023-11-14T22:13:24Z")

    given_time = Condition(type=kind, status="False", last_transition_time="2020-01-01T00:00:00Z")
    story.say(KEY, PodConditionSet(condition=given_time))
    assert story.pod.status.conditions == (given_time,)


def test_nomination_can_be_cleared(story: Story) -> None:
    story.say(KEY, Nominated(**ATTEMPT, node="n1"))
    assert story.pod.status.nominated_node_name == "n1"

    story.say(KEY, Nominated(**ATTEMPT))
    assert story.pod.status.nominated_node_name == ""


def test_nomination_takes_away_those_that_stand_in_its_way(story: Story) -> None:
    other = Pod(metadata=ObjectMeta(name="other", namespace="default"))
    story.put(other).say(object_key(other), Nominated(**ATTEMPT, node="n1"))

    story.say(KEY, Nominated(**ATTEMPT, node="n1", cleared=(object_key(other),)))

    found = story.table.get(object_key(other))
    assert isinstance(found, Pod)
    assert (found.status.nominated_node_name, story.pod.status.nominated_node_name) == ("", "n1")


@pytest.mark.parametrize(("asked", "due", "grace"), [(None, "22:13:52Z", 30), (5, "22:13:27Z", 5)])
def test_evicted_pod_is_leaving_after_its_grace_period(asked: int | None, due: str, grace: int) -> None:
    story = Story().put(web(spec=PodSpec(node_name="n1", termination_grace_period_seconds=asked)))

    story.say(KEY, Evicted(**ATTEMPT, preemptor="Pod/default/high", node="n1", message="make room"))
    first = story.pod
    story.say(KEY, Evicted(**ATTEMPT, preemptor="Pod/default/high", node="n1", message="make room"))

    assert first.metadata.deletion_timestamp == f"2023-11-14T{due}"
    assert first.metadata.deletion_grace_period_seconds == grace
    assert story.condition("DisruptionTarget")[:3] == ("True", "PreemptionByScheduler", "make room")
    assert story.pod == first


@pytest.mark.parametrize(("node", "left"), [("n1", 1), ("", 2)])
def test_eviction_is_charged_once_to_its_budgets_and_a_lost_place_never(node: str, left: int) -> None:
    story = Story().put(web(spec=PodSpec(node_name=node)))
    status = PodDisruptionBudgetStatus(disruptions_allowed=2)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default"), status=status)
    evicted = Evicted(
        **ATTEMPT, preemptor="Pod/x/y", node="n1", budgets=(object_key(budget), "PodDisruptionBudget/x/y")
    )

    story.put(budget).say(KEY, evicted).say(KEY, evicted)

    found = story.table.get(object_key(budget))
    assert isinstance(found, PodDisruptionBudget)
    assert found.status.disruptions_allowed == left
    assert found.status.disrupted_pods == ({"web": "2023-11-14T22:13:23Z"} if node else {})


def test_claims_of_a_scheduled_pod_are_allocated_and_reserved(story: Story) -> None:
    claim = ResourceClaim(metadata=ObjectMeta(name="gpu", namespace="default"))
    result = AllocationResult(devices=DeviceAllocation(results=(DeviceResult(device="gpu-0"),)))

    story.put(claim).say(KEY, Scheduled(**ATTEMPT, node="n1", claims={object_key(claim): result}))

    found = story.table.get(object_key(claim))
    assert isinstance(found, ResourceClaim)
    assert found.status.allocation == result
    assert found.status.reserved_for == (ClaimConsumer(resource="pods", name="web"),)


def test_group_that_is_placed_gets_its_claims_and_a_node_for_each_that_does_not_wait(story: Story) -> None:
    claim = ResourceClaim(metadata=ObjectMeta(name="gpu", namespace="default"))
    late = Pod(metadata=ObjectMeta(name="late", namespace="default"))
    group = PodGroup(metadata=ObjectMeta(name="g", namespace="default"))
    result = AllocationResult(devices=DeviceAllocation(results=(DeviceResult(device="gpu-0"),)))
    chosen = PlacementChosen(
        **ATTEMPT,
        placement="",
        assignment={KEY: "n1", object_key(late): "n2"},
        waiting=(object_key(late),),
        claims={object_key(claim): result},
    )

    story.put(claim).put(late).put(group).say(object_key(group), chosen)

    pods = [story.table.get(key) for key in (KEY, object_key(late))]
    assert [pod.spec.node_name for pod in pods if isinstance(pod, Pod)] == ["n1", ""]
    found = story.table.get(object_key(claim))
    assert isinstance(found, ResourceClaim)
    assert found.status.allocation == result
    assert found.status.reserved_for == (
        ClaimConsumer(api_group="scheduling.k8s.io", resource="podgroups", name="g"),
    )


def test_group_is_scheduled_once_and_for_all(story: Story) -> None:
    group = PodGroup(metadata=ObjectMeta(name="g", namespace="default"))
    key = object_key(group)

    def conditions() -> list[tuple[str, str, str]]:
        found = story.table.get(key)
        assert isinstance(found, PodGroup)
        return [(c.type, c.status, c.message) for c in found.status.conditions]

    story.put(group).say(key, Unschedulable(**ATTEMPT, message="no rack"))
    assert conditions() == [("PodGroupInitiallyScheduled", "False", "no rack")]
    story.say(key, PlacementChosen(**ATTEMPT, placement="rack=r1", assignment={KEY: "n1"}))
    story.say(key, Unschedulable(**ATTEMPT, message="no rack"))
    assert conditions() == [("PodGroupInitiallyScheduled", "True", "")]


@pytest.mark.parametrize(
    "body",
    [
        Tick(),
        ConfigurationLoaded(configuration={}),
        SchedulerStarted(epoch=1, holder="x"),
        LossAccepted(first=1),
        Waiting(**ATTEMPT, node="n1"),
        AttemptAborted(**ATTEMPT, reason="gone"),
        EvictionRefused(**ATTEMPT, preemptor="p", node="n1"),
        KindSynced(kind="Pod", resource_version="12"),
        KindGap(kind="Pod", start="11"),
        Cursor(positions={"Pod": "13"}),
        ObjectUnread(resource_version="14"),
        LeadershipChanged(holder="host_1"),
        WriteFailed(effect="status"),
        ShadowVerdict(uid="u", verdict="same"),
        PlacementChosen(**ATTEMPT, placement="rack"),
    ],
    ids=lambda body: type(body).__name__,
)
def test_other_records_change_no_object(story: Story, body: Body) -> None:
    before = story.table.entry(KEY)

    story.say(KEY, body)

    assert story.table.entry(KEY) == before
    assert (story.table.seq, story.table.at) == (2, START + 2 * NANOS)


@pytest.mark.parametrize(
    "body",
    [
        Scheduled(
            **ATTEMPT, node="n1", group="PodGroup/a/b", claims={"ResourceClaim/a/b": AllocationResult()}
        ),
        Unschedulable(**ATTEMPT, message="no"),
        AttemptError(**ATTEMPT, message="no"),
        Nominated(**ATTEMPT, node="n1"),
        Evicted(**ATTEMPT, preemptor="p", node="n1"),
        PodConditionSet(condition=Condition(type="X")),
    ],
    ids=lambda body: type(body).__name__,
)
def test_outcome_for_an_object_that_is_gone_is_no_error(body: Body) -> None:
    assert len(Story().say(KEY, body).table) == 0


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda n: (f"Pod/d/{n}", ObjectPut(object=Pod(metadata=ObjectMeta(name=n, namespace="d")))), NAMES
        ),
        st.builds(lambda n: (f"Node//{n}", ObjectPut(object=Node(metadata=ObjectMeta(name=n)))), NAMES),
        st.builds(lambda n: (f"Pod/d/{n}", ObjectDeleted()), NAMES),
        st.builds(lambda n, m: (f"Pod/d/{n}", Scheduled(**ATTEMPT, node=m)), NAMES, NAMES),
        st.builds(lambda n, m: (f"Pod/d/{n}", Unschedulable(**ATTEMPT, message=m)), NAMES, NAMES),
        st.builds(lambda n, m: (f"Pod/d/{n}", Nominated(**ATTEMPT, node=m)), NAMES, NAMES),
        st.builds(lambda c: ("", ClusterAttached(cluster=c, mode="record", log_id="l")), NAMES),
        st.builds(lambda n: ("", KindSynced(kind="Pod", resource_version=n)), st.sampled_from(["9", "10"])),
        st.builds(lambda n: (f"Pod/d/{n}", ObjectUnread(resource_version="11")), NAMES),
        st.just(("", KindGap(kind="Pod"))),
    ),
    max_size=30,
)


def test_what_the_last_configuration_admits_is_known_from_a_snapshot_as_well(story: Story) -> None:
    gates = {
        "PodTopologySpreadFallbackMode": True,
        "GateOfALaterVersion": True,
        "SchedulerQueueingHints": "?",
    }
    story.say("", ConfigurationLoaded(configuration={"featureGates": {}, "maxTopologyConstraints": 2}))
    story.say("", ConfigurationLoaded(configuration={"featureGates": gates, "maxTopologyConstraints": 3}))

    restored = ObjectTable.decode(story.table.encode())

    for table in (story.table, restored):
        assert table.gates == FeatureGates(pod_topology_spread_fallback_mode=True)
        assert table.cluster.constraints_max == 3
    assert restored.digest() == story.table.digest()


@given(STEPS, st.data())
def test_table_from_a_snapshot_is_the_table_from_the_start(steps: list[tuple[str, Any]], data: Any) -> None:
    whole, part = Story(), Story()
    cut = data.draw(st.integers(0, len(steps)))
    for key, body in steps:
        whole.say(key, body)
    for key, body in steps[:cut]:
        part.say(key, body)
    part.table = ObjectTable.decode(part.table.encode())
    for key, body in steps[cut:]:
        part.say(key, body)

    assert part.table.encode() == whole.table.encode()
    assert part.table.digest() == whole.table.digest()


def test_different_tables_have_different_digests(story: Story) -> None:
    other = Story().put(web(status=PodStatus(phase="Running")))

    assert story.table.digest() != other.table.digest()


async def test_table_is_loaded_as_of_any_record_and_from_the_nearest_snapshot() -> None:
    async with await memory_log(clock=lambda: START) as log:
        digests = {0: ObjectTable().digest()}
        for n in range(1, 13):
            pod = Pod(metadata=ObjectMeta(name=f"web-{n}", namespace="default"))
            await log.append([Draft(body=ObjectPut(object=pod), author="cluster", key=object_key(pod))])
            digests[n] = (await load_objects(log)).digest()
            if n in (4, 8):
                await log.put_snapshot(SNAPSHOT, n, (await load_objects(log)).encode())

        assert {n: (await load_objects(log, n)).digest() for n in digests} == digests
        await log.compact(4)
        assert {n: (await load_objects(log, n)).digest() for n in range(4, 13)} == {
            n: digests[n] for n in range(4, 13)
        }
        with pytest.raises(LogError, match="the state at record 3 is gone: the log was compacted to 4"):
            await load_objects(log, 3)


async def test_state_whose_snapshot_was_lost_is_damage() -> None:
    async with await memory_log() as log:
        await log.take_over("x")
        records = [record async for record in log.read()]
        await log.store.compact(head_after(records, EMPTY))

        with pytest.raises(LogDamaged, match="no usable snapshot of the objects is left"):
            await load_objects(log)


async def test_snapshot_of_another_version_is_passed_over() -> None:
    async with await memory_log(clock=lambda: START) as log:
        await log.take_over("x")
        await log.append([Draft(body=Tick(), author="x")])
        expected = (await load_objects(log)).digest()
        await log.put_snapshot(SNAPSHOT, 2, b"\x94\x01\x01\x00\x80")

        assert (await load_objects(log)).digest() == expected
        assert (await verify(log, rebuild=True)).problems == (
            "snapshot objects at 2: another version wrote it",
        )


async def test_empty_table_is_loaded_from_its_snapshot() -> None:
    async with await memory_log() as log:
        await log.take_over("x")
        await log.put_snapshot(SNAPSHOT, 1, (await load_objects(log)).encode())
        await log.compact()

        assert (await load_objects(log)).seq == 1


# --- the cluster that it is attached to ---------------------------------------------------------------------------------

ATTACHED = ClusterAttached(cluster="c", mode="record", log_id="l")


def version(number: str) -> Pod:
    return Pod(metadata=ObjectMeta(name="web", namespace="default", resource_version=number))


def positions(story: Story) -> dict[str, str]:
    assert story.table.attachment is not None
    return story.table.attachment.positions


def test_a_log_that_is_not_attached_has_no_attachment_and_the_snapshot_that_it_always_had() -> None:
    story = Story().put(version("7"))

    _, _, _, _, objects = msgspec.msgpack.decode(story.table.encode())

    assert story.table.attachment is None
    assert list(objects) == ["Pod"]


def test_a_kind_has_a_position_from_its_listing_on_and_objects_move_it() -> None:
    story = Story().say("", ATTACHED).put(version("7"))
    assert positions(story) == {}

    story.say("", KindSynced(kind="Pod", resource_version="9")).put(version("10"))
    assert positions(story) == {"Pod": "10"}

    story.say(KEY, ObjectDeleted(uid="u", resource_version="100"))
    assert positions(story) == {"Pod": "100"}


def test_a_position_never_goes_back_but_by_a_new_listing() -> None:
    story = Story().say("", ATTACHED).say("", KindSynced(kind="Pod", resource_version="100"))

    story.put(version("99")).say("", Cursor(positions={"Pod": "98", "Node": "5"}))
    assert positions(story) == {"Pod": "100"}

    story.say("", Cursor(positions={"Pod": "101"})).say("", KindSynced(kind="Pod", resource_version="3"))
    assert positions(story) == {"Pod": "3"}


def test_a_gap_takes_the_position_until_the_kind_is_listed_again() -> None:
    story = Story().say("", ATTACHED).say("", KindSynced(kind="Pod", resource_version="9"))

    story.say("", KindGap(kind="Pod", start="9", reason="expired")).put(version("12"))
    assert positions(story) == {}

    story.say("", KindSynced(kind="Pod", resource_version="12", how="relist"))
    assert positions(story) == {"Pod": "12"}


def test_positions_outlive_a_session_with_the_same_cluster_only() -> None:
    story = Story().say("", ATTACHED).say("", KindSynced(kind="Pod", resource_version="9"))

    story.say("", ATTACHED)
    assert positions(story) == {"Pod": "9"}

    story.say("", ClusterAttached(cluster="another", mode="record", log_id="l"))
    assert positions(story) == {}


def test_an_object_is_unread_until_a_version_of_it_is_read() -> None:
    story = Story().say("", ATTACHED).say(KEY, ObjectUnread(resource_version="9"))
    assert story.table.attachment is not None
    assert story.table.attachment.unread == {KEY: "9"}

    story.put(version("10"))
    assert story.table.attachment.unread == {}


def test_the_attachment_is_in_snapshots() -> None:
    story = Story().say("", ATTACHED).say("", KindSynced(kind="Pod", resource_version="9")).put(version("12"))

    loaded = ObjectTable.from_snapshot(
        Snapshot.make(SNAPSHOT, story.table.seq, bytes(32), story.table.encode())
    )

    assert loaded is not None
    assert loaded.attachment == story.table.attachment
    assert loaded.digest() == story.table.digest()
