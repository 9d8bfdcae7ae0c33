"""Kill a process that writes a log, at a random moment, again and again: `python -m tests.acceptance.kill_rounds LOG ROUNDS SEED`.

Each round a child opens the log, appends from 40 tasks, takes snapshots, compacts and checkpoints, and notes every
acknowledgement in a file. When so many are noted, or 20 to 250 ms after its start, it is killed with SIGKILL. Then the log must hold each acknowledged record
once, at its seq, verify, and open for the next round without help. Prints one line of JSON; exits 1 at the first fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time

from tests.patience import wait_until
from tidelog.eventlog import sqlite
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.verify import verify

CALLERS = 40
NOTED_MAX = 250_000
"""Bytes of notes, of about a fifth of a second."""
RECORDS_MAX = 20_000
"""The log is compacted between rounds when it has more, so that checking it takes no longer from round to round."""


async def write(path: str, number: int, notes: int) -> None:
    """The child's life: append until killed."""
    async with open_log(path, what=f"round {number}") as log, asyncio.TaskGroup() as tasks:
        for caller in range(CALLERS):
            tasks.create_task(append(log, f"{number}-{caller}", notes))
        tasks.create_task(housekeeping(log))


async def append(log: Log, caller: str, notes: int) -> None:
    """Append batches of one to three records, and note each acknowledgement."""
    for turn in range(1_000_000):
        keys = [f"Pod/{caller}/{turn}-{part}" for part in range(1 + turn % 3)]
        records = await log.append([Draft(body=Tick(), author="cluster", key=key) for key in keys])
        os.write(notes, b"".join(b"%d %s\n" % (record.seq, record.key.encode()) for record in records))


async def housekeeping(log: Log) -> None:
    """What else writes: snapshots of some parts, compaction behind them."""
    for turn in range(1_000_000):
        await asyncio.sleep(0.01)
        await log.put_snapshot("objects", log.head.seq, os.urandom(2_500_000 if turn % 4 == 0 else 1_000))
        if turn % 3 == 2:
            await log.compact()


async def check(path: str, notes: list[tuple[int, str]]) -> int:
    """Every acknowledged record is there once; returns how many records the log has."""
    async with open_reader(path) as reader:
        await verify(reader)
        found = [(record.seq, record.key) async for record in reader.read()]
        kept_from = reader.anchor.seq
    present = set(found)
    assert len({key for _, key in found}) == len(found), "a record is in the log twice"
    missing = [note for note in notes if note[0] > kept_from and note not in present]
    assert not missing, f"{len(missing)} acknowledged records are missing, {missing[0]} first"
    return len(found)


async def compact(path: str) -> None:
    """Leave nothing but a snapshot."""
    async with open_log(path) as log:
        await log.put_snapshot("objects", log.head.seq, b"state")
        await log.compact()


def has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def run_round(path: str, number: int, delay: float, noted: int) -> list[tuple[int, str]]:
    """One child, killed so many seconds after its start and after so many bytes of notes; returns what was acknowledged to it."""
    notes_path = f"{path}.notes"
    notes = os.open(notes_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(write(path, number, notes))
        finally:
            os._exit(3)
    wait_until(lambda: os.fstat(notes).st_size >= noted or has_ended(child), pause=0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, (
        f"round {number}: the child ended by itself, status {status}"
    )
    lines = os.pread(notes, 1 << 30, 0).decode().split("\n")
    os.close(notes)
    acknowledged = [line.split(" ", 1) for line in lines[:-1]]
    return [(int(seq), key) for seq, key in acknowledged]


def main() -> int:
    path, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    sqlite.CHECKPOINT_BYTES = 200_000
    total = productive = 0
    for number in range(rounds):
        delay, noted = rng.uniform(0.02, 0.25), 0
        if rng.random() < 0.75:
            delay, noted = 0.0, rng.randrange(NOTED_MAX)
        acknowledged = run_round(path, number, delay, noted)
        if os.path.exists(path):
            if asyncio.run(check(path, acknowledged)) > RECORDS_MAX:
                asyncio.run(compact(path))
        total += len(acknowledged)
        productive += bool(acknowledged)
    print(json.dumps({"rounds": rounds, "seed": seed, "acknowledged": total, "productive": productive}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
