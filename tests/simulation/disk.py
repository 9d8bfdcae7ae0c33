"""The disk of a simulated machine, behind the same port as the real one (`tidelog.eventlog.disk`): in memory, and as unreliable as asked for.

What is written is seen by every process at once, and is on the disk when it was synced. In between a loss of power decides, sector by sector or
as a whole: kept, lost, or in another order than it was written. Creating and renaming files is the folder's content, which is synced by itself.

    write ──► seen by all ──(sync)──► on the disk
                   └──(power loss)──► some of it, as the seed says

Every operation that changes something is a point at which a crash can be asked for, before it or after it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.loop import CURRENT, Killed, Process
from tidelog.eventlog.disk import Disk

SECTOR = 512
"""What is written at once or not at all."""

SIZE = 2**40
"""Of the disk; so much that its reserve is never touched unless it is said to be full."""


class _File:
    """A file: what processes see, what is on the disk, and the writes that make the difference."""

    __slots__ = ("content", "durable", "is_beyond", "unsynced")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []
        self.is_beyond = False
        """What is seen is more than what is on the disk or will be: a sync has failed."""


class _Open(NamedTuple):
    file: _File
    path: str
    process: Process | None


class CrashPoint(NamedTuple):
    """Where power is to be lost, or a process be killed."""

    operation: str
    """`write`, `sync`, …; "" for any."""
    nth: int
    before: bool
    back_after: float
    kills: bool = False
    """Only the process that does it is gone."""


class Faults:
    """What goes wrong with a disk. What is asked for stays until it has happened or until `heal`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.on_crash: Callable[[CrashPoint], None] = lambda _: None
        """Called at a crash point; whoever is running is killed after it."""
        self.crash_points: list[CrashPoint] = []
        self.full = False
        self.writes_to_fail = 0
        self.syncs_to_fail = 0
        self.faults = 0
        """How many operations have failed."""
        self.operations = 0

    def heal(self) -> None:
        """No more faults."""
        self.full = False
        self.writes_to_fail = self.syncs_to_fail = 0
        self.crash_points.clear()

    def refuse_write(self, end: int, size: Callable[[], int]) -> None:
        """Raise `OSError` if this is one that fails: up to `end`, of a file that is as long as `size` says."""
        if self.full and end > size():
            self.faults += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.writes_to_fail:
            self.writes_to_fail -= 1
            self.faults += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refuse_sync(self) -> None:
        """Raise `OSError` if this is one that fails."""
        if self.syncs_to_fail:
            self.syncs_to_fail -= 1
            self.faults += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _alive(self) -> None:
        process = CURRENT.get()
        if process is not None and not process.alive:
            raise Killed

    def _step(self, operation: str, *, before: bool) -> None:
        self._alive()
        self.operations += before
        for index, point in enumerate(self.crash_points):
            if point.before == before and point.operation in ("", operation):
                if point.nth > 1:
                    self.crash_points[index] = point._replace(nth=point.nth - 1)
                    continue
                del self.crash_points[index]
                self.on_crash(point)
                self._alive()
                return


class SimDisk(Faults, Disk):
    """One disk, in memory."""

    syncs = True
    """False: syncing does nothing. Only for showing that this is noticed."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._renames: list[Callable[[dict[str, _File]], None]] = []
        """Changes of names that are not synced, in order."""
        self._open: dict[int, _Open] = {}
        self._numbers = 2

    # --- what the product does ------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        self._alive()
        file = self._files.get(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._step("create", before=True)
            file = self._files[path] = _File()
            self._renames.append(lambda names, path=path, file=file: names.update({path: file}))
            self._step("create", before=False)
        if file.is_beyond and not any(opened.file is file for opened in self._open.values()):
            self._evict(file)
        if flags & os.O_TRUNC:
            file.content.clear()
            file.durable.clear()
            file.unsynced.clear()
        self._numbers += 1
        self._open[self._numbers] = _Open(file, path, CURRENT.get())
        return self._numbers

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        self._alive()
        return bytes(self._open[fd].file.content[offset : offset + size])

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._step("write", before=True)
        file = self._open[fd].file
        try:
            self.refuse_write(offset + len(data), lambda: len(file.content))
        except OSError as error:
            if error.errno == errno.EIO:
                part = data[: self._rng.randrange(len(data) + 1)] if self._rng.random() < 0.5 else b""
                _put(file.content, part, offset)
                file.unsynced.append((offset, part))
            raise
        _put(file.content, data, offset)
        file.unsynced.append((offset, bytes(data)))
        self._step("write", before=False)

    def sync(self, fd: int) -> None:
        self._step("sync", before=True)
        file = self._open[fd].file
        try:
            self.refuse_sync()
        except OSError:
            self._lose(file)
            raise
        if self.syncs:
            for offset, data in file.unsynced:
                _put(file.durable, data, offset)
            file.unsynced.clear()
        self._step("sync", before=False)

    def sync_folder(self, path: str) -> None:
        self._step("sync_folder", before=True)
        self._durable_names = dict(self._files)
        self._renames.clear()
        self._step("sync_folder", before=False)

    def rename(self, old: str, new: str) -> None:
        self._step("rename", before=True)
        file = self._files.pop(old)
        self._files[new] = file

        def again(names: dict[str, _File]) -> None:
            names.pop(old, None)
            names[new] = file

        self._renames.append(again)
        self._step("rename", before=False)

    def remove(self, path: str) -> None:
        self._step("remove", before=True)
        if self._files.pop(path, None) is not None:
            self._renames.append(lambda names: names.pop(path, None) and None)
        self._step("remove", before=False)

    def room(self, path: str) -> tuple[int, int]:
        self._alive()
        return (0 if self.full else SIZE), SIZE

    # --- what a store needs beside it -----------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return path in self._files

    def size(self, fd: int) -> int:
        """How long the file is."""
        return len(self._open[fd].file.content)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file; durable at once, which is simpler than it is on real disks, and is not relied on."""
        self._alive()
        file = self._open[fd].file
        del file.content[size:]
        del file.durable[size:]
        file.unsynced = [(offset, data[: size - offset]) for offset, data in file.unsynced if offset < size]

    # --- faults ---------------------------------------------------------------------------------------------------------

    def close_all_of(self, process: Process) -> None:
        """The process is gone."""
        for fd in [fd for fd, opened in self._open.items() if opened.process is process]:
            del self._open[fd]

    def lose_power(self) -> None:
        """What was not synced is kept, lost, torn or out of order; nothing is open any more."""
        self._open.clear()
        for change in self._renames[: self._rng.randrange(len(self._renames) + 1)]:
            change(self._durable_names)
        self._renames.clear()
        self._files = dict(self._durable_names)
        for file in dict.fromkeys(self._files.values()):
            self._settle(file)

    def _settle(self, file: _File) -> None:
        """Decide what the disk has of the writes that were not synced."""
        rng, unsynced = self._rng, file.unsynced
        fate = rng.choice(("kept", "lost", "prefix", "sectors", "reordered"))
        if fate == "kept":
            survivors = unsynced
        elif fate == "lost":
            survivors = []
        elif fate == "prefix":
            survivors = unsynced[: rng.randrange(len(unsynced) + 1)]
        else:
            survivors = [part for write in unsynced for part in _sectors(*write) if rng.random() < 0.5]
            if fate == "reordered":
                rng.shuffle(survivors)
        for offset, data in survivors:
            _put(file.durable, data, offset)
        file.unsynced = []
        file.is_beyond = False
        file.content = bytearray(file.durable)

    def _lose(self, file: _File) -> None:
        """As Linux does after a failed fsync: what was not written is forgotten, and may be seen for a while all the same."""
        file.unsynced.clear()
        file.is_beyond = True

    def _evict(self, file: _File) -> None:
        """Nobody has the file open: the system may have dropped what it had of it in memory."""
        if self._rng.random() < 0.5:
            file.is_beyond = False
            file.content = bytearray(file.durable)
            for offset, data in file.unsynced:
                _put(file.content, data, offset)


def _put(content: bytearray, data: bytes, offset: int) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    """The write, cut where sectors begin."""
    parts = []
    place = 0
    while place < len(data):
        end = min(len(data), place + SECTOR - (offset + place) % SECTOR)
        parts.append((offset + place, data[place:end]))
        place = end
    return parts
