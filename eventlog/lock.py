"""One writing process per log: an operating-system lock on `<log>.lock`, in which its holder writes who it is.

The lock falls free when its holder ends, however it ends; the file stays, because removing it would let two processes
lock two different files of the same name. What is written in it is for messages and for finding the holder's socket:
only the lock itself decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time

import msgspec

from tidelog.api.errors import LogError, LogLocked


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who writes the log."""

    pid: int
    host: str
    since: str
    what: str = ""
    socket: str = ""
    """Where it takes requests from other processes; empty if it does not."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.what or 'tidelog'}, since {self.since})"


class WriterLock:
    """The lock, held from construction to `release`."""

    def __init__(self, path: str, what: str) -> None:
        """Take the lock of the log at `path`, or raise `LogLocked`."""
        self.path = path + ".lock"
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LogError(f"{self.path}: cannot be opened for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise LogLocked(path, str(read_holder(path) or "another process")) from None
        self._holder = Holder(
            pid=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            what=what,
        )
        self._write(msgspec.json.encode(self._holder))

    def check(self) -> None:
        """Raise `LogError` if the file was removed or replaced: somebody else may hold the one in its place. Costs a stat."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._fd)):
                return
        raise LogError(
            f"{self.path}: was removed or replaced, and another process may be writing the log: "
            "nothing more is written or acknowledged; start again"
        )

    def announce(self, address: str) -> None:
        """Let others know where this process takes requests."""
        self._holder = msgspec.structs.replace(self._holder, socket=address)
        self._write(msgspec.json.encode(self._holder))

    def release(self) -> None:
        """Let the next one write. Releasing twice is allowed."""
        if self._fd >= 0:
            self._write(b"")
            os.close(self._fd)
            self._fd = -1

    def _write(self, text: bytes) -> None:
        # Best effort: on a full disk the lock holds all the same, and only the message about it is poorer.
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text, 0)
        except OSError:
            pass


def read_holder(path: str) -> Holder | None:
    """What the lock file of the log at `path` says; perhaps of a process that is gone."""
    try:
        with open(path + ".lock", "rb") as file:
            return msgspec.json.decode(file.read(65536), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None
