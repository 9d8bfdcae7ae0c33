"""Damage to the files of a log: bits flipped anywhere, files truncated, sectors zeroed or swapped, files lost.

After each: either every acknowledged record is read back as it was, or opening or reading refuses and names a range, for
readers and for a writer alike; never is anything lost or changed silently. Repair then keeps an exact prefix.

The records are bare ticks, nobody decided anything, and most of these logs are damaged: they are verified, not replayed.

500 cases by default; `TORTURE_CASES=10000` for more, `TORTURE_SEED` for others. A failure names its case: run it alone with
`TORTURE_SEED=… TORTURE_CASES=1`.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.api.errors import LogDamaged
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, LossAccepted, Record, Tick, decode_body
from tidelog.eventlog.repair import repair
from tidelog.eventlog.verify import verify

CASES = int(os.environ.get("TORTURE_CASES", "500"))
SEED = int(os.environ.get("TORTURE_SEED", "0"))
CHUNKS = 10
RECORDS = 120
SECTOR = 512


# --- the logs that are damaged ----------------------------------------------------------------------------------------


async def fill(log: Log, count: int) -> None:
    """Groups of one to seven records, with bodies that are easy to hit."""
    while count > 0:
        size = min(count, 1 + log.head.seq % 7)
        await log.append(
            [Draft(body=Tick(), author="cluster", key=f"Pod/default/{'web' * 40}-{n}") for n in range(size)]
        )
        count -= size


async def all_in_wal(log: Log) -> None:
    await fill(log, RECORDS)


async def half_in_wal(log: Log) -> None:
    await fill(log, RECORDS // 2)
    log.store._since_checkpoint = 1 << 40  # type: ignore[attr-defined]
    await log.store.tidy()
    await fill(log, RECORDS - RECORDS // 2)


async def compacted(log: Log) -> None:
    await fill(log, RECORDS // 2)
    await log.put_snapshot("objects", log.head.seq, os.urandom(3000))
    await log.compact()
    await fill(log, RECORDS - RECORDS // 2)


async def closed(log: Log) -> None:
    await fill(log, RECORDS)
    await log.close()


BASES: tuple[Callable[[Log], object], ...] = (all_in_wal, half_in_wal, compacted, closed)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[Record]]]:
    """Folders with a log as a kill would leave it, and what was acknowledged in it."""

    async def make(base: Callable[[Log], object], live: Path, copy: Path) -> list[Record]:
        log = await open_log(live / "c.db")
        await base(log)  # type: ignore[misc]
        shutil.copytree(live, copy, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
        await log.close()
        async with open_reader(live / "c.db") as reader:
            return [record async for record in reader.read()]

    made = []
    for base in BASES:
        live, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("base") / "log"
        made.append((copy, asyncio.run(make(base, live, copy))))
    return made


# --- the damage -------------------------------------------------------------------------------------------------------


def flip(rng: random.Random, data: bytearray) -> str:
    count = rng.choice((1, 1, 1, 1, 2, 4, 8))
    for _ in range(count):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return f"{count} bits flipped"


def truncate(rng: random.Random, data: bytearray) -> str:
    del data[rng.randrange(len(data)) :]
    return f"truncated to {len(data)} bytes"


def zero(rng: random.Random, data: bytearray) -> str:
    at = rng.randrange(len(data)) // SECTOR * SECTOR
    data[at : at + SECTOR] = bytes(len(data[at : at + SECTOR]))
    return f"sector at {at} zeroed"


def swap(rng: random.Random, data: bytearray) -> str:
    a, b = (rng.randrange(len(data)) // SECTOR * SECTOR for _ in range(2))
    first, second = data[a : a + SECTOR], data[b : b + SECTOR]
    if len(first) == len(second):
        data[a : a + SECTOR], data[b : b + SECTOR] = second, first
    return f"sectors at {a} and {b} swapped"


def damage(rng: random.Random, folder: Path) -> str:
    """Hurt one file of the log, weighted by what is interesting rather than by size."""
    names = [name for name in ("c.db", "c.db-wal", "c.db.head") if (folder / name).exists()]
    name = rng.choice(names)
    data = bytearray((folder / name).read_bytes())
    kind = rng.choice((flip, flip, flip, flip, truncate, truncate, zero, swap, None))
    if kind is None or not data:
        (folder / name).unlink()
        return f"{name}: removed"
    what = kind(rng, data)
    (folder / name).write_bytes(data)
    return f"{name}: {what}"


# --- the check --------------------------------------------------------------------------------------------------------


async def read_or_refuse(path: Path) -> list[Record] | LogDamaged:
    try:
        async with open_reader(path) as reader:
            return [record async for record in reader.read()]
    except LogDamaged as error:
        return error


async def append_or_refuse(path: Path) -> LogDamaged | None:
    try:
        async with open_log(path) as log:
            await fill(log, 1)
    except LogDamaged as error:
        return error
    return None


def names_a_range(error: LogDamaged, expected: list[Record]) -> bool:
    """Whether the range it names can be true: within what was acknowledged, or what may have come after it."""
    end = expected[-1].seq
    last = end if error.last is None else error.last
    return 1 <= error.first <= end + 1 and last <= end and "tidelog log repair --accept-loss" in str(error)


async def check(folder: Path, expected: list[Record], thorough: bool) -> None:
    path = folder / "c.db"
    writing, repairing = folder / "writing", folder / "repairing"
    if thorough:
        for copy in (writing, repairing):
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("writing"))
    found = await read_or_refuse(path)
    if isinstance(found, LogDamaged):
        assert names_a_range(found, expected), str(found)
    else:
        assert found == expected
    if not thorough:
        return

    # A writer either refuses, or goes on; what it then leaves is whole, or says where it is not.
    refused = await append_or_refuse(writing / "c.db")
    if refused is None:
        after = await read_or_refuse(writing / "c.db")
        if isinstance(after, LogDamaged):
            assert isinstance(found, LogDamaged), "damage that the reader did not see"
        else:
            assert after[:-1] == expected
            assert after[-1].seq == expected[-1].seq + 1
    else:
        assert names_a_range(refused, expected), str(refused)

    # A repair keeps an exact prefix, says in the log what was lost, and what it leaves verifies.
    done = await repair(repairing / "c.db", accept_loss=True)
    kept = await read_or_refuse(repairing / "c.db")
    assert not isinstance(kept, LogDamaged)
    if done.lost_last != done.kept:
        assert isinstance(decode_body(kept.pop()), LossAccepted)
    prefix = expected[: len(kept)]
    assert kept == prefix or not kept
    assert isinstance(found, LogDamaged) or kept == expected
    async with open_reader(repairing / "c.db") as reader:
        await verify(reader)


@pytest.mark.unreplayed("the log is damaged")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damage_is_recovered_from_or_refused(
    chunk: int,
    bases: list[tuple[Path, list[Record]]],
    tmp_path_factory: pytest.TempPathFactory,
    nothing_to_replay: None,
) -> None:
    damaged = tmp_path_factory.mktemp("damaged")

    async def main() -> None:
        for case in range(SEED + chunk, SEED + CASES, CHUNKS):
            rng = random.Random(case)
            base, expected = rng.choice(bases)
            folder = damaged / str(case)
            shutil.copytree(base, folder)
            what = damage(rng, folder)
            try:
                await check(folder, expected, thorough=case % 4 == 0)
            except Exception as error:
                error.add_note(f"case {case}: {BASES[bases.index((base, expected))].__name__}, {what}")
                raise
            shutil.rmtree(folder)

    asyncio.run(main())
