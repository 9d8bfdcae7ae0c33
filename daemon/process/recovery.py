"""Coming back: from the newest sound snapshot of the scheduler and the records after it to a core that has consumed the whole log.

Nothing is decided anew: what the log says was decided is believed (`tidelog.scheduler.recovery`). The event loop gets its turn every
few milliseconds, so that health checks are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from tidelog.api.errors import LogDamaged, TidelogError
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import Body, Record
from tidelog.plugins.registry import Registry
from tidelog.replay.states import State, newest_state
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import contradiction
from tidelog.scheduler.recovery import Recovery

Fold = Callable[[Record, Body], None]

RECORDS_PER_TURN = 100
"""Arbitrary; a few milliseconds."""

_log = logging.getLogger("tidelog.scheduler")


class CannotRecover(TidelogError):
    """The log was written by a scheduler that decided by other rules: another version, or other plugins."""

    exit_code = 3

    def __init__(self, log: str, why: str) -> None:
        super().__init__(log, why)
        self.log = log
        self.why = why

    def __str__(self) -> str:
        return (
            f"{self.log}: its decisions cannot be followed: {self.why}; use the tidelog and the plugins that wrote it "
            "(`tidelog replay verify` shows the first difference)"
        )


async def recovered_core(log: LogReader, registry: Registry, seq: int | None = None) -> Core:
    """The core after record `seq`, behind which no attempt is under way, or after the newest. Nobody may be writing the log, or only the caller."""
    return (await recovered_state(log, registry, seq)).core


async def recovered_state(log: LogReader, registry: Registry, seq: int | None = None) -> State:
    """The same, with the table of objects after the same record, if the core began with one; it shares the core's objects."""
    state = await _beginning(log, registry, seq)
    recovery = Recovery(state.core)
    fold = None if state.table is None else state.table.apply
    async for batch in log.read_batches(recovery.read + 1, seq):
        await take(recovery, batch, log.name, fold)
    await complete(recovery, log.name, fold)
    return state


async def begin_recovery(log: LogReader, registry: Registry, seq: int | None = None) -> Recovery:
    """A recovery that stands at the newest usable snapshot, up to `seq`, or before the first record."""
    return Recovery((await _beginning(log, registry, seq)).core)


async def _beginning(log: LogReader, registry: Registry, seq: int | None) -> State:
    state = await newest_state(log, registry, seq)
    if state is None:
        if log.anchor.seq:
            why = "they were compacted, and no usable snapshot of the scheduler's state is left"
            raise LogDamaged(log.name, 1, log.anchor.seq, why)
        state = State(Core(registry), whole=0)
    _log.debug("recovering", extra=fields(snapshot=state.core.seq, head=log.head.seq))
    return state


async def take(recovery: Recovery, batch: list[Record], name: str, fold: Fold | None = None) -> None:
    """Consume what becomes certain by these records. `fold`: is told each that was consumed."""
    with _believing(name):
        recovery.add(batch)
    await _step(recovery.advance(), name, fold)


async def complete(recovery: Recovery, name: str, fold: Fold | None = None) -> None:
    """Consume the rest: the log has ended, nobody writes it."""
    await _step(recovery.finish(), name, fold)


async def _step(records: Iterable[tuple[Record, Body]], name: str, fold: Fold | None = None) -> None:
    with _believing(name):
        for count, (record, body) in enumerate(records, start=1):
            if fold is not None:
                fold(record, body)
            if count % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)


@contextlib.contextmanager
def _believing(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        why = contradiction(error)
        if not why:
            raise
        raise CannotRecover(name, why) from error
