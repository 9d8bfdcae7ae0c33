"""TLS that leaves the socket alone while nobody reads: whatever its size, and whoever is at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kube.test_http import PLAIN, Scripted, Wire
from tests.patience import PATIENCE
from tidelog.kube.cluster import http
from tidelog.kube.cluster.http import BrokenAnswer, HttpAnswer, HttpConnection, HttpPool
from tidelog.kube.cluster.tls import Tls
from tidelog.kube.serve.credentials import certificate, server_context


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[Scripted]:
    """A server over TLS, whose certificate is in `tmp_path`."""
    found = Scripted()
    made = certificate(tmp_path / "server.pem", "127.0.0.1")
    (tmp_path / "ca.pem").write_text(made.certificate)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=server_context(made))
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@contextlib.asynccontextmanager
async def pool_of(script: Scripted, ca: Path | None, name: str = "127.0.0.1") -> AsyncIterator[HttpPool]:
    pool = HttpPool("127.0.0.1", script.port, ssl.create_default_context(cafile=ca), server_name=name)
    try:
        yield pool
    finally:
        pool.close()


async def ask(pool: HttpPool, body: bytes = b"") -> HttpAnswer:
    head = b"POST /api HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    return await pool.ask(head + body, seconds=PATIENCE, connect_seconds=PATIENCE, sent=lambda _: None)


async def test_requests_and_answers_are_whole_whatever_their_size(script: Scripted, tmp_path: Path) -> None:
    sizes = (0, 1, 16_384, 16_385, 300_000)
    script.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (n, b"x" * n) for n in sizes]
    async with pool_of(script, tmp_path / "ca.pem") as pool:
        answers = [await ask(pool, b"y" * size) for size in sizes]

    assert [len(answer.body) for answer in answers] == list(sizes)
    assert [len(asked.partition(b"\r\n\r\n")[2]) for asked in script.requests] == list(sizes)
    assert script.connections == 1


async def test_body_without_a_length_ends_with_the_connection(script: Scripted, tmp_path: Path) -> None:
    script.answers = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"]
    async with pool_of(script, tmp_path / "ca.pem") as pool:
        assert (await ask(pool)).body == b"hello"


async def test_server_that_hangs_up_has_not_answered(script: Scripted, tmp_path: Path) -> None:
    script.answers = [None]
    async with pool_of(script, tmp_path / "ca.pem") as pool:
        with pytest.raises(BrokenAnswer):
            await ask(pool)


@pytest.mark.parametrize("knows", [True, False])
async def test_somebody_else_is_asked_nothing(script: Scripted, tmp_path: Path, knows: bool) -> None:
    """Of another name, or with a certificate that nobody vouches for."""
    ca, name = (tmp_path / "ca.pem", "elsewhere.example") if knows else (None, "127.0.0.1")
    async with pool_of(script, ca, name) as pool:
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(pool)

    assert script.requests == []


async def test_what_is_no_tls_is_refused(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PLAIN)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    script = Scripted()
    script.port = server.sockets[0].getsockname()[1]
    async with pool_of(script, None) as pool:
        with pytest.raises(OSError):  # noqa: PT011
            await ask(pool)
    await gone.wait()
    server.close()


async def test_bytes_that_somebody_changed_end_the_connection(script: Scripted, tmp_path: Path) -> None:
    async with pool_of(script, tmp_path / "ca.pem") as pool:
        await ask(pool)
        (connection,) = pool._open
        tls = connection._transport
        assert isinstance(tls, Tls)
        tls.data_received(b"\x17\x03\x03\x00\x05hello")
        while connection.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await ask(pool)

    assert script.connections == 2


async def test_connection_that_ends_before_there_are_keys_is_refused() -> None:
    tls = Tls(HttpConnection(), ssl.create_default_context(), "x")
    tls.connection_made(Wire())
    tls.connection_lost(None)
    with pytest.raises(ConnectionAbortedError):
        await tls.agreed


async def test_socket_is_left_alone_while_nobody_reads() -> None:
    wire, tls = Wire(), Tls(HttpConnection(), ssl.create_default_context(), "x")
    tls.connection_made(wire)
    tls.pause_reading()
    paused = [wire.is_paused]
    tls.resume_reading()
    paused.append(wire.is_paused)
    tls.connection_lost(None)

    assert paused == [True, False]


@pytest.mark.parametrize(("together", "gathers"), [(http.TOGETHER_MIN + 1, True), (2, False)])
async def test_answers_of_several_requests_are_read_together(
    script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, gathers: bool
) -> None:
    async with pool_of(script, tmp_path / "ca.pem") as pool:
        ended: list[int] = []
        end = pool._gathered
        monkeypatch.setattr(pool, "_gathered", lambda: (ended.append(1), end()))
        answers = [await asyncio.gather(*(ask(pool) for _ in range(together))) for _ in range(3)]

    assert [answer.status for many in answers for answer in many] == [201] * (3 * together)
    assert bool(ended) == gathers
