"""HTTP/1.1 for many small requests and long streams: connections that are kept, and of an answer what `ClusterPort` needs.

    pool = HttpPool(address, context)
    status, head, body = await pool.ask(b"POST /api/… HTTP/1.1\\r\\n…", seconds=5.0)
    stream = await pool.stream(b"GET /api/…?watch=true HTTP/1.1\\r\\n…", seconds=90.0)      # a connection of its own

A scheduler sends two requests for each pod that it binds and is told of it three times; a general client takes a third of its processor time for
that. Here a request is one write of bytes and an answer one look at them. One request at a time goes over a connection. Where several are under way,
answers that come within `TOGETHER_SECONDS` are read together: what each of them sets going is done once then.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeVar

from tidelog.kube.cluster.tls import Tls

HEAD_BYTES_MAX = 64 * 2**10
BODY_BYTES_MAX = 1 << 30
PIECE_BYTES_MAX = 16 * 2**20
"""Of a stream: no object of an API server is larger, since etcd takes 1.5 MiB."""
IDLE_SECONDS = 60.0
"""A connection that was not used for longer is not used again: who knows what is between here and there."""
GATHER_SECONDS = 0.02
"""So long after a part of a stream the next one is left where it is: what comes one by one a few hundred times a second is dearer than what comes together."""

TOGETHER_SECONDS = 0.005
"""So long after an answer the others are left where they are …"""
TOGETHER_MIN = 4
"""… where so many are under way: one by one they are not made to wait."""


class HttpAnswer(NamedTuple):
    """The answer."""

    status: int
    head: bytes
    """In small letters, from the first header's line on."""
    body: bytes

    def header(self, name: bytes) -> bytes:
        """The value of a header, by its name in small letters; empty without it."""
        return _header(self.head, name)


class BrokenAnswer(ConnectionError):
    """The connection ended, or something came that is no answer, after the request was sent."""


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip()


class HttpConnection(asyncio.Protocol):
    """One connection, with at most one request under way."""

    chunk_bytes_max = BODY_BYTES_MAX

    def __init__(self) -> None:
        self.is_open = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._buffer = bytearray()
        self._status = 0
        self._head = b""
        self._length = -1
        """Of the body; -1: not known."""
        self._is_chunked = False
        self._chunk_at = 0
        """Where in the buffer the next chunk begins."""
        self._chunks: list[bytes] = []
        self._closes = False

    def ask(self, data: bytes) -> asyncio.Future[HttpAnswer]:
        """Send a request; the answer, or BrokenAnswer."""
        assert self._waiter is None, "one request at a time"
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._waiter

    def close(self) -> None:
        """Close it; a request under way is lost."""
        self.is_open = False
        self._transport.abort()

    def pause(self) -> None:
        """Leave the answer where it is, …"""
        if self.is_open and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """… and read it."""
        if self.is_open and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- what the event loop calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            # Nobody asked.
            self.close()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._read()
        except (ValueError, IndexError) as error:
            self._fail(f"the answer is no HTTP: {error}")

    def eof_received(self) -> None:
        if self._waiter is not None and self._status and self._length < 0 and not self._is_chunked:
            # A body without a length ends with the connection.
            self._closes = True
            self._end(bytes(self._buffer))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(f"the connection ended before the answer did{f': {exc}' if exc else ''}")

    # --- reading ------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if not self._status and not self._read_head():
            return
        if self._is_chunked:
            self._read_chunks()
        elif 0 <= self._length <= len(self._buffer):
            if self._length < len(self._buffer):
                raise ValueError("it is longer than it says")
            self._end(bytes(self._buffer))

    def _read_head(self) -> bool:
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise ValueError("its head does not end")
                return False
            if not self._buffer.startswith(b"HTTP/1."):
                raise ValueError("it does not begin like one")
            status = int(self._buffer[9:12])
            head = bytes(self._buffer[12 : end + 2]).lower()
            old = self._buffer.startswith(b"HTTP/1.0")
            del self._buffer[: end + 4]
            if status >= 200:
                break
        connection = _header(head, b"connection")
        self._closes = b"close" in connection or (old and b"keep-alive" not in connection)
        self._head = head
        self._status = status
        self._is_chunked = b"chunked" in _header(head, b"transfer-encoding")
        length = _header(head, b"content-length")
        if status in (204, 304):
            self._length = 0
        elif length and not self._is_chunked:
            if not length.isdigit() or int(length) > BODY_BYTES_MAX:
                raise ValueError(f"its length is {length[:30]!r}")
            self._length = int(length)
        return True

    def _read_chunks(self) -> None:
        buffer = self._buffer
        while True:
            end = buffer.find(b"\r\n", self._chunk_at)
            if end < 0:
                return
            size = int(buffer[self._chunk_at : end].partition(b";")[0], 16)
            if size < 0 or size > self.chunk_bytes_max:
                raise ValueError("a chunk has no size")
            if size == 0:
                # Trailers end with an empty line, as a chunked body without any does at once.
                last = buffer.find(b"\r\n\r\n", end)
                if last >= 0:
                    self._end(b"".join(self._chunks))
                return
            if len(buffer) < end + 2 + size + 2:
                return
            self._chunks.append(bytes(buffer[end + 2 : end + 2 + size]))
            self._chunk_at = end + 2 + size + 2

    def _end(self, body: bytes) -> None:
        answer = HttpAnswer(self._status, self._head, body)
        waiter, self._waiter = self._waiter, None
        self._buffer.clear()
        self._chunks.clear()
        self._status, self._length, self._is_chunked, self._chunk_at = 0, -1, False, 0
        if self._closes:
            self.is_open = False
            self._transport.close()
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _fail(self, why: str) -> None:
        waiter, self._waiter = self._waiter, None
        if self.is_open:
            self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(BrokenAnswer(why))


class HttpStream(HttpConnection):
    """One answer whose body is read as it comes, and no faster than that."""

    chunk_bytes_max = PIECE_BYTES_MAX

    def __init__(self) -> None:
        super().__init__()
        self.answer: HttpAnswer
        """Without its body."""
        self._come = asyncio.Event()
        self._has_begun = False
        self._has_ended = False
        self._lost = ""
        self._gathers = False
        self._is_paused = False

    async def pieces(self, seconds: float) -> AsyncIterator[bytes]:
        """The body. Raises TimeoutError after so many seconds without any of it, BrokenAnswer."""
        while True:
            if self._chunks:
                data = b"".join(self._chunks)
                self._chunks.clear()
                self._go_on()
                yield data
            elif self._lost:
                raise BrokenAnswer(self._lost)
            elif self._has_ended:
                return
            else:
                self._come.clear()
                async with asyncio.timeout(seconds):
                    await self._come.wait()

    def data_received(self, data: bytes) -> None:
        if not self._has_ended:
            self._take(data)

    def eof_received(self) -> None:
        if self._has_begun and self._length < 0 and not self._is_chunked:
            self._end(b"")

    def _read(self) -> None:
        if not self._has_begun:
            if not self._read_head():
                return
            self._has_begun = True
            self.answer = HttpAnswer(self._status, self._head, b"")
            waiter, self._waiter = self._waiter, None
            if waiter is not None and not waiter.done():
                waiter.set_result(self.answer)
        if self._is_chunked:
            self._read_chunks()
            del self._buffer[: self._chunk_at]
            self._chunk_at = 0
        else:
            self._chunks.append(bytes(self._buffer))
            self._buffer.clear()
            if self._length >= 0:
                self._length -= len(self._chunks[-1])
                if self._length <= 0:
                    self._end(b"")
        if self._chunks and not self._has_ended:
            self._come.set()
            self._gathers = self._is_paused = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        self._gathers = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_paused and not self._gathers and not self._chunks and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _end(self, body: bytes) -> None:  # noqa: ARG002
        self._has_ended = True
        self._come.set()

    def _fail(self, why: str) -> None:
        if not self._has_ended:
            self._lost = self._lost or why
        super()._fail(why)
        self._come.set()


ConnectionT = TypeVar("ConnectionT", bound=HttpConnection)


class HttpPool:
    """Connections to one server, as many as there are requests at a time."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, *, server_name: str = ""
    ) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._server_name = server_name or None
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._busy: dict[HttpConnection, None] = {}
        self._gathers = False
        """Answers that come now are read together, a little later."""
        self._paused: list[HttpConnection] = []
        """Those that are read then, also where the answer was read before they were paused: they are idle by then."""
        self._is_closed = False

    async def ask(
        self, data: bytes, *, seconds: float, connect_seconds: float, sent: Callable[[bool], None]
    ) -> HttpAnswer:
        """The answer to a request. `sent` is told when it begins to be sent, and whether that is on a connection that was used before.

        Raises TimeoutError, OSError; BrokenAnswer is one.
        """
        async with asyncio.timeout(seconds):
            kept = self._kept()
            connection = kept or await self._connected(HttpConnection, connect_seconds)
            sent(kept is not None)
            self._busy[connection] = None
            try:
                answered = connection.ask(data)
                if self._gathers:
                    self._pause(connection)
                answer = await answered
            except BaseException:
                # Its answer may still come, and would be taken for another's.
                self.drop(connection)
                raise
            finally:
                del self._busy[connection]
        if not self._gathers and len(self._busy) >= TOGETHER_MIN:
            self._gather()
        if connection.is_open and not self._is_closed:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self.drop(connection)
        return answer

    def _gather(self) -> None:
        self._gathers = True
        for connection in self._busy:
            self._pause(connection)
        asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._gathered)

    def _pause(self, connection: HttpConnection) -> None:
        connection.pause()
        self._paused.append(connection)

    def _gathered(self) -> None:
        self._gathers = False
        paused, self._paused = self._paused, []
        for connection in paused:
            connection.resume()

    async def stream(
        self, data: bytes, *, seconds: float, connect_seconds: float, sent: Callable[[bool], None]
    ) -> HttpStream:
        """As `ask`, on a connection of its own, when the body begins. It is to be dropped in the end."""
        connection = await self._connected(HttpStream, connect_seconds)
        sent(False)
        try:
            async with asyncio.timeout(seconds):
                await connection.ask(data)
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def close(self) -> None:
        """Close them; requests under way are lost."""
        self._is_closed = True
        for connection in list(self._open):
            self.drop(connection)

    def _kept(self) -> HttpConnection | None:
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            # The one that was used last: the others grow old, and go.
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            self.drop(connection)
        return None

    async def _connected(self, kind: type[ConnectionT], seconds: float) -> ConnectionT:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            if self._context is None:
                _, connection = await loop.create_connection(kind, self._host, self._port)
            else:
                connection = kind()
                context, name = self._context, self._server_name
                _, tls = await loop.create_connection(
                    lambda: Tls(connection, context, name), self._host, self._port
                )
                try:
                    await tls.agreed
                except BaseException:
                    tls.abort()
                    raise
        self._open.add(connection)
        return connection

    def drop(self, connection: HttpConnection) -> None:
        """Close it."""
        self._open.discard(connection)
        if connection.is_open:
            connection.close()
