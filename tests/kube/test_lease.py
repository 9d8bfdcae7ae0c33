"""One leader in a cluster: by the Lease, by a clock that nobody sets, and by stopping itself."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_promises import assert_bound_once, is_binding
from tidelog.api.times import NANOS
from tidelog.configuration.cluster import LeaseOptions
from tidelog.daemon.process.clock import SystemClock
from tidelog.eventlog.log import Log
from tidelog.eventlog.memory import MemoryStore
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.lease import Lease, held_by_another
from tidelog.kube.cluster.live import ClusterSettings
from tidelog.kube.cluster.waiting import pause
from tidelog.testing.virtual_time import VirtualClock

SETTINGS = LeaseOptions()


class Machine:
    """One that seeks the Lease, with a wall clock of its own."""

    def __init__(self, server: MemoryServer, clock: VirtualClock, name: str) -> None:
        self.skew = 0
        self.wall = _Skewed(self, clock)
        self.log = Log(MemoryStore(name), clock=clock.now)
        self.inbox = Inbox(self.log, clock)
        self.lease = Lease(
            server, SETTINGS, name, self.wall, clock.now, self.inbox, Random(name), lambda: None
        )
        self.tasks = [asyncio.create_task(self.inbox.run()), asyncio.create_task(self.lease.run())]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.log.close()


class _Skewed(SystemClock):
    """The machine's clock, as it is when somebody sets it; waits are those of the true one."""

    def __init__(self, machine: Machine, clock: VirtualClock) -> None:
        self._true = clock
        super().__init__(lambda: clock.now() + machine.skew, clock.now)

    def call_at(self, at: int, call: Any) -> Any:
        return self._true.call_at(self._true.now() + max(at - self.now(), 0), call)


async def advance(clock: VirtualClock, seconds: float) -> None:
    async def settle() -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    await clock.advance(round(seconds * NANOS), settle)


@pytest.mark.parametrize("skew", [0, 3600, -3600])
async def test_second_waits_as_long_as_the_first_renews_and_takes_over_when_it_does_not(skew: int) -> None:
    server, clock = MemoryServer(), VirtualClock()
    first = Machine(server, clock, "a")
    await advance(clock, 5)
    second = Machine(server, clock, "b")
    second.skew = skew * NANOS
    await advance(clock, 60)
    both = (first.lease.leading, second.lease.leading)
    for task in first.tasks:
        task.cancel()
    ended = clock.now()
    while not second.lease.leading:
        await advance(clock, 0.5)
    waited = (clock.now() - ended) / NANOS
    await advance(clock, 5)

    assert both == (True, False)
    assert 13 <= waited <= 20
    assert not first.lease.may_write()
    assert second.lease.transitions == 1
    await first.end()
    await second.end()


async def test_clock_that_jumps_makes_nobody_lead_early() -> None:
    server, clock = MemoryServer(), VirtualClock()
    first, second = Machine(server, clock, "a"), Machine(server, clock, "b")
    await advance(clock, 10)
    holder = first if first.lease.leading else second
    other = second if holder is first else first
    for jump in (3600, -7200, 86_400):
        other.skew += jump * NANOS
        holder.skew -= jump * NANOS
        await advance(clock, 20)

        assert (holder.lease.may_write(), other.lease.leading) == (True, False)
    await first.end()
    await second.end()


async def test_leader_without_contact_stops_before_another_can_begin() -> None:
    server, clock = MemoryServer(), VirtualClock()
    first = Machine(server, clock, "a")
    await advance(clock, 5)
    server.unreachable = True
    stopped = clock.now()
    while first.lease.may_write():
        await advance(clock, 0.5)
    silent = (clock.now() - stopped) / NANOS
    await advance(clock, 5)

    assert silent <= SETTINGS.renew_deadline
    assert SETTINGS.renew_deadline + 5 <= SETTINGS.duration
    assert not first.lease.leading
    server.unreachable = False
    await advance(clock, 30)
    assert first.lease.may_write()
    await first.end()


async def test_lease_counts_from_the_beginning_of_a_renewal_whose_answer_was_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, clock = MemoryServer(), VirtualClock()
    begun: list[int] = []
    send = server.send

    async def slow(request: Any) -> Any:
        if request.method == "PUT":
            begun.append(clock.now())
            answer = await send(request)
            await pause(clock, 4)
            return answer
        return await send(request)

    monkeypatch.setattr(server, "send", slow)
    first = Machine(server, clock, "a")
    while len(begun) < 3:
        await advance(clock, 0.5)
    await advance(clock, 4.5)
    renewed = begun[-2] if begun[-1] > clock.now() - 4 * NANOS else begun[-1]
    server.unreachable = True
    while first.lease.may_write():
        await advance(clock, 0.5)

    assert clock.now() - renewed <= (SETTINGS.renew_deadline + 0.5) * NANOS
    await first.end()


async def test_lease_that_is_released_is_free_at_once() -> None:
    server, clock = MemoryServer(), VirtualClock()
    first = Machine(server, clock, "a")
    await advance(clock, 5)
    second = Machine(server, clock, "b")
    await advance(clock, 5)
    await first.lease.release()
    for task in first.tasks:
        task.cancel()
    await advance(clock, 3)

    assert second.lease.leading
    await first.end()
    await second.end()


async def test_kube_scheduler_that_renews_its_lease_is_seen() -> None:
    server, clock = MemoryServer(), VirtualClock()
    server.put(
        "leases", "kube-system", "kube-scheduler", spec={"holderIdentity": "k", "leaseDurationSeconds": 15}
    )
    asking = asyncio.create_task(held_by_another(server, "kube-system", "kube-scheduler", clock))
    await advance(clock, 4)
    server.put("leases", "kube-system", "kube-scheduler", spec={"renewTime": "later"})
    await advance(clock, 30)
    stale = asyncio.create_task(held_by_another(server, "kube-system", "kube-scheduler", clock))
    await advance(clock, 60)

    assert await asking == "k"
    assert await stale == ""


def leading(**more: Any) -> dict[str, Any]:
    return {"lease": SETTINGS, **more}


async def test_two_schedulers_with_logs_of_their_own_bind_each_pod_once() -> None:
    server, clock = MemoryServer(), VirtualClock()
    for number in range(3):
        server.add_node(f"n{number}")
    a = LiveWorld(server, clock=clock, identity="a", **leading())
    b = LiveWorld(server, clock=clock, identity="b", store=MemoryStore("b"), **leading())
    async with a:
        await a.advance(5)
        async with b:
            for number in range(10):
                server.add_pod(f"p{number}")
            await a.advance(5)
            await a.kill()
            for number in range(10):
                server.add_pod(f"q{number}")
            await b.advance(40)

            assert len(server.bound()) == 20
            assert all(len(found) == 1 for found in server.bindings.values())
            assert [body.ours for body in await b.bodies("LeadershipChanged")] == [True]
            await b.verify()
        await a.start()
        await a.advance(5)
        assert a.live.leadership.leading
        await a.verify()


async def test_leader_that_stood_still_writes_nothing_when_it_goes_on() -> None:
    server, clock = MemoryServer(), VirtualClock()
    server.add_node("n0")
    async with LiveWorld(server, clock=clock, **leading()) as world:
        await world.advance(3)
        server.gate = asyncio.Event()
        for number in range(40):
            server.add_pod(f"p{number}")
        await world.quiet()
        sent = len([r for r in server.requests if is_binding(r)])
        # As after SIGSTOP: the time is gone, and no task of this process has had a turn.
        clock._now += 30 * NANOS
        server.gate.set()
        server.gate = None
        server.unreachable = True
        await world.quiet()

        assert len([r for r in server.requests if is_binding(r)]) == sent
        server.unreachable = False
        await world.advance(40)
        assert len(server.bound()) == 40
        await assert_bound_once(world)


def test_settings_are_kube_schedulers() -> None:
    lease = ClusterSettings().lease

    assert lease is not None
    assert (lease.duration, lease.renew_deadline, lease.retry) == (15, 10, 2)
