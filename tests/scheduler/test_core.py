"""The state machine: facts in, decisions out, and the same again from the log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.worlds.objects import node, pod
from tidelog.api.errors import InternalError, PluginError
from tidelog.api.objects import Condition, Pod, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.records import (
    AttemptAborted,
    Draft,
    PodConditionSet,
    Record,
    Scheduled,
    Tick,
    Unschedulable,
    decode_body,
)
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def driver() -> Driver:
    started = Driver()
    started.start()
    return started


def assert_replays(driver: Driver) -> None:
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None
    assert driver.core.digest() == report.digest
    assert driver.core.digest() == recover(driver.records, Registry()).digest()


def test_pod_is_placed_and_bound(driver: Driver) -> None:
    driver.put(node("n1"), pod("web"))

    driver.settle()

    assert driver.placements() == {"default/web": "n1"}
    condition = pod_condition(driver.pod("web"), POD_SCHEDULED)
    assert condition is not None
    assert condition.status == "True"
    assert_replays(driver)


def test_pods_fill_the_nodes_and_the_last_one_is_told_why(driver: Driver) -> None:
    driver.put(node("n1"), node("n2", zone="b"), *(pod(f"p{i}") for i in range(9)))

    driver.settle()

    assert len(driver.placements()) == 8
    condition = pod_condition(driver.pod("p8"), POD_SCHEDULED)
    assert condition is not None
    assert condition.reason == "Unschedulable"
    assert "0/2 nodes are available: 2 Insufficient cpu." in condition.message
    assert_replays(driver)


def test_rejected_pod_is_woken_by_the_node_that_helps(driver: Driver) -> None:
    driver.put(node("n1", cpu="1"), pod("big", cpu="2"))
    driver.settle()

    driver.put(node("n2", cpu="4"))
    driver.advance(seconds=3)

    assert driver.placements() == {"default/big": "n2"}
    assert_replays(driver)


def test_rejected_pod_sleeps_through_what_cannot_help(driver: Driver) -> None:
    driver.put(node("n1", cpu="1"), pod("big", cpu="2"))
    driver.settle()
    attempts = driver.core.attempts

    driver.put(node("n2", cpu="1"))
    driver.advance(seconds=60)

    assert attempts == driver.core.attempts


def test_node_that_arrives_while_a_failing_attempt_is_being_committed_wakes_the_pod(driver: Driver) -> None:
    driver.put(node("n1", cpu="1"), pod("big", cpu="2"))
    driver.attempt()

    driver.put(node("n2", cpu="4"))
    driver.commit()
    driver.advance(seconds=3)

    assert driver.placements() == {"default/big": "n2"}
    assert_replays(driver)


def test_repeated_rejection_refers_to_the_first(driver: Driver) -> None:
    driver.put(node("n1", cpu="1"), pod("big", cpu="2"))
    driver.settle()

    driver.advance(seconds=700)

    bodies = [decode_body(r) for r in driver.records if r.kind == "Unschedulable"]
    first, *others = [body for body in bodies if isinstance(body, Unschedulable)]
    assert first.message
    assert others
    assert all(other.same_as and not other.message for other in others)
    assert_replays(driver)


def test_several_attempts_may_be_in_flight(driver: Driver) -> None:
    driver.put(node("n1", cpu="2"), *(pod(f"p{i}") for i in range(3)))

    decisions = [driver.attempt() for _ in range(3)]

    kinds = [type(d.outcomes[0][1]) for d in decisions if d is not None]
    assert [Scheduled, Scheduled, Unschedulable] == kinds
    driver.commit()
    assert_replays(driver)


def _delete(driver: Driver) -> None:
    driver.delete(node("n1"))


def _cordon(driver: Driver) -> None:
    driver.put(b.node("n1").label({ZONE: "a"}).capacity(cpu="4").cordon().build())


def _fill(driver: Driver) -> None:
    driver.put(b.pod("intruder").request(cpu="3500m").on("n1").build())


def _delete_pod(driver: Driver) -> None:
    driver.delete(pod("web"))


def _bind_pod(driver: Driver) -> None:
    driver.put(b.pod("web").request(cpu="1").scheduler("default-scheduler").on("n2").build())


@pytest.mark.parametrize("disturb", [_delete, _cordon, _fill, _delete_pod, _bind_pod])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_what_comes_between_decision_and_commit_aborts_the_binding(
    driver: Driver, disturb: object, in_flight: int
) -> None:
    driver.put(node("n1"), pod("web"))
    driver.put(*(pod(f"other{i}", cpu="100m") for i in range(in_flight - 1)))
    for _ in range(in_flight):
        driver.attempt()

    disturb(driver)  # type: ignore[operator]
    driver.commit()

    aborted = [decode_body(r) for r in driver.records if r.kind == "AttemptAborted"]
    assert aborted
    assert all(isinstance(body, AttemptAborted) and body.reason for body in aborted)
    assert driver.placements().get("default/web", "") != "n1"
    driver.settle()
    assert_replays(driver)


def test_aborted_pod_is_tried_again_at_once(driver: Driver) -> None:
    driver.put(node("n1"), pod("web"))
    driver.attempt()

    driver.put(node("n2"))
    driver.delete(node("n1"))
    driver.commit()
    driver.settle()

    assert driver.placements() == {"default/web": "n2"}
    assert_replays(driver)


@pytest.mark.parametrize(
    "ended",
    [
        b.pod("web").request(cpu="1").scheduler("default-scheduler").on("n1"),
        b.pod("web").request(cpu="1").scheduler("default-scheduler").on("n2").nominated("n1"),
        b.pod("web").request(cpu="1").scheduler("default-scheduler").phase("Failed"),
    ],
)
def test_pod_that_somebody_bound_or_that_ended_in_flight_is_not_tried_again(
    driver: Driver, ended: b.PodBuilder
) -> None:
    driver.put(node("n1"), node("n2"), pod("web"))
    driver.attempt()

    driver.put(ended.build())
    driver.commit()
    driver.settle()

    assert [r.kind for r in driver.records][-1] == "AttemptAborted"
    assert len(driver.core.queue) == len(driver.core.queue.nominator) == 0
    driver.delete(pod("web"))
    driver.settle()
    assert_replays(driver)


def test_heartbeat_between_decision_and_commit_hurts_nobody(driver: Driver) -> None:
    driver.put(node("n1"), pod("web"))
    driver.attempt()

    driver.put(b.node("n1").label({ZONE: "a"}).capacity(cpu="4").condition("Ready").build())
    driver.commit()

    assert driver.placements() == {"default/web": "n1"}
    assert_replays(driver)


def test_configuration_may_come_after_the_pods() -> None:
    driver = Driver()
    driver.put(node("n1"), pod("web"))

    driver.start()
    driver.settle()

    assert driver.placements() == {"default/web": "n1"}
    assert_replays(driver)


def test_log_cut_after_any_record_recovers_and_verifies(driver: Driver) -> None:
    driver.put(node("n1", cpu="2"), *(pod(f"p{i}") for i in range(4)))
    for _ in range(3):
        driver.attempt()
    driver.put(node("n2", zone="b"))
    driver.commit()
    driver.advance(seconds=30)

    for cut in range(len(driver.records) + 1):
        prefix = driver.records[:cut]
        report = verify(prefix, Registry())
        assert report.first_difference is None
        recovered = recover(prefix, Registry())
        assert cut == recovered.seq
        assert not report.digest or recovered.digest() == report.digest


def test_same_facts_give_the_same_log() -> None:
    logs = []
    for _ in range(2):
        driver = Driver()
        driver.start()
        driver.put(
            *(node(f"n{i}", zone="abc"[i % 3]) for i in range(7)),
            *(pod(f"p{i}", app="web") for i in range(40)),
        )
        driver.advance(seconds=20)
        logs.append(driver.records)

    assert logs[0] == logs[1]


def test_wait_that_is_over_is_ended_by_one_attempt_however_many_are_in_flight() -> None:
    from tests.worlds.stories import configuration, registry

    driver = Driver(registry())
    driver.start(configuration(driver.registry))
    driver.put(node("n1"), pod("slow", slow="yes"))
    driver.settle()

    driver.now += 20 * 1_000_000_000
    decisions = [driver.attempt() for _ in range(3)]
    driver.commit()

    assert [d.key for d in decisions if d is not None] == ["Pod/default/slow"]


def test_configuration_with_a_plugin_that_is_not_installed_says_which() -> None:
    from tests.worlds.stories import configuration, registry

    driver = Driver(registry())
    driver.start(configuration(driver.registry))

    with pytest.raises(PluginError, match=r"plugin SlowPermit: record 2 .*install it"):
        recover(driver.records, Registry())


def test_pod_that_changed_while_its_binding_was_being_committed_is_tried_again_as_it_is_now(
    driver: Driver,
) -> None:
    driver.put(node("n1"), node("n2", zone="b"), pod("web"))
    decision = driver.attempt()
    assert decision is not None
    other = "n2" if decision.relies[0].node == "n1" else "n1"
    wanted = b.pod("web").request(cpu="1").scheduler("default-scheduler")

    driver.put(wanted.node_selector({"kubernetes.io/hostname": other}).build())
    driver.commit()
    driver.settle()

    (scheduled,) = (decode_body(record) for record in driver.records if record.kind == "Scheduled")
    assert isinstance(scheduled, Scheduled)
    assert (scheduled.node, scheduled.feasible) == (other, 1)
    assert_replays(driver)


def test_pod_that_changed_while_it_waited_for_a_permit_is_tried_again_as_it_is_now() -> None:
    """Its second rejection says what the first one said, and so changes nothing about it that would tell the queue."""
    from tests.worlds.stories import configuration, registry

    driver = Driver(registry())
    driver.start(configuration(driver.registry))
    driver.put(node("n1"), pod("web", slow="yes"))
    driver.advance(seconds=30)
    assert [*driver.kinds()][-3:] == ["Waiting", "Unschedulable", "Waiting"]

    quick = driver.pod("web")
    driver.put(replace(quick, metadata=replace(quick.metadata, labels={})))
    driver.advance(seconds=60)

    assert driver.placements() == {"default/web": "n1"}


class Admission(Plugin):
    """Lets who is not labelled `ready` wait for twenty seconds, in vain. Nothing but that label helps."""

    name = "Admission"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult() if "ready" in pod.labels else PermitResult(Status(Code.WAIT), 20)

    def events_to_register(self) -> list[EventRegistration]:
        labelled = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
        return [EventRegistration(labelled, lambda *_: Hint.QUEUE)]


@pytest.mark.parametrize(
    ("changed", "compat", "tried"),
    [
        (pod("web", ready="yes"), "default", True),
        (
            b.pod("web").request(cpu="1").annotate({"note": "more"}).scheduler("default-scheduler").build(),
            "default",
            False,
        ),
        (pod("web", ready="yes"), "upstream", False),
    ],
)
def test_change_of_a_pod_that_waits_for_a_permit_wakes_it_when_it_gets_none(
    changed: Pod, compat: str, tried: bool
) -> None:
    """If it helps. In kube-scheduler, which keeps changes of assumed pods from its queue, only the flush after five minutes does."""
    driver = Driver(Registry((*IN_TREE, Admission)))
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"permit": {"enabled": [{"name": "Admission"}]}}}],
        "tidelog": {"compat": compat},
    }
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(node("n1"), pod("web"))
    driver.advance(seconds=5)
    assert [*driver.kinds()][-1] == "Waiting"

    driver.put(changed)
    driver.advance(seconds=10)
    queue = driver.core.queue
    assert [*driver.kinds()][-2:] == ["Waiting", "ObjectPut"]
    assert queue.statistics().inflight_events == {"PodPopped": 1} | (
        {"TargetPodUpdatePodLabel": 1} if tried else {}
    )

    driver.advance(seconds=20)
    assert ("default/web" in driver.placements()) is tried


def test_record_out_of_turn_is_our_mistake(driver: Driver) -> None:
    driver.put(node("n1"))

    with pytest.raises(InternalError, match=r"record \d+ was applied after record \d+"):
        driver.core.apply(driver.records[-1])


def test_what_a_repeated_rejection_refers_to_is_told_before_it_is_in_the_log(driver: Driver) -> None:
    driver.put(node("n1", cpu="1"), pod("big", cpu="2"))
    first = driver.attempt()
    assert first is not None
    ((key, full),) = first.outcomes
    assert isinstance(full, Unschedulable)
    assert driver.core.in_full(key, full) is full
    driver.commit()

    driver.put(node("n2", cpu="1"))
    driver.delete(node("n2", cpu="1"))
    driver.advance(seconds=299)
    driver.now += 30_000_000_000
    driver.append(Draft(body=Tick(), author="ticker"))
    again = driver.attempt()

    assert again is not None
    ((key, short),) = again.outcomes
    assert isinstance(short, Unschedulable)
    assert (short.message, driver.core.in_full(key, short).message) == ("", full.message)
    driver.commit()


def test_facts_about_nothing_change_nothing() -> None:
    """A tick before there is any configuration, a condition of a pod that has gone."""
    driver = Driver()
    ready = PodConditionSet(condition=Condition(type="Ready", status="True"))

    driver.append(Draft(body=Tick(), author="ticker"))
    driver.set_condition(pod("gone"), ready)

    assert driver.core.seq == 2
    assert dict(driver.core.objects) == {}
    assert driver.core.next_attempt_at(driver.now) is None


def test_outcome_for_a_pod_that_there_is_not_is_our_mistake(driver: Driver) -> None:
    core = recover(driver.records, driver.registry)
    body = Scheduled(attempt=1, observed=2, at=1, epoch=1, node="n1")
    last = driver.records[-1]
    record = Record(last.seq + 1, last.at, "scheduler", "Scheduled", "Pod/default/ghost", 0, b"", bytes(32))

    with pytest.raises(InternalError, match="an outcome for Pod/default/ghost, which does not exist"):
        core.apply(record, body)


def test_pods_of_a_profile_that_another_configuration_lacks_are_waited_for_by_nobody(driver: Driver) -> None:
    def profiles(*names: str) -> SchedulerConfiguration:
        header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        document = {**header, "profiles": [{"schedulerName": name} for name in names]}
        return resolve_configuration(document, driver.registry).configuration

    other = b.pod("other").request(cpu="1").scheduler("other-scheduler").build()
    driver.configure(profiles("default-scheduler", "other-scheduler"))
    driver.put(other, pod("web"))
    queue = driver.core.queue
    assert queue.get("default/other") is not None

    driver.configure(profiles("default-scheduler"))
    driver.put(node("n1"))
    driver.settle()

    queue = driver.core.queue
    assert queue.get("default/other") is None
    assert driver.placements() == {"default/web": "n1"}
    driver.configure(profiles("other-scheduler"))
    driver.settle()
    assert driver.placements() == {"default/web": "n1", "default/other": "n1"}
    assert_replays(driver)
