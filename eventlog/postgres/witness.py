"""The witness: how long a log in a database was when this machine was last told that a record is durable.

A chain of digests proves content and order, never length. A server that was replaced by an older copy of itself (an asynchronous standby that was
promoted, a backup that was restored) offers a log that verifies, and is shorter. So each process that leads or follows a log keeps the newest head
that it knows in a small file on its own machine, one for each log, in `$XDG_STATE_HOME/tidelog` (`~/.local/state/tidelog`), and whoever opens the log
compares.

It is written after each group and not synced: it must outlive this process, and the server's loss, not both machines at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
from hashlib import sha256

from tidelog.eventlog.store import EMPTY, Head

_MAGIC = b"tidewit1"
_LAYOUT = struct.Struct(">8sQQQ32s")
_CHECK = 16
SIZE = _LAYOUT.size + _CHECK

_log = logging.getLogger("tidelog.log")


def witness_folder() -> str:
    """The folder of all witnesses of this user."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "tidelog")


class Witness:
    """The witness of one log on this machine. Where there can be none, it knows nothing, and says so once."""

    def __init__(self, log_id: str, name: str) -> None:
        self.path = os.path.join(witness_folder(), f"{log_id}.witness")
        self._fd = -1
        self._newest = -1
        try:
            os.makedirs(witness_folder(), mode=0o700, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            _log.warning(
                "the log has no witness on this machine, and a database that went back in time would not be noticed",
                extra={"fields": {"log": name, "witness": self.path, "error": error.strerror}},
            )

    def read(self) -> Head:
        """The newest head that was known on this machine; `EMPTY` if none was."""
        content = b""
        with contextlib.suppress(OSError):
            content = os.pread(self._fd, SIZE, 0) if self._fd >= 0 else b""
        data, check = content[: _LAYOUT.size], content[_LAYOUT.size :]
        if len(check) < _CHECK or sha256(data).digest()[:_CHECK] != check:
            return EMPTY
        magic, seq, at, epoch, digest = _LAYOUT.unpack(data)
        return Head(seq, at, epoch, digest) if magic == _MAGIC else EMPTY

    def saw(self, head: Head) -> None:
        """Remember this head, unless a newer one is known. Costs some microseconds."""
        if self._fd < 0 or head.seq <= self._newest:
            return
        self._newest = head.seq
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if self.read().seq < head.seq:
                    self._write(head)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def reset(self, head: Head) -> None:
        """Know this head and no newer one: what is missing was given up."""
        self._newest = head.seq
        if self._fd >= 0:
            self._write(head)
            os.fsync(self._fd)

    def _write(self, head: Head) -> None:
        data = _LAYOUT.pack(_MAGIC, head.seq, head.at, head.epoch, head.digest)
        os.pwrite(self._fd, data + sha256(data).digest()[:_CHECK], 0)

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
