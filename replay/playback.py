"""Going through a log again with its decisions believed: the fold that every question about the past is built on.

    for each record:  first every attempt that the log says was popped before it (`observed`): yielded, then adopted
                      then the record is consumed: yielded

`recover` exhausts the fold, which is how a scheduler comes back after a restart; the story of a pod listens to it; a question about one
attempt stops in front of it. Nothing is recomputed, so a record costs what the core needs to consume it, some 20 microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

from tidelog.eventlog.records import Body, Outcome, Record
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import CannotFollow, RecordedAttempt, RecordedAttempts, contradiction

PROGRESS_EVERY = 1_000


class Beginning(NamedTuple):
    """Where records begin, in a log whose first ones were dropped."""

    core: Core
    """The state before the first record. Whoever goes on from it uses it up."""
    objects: bytes
    """The encoded `ObjectTable` of the same moment."""
    digest: bytes
    """Of the last record before."""


def playback(
    records: Sequence[Record],
    core: Core,
    later: Sequence[Record] = (),
    *,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[RecordedAttempt | Record]:
    """Let `core`, which has consumed everything before `records`, go through them.

    A `RecordedAttempt` is yielded before it is adopted, a `Record` after it was consumed. `later` are records beyond the last one: they are not
    consumed, but attempts popped before the end whose outcomes are among them are in flight at the end. `progress` is told now and then how many
    records are done, and of how many.
    """
    attempts = RecordedAttempts((*records, *later) if later else records)
    decoded: dict[int, Outcome] = {}
    for number, record in enumerate(records):
        if progress is not None and number % PROGRESS_EVERY == 0:
            progress(number, len(records))
        try:  # Not `following`, which would cost each record a microsecond.
            for made in attempts.due(core.seq):
                yield made
                core.readopt(made.attempt, made.at, made.bodies())
                decoded.update((outcome.seq, body) for outcome, body in made.outcomes)
            core.apply(record, cast("Body | None", decoded.pop(record.seq, None)))
        except Exception as error:
            if contradiction(error):
                raise CannotFollow(record, error) from error
            raise
        yield record


def recover(records: Sequence[Record], registry: Registry, *, core: Core | None = None) -> Core:
    """The state that the log implies, its decisions believed. `core` has consumed everything before these records."""
    core = Core(registry) if core is None else core
    for _ in playback(records, core):
        pass
    return core
