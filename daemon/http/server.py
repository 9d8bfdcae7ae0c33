"""The standard library's threaded HTTP server, with everything limited that a client could overdo.

HTTP is parsed by `http.server`. What is added here: one request a connection, only GET and HEAD, and an end to clients that
are slow, silent, too many or too long-winded (`Limits`). What is answered is somebody else's business: `respond(target)`
is called in the connection's thread and returns an `Answer`.
"""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.client import LineTooLong
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from tidelog.daemon.process.logs import fields

TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger("tidelog.http")


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All arbitrary; a scraper and some probes need a small part of it."""

    connections: int = 32
    request_bytes: int = 16 * 1024
    request_seconds: float = 5.0
    """For the whole request to arrive."""
    answer_seconds: float = 60.0
    """For the whole answer to be made and taken."""
    crowded_seconds: float = 1.0
    """After so many of these an answer makes way where there is no place for another connection."""
    loop_seconds: float = 5.0
    """For the event loop to answer a question."""


class Response(NamedTuple):
    """A response. A body in pieces is sent as it is made."""

    body: str | bytes | Iterator[str]
    status: HTTPStatus = HTTPStatus.OK
    type: str = TEXT
    headers: Mapping[str, str] = {}
    """Beside those that every answer has."""


class Server(http.server.ThreadingHTTPServer):
    """Listens from the start. `serve_forever` also ends the connections that take too long."""

    daemon_threads = True
    allow_reuse_port = False
    request_queue_size = 64

    def __init__(
        self,
        family: socket.AddressFamily,
        address: Any,
        respond: Callable[[str], Response],
        limits: HttpLimits,
    ) -> None:
        self.address_family = family
        self.respond = respond
        self.limits = limits
        self._deadlines: dict[Any, float] = {}
        """Open connections. Guarded by the condition, which is notified when one is gone."""
        self._sending: dict[Any, None] = {}
        """Those of them whose request has not arrived yet, the oldest first."""
        self._answered: dict[Any, float] = {}
        """Those whose request has arrived, and when, the oldest first."""
        self._changed = threading.Condition()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, and no more: HTTPServer would look up the host's name, which can take as long as DNS likes."""
        socketserver.TCPServer.server_bind(self)

    def is_for_us(self, host: str) -> bool:
        """Whether a request with this Host may be answered.

        Behind the loopback interface only names of this machine may be: any page in a browser can make a name of its own mean 127.0.0.1
        (DNS rebinding) and would read our answers. A server that others are to reach goes by names that it cannot know.
        """
        if not ipaddress.ip_address(str(self.server_address[0]).partition("%")[0]).is_loopback or not host:
            return True
        name = (urlsplit(f"//{host}").hostname or "") if host.isascii() and host.isprintable() else ""
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"

    def get_request(self) -> tuple[Any, Any]:
        """Accept. When that fails (out of file descriptors), wait a little: it would be tried again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.05)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread of its own, or turn it away when there are too many."""
        with self._changed:
            full = len(self._deadlines) >= self.limits.connections and not self._make_way()
            if not full:
                self._deadlines[request] = time.monotonic() + self.limits.request_seconds
                self._sending[request] = None
        if full:
            _log.debug("turned a connection away", extra=fields(open=self.limits.connections))
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(
                    b"HTTP/1.1 503 Too many connections\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                )
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def _make_way(self) -> bool:
        """Cut the connection that has been sending its request for longest. Where none is, cut the one that has been answered for longest, if that is long.

        Probes send and take at once, and must get through.
        """
        if len(self._deadlines) >= 2 * self.limits.connections:
            return False
        slowest = next(iter(self._sending), None)
        if slowest is None:
            slowest, since = next(iter(self._answered.items()), (None, 0.0))
            if slowest is None or time.monotonic() - since < self.limits.crowded_seconds:
                return False
        self._sending.pop(slowest, None)
        self._answered.pop(slowest, None)
        _cut(slowest)
        return True

    def shutdown_request(self, request: Any) -> None:
        """The connection is over, however it ended."""
        super().shutdown_request(request)
        with self._changed:
            self._deadlines.pop(request, None)
            self._sending.pop(request, None)
            self._answered.pop(request, None)
            self._changed.notify_all()

    def request_arrived(self, request: Any) -> None:
        """The request is complete: from now on counts the time for the answer."""
        with self._changed:
            self._sending.pop(request, None)
            if request in self._deadlines:
                now = self._answered[request] = time.monotonic()
                self._deadlines[request] = now + self.limits.answer_seconds

    def service_actions(self) -> None:
        """Called by `serve_forever` many times a second."""
        now = time.monotonic()
        with self._changed:
            late = [request for request, deadline in self._deadlines.items() if deadline < now]
        for request in late:
            _cut(request)

    def end_connections(self, seconds: float) -> None:
        """Cut all connections and wait for their threads, but not for ever."""
        with self._changed:
            for request in self._deadlines:
                _cut(request)
            self._changed.wait_for(lambda: not self._deadlines, seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client went away, or we failed in the middle of an answer."""
        if isinstance(sys.exception(), OSError):
            _log.debug("a connection ended early", exc_info=True)
        else:
            _log.exception("an answer ended early")


def _cut(request: socket.socket) -> None:
    """Wake the thread that reads from or writes to the connection: there is nobody there any more."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Bounded:
    """A file to read lines from, up to a number of bytes in all."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file = file
        self._left = limit

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection with one request."""

    server: Server
    protocol_version = "HTTP/1.1"
    # Or else a request that cannot be read would be answered as in 1991, without a status.
    default_request_version = "HTTP/1.0"
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"
    # Set while parsing; needed before that when the very first line is refused.
    command = ""
    requestline = ""
    request_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.request_seconds)
        self.rfile = cast(Any, _Bounded(self.rfile, self.server.limits.request_bytes))
        self._linger = False

    def handle(self) -> None:
        try:
            super().handle()
        except LineTooLong:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)

    def finish(self) -> None:
        super().finish()
        if self._linger:
            _drain(self.connection)

    def version_string(self) -> str:
        return "tidelog"

    def do_GET(self) -> None:
        self.server.request_arrived(self.connection)
        self.connection.settimeout(self.server.limits.answer_seconds)
        if not self.server.is_for_us(self.headers.get("Host", "")):
            self._send(
                Response("421 this address is for this machine only\n", HTTPStatus.MISDIRECTED_REQUEST)
            )
            return
        self._send(self.server.respond(self.path))

    def do_HEAD(self) -> None:
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        # http.server looks for a method `do_…`, and answers 501 where 405 is meant.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self._linger = True
        refusal = Response("405 these endpoints only answer GET and HEAD\n", HTTPStatus.METHOD_NOT_ALLOWED)
        self._send(refusal)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._linger = True
        super().send_error(code, message, explain)

    def _send(self, answer: Response) -> None:
        chunked = not isinstance(answer.body, str | bytes) and self.request_version == "HTTP/1.1"
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if isinstance(answer.body, str | bytes):
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            return
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command != "HEAD":
            self._send_pieces(answer.body, chunked)

    def _send_pieces(self, pieces: Iterator[str], chunked: bool) -> None:
        for piece in pieces:
            if data := piece.encode():
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("request", extra=fields(client=self.client_address[0], line=format % args))


def _drain(connection: socket.socket) -> None:
    """Read what the client still sends: closing over unread data would take back the answer that is on its way."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(1.0)
        for _ in range(16):
            if not connection.recv(65536):
                break
