"""The head file: two slots in turn, each twice."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tidelog.api.errors import LogError
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.head_file import _CHECK, _LAYOUT, SECTOR, SIZE, SLOT, HeadFile, parse
from tidelog.eventlog.store import EMPTY, Head

HEADS = [Head(seq, seq * 10, seq // 3, bytes([seq]) * 32) for seq in range(1, 6)]


@pytest.fixture
def file(tmp_path: Path) -> HeadFile:
    path = str(tmp_path / "c.db.head")
    HeadFile.create(path, Disk())
    return HeadFile.open(path, Disk(), writable=True)


def content(file: HeadFile) -> bytes:
    with open(file.path, "rb") as opened:
        return opened.read()


def test_new_file_says_that_the_log_is_empty(file: HeadFile) -> None:
    reading = file.read()

    assert (reading.head, reading.doubtful) == (EMPTY, False)
    assert len(content(file)) == SIZE
    assert os.listdir(os.path.dirname(file.path)) == ["c.db.head"]
    file.close()


def test_last_head_written_is_read(file: HeadFile) -> None:
    for head in HEADS:
        file.write(head)
        assert file.read().head == head
    file.close()
    again = HeadFile.open(file.path, Disk(), writable=True)
    assert again.read().head == HEADS[-1]
    again.write(HEADS[0])
    assert again.read().head == HEADS[0]
    again.close()
    again.close()


def test_slots_are_written_in_turn(file: HeadFile) -> None:
    file.write(HEADS[0])
    before = content(file)
    file.write(HEADS[1])
    after = content(file)
    file.close()

    changed = [at // SLOT for at in range(SIZE) if before[at] != after[at]]
    assert len(set(changed)) == 1


def test_file_that_another_process_has_written_since_is_left_as_it_is(file: HeadFile) -> None:
    """Its number would be an older one, in the place of the newest head."""
    other = HeadFile.open(file.path, Disk(), writable=True)
    other.write(HEADS[1])
    written = content(file)

    with pytest.raises(LogError, match="another process has written to it"):
        file.write(HEADS[0])

    assert content(file) == written
    file.read()
    file.write(HEADS[2])
    assert parse(content(file)).head == HEADS[2]
    file.close()
    other.close()


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_what_who_was_robbed_writes_late_is_written_over(file: HeadFile, writes: int) -> None:
    """He had looked already. It is in the place of the newest head, or of the one before."""

    class Slow(Disk):
        def write_at(self, fd: int, data: bytes, offset: int) -> None:
            for head in HEADS[:writes]:
                file.write(head)
            super().write_at(fd, data, offset)

    robbed = HeadFile.open(file.path, Slow(), writable=True)
    robbed.write(HEADS[0])

    file.write(HEADS[4])

    assert (parse(content(file)).head, parse(content(file)).doubtful) == (HEADS[4], False)
    with pytest.raises(LogError, match="another process has written to it"):
        robbed.write(HEADS[1])
    file.close()
    robbed.close()


@pytest.mark.parametrize("size", [0, 1, SECTOR, SLOT - 1, SLOT, SLOT + 1, SIZE - 1])
def test_file_that_was_cut_off_is_filled_up_by_two_writes(file: HeadFile, size: int) -> None:
    file.write(HEADS[0])
    os.truncate(file.path, size)
    file.read()

    for head in HEADS[1:]:
        file.write(head)

    assert (len(content(file)), parse(content(file))) == (SIZE, file.read())
    assert (file.read().head, file.read().doubtful) == (HEADS[-1], False)
    file.close()


def test_any_single_bit_flip_is_without_effect(file: HeadFile) -> None:
    file.write(HEADS[0])
    file.write(HEADS[1])
    good = content(file)
    file.close()

    for bit in range(SIZE * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        reading = parse(bytes(bad))
        assert (reading.head, reading.doubtful) == (HEADS[1], False)


def test_lost_newest_slot_leaves_the_one_before_and_doubt(file: HeadFile) -> None:
    file.write(HEADS[0])
    file.write(HEADS[1])
    good = content(file)
    file.close()

    for slot in range(2):
        bad = bytearray(good)
        bad[slot * SLOT : (slot + 1) * SLOT] = os.urandom(SLOT)
        reading = parse(bytes(bad))
        assert reading.doubtful
        assert reading.head in HEADS[:2]
    assert {parse(good[:SLOT] + bytes(SLOT)).head, parse(bytes(SLOT) + good[SLOT:]).head} == set(HEADS[:2])


def test_write_torn_anywhere_leaves_one_of_the_two_heads(file: HeadFile) -> None:
    file.write(HEADS[0])
    before = content(file)
    file.write(HEADS[1])
    after = content(file)
    file.close()

    for at in range(0, SIZE + 1, 7):
        reading = parse(after[:at] + before[at:])
        assert reading.head in HEADS[:2]
    for sector in range(SIZE // SECTOR):
        lost = bytearray(after)
        lost[sector * SECTOR : (sector + 1) * SECTOR] = before[sector * SECTOR : (sector + 1) * SECTOR]
        assert parse(bytes(lost)).head == HEADS[1]


@pytest.mark.parametrize("data", [b"", b"x", bytes(SIZE), os.urandom(SIZE), b"tidehead" * 256])
def test_what_is_no_head_file_has_no_head(data: bytes) -> None:
    reading = parse(data)

    assert reading.head is None
    assert "cannot be read" in reading.problem


def test_slots_of_another_kind_of_file_are_not_read(file: HeadFile) -> None:
    """Their check is right, but they are not ours."""
    sector = content(file)[:SECTOR]
    data = b"another!" + sector[8 : _LAYOUT.size]
    foreign = (data + sha256(data).digest()[:_CHECK]).ljust(SECTOR, bytes(1))
    file.close()

    assert parse(sector * 4).head == EMPTY
    assert parse(foreign * 4).head is None
