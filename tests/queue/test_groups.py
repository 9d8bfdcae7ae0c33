"""Pod groups as entities, in the default mode; kube-scheduler's way is held by the recorded traces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.toys import (
    NODE_ADD,
    NODE_LABEL,
    TARGET_LABEL,
    Bench,
    Gate,
    Listener,
    Toy,
    for_me,
    no,
    node,
    on,
    toy,
    uid,
)
from tidelog.api.errors import InternalError
from tidelog.api.times import NANOS
from tidelog.framework.events import WILDCARD
from tidelog.queue.group_rules import QueuedGroupInfo
from tidelog.queue.places import Places
from tidelog.queue.scheduling_queue import QueueRejection
from tidelog.testing import builders as build

KEY = "default/g"
FIT = QueueRejection(("Fit",))
ERROR = QueueRejection()


def member(name: str, group: str = "g") -> build.PodBuilder:
    return build.pod(name).group(group)


def rejected(*names: str, by: QueueRejection = FIT) -> dict[str, QueueRejection]:
    return {uid(name): by for name in names}


def bench_with_group(*plugins: Any, names: str = "abc", config: Any = None, **info: Any) -> Bench:
    """A group of members that are all there."""
    bench = Bench(*(plugins or [toy("Fit", NODE_ADD)]), **(config or {}))
    bench.queue.add_group(QueuedGroupInfo(key=KEY, **info), bench.now)
    bench.add(*map(member, names))
    return bench


def group_where(bench: Bench) -> str:
    found = bench.queue.get_group(KEY)
    return "nowhere" if found is None else str(found.where)


def wheres(bench: Bench, names: str) -> list[str]:
    return [bench.where(name) for name in names]


# --- membership -----------------------------------------------------------------------------------------------------------


def test_members_wait_outside_until_their_group_is_known() -> None:
    bench = Bench()
    bench.add(member("a"), member("b"), "single")
    assert wheres(bench, "ab") == ["incomplete_member", "incomplete_member"]
    assert bench.queue.statistics().pending_pods["incomplete"] == 2

    bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)

    assert wheres(bench, "ab") == ["active", "active"]
    assert sorted(bench.pop_all()) == ["g", "single"]


def test_group_is_popped_as_one_with_its_members_in_order() -> None:
    bench = Bench()
    bench.queue.add_group(QueuedGroupInfo(key=KEY, priority=3), bench.now)
    bench.add(build.pod("single").priority(2), member("b"), member("c").priority(1), member("a"))

    group = bench.pop()

    assert group is bench.group(KEY)
    assert [pod.key for pod in bench.group(KEY).popped] == ["default/c", "default/a", "default/b"]
    assert bench.queue.scheduling_cycle == 1
    assert {attempt.number for attempt in bench.queue.contents().in_flight} == {1}


def test_attempt_of_each_member_knows_when_its_group_was_popped_and_what_it_could_know() -> None:
    bench = bench_with_group(names="ab")
    bench.wait(7)
    bench.pop()

    attempts = [bench.queue.in_flight.get(uid(name)) for name in "ab"]

    assert [(a.number, a.seq, a.at) for a in attempts if a is not None] == 2 * [(1, bench.seq, bench.now)]
    assert [bench.get(name).attempted_at for name in "ab"] == [bench.now, bench.now]


def test_members_remember_when_their_group_first_entered_the_active_queue() -> None:
    bench = bench_with_group(names="ab", min_count=3)
    assert bench.get("a").entered_active_at == 0
    bench.wait(5)

    bench.add(member("c"))
    first = bench.now
    bench.wait(5)
    bench.add(member("d"))

    assert [bench.get(name).entered_active_at - first for name in "abcd"] == [0, 0, 0, 5 * NANOS]


def test_member_that_comes_while_the_group_is_tried_joins_when_that_ends() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.add(member("late"))
    assert bench.where("late") == "pending_member"
    assert bench.queue.statistics().pending_pods["pending"] == 1

    bench.finish_group(KEY, "success", {})

    assert wheres(bench, ["a", "b", "late"]) == ["in_flight", "in_flight", "active"]  # type: ignore[arg-type]


def test_group_without_members_left_is_forgotten_with_its_counters() -> None:
    bench = bench_with_group(names="a")
    bench.pop()
    bench.finish_group(KEY, "success", {})
    bench.queue.done(uid("a"))
    assert group_where(bench) == "nowhere"

    bench.add(member("b"))

    assert bench.group(KEY).attempts == 0


def test_deleting_the_groups_object_sends_its_members_outside_with_their_records() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    bench.queue.delete_group(KEY)

    assert wheres(bench, "ab") == ["incomplete_member", "incomplete_member"]
    assert bench.get("a").unschedulable_count == 1
    assert bench.popped() == ""


def test_deleting_the_groups_object_in_flight_does_so_when_the_attempt_ends() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()

    bench.queue.delete_group(KEY)
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    assert wheres(bench, "ab") == ["incomplete_member", "incomplete_member"]
    assert bench.queue.get_group(KEY) is None


def test_member_that_came_in_flight_waits_outside_if_the_object_is_gone_at_the_end() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.add(member("late"))

    bench.queue.delete_group(KEY)
    bench.finish_group(KEY, "success", {})

    assert bench.where("late") == "incomplete_member"
    assert [pod.key for pod in bench.queue.contents().incomplete_members] == ["default/late"]


def test_deleted_members_leave_their_group_and_the_last_takes_it_along() -> None:
    bench = bench_with_group(names="ab")

    bench.queue.delete(member("a").build(), bench.now)
    assert (bench.where("a"), group_where(bench)) == ("nowhere", "active")

    bench.queue.delete(member("b").build(), bench.now)
    assert group_where(bench) == "nowhere"
    assert bench.popped() == ""


def test_member_deleted_in_flight_does_not_return() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.queue.delete(member("a").build(), bench.now)

    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    assert list(bench.group(KEY).members) == ["default/b"]
    assert bench.queue.in_flight.timeline() == []


def test_finishing_a_group_that_is_not_in_flight_is_our_mistake() -> None:
    bench = bench_with_group()

    with pytest.raises(InternalError, match="group default/g is not in flight"):
        bench.finish_group(KEY, "success", {})
    with pytest.raises(InternalError, match="group default/g is not in flight"):
        bench.queue.abort_group(KEY, bench.now)


# --- the rules for groups --------------------------------------------------------------------------------------------------


def test_gang_waits_until_min_count_members_are_known() -> None:
    bench = bench_with_group(names="ab", min_count=3)
    assert group_where(bench) == "unschedulable"
    assert bench.group(KEY).gating_plugin == "GangScheduling"
    assert bench.group(KEY).gating_reasons == (
        "waiting for minCount pods from a gang to appear in scheduling queue",
    )
    assert bench.queue.statistics().gated_pods == {"GangScheduling": 2}

    bench.add(member("c"))

    assert group_where(bench) == "active"


@pytest.mark.parametrize("config", [{}, {"pop_from_backoff": False}, {"upstream": True}])
@pytest.mark.parametrize(
    "story", ["waits", "flushed", "another rule", "failed and lost members", "failed and was activated"]
)
def test_member_that_does_not_complete_a_gang_leaves_the_pool_as_if_the_gang_had_been_taken_out(
    monkeypatch: Any, config: dict[str, Any], story: str
) -> None:
    def told() -> tuple[Any, ...]:
        heard = Listener()
        bench = Bench(toy("Fit", NODE_ADD), observer=heard, **config)
        rules: dict[str, int] = {"min_count": 4}
        if story in ("waits", "flushed", "another rule"):
            rules.update(desired_count=6, desired_count_wait=900 * NANOS)
        bench.queue.add_group(QueuedGroupInfo(key=KEY, **rules), bench.now)
        bench.add(member("a"))
        if "failed" in story:
            bench.add(*map(member, "bcd"))
            for number in range(6):
                bench.pop()
                bench.finish_group(KEY, "unschedulable", rejected(*"abcd"))
                if number < 5:
                    bench.wait(200)
                    bench.node_added(f"n{number}")
                    bench.advance(0)
        if story == "failed and lost members":
            for name in "bc":
                bench.queue.delete(member(name).build(), bench.now)
        elif story == "failed and was activated":
            bench.queue.activate([member("a").build()], bench.seq, bench.now)
            bench.queue.add_group(QueuedGroupInfo(key=KEY, min_count=9), bench.now)
            bench.add(member("w"))
        elif story == "flushed":
            bench.advance(400)
        bench.queue.add_group(QueuedGroupInfo(key="default/h", min_count=4), bench.now)
        bench.add(member("h1", "h"))
        bench.wait(1)
        bench.add(member("x"))
        if story == "another rule":
            bench.add(member("y"), member("z"))
        pool = bench.queue._places.pool
        parked = [(entity.key, entity.filed_under) for entity in pool.all()]
        return parked, bench.queue.dump_state(), heard.entries

    quick = told()
    monkeypatch.setattr(Places, "keeps_out", lambda *_: False)

    assert quick == told()
    if not config:
        assert [key for key, _ in quick[0]] == ["default/h", KEY]


def test_placed_members_count_for_the_gang() -> None:
    bench = bench_with_group(names="ab", min_count=3)

    bench.queue.add_group(QueuedGroupInfo(key=KEY, min_count=3, placed=1), bench.now)

    assert group_where(bench) == "active"


def test_gang_is_let_go_when_its_min_count_is_lowered() -> None:
    bench = bench_with_group(names="ab", min_count=3)

    bench.queue.add_group(QueuedGroupInfo(key=KEY, min_count=2), bench.now)

    assert group_where(bench) == "active"


def test_gang_that_loses_a_member_waits_again() -> None:
    bench = bench_with_group(names="abc", min_count=3)

    bench.queue.delete(member("a").build(), bench.now)

    assert bench.group(KEY).is_gated


def test_members_in_flight_count_for_the_gang() -> None:
    bench = bench_with_group(names="ab", min_count=2)
    bench.pop()
    bench.add(member("late"))

    bench.finish_group(KEY, "success", {})

    assert group_where(bench) == "active"


def test_gang_is_not_held_by_a_rule_upstream() -> None:
    bench = bench_with_group(names="a", min_count=3, config={"upstream": True})

    assert group_where(bench) == "active"


def test_group_waits_a_moment_for_its_desired_count() -> None:
    bench = bench_with_group(names="a", desired_count=3, desired_count_wait=5 * NANOS)
    assert bench.group(KEY).gating_plugin == "DesiredCount"
    assert bench.queue.next_deadline() == bench.now + 5 * NANOS
    assert bench.queue.waits_until(bench.group(KEY)) == bench.now + 5 * NANOS
    bench.wait(3)
    bench.add(member("b"))
    assert group_where(bench) == "unschedulable"

    bench.advance(2)

    assert group_where(bench) == "active"


def test_wait_for_the_desired_count_ends_nothing_for_a_group_that_left_the_pool() -> None:
    # Without pop_from_backoff the gates are not tried on the way into the backoff queue.
    bench = bench_with_group(names="ab", config={"pop_from_backoff": False})
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    bench.queue.add_group(QueuedGroupInfo(key=KEY, desired_count=9, desired_count_wait=60 * NANOS), bench.now)
    bench.advance(2)
    assert bench.group(KEY).gating_plugin == "DesiredCount"
    bench.group(KEY).expiry = bench.now + 90 * NANOS
    bench.event(WILDCARD)
    assert group_where(bench) == "backoff"

    bench.advance(60)

    assert group_where(bench) == "backoff"


def test_desired_count_ends_the_wait() -> None:
    bench = bench_with_group(names="a", desired_count=2, desired_count_wait=5 * NANOS)

    bench.add(member("b"))

    assert group_where(bench) == "active"
    assert bench.queue.next_deadline() is None


def test_the_wait_is_counted_from_the_first_member_and_never_repeated() -> None:
    bench = bench_with_group(names="a", desired_count=3, desired_count_wait=5 * NANOS)
    bench.advance(5)
    bench.pop()
    bench.finish_group(KEY, "success", {})
    bench.queue.done(uid("a"))
    bench.queue.add_group(
        QueuedGroupInfo(key=KEY, desired_count=3, desired_count_wait=5 * NANOS, placed=1), bench.now
    )

    bench.add(member("b"))

    assert group_where(bench) == "active"


def test_dissolved_group_is_not_waited_for() -> None:
    bench = bench_with_group(names="a", desired_count=3, desired_count_wait=5 * NANOS)
    bench.queue.delete(member("a").build(), bench.now)

    assert bench.queue.next_deadline() is None
    bench.advance(10)
    assert group_where(bench) == "nowhere"


def test_one_gated_member_gates_the_group_and_each_knows_its_own_gate() -> None:
    bench = Bench(Gate("Hold", on(WILDCARD)))
    bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)
    bench.add(member("a"), member("b").gate("Hold"))
    assert bench.group(KEY).gating_plugin == "Hold"
    assert [bench.get(name).gating_plugin for name in "ab"] == ["", "Hold"]
    bench.plugins[0].closed = False

    bench.node_added()

    assert group_where(bench) == "active"
    assert bench.get("b").gating_plugin == ""


# --- after an attempt -------------------------------------------------------------------------------------------------------


def test_rejected_group_waits_for_the_hints_of_all_its_rejectors() -> None:
    bench = bench_with_group(toy("Fit", NODE_ADD, for_me), toy("Taints", NODE_LABEL, for_me), names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", {uid("a"): FIT, uid("b"): QueueRejection(("Taints",))})
    bench.wait(60)
    assert group_where(bench) == "unschedulable"

    bench.node_added("b")
    assert group_where(bench) == "unschedulable", "b was not rejected by Fit"

    bench.event(NODE_LABEL, None, node("b"))
    assert group_where(bench) == "active"


def test_members_that_nobody_rejected_do_not_wake_a_group_that_somebody_did() -> None:
    bench = bench_with_group(toy("Fit", NODE_ADD, no), toy("Other", NODE_LABEL), names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", {uid("a"): FIT, uid("b"): ERROR})
    bench.wait(60)

    bench.event(NODE_LABEL, None, node("n"))

    assert group_where(bench) == "unschedulable"


def test_group_that_nobody_rejected_only_backs_off() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()

    bench.finish_group(KEY, "unschedulable", rejected("a", "b", by=ERROR))

    assert group_where(bench) == "backoff"


def test_event_during_the_attempt_wakes_the_group() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.node_added()

    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    assert group_where(bench) == "backoff"
    assert bench.queue.in_flight.timeline() == []


def test_change_of_a_member_during_the_attempt_wakes_the_group() -> None:
    bench = bench_with_group(toy("Fit", TARGET_LABEL), names="ab")
    bench.pop()
    bench.update(member("b").label(app="x"), TARGET_LABEL)

    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    assert group_where(bench) == "backoff"


def test_pending_plugins_take_the_group_past_its_backoff() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b", by=QueueRejection(pending=("Fit",))))

    bench.node_added()

    assert group_where(bench) == "active"


def test_rejected_group_is_on_the_rejected_side_of_the_backoff_queue_and_an_error_on_the_other() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.node_added()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    assert bench.popped() == KEY.removeprefix("default/")

    bench.finish_group(KEY, "error", rejected("a", "b", by=ERROR))

    assert group_where(bench) == "backoff"
    assert bench.popped() == ""


def test_side_of_the_backoff_queue_followed_the_members_before_behaviour_12() -> None:
    bench = bench_with_group(names="abc", config={"group_errors_wait": False})
    bench.pop()
    bench.finish_group(KEY, "error", {**rejected("a"), **rejected("b", by=ERROR)})
    contents = bench.queue.contents()
    assert (len(contents.backoff_rejected), len(contents.backoff_errors)) == (1, 0)

    bench.queue.delete(member("a").build(), bench.now)
    contents = bench.queue.contents()
    assert (len(contents.backoff_rejected), len(contents.backoff_errors)) == (0, 1)

    bench.reject("c", "Fit")
    contents = bench.queue.contents()
    assert (len(contents.backoff_rejected), len(contents.backoff_errors)) == (1, 0)


def test_group_with_an_error_waits_though_another_member_was_rejected() -> None:
    bench = bench_with_group(names="abc")
    bench.pop()

    bench.finish_group(KEY, "error", {**rejected("a"), **rejected("b", by=ERROR)})

    contents = bench.queue.contents()
    assert (len(contents.backoff_rejected), len(contents.backoff_errors)) == (0, 1)
    assert bench.popped() == ""


@pytest.mark.parametrize("place", ["backoff", "active", "unschedulable"])
def test_member_that_comes_back_with_an_error_makes_its_queued_group_back_off(place: str) -> None:
    """As when volumes are refused of members that were bound while another one found no node."""
    bench = bench_with_group(names="abc")
    for errors in range(1, 4):
        bench.pop()
        bench.finish_group(KEY, "success", rejected("c"))
        if place != "active":
            bench.pop()
            if place == "backoff":
                bench.node_added()
            bench.finish_group(KEY, "unschedulable", rejected("c"))
        assert group_where(bench) == place

        bench.reject("a")
        bench.reject("b")

        group = bench.group(KEY)
        assert (group_where(bench), sorted(group.members)) == (
            "backoff",
            ["default/a", "default/b", "default/c"],
        )
        assert group.consecutive_errors == errors
        assert bench.popped() == ""
        free_at = bench.queue.next_backoff_end()
        assert free_at is not None
        assert free_at - bench.now > 2 ** (errors - 1) * NANOS
        bench.now = free_at
        bench.queue.flush_backoff(bench.now)
        assert group_where(bench) == "active"


@pytest.mark.parametrize("status", ["success", "unschedulable"])
def test_member_that_comes_back_with_an_error_in_flight_makes_its_group_back_off(status: Any) -> None:
    bench = bench_with_group(names="abc")
    bench.pop()
    bench.finish_group(KEY, "success", rejected("c"))
    bench.pop()

    bench.reject("a")
    bench.finish_group(KEY, status, rejected("c"))

    assert (group_where(bench), bench.group(KEY).consecutive_errors) == ("backoff", 1)
    assert bench.popped() == ""


def test_member_that_comes_back_rejected_lets_an_idle_scheduler_try_its_group_early() -> None:
    bench = bench_with_group(names="abc")
    bench.pop()
    bench.finish_group(KEY, "success", rejected("c"))
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("c"))

    bench.reject("a", "Fit")

    assert group_where(bench) == "backoff"
    assert bench.popped() == "g"


def test_upstream_group_is_retried_without_any_event() -> None:
    bench = bench_with_group(names="ab", config={"upstream": True})
    bench.pop()

    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    assert group_where(bench) == "backoff"
    bench.advance(2)
    assert group_where(bench) == "active"


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.add(member("new")),
        lambda bench: bench.queue.delete(member("a").build(), bench.now),
        lambda bench: bench.queue.add_group(QueuedGroupInfo(key=KEY, min_count=1), bench.now),
        lambda bench: bench.queue.add_group(QueuedGroupInfo(key=KEY, placed=1), bench.now),
    ],
    ids=["member added", "member deleted", "rules changed", "member placed elsewhere"],
)
def test_change_of_the_group_wakes_it(change: Any) -> None:
    waiting = bench_with_group(names="abc")
    waiting.pop()
    waiting.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))
    waiting.wait(60)
    assert group_where(waiting) == "unschedulable"

    change(waiting)

    assert group_where(waiting) == "active"

    flying = bench_with_group(names="abc")
    flying.pop()

    change(flying)
    flying.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))

    assert group_where(flying) == "backoff"


@pytest.mark.parametrize(
    ("now", "helps"),
    [
        ({"placed": 3}, True),
        ({"placed": 2}, False),
        ({"placed": 1}, False),
        ({"placed": 1, "min_count": 1}, True),
    ],
)
def test_group_may_be_placed_that_has_more_placed_members_or_other_rules(
    now: dict[str, int], helps: bool
) -> None:
    before = QueuedGroupInfo(key=KEY, placed=2)

    assert QueuedGroupInfo(key=KEY, **now).may_help(before) is helps


def test_losing_a_placed_member_does_not_wake_the_group() -> None:
    bench = bench_with_group(names="ab", placed=1)
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    bench.wait(60)

    bench.queue.add_group(QueuedGroupInfo(key=KEY, placed=0), bench.now)

    assert group_where(bench) == "unschedulable"


def test_members_left_over_by_a_success_are_tried_at_once_in_the_groups_place() -> None:
    bench = bench_with_group(names="abc")
    bench.wait(1)
    bench.add("later")
    bench.pop()

    bench.finish_group(KEY, "success", rejected("c"))

    assert (bench.group(KEY).unschedulable_count, list(bench.group(KEY).members)) == (0, ["default/c"])
    assert bench.popped() == "g"


def test_success_clears_the_group_of_what_rejected_it_before() -> None:
    bench = bench_with_group(names="abc")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))
    assert bench.group(KEY).unschedulable_count == 1
    bench.event(WILDCARD)
    bench.pop()

    bench.finish_group(KEY, "success", rejected("c", by=ERROR))

    group = bench.group(KEY)
    assert (group.unschedulable_plugins, group.unschedulable_count) == ((), 0)


def test_member_that_fails_after_its_groups_success_backs_off_with_its_group() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "success", {})

    bench.reject("a")

    assert group_where(bench) == "backoff"
    assert list(bench.group(KEY).members) == ["default/a"]


def test_group_whose_members_were_all_ended_before_its_result_is_done() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.queue.done(uid("a"))
    bench.queue.done(uid("b"))

    bench.finish_group(KEY, "success", {})

    assert group_where(bench) == "nowhere"


def test_aborted_group_is_tried_again_at_once_with_its_place_and_counters() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.node_added()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    bench.advance(5)
    bench.add("later")
    bench.pop()
    before = bench.group(KEY).timestamp

    bench.queue.abort_group(KEY, bench.now)

    group = bench.group(KEY)
    assert (group.timestamp, group.unschedulable_count, len(group.members)) == (before, 1, 2)
    assert bench.popped() == "g"


def test_aborted_member_alone_returns_to_the_active_queue() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "success", {})

    bench.queue.abort(uid("a"), bench.now)

    assert group_where(bench) == "active"


def test_aborted_group_whose_members_are_gone_is_gone() -> None:
    bench = bench_with_group(names="a")
    bench.pop()
    bench.queue.delete(member("a").build(), bench.now)

    bench.queue.abort_group(KEY, bench.now)

    assert group_where(bench) == "nowhere"
    assert bench.queue.in_flight.timeline() == []


def test_new_priority_of_the_group_reorders_it() -> None:
    bench = bench_with_group(names="ab")
    bench.wait(-1)
    bench.add("older")

    bench.queue.add_group(QueuedGroupInfo(key=KEY, priority=1), bench.now)

    assert bench.pop_all() == ["g", "older"]


def test_activating_a_member_activates_its_group() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    bench.queue.activate([member("b").build()], bench.seq, bench.now)

    assert group_where(bench) == "active"


def test_activating_a_member_in_flight_activates_its_queued_group_and_is_not_kept() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "success", {})
    bench.reject("a")
    assert (group_where(bench), bench.where("b")) == ("backoff", "in_flight")

    bench.queue.activate([member("b").build()], bench.seq, bench.now)

    assert group_where(bench) == "active"
    assert len(bench.queue.in_flight.timeline()) == 1


def test_activating_a_member_of_an_unknown_group_does_nothing() -> None:
    bench = Bench()
    bench.add(member("a"))

    bench.queue.activate([member("a").build()], bench.seq, bench.now)

    assert bench.where("a") == "incomplete_member"


def test_activating_a_member_in_flight_whose_group_is_gone_keeps_nothing() -> None:
    bench = bench_with_group(names="a")
    bench.pop()
    bench.queue.delete_group(KEY)

    bench.queue.activate([member("a").build()], bench.seq, bench.now)

    assert len(bench.queue.in_flight.timeline()) == 1


def test_update_of_a_waiting_member_is_judged_for_its_group() -> None:
    bench = bench_with_group(Toy("Fit", on(TARGET_LABEL)), names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    bench.wait(60)

    bench.update(member("a").label(app="x"), TARGET_LABEL)

    assert group_where(bench) == "active"
    assert bench.get("a").pod.metadata.labels == {"app": "x"}


@pytest.mark.parametrize("place", ["incomplete_member", "pending_member"])
def test_update_of_a_member_outside_the_queues_replaces_it(place: str) -> None:
    bench = Bench()
    if place == "pending_member":
        bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)
        bench.add(member("first"))
        bench.pop()
    bench.add(member("a"))

    bench.update(member("a").label(app="x"), TARGET_LABEL)

    assert bench.where("a") == place
    assert bench.get("a").pod.metadata.labels == {"app": "x"}


def test_group_that_stayed_too_long_is_tried_again() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))

    bench.advance(301)

    assert group_where(bench) == "active"
    assert bench.group(KEY).was_flushed


def test_flush_that_a_closed_gate_stops_does_not_count() -> None:
    bench = Bench(Gate("Hold"))
    bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)
    bench.add(member("a").gate("Hold"))

    bench.advance(301)

    assert bench.group(KEY).is_gated
    assert not bench.group(KEY).was_flushed


def test_figures_count_the_members() -> None:
    bench = bench_with_group(names="abc")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))
    bench.add("single")

    found = bench.queue.statistics()

    assert found.pending_pods["unschedulable"] == 3
    assert found.queued_entities["unschedulable", "podgroup"] == 1
    assert found.queued_entities["active", "pod"] == 1
    assert found.unschedulable_pods == {("Fit", ""): 3}


@pytest.mark.parametrize("finished", [False, True])
def test_groups_survive_a_reload(finished: bool) -> None:
    bench = bench_with_group(names="abc", min_count=2, desired_count=3, desired_count_wait=5 * NANOS)
    bench.queue.add_group(
        QueuedGroupInfo(key="default/h", desired_count=9, desired_count_wait=60 * NANOS), bench.now
    )
    bench.add(member("h1", "h"), member("lost", "unknown"))
    bench.pop()
    bench.node_added()
    bench.add(member("late"))
    if finished:
        bench.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))

    bench.reload()
    if not finished:
        bench.finish_group(KEY, "unschedulable", rejected("a", "b", "c"))

    assert group_where(bench) == "backoff"
    assert [pod.key for pod in bench.queue.contents().incomplete_members] == ["default/lost"]
    assert bench.queue.next_deadline() == 160 * NANOS
    bench.advance(60)
    assert bench.group("default/h").where == "active"


def test_observer_hears_that_a_waiting_group_has_a_member_more() -> None:
    heard = Listener()
    bench = Bench(observer=heard)
    bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)

    bench.add(member("a"), member("b"))

    assert heard.entries == [(KEY, "active", "UnscheduledPodAdd")] * 2


def test_first_gated_member_speaks_for_the_group() -> None:
    bench = Bench(Gate("One"), Gate("Two"))
    bench.queue.add_group(QueuedGroupInfo(key=KEY), bench.now)
    bench.add(member("a").gate("One"), member("b").gate("Two").priority(5))

    bench.add(member("c"))

    assert bench.group(KEY).gating_plugin == "Two"


def test_precheck_that_no_member_passes_keeps_the_group_asleep() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.finish_group(KEY, "unschedulable", rejected("a", "b"))
    bench.wait(60)

    bench.event(NODE_ADD, None, node("n"), precheck=lambda pod: False)
    assert group_where(bench) == "unschedulable"

    bench.event(NODE_ADD, None, node("n"), precheck=lambda pod: pod.metadata.name == "b")
    assert group_where(bench) == "active"


def test_group_around_a_member_that_was_rejected_backs_off_as_long_as_that_one() -> None:
    bench = bench_with_group(names="a")
    for _ in range(2):
        bench.pop()
        bench.finish_group(KEY, "success", {})
        bench.reject("a", "Fit")
        bench.advance(60)

    assert (bench.group(KEY).unschedulable_count, bench.group(KEY).consecutive_errors) == (2, 0)


def test_group_that_was_forgotten_waits_for_its_desired_count_anew() -> None:
    bench = bench_with_group(names="a", desired_count=2, desired_count_wait=60 * NANOS)
    bench.queue.delete_group(KEY)
    bench.queue.delete(member("a").build(), bench.now)
    bench.wait(600)

    bench.queue.add_group(QueuedGroupInfo(key=KEY, desired_count=2, desired_count_wait=60 * NANOS), bench.now)
    bench.add(member("a"))

    assert bench.queue.next_deadline() == bench.now + 60 * NANOS


def test_aborted_group_leaves_alone_the_members_whose_part_has_ended() -> None:
    bench = bench_with_group(names="ab")
    bench.pop()
    bench.queue.done(uid("a"))

    bench.queue.abort_group(KEY, bench.now)

    assert (wheres(bench, "ab"), list(bench.group(KEY).members)) == (["nowhere", "active"], ["default/b"])


def test_the_last_member_to_leave_the_waiting_room_takes_the_groups_entry_along() -> None:
    bench = Bench()
    bench.add(member("a"), member("b"))
    bench.queue.delete(member("a").build(), bench.now)
    assert bench.where("b") == "incomplete_member"

    bench.queue.delete(member("b").build(), bench.now)

    assert bench.queue.dump_state()["incomplete"] == {}
