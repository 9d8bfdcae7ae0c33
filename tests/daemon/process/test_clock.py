"""Time for the daemon's tasks: steady, and on virtual time exact."""

from __future__ import annotations

import asyncio

from tidelog.api.times import NANOS
from tidelog.daemon.process.clock import LONGEST_SLEEP, Bell, SystemClock
from tidelog.testing.virtual_time import START, VirtualClock


class Readings:
    """Two clocks of a machine, as a test sets them."""

    def __init__(self) -> None:
        self.wall = 1_000 * NANOS
        self.steady = 5 * NANOS

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall, lambda: self.steady)

    def pass_by(self, nanos: int, wall: int | None = None) -> None:
        self.steady += nanos
        self.wall += nanos if wall is None else wall


def test_clock_that_is_set_forward_is_followed() -> None:
    machine = Readings()
    clock = machine.clock()

    machine.pass_by(NANOS, wall=3600 * NANOS)

    assert clock.now() == 4600 * NANOS


def test_clock_that_is_set_back_goes_on_at_its_pace() -> None:
    machine = Readings()
    clock = machine.clock()
    machine.pass_by(10 * NANOS)
    clock.now()

    machine.pass_by(NANOS, wall=-3600 * NANOS)
    first = clock.now()
    machine.pass_by(NANOS)

    assert first == 1_011 * NANOS
    assert clock.now() == 1_012 * NANOS


def test_clock_that_stands_still_does_not_stop_time() -> None:
    machine = Readings()
    clock = machine.clock()

    machine.pass_by(2 * NANOS, wall=0)

    assert clock.now() == 1_002 * NANOS


def test_clock_that_was_set_back_before_this_process_goes_on_from_the_end_of_the_log() -> None:
    machine = Readings()
    clock = machine.clock()

    clock.not_before(4_600 * NANOS)
    first = clock.now()
    machine.pass_by(NANOS)

    assert first == 4_600 * NANOS
    assert clock.now() == 4_601 * NANOS


async def test_long_sleeps_are_cut_to_look_at_the_time_again() -> None:
    loop = asyncio.get_running_loop()

    handle = SystemClock().call_at(SystemClock().now() + 10**6 * NANOS, lambda: None)

    assert isinstance(handle, asyncio.TimerHandle)
    assert handle.when() <= loop.time() + LONGEST_SLEEP
    handle.cancel()


async def test_bell_wakes_everybody_who_waits_and_forgets() -> None:
    bell = Bell(VirtualClock())
    bell.ring()
    waiting = [asyncio.create_task(bell.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    before = [task.done() for task in waiting]

    bell.ring()
    await asyncio.gather(*waiting)

    assert before == [False] * 3


async def test_bell_gives_up_when_the_time_has_come() -> None:
    clock = VirtualClock()
    bell = Bell(clock)
    waiting = asyncio.create_task(bell.wait(START + NANOS))
    await asyncio.sleep(0)

    async def settled() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await clock.advance(NANOS - 1, settled)
    early = waiting.done()
    await clock.advance(1, settled)

    assert (early, waiting.done()) == (False, True)
    assert clock.next_at() is None


async def test_who_is_cancelled_leaves_no_appointment_behind() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(Bell(clock).wait(START + NANOS))
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])

    assert clock.next_at() is None


async def test_virtual_time_makes_each_call_at_its_time_also_those_that_come_up_on_the_way() -> None:
    clock = VirtualClock()
    made: list[tuple[str, int]] = []

    def first() -> None:
        made.append(("first", clock.now() - START))
        clock.call_at(clock.now() + NANOS, lambda: made.append(("second", clock.now() - START)))

    clock.call_at(START + NANOS, first)
    clock.call_at(START + 5 * NANOS, lambda: made.append(("late", 0)))
    clock.call_at(START + NANOS, lambda: made.append(("cancelled", 0))).cancel()

    async def settled() -> None:
        """Nobody has anything to do."""

    await clock.advance(3 * NANOS, settled)

    assert made == [("first", NANOS), ("second", 2 * NANOS)]
    assert clock.now() == START + 3 * NANOS
