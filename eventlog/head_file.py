"""The head file: how long the log was when it last told anybody that a record is durable.

A chain of digests proves content and order, never length: a log whose end was lost still verifies. So after each group
commit, and before its callers are answered, the head goes to this small file beside the log and is fsynced.

    byte 0        512       1024       1536     2048
         | slot 0 | slot 0' | slot 1 | slot 1' |

Two slots are written in turn, so that a crash in the middle of a write leaves the other one; each slot is written twice,
in two sectors, so that one bad sector hides nothing. A sector: magic, format, generation, seq, at, epoch, digest, check.

The log may be one group *ahead* of its head file (a crash between commit and head), never behind. A slot of which neither
sector can be read makes the file *doubtful*: it may have named a newer head than the one that is left. Then only a log
that is already ahead of what is left is known to be whole.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256

import msgspec

from tidelog.api.errors import LogError
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.records import FORMAT
from tidelog.eventlog.store import EMPTY, Head

SECTOR = 512
SLOT = 2 * SECTOR
SIZE = 2 * SLOT
_MAGIC = b"tidehead"
_LAYOUT = struct.Struct(">8sIQQQQ32s")
_CHECK = 16


class HeadReading(msgspec.Struct, frozen=True):
    """The content of a head file. `head` is None when there is none, or nothing in it can be read."""

    head: Head | None
    generation: int = 0
    doubtful: bool = False
    format: int = FORMAT
    problem: str = ""
    """Why `head` is None."""


NO_FILE = HeadReading(None, problem="its head file is missing")


class HeadFile:
    """An open head file. `write` costs one pread and one fdatasync, `read` one pread."""

    def __init__(self, path: str, fd: int, disk: Disk) -> None:
        self.path = path
        self._fd = fd
        self._disk = disk
        self._known = (0, False)
        """Generation and doubt of what this process has last read or written."""
        self._seen: tuple[bytes, HeadReading] = (b"", NO_FILE)

    @classmethod
    def create(cls, path: str, disk: Disk, head: Head = EMPTY) -> None:
        """Make a head file that says `head`, in the place of any other, durably and atomically."""
        new = path + ".new"
        fd = disk.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            disk.write_at(fd, b"".join(_slot(head, generation) for generation in (0, 1)), 0)
            disk.sync(fd)
        except OSError:
            disk.remove(new)
            raise
        finally:
            disk.close(fd)
        disk.rename(new, path)
        disk.sync_folder(path)

    @classmethod
    def open(cls, path: str, disk: Disk, *, writable: bool) -> HeadFile:
        """Open an existing one; raises `OSError`."""
        file = cls(path, disk.open(path, os.O_RDWR if writable else os.O_RDONLY), disk)
        file.read()
        return file

    def read(self) -> HeadReading:
        """Read the file. Costs 2 microseconds while it is unchanged."""
        reading = self._look()
        self._known = reading.generation, reading.doubtful
        return reading

    @property
    def fd(self) -> int:
        """The open file."""
        return self._fd

    def _look(self) -> HeadReading:
        content = self._disk.read_at(self._fd, SIZE, 0)
        if content != self._seen[0]:
            self._seen = content, parse(content)
        return self._seen[1]

    def write(self, head: Head) -> None:
        """Durable on return. After an error the file must not be written again.

        Refused if another process has written since this one last read or wrote: with the numbers known here its newest head
        would be overwritten, and the file go back; or if somebody has put older content into it. But one who was robbed of the lock
        between his look and his write may put an older head in the place of the newest: what this one wrote before is there yet,
        and that place is written to again.
        """
        found = self._look()
        generation, is_doubtful = self._known
        if (found.generation, found.doubtful) not in (self._known, (generation - 1, is_doubtful)):
            raise LogError(
                f"{self.path}: another process has written to it: nothing more is written or acknowledged; start again"
            )
        generation = found.generation + 1
        self._disk.write_at(self._fd, _slot(head, generation), generation % 2 * SLOT)
        self._disk.sync(self._fd)
        # The other slot may still be the one that cannot be read.
        is_doubtful = (found.doubtful or found.head is None) and self._look().doubtful
        self._known = generation, is_doubtful

    def sync(self) -> None:
        """Make durable what another process wrote before it was killed: else two slots could be torn at once."""
        self._disk.sync(self._fd)

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def _slot(head: Head, generation: int) -> bytes:
    data = _LAYOUT.pack(_MAGIC, FORMAT, generation, head.seq, head.at, head.epoch, head.digest)
    return (data + sha256(data).digest()[:_CHECK]).ljust(SECTOR, b"\0") * 2


def _parse_sector(sector: bytes) -> HeadReading | None:
    data, check = sector[: _LAYOUT.size], sector[_LAYOUT.size : _LAYOUT.size + _CHECK]
    if len(check) < _CHECK or sha256(data).digest()[:_CHECK] != check:
        return None
    magic, version, generation, seq, at, epoch, digest = _LAYOUT.unpack(data)
    if magic != _MAGIC:
        return None
    return HeadReading(Head(seq, at, epoch, digest), generation, False, version)


def parse(content: bytes) -> HeadReading:
    """The newest head in the content of a head file."""
    sectors = [_parse_sector(content[at : at + SECTOR]) for at in range(0, SIZE, SECTOR)]
    found = [sector for sector in sectors if sector is not None]
    if not found:
        return HeadReading(None, problem="its head file cannot be read")
    newest = max(found, key=lambda reading: reading.generation)
    doubtful = not any(sectors[:2]) or not any(sectors[2:])
    return msgspec.structs.replace(newest, doubtful=doubtful)
