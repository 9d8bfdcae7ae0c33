"""Tells a story in the sandbox: the real runtime on a virtual clock, and a log in memory, with the judge at its side.

    told = tell(make_story(7))          raises Violation; told.records is the log

The faults that the sandbox knows are kills and restarts; the others need a machine (`machine.py`). It is the quick way to try stories,
judge and mutations, and costs about a tenth of a second.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.judge import Judge, Violation
from tests.simulation.liveness import LOOKS, REST_SECONDS, Follower, stuck
from tests.simulation.plugins import registry
from tests.simulation.steps import (
    Advance,
    AnyStep,
    Apply,
    ClockJump,
    Configure,
    CrashAt,
    Delete,
    Edit,
    Kill,
    Manifest,
    PowerLoss,
    Request,
    SetCondition,
    Step,
    Story,
    edited,
)
from tests.simulation.story import make_story
from tidelog.api.errors import TidelogError
from tidelog.api.kinds.registry import object_key
from tidelog.api.manifests import manifests
from tidelog.api.objects import Object, Pod
from tidelog.api.times import NANOS
from tidelog.daemon.actors.catalogue import cast_of
from tidelog.daemon.intake import messages as fact_messages
from tidelog.daemon.intake.messages import Answer, Facts
from tidelog.daemon.process.runtime import Limits
from tidelog.eventlog.records import Record
from tidelog.replay.verify import recover, verify
from tidelog.testing.sandbox import Sandbox

TURNS = 6
"""At most so many of the event loop between two requests of which the second does not wait for the first: they meet half-way."""


def facts_of(step: AnyStep, get: Callable[[str], Object | None]) -> Facts | None:
    """What a client asks for with this step; None if it finds nothing to ask for. Raises what is wrong with a manifest."""
    match step:
        case Apply():
            return fact_messages.Apply(objects=step.objects)
        case Delete():
            return fact_messages.Delete(keys=step.keys, grace_period_seconds=step.grace_period_seconds)
        case SetCondition():
            return fact_messages.SetCondition(
                key=step.key, type=step.type, status=step.status, reason=step.reason, message=step.message
            )
        case Edit():
            pod = get(step.key)
            return fact_messages.Apply(objects=[edited(pod, step)]) if isinstance(pod, Pod) else None
        case Manifest():
            return fact_messages.Apply(objects=manifests.load(step.data))
        case _:
            return None


def asked_about(step: Step) -> list[str]:
    """The keys of the objects that a request is about."""
    match step:
        case Apply():
            return [object_key(obj) for obj in step.objects]
        case Delete():
            return list(step.keys)
        case SetCondition() | Edit():
            return [step.key]
        case _:
            return []  # A manifest that is none; a configuration.


class Told(NamedTuple):
    """How a story ended that broke no promise."""

    records: list[Record]
    counts: dict[str, int]
    """What the judge has judged."""


def tell(story: Story) -> Told:
    """Play it to its end. Raises Violation, or what the runtime fails with."""
    return asyncio.run(_Telling(story).run())


class _Telling:
    def __init__(self, story: Story) -> None:
        self.story = story
        self.judge = Judge(story.configuration)
        self.registry = registry()
        self.records: list[Record] = []
        self.dice = random.Random(f"turns {story.seed}")
        self.requests: list[asyncio.Task[Answer | None]] = []
        self.asked: list[str] = []
        """What they are about."""

    async def run(self) -> Told:
        actors = cast_of(self.story.actors)
        async with Sandbox(
            self.story.configuration,
            registry=self.registry,
            actors=actors(self.registry),
            limits=_limits(self.story.seed),
        ) as self.cluster:
            for step in self.story.steps:
                await self._step(step)
            await self._settle()
            await self._come_to_rest()
            self._verify()
        return Told(self.records, self.judge.counts)

    async def _step(self, step: AnyStep) -> None:
        match step:
            case Request():
                await self._ask(step)
            case Advance():
                await self._settle()
                await self.cluster.advance(step.seconds)
            case ClockJump() if step.seconds > 0:
                # One that is set back is the machine's to simulate: what tells the daemon the time never goes back.
                self.cluster.clock._now += round(step.seconds * NANOS)
                self.cluster.clock._call_due()
                await asyncio.sleep(0)
            case Kill(process="leader") | PowerLoss() | CrashAt():
                await self._restart()
            case _:
                pass  # The sandbox has no disk and no standby.
        await self._read()

    async def _ask(self, step: Request) -> None:
        self.requests.append(asyncio.create_task(self._request(step)))  # type: ignore[arg-type]
        self.asked += asked_about(step)
        for _ in range(self.dice.randint(0, TURNS)):
            await asyncio.sleep(0)
        if step.settle:
            await self._settle()

    async def _request(self, step: AnyStep) -> Answer | None:
        try:
            if isinstance(step, Configure):
                await self.cluster.configure(step.configuration)
                return None
            facts = facts_of(step, self.cluster.core.objects.get)
            return None if facts is None else await self.cluster.runtime.facts.submit(facts)
        except TidelogError:
            return None  # Refused, or a crash came in between.

    async def _settle(self) -> None:
        requests, self.requests = self.requests, []
        answers = await asyncio.gather(*requests)
        await self.cluster.settled()
        await self._read()
        for answer in answers:
            if answer is not None:
                self.judge.acknowledged(answer, ())
        self.asked = []
        self.judge.at_rest(self.cluster.core)

    async def _restart(self) -> None:
        for request in self.requests:
            request.cancel()
        await asyncio.gather(*self.requests, return_exceptions=True)
        self.requests = []
        self.judge.unanswered(self.asked)
        await self.cluster.restart(cast_of(self.story.actors)(self.registry))

    async def _read(self) -> None:
        """What has become durable since."""
        async for record in self.cluster.records(len(self.records) + 1):
            self.records.append(record)
            self.judge.consume(record)

    async def _come_to_rest(self) -> None:
        """Nothing happens any more but time: whoever can be placed then has to be."""
        found: list[str] = []
        for look in range(LOOKS):
            await self.cluster.advance(REST_SECONDS)
            await self._settle()
            again = stuck(self.records, Follower(self.registry), self.cluster.now, self.judge)
            found = [key for key in again if look == 0 or key in found]
        if found:
            raise Violation("liveness", f"could be placed and are not: {found}")

    def _verify(self) -> None:
        self.judge.finished(self.records)
        report = verify(self.records, self.registry)
        if report.first_difference is not None:
            raise Violation("replay", f"{report.first_difference}")
        running, recovered = self.cluster.core.digest(), recover(self.records, self.registry).digest()
        if not running == report.digest == recovered:
            raise Violation("recovery", f"running {running}, computed {report.digest}, recovered {recovered}")


def _limits(seed: int) -> Limits:
    """Where tasks take turns, and when snapshots are kept."""
    dice = random.Random(f"limits {seed}")
    return Limits(
        uncommitted=dice.choice([1, 4, 512]),
        slice_steps=dice.choice([1, 4, 64]),
        consumed_at_check=dice.choice([5, 1000]),
        snapshot_every=dice.choice([0, 20, 60]),
    )


def main() -> None:
    """`python -m tests.simulation.telling FIRST COUNT`."""
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        try:
            tell(make_story(seed))
        except Exception as error:
            print(seed, type(error).__name__, str(error)[:600], flush=True)


if __name__ == "__main__":
    main()
