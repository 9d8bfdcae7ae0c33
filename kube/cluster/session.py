"""HTTP to the API server: kept-alive connections, JSON, HTTP/1.1.

    send     what is answered at once, by connections of our own (`http.py`): two such requests are sent for each pod that is bound
    stream   what goes on, by aiohttp: the optional extra `tidelog[kube]`, imported here and nowhere else on the client's side

Lines of a stream are split here and nothing else is done with them: a server cuts off a watcher whose socket is not emptied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tidelog.api.errors import UsageError
from tidelog.kube.cluster.credentials import Credentials
from tidelog.kube.cluster.http import HttpAnswer, HttpPool
from tidelog.kube.cluster.port import Answer, ClusterError, NoAnswer, NotSent, Request, Stream

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 2.0
HANDSHAKE_SECONDS = 4.0
"""To connect and to agree on keys, which a server that is busy takes its time for."""
STREAMS = 100
"""More than all watches that are ever open."""
PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"
LINE_BYTES_MAX = 16 * 2**20
"""A longer line is no object of an API server: etcd takes 1.5 MiB."""


def need_aiohttp() -> None:
    """Raises UsageError, with what to install, where the client's packages are missing."""
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise UsageError("a live cluster needs aiohttp: pip install 'tidelog[kube]'") from error


class Session:
    """Implements `ClusterPort`: `async with Session(credentials) as session:`."""

    def __init__(self, credentials: Credentials, *, agent: str = "tidelog") -> None:
        need_aiohttp()
        self.name = credentials.access.server
        self._credentials = credentials
        self._agent = agent
        self._http: aiohttp.ClientSession | None = None
        self._pool: HttpPool | None = None
        where = urlsplit(credentials.access.server)
        self._root = where.path.rstrip("/")
        self._host, self._port = where.hostname or "", where.port or (443 if where.scheme == "https" else 80)
        self._common = f" HTTP/1.1\r\nHost: {where.netloc.rpartition('@')[2]}\r\nUser-Agent: {agent}\r\nAccept: application/json\r\n"

    async def __aenter__(self) -> Self:
        import aiohttp

        context = await self._credentials.tls()
        name = self._credentials.access.server_name or self._host
        self._pool = HttpPool(self._host, self._port, context, server_name=name)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=STREAMS,
                ssl=context if context is not None else True,
                keepalive_timeout=60,
            ),
            headers={"User-Agent": self._agent, "Accept": "application/json"},
            auto_decompress=True,
            skip_auto_headers=("Accept-Encoding",),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._http is not None:
            await self._http.close()

    async def renew(self) -> None:
        await self._credentials.renew()

    async def send(self, request: Request) -> Answer:
        data = await self._bytes(request)
        try:
            found = await self._exchange(data, request)
        except _LostOnKept:
            # The server closed a connection that was kept just when it was used again. A question can be asked twice.
            found = await self._exchange(data, request)
        after = found.header(b"retry-after")
        return Answer(
            status=found.status, body=found.body, retry_after=float(after) if after.isdigit() else None
        )

    async def _exchange(self, data: bytes, request: Request) -> HttpAnswer:
        """Raises NotSent, NoAnswer."""
        assert self._pool is not None, "a session is entered before it is used"
        sent: list[bool] = []
        what = f"{request.method} {self.name}{request.path}"
        try:
            return await self._pool.ask(
                data, seconds=request.seconds, connect_seconds=HANDSHAKE_SECONDS, sent=sent.append
            )
        except TimeoutError as error:
            if not sent:
                raise NotSent(f"{what}: no connection") from error
            raise NoAnswer(f"{what}: no answer within {request.seconds:g} s") from error
        except OSError as error:
            if not sent:
                raise NotSent(f"{what}: {error}") from error
            if sent == [True] and request.method == "GET":
                raise _LostOnKept(f"{what}: {error}") from error
            raise NoAnswer(f"{what}: {error}") from error

    async def _bytes(self, request: Request) -> bytes:
        """The whole request, as it goes over the wire."""
        path = quote(self._root + request.path, safe=PATH_CHARACTERS)
        if request.query:
            path = f"{path}?{urlencode(request.query)}"
        lines = [f"{request.method} {path}{self._common}"]
        for name, value in (await self._credentials.headers()).items():
            if "\n" in value or "\r" in value:
                raise ClusterError(f"{self._credentials.access.source}: the token has a line break in it")
            lines.append(f"{name}: {value}\r\n")
        if request.body is None:
            lines.append("\r\n" if request.method == "GET" else "Content-Length: 0\r\n\r\n")
            return "".join(lines).encode("latin-1")
        body = msgspec.json.encode(request.body)
        lines.append(f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n")
        return "".join(lines).encode("latin-1") + body

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        import aiohttp

        limits = aiohttp.ClientTimeout(None, sock_connect=CONNECT_SECONDS, sock_read=request.seconds)
        try:
            found = await self._ask(request, limits)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(error, request, self.name) from error
        try:
            yield _Lines(found, request, self.name)
        finally:
            found.close()

    async def _ask(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        assert self._http is not None, "a session is entered before it is used"
        headers = await self._credentials.headers()
        return await self._http.request(
            request.method,
            self._credentials.access.server + request.path,
            params=request.query,
            headers=headers,
            timeout=limits,
            server_hostname=self._credentials.access.server_name or None,
            allow_redirects=False,
        )


class _LostOnKept(NoAnswer):
    """Lost on a connection that had been used before."""


class _Lines:
    """Implements `Stream`."""

    def __init__(self, response: aiohttp.ClientResponse, request: Request, name: str) -> None:
        self.status = response.status
        self.retry_after = _retry_after(response)
        self._response = response
        self._request = request
        self._name = name

    async def read(self) -> bytes:
        import aiohttp

        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(error, self._request, self._name) from error

    async def lines(self) -> AsyncIterator[list[bytes]]:
        import aiohttp

        rest = b""
        try:
            async for chunk in self._response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    raise NoAnswer(
                        f"{self._name}: {self._request.path} sent a line of over {len(rest)} bytes"
                    )
                if lines:
                    yield lines
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(error, self._request, self._name) from error


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


def _lost(error: Exception, request: Request, name: str) -> NotSent | NoAnswer:
    import aiohttp

    text = str(error) or type(error).__name__
    what = f"{request.method} {name}{request.path}: {text}"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return NotSent(what)
    if isinstance(error, asyncio.TimeoutError):
        return NoAnswer(f"{request.method} {name}{request.path}: no answer within {request.seconds:g} s")
    return NoAnswer(what)
