"""Replays logs in a process with another PYTHONHASHSEED: what depends on the order of a set comes out differently there.

Run as a script it reads one length-prefixed msgpack frame after the other, each the plugins and the rows of a log, and answers each with a line
of JSON. Plugins are named by where their classes are, and imported there once more: those of tests, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path

import msgspec

from tidelog.eventlog.records import Record
from tidelog.plugins.behaviours import BEHAVIOURS
from tidelog.plugins.interface import Plugin
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.verify import recover, verify

ROOT = Path(__file__).resolve().parent.parent

Row = tuple[int, int, str, str, str, int, bytes, bytes]
Place = tuple[str, str]
"""Module and qualified name of a class."""


def place_of(plugin: type[Plugin]) -> Place | None:
    """Where another process finds the class; None if only the function that made it does."""
    name = plugin.__qualname__
    return None if "<locals>" in name else (plugin.__module__, name)


class Answer(msgspec.Struct):
    """What the other process found."""

    difference: str
    digest: str
    recovered: str


class OtherSeed:
    """The other process, started when it is first asked."""

    def __init__(self, seed: int = 4711) -> None:
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None

    def replay(self, records: Sequence[Record], plugins: Iterable[type[Plugin]] = IN_TREE) -> Answer:
        """What it says of these records, decided with these plugins. Each must have a place."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        rows = [msgspec.structs.astuple(record) for record in records]
        places = [place_of(plugin) for plugin in plugins]
        frame = msgspec.msgpack.encode((places, BEHAVIOURS, rows))
        process.stdin.write(len(frame).to_bytes(8, "big") + frame)
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the process with another hash seed died"
        return msgspec.json.decode(line, type=Answer)

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


def _answer(places: list[Place], rows: list[Row]) -> Answer:
    records = [Record(*row) for row in rows]
    registry = Registry(map(_imported, places))
    report = verify(records, registry)
    core = recover(records, registry)
    recovered = "" if core.in_flight else core.digest()
    return Answer(str(report.first_difference or ""), report.digest, recovered)


def _imported(place: Place) -> type[Plugin]:
    module, name = place
    found: type[Plugin] = reduce(getattr, name.split("."), import_module(module))
    return found


def _main() -> None:
    sys.path.append(str(ROOT))  # Behind everything else: folders of ours are called like standard modules.
    decode = msgspec.msgpack.Decoder(tuple[list[Place], dict[int, str], list[Row]]).decode
    while head := sys.stdin.buffer.read(8):
        places, behaviours, rows = decode(sys.stdin.buffer.read(int.from_bytes(head, "big")))
        BEHAVIOURS.clear()
        BEHAVIOURS.update(behaviours)  # A test may have made one up.
        try:
            answer = _answer(places, rows)
        except Exception as error:  # The test that asked is to fail, not every one after it.
            answer = Answer(f"{type(error).__name__}: {error}", "", "")
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
