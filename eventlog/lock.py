"""One writing process per log: an operating-system lock on `<log>.lock`, in which its holder writes who it is.

The lock falls free when its holder ends, however it ends; the file stays, except where no log was made after all. Whoever has locked a file looks whether it
is still the one of that name: two processes cannot hold two files. What is written in it is for messages and for finding the holder's socket:
only the lock itself decides who writes.

A holder that lets go of a log that is well leaves the file empty. One that was killed, or that found its files taken away, leaves its name
there, and in the second case how far it had acknowledged: the next one knows then that there was a log, and how long it was at least.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time

import msgspec

from tidelog.api.errors import LogError, LogLocked

TEXT_BYTES_MAX = 65_536


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process that writes the log."""

    pid: int
    host: str
    since: str
    what: str = ""
    socket: str = ""
    """Where it takes requests from other processes; empty if it does not."""
    led: bool = False
    """Whether it had the log open."""
    before: str = ""
    """A process that had it open before and did not let go of it, until this one has opened it."""
    seq: int = 0
    """So far that one had acknowledged when it found its files taken away, or could not write any more; 0 where it had not."""
    epoch: int = 0
    """The epoch at that record."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.what or 'tidelog'}, since {self.since})"


class WriterLock:
    """The lock, held from construction to `release`."""

    def __init__(self, path: str, what: str) -> None:
        """Take the lock of the log at `path`, or raise `LogLocked`."""
        self.path = path + ".lock"
        self._fd = self._taken(path)
        while not self._is_in_place():
            # Removed by one that made no log after all, between our opening and its letting go.
            os.close(self._fd)
            self._fd = self._taken(path)
        self._found = self._text = self._read()
        left = _decoded(self._found) or Holder(pid=0, host="", since="")
        self._holder = Holder(
            pid=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            what=what,
            before=str(left) if left.led else left.before,
            seq=left.seq,
            epoch=left.epoch,
        )
        self._write(msgspec.json.encode(self._holder))

    def _taken(self, path: str) -> int:
        """The file, locked."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LogError(f"{self.path}: cannot be opened for writing: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise LogLocked(path, str(read_holder(path) or "another process")) from None
        return fd

    def _is_in_place(self) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        return False

    def check(self) -> None:
        """Raise `LogError` if the file was removed or replaced: somebody else may hold the one in its place. Costs a stat."""
        if self._is_in_place():
            return
        raise LogError(
            f"{self.path}: was removed or replaced, and another process may be writing the log: "
            "nothing more is written or acknowledged; start again"
        )

    def announce(self, address: str) -> None:
        """Let others know where this process takes requests."""
        self._holder = msgspec.structs.replace(self._holder, socket=address)
        self._write(msgspec.json.encode(self._holder))

    def beat(self) -> None:
        """Show that this process is well: the time of the file changes."""
        with contextlib.suppress(OSError):
            os.utime(self._fd)

    def opened(self) -> None:
        """The log is open, and nothing is missing that the one before had acknowledged."""
        self._holder = msgspec.structs.replace(self._holder, led=True, before="", seq=0, epoch=0)
        self._write(msgspec.json.encode(self._holder))

    def release(self) -> None:
        """Let the next one write: all is well. Releasing twice is allowed."""
        self._let_go(b"")

    def give_up(self) -> None:
        """Let the next one try what this one could not: what was found in the file is what it will find. Does nothing after `release`."""
        self._let_go(self._found)

    def undo(self) -> None:
        """Leave no file behind, of a log that was not made after all. Does nothing after `release`, or where a file with a holder's name was found."""
        if self._fd >= 0 and not self._found:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.give_up()

    def abandon(self, seq: int, epoch: int) -> None:
        """Let the next one write, and know that so much had been acknowledged: who knows what became of it."""
        left = msgspec.json.encode(msgspec.structs.replace(self._holder, socket="", seq=seq, epoch=epoch))
        if self._fd >= 0 and not os.path.exists(self.path):
            # The lock file went the same way as the log. Nobody else holds one of this name, or it is his then.
            with contextlib.suppress(OSError):
                note = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                try:
                    os.pwrite(note, left, 0)
                finally:
                    os.close(note)
        self._let_go(left)

    def _let_go(self, text: bytes) -> None:
        if self._fd >= 0:
            self._write(text)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bytes:
        try:
            return os.pread(self._fd, TEXT_BYTES_MAX, 0)
        except OSError:
            return b""

    def _write(self, text: bytes) -> None:
        """… unless somebody else has: the system has forgotten that this one holds the lock, and what stands there is for who came after."""
        if self._read() != self._text:
            return
        # Best effort: on a full disk the lock holds all the same, and only the message about it is poorer.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text, 0)
        self._text = self._read()


def read_holder(path: str) -> Holder | None:
    """Read the lock file of the log at `path`; its process may be gone."""
    try:
        with open(path + ".lock", "rb") as file:
            return _decoded(file.read(TEXT_BYTES_MAX))
    except OSError:
        return None


def is_held(path: str) -> bool:
    """Whether the process that the lock file names holds the lock, as this machine knows; costs a look at the system's list of locks."""
    holder = read_holder(path)
    try:
        return holder is not None and _holds(holder.pid, os.stat(path + ".lock"))
    except OSError:
        return False


def end_holder(path: str) -> str:
    """Kill the process that holds this log's lock, if it is one of this machine; returns what was done.

    By a descriptor of the process, taken before the look whether it is the one that holds the lock: its number may be another's
    by then. Costs a look at the system's list of locks.
    """
    holder = read_holder(path)
    if holder is None or not holder.pid or holder.host != socket.gethostname():
        return "nobody on this machine is known to hold its lock"
    if not hasattr(os, "pidfd_open"):
        return "this system cannot end a process without mistaking another for it"
    try:
        process = os.pidfd_open(holder.pid)
    except OSError as error:
        return f"process {holder.pid} cannot be ended: {error.strerror}"
    try:
        if not _holds(holder.pid, os.stat(path + ".lock")):
            return f"process {holder.pid} does not hold its lock"
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        return f"process {holder.pid} cannot be ended: {error.strerror}"
    finally:
        os.close(process)
    return f"killed {holder}"


def _holds(pid: int, file: os.stat_result) -> bool:
    """Whether this process has locked this file, as the system says."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with open("/proc/locks", encoding="ascii") as locks:
        return any(
            words[1] == "FLOCK" and words[4:6] == [str(pid), place]
            for words in map(str.split, locks)
            if len(words) > 5
        )


def _decoded(text: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(text, type=Holder)
    except msgspec.MsgspecError:
        return None
