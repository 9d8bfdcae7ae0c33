"""Whether the files that a writer opened are still those that stand there, as this process left them.

An open file outlives its name: SQLite goes on writing to a database that was moved away, and says that all is well. Whoever restores a
backup beneath a running daemon, moves, removes, cuts or overwrites its files, would have records acknowledged that nobody finds again. So

- before each job of the writer the write-ahead log, and the database too before all but a commit, are the files that they were, not a byte or a
  moment different from how the job before left them (`check`),
- after each commit, before anybody is answered, all of them still have their names, the database is unchanged, and the write-ahead log leads
  without a gap from its header to the end of the commit (`confirm`): else what was acknowledged would be readable now, and gone after the next start.

Everything here is called in the writer's thread, where each call of the system is a wait for the interpreter's lock: a commit costs five of
`stat` and two of `pread`, more only if it is large.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tidelog.api.errors import LogError
from tidelog.eventlog.disk import Disk

COMPANIONS = ("", "-wal", "-shm", ".head")
"""The files beside the lock, which looks after itself (`tidelog.eventlog.lock`)."""

CHANGED_BY_US = ("", "-wal")
"""Only their writer changes these. Readers write to SQLite's index, and the head file knows its own content."""

FRAMES_PER_READ = 8
"""Most commits of a few callers have fewer; of many callers a read more is nothing."""

_WAL_HEADER = struct.Struct(">IIIIIIII")
_FRAME_HEADER = 24
_SALTS_AT = slice(16, 24)


class _Look(NamedTuple):
    """The part of a file that is compared."""

    device: int
    inode: int
    size: int
    changed: int


class _End(NamedTuple):
    """The newest commit in the write-ahead log that is known of."""

    header: bytes = b""
    """Of the write-ahead log; empty as long as nothing is in it."""
    offset: int = 0
    """Where the commit's last frame ends."""
    frame: bytes = b""
    """The bytes of the frame, checksum included; empty if there is none."""


class Identity:
    """The files of an open log. Made when SQLite has them open, and nobody else writes."""

    def __init__(self, path: str, disk: Disk, database: os.stat_result, head_fd: int, frames: int) -> None:
        """`database`: how it looked before SQLite opened it. `frames`: so many are in the write-ahead log, as its checkpoint says."""
        self._path = path
        self._disk = disk
        # Nobody locks anything in this file, so that closing it takes no lock away, as it would with the two others of SQLite.
        self._wal = disk.open(path + "-wal", os.O_RDONLY)
        try:
            self._looks = {suffix: self._look(suffix) for suffix in COMPANIONS}
            opened = {"": database, "-wal": disk.stat_open(self._wal), ".head": disk.stat_open(head_fd)}
            for suffix, found in opened.items():
                if _of(found)[:2] != self._looks[suffix][:2]:
                    self._refuse(suffix, "was replaced while it was opened")
            self._end = _End()
            self.checkpointed(frames)
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise `LogError` unless the files are as `left` saw them."""
        for suffix in COMPANIONS:
            self._check(suffix)

    def check_before_commit(self) -> None:
        """Raise `LogError` unless the write-ahead log is as `left` saw it: of the others `confirm` sees it."""
        self._check("-wal")

    def _check(self, suffix: str) -> _Look:
        known = self._looks[suffix]
        found = self._look(suffix)
        if found[:2] != known[:2]:
            self._refuse(suffix, "was replaced")
        if found != known and suffix in CHANGED_BY_US:
            self._refuse(suffix, "another process has written to it")
        return found

    def confirm(self) -> None:
        """Raise `LogError` unless what was just committed can be found again through the files' names."""
        for suffix in ("", "-shm", ".head"):
            self._check(suffix)
        self._follow()
        self._remember("-wal")

    def left(self) -> None:
        """Remember the files as they are now: what was done to them was our own."""
        for suffix in CHANGED_BY_US:
            self._remember(suffix)

    def checkpointed(self, frames: int) -> None:
        """Remember that the write-ahead log has so many frames: what SQLite says of it when it moves them to the database."""
        header = self._disk.read_at(self._wal, _WAL_HEADER.size, 0)
        if len(header) < _WAL_HEADER.size or frames <= 0:
            # What stands there is nothing to SQLite, which will begin with any header.
            self._end = _End(b"", _WAL_HEADER.size)
            return
        offset = _WAL_HEADER.size + frames * self._frame_size(header)
        self._end = _End(header, offset, self._frame_before(header, offset))

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._wal >= 0:
            self._disk.close(self._wal)
            self._wal = -1

    # --- names ----------------------------------------------------------------------------------------------------------

    def _look(self, suffix: str) -> _Look:
        try:
            return _of(self._disk.stat(self._path + suffix))
        except OSError:
            self._refuse(suffix, "was moved or removed")

    def _remember(self, suffix: str) -> None:
        found = self._look(suffix)
        if found[:2] != self._looks[suffix][:2]:
            self._refuse(suffix, "was replaced")
        self._looks[suffix] = found

    def _refuse(self, suffix: str, what: str) -> NoReturn:
        raise LogError(
            f"{self._path}{suffix}: {what}: nothing more is written or acknowledged; put back the files that were "
            "there, or what is to take their place, then start again"
        )

    # --- the write-ahead log --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Go on from the newest commit that is known of to the next one."""
        header = self._disk.read_at(self._wal, _WAL_HEADER.size, 0)
        if len(header) < _WAL_HEADER.size:
            self._refuse("-wal", "was cut")
        known, size = self._end, self._frame_size(header)
        if header != known.header:
            if known.header and not _begins_anew(known.header, header):
                self._refuse("-wal", "was overwritten")
            known = _End(header, _WAL_HEADER.size)
        start = known.offset - len(known.frame)
        frames = self._frames(start, size)
        if known.frame and next(frames, b"") != known.frame:
            self._refuse("-wal", "was overwritten")
        offset = known.offset
        for frame in frames:
            if frame[8:16] != header[_SALTS_AT]:
                break
            offset += size
            if frame[4:8] != b"\0\0\0\0":  # The last one of a commit tells how large the database is.
                self._end = _End(header, offset, frame)
                return
        self._refuse("-wal", "does not hold what was written to it")

    def _frames(self, offset: int, size: int) -> Iterator[bytes]:
        """Whole frames from there on."""
        while content := self._disk.read_at(self._wal, FRAMES_PER_READ * size, offset):
            for start in range(0, len(content) - size + 1, size):
                yield content[start : start + size]
            if len(content) < FRAMES_PER_READ * size:
                return
            offset += len(content)

    def _frame_before(self, header: bytes, offset: int) -> bytes:
        size = self._frame_size(header)
        return self._disk.read_at(self._wal, size, offset - size)

    def _frame_size(self, header: bytes) -> int:
        page: int = _WAL_HEADER.unpack(header)[2]
        return _FRAME_HEADER + page


def _of(found: os.stat_result) -> _Look:
    return _Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _begins_anew(before: bytes, after: bytes) -> bool:
    """Whether SQLite has begun the write-ahead log anew: it counts one of the two salts up then."""
    old, new = _WAL_HEADER.unpack(before), _WAL_HEADER.unpack(after)
    counted: int = (new[4] - old[4]) % 2**32
    return 0 < counted < 2**31
