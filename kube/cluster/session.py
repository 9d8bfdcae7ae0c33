"""HTTP to the API server: one pool of kept-alive connections, JSON, HTTP/1.1.

aiohttp, because on this path it costs a fifth of the others (280 µs of processor for a binding, against 770 to 5,600): the optional extra
`tidelog[kube]`. It is imported here and nowhere else on the client's side.

Lines of a stream are split here and nothing else is done with them: a server cuts off a watcher whose socket is not emptied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from tidelog.api.errors import UsageError
from tidelog.kube.cluster.credentials import Credentials
from tidelog.kube.cluster.port import Answer, NoAnswer, NotSent, Request, Stream

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 2.0
CONNECTIONS = 200
"""More than all watches and all writes that are ever under way."""
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

    async def __aenter__(self) -> Self:
        import aiohttp

        context = await self._credentials.tls()
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS,
                ssl=context if context is not None else True,
                keepalive_timeout=60,
            ),
            headers={"User-Agent": self._agent, "Accept": "application/json"},
            auto_decompress=True,
            skip_auto_headers=("Accept-Encoding",),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def renew(self) -> None:
        await self._credentials.renew()

    async def send(self, request: Request) -> Answer:
        import aiohttp

        try:
            async with await self._ask(
                request, aiohttp.ClientTimeout(request.seconds, sock_connect=CONNECT_SECONDS)
            ) as found:
                body = await found.read()
                return Answer(status=found.status, body=body, retry_after=_retry_after(found))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(error, request, self.name) from error

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
        data = None
        if request.body is not None:
            data = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.content_type
        return await self._http.request(
            request.method,
            self._credentials.access.server + request.path,
            params=request.query,
            data=data,
            headers=headers,
            timeout=limits,
            server_hostname=self._credentials.access.server_name or None,
            allow_redirects=False,
        )


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
