"""Replays logs in a process with another PYTHONHASHSEED: what depends on the order of a set comes out differently there.

Run as a script it reads one length-prefixed msgpack frame after the other, each the rows of a log, and answers each with a line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from tidelog.eventlog.records import Record
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import recover, verify


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

    def replay(self, records: Sequence[Record]) -> Answer:
        """What it says of these records."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        frame = msgspec.msgpack.encode([msgspec.structs.astuple(record) for record in records])
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


def _answer(rows: list[tuple[int, int, str, str, str, int, bytes, bytes]]) -> Answer:
    records = [Record(*row) for row in rows]
    report = verify(records, Registry())
    core = recover(records, Registry())
    recovered = "" if core.in_flight else core.digest()
    return Answer(str(report.first_difference or ""), report.digest, recovered)


def _main() -> None:
    decode = msgspec.msgpack.Decoder(list[tuple[int, int, str, str, str, int, bytes, bytes]]).decode
    while head := sys.stdin.buffer.read(8):
        rows = decode(sys.stdin.buffer.read(int.from_bytes(head, "big")))
        sys.stdout.buffer.write(msgspec.json.encode(_answer(rows)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
