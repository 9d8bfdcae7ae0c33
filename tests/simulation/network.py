"""Connections between the processes of a simulated machine: the product's own server and client, and bytes that arrive a little later."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.loop import OUTSIDE, Killed, Process
from tidelog.eventlog.socket import Handler, HandoverClient, HandoverServer

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

NETWORK_SECONDS = 0.0005
"""So long bytes are on their way between two processes: always the same, and so they stay in order."""


class _Pipe:
    """One direction of a connection: bytes arrive a little later, in order, as long as the other end lives."""

    def __init__(self, machine: Machine, receiver: Process | None) -> None:
        self.reader = asyncio.StreamReader(loop=machine.loop)
        self._machine = machine
        self._receiver = receiver
        self._sent: deque[bytes | None] = deque()
        self._closed = False

    def send(self, data: bytes | None) -> None:
        """None: the end."""
        if self._closed:
            return
        self._closed = data is None
        self._sent.append(data)
        context = None if self._receiver is None else self._receiver.context
        self._machine.loop.call_later(NETWORK_SECONDS, self._arrive, context=context)

    def _arrive(self) -> None:
        data = self._sent.popleft()
        if data is None:
            self.reader.feed_eof()
        else:
            self.reader.feed_data(data)


class _Writer:
    """What the product uses of `asyncio.StreamWriter`."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self.transport = self

    def write(self, data: bytes) -> None:
        self._pipe.send(data)

    async def drain(self) -> None:
        """There is no back-pressure here."""

    def close(self) -> None:
        self._pipe.send(None)

    abort = close

    async def wait_closed(self) -> None:
        """Closed at once."""


class _Listening:
    """What the product uses of `asyncio.Server`."""

    def __init__(self, server: SimServer) -> None:
        self._server = server

    def close(self) -> None:
        self._server.listening = False

    async def wait_closed(self) -> None:
        """Closed at once."""


class SimServer(HandoverServer):
    """The real server, on simulated connections."""

    def __init__(self, machine: Machine, handler: Handler) -> None:
        super().__init__(handler, "")
        self.listening = True
        self._machine = machine
        self._server: Any = _Listening(self)
        self._open: list[_Pipe] = []
        """To its clients."""

    def connect(self, process: Process) -> HandoverClient:
        """A client's end of a new connection to this process."""
        there, back = _Pipe(self._machine, process), _Pipe(self._machine, None)
        self._open.append(back)
        serving: Any = self._serve(there.reader, _Writer(back))  # type: ignore[arg-type]
        task = self._machine.loop.create_task(serving, context=process.context.copy())
        task.add_done_callback(self._served, context=OUTSIDE.copy())
        return HandoverClient(self._machine.files.path, back.reader, _Writer(there))  # type: ignore[arg-type]

    def _served(self, task: asyncio.Task[None]) -> None:
        """A connection ended; with an error, which nobody but the simulation looks at, the server itself is broken."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Killed):
            self._machine._broken(error)

    def hang_up(self) -> None:
        """Its process is gone."""
        self.listening = False
        for pipe in self._open:
            pipe.send(None)
