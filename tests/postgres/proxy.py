"""A way to the server that can be cut in each place: `async with Proxy(port) as proxy:`, and the log's address names `proxy.port`."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes on, both ways, until it is told otherwise."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = 0
        self.answers_lost = False
        """Nothing that the server says arrives any more."""
        self.requests_lost = False
        """Nothing that the client says arrives any more."""
        self.refusing = False
        """New connections are closed at once."""
        self.passed = 0
        """Pieces that the server said and that were passed on."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Pass everything on again, on new connections."""
        self.answers_lost = self.requests_lost = self.refusing = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            back_reader, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers.add(back)
            try:
                await asyncio.gather(self._pass(reader, back, False), self._pass(back_reader, writer, True))
            finally:
                self._writers.discard(back)
                back.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65_536):
                if self.answers_lost if is_answer else self.requests_lost:
                    continue
                writer.write(data)
                self.passed += is_answer
                await writer.drain()
        writer.transport.abort()
