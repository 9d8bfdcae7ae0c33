"""HTTP to the API server: kept-alive connections, JSON, HTTP/1.1 (`http.py`).

    send     what is answered at once
    stream   what goes on, on a connection of its own

Lines of a stream are split here and nothing else is done with them: a server cuts off a watcher whose socket is not emptied.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tidelog.kube.cluster.credentials import Credentials
from tidelog.kube.cluster.http import PIECE_BYTES_MAX, HttpAnswer, HttpPool, HttpStream
from tidelog.kube.cluster.port import Answer, ClusterError, NoAnswer, NotSent, Request, Stream

HANDSHAKE_SECONDS = 4.0
"""To connect and to agree on keys, which a server that is busy takes its time for."""
PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"


class Session:
    """Implements `ClusterPort`: `async with Session(credentials) as session:`."""

    def __init__(self, credentials: Credentials, *, agent: str = "tidelog") -> None:
        self.name = credentials.access.server
        self._credentials = credentials
        self._pool: HttpPool | None = None
        where = urlsplit(credentials.access.server)
        self._root = where.path.rstrip("/")
        self._host, self._port = where.hostname or "", where.port or (443 if where.scheme == "https" else 80)
        self._common = f" HTTP/1.1\r\nHost: {where.netloc.rpartition('@')[2]}\r\nUser-Agent: {agent}\r\nAccept: application/json\r\n"
        self._told: tuple[Mapping[str, str], str] = {}, ""
        """Headers that say who we are, and their lines."""

    async def __aenter__(self) -> Self:
        context = await self._credentials.tls()
        name = self._credentials.access.server_name or self._host
        self._pool = HttpPool(self._host, self._port, context, server_name=name)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    async def renew(self) -> None:
        await self._credentials.renew()

    async def send(self, request: Request) -> Answer:
        data = await self._bytes(request)
        try:
            found = await self._exchange(data, request)
        except _LostOnKept:
            # The server closed a connection that was kept just when it was used again. A question can be asked twice.
            found = await self._exchange(data, request)
        return Answer(status=found.status, body=found.body, retry_after=_retry_after(found))

    async def _exchange(self, data: bytes, request: Request) -> HttpAnswer:
        """Raises NotSent, NoAnswer."""
        assert self._pool is not None, "a session is entered before it is used"
        sent: list[bool] = []
        what = f"{request.method} {self.name}{request.path}"
        try:
            return await self._pool.ask(
                data, seconds=request.seconds, connect_seconds=HANDSHAKE_SECONDS, sent=sent.append
            )
        except OSError as error:
            if sent == [True] and request.method == "GET" and not isinstance(error, TimeoutError):
                raise _LostOnKept(f"{what}: {error}") from error
            raise _lost(what, request, error, is_sent=bool(sent)) from error

    async def _bytes(self, request: Request) -> bytes:
        """The whole request, as it goes over the wire."""
        path = quote(self._root + request.path, safe=PATH_CHARACTERS)
        if request.query:
            path = f"{path}?{_query(*request.query.items())}"
        headers = await self._credentials.headers()
        if headers != self._told[0]:
            self._told = headers, self._lines_of(headers)
        head = f"{request.method} {path}{self._common}{self._told[1]}"
        if request.body is None:
            length = "" if request.method == "GET" else "Content-Length: 0\r\n"
            return f"{head}{length}\r\n".encode("latin-1")
        body = msgspec.json.encode(request.body)
        more = f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"{head}{more}".encode("latin-1") + body

    def _lines_of(self, headers: Mapping[str, str]) -> str:
        if any("\n" in value or "\r" in value for value in headers.values()):
            raise ClusterError(f"{self._credentials.access.source}: the token has a line break in it")
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        assert self._pool is not None, "a session is entered before it is used"
        data = await self._bytes(request)
        sent: list[bool] = []
        what = f"{request.method} {self.name}{request.path}"
        try:
            found = await self._pool.stream(
                data, seconds=request.seconds, connect_seconds=HANDSHAKE_SECONDS, sent=sent.append
            )
        except OSError as error:
            raise _lost(what, request, error, is_sent=bool(sent)) from error
        try:
            yield _Lines(found, request, what)
        finally:
            self._pool.drop(found)


class _LostOnKept(NoAnswer):
    """Lost on a connection that had been used before."""


class _Lines:
    """Implements `Stream`."""

    def __init__(self, found: HttpStream, request: Request, what: str) -> None:
        self.status = found.answer.status
        self.retry_after = _retry_after(found.answer)
        self._found = found
        self._request = request
        self._what = what

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def lines(self) -> AsyncIterator[list[bytes]]:
        rest = b""
        async for piece in self._pieces():
            *lines, rest = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
            if len(rest) > PIECE_BYTES_MAX:
                raise NoAnswer(f"{self._what} sent a line of over {len(rest)} bytes")
            if lines:
                yield lines

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._found.pieces(self._request.seconds):
                yield piece
        except OSError as error:
            raise _lost(self._what, self._request, error, is_sent=True) from error


@lru_cache(64)
def _query(*items: tuple[str, str]) -> str:
    return urlencode(items)


def _retry_after(answer: HttpAnswer) -> float | None:
    text = answer.header(b"retry-after")
    return float(text) if text.isdigit() else None


def _lost(what: str, request: Request, error: OSError, *, is_sent: bool) -> NotSent | NoAnswer:
    late = isinstance(error, TimeoutError)
    if not is_sent:
        return NotSent(f"{what}: {'no connection' if late else error}")
    return NoAnswer(f"{what}: {f'no answer within {request.seconds:g} s' if late else error}")
