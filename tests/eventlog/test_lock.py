"""One writer per log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.api.errors import LogError, LogLocked
from tidelog.eventlog.lock import WriterLock, read_holder

HOLD = """
import sys
from tidelog.eventlog.lock import WriterLock
lock = WriterLock(sys.argv[1], "the other")
print("held", flush=True)
sys.stdin.read()
"""


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
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
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
