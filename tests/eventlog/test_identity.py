"""A log whose files are taken away, replaced, cut or linked while it is led: nothing is acknowledged that is not in the files that stand there.

Each nemesis does it to an open log. Then an append is refused, and whoever opens the log next finds everything that was acknowledged, or is
told what is missing: never a shorter log, and never a new one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.repair import repair
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.testing.faulty_disk import FaultyDisk

pytestmark = pytest.mark.unreplayed("their files are taken away, cut and overwritten")

Nemesis = Callable[[Path, Path], None]
"""Is given the log and a folder with a copy of its files, a few records older."""


def tick() -> Draft:
    return Draft(body=Tick(), author="cluster", key="Pod/default/x")


def companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def copy(path: Path, to: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        shutil.copy2(companion(path, suffix), to / (path.name + suffix))


def restored(path: Path, backup: Path) -> None:
    """As `cp -a` and `mv` do."""
    for suffix in ("", "-wal", ".head"):
        (backup / (path.name + suffix)).rename(companion(path, suffix))
    companion(path, "-shm").unlink()


def restored_in_place(*suffixes: str) -> Nemesis:
    """As `cp` does: the same files, with older content."""

    def nemesis(path: Path, backup: Path) -> None:
        for suffix in suffixes:
            shutil.copyfile(backup / (path.name + suffix), companion(path, suffix))

    return nemesis


def removed(*suffixes: str) -> Nemesis:
    def nemesis(path: Path, _backup: Path) -> None:
        for suffix in suffixes:
            companion(path, suffix).unlink()

    return nemesis


def moved(*suffixes: str) -> Nemesis:
    def nemesis(path: Path, backup: Path) -> None:
        for suffix in suffixes:
            companion(path, suffix).rename(backup / f"moved{suffix}")

    return nemesis


def replaced(suffix: str) -> Nemesis:
    """The same content in another file."""

    def nemesis(path: Path, backup: Path) -> None:
        shutil.copy2(companion(path, suffix), backup / "same")
        (backup / "same").rename(companion(path, suffix))

    return nemesis


def cut(suffix: str, size: int) -> Nemesis:
    """Shortened in place: to this size, or by it where it is negative."""

    def nemesis(path: Path, _backup: Path) -> None:
        file = companion(path, suffix)
        os.truncate(file, size if size >= 0 else file.stat().st_size + size)

    return nemesis


NEMESES: dict[str, Nemesis] = {
    "restored": restored,
    "restored in place": restored_in_place("", "-wal", ".head"),
    "database restored in place": restored_in_place(""),
    "write-ahead log restored in place": restored_in_place("-wal"),
    "head restored in place": restored_in_place(".head"),
    "database removed": removed(""),
    "write-ahead log removed": removed("-wal"),
    "index of the write-ahead log removed": removed("-shm"),
    "head removed": removed(".head"),
    "all but the lock removed": removed("", "-wal", "-shm", ".head"),
    "all removed": removed("", "-wal", "-shm", ".head", ".lock"),
    "database moved": moved(""),
    "all moved": moved("", "-wal", "-shm", ".head", ".lock"),
    "database replaced": replaced(""),
    "write-ahead log replaced": replaced("-wal"),
    "index of the write-ahead log replaced": replaced("-shm"),
    "head replaced": replaced(".head"),
    "database emptied": cut("", 0),
    "database cut": cut("", -4096),
    "write-ahead log emptied": cut("-wal", 0),
    "write-ahead log cut": cut("-wal", -4096),
    "head emptied": cut(".head", 0),
    "head cut": cut(".head", 1024),
}


async def opened_again(path: Path) -> tuple[int, str]:
    """How far the log goes for whoever opens it next to write, or why he may not."""
    try:
        async with open_log(path) as log:
            return log.head.seq, ""
    except LogError as error:
        return 0, str(error)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("name", NEMESES)
async def test_nothing_is_acknowledged_once_a_file_is_another(
    name: str, checkpointed: bool, tmp_path: Path
) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup"
    backup.mkdir()
    log = await open_log(path)
    for _ in range(4):
        await log.append([tick()])
    if checkpointed:
        await _checkpoint(log)
        await log.append([tick()])
    copy(path, backup, "", "-wal", ".head")
    for _ in range(4):
        await log.append([tick()])
    acknowledged = log.head.seq

    try:
        NEMESES[name](path, backup)

        with pytest.raises(LogError, match=r"nothing more is written or acknowledged"):
            await log.append([tick()])
        with pytest.raises(LogError):
            await log.append([tick()])
        assert log.head.seq == acknowledged
    finally:
        with contextlib.suppress(LogError):
            await log.close()
    seq, why = await opened_again(path)
    assert seq >= acknowledged or why, f"{acknowledged} were acknowledged, {seq} are there"


async def _checkpoint(log: Log) -> None:
    """Everything is moved to the database, so that the next record begins the write-ahead log anew."""
    assert isinstance(log.store, SqliteStore)
    log.store._since_checkpoint = 1 << 40
    await log.store.tidy()


# --- between a look and a commit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEMESES)
@pytest.mark.parametrize("step", ["before commit", "after commit"])
async def test_nor_if_it_happens_in_the_middle_of_a_commit(name: str, step: str, tmp_path: Path) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup"
    backup.mkdir()
    armed = False

    def hook(at: str) -> None:
        nonlocal armed
        if armed and at == step:
            armed = False
            NEMESES[name](path, backup)

    log = await open_log(path, disk=FaultyDisk(hook))
    for _ in range(4):
        await log.append([tick()])
    copy(path, backup, "", "-wal", ".head")
    for _ in range(4):
        await log.append([tick()])
    told = log.head.seq
    try:
        armed = True
        for _ in range(2):  # What was only overwritten in the database is seen by the next one.
            with contextlib.suppress(LogError):
                await log.append([tick()])
                told = log.head.seq
        assert not armed
        assert told < 10
    finally:
        with contextlib.suppress(LogError):
            await log.close()
    seq, why = await opened_again(path)
    assert seq >= told or why, f"{told} were acknowledged, {seq} are there"


# --- who comes next ---------------------------------------------------------------------------------------------------


async def test_older_files_are_refused_until_somebody_accepts_the_loss(tmp_path: Path) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup"
    backup.mkdir()
    log = await open_log(path, what="tidelog run")
    await log.append([tick()])
    copy(path, backup, "", "-wal", ".head")
    await log.append([tick()])
    restored(path, backup)
    with pytest.raises(LogError, match=r"c\.db-?\w*: was replaced: nothing more"):
        await log.append([tick()])
    await log.close()

    for opener in (open_log, open_reader):
        with pytest.raises(
            LogDamaged, match=r"record 2 is missing .* had acknowledged them when its files"
        ) as refused:
            await opener(path)
        assert (refused.value.first, refused.value.last) == (2, 2)

    done = await repair(path, accept_loss=True)
    assert (done.kept, done.lost_last) == (1, 2)
    async with open_log(path) as again:
        assert again.head.seq == 2
        assert [record.kind async for record in again.read()] == ["Tick", "LossAccepted"]


async def test_no_log_is_begun_where_one_was_led_a_moment_ago(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    log = await open_log(path, what="tidelog run")
    await log.append([tick()])
    moved("", "-wal", "-shm", ".head", ".lock")(path, tmp_path)

    with pytest.raises(LogError, match=r"c\.db(\.lock)?: was (re)?moved or re"):
        await log.check()
    with contextlib.suppress(LogError):
        await log.close()

    for _ in range(2):
        with pytest.raises(LogError, match=r"is gone, and process \d+ .*tidelog run.* had it open"):
            await open_log(path)
    companion(path, ".lock").unlink()
    async with open_log(path) as new:
        assert new.head.seq == 0


async def test_clean_stop_tells_that_the_files_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    log = await open_log(path)
    await log.append([tick()])
    removed("", "-wal", ".head")(path, tmp_path)

    with pytest.raises(LogError, match=r"c\.db: was moved or removed"):
        await log.close()
    with pytest.raises(LogError, match="is gone, and process"):
        await open_log(path)


async def test_write_ahead_log_of_a_restored_backup_survives_the_end_of_the_process(tmp_path: Path) -> None:
    """SQLite removes the file of that name when the last connection is closed, whosever it is."""
    path, backup = tmp_path / "c.db", tmp_path / "backup"
    backup.mkdir()
    log = await open_log(path)
    await log.append([tick()])
    copy(path, backup, "", "-wal", ".head")
    content = (backup / "c.db-wal").read_bytes()
    restored(path, backup)

    with pytest.raises(LogError, match="was replaced"):
        await log.close()

    assert companion(path, "-wal").read_bytes() == content
    async with open_log(path) as again:
        assert again.head.seq == 1


async def test_log_with_two_names_is_not_written_to(tmp_path: Path) -> None:
    path, other = tmp_path / "c.db", tmp_path / "d.db"
    async with open_log(path) as log:
        await log.append([tick()])
        os.link(path, other)
        os.link(companion(path, ".head"), companion(other, ".head"))
        with pytest.raises(LogError, match=r"d\.db: has 2 names \(hard links\)"):
            await open_log(other)
        await log.append([tick()])

    with pytest.raises(LogError, match=r"c\.db: has 2 names"):
        await open_log(path)
    other.unlink()
    async with open_log(path) as log:
        assert log.head.seq == 2


async def test_checkpoints_compaction_and_snapshots_are_our_own_changes(tmp_path: Path) -> None:
    """Sizes and times of the files change, the write-ahead log begins anew, and nothing of that is taken for somebody else's work."""
    path = tmp_path / "c.db"
    async with open_log(path) as log, await open_reader(path) as reader:
        for n in range(60):
            await log.append([tick()] * (1 + n * 7 % 40))
            if n % 5 == 0:
                await _checkpoint(log)
            if n % 7 == 0:
                await log.put_snapshot("objects", log.head.seq, os.urandom(n * 30_000))
            if n % 20 == 19:
                await log.compact()
            if n % 11 == 0:
                assert [record async for record in reader.read(log.head.seq)]
            await log.check()


async def test_what_another_process_wrote_is_noticed_before_anything_is_put_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    log = await open_log(path)
    try:
        await log.append([tick()])
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE theirs (x)")
            written = companion(path, "-wal").read_bytes()
            with pytest.raises(LogError, match="-wal: another process has written to it"):
                await log.append([tick()])
            assert companion(path, "-wal").read_bytes() == written
    finally:
        with contextlib.suppress(LogError):
            await log.close()
