"""Tell systemd how the process is (`Type=notify`, sd_notify(3)): ready, reloading, stopping, and alive as often as its watchdog asks.

Without `NOTIFY_SOCKET` in the environment nothing is told to anybody. The sign of life is given by the event loop: a loop that stands still gives none.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping

WATCHDOG_SHARE = 3
"""So many signs of life in the time of the watchdog."""
EXTENSION_SECONDS = 30
"""Reading a long log takes longer than systemd waits for a start: each extension asks for so much more."""


class Notifier:
    """The service manager's socket, if there is one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        address = given.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _seconds(given)

    def tell(self, **state: object) -> None:
        """`tell(READY=1, STATUS="leading")`. A manager that does not listen is none of our business."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
                client.setblocking(False)
                client.sendto(text.encode(), self._address)
        except OSError:
            pass

    def ready(self, status: str) -> None:
        """It does what it is there for."""
        self.tell(READY=1, STATUS=status)

    def reloading(self) -> None:
        """The configuration is read again; `ready` ends that."""
        self.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)

    def stopping(self) -> None:
        """It was told to stop."""
        self.tell(STOPPING=1)

    async def keep_alive(self) -> None:
        """Give signs of life until cancelled."""
        if not self._address:
            return
        every = self.watchdog_seconds / WATCHDOG_SHARE if self.watchdog_seconds else EXTENSION_SECONDS / 3
        while True:
            self.tell(WATCHDOG=1, EXTEND_TIMEOUT_USEC=EXTENSION_SECONDS * 1_000_000)
            await asyncio.sleep(every)


def _seconds(environment: Mapping[str, str]) -> float:
    """The watchdog's time; 0 if there is none, or it is another process's."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else 0.0
