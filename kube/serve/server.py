"""The API server of a log: `async with ApiServer(runtime_parts, settings) as server:` serves until the block is left.

    view ──follows──► the log ◄──appends── writer
      │                                      ▲
      └──────────► api ◄── http ─────────────┘

It needs a log that this process writes, and the service through which facts enter it (`tidelog.daemon.intake.facts`). Whether somebody schedules on
the log is not its business.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tidelog.api.errors import TidelogError, UsageError
from tidelog.api.text import safe
from tidelog.daemon.http.endpoints import parse_listen
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.log import Log
from tidelog.kube.serve.api import Api
from tidelog.kube.serve.credentials import (
    certificate,
    kept_token,
    read_tokens,
    server_context,
    write_kubeconfig,
)
from tidelog.kube.serve.http import Access, Handler, Limits
from tidelog.kube.serve.telling import Telling
from tidelog.kube.serve.view import LogView
from tidelog.kube.serve.writes import bootstrap

DEFAULT_LISTEN = "127.0.0.1:8001"
Insecure = Literal["", "read-only", "read-write"]
STOP_SECONDS = 2.0
ACCEPT_AGAIN_SECONDS = 1.0

_log = logging.getLogger("tidelog.kube")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and to whom the log is served."""

    listen: str = DEFAULT_LISTEN
    kubeconfig: Path
    """Where the kubeconfig is written."""
    tls: Path
    """Where the certificate and its key are kept."""
    insecure: Insecure = ""
    """Plain HTTP without a token, and what may be done over it."""
    token_file: Path | None = None
    client_ca: Path | None = None
    limits: Limits = Limits()


class _Connection(RequestHandler):
    """A connection, counted."""

    __slots__ = ("_turned_away",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._manager
        assert isinstance(server, _Server)
        super().connection_made(transport)
        if len(server.connections) > server.connections_max:
            _log.warning("turned a connection away", extra=fields(open=server.connections_max))
            assert isinstance(transport, asyncio.Transport)
            transport.abort()


class _Server(web.Server):
    """aiohttp's, with limits of connections and bodies."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(
            handler.handle,
            request_factory=self._request,
            keepalive_timeout=limits.idle_seconds,
            access_log=None,
        )
        self.connections_max = limits.connections
        self._body_bytes = limits.body_bytes

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=self._body_bytes
        )

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Door:
    """Accepts connections. Closing it ends those whose handshake is under way, too: left to themselves they would lead to a server that is no
    more, and their clients would keep them (`asyncio.Server` leaves them, and forgets one that it has accepted in this very turn)."""

    def __init__(self, listener: socket.socket, server: _Server, context: ssl.SSLContext | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._server = server
        self._context = context
        self._under_way: dict[asyncio.Task[None], socket.socket] = {}
        self._is_closed = False
        self._open()

    def _open(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # There are too many open files, for example.
            _log.warning("a connection cannot be accepted", extra=fields(error=str(error)))
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(ACCEPT_AGAIN_SECONDS, self._open)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted), name="tidelog kube handshake")
        self._under_way[task] = accepted
        task.add_done_callback(self._under_way.pop)

    async def _connect(self, accepted: socket.socket) -> None:
        # A client that breaks off in the middle is no news.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(self._server, accepted, ssl=self._context)

    async def close(self) -> None:
        """Let nobody in any more."""
        self._is_closed = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        under_way = dict(self._under_way)
        for accepted in under_way.values():
            # Not cancelled: asyncio then closes the transport of a handshake that was just done, and one that is closed twice cannot be aborted.
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        await asyncio.gather(*under_way)


class ApiServer:
    """Serves one log. Entering takes the address (TidelogError if it cannot be had) and writes the kubeconfig."""

    def __init__(self, log: Log, facts: FactService, clock: Clock, settings: Settings) -> None:
        self._log = log
        self._facts = facts
        self._clock = clock
        self.settings = settings
        self.on_failure: Callable[[], None] = lambda: None
        """Called when the log cannot be served any more; `failure` says why."""
        host, self._port = parse_listen(settings.listen)
        self._host = _address(host)
        if settings.insecure and not ipaddress.ip_address(self._host).is_loopback:
            raise UsageError(
                f"--insecure-http: {settings.listen} is not a loopback address; without HTTPS nothing else is served"
            )

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._log.readers += 1
        async with contextlib.AsyncExitStack() as stack:
            listener = _listener(self._host, self._port)
            stack.callback(listener.close)
            self._port = listener.getsockname()[1]
            context, access, token, authority = self._secured()
            await bootstrap(self._facts)
            self.view = await LogView.of(self._log)
            self.api = Api(self._facts, self.view, self._clock)
            self.view.on_record = Telling(self.view, self.api.beside).note
            self._following = asyncio.create_task(self.view.follow(), name="tidelog kube view")
            self._following.add_done_callback(self._ended)
            stack.push_async_callback(self._stop_following)
            handler = Handler(self.api, access, settings.limits, version("tidelog"))
            server = self._server = _Server(handler, settings.limits)
            stack.push_async_callback(_shut_down, server)
            stack.push_async_callback(self._close, _Door(listener, server, context), server)
            write_kubeconfig(settings.kubeconfig, self.url, token, authority)
            self._stack = stack.pop_all()
        _log.info(
            "serving the Kubernetes API", extra=fields(address=self.url, kubeconfig=str(settings.kubeconfig))
        )
        return self

    def _secured(self) -> tuple[Any, Access, str, str]:
        """TLS, who may do what, the token, and what clients trust."""
        settings = self.settings
        hosts = frozenset(
            (self._host, "localhost", "tidelog", *(("127.0.0.1", "::1") if _is_local(self._host) else ()))
        )
        if settings.insecure:
            return None, Access(hosts=hosts, read_only=settings.insecure == "read-only"), "", ""
        found = certificate(settings.tls, self._host)
        context = server_context(found, settings.client_ca)
        token = kept_token(settings.kubeconfig)
        tokens = {token: "tidelog:owner"}
        if settings.token_file is not None:
            tokens |= read_tokens(settings.token_file)
        # Beyond this machine clients know it by names that only they have.
        return (
            context,
            Access(tokens=tokens, hosts=hosts if _is_local(self._host) else frozenset()),
            token,
            found.certificate,
        )

    @property
    def url(self) -> str:
        """Where it is served."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        if ipaddress.ip_address(self._host).is_unspecified:
            host = "localhost"
        return f"{'http' if self.settings.insecure else 'https'}://{host}:{self._port}"

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the log cannot be served any more", extra=fields(error=str(error)))
            self.on_failure()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the view of the log, if one did."""
        task = self._following
        return task.exception() if task.done() and not task.cancelled() else None

    async def _close(self, door: _Door, server: _Server) -> None:
        await door.close()
        for shelf in (*self.view.shelves.values(), *self.api.beside.shelves.values()):
            shelf.cut_all()
        server.pre_shutdown()

    async def _stop_following(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def __aexit__(self, *_: object) -> None:
        self._log.readers -= 1
        await self._stack.aclose()


async def _shut_down(server: _Server) -> None:
    transports = [connection.transport for connection in server.connections]
    await server.shutdown(STOP_SECONDS)
    for transport in transports:
        if isinstance(transport, asyncio.Transport):
            # They are closed already, but wait for their clients to take leave as TLS has it, which some never do.
            transport.abort()
    await asyncio.sleep(0)


def _address(host: str) -> str:
    """The address of a host. Raises TidelogError."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise TidelogError(f"{safe(host)}: there is no such address; give another with --listen") from error


def _is_local(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)
        found.setblocking(False)
    except OSError as error:
        found.close()
        raise TidelogError(
            f"{host}:{port}: cannot be served: {error.strerror or error}; choose another with --listen"
        ) from error
    return found
