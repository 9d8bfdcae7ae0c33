"""One writer per log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.api.errors import LogError, LogLocked
from tidelog.eventlog.lock import WriterLock, end_holder, is_held, read_holder

HOLD = """
import sys
from tidelog.eventlog.lock import WriterLock
lock = WriterLock(sys.argv[1], "the other")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holding(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the lock."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield other


def test_second_lock_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    lock = WriterLock(path, "tidelog run")

    with pytest.raises(LogLocked, match=rf"process {os.getpid()} on .* \(tidelog run, since 2.*Z\); stop it"):
        WriterLock(path, "tidelog apply")

    lock.release()
    lock.release()
    assert read_holder(path) is None
    WriterLock(path, "tidelog apply").release()


def test_lock_of_a_killed_process_falls_free(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    with holding(path) as other:
        with pytest.raises(LogLocked, match=rf"process {other.pid} on .*the other"):
            WriterLock(path, "me")
        other.kill()
        other.wait()

    WriterLock(path, "me").release()


def test_socket_is_announced_in_the_lock_file(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    lock = WriterLock(path, "tidelog run")

    lock.announce("somewhere.sock")

    holder = read_holder(path)
    assert holder is not None
    assert (holder.pid, holder.what, holder.socket) == (os.getpid(), "tidelog run", "somewhere.sock")
    lock.release()


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b"\xff" * 100])
def test_unreadable_lock_file_names_nobody_but_locks(tmp_path: Path, content: bytes) -> None:
    path = str(tmp_path / "c.db")
    lock = WriterLock(path, "me")
    (tmp_path / "c.db.lock").write_bytes(content)

    assert read_holder(path) is None
    with pytest.raises(LogLocked, match="another process"):
        WriterLock(path, "you")
    lock.release()


def test_lock_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"c\.db\.lock: cannot be opened for writing: No such file"):
        WriterLock(str(tmp_path / "missing" / "c.db"), "me")


def test_only_the_process_that_holds_the_lock_is_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    assert "nobody on this machine" in end_holder(path)
    with holding(path) as other:
        # The number in the file is another's: of this very process, which would notice.
        text = (tmp_path / "c.db.lock").read_text()
        (tmp_path / "c.db.lock").write_text(text.replace(f'"pid":{other.pid}', f'"pid":{os.getpid()}'))
        assert end_holder(path) == f"process {os.getpid()} does not hold its lock"
        assert other.poll() is None
        (tmp_path / "c.db.lock").write_text(text)
        assert end_holder(path).startswith(f"killed process {other.pid}")
        assert other.wait() == -signal.SIGKILL
    assert f"process {other.pid} cannot be ended" in end_holder(path)


def test_holder_of_another_machine_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "c.db")
    held = WriterLock(path, "me")
    monkeypatch.setattr("tidelog.eventlog.lock.socket.gethostname", lambda: "another")
    assert "nobody on this machine" in end_holder(path)
    assert read_holder(path) is not None
    held.release()


def test_lock_is_held_only_while_its_process_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    assert not is_held(path)

    with holding(path) as other:
        assert is_held(path)
        other.kill()
        other.wait()
        assert not is_held(path)


def test_lock_file_that_was_removed_or_replaced_is_seen(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    lock = WriterLock(path, "me")
    lock.check()

    (tmp_path / "c.db.lock").unlink()

    with pytest.raises(LogError, match="was removed or replaced"):
        lock.check()
    WriterLock(path, "you").release()
    lock.release()


@pytest.mark.parametrize("is_over", [False, True])
def test_who_was_robbed_of_the_lock_leaves_no_note_for_who_comes_after(tmp_path: Path, is_over: bool) -> None:
    """The note says how long the log was at least: of a log that was repaired meanwhile, and is shorter, the next one would not be led."""
    path = str(tmp_path / "c.db")
    robbed = WriterLock(path, "the first")
    robbed.opened()
    fcntl.flock(robbed._fd, fcntl.LOCK_UN)
    after = WriterLock(path, "the second")
    after.opened()
    after.announce("/run/socket")
    if is_over:
        after.release()

    robbed.abandon(164, 3)

    found = read_holder(path)
    if is_over:
        assert found is None
    else:
        assert found is not None
        assert (found.what, found.socket, found.seq) == ("the second", "/run/socket", 0)
        after.release()
