"""sd_notify: ready when leading or standing by, a sign of life in time, stopping, and nothing where nobody listens."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.process.test_process import is_leading, log, running
from tests.patience import until
from tidelog.daemon.process.process import Options
from tidelog.daemon.process.systemd import Notifier

__all__ = ["log"]


class Manager:
    """The other end of the socket."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(path)
        self.heard: list[str] = []

    def listen(self) -> list[str]:
        while True:
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.heard


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    path = f"@tidelog-test-{os.getpid()}"
    found = Manager("\0" + path[1:])
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    yield found
    found.socket.close()


async def test_process_tells_how_it_is(manager: Manager, log: Path) -> None:
    async with running(Options(log=log)) as (process, _):
        await until(is_leading(process))
        await until(lambda: manager.listen().count("WATCHDOG=1") >= 3)
        process.reload()
        async with running(Options(log=log)) as (other, _):
            await until(lambda: other.state.phase == "standby")
    heard = manager.listen()

    assert "STATUS=leading" in heard
    assert "STATUS=standing by" in heard
    assert heard.index("READY=1") < heard.index("RELOADING=1")
    assert heard[-1] == "STOPPING=1" or "STOPPING=1" in heard


async def test_without_a_manager_nothing_is_told() -> None:
    notifier = Notifier({})

    notifier.ready("leading")
    await asyncio.wait_for(notifier.keep_alive(), 10)
    assert notifier.watchdog_seconds == 0


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_watchdog_is_ours_or_nobodys(environment: dict[str, str], seconds: float) -> None:
    assert Notifier(environment).watchdog_seconds == seconds


def test_manager_that_is_gone_does_no_harm() -> None:
    Notifier({"NOTIFY_SOCKET": "/nowhere/at/all"}).ready("leading")
