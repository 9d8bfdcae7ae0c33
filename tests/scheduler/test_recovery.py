"""Following a log that somebody else writes: no record is consumed before the attempts that were popped in front of it."""

from __future__ import annotations

import random

import pytest

from tests.thorough import cases
from tests.worlds.objects import node
from tests.worlds.stories import registry, story
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import NotTheRecorded
from tidelog.scheduler.recovery import Recovery
from tidelog.scheduler.state import encode_state, load_state
from tidelog.testing import builders as b
from tidelog.testing.sandbox import assert_tables_agree

STORIES = cases(12, "TIDELOG_STORIES")


def exhaust(recovery: Recovery) -> list[int]:
    return [record.seq for record, _ in recovery.advance()]


def finish(recovery: Recovery) -> Core:
    for _ in recovery.finish():
        pass
    return recovery.core


@pytest.mark.parametrize("seed", range(STORIES))
def test_follower_that_is_fed_in_pieces_ends_where_recovery_ends(seed: int) -> None:
    told = story(seed)
    for _ in range(40):
        told.step()
    told.quiet()
    records = told.driver.records
    rnd = random.Random(seed)

    recovery = Recovery(Core(registry()))
    place = 0
    while place < len(records):
        step = rnd.choice([1, 1, 2, 7, 30])
        recovery.add(records[place : place + step])
        place += step
        exhaust(recovery)
        assert recovery.core.seq + recovery.waiting == recovery.read
    core = finish(recovery)

    assert told.driver.core.digest() == core.digest()
    assert recover(records, registry()).digest() == core.digest()
    assert_tables_agree(records, core)


@pytest.mark.parametrize("seed", range(0, STORIES, 4))
def test_follower_may_begin_at_a_snapshot(seed: int) -> None:
    told = story(seed)
    for _ in range(20):
        told.step()
    told.quiet()
    snapshot = encode_state(told.driver.core)
    seq = told.driver.core.seq
    for _ in range(20):
        told.step()
    told.quiet()

    core = load_state(snapshot, registry())
    assert core is not None
    recovery = Recovery(core)
    recovery.add(told.driver.records[seq:])
    exhaust(recovery)

    assert told.driver.core.digest() == finish(recovery).digest()


@pytest.mark.parametrize("seed", range(0, STORIES, 4))
def test_log_that_ends_anywhere_is_recovered_as_a_whole(seed: int) -> None:
    told = story(seed)
    for _ in range(15):
        told.step()
    records = told.driver.records

    for end in range(len(records) + 1):
        recovery = Recovery(Core(registry()))
        recovery.add(records[:end])

        assert recover(records[:end], registry()).digest() == finish(recovery).digest()


def started() -> Driver:
    driver = Driver()
    driver.start()
    driver.put(
        node("n1", cpu="1"), *(b.pod(f"p{i}").scheduler("default-scheduler").build() for i in range(3))
    )
    return driver


def test_facts_wait_until_it_is_known_that_no_attempt_was_popped_before_them() -> None:
    driver = started()
    driver.attempt()
    driver.put(node("n2"))
    driver.commit()
    facts, outcome = driver.records[:-1], driver.records[-1:]

    recovery = Recovery(Core(Registry()))
    recovery.add(facts)
    before = exhaust(recovery)
    recovery.add(outcome)
    after = exhaust(recovery)

    # The first two are the start of a scheduler, before which nothing can be in flight, and its configuration.
    assert before == [1]
    assert after == [2, 3, 4, 5, 6]
    assert recovery.waiting == 2


def test_snapshot_of_the_scheduler_makes_everything_before_it_certain() -> None:
    driver = started()
    driver.settle()
    driver.put(node("n2"), node("n3"))
    last = driver.core.seq

    recovery = Recovery(Core(Registry()))
    recovery.add(driver.records)
    exhaust(recovery)
    assert recovery.waiting > 0
    recovery.nothing_in_flight_at(last)
    exhaust(recovery)

    assert recovery.waiting == 0
    assert driver.core.digest() == recovery.core.digest()


def test_snapshot_beyond_what_was_read_says_nothing_yet() -> None:
    driver = started()
    driver.attempt()
    driver.put(node("n2"))

    recovery = Recovery(Core(Registry()))
    recovery.add(driver.records)
    recovery.nothing_in_flight_at(driver.core.seq + 1)
    exhaust(recovery)

    assert recovery.core.seq == 1


def test_attempts_that_an_old_scheduler_lost_do_not_hold_up_who_follows_the_new_one() -> None:
    driver = started()
    driver.attempt()
    lost = Driver()
    lost.core, lost.records = recover(driver.records, Registry()), list(driver.records)
    lost.start()

    recovery = Recovery(Core(Registry()))
    recovery.add(lost.records)
    exhaust(recovery)

    assert recovery.core.epoch == 2


def test_outcome_of_a_pod_that_was_not_next_is_refused() -> None:
    driver = started()
    facts = list(driver.records)
    decisions = [driver.attempt() for _ in range(2)]
    second = decisions[1]
    assert second is not None

    core = recover(facts, Registry())

    with pytest.raises(
        NotTheRecorded, match=r"was about Pod/default/p1, and now attempt 1 is about Pod/default/p0"
    ):
        core.readopt(1, driver.now, second.outcomes)


def test_outcome_that_comes_too_late_is_refused() -> None:
    driver = started()
    driver.attempt()
    driver.put(node("n2"))
    driver.commit()
    *facts, outcome = driver.records

    recovery = Recovery(recover(facts, Registry()))

    with pytest.raises(NotTheRecorded, match="behind"):
        recovery.add([outcome])
