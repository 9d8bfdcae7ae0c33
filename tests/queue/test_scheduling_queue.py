"""A pod's way through the queue, in the default mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.toys import (
    NODE_ADD,
    TARGET_CONDITION,
    TARGET_LABEL,
    Bench,
    Gate,
    Listener,
    Toy,
    broken,
    no,
    node,
    on,
    toy,
    uid,
)
from tidelog.api.errors import InternalError
from tidelog.api.times import NANOS
from tidelog.framework.events import TIME, WILDCARD, EventRegistration, Hint, WaitingPod
from tidelog.testing import builders as build

# --- order --------------------------------------------------------------------------------------------------------------


def test_pods_are_tried_by_priority_then_time_then_arrival() -> None:
    bench = Bench()
    bench.add("z", "a", build.pod("high").priority(5))
    bench.wait(-1)
    bench.add("old")

    assert bench.pop_all() == ["high", "old", "z", "a"]


def test_woken_pod_keeps_its_place() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add_and_reject("first", "A")
    bench.add("second")

    bench.node_added()

    assert bench.pop_all() == ["first", "second"]


def test_update_of_the_priority_reorders_the_active_queue() -> None:
    bench = Bench()
    bench.add("a", "b")

    bench.update(build.pod("b").priority(1))

    assert bench.pop_all() == ["b", "a"]


def test_update_of_the_priority_reorders_the_backoff_queue() -> None:
    bench = Bench(toy("A", NODE_ADD))
    for name in ("a", "b"):
        bench.add(name)
        bench.pop()
        bench.reject(name, "A")
    bench.node_added()
    assert [bench.where("a"), bench.where("b")] == ["backoff", "backoff"]

    bench.update(build.pod("b").priority(1))

    assert bench.pop_all() == ["b", "a"]


# --- attempts -------------------------------------------------------------------------------------------------------------


def test_rejected_pod_waits_for_an_event_and_then_for_its_backoff() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    assert bench.popped() == "p"

    bench.reject("p", "A")
    assert bench.where("p") == "unschedulable"

    bench.node_added()
    assert bench.where("p") == "backoff"

    bench.advance(2)
    assert bench.where("p") == "active"


def test_pod_rejected_as_pending_skips_the_backoff() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    bench.pop()
    bench.reject("p", pending=["A"])

    bench.node_added()

    assert bench.where("p") == "active"


def test_failed_pod_backs_off_and_needs_no_event() -> None:
    bench = Bench()
    bench.add("p")
    bench.pop()

    bench.reject("p")

    assert bench.where("p") == "backoff"
    assert bench.popped() == "", "an error is not popped early"
    bench.advance(2)
    assert bench.popped() == "p"


def test_pod_whose_attempt_ended_well_is_gone() -> None:
    bench = Bench()
    bench.add("p")
    popped = bench.pop()
    assert popped is not None

    bench.queue.done(uid("p"))
    bench.queue.done(uid("p"))

    assert popped.where == "gone"
    assert bench.where("p") == "nowhere"
    assert len(bench.queue) == 0


def test_event_during_the_attempt_wakes_the_pod_when_it_fails() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    bench.pop()
    bench.node_added()

    bench.reject("p", "A")

    assert bench.where("p") == "backoff"


def test_event_before_the_attempt_does_not() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("old", "p")
    bench.pop()
    bench.node_added()
    bench.pop()

    bench.reject("p", "A")

    assert bench.where("p") == "unschedulable"


def test_change_of_the_pod_during_its_attempt_is_judged_when_it_fails() -> None:
    def is_labelled(waiting: WaitingPod, old: Any, new: Any) -> Hint:
        assert new == waiting.pod
        return Hint.QUEUE if new.metadata.labels != old.metadata.labels else Hint.SKIP

    bench = Bench(toy("A", TARGET_LABEL, is_labelled))
    bench.add("p", "other")
    bench.pop_all()
    bench.update(build.pod("p").label(app="x"), TARGET_LABEL)

    bench.reject("p", "A")
    bench.reject("other", "A")

    assert [bench.where("p"), bench.where("other")] == ["backoff", "unschedulable"]
    assert bench.get("p").pod.metadata.labels == {"app": "x"}


def test_aborted_attempt_returns_the_pod_at_once_with_its_place_and_counters() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add_and_reject("p", "A")
    bench.node_added()
    bench.add("later")
    bench.pop()
    before = bench.get("p")
    timestamp, count = before.timestamp, before.unschedulable_count

    bench.queue.abort(uid("p"), bench.now)

    after = bench.get("p")
    assert (after.timestamp, after.unschedulable_count, after.consecutive_errors) == (timestamp, count, 0)
    assert bench.pop_all() == ["p", "later"]


def test_pod_that_changed_during_an_aborted_attempt_takes_the_place_that_it_has_now() -> None:
    """What has changed about a pod in flight is the usual reason to abort its attempt."""
    bench = Bench()
    bench.add("p")
    bench.pop()
    bench.add(build.pod("other").priority(5))
    bench.update(build.pod("p").priority(9))

    bench.queue.abort(uid("p"), bench.now)

    assert bench.pop_all() == ["p", "other"]


def test_aborted_attempt_of_a_pod_that_is_gone_just_ends() -> None:
    bench = Bench()
    bench.add("p")
    bench.pop()
    bench.queue.delete(build.pod("p").build(), bench.now)

    bench.queue.abort(uid("p"), bench.now)

    assert bench.where("p") == "nowhere"
    assert bench.queue.in_flight.timeline() == []


@pytest.mark.parametrize("end", ["fail", "abort"])
def test_ending_an_attempt_that_is_not_under_way_is_our_mistake(end: str) -> None:
    bench = Bench()
    bench.add("p")

    with pytest.raises(InternalError, match="pod default/p is not in flight"):
        getattr(bench.queue, end)(uid("p"), now=bench.now)

    assert bench.where("p") == "active"


# --- additions, updates, deletions ----------------------------------------------------------------------------------------


def test_adding_a_pod_twice_is_our_mistake() -> None:
    bench = Bench()
    bench.add("p")

    with pytest.raises(InternalError, match="added to the queue twice"):
        bench.add("p")

    assert bench.pop_all() == ["p"]


@pytest.mark.parametrize("place", ["active", "backoff", "unschedulable"])
def test_pod_is_deleted_wherever_it_waits(place: str) -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    if place != "active":
        bench.pop()
        bench.reject("p", *(["A"] if place == "unschedulable" else []))
    assert bench.where("p") == place

    bench.queue.delete(build.pod("p").build(), bench.now)

    assert bench.where("p") == "nowhere"
    bench.event(WILDCARD)
    bench.advance(1000)
    assert bench.popped() == ""


def test_pod_deleted_in_flight_is_not_requeued() -> None:
    bench = Bench()
    bench.add("p")
    bench.pop()
    bench.queue.delete(build.pod("p").build(), bench.now)

    bench.reject("p", "A")

    assert bench.where("p") == "nowhere"
    assert bench.queue.in_flight.timeline() == []


def test_namesake_of_a_pod_in_flight_is_a_pod_of_its_own() -> None:
    bench = Bench()
    bench.add(build.pod("p").uid("1"))
    bench.pop()
    bench.queue.delete(build.pod("p").uid("1").build(), bench.now)
    bench.add(build.pod("p").uid("2"))

    bench.queue.fail("1", ("A",), now=bench.now)

    assert bench.where("p") == "active"
    assert bench.get("p").attempts == 0


def test_namesake_replaces_a_pod_whose_deletion_was_not_told() -> None:
    bench = Bench()
    bench.add(build.pod("p").uid("1").priority(5))

    bench.update(build.pod("p").uid("2"))

    assert bench.get("p").uid == "2"
    assert bench.pop_all() == ["p"]


def test_deleting_an_earlier_namesake_leaves_the_pod_alone() -> None:
    bench = Bench()
    bench.add(build.pod("p").uid("2"))

    bench.queue.delete(build.pod("p").uid("1").build(), bench.now)

    assert bench.where("p") == "active"


def test_pod_that_comes_again_under_its_uid_while_in_flight_is_tried_again_if_that_attempt_fails() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add_and_reject("p", "A")
    bench.node_added()
    popped_at = bench.now
    bench.pop()
    bench.wait(1)
    bench.queue.delete(build.pod("p").build(), bench.now)

    bench.add(build.pod("p").priority(7))

    assert bench.where("p") == "in_flight"
    assert bench.get("p").attempted_at == popped_at
    bench.reject("p", "A")
    assert bench.where("p") == "backoff"
    again = bench.get("p")
    assert (again.attempts, again.unschedulable_count) == (1, 1)
    assert again.pod.spec.priority == 7
    bench.reload()


def test_update_of_a_pod_that_is_nowhere_adds_it() -> None:
    bench = Bench()

    bench.update(build.pod("p"))

    assert bench.where("p") == "active"


@pytest.mark.parametrize("gone", [build.pod("p").on("n"), build.pod("p").phase("Failed")])
def test_update_of_a_pod_that_is_not_pending_any_more_adds_nothing(gone: build.PodBuilder) -> None:
    bench = Bench()
    bench.add("p")
    bench.pop()
    bench.queue.delete(build.pod("p").build(), bench.now)

    bench.update(gone)
    bench.queue.abort(uid("p"), bench.now)

    assert len(bench.queue) == 0
    assert bench.pop() is None


def test_update_in_the_pool_is_judged_by_the_hints_change_by_change() -> None:
    listener = Listener()
    bench = Bench(Toy("A", on(TARGET_LABEL), on(TARGET_CONDITION)), observer=listener)
    bench.add_and_reject("p", "A")

    bench.update(build.pod("p").label(app="x"), TARGET_CONDITION, TARGET_LABEL)

    assert bench.where("p") == "active"
    assert [event for _, _, event, _ in listener.answers] == ["TargetPodUpdatePodCondition"]


# --- gates ----------------------------------------------------------------------------------------------------------------


def test_gated_pod_is_not_tried_and_says_why() -> None:
    bench = Bench(Gate("Hold"))

    bench.add(build.pod("p").gate("Hold"))

    assert bench.popped() == ""
    assert bench.get("p").gating_plugin == "Hold"
    assert bench.get("p").gating_reasons == ("Hold is closed",)
    assert bench.get("p").attempts == 0


def test_gates_are_tried_in_order_but_the_closed_one_first() -> None:
    bench = Bench(Gate("One"), Gate("Two"))
    one, two = bench.plugins
    one.closed = False
    bench.add(build.pod("p").gate("One", "Two"))
    assert bench.get("p").gating_plugin == "Two"
    one.closed = True

    bench.event(WILDCARD)
    assert bench.get("p").gating_plugin == "Two"

    two.closed = False
    bench.event(WILDCARD)
    assert bench.get("p").gating_plugin == "One"


def test_a_gate_that_fails_is_closed_and_shows_its_bug() -> None:
    class Broken(Toy):
        def pre_enqueue(self, pod: Any) -> None:
            raise KeyError("oops")

    bench = Bench(Broken("Bad"))

    bench.add("p")

    assert bench.get("p").gating_plugin == "Bad"
    assert bench.get("p").gating_reasons == ("KeyError: 'oops'",)


def test_gate_is_tried_on_the_way_into_backoff_and_not_on_the_way_out() -> None:
    bench = Bench(Gate("Hold"), toy("A", NODE_ADD))
    bench.plugins[0].closed = False
    bench.add(build.pod("p").gate("Hold"))
    bench.pop()
    bench.reject("p", "A")
    bench.node_added()
    assert bench.where("p") == "backoff"
    bench.plugins[0].closed = True

    bench.advance(2)

    assert bench.where("p") == "active"


# --- what the queue remembers for the hints ---------------------------------------------------------------------------------


def test_first_rejection_of_each_plugin_is_remembered_and_later_ones_do_not_move_it() -> None:
    bench = Bench(toy("A", NODE_ADD), toy("B", NODE_ADD))
    start = bench.now
    bench.add_and_reject("p", "A")
    bench.node_added()
    bench.pop()

    bench.reject("p", "A", pending=["B"])

    assert bench.get("p").first_rejected_at == {"A": start, "B": start + 60 * NANOS}
    assert bench.get("p").attempted_at == start + 60 * NANOS


def test_first_rejections_are_forgotten_when_the_pod_is_ungated() -> None:
    bench = Bench(Gate("Hold"), toy("A", NODE_ADD))
    hold = bench.plugins[0]
    hold.closed = False
    bench.add_and_reject(build.pod("p").gate("Hold"), "A")
    hold.closed = True
    bench.event(WILDCARD)
    assert bench.get("p").is_gated
    assert "A" in bench.get("p").first_rejected_at

    hold.closed = False
    bench.event(WILDCARD)

    assert bench.get("p").first_rejected_at == {}


def test_first_way_into_the_active_queue_is_remembered() -> None:
    bench = Bench(Gate("Hold"))
    bench.add(build.pod("p").gate("Hold"))
    assert bench.get("p").entered_active_at == 0
    bench.plugins[0].closed = False
    bench.wait(5)

    bench.event(WILDCARD)
    first = bench.now
    bench.wait(5)
    bench.pop()
    bench.reject("p")
    bench.advance(5)

    assert bench.get("p").entered_active_at == first


# --- activation -------------------------------------------------------------------------------------------------------------


def test_activation_ignores_the_backoff_and_the_lack_of_events() -> None:
    bench = Bench(Toy("Deaf"))
    bench.add("a", "b")
    bench.pop_all()
    bench.reject("a", "Deaf")
    bench.reject("b")

    bench.queue.activate([build.pod("a").build(), build.pod("b").build()], bench.seq, bench.now)

    assert [bench.where("a"), bench.where("b")] == ["active", "active"]


def test_activation_does_not_open_a_gate() -> None:
    bench = Bench(Gate("Hold"))
    pod = build.pod("p").gate("Hold")
    bench.add(pod)

    bench.queue.activate([pod.build()], bench.seq, bench.now)

    assert bench.get("p").is_gated


def test_activation_of_a_pod_in_flight_counts_when_it_fails() -> None:
    bench = Bench(Toy("Deaf"))
    bench.add("a", "b")
    bench.pop_all()

    bench.queue.activate([build.pod("a").build(), build.pod("nobody").build()], bench.seq, bench.now)
    bench.reject("a", "Deaf")
    bench.reject("b", "Deaf")

    assert [bench.where("a"), bench.where("b")] == ["backoff", "unschedulable"]


# --- time -------------------------------------------------------------------------------------------------------------------


def due(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """As a plugin with a timeout of ten minutes asks: the deadline is over, and no attempt has seen that yet."""
    deadline = waiting.first_rejected_at["Timer"] + 600 * NANOS
    return Hint.QUEUE if waiting.attempted_at < deadline <= new.at else Hint.SKIP


def timer_bench() -> Bench:
    return Bench(
        Toy("Timer", EventRegistration(TIME, due)), toy("Other", NODE_ADD), max_in_unschedulable=10**15
    )


def test_pod_is_woken_by_the_first_tick_after_its_deadline_and_only_by_that() -> None:
    bench = timer_bench()
    bench.add("p")
    bench.pop()
    bench.reject("p", "Timer")
    bench.wait(599)
    bench.tick()
    assert bench.where("p") == "unschedulable"

    bench.wait(30)
    bench.tick()
    assert bench.where("p") == "active"

    bench.pop()
    bench.reject("p", "Timer")
    bench.wait(30)
    bench.tick()
    assert bench.where("p") == "unschedulable"


def test_deadline_that_falls_into_an_attempt_is_not_missed() -> None:
    bench = timer_bench()
    bench.add_and_reject("p", "Timer")
    bench.queue.activate([build.pod("p").build()], bench.seq, bench.now)
    bench.wait(520)
    bench.pop()
    bench.wait(60)
    bench.tick()

    bench.reject("p", "Timer")

    assert bench.where("p") == "backoff"


def test_ticks_are_needed_only_while_somebody_waits_for_time() -> None:
    bench = timer_bench()
    bench.add_and_reject("other", "Other")
    assert bench.queue.next_time_due() is None

    bench.add_and_reject("p", "Timer")
    assert bench.queue.next_time_due() is not None

    bench.queue.delete(build.pod("p").build(), bench.now)
    assert bench.queue.next_time_due() is None


def test_next_backoff_end_is_when_the_pod_may_be_tried() -> None:
    bench = Bench()
    assert bench.queue.next_backoff_end() is None
    bench.add("p")
    bench.pop()
    bench.reject("p")
    end = bench.queue.next_backoff_end()
    assert end is not None

    bench.queue.flush_backoff(end - 1)
    assert bench.where("p") == "backoff"

    bench.queue.flush_backoff(end)
    assert bench.where("p") == "active"
    assert bench.queue.next_backoff_end() is None


def test_next_deadline_is_when_a_stay_in_the_pool_has_been_too_long() -> None:
    bench = Bench(Toy("Deaf"), max_in_unschedulable=300 * NANOS)
    assert bench.queue.next_deadline() is None
    bench.add("p")
    bench.pop()
    bench.reject("p", "Deaf")
    deadline = bench.queue.next_deadline()
    assert deadline is not None

    bench.queue.advance(bench.seq, deadline - 1)
    assert bench.where("p") == "unschedulable"

    bench.queue.advance(bench.seq, deadline)
    assert bench.where("p") == "active"
    assert bench.queue.next_deadline() is None


def test_waits_until_is_when_time_alone_lets_a_pod_go_on() -> None:
    bench = Bench(Toy("Deaf"), max_in_unschedulable=300 * NANOS)
    bench.add("a", "b", "c")
    bench.pop()
    bench.reject("a")
    bench.pop()
    bench.reject("b", "Deaf")

    found = [bench.queue.waits_until(bench.get(name)) for name in "abc"]

    assert found == [bench.now + 2 * NANOS, bench.now + 300 * NANOS + 1, None]


def test_pod_of_a_profile_that_is_gone_is_retried_for_anything_it_missed() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("a", build.pod("p").scheduler("gone"))
    bench.pop_all()
    bench.node_added()

    bench.reject("p", "A")

    assert bench.where("p") == "backoff"


def test_flush_is_seen_by_pods_in_flight() -> None:
    bench = Bench(Toy("Deaf"))
    bench.add_and_reject("stuck", "Deaf")
    bench.add("p")
    bench.pop()

    bench.advance(300)
    bench.reject("p", "Deaf")

    assert [bench.where("stuck"), bench.where("p")] == ["active", "backoff"]


# --- gate off, popping from backoff -------------------------------------------------------------------------------------------


def test_with_queueing_hints_off_registered_events_move_what_the_plugin_rejected() -> None:
    bench = Bench(toy("A", NODE_ADD, no), toy("B", TARGET_LABEL, no), queueing_hints=False)
    bench.add_and_reject("a", "A")
    bench.add_and_reject("b", "B")

    bench.node_added()

    assert [bench.where("a"), bench.where("b")] == ["active", "unschedulable"]


def test_with_nothing_active_a_rejected_pod_is_popped_before_its_backoff_ends() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    bench.pop()
    bench.reject("p", "A")
    bench.node_added()

    assert bench.popped() == "p"


def test_without_pop_from_backoff_it_waits() -> None:
    bench = Bench(toy("A", NODE_ADD), pop_from_backoff=False)
    bench.add("p")
    bench.pop()
    bench.reject("p", "A")
    bench.node_added()
    assert bench.popped() == ""

    bench.advance(1)
    assert bench.popped() == ""

    bench.advance(1e-9)
    assert bench.popped() == "p"


# --- nominations and figures ------------------------------------------------------------------------------------------------


def test_nominations_follow_the_pod() -> None:
    bench = Bench()
    bench.add(build.pod("p").nominated("n1"))
    assert [pod.name for pod in bench.queue.nominator.pods_on("n1")] == ["p"]

    bench.update(build.pod("p").nominated("n2"))
    assert bench.queue.nominator.node_of(build.pod("p").build()) == "n2"

    bench.queue.delete(build.pod("p").build(), bench.now)
    assert len(bench.queue.nominator) == 0


def test_statistics_are_what_is_there() -> None:
    bench = Bench(Gate("Hold"), toy("A", NODE_ADD), toy("B", NODE_ADD, broken))
    for name in ("rejected", "error", "flying"):
        bench.add(name)
    bench.pop_all()
    bench.node_added()
    bench.queue.done(uid("flying"))
    bench.add("flying2")
    bench.pop()
    bench.node_added()
    bench.reject("error")
    bench.add("active", build.pod("gated").gate("Hold"))
    bench.reject("rejected", "A", pending=["A"])
    bench.add(build.pod("asleep").priority(9))
    bench.pop()
    bench.reject("asleep", "A", "B")

    found = bench.queue.statistics()

    assert found.pending_pods == {
        "active": 2,
        "backoff": 1,
        "unschedulable": 1,
        "gated": 1,
        "incomplete": 0,
        "pending": 0,
    }
    assert found.queued_entities["backoff", "pod"] == 1
    assert found.queued_entities["gated", "podgroup"] == 0
    assert found.unschedulable_pods == {("A", ""): 2, ("B", ""): 1, ("Hold", ""): 1}
    assert found.gated_pods == {"Hold": 1}
    assert found.inflight_events == {"NodeAdd": 1, "PodPopped": 1}
    assert found.oldest_attempt is not None
    assert found.oldest_attempt.pod.key == "default/flying2"


def test_observer_hears_why_pods_enter_the_queues() -> None:
    listener = Listener()
    bench = Bench(toy("A", NODE_ADD), observer=listener)
    bench.add("p")
    bench.pop()
    bench.reject("p", "A")
    bench.node_added()
    bench.pop()
    bench.reject("p")
    bench.advance(5)

    assert [(where, event) for _, where, event in listener.entries] == [
        ("active", "UnscheduledPodAdd"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "NodeAdd"),
        ("active", "PopFromBackoffQ"),
        ("backoff", "ScheduleAttemptFailure"),
        ("active", "BackoffComplete"),
    ]


def test_observer_hears_that_an_aborted_attempt_brought_the_pod_back() -> None:
    listener = Listener()
    bench = Bench(observer=listener)
    bench.add("p")
    bench.pop()
    listener.entries.clear()

    bench.queue.abort(uid("p"), bench.now)

    assert listener.entries == [("default/p", "active", "AttemptAborted")]


def test_attempt_knows_its_number_and_what_it_could_know() -> None:
    bench = Bench()
    bench.add("a", "b")
    bench.pop()
    bench.event(NODE_ADD, None, node("n"))
    bench.pop()

    attempt = bench.queue.in_flight.get(uid("b"))

    assert attempt is not None
    assert (attempt.number, attempt.seq, attempt.at) == (2, 3, bench.now)
    assert bench.queue.scheduling_cycle == 2


def test_hints_are_told_which_budgets_were_in_the_way() -> None:
    seen: list[tuple[str, ...]] = []

    def hint(waiting: WaitingPod, old: Any, new: Any) -> Hint:
        seen.append(waiting.blocked_by)
        return Hint.SKIP

    bench = Bench(toy("A", NODE_ADD, hint))
    bench.add("p")
    bench.pop()
    bench.queue.fail(uid("p"), ["A"], now=bench.now, blocked_by=("PodDisruptionBudget/default/b",))

    bench.node_added()

    assert seen == [("PodDisruptionBudget/default/b",)]


def test_hints_are_told_which_constraints_have_fallen_back_for_the_nomination() -> None:
    bench = timer_bench()
    bench.add_and_reject("p", "Timer")
    namesake = build.pod("p").uid("another").build()

    bench.queue.mark_fallback(build.pod("p").build(), "n1", (0, 2))
    bench.queue.mark_fallback(namesake, "n2", (1,))
    bench.queue.mark_fallback(build.pod("unknown").build(), "n3", (1,))

    assert (bench.get("p").fallback_node, bench.get("p").fallback_constraints) == ("n1", (0, 2))


def test_oldest_attempt_is_the_one_that_was_popped_first() -> None:
    bench = Bench()
    bench.add("a", "b")
    bench.pop_all()

    oldest = bench.queue.statistics().oldest_attempt

    assert oldest is not None
    assert oldest.pod.key == "default/a"


def test_tick_lets_go_whom_time_alone_lets_go_and_is_kept_under_its_own_record() -> None:
    bench = Bench(
        Toy("Timer", EventRegistration(TIME, due)), toy("Other", NODE_ADD), max_in_unschedulable=NANOS
    )
    bench.add_and_reject("asleep", "Other")
    bench.add("flying")
    bench.pop()

    bench.tick()

    assert bench.where("asleep") == "active"
    assert [event[0] for event in bench.queue.dump_state()["events"]] == [bench.seq, bench.seq]
