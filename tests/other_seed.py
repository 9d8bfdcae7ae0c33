"""Replays logs in a process with another PYTHONHASHSEED: what depends on the order of a set comes out differently there.

Run as a script it reads one length-prefixed msgpack frame after the other, each the plugins and the rows of some logs, and answers each with a line
of JSON. Plugins are named by where their classes are, and imported there once more: those of tests, too. A log costs there about three times what it took
to decide: its attempts are decided once and a half, and believed once and a half.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec

from tidelog.eventlog.records import Record
from tidelog.framework.behaviours import BEHAVIOURS, Behaviour
from tidelog.framework.interface import Plugin
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempts
from tidelog.scheduler.state import encode_state, load_state

ROOT = Path(__file__).resolve().parent.parent

Row = tuple[int, int, str, str, str, int, bytes, bytes]
Place = tuple[str, str]
"""Module and qualified name of a class."""


def place_of(plugin: type[Plugin]) -> Place | None:
    """Where another process finds the class; None if only the function that made it does."""
    name = plugin.__qualname__
    return None if "<locals>" in name else (plugin.__module__, name)


class Log(msgspec.Struct, frozen=True, array_like=True):
    """A log, and what it takes to replay it."""

    places: list[Place]
    """Of the plugins."""
    rows: list[Row]
    snapshot: bytes = b""
    """What it begins with, if not with nothing."""


def as_sent(
    records: Sequence[Record], plugins: Iterable[type[Plugin]] = IN_TREE, snapshot: bytes = b""
) -> Log:
    """A log for the other process. Each plugin must have a place."""
    places = [place for plugin in plugins if (place := place_of(plugin)) is not None]
    return Log(places, [msgspec.structs.astuple(record) for record in records], snapshot)


class Answer(msgspec.Struct):
    """What the other process found."""

    difference: str
    """The first decision that came out differently, from the start or from a snapshot."""
    digest: str = ""
    """Of the state at the end, verified; "" if attempts are in flight."""
    believed: str = ""
    """The same, recovered."""
    decided_on: str | None = None
    """The same, verified from a snapshot of the state in the middle; None if there is no place for one."""
    believed_on: str | None = None
    """The same, recovered from it."""

    def is_one_state(self) -> bool:
        """Whether every way led to the same state."""
        ways = {self.digest, self.believed, self.decided_on, self.believed_on} - {None}
        return not self.difference and len(ways) == 1


class OtherSeed:
    """The other process, started when it is first asked."""

    def __init__(self, seed: int = 4711) -> None:
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None

    def replay(self, records: Sequence[Record], plugins: Iterable[type[Plugin]] = IN_TREE) -> Answer:
        """What it says of these records, decided with these plugins. Each must have a place."""
        self.ask([as_sent(records, plugins)])
        return self.answers()[0]

    def ask(self, logs: Sequence[Log]) -> None:
        """Let it begin to replay these. The answers must be taken before it is asked again."""
        process = self._started()
        assert process.stdin is not None
        frame = msgspec.msgpack.encode((BEHAVIOURS, logs))
        process.stdin.write(len(frame).to_bytes(8, "big") + frame)
        process.stdin.flush()

    def answers(self) -> list[Answer]:
        """What it says of the logs that it was asked about, when it is done."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process with another hash seed died"
        return msgspec.json.decode(line, type=list[Answer])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": str(self._seed)},
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()


class SameSeed(OtherSeed):
    """Replays in this process instead, where a mistake was put into the code that another one would not have."""

    def ask(self, logs: Sequence[Log]) -> None:
        """Replay these at once."""
        self._answers = [replayed(log) for log in logs]

    def answers(self) -> list[Answer]:
        """What came out."""
        return self._answers


def replayed(log: Log) -> Answer:
    """What this process finds."""
    try:
        return _replayed(log)
    except Exception as error:  # The test that asked is to fail, not every one after it.
        return Answer(f"{type(error).__name__}: {error}")


def _replayed(log: Log) -> Answer:
    """From the start, and from a snapshot that is made on the way: verified and recovered."""
    records = [Record(*row) for row in log.rows]
    registry = Registry(map(_imported, log.places))
    verified = verify(records, registry, core=_begun(log.snapshot, registry))
    if verified.first_difference is not None:
        return Answer(str(verified.first_difference))
    middle = settled_near(records, len(records) // 2)
    core = recover(records[:middle], registry, core=_begun(log.snapshot, registry))
    # Without behaviour 9 a loss may leave an attempt in flight for ever.
    blob = encode_state(core) if middle and not core.in_flight else b""
    believed = _digest(recover(records[middle:], registry, core=core))
    answer = Answer("", verified.digest, believed)
    if blob and believed:
        answer.believed_on = _digest(recover(records[middle:], registry, core=_begun(blob, registry)))
        again = verify(records[middle:], registry, core=_begun(blob, registry))
        answer.decided_on = again.digest
        answer.difference = str(again.first_difference or "")
    return answer


def settled_near(records: Sequence[Record], wanted: int) -> int:
    """The last place, at or before the wanted one, at which nothing was in flight: no attempt straddles it."""
    first = records[0].seq if records else 1
    attempts = [(pop.observed, pop.outcomes[-1][0].seq) for pop in RecordedAttempts(records)]
    straddled = {place for observed, last in attempts for place in range(observed + 1, last)}
    return next((place for place in range(wanted, 0, -1) if place + first - 1 not in straddled), 0)


def _digest(core: Core) -> str:
    return "" if core.in_flight else core.digest()


def _begun(snapshot: bytes, registry: Registry) -> Core:
    core = load_state(snapshot, registry) if snapshot else Core(registry)
    assert core is not None
    return core


def _imported(place: Place) -> type[Plugin]:
    module, name = place
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return cast("type[Plugin]", found)


def _main() -> None:
    sys.path.append(str(ROOT))  # Behind everything else: folders of ours are called like standard modules.
    decode = msgspec.msgpack.Decoder(tuple[dict[int, Behaviour], list[Log]]).decode
    while head := sys.stdin.buffer.read(8):
        behaviours, logs = decode(sys.stdin.buffer.read(int.from_bytes(head, "big")))
        BEHAVIOURS.clear()
        BEHAVIOURS.update(behaviours)  # A test may have made one up.
        sys.stdout.buffer.write(msgspec.json.encode([replayed(log) for log in logs]) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
