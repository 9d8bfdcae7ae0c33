"""Going on with a damaged log: an exact prefix is kept, the loss is recorded, the damaged files stay."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.api.errors import LogDamaged, LogError, LogLocked
from tidelog.eventlog import database, rebuild, sqlite
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, LossAccepted, Record, Tick, decode_body
from tidelog.eventlog.repair import Repaired, repair
from tidelog.eventlog.verify import verify


async def make(path: Path, count: int = 20, compact_to: int = 0) -> list[Record]:
    async with open_log(path) as log:
        await log.take_over("first")
        for n in range(2, count + 1):
            await log.append([Draft(body=Tick(), author="cluster", key=f"Pod/default/{n:03}")])
            if n == compact_to:
                await log.put_snapshot("objects", n, b"the state" * 100)
                await log.compact()
        return [record async for record in log.read()]


async def read(path: Path) -> list[Record]:
    async with open_reader(path) as reader:
        await verify(reader)
        return [record async for record in reader.read()]


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 10] ^= 1
    path.write_bytes(content)


def page_of(path: Path, table: str) -> int:
    raw = sqlite3.connect(path)
    ((page,),) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    raw.close()
    return int(page)


def destroy_page(path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(content)


async def test_sound_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)

    assert await repair(path, accept_loss=True) == Repaired(kept=20, lost_last=20, reason="")
    assert await read(path) == records
    assert not list(tmp_path.glob("*damaged*"))  # noqa: ASYNC240


@pytest.mark.unreplayed("the log is damaged")
async def test_damage_is_only_shown_unless_the_loss_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    change(path, b"Pod/default/011", b"Pod/default/911")
    before = path.read_bytes()

    with pytest.raises(LogDamaged, match="records 11 to 20"):
        await repair(path, accept_loss=False)

    assert path.read_bytes() == before


async def test_everything_before_the_damage_is_kept_and_the_loss_recorded(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    change(path, b"Pod/default/011", b"Pod/default/911")
    damaged = path.read_bytes()

    done = await repair(path, accept_loss=True, clock=lambda: 7)

    assert (done.kept, done.lost_last) == (10, 20)
    assert "digest of record 11" in done.reason
    assert done.backup == f"{path}.damaged-1"
    assert (tmp_path / "c.db.damaged-1").read_bytes() == damaged
    *kept, loss = await read(path)
    assert kept == records[:10]
    assert decode_body(loss) == LossAccepted(first=11, last=20, epoch=1, reason=done.reason)
    assert loss.at == kept[-1].at
    async with open_log(path) as log:
        assert (await log.take_over("second")).seq == 12
        assert log.epoch == 2


@pytest.mark.parametrize("number", [0, 10])
async def test_record_before_a_damaged_row_number_is_kept(tmp_path: Path, number: int) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    content = bytearray(path.read_bytes())
    page = (page_of(path, "records") - 1) * 4096
    pointer = (
        page + 8 + 2 * 10
    )  # To the eleventh cell of the leaf: the size of its row, in one byte here, then its number.
    cell = page + int.from_bytes(content[pointer : pointer + 2], "big")
    assert content[cell + 1] == 11
    content[cell + 1] = number
    path.write_bytes(content)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (10, 20)
    assert (await read(path))[:-1] == records[:10]


async def test_epoch_that_was_lost_is_not_given_out_again(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    async with open_log(path) as log:
        await log.take_over("second")
    change(path, b"Pod/default/011", b"Pod/default/911")

    await repair(path, accept_loss=True)

    async with open_log(path) as log:
        assert log.epoch == 2
        assert await log.take_over("third")
        assert log.epoch == 3


async def test_second_repair_keeps_both_backups(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    backups = []
    for name in (b"011", b"005"):
        change(path, b"Pod/default/" + name, b"Pod/default/999")
        backups.append(os.path.basename((await repair(path, accept_loss=True)).backup))

    assert backups == ["c.db.damaged-1", "c.db.damaged-2"]
    assert len(await read(path)) == 5


async def test_lost_head_file_costs_no_record_but_the_certainty(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    os.unlink(tmp_path / "c.db.head")

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, None)
    *kept, loss = await read(path)
    assert kept == records
    assert decode_body(loss) == LossAccepted(first=21, epoch=1, reason="its head file is missing")


async def test_destroyed_anchor_is_found_again_by_the_snapshot_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path, compact_to=12)
    destroy_page(path, page_of(path, "anchor"))

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, 20)
    assert await read(path) == records
    async with open_reader(path) as reader:
        assert reader.anchor.seq == 12
        assert await reader.snapshot("objects") is not None


async def test_writer_that_meets_a_destroyed_page_names_the_repair(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    destroy_page(path, page_of(path, "parts"))

    async with open_log(path) as log:
        with pytest.raises(LogError, match="writing failed") as told:
            await log.put_snapshot("objects", 20, b"the state")
    assert f"tidelog log repair --accept-loss {path}" in str(told.value)
    assert "start again" not in str(told.value)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, 20)
    assert await read(path) == records


async def test_destroyed_records_leave_nothing_but_the_record_of_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    destroy_page(path, page_of(path, "records"))

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (0, 20)
    (loss,) = await read(path)
    assert decode_body(loss) == LossAccepted(first=1, last=20, epoch=1, reason=done.reason)


async def test_lost_database_leaves_the_record_of_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    path.unlink()

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last, done.backup) == (0, 20, "")
    assert len(await read(path)) == 1


async def test_file_that_is_broken_without_loss_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path, compact_to=12)
    destroy_page(path, page_of(path, "parts"))
    with pytest.raises(LogError, match="every record is there, but SQLite finds its file damaged"):
        await repair(path, accept_loss=False)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, 20)
    assert await read(path) == records


async def test_damage_to_what_an_index_holds_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path, compact_to=12)
    start = (page_of(path, "sqlite_autoindex_parts_1") - 1) * 4096
    content = bytearray(path.read_bytes())
    cell = start + int.from_bytes(content[start + 8 : start + 10], "big")
    content[cell + 2] = 0x7F  # The type of its first column: a text that is longer than the cell.
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    with pytest.raises(LogError, match="every record is there, but SQLite finds its file damaged"):
        await repair(path, accept_loss=False)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, 20)
    assert await read(path) == records


async def test_log_that_is_being_written_is_not_repaired(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db"):
        with pytest.raises(LogLocked):
            await repair(tmp_path / "c.db", accept_loss=True)


async def test_what_is_no_log_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with pytest.raises(LogError, match="there is no such log"):
        await repair(path, accept_loss=True)
    path.write_bytes(b"something else\n" * 500)
    with pytest.raises(LogError, match="is not a tidelog log"):
        await repair(path, accept_loss=True)

    assert path.read_bytes() == b"something else\n" * 500


async def test_interrupted_repair_is_only_shown_unless_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.db"
    await make(path)
    change(path, b"Pod/default/011", b"Pod/default/911")

    def interrupted(path: str, disk: Disk) -> str:
        raise OSError("the machine stopped")

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "install", interrupted)
        with pytest.raises(LogError, match="cannot be repaired: the machine stopped"):
            await repair(path, accept_loss=True)
    with pytest.raises(LogDamaged, match="a repair or an import of it was interrupted"):
        await repair(path, accept_loss=False)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.reason) == (11, "an interrupted repair or import was finished")
    assert len(await read(path)) == 11


async def test_snapshots_of_records_that_were_lost_and_damaged_ones_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    async with open_log(path) as log:
        for seq, name in ((5, "sound"), (6, "damaged"), (15, "late")):
            await log.put_snapshot(name, seq, name.encode() * 100)
    change(path, b"damaged" * 100, b"changed" * 100)
    change(path, b"Pod/default/011", b"Pod/default/911")

    await repair(path, accept_loss=True)

    async with open_reader(path) as reader:
        assert [(info.name, info.seq) for info in await reader.snapshots()] == [("sound", 5)]


async def test_destroyed_anchor_of_a_log_that_was_never_compacted_was_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    async with open_log(path) as log:
        await log.put_snapshot("objects", 12, b"the state")
    destroy_page(path, page_of(path, "anchor"))

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, 20)
    assert await read(path) == records


@pytest.mark.parametrize("damaged", [6, 10])
@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_log_damaged_before_its_oldest_state_begins_at_that_state(tmp_path: Path, damaged: int) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    async with open_log(path) as log:
        for name in ("objects", "scheduler"):
            await log.put_snapshot(name, 12, b"the state")
        await log.compact(4)
    change(path, f"Pod/default/{damaged:03}".encode(), b"Pod/default/xxx")

    done = await repair(path, accept_loss=True, clock=lambda: records[-1].at)

    assert (done.kept, done.lost_last, done.begins) == (20, 20, 12)
    *left, loss = await read(path)
    assert left == records[12:]
    assert decode_body(loss) == LossAccepted(first=5, last=12, epoch=1, reason=done.reason)
    async with open_reader(path) as reader:
        assert (reader.anchor.seq, reader.anchor.at) == (12, records[11].at)
        assert await reader.snapshot("scheduler") is not None


async def test_log_damaged_behind_a_state_begins_where_it_did(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    records = await make(path)
    async with open_log(path) as log:
        for seq in (8, 12):
            await log.put_snapshot("objects", seq, b"the state")
        await log.compact(4)
    change(path, b"Pod/default/010", b"Pod/default/xxx")

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last, done.begins) == (9, 20, 0)
    assert (await read(path))[:-1] == records[4:9]


@pytest.mark.parametrize("compact_to", [0, 12])
async def test_damaged_write_ahead_log_costs_nothing_that_was_moved_to_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact_to: int
) -> None:
    """SQLite takes it up to the damage, and what it takes hides the newer pages that were moved: of a database that grew nothing can be read then."""
    live, path = tmp_path / "live.db", tmp_path / "c.db"
    async with open_log(live) as log:
        await log.take_over("first")
        for n in range(2, 60):
            await log.append([Draft(body=Tick(), author="cluster", key=f"Pod/default/{'web' * 100}-{n}")])
            if n == compact_to:
                await log.put_snapshot("objects", n, b"the state" * 100)
                await log.compact()
        records = [record async for record in log.read()]
        monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 0)
        await log.store.tidy()
        for suffix in ("", "-wal", ".head"):
            shutil.copyfile(f"{live}{suffix}", f"{path}{suffix}")
    flip_bit(tmp_path / "c.db-wal")
    with pytest.raises(LogDamaged):
        await repair(path, accept_loss=False)

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last, done.begins) == (59, 59, 0)
    assert await read(path) == records
    async with open_reader(path) as reader:
        assert (await reader.snapshot("objects") is not None) == bool(compact_to)


async def test_log_of_another_history_is_repaired_with_a_record_of_the_loss(tmp_path: Path) -> None:
    """As long as the one whose head file stands beside it, but another one: what that had acknowledged is not there."""
    path, other = tmp_path / "c.db", tmp_path / "other.db"
    records = await make(path)
    await make(other)
    shutil.copyfile(f"{other}.head", f"{path}.head")

    done = await repair(path, accept_loss=True)

    assert (done.kept, done.lost_last) == (20, None)
    *left, loss = await read(path)
    assert left == records
    assert decode_body(loss) == LossAccepted(first=21, epoch=1, reason=done.reason)


async def test_part_of_a_snapshot_that_cannot_be_removed_is_not_tried_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    raw = sqlite3.connect(path)
    raw.executemany(
        "INSERT INTO parts VALUES (?, 3, ?, ?)", [("orphans", n, b"part %d" % n) for n in range(40)]
    )
    raw.commit()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    content = path.read_bytes()
    first_row = content.rindex(b"orphans", 0, content.index(b"part 0"))
    page = first_row // 4096
    entries = [found.start() for found in re.finditer(b"orphans", content) if found.start() // 4096 != page]
    at = entries[7]
    path.write_bytes(
        content[:at] + b"zrphans" + content[at + 7 :]
    )  # In the index, where nobody will look for it.

    asked = 0

    def count(call: str) -> None:
        nonlocal asked
        asked += call.startswith("SELECT name, seq, part FROM parts")

    raw = sqlite3.connect(path)
    raw.set_trace_callback(count)
    while database.sweep(raw, 1) and asked <= 100:
        pass
    assert asked < 50
    raw.close()

    assert len(await read(path)) == 20
