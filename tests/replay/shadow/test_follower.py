"""What shows in a log and what it is: small clusters, each decision made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.worlds.objects import pod
from tidelog.api.conditions import with_condition
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod, PodStatus, Volume
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.records import (
    GENESIS,
    KIND_OF_BODY,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    KindGap,
    KindSynced,
    ObjectDeleted,
    ObjectPut,
    Record,
    Watched,
    decode_body,
    encode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.shadow.follower import Follower, JudgedDecision
from tidelog.replay.shadow.report import Summary, as_record
from tidelog.replay.shadow.world import ShadowWorld, WorldEntry
from tidelog.scheduler.cache import Cache
from tidelog.testing import builders as b

START = 1_700_000_000 * NANOS
MILLIS = NANOS // 1000
REGISTRY = Registry()


def configuration() -> SchedulerConfiguration:
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return resolve_configuration({**header, "tidelog": {"compat": "upstream"}}, REGISTRY).configuration


ATTACHED = ClusterAttached(
    cluster="c", mode="shadow", log_id="l", kinds={"Pod": Watched(path="/api/v1/pods")}
)


class Log:
    """Records as they would be written while somebody else schedules."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.at = START
        self.say(ATTACHED)
        self.say(ConfigurationLoaded(configuration=_plain(configuration())))

    def say(self, body: Body, key: str = "") -> Log:
        seq = len(self.records) + 1
        kind = KIND_OF_BODY[type(body)]
        self.records.append(Record(seq, self.at, "cluster", kind, key, 0, encode_body(body), GENESIS))
        return self

    def put(self, *objects: Object) -> Log:
        for obj in objects:
            self.say(ObjectPut(object=obj), object_key(obj))
        return self

    def delete(self, obj: Object) -> Log:
        return self.say(ObjectDeleted(uid=obj.metadata.uid), object_key(obj))

    def synced(self) -> Log:
        return self.say(KindSynced(kind="Pod", resource_version="1"))

    def later(self, millis: int) -> Log:
        self.at += millis * MILLIS
        return self

    def judged(self) -> list[JudgedDecision]:
        follower = Follower(REGISTRY)
        found = [one for record in self.records for one in follower.take(record)]
        return [*found, *follower.finish()]

    def verdicts(self) -> list[str]:
        return [one.verdict for one in self.judged()]


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def bound(made: Pod, node: str) -> Pod:
    return replace(made, spec=replace(made.spec, node_name=node))


def rejected(made: Pod, message: str, **status: Any) -> Pod:
    conditions = with_condition((), "PodScheduled", "False", "Unschedulable", message, START)
    return replace(made, status=replace(made.status, conditions=conditions, **status))


def node(name: str, cpu: str = "4") -> Any:
    return b.node(name).capacity(cpu=cpu, memory="8Gi", pods="10").build()


NO_CPU = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


@pytest.fixture
def log() -> Log:
    return Log().put(node("a"), node("b")).synced()


def test_an_equally_good_node_is_the_same(log: Log) -> None:
    web = pod("web")

    assert log.put(web).later(10).put(bound(web, "b")).verdicts() == ["same"]


def test_a_fuller_node_is_a_gap_with_rank(log: Log) -> None:
    old, web = pod("old", "2"), pod("web")
    log.put(old).later(10).put(bound(old, "a")).later(2000)

    (_, found) = log.put(web).later(10).put(bound(web, "a")).judged()

    assert (found.verdict, found.upstream.rank, found.upstream.feasible, found.upstream.best) == (
        "gap",
        2,
        2,
        ("b",),
    )
    assert found.upstream.gap > 0


def test_a_node_that_we_would_not_take_is_refused_with_plugin_and_reason(log: Log) -> None:
    web = pod("web", "3")
    there = b.node("c").capacity(cpu="1", memory="8Gi", pods="10").build()

    (found,) = log.put(there, web).later(10).put(bound(web, "c")).judged()

    assert (found.verdict, found.upstream.reason) == ("refused", "NodeResourcesFit: Insufficient cpu")
    assert found.default.verdict == "refused"


def test_a_pod_that_was_assumed_and_shows_later_explains_a_choice() -> None:
    """Decided in the order first, second; the second's binding shows first."""
    first, second = pod("first", "2"), pod("second")
    log = Log().put(node("a", "4"), node("b", "2")).synced().put(first, second).later(10)

    late, early = log.put(bound(second, "b")).later(5).put(bound(first, "a")).judged()

    assert (late.verdict, early.verdict) == ("same", "same")
    assert late.upstream.view is not None
    assert late.upstream.view.text == "1 assumed"


def test_an_older_state_explains_a_choice(log: Log) -> None:
    """The node was made unschedulable after the decision, and before it shows."""
    web = pod("web")
    cordoned = replace(node("a"), spec=replace(node("a").spec, unschedulable=True))
    log.put(web).later(10).put(cordoned).later(10).put(bound(web, "a"))

    (found,) = log.judged()

    assert found.verdict == "same"
    assert found.upstream.view is not None
    assert found.upstream.view.text == "after record 6"


def test_a_fact_of_another_kind_that_shows_a_moment_later_explains_a_choice(log: Log) -> None:
    """The other scheduler's watch of nodes was ahead of ours."""
    web = pod("web", "3")
    log.put(web).later(10).put(bound(web, "late")).later(30).put(node("late", "9"))

    (found,) = log.judged()

    assert found.verdict == "same"
    assert found.upstream.view is not None
    assert found.upstream.view.text == "1 later facts"


def test_what_shows_much_later_was_not_known(log: Log) -> None:
    web = pod("web", "3")
    log.put(web).later(10).put(bound(web, "late")).later(300).put(node("late", "9"))

    assert log.verdicts() == ["refused"]


def test_a_state_from_before_the_pods_last_rejection_explains_nothing(log: Log) -> None:
    web = pod("web", "3")
    small = node("b", "1")
    log = Log().put(node("a", "1"), small, web).synced().later(10)
    told = rejected(web, NO_CPU)
    log.put(node("b", "4")).later(10).put(small).later(10).put(told).later(10).put(bound(told, "b"))

    assert log.verdicts()[-1] == "refused"


def test_bindings_that_nobody_decided_here_are_foreign(log: Log) -> None:
    mirror, other = bound(pod("mirror"), "a"), b.pod("other").scheduler("another").build()

    log.put(mirror, other).later(10).put(bound(other, "a"))

    assert log.verdicts() == ["foreign", "foreign"]


def test_pods_that_were_bound_before_the_log_began_are_nobodys_decision() -> None:
    log = Log().put(node("a"), bound(pod("old"), "a")).synced()

    assert log.judged() == []


def test_what_shows_while_the_log_catches_up_is_not_judged() -> None:
    """After a gap, before each watched kind is synced, and in the first seconds of a resumed watch."""
    first, second, third, fourth = (pod(f"p{i}") for i in range(4))
    log = Log().put(node("a"), first, second, third, fourth).synced()
    log.say(KindGap(kind="Node")).put(bound(first, "a"))
    log.say(KindSynced(kind="Node", resource_version="1", how="relist")).later(600).put(bound(second, "a"))
    log.say(ATTACHED)
    log.say(KindSynced(kind="Pod", resource_version="1", how="resume")).later(600).put(bound(third, "a"))
    log.later(6000).put(bound(fourth, "a"))

    assert log.verdicts() == ["unordered", "same", "unordered", "same"]


def test_a_pod_with_a_volume_that_is_not_recorded_is_unsupported(log: Log) -> None:
    made = pod("db")
    claimed = _claimed(made)

    log.put(claimed).later(10).put(bound(claimed, "a"))

    assert log.verdicts() == ["unsupported"]


def _claimed(made: Pod) -> Pod:
    import msgspec

    volume = msgspec.convert({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, Volume)
    return replace(made, spec=replace(made.spec, volumes=(volume,)))


# --- rejections ---------------------------------------------------------------------------------------------------------


def test_a_rejection_for_the_same_reasons_is_agreed(log: Log) -> None:
    web = pod("web", "5")

    assert log.put(web).later(10).put(rejected(web, NO_CPU)).verdicts() == ["agreed"]


def test_a_rejection_with_another_number_differs(log: Log) -> None:
    web = pod("web", "5")
    message = NO_CPU.replace("2 Insufficient", "1 Insufficient")

    (found,) = log.put(web).later(10).put(rejected(web, message)).judged()

    assert (found.verdict, found.upstream.reason) == ("differs", NO_CPU)


def test_a_pod_that_we_would_place_is_told_with_the_best_nodes(log: Log) -> None:
    web = pod("web", "3")

    (found,) = log.put(web).later(10).put(rejected(web, NO_CPU)).judged()

    assert (found.verdict, found.upstream.best) == ("wouldPlace", ("a", "b"))


def test_the_same_message_again_is_no_rejection(log: Log) -> None:
    web = pod("web", "5")
    told = rejected(web, NO_CPU)
    log.put(web).later(10).put(told).later(10).put(
        replace(told, metadata=replace(told.metadata, labels={"a": "b"}))
    )

    assert log.verdicts() == ["agreed"]


def going(made: Pod) -> Pod:
    conditions = with_condition((), "DisruptionTarget", "True", "PreemptionByScheduler", "", START)
    meta = replace(made.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    return replace(made, metadata=meta, status=replace(made.status, conditions=conditions))


@pytest.mark.parametrize(("victim", "verdict"), [("low", "agreed"), ("mid", "differs")])
def test_a_preemption_is_judged_by_node_and_victims(victim: str, verdict: str) -> None:
    low, mid = (
        replace(pod(n, "2"), status=PodStatus(start_time="2023-11-14T22:00:00Z")) for n in ("low", "mid")
    )
    mid = replace(mid, spec=replace(mid.spec, priority=5))
    low = replace(low, spec=replace(low.spec, priority=1))
    vip = replace(pod("vip", "2"), spec=replace(pod("vip", "2").spec, priority=10))
    log = Log().put(node("a"), bound(low, "a"), bound(mid, "a")).synced().put(vip).later(10)
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node a, preempting 1 victims"
    )
    log.put(rejected(vip, message, nominated_node_name="a")).later(5)
    log.put(going(bound(low if victim == "low" else mid, "a")))

    assert log.verdicts() == [verdict]


# --- the follower -----------------------------------------------------------------------------------------------------


def test_verdicts_wait_for_half_a_second_of_the_log(log: Log) -> None:
    web = pod("web")
    log.put(web).later(10).put(bound(web, "a")).later(400).put(pod("x")).later(200).put(pod("y"))
    follower = Follower(REGISTRY)

    told = [(record.seq, one.verdict) for record in log.records for one in follower.take(record)]

    assert told == [(len(log.records), "same")]


def test_a_log_can_be_judged_from_its_middle(log: Log) -> None:
    web, late = pod("web"), pod("late", "3")
    log.put(web).later(10).put(bound(web, "a")).later(3000)
    objects = [node("a"), node("b"), bound(web, "a")]
    cut = len(log.records)
    log.put(late).later(10).put(bound(late, "b"))
    follower = Follower(REGISTRY)
    follower.begin(configuration(), objects, None)

    found = [one for record in log.records[cut:] for one in follower.take(record)] + list(follower.finish())

    assert [(one.key, one.verdict) for one in found] == [("Pod/default/late", "same")]


def test_a_verdict_is_a_record_that_changes_nothing(log: Log) -> None:
    web = pod("web")
    (found,) = log.put(web).later(10).put(bound(web, "a")).judged()

    body = as_record(found)

    assert (body.verdict, body.node, body.best, body.view) == ("same", "a", ("a", "b"), "")
    log.say(body, "Pod/default/web")
    assert decode_body(log.records[-1]) == body
    assert log.verdicts() == ["same"]


def test_the_report_counts_both_modes_and_keeps_what_asks_for_attention(log: Log) -> None:
    good, bad, none = pod("good"), pod("bad", "3"), pod("none", "9")
    small = b.node("c").capacity(cpu="1", memory="8Gi", pods="10").build()
    message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    log.put(small, good, none).later(10).put(bound(good, "a"), rejected(none, message)).later(3000)
    log.put(bad).later(10).put(bound(bad, "c"))

    summary = Summary()
    for judged in log.judged():
        summary.add(judged)
    report = summary.report(records=len(log.records))

    assert report.bindings.upstream == {"same": 1, "refused": 1}
    assert report.bindings.default == report.bindings.upstream
    assert report.rejections.upstream == {"agreed": 1}
    assert (report.share, report.refused_by) == (0.5, {"NodeResourcesFit": 1})
    assert [(one.key, one.verdict) for one in report.decisions] == [("Pod/default/bad", "refused")]
    assert report.waits["max"] == 0.01


def test_the_report_can_keep_everything(log: Log) -> None:
    web = pod("web")
    summary = Summary(everything=True)
    for one in log.put(web).later(10).put(bound(web, "a")).judged():
        summary.add(one)

    assert [one.verdict for one in summary.report(records=1).decisions] == ["same"]


# --- back and forth -----------------------------------------------------------------------------------------------------

NAMES = ("p", "q", "r")
STEPS = st.lists(
    st.one_of(
        st.builds(pod, st.sampled_from(NAMES), st.sampled_from(["1", "2"])),
        st.builds(lambda n, m: bound(pod(n), m), st.sampled_from(NAMES), st.sampled_from(["a", "b"])),
        st.builds(node, st.sampled_from(["a", "b"]), st.sampled_from(["4", "8"])),
        st.sampled_from([f"Pod/default/{name}" for name in NAMES] + ["Node//a", "Node//b"]),
    ),
    min_size=2,
    max_size=25,
)


@given(STEPS, st.data())
def test_what_was_brought_forward_is_given_back(steps: Sequence[Object | str], data: Any) -> None:
    log = Log()
    for step in steps:
        log.later(1)
        if isinstance(step, str):
            log.say(ObjectDeleted(), step)
        else:
            log.put(step)
    world = ShadowWorld(REGISTRY)
    world.coming.extend(WorldEntry(record, decode_body(record)) for record in log.records)
    for _ in range(data.draw(st.integers(2, len(log.records) - 1))):
        world.advance()
    before = _state(world)

    for entry in world.early_facts(world.at)[: data.draw(st.integers(0, 3))]:
        world.bring_forward(entry)
    for _ in range(data.draw(st.integers(0, 5))):
        world.back()
    world.forth()
    world.give_back()

    assert _state(world) == before


@given(STEPS, st.data())
def test_going_back_and_forth_leads_to_where_one_was(steps: Sequence[Object | str], data: Any) -> None:
    log = Log()
    for step in steps:
        log.later(1)
        if isinstance(step, str):
            log.say(ObjectDeleted(), step)
        else:
            log.put(step)
    world = ShadowWorld(REGISTRY)
    states: list[object] = []
    for record in log.records:
        world.coming.append(WorldEntry(record, decode_body(record)))
        world.advance()
        states.append(_state(world))

    back = data.draw(st.integers(0, len(states) - 1))
    for number in range(back):
        assert world.back() is not None
        assert _state(world) == states[-2 - number]
    world.forth()

    assert _state(world) == states[-1]


def _state(world: ShadowWorld) -> object:
    """What decisions look at; the order of nodes, which only breaks ties, does not count."""
    cache: Cache = world.cluster.cache
    found = cache.dump()
    for there in found["nodes"].values():
        there["requested"] = {name: amount for name, amount in there["requested"].items() if amount}
    objects = sorted((key, str(obj)) for key, obj in world.cluster.objects.items())
    nominated = sorted((n, p.key) for n in ("a", "b") for p in world.nominations.pods_on(n))
    return found["nodes"], found["aside"], objects, nominated
