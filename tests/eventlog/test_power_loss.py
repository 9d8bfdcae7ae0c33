"""Power loss at any step, with SQLite's own unsynced pages lost, torn and reordered: every acknowledged record is there afterwards.

On an honest disk a log is never even refused. On one that lies about the syncs of the database, a log that lost something is
refused with the range that is missing; never is anything lost silently. (A disk that lies about the head file too cannot be told from one that
was never written.) Deliberate mistakes are caught by the same check.

`TORTURE_CASES=10000` for more cases, `TORTURE_SEED` for others. A failure names its case: run it alone with
`TORTURE_SEED=… TORTURE_CASES=1`.
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from tests.eventlog import sqlite_watch
from tests.eventlog.power_loss import WAYS, Machine, Recorder, Step, Way
from tests.thorough import cases
from tidelog.api.errors import LogDamaged
from tidelog.eventlog import database, opening, sqlite
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, Record, Tick
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import Head
from tidelog.eventlog.verify import verify

CASES = cases(200, "TORTURE_CASES")
SEED = int(os.environ.get("TORTURE_SEED", "0"))
CHUNKS = 8
ROUNDS = 60
CASES_FOR_A_MISTAKE = 200

pytestmark = pytest.mark.skipif(
    not sqlite_watch.AVAILABLE, reason="the SQLite in this Python cannot be reached from outside"
)


class Recording(NamedTuple):
    """What was done to the files of a log, and all records that it ever had."""

    steps: list[Step]
    records: dict[int, Record]


class Wrong(AssertionError):
    """What must not happen to a log; the mutations below are caught by it."""


def tick(number: int) -> Draft:
    return Draft(body=Tick(), author="cluster", key=f"Pod/default/{'web' * 30}-{number}")


async def grow(log: Log, disk: Recorder, records: dict[int, Record], rng: random.Random, rounds: int) -> None:
    """Groups of one to forty records, now and then a snapshot or a compaction."""

    async def append(size: int) -> None:
        for record in await log.append([tick(n) for n in range(size)]):
            records[record.seq] = record
        disk.acknowledged(log.head.seq)

    for turn in range(rounds):
        await asyncio.gather(*(append(rng.choice((1, 1, 2, 3, 20))) for _ in range(rng.choice((1, 1, 2)))))
        if turn % 20 == 9:
            await asyncio.gather(append(1), log.put_snapshot("objects", log.head.seq, rng.randbytes(20_000)))
        if turn % 40 == 30:
            await log.compact()


async def record(folder: Path, seed: int, disk: Recorder, rounds: int = ROUNDS) -> Recording:
    """A log's life, from the first file to the last."""
    rng = random.Random(seed)
    records: dict[int, Record] = {}
    try:
        for _ in range(2):
            async with open_log(folder / "c.db", disk=disk) as log:
                await grow(log, disk, records, rng, rounds // 2)
    finally:
        disk.stop()
    return Recording(disk.steps, records)


@pytest.fixture(scope="module", autouse=True)
def small_wal() -> Any:
    """Checkpoints every so often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "CHECKPOINT_BYTES", 20_000)
        yield


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    def make(seed: int) -> Recording:
        folder = tmp_path_factory.mktemp("life")
        return asyncio.run(record(folder, seed, Recorder(folder)))

    return [make(seed) for seed in range(3)]


def write(image: dict[str, bytes], folder: Path) -> Path:
    """Put an image on the real disk."""
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)
    return folder / "c.db"


async def check(path: Path, acknowledged: int, records: dict[int, Record], *, honest: bool) -> None:
    """The log holds everything that was acknowledged as it was, or, if the disk lied, is refused with a range that can be true."""
    if not acknowledged and not path.exists():  # noqa: ASYNC240
        return
    try:
        async with open_reader(path) as reader:
            found = [record async for record in reader.read()]
            anchor, head = reader.anchor.seq, reader.head.seq
            await verify(reader)
    except LogDamaged as error:
        if honest:
            raise Wrong(f"refused, though nothing is missing: {error}") from error
        if not 1 <= error.first <= max(records) + 1:
            raise Wrong(f"refused with a range that cannot be: {error}") from error
        return
    except Exception as error:
        if acknowledged:
            raise Wrong(f"a log that had records cannot be opened: {error!r}") from error
        return
    if head < acknowledged:
        raise Wrong(f"{acknowledged} was acknowledged, and the log ends at {head} without a word")
    if found != [records[seq] for seq in range(anchor + 1, head + 1) if seq in records]:
        raise Wrong("a record is not what it was")


async def go_on(case: int, recordings: list[Recording], folder: Path) -> None:
    """A writer is killed, or loses power; another one opens what is left and goes on, and loses power."""
    rng = random.Random(case)
    recording = rng.choice(recordings)
    machine = Machine()
    machine.run(recording.steps[: crash_at(recording.steps, rng)])
    left = machine.files()
    if rng.random() < 0.5:
        left = machine.image(rng)
        machine = Machine(left, acknowledged=machine.acknowledged)
    path = write(left, folder)
    disk = Recorder(folder)
    try:
        async with open_log(path, disk=disk) as log:
            records = {seq: record for seq, record in recording.records.items() if seq <= log.head.seq}
            await grow(log, disk, records, rng, 3)
    finally:
        disk.stop()
    machine.run(disk.steps[: crash_at(disk.steps, rng)])
    path = write(machine.image(rng), folder / "again")
    await check(path, machine.acknowledged, records, honest=True)


def crash_at(steps: list[Step], rng: random.Random) -> int:
    """After how many steps the power is lost: anywhere, or right before a sync, when most is at stake."""
    if rng.random() < 0.5:
        return rng.choice([n for n, step in enumerate(steps) if step.what == "sync"] or [0])
    return rng.randrange(len(steps) + 1)


async def run_case(case: int, recordings: list[Recording], folder: Path) -> None:
    """Power loss at a random step of a random life."""
    rng = random.Random(case)
    recording = rng.choice(recordings)
    machine = Machine()
    machine.run(recording.steps[: crash_at(recording.steps, rng)])
    path = write(machine.image(rng), folder)
    await check(path, machine.acknowledged, recording.records, honest=True)


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_power_loss_takes_nothing_that_was_acknowledged(
    chunk: int, recordings: list[Recording], tmp_path: Path
) -> None:
    for case in range(SEED + chunk, SEED + CASES, CHUNKS):
        try:
            await (go_on if case % 4 == 0 else run_case)(case, recordings, tmp_path / str(case))
        except Exception as error:
            error.add_note(f"case {case}")
            raise
        await asyncio.to_thread(shutil.rmtree, tmp_path / str(case))


async def lose_power_at_each_step(left: Machine, path: Path, recording: Recording, way: Way) -> None:
    """The next writer goes on with what is left on this machine, the same files at `path`; nothing acknowledged is lost at any of its steps."""
    disk = Recorder(path.parent)
    async with open_log(path, disk=disk) as log:
        records = {seq: record for seq, record in recording.records.items() if seq <= log.head.seq}
        await grow(log, disk, records, random.Random(0), 1)
        disk.stop()

    for end in range(len(disk.steps) + 1):
        machine = copy.deepcopy(left)
        machine.run(disk.steps[:end])
        for seed in range(4):
            files = write(machine.image(random.Random(seed), way), path.parent.parent / f"{end}-{seed}")
            await check(files, machine.acknowledged, records, honest=True)


@pytest.mark.parametrize("written", [False, True], ids=["before the head", "before its sync"])
@pytest.mark.parametrize("way", WAYS)
async def test_power_loss_after_a_kill_in_the_middle_of_a_commit_costs_nothing(
    way: Way, written: bool, recordings: list[Recording], tmp_path: Path
) -> None:
    """The next writer finds a log that is a group ahead of its head file, or a head that nobody synced; at each of its steps power is lost."""
    recording = recordings[0]
    *_, crash = (n for n, step in enumerate(recording.steps) if step[:2] == ("write", "c.db.head"))
    killed = Machine()
    killed.run(recording.steps[: crash + written])
    path = write(killed.files(), tmp_path / "killed")
    await lose_power_at_each_step(killed, path, recording, way)


@pytest.mark.parametrize("way", WAYS)
async def test_power_loss_after_a_failed_sync_of_the_write_ahead_log_costs_nothing(
    way: Way, recordings: list[Recording], tmp_path: Path
) -> None:
    """The system has in memory what it could not write, takes it for written, and says so to who syncs next: seed 3756 of the simulation."""
    recording = recordings[0]
    *_, named = (n for n, step in enumerate(recording.steps) if step[:2] == ("write", "c.db.head"))
    *_, written = (n for n, s in enumerate(recording.steps[:named]) if s[:2] == ("write", "c.db-wal"))
    ended = Machine()
    ended.run(recording.steps[: written + 1])
    path = write(ended.files(), tmp_path / "ended")
    ended.forget("c.db-wal")
    await lose_power_at_each_step(ended, path, recording, way)


# --- disks that lie, and mistakes of ours -----------------------------------------------------------------------------


def of_the_database(name: str) -> bool:
    return not name.endswith((".head", ".head.new"))


async def lie(case: int, recordings: list[Recording], folder: Path) -> None:
    """From a random step on, the disk syncs the head file only; then the power is lost."""
    rng = random.Random(case)
    recording = rng.choice(recordings)
    end = rng.randrange(1, len(recording.steps) + 1)
    begin = rng.randrange(end)
    machine = Machine(lies=lambda name: lying and of_the_database(name))
    lying = False
    machine.run(recording.steps[:begin])
    lying = True
    machine.run(recording.steps[begin:end])
    path = write(machine.image(rng), folder)
    await check(path, machine.acknowledged, recording.records, honest=False)


async def test_disk_that_lies_about_the_database_is_found_out(
    recordings: list[Recording], tmp_path: Path
) -> None:
    for case in range(SEED, SEED + CASES // 4):
        try:
            await lie(case, recordings, tmp_path / str(case))
        except Exception as error:
            error.add_note(f"case {case}")
            raise
        await asyncio.to_thread(shutil.rmtree, tmp_path / str(case))


class NoSyncOfTheHead(Recorder):
    def sync(self, fd: int) -> None:
        if not self._names[fd].endswith(".head"):
            super().sync(fd)


class Never(Recorder):
    """SQLite does not sync at all."""

    instead: ClassVar[Mapping[str, str]] = {"PRAGMA synchronous = FULL": "PRAGMA synchronous = OFF"}


class OnlyAtCheckpoints(Recorder):
    instead: ClassVar[Mapping[str, str]] = {"PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL"}


def head_before_commit(
    self: SqliteStore, connection: sqlite3.Connection, records: Sequence[Record], head: Head
) -> None:
    self._head_file.write(head)
    database.transaction(connection, partial(database.insert, connection, records))


def head_now_and_then(
    self: SqliteStore, connection: sqlite3.Connection, records: Sequence[Record], head: Head
) -> None:
    database.transaction(connection, partial(database.insert, connection, records))
    if head.seq % 5 == 0:
        self._head_file.write(head)


def settle_nothing(*_: object) -> int:
    """What a killed writer did not sync is believed to be on the disk."""
    return 0


MISTAKES: list[tuple[str, type[Recorder], tuple[Any, str, Any] | None, Callable[..., Awaitable[None]]]] = [
    ("SQLite never syncs", Never, None, run_case),
    ("SQLite syncs only at checkpoints", OnlyAtCheckpoints, None, run_case),
    ("the head file is not synced", NoSyncOfTheHead, None, lie),
    (
        "the head is written before the commit",
        Recorder,
        (SqliteStore, "_commit", head_before_commit),
        run_case,
    ),
    ("the head is written now and then", Recorder, (SqliteStore, "_commit", head_now_and_then), lie),
    ("opening syncs nothing", Recorder, (opening, "_settle_log", settle_nothing), go_on),
]


@pytest.mark.unreplayed("a mistake of the store is made on purpose")
@pytest.mark.parametrize(("disk", "change", "case"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
async def test_mistake_is_caught(
    disk: type[Recorder],
    change: tuple[Any, str, Any] | None,
    case: Callable[..., Awaitable[None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within two hundred cases. The check that passes above is worth as much as this."""
    if change is not None:
        monkeypatch.setattr(*change)
    (tmp_path / "life").mkdir()
    recording = await record(tmp_path / "life", 0, disk(tmp_path / "life"))

    async def cases() -> None:
        for number in range(CASES_FOR_A_MISTAKE):
            await case(number, [recording], tmp_path / str(number))

    with pytest.raises(Wrong):
        await cases()
