"""Going through a log again with its decisions believed: the fold that every question about the past is built on.

    for each record:  first every attempt that the log says was popped before it (`observed`): yielded, then adopted
                      then the record is consumed: yielded

`recover` exhausts the fold, which is how a scheduler comes back after a restart; the story of a pod listens to it; a question about one
attempt stops in front of it. Nothing is recomputed, so a record costs what the core needs to consume it, some 20 microseconds.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from tidelog.api.errors import TidelogError
from tidelog.eventlog.records import Body, Outcome, Record, decode_body
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.scheduler.recovery import contradiction


class CannotFollow(TidelogError):
    """A record contradicts those before it: a log that we wrote has none, but somebody else may have written this one."""

    exit_code = 3

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(record.seq, error)
        self.record = record
        self.error = error

    def __str__(self) -> str:
        why = contradiction(self.error)
        return (
            f"record {self.record.seq} ({self.record.kind} {self.record.key}) cannot follow those before it: {why}; "
            "use the tidelog and the plugins that wrote this log, and if they did, please report this together with it"
        )


@contextlib.contextmanager
def following(record: Record) -> Iterator[None]:
    """Whatever fails in here fails over this record: raises CannotFollow for what is not told in one line by itself."""
    try:
        yield
    except Exception as error:
        if contradiction(error):
            raise CannotFollow(record, error) from error
        raise


class Pop(NamedTuple):
    """Where and when an attempt was made, and what the log says came of it."""

    attempt: int
    observed: int
    at: int
    outcomes: list[tuple[Record, Outcome]]

    @property
    def key(self) -> str:
        """Key of the pod or group that was tried."""
        return self.outcomes[0][0].key

    def bodies(self) -> list[tuple[str, Body]]:
        """The outcomes as the core takes them."""
        return [(record.key, cast("Body", body)) for record, body in self.outcomes]


OUTCOME_KINDS = frozenset(kind.__name__ for kind in Outcome.__subclasses__())


def decode_outcome(record: Record) -> Outcome | None:
    """The outcome that the record holds, if it holds one."""
    if record.kind not in OUTCOME_KINDS:
        return None
    body = decode_body(record)
    assert isinstance(body, Outcome)
    return body


def pops(records: Iterable[Record]) -> Iterator[Pop]:
    """Every attempt of the log, in the order in which they were made."""
    current: Pop | None = None
    for record in records:
        body = decode_outcome(record)
        if body is None:
            continue
        if current is None or body.attempt != current.attempt:
            if current is not None:
                yield current
            current = Pop(body.attempt, body.observed, body.at, [])
        current.outcomes.append((record, body))
    if current is not None:
        yield current


def playback(records: Sequence[Record], core: Core, later: Sequence[Record] = ()) -> Iterator[Pop | Record]:
    """Let `core`, which has consumed everything before `records`, go through them.

    A `Pop` is yielded before it is adopted, a `Record` after it was consumed. `later` are records beyond the last one: they are not
    consumed, but attempts popped before the end whose outcomes are among them are in flight at the end.
    """
    ahead = deque(pops((*records, *later)) if later else pops(records))
    decoded: dict[int, Outcome] = {}
    for record in records:
        try:  # Not `following`, which would cost each record a microsecond.
            while ahead and ahead[0].observed == core.seq:
                pop = ahead.popleft()
                yield pop
                core.readopt(pop.attempt, pop.at, pop.bodies())
                decoded.update((outcome.seq, body) for outcome, body in pop.outcomes)
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
