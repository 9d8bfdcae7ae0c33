"""The files of a log: what opens, what is refused and in which words, readers beside a writer, read-only places."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tidelog.api.errors import LogDamaged, LogError, LogLocked
from tidelog.eventlog import database, opening
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.head_file import HeadFile
from tidelog.eventlog.identity import Identity
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import LogReader, open_reader
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.store import Head, SnapshotsUnreadable
from tidelog.eventlog.verify import verify


def tick(name: object = "x") -> Draft:
    return Draft(body=Tick(), author="cluster", key=f"Pod/default/{name}")


async def make(path: Path, count: int = 10) -> None:
    """A log with that many records, closed."""
    async with open_log(path) as log:
        for n in range(1, count + 1):
            await log.append([tick(n)])


async def crash(path: Path, to: Path, count: int = 10) -> None:
    """A log as a kill would leave it: its records only in the WAL."""
    async with open_log(path) as log:
        for n in range(1, count + 1):
            await log.append([tick(n)])
        for suffix in ("", "-wal", ".head"):
            shutil.copy(f"{path}{suffix}", f"{to}{suffix}")


def flip(name: str, at: int) -> None:
    with open(name, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


async def seqs(reader: LogReader) -> list[int]:
    return [record.seq async for record in reader.read()]


def contents(folder: Path) -> dict[str, bytes]:
    """What is in a folder, apart from what every opening makes."""
    if not folder.exists():
        return {}
    files = [file for file in folder.iterdir() if file.is_file() and file.suffix != ".lock"]
    found = {file.name: file.read_bytes() for file in files if not file.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content}


async def refusal(path: Path, opener: Callable[..., object] = open_reader) -> str:
    """What opening says, once it is sure that it changed nothing."""
    before = contents(path.parent)
    with pytest.raises(LogError) as refused:
        await opener(path)  # type: ignore[misc]
    assert contents(path.parent) == before
    return str(refused.value).replace(str(path), "LOG").replace(str(path.parent), "DIR")


@pytest.fixture(params=[open_reader, open_log], ids=["reader", "writer"])
def opener(request: pytest.FixtureRequest) -> Callable[..., object]:
    opener: Callable[..., object] = request.param
    return opener


# --- new logs -----------------------------------------------------------------------------------------------------------


async def test_new_log_is_its_owners_alone_and_closes_to_one_database_file(tmp_path: Path) -> None:
    await make(tmp_path / "c.db")

    modes = {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in os.scandir(tmp_path)}
    assert modes == dict.fromkeys(("c.db", "c.db.head", "c.db.lock", "c.db.reserve"), "0o600")


async def test_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "c.db").touch()

    await make(tmp_path / "c.db", 2)

    async with open_reader(tmp_path / "c.db") as reader:
        assert await seqs(reader) == [1, 2]


async def test_log_that_must_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no such log"):
        await open_log(tmp_path / "c.db", create=False)

    assert os.listdir(tmp_path) == []


async def test_symbolic_link_leads_to_the_same_log(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "c.db")
    async with open_log(tmp_path / "link.db") as log:
        await log.append([tick()])
        with pytest.raises(LogLocked):
            await open_log(tmp_path / "real" / "c.db")

    assert sorted(os.listdir(tmp_path)) == ["link.db", "real"]


# --- what is no log -----------------------------------------------------------------------------------------------------


async def test_place_without_a_log_is_named(tmp_path: Path, opener: Callable[..., object]) -> None:
    assert (await refusal(tmp_path / "none" / "c.db", opener)) == "LOG: there is no directory DIR"
    assert (await refusal(tmp_path, opener)).endswith("is a directory, not a log")


async def test_other_files_are_refused(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    path.write_bytes(b"apiVersion: v1\n" * 1000)
    assert await refusal(path, opener) == "LOG: is not a tidelog log: file is not a database"
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (a)")
    other.close()
    assert await refusal(path, opener) == "LOG: is not a tidelog log: it is a database of another application"


@pytest.mark.unreplayed("the log is damaged")
async def test_newer_format_is_refused(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    await make(path)
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 2")
    raw.close()
    (tmp_path / "c.db.head").unlink()

    assert await refusal(path, opener) == (
        "LOG: it has format 2 and this tidelog reads formats up to 1: use a newer tidelog"
    )


@pytest.mark.unreplayed("the log is damaged")
async def test_format_number_that_the_head_file_contradicts_is_damage(
    tmp_path: Path, opener: Callable[..., object]
) -> None:
    path = tmp_path / "c.db"
    await make(path)
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 2")
    raw.close()

    assert "records 1 to 10 are missing or damaged (the format number is 2)" in await refusal(path, opener)


# --- damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.unreplayed("the log is damaged")
async def test_lost_write_ahead_log_is_named(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "copy" / "c.db"
    path.parent.mkdir()
    await crash(tmp_path / "c.db", path)
    os.unlink(f"{path}-wal")

    assert await refusal(path, opener) == (
        "LOG: records 1 to 10 are missing or damaged (the log ends at record 0, but its head file says that it went on "
        "to 10): restore a backup, or go on without them: tidelog log repair --accept-loss LOG"
    )


@pytest.mark.unreplayed("the log is damaged")
async def test_bit_flipped_in_the_write_ahead_log_names_what_sqlite_dropped(
    tmp_path: Path, opener: Callable[..., object]
) -> None:
    path = tmp_path / "copy" / "c.db"
    path.parent.mkdir()
    await crash(tmp_path / "c.db", path)
    frame = 24 + 4096
    flip(f"{path}-wal", 32 + 7 * frame + 100)

    assert "records 8 to 10 are missing or damaged" in await refusal(path, opener)


async def test_lost_database_is_named(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    await make(path)
    path.unlink()

    said = await refusal(path, opener)
    assert "records 1 to 10 are missing or damaged (the database is gone, its head file is not)" in said


@pytest.mark.unreplayed("the log is damaged")
async def test_emptied_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    path.write_bytes(b"")

    assert "records 1 to 10 are missing" in await refusal(path, open_log)
    assert "records 1 to 10 are missing" in await refusal(path, open_reader)


@pytest.mark.unreplayed("the log is damaged")
async def test_lost_head_file_is_named(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    await make(path)
    (tmp_path / "c.db.head").unlink()

    assert "records from 11 on may be missing (its head file is missing)" in await refusal(path, opener)


async def test_write_ahead_log_without_its_database_is_not_applied_to_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "copy" / "c.db"
    path.parent.mkdir()
    await crash(tmp_path / "c.db", path)
    path.unlink()
    os.unlink(f"{path}.head")

    assert "its write-ahead log is there, but not its database" in await refusal(path, open_log)


async def test_half_readable_head_file_is_trusted_only_if_the_log_went_on(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    head = tmp_path / "c.db.head"
    good = head.read_bytes()
    slots = [good[:1024], good[1024:]]

    for lost in (0, 1):
        broken = [bytes(1024) if slot == lost else slots[slot] for slot in (0, 1)]
        head.write_bytes(b"".join(broken))
        reading = opening.read_head(str(path), Disk())
        assert reading.head is not None
        if reading.head.seq == 10:
            assert "records from 11 on may be missing (half of its head file" in await refusal(path)
        else:
            async with open_log(path) as log:
                assert log.head.seq == 10
            healed = opening.read_head(str(path), Disk())
            assert (healed.head, healed.doubtful) == (log.head, False)
            good = head.read_bytes()
            slots = [good[:1024], good[1024:]]


@pytest.mark.unreplayed("the log is damaged")
async def test_head_of_another_log_is_noticed(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    await make(path)
    HeadFile.create(f"{path}.head", Disk(), Head(10, 5, 0, bytes(32)))

    assert "record 10 is not the one that its head file names" in await refusal(path, opener)


@pytest.mark.unreplayed("the log is damaged")
async def test_changed_table_definition_is_noticed(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "c.db"
    await make(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"key TEXT NOT NULL", b"key SEXT NOT NULL"))

    assert "the definitions of its tables were changed" in await refusal(path, opener)


@pytest.mark.unreplayed("the log is damaged")
async def test_damage_in_the_middle_is_met_by_those_who_read_there(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path, 40)
    content = bytearray(path.read_bytes())
    content[content.index(b"Pod/default/17") + 12] ^= 1
    path.write_bytes(content)

    async with open_reader(path) as reader:
        assert [record.seq async for record in reader.read(18)] == list(range(18, 41))
        with pytest.raises(
            LogDamaged, match=r"records 17 to 40 are missing or damaged .*digest of record 17"
        ):
            await seqs(reader)
    assert "digest of record 17" in await refusal(path, open_log)


async def test_unreadable_snapshots_do_not_keep_the_records_from_being_read(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        await log.append([tick()])
        await log.put_snapshot("objects", 1, b"state")
    raw = sqlite3.connect(path)
    pages = dict(raw.execute("SELECT name, rootpage FROM sqlite_schema").fetchall())
    raw.close()
    content = bytearray(path.read_bytes())
    start = (pages["snapshots"] - 1) * 4096
    content[start : start + 4096] = os.urandom(4096)
    path.write_bytes(content)

    async with open_reader(path) as reader:
        assert await seqs(reader) == [1]
        assert await reader.snapshot("objects") is None
        with pytest.raises(SnapshotsUnreadable, match="makes the file anew"):
            await reader.snapshots()
        assert (await verify(reader)).problems != ()


# --- readers ------------------------------------------------------------------------------------------------------------


async def test_reader_beside_a_writer_sees_what_is_acknowledged(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log, open_reader(tmp_path / "c.db") as reader:
        assert await seqs(reader) == []
        await log.append([tick(1)])
        assert await seqs(reader) == [1]
        await log.append([tick(2)])
        assert reader.refresh().seq == 2
        await log.put_snapshot("objects", 2, b"state")
        await log.compact()
        await log.append([tick(3)])
        assert await seqs(reader) == [3]
        assert (await verify(reader)).first == 3


async def test_tail_in_another_connection_follows_the_writer(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log, open_reader(tmp_path / "c.db") as reader:
        tail = reader.tail(1)
        for n in range(1, 6):
            waiting = asyncio.ensure_future(anext(tail))
            await log.append([tick(n)])
            assert (await waiting).seq == n
        await tail.aclose()


async def test_tail_that_compaction_overtook_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path, 5)
    async with open_reader(path) as reader:
        tail = reader.tail_batches(2)
        async with open_log(path) as log:
            await log.put_snapshot("objects", 4, b"")
            await log.compact()
        with pytest.raises(LogError, match="dropped by compaction"):
            await anext(tail)


async def test_closed_reader_says_so(tmp_path: Path) -> None:
    await make(tmp_path / "c.db", 1)
    reader = await open_reader(tmp_path / "c.db")
    tail = reader.tail(2)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    await reader.close()
    await reader.close()

    with pytest.raises(LogError, match="closed"):
        await waiting
    with pytest.raises(LogError, match="closed"):
        await reader.snapshots()


FOLLOW = """
import asyncio, sys
from tidelog.eventlog.reader import open_reader

async def main():
    async with open_reader(sys.argv[1]) as reader:
        print("ready", flush=True)
        async for record in reader.tail(1):
            print(record.seq, flush=True)
            if record.seq == 20:
                return

asyncio.run(main())
"""


async def test_tail_in_another_process_gets_every_record_once(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FOLLOW, tmp_path / "c.db", stdout=asyncio.subprocess.PIPE
        )
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"
        for n in range(20):
            await log.append([tick(n)])
            if n % 7 == 0:
                assert await other.stdout.readline() == b"%d\n" % (n + 1) or n
        rest, _ = await other.communicate()

    assert other.returncode == 0
    assert rest.split()[-1] == b"20"


# --- read-only places -----------------------------------------------------------------------------------------------------

AS_SOMEBODY_ELSE = """
import asyncio, json, os, sys
from tidelog.eventlog.reader import open_reader
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)

async def main():
    async with open_reader(sys.argv[1]) as reader:
        seqs = [record.seq async for record in reader.read()]
        print(json.dumps([seqs, reader._store._live, sorted(os.listdir(os.path.dirname(sys.argv[1])))]), flush=True)
        if len(sys.argv) > 2:
            print((await anext(reader.tail(seqs[-1] + 1))).seq)

asyncio.run(main())
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter, made read-only by `lock_folder`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)


def lock_folder(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o555)


def read_as_somebody_else(path: Path) -> tuple[list[int], bool, list[str]]:
    done = subprocess.run([sys.executable, "-c", AS_SOMEBODY_ELSE, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seqs, live, files = json.loads(done.stdout)
    return seqs, live, files


async def test_closed_log_is_read_in_a_read_only_folder(public: Path) -> None:
    await make(public / "c.db")
    lock_folder(public)

    seqs, live, files = await asyncio.to_thread(read_as_somebody_else, public / "c.db")

    assert seqs == list(range(1, 11))
    assert not live
    assert files == ["c.db", "c.db.head", "c.db.lock", "c.db.reserve"]


async def test_crashed_log_is_read_in_a_read_only_folder(public: Path, tmp_path: Path) -> None:
    await crash(tmp_path / "c.db", public / "c.db")
    lock_folder(public)

    seqs, live, files = await asyncio.to_thread(read_as_somebody_else, public / "c.db")

    assert seqs == list(range(1, 11))
    assert not live
    assert files == ["c.db", "c.db-wal", "c.db.head"]


async def test_running_log_is_followed_in_a_folder_that_is_read_only_for_the_reader(public: Path) -> None:
    async with open_log(public / "c.db") as log:
        await log.append([tick(1)])
        lock_folder(public)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AS_SOMEBODY_ELSE, public / "c.db", "tail", stdout=asyncio.subprocess.PIPE
        )
        assert other.stdout is not None
        assert json.loads(await other.stdout.readline())[:2] == [[1], True]
        await log.append([tick(2)])
        assert await other.stdout.readline() == b"2\n"
        await other.communicate()
        os.chmod(public, 0o755)


async def test_reader_that_opened_a_closed_log_read_only_sees_what_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path, 2)

    class NoSharing(Disk):
        """What a read-only folder does to a log without WAL."""

        def connect(self, uri: str) -> sqlite3.Connection:
            return super().connect(uri.replace("mode=ro", "mode=ro&immutable=1") if self.on else uri)

        on = True

    disk = NoSharing()
    async with open_reader(path, disk=disk) as reader:
        reader._store._live = False  # type: ignore[attr-defined]
        assert await seqs(reader) == [1, 2]
        disk.on = False
        async with open_log(path) as log:
            await log.append([tick(3)])
            assert await seqs(reader) == [1, 2, 3]


# --- two writers --------------------------------------------------------------------------------------------------------


async def test_second_writer_is_told_who_holds_the_log_and_changes_nothing(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db", what="tidelog run") as log:
        await log.append([tick()])
        with pytest.raises(LogLocked, match=rf"is being written by process {os.getpid()} .*tidelog run"):
            await open_log(tmp_path / "c.db")
        await log.append([tick()])
        assert log.head.seq == 2


@pytest.mark.parametrize("replaced", [False, True])
async def test_writer_whose_lock_file_is_gone_writes_nothing_more(tmp_path: Path, replaced: bool) -> None:
    log = await open_log(tmp_path / "c.db")
    await log.append([tick()])
    os.unlink(tmp_path / "c.db.lock")
    if replaced:
        (tmp_path / "c.db.lock").touch()

    with pytest.raises(LogError, match=r"c\.db\.lock: was removed or replaced.*start again"):
        await log.append([tick()])
    with pytest.raises(LogError, match="removed or replaced"):
        await log.append([tick()])
    assert log.failure is not None
    await log.close()
    async with open_reader(tmp_path / "c.db") as reader:
        assert reader.head.seq == 1


@pytest.mark.parametrize("compacted", [False, True])
async def test_writer_that_was_robbed_within_a_commit_finds_the_records_of_the_other(
    tmp_path: Path, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at its lock file already; even where the records at its numbers were dropped again, nothing is put there."""
    monkeypatch.setattr(WriterLock, "check", lambda _: None)
    first = await open_log(tmp_path / "c.db")
    await first.append([tick()])
    os.unlink(tmp_path / "c.db.lock")
    async with open_log(tmp_path / "c.db") as second:
        await second.append([tick(), tick(), tick()])
        if compacted:
            await second.put_snapshot("objects", 3, b"state")
            await second.compact()

        with pytest.raises(LogError, match="another process has written to it"):
            await first.append([tick()])
        await first.close()

        await second.append([tick()])
    async with open_reader(tmp_path / "c.db") as reader:
        await verify(reader)
        assert [record.seq async for record in reader.read()] == ([4, 5] if compacted else [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("work", "look"),
    [
        pytest.param("append", 1, id="a group"),
        *[pytest.param("put_snapshot", at, id=f"a snapshot's job {at}") for at in (1, 2, 3, 4)],
        pytest.param("compact", 1, id="a compaction"),
    ],
)
async def test_writer_that_was_robbed_after_its_look_at_the_files_leaves_the_other_alone(
    tmp_path: Path, work: str, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it wrote would end the other, who found his files changed; and nobody would lead."""
    first = await open_log(tmp_path / "c.db")
    await first.append([tick(), tick()])
    await first.put_snapshot("objects", 2, b"state")
    robbed, is_over = asyncio.Event(), threading.Event()
    loop, looks = asyncio.get_running_loop(), 0

    def stopped_behind(check: Callable[[Identity], None]) -> Callable[[Identity], None]:
        def slow(self: Identity) -> None:
            nonlocal looks
            check(self)
            looks += 1
            if looks == look:
                loop.call_soon_threadsafe(robbed.set)
                is_over.wait(PATIENCE)

        return slow

    with monkeypatch.context() as patch:
        for name in ("check", "check_before_commit"):
            patch.setattr(Identity, name, stopped_behind(getattr(Identity, name)))
        works = {
            "append": lambda: first.append([tick()]),
            "put_snapshot": lambda: first.put_snapshot("objects", 2, os.urandom(2 * database.PART_BYTES)),
            "compact": lambda: first.compact(2),
        }
        job = asyncio.create_task(works[work]())
        await robbed.wait()
    os.unlink(tmp_path / "c.db.lock")
    async with open_log(tmp_path / "c.db") as second:
        is_over.set()
        (told,) = await asyncio.gather(job, return_exceptions=True)
        await first.close()

        await second.append([tick()])

    assert "was removed or replaced" in str(told)
    async with open_reader(tmp_path / "c.db") as reader:
        await verify(reader)
        assert await seqs(reader) == [1, 2, 3]


async def test_compaction_that_was_robbed_of_its_lock_drops_nothing_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would put the anchor back to before records that are gone."""
    monkeypatch.setattr(WriterLock, "check", lambda _: None)
    first = await open_log(tmp_path / "c.db")
    await first.append([tick(), tick()])
    await first.put_snapshot("objects", 2, b"state")
    os.unlink(tmp_path / "c.db.lock")
    async with open_log(tmp_path / "c.db") as second:
        await second.append([tick(), tick()])
        await second.put_snapshot("objects", 3, b"state")
        await second.compact()

        with pytest.raises(LogError, match=r"another process has (compacted|written to) it"):
            await first.compact(2)
        with pytest.raises(LogError, match="another process has written to it"):
            await first.close()

    async with open_reader(tmp_path / "c.db") as reader:
        found = await verify(reader)
        assert (found.anchor.seq, [record.seq async for record in reader.read()]) == (3, [4])


async def test_writer_that_was_robbed_takes_what_another_has_compacted_for_no_damage(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick(), tick(), tick()])
    first = await open_log(tmp_path / "c.db")
    os.unlink(tmp_path / "c.db.lock")
    async with open_log(tmp_path / "c.db") as second:
        await second.put_snapshot("objects", 2, b"state")
        await second.compact()

        for seq in (1, 2):
            with pytest.raises(LogError, match="another process has compacted it") as raised:
                await first.record(seq)
            assert not isinstance(raised.value, LogDamaged)
        with pytest.raises(LogError, match="another process has compacted it"):
            await first.snapshot("objects")
        with pytest.raises(LogError, match="another process has written to it"):
            await first.put_snapshot("objects", 3, b"of a record that may be gone")
        await first.close()


async def test_standby_takes_over_when_the_first_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    script = (
        "import asyncio, sys\n"
        "from tidelog.eventlog.log import open_log\n"
        "async def main():\n"
        "    log = await open_log(sys.argv[1], what='first')\n"
        "    await log.take_over('first')\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, path, stdout=asyncio.subprocess.PIPE
    )
    assert first.stdout is not None
    assert await first.stdout.readline() == b"ready\n"
    with pytest.raises(LogLocked, match=f"process {first.pid}"):
        await open_log(path)
    first.kill()
    await first.communicate()

    async with open_log(path, what="second") as log:
        assert (await log.take_over("second")).seq == 2
        assert log.epoch == 2


async def test_log_class_says_what_keeps_it(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        assert isinstance(log, Log)
        assert log.name == str(tmp_path / "c.db")
        assert log.store.name == log.name


@pytest.mark.parametrize("compacted", [False, True])
async def test_writer_that_was_robbed_while_it_opened_the_log_takes_no_head_back(
    tmp_path: Path, compacted: bool
) -> None:
    """The head file would name the log as it was examined, before the other's records; who opens it next would go on from there."""
    path = tmp_path / "c.db"

    async def rob() -> None:
        os.unlink(f"{path}.lock")
        async with open_log(path) as thief:
            await thief.take_over("thief")
            if compacted:
                await thief.put_snapshot("objects", thief.head.seq, b"state")
                await thief.compact()
        named.append(opening.read_head(str(path), Disk()).head)

    named: list[Head | None] = []

    class Slow(Disk):
        """Between the examination and the first thing written somebody else has the log for a while."""

        def sync_folder(self, path: str) -> None:
            super().sync_folder(path)
            asyncio.run(rob())  # In the thread that opens the log, which has no loop.

    await crash(tmp_path / "whole.db", path, count=2)
    with pytest.raises(LogError, match=r"c\.db: another process has written to it while it was opened"):
        await open_log(path, disk=Slow())

    assert [opening.read_head(str(path), Disk()).head] == named
    async with open_log(path) as log:
        assert (log.head.seq, log.head.epoch) == (3, 1)
