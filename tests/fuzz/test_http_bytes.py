"""Any bytes at the HTTP port: an answer with a status or a hang-up, nothing that a terminal acts on, and the next one is served."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ
from tests.patience import PATIENCE, wait_until
from tidelog.configuration.configuration import default_configuration
from tidelog.daemon.http.endpoints import HttpServer
from tidelog.daemon.http.server import HttpLimits
from tidelog.daemon.http.sources import ProcessState
from tidelog.plugins.registry import Registry

Address = tuple[str, int]


@contextlib.contextmanager
def serving(limits: HttpLimits) -> Iterator[Address]:
    """A server on an event loop of its own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    state = ProcessState("c.db", default_configuration(Registry()))
    server = HttpServer("127.0.0.1:0", state, limits)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    yield server.host, server.port
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with serving(HttpLimits(request_seconds=PATIENCE, loop_seconds=PATIENCE)) as address:
        yield address


def answer(address: Address, pieces: Sequence[bytes]) -> bytes:
    """What comes back for these pieces, sent one after the other."""
    received = b""
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
        with contextlib.suppress(OSError):  # It hung up already.
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(65536):
                received += data
    return received


def check(address: Address, pieces: Sequence[bytes]) -> None:
    received = answer(address, pieces).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if received:
        head, _, body = received.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        assert head.startswith(b"HTTP/1.1 ")
        assert status in (200, 400, 404, 405, 414, 417, 431, 500, 501, 503, 505), head
        assert status != 500, received
        assert all(line.isprintable() for line in head.decode("latin-1").split("\r\n"))
        assert all(line.isprintable() for line in body.decode().split("\n")), body
        assert received.count(b"HTTP/1.1 ") == 1
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok"
    connection.close()


LINES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"GET /metrics HTTP/1.1\r\n",
            b"GET /livez HTTP/1.0\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\n",
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n",
            b"GET //livez HTTP/1.1\r\n",
            b"GET /\x1b[2J HTTP/1.1\r\n",
            b"GET /readyz?verbose&exclude=\xff HTTP/1.1\r\n",
            b"POST /configz HTTP/1.1\r\n",
            b"DELETE / HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"Host: x\r\n",
            b"Content-Length: 99999999999\r\n",
            b"Content-Length: -1\r\n",
            b"Content-Length: x\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"ffffffff\r\nabc\r\n",
            b"0\r\n\r\n",
            b"Expect: 100-continue\r\n",
            b"Expect: 9\r\n",
            b"Connection: keep-alive\r\n",
            b"Connection: upgrade\r\nUpgrade: websocket\r\n",
            b"A: " + b"b" * 20_000 + b"\r\n",
            b"A: b\r\n" * 300,
            b" folded\r\n",
            b": no name\r\n",
            b"\r\n",
            b"\n",
            b"\0",
        ]
    ),
)


@FUZZ
@given(st.lists(LINES, min_size=1, max_size=8))
@example([b"GET /livez HTTP/1.1\r\n", b"\r\n", b"GET /livez HTTP/1.1\r\n", b"\r\n"])
@example([b"GET /livez HTTP/1.1\r\n", b"Expect: 100-continue\r\n", b"\r\n"])
def test_any_request_is_answered_or_hung_up_on(address: Address, pieces: list[bytes]) -> None:
    check(address, pieces)


def test_slow_clients_keep_nobody_else_from_being_answered() -> None:
    """Twice as many as may be connected dribble; whoever comes after they were cut off is served."""
    with serving(HttpLimits(request_seconds=0.3, connections=8)) as address:
        slow = []
        for _ in range(16):
            connection = socket.create_connection(address, timeout=PATIENCE)
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /livez HT")
            slow.append(connection)
        for connection in slow:
            with contextlib.suppress(ConnectionError):
                while connection.recv(4096):
                    pass
            connection.close()

        # On a slow machine a good request may take longer than these limits allow, too.
        wait_until(lambda: answer(address, [b"GET /livez HTTP/1.1\r\n\r\n"]).endswith(b"\r\n\r\nok"))
