"""KEP-4247, sentence by sentence: what the proposal promises of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.toys import (
    NODE_ADD,
    NODE_LABEL,
    POD_DELETE,
    Bench,
    Gate,
    Toy,
    broken,
    no,
    node,
    on,
    toy,
    uid,
    yes,
)
from tidelog.api.times import NANOS
from tidelog.framework.events import Hint, HintFn, WaitingPod
from tidelog.queue.scheduling_queue import DEFAULT_CONFIG
from tidelog.testing import builders as build


@pytest.mark.parametrize(("fit", "affinity"), [(yes, no), (no, yes), (yes, yes)])
def test_one_of_several_rejectors_is_enough(fit: HintFn, affinity: HintFn) -> None:
    """ "If either of QueueingHintFn from NodeResourceFit or NodeAffinity returns Queue, the Pod is moved to
    activeQ/backoffQ." (Pod rejected by one or more plugins)"""
    bench = Bench(toy("NodeResourcesFit", NODE_ADD, fit), toy("NodeAffinity", NODE_ADD, affinity))
    bench.add_and_reject("p", "NodeResourcesFit", "NodeAffinity")

    bench.node_added()

    assert bench.where("p") == "active"


def test_pods_are_not_retried_for_what_cannot_help_them() -> None:
    """ "Retry Pods only when the probability of getting scheduled is high." (Motivation)"""
    bench = Bench(toy("NodeResourcesFit", NODE_ADD, no), toy("NodeAffinity", NODE_LABEL, yes))
    bench.add_and_reject("p", "NodeResourcesFit")

    for event in (NODE_ADD, NODE_LABEL, POD_DELETE):
        bench.event(event, node("n"), node("n"))

    assert bench.where("p") == "unschedulable"


@pytest.mark.parametrize(("seconds", "where"), [(0.5, "backoff"), (2, "active")])
def test_the_stay_in_the_pool_counts_for_the_backoff(seconds: float, where: str) -> None:
    """ "If the time staying in the unschedulable pod pool is longer than an expected backoff delay for the pod, it
    directly goes to activeQ. Otherwise, it goes to backoffQ." (Pod rejected by one or more plugins)"""
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    bench.pop()
    bench.reject("p", "A")
    bench.wait(seconds)

    bench.node_added()

    assert bench.where("p") == where


def test_backoff_is_a_penalty_that_grows_with_wasted_cycles() -> None:
    """ "We can regard the backoff as a penalty of wasting the scheduling cycle." (When to skip/not skip backoff)"""
    bench = Bench(toy("A", NODE_ADD))
    bench.add("p")
    waits = []
    for _ in range(6):
        bench.pop()
        bench.reject("p", "A")
        bench.node_added()
        waits.append((bench.get("p").expiry - bench.now) // NANOS)
        bench.advance(60)

    assert waits == [1, 2, 4, 8, 10, 10]


def test_pending_skips_the_backoff_when_its_plugin_says_queue() -> None:
    """ "When the DRA plugin rejected the Pod with Pending and later returns Queue in its QueueingHintFn, the pod skips the
    backoff and the Pod's scheduling is retried." (When to skip/not skip backoff)"""
    bench = Bench(toy("DynamicResources", NODE_ADD), toy("NodeAffinity", NODE_LABEL))
    for name in ("waits", "wasted"):
        bench.add(name)
        bench.pop()
        bench.reject(name, "NodeAffinity", pending=["DynamicResources"])
    bench.event(NODE_LABEL, node("n"), node("n"))
    assert [bench.where("waits"), bench.where("wasted")] == ["backoff", "backoff"]

    bench.queue.delete(build.pod("waits").build(), bench.now)
    bench.add(build.pod("waits"))
    bench.pop()
    bench.reject("waits", pending=["DynamicResources"])
    bench.node_added()

    assert bench.where("waits") == "active"


def test_events_during_the_attempt_are_remembered() -> None:
    """ "The scheduling queue remembers events happened during Pods's scheduling and decide where the Pod is enqueued to
    based on those events and QueueingHint." (Track Pods being processed in the scheduling queue)"""
    bench = Bench(toy("A", NODE_ADD), toy("B", NODE_ADD, no))
    bench.add("a", "b")
    bench.pop_all()
    bench.node_added()

    bench.reject("a", "A")
    bench.reject("b", "B")

    assert [bench.where("a"), bench.where("b")] == ["backoff", "unschedulable"]


def test_remembered_events_are_discarded_as_soon_as_nobody_needs_them() -> None:
    """ "Cached events are discarded when cached events are no longer needed." (Track Pods being processed) and:
    "scheduler_inflight_events metric … isn't close to 0 when no scheduling is happening" is the alarm."""
    bench = Bench(toy("A", NODE_ADD))
    bench.add("a", "b")
    bench.pop()
    bench.node_added()
    bench.pop()
    bench.node_added()
    assert bench.queue.statistics().inflight_events == {"NodeAdd": 2, "PodPopped": 2}

    bench.queue.done(uid("a"))
    assert bench.queue.statistics().inflight_events == {"NodeAdd": 1, "PodPopped": 1}

    bench.reject("b", "A")
    assert bench.queue.statistics().inflight_events == {"PodPopped": 0}


def test_without_a_hint_function_the_answer_is_queue() -> None:
    """ "It's an optional field. If not set, the scheduling of Pods will be always retried when this Event happens. (the
    same as Queue)" (Overview)"""
    bench = Bench(toy("A", NODE_ADD, None))
    bench.add_and_reject("p", "A")

    bench.node_added()

    assert bench.where("p") == "active"


def test_hints_are_given_the_old_and_the_new_object() -> None:
    """ "`oldObj` is nil if the event is add event. `newObj` is nil if the event is delete event." (Overview)"""
    seen: list[tuple[Any, Any]] = []

    def hint(waiting: WaitingPod, old: Any, new: Any) -> Hint:
        assert waiting.pod.metadata.name == "p"
        seen.append((old, new))
        return Hint.SKIP

    bench = Bench(Toy("A", on(NODE_ADD, hint), on(POD_DELETE, hint)))
    bench.add_and_reject("p", "A")
    gone = build.pod("gone").build()

    bench.event(NODE_ADD, None, node("n"))
    bench.event(POD_DELETE, gone, None)

    assert seen == [(None, node("n")), (gone, None)]


def test_a_failing_hint_does_not_leave_the_pod_stuck() -> None:
    """ "If it returns an error, we'll take the returned QueueingHint as QueueAfterBackoff … so that we can prevent the Pod
    from being stuck in the unschedulable pod pool." (Overview)"""
    bench = Bench(toy("A", NODE_ADD, broken))
    bench.add_and_reject("p", "A")

    bench.node_added()

    assert bench.where("p") == "active"


def test_a_missing_hint_costs_five_minutes_and_no_more() -> None:
    """ "The scheduling queue flushes the Pods in the unschedulable Pod pool periodically, and the interval of flushing is
    configurable. (5m by default)" (Risks and Mitigations)"""
    assert DEFAULT_CONFIG.max_in_unschedulable == 300 * NANOS
    bench = Bench(toy("A", NODE_ADD, no), max_in_unschedulable=60 * NANOS)
    bench.add("p")
    bench.pop()
    bench.reject("p", "A")

    bench.advance(60)
    assert bench.where("p") == "unschedulable"

    bench.advance(1)
    assert bench.where("p") == "active"


def test_pre_enqueue_and_hints_have_different_duties() -> None:
    """ "PreEnqueue and QueueingHint are both for the scheduling queue, but the responsibilities are completely different
    from each other." (Non-Goals)"""
    bench = Bench(Gate("Hold", on(NODE_ADD, yes)))
    bench.add(build.pod("p").gate("Hold"))

    bench.node_added()

    assert bench.get("p").is_gated, "a hint may have the gate tried, but does not open it"


def test_with_the_gate_off_every_registered_event_requeues() -> None:
    """ "Users need to disable the feature gate." (Downgrade): then only what is registered counts, as before hints."""
    bench = Bench(toy("A", NODE_ADD, no), queueing_hints=False)
    bench.add_and_reject("p", "A")

    bench.event(NODE_LABEL, node("n"), node("n"))
    assert bench.where("p") == "unschedulable"

    bench.node_added()
    assert bench.where("p") == "active"
