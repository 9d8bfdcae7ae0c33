"""Requests and answers over connections of our own: however the bytes come, and whatever else comes in their place."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE
from tidelog.kube.cluster.credentials import Access, Credentials
from tidelog.kube.cluster.http import (
    IDLE_SECONDS,
    PIECE_BYTES_MAX,
    TOGETHER_MIN,
    BrokenAnswer,
    HttpAnswer,
    HttpConnection,
    HttpPool,
    HttpStream,
)
from tidelog.kube.cluster.port import ClusterError, NoAnswer, NotSent, Request
from tidelog.kube.cluster.session import Session
from tidelog.testing.virtual_time import VirtualClock

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 5\r\nRetry-After: 7\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
TRAILED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"
PRECEDED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close


def asked(loop: asyncio.AbstractEventLoop) -> tuple[HttpConnection, asyncio.Future[HttpAnswer]]:
    connection = HttpConnection()
    connection.connection_made(Wire())
    return connection, loop.run_until_complete(_ask(connection))


async def _ask(connection: HttpConnection) -> asyncio.Future[HttpAnswer]:
    return connection.ask(b"GET / HTTP/1.1\r\n\r\n")


@given(
    st.sampled_from(
        [
            (PLAIN, 201, b"hello"),
            (CHUNKED, 200, b"hello"),
            (TRAILED, 200, b"hello"),
            (PRECEDED, 201, b"hello"),
            (EMPTY, 204, b""),
        ]
    ),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_answer_is_the_same_however_its_bytes_are_cut(
    answer: tuple[bytes, int, bytes], cuts: Sequence[int]
) -> None:
    data, status, body = answer
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    loop = asyncio.new_event_loop()
    try:
        connection, found = asked(loop)
        for start, end in itertools.pairwise(places):
            if start < end:
                connection.data_received(data[start:end])

        assert found.result()[::2] == (status, body)
        assert connection.is_open
    finally:
        loop.close()


@given(st.binary(max_size=300))
def test_anything_that_comes_ends_in_an_answer_or_in_a_broken_one(data: bytes) -> None:
    loop = asyncio.new_event_loop()
    try:
        for start in (b"", b"HTTP/1.1 200 OK\r\n", CHUNKED[:60]):
            connection, found = asked(loop)
            connection.data_received(start + data)
            connection.connection_lost(None)

            if found.exception() is not None:
                assert isinstance(found.exception(), BrokenAnswer)
            assert not connection.is_open
    finally:
        loop.close()


LINES = b'{"a":1}\n{"b":22}\n{"c":333}\n'
STREAMED = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n"
    + LINES[:8]
    + b"\r\n13\r\n"
    + LINES[8:]
    + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LINES) + LINES,
    b"HTTP/1.0 200 OK\r\n\r\n" + LINES,
]


@given(st.sampled_from(STREAMED), st.lists(st.integers(0, 120), max_size=8), st.booleans())
def test_stream_is_the_same_however_its_bytes_are_cut(data: bytes, cuts: Sequence[int], whole: bool) -> None:
    """`whole`: the last bytes are not cut off."""
    has_end = b"chunked" in data or b"Length" in data
    places = [0, *sorted(min(cut, len(data) - 1) for cut in cuts), len(data) if whole else len(data) - 1]

    async def read() -> tuple[bytes, bool]:
        stream, found = HttpStream(), b""
        stream.connection_made(Wire())
        answer = stream.ask(b"GET / HTTP/1.1\r\n\r\n")
        for start, end in itertools.pairwise(places):
            if start < end:
                stream.data_received(data[start:end])
        if not has_end:
            stream.eof_received()
        stream.connection_lost(None)
        assert (await answer).status == 200
        try:
            async for piece in stream.pieces(PATIENCE):
                found += piece
        except BrokenAnswer:
            return found, False
        return found, True

    found, ended = asyncio.run(read())

    assert ended == (whole or not has_end)
    assert LINES.startswith(found)
    assert found == LINES or not whole


async def test_stream_that_nobody_reads_is_left_where_it_is() -> None:
    stream, wire = HttpStream(), Wire()
    stream.connection_made(wire)
    stream.ask(b"GET / HTTP/1.1\r\n\r\n")
    stream.data_received(STREAMED[0][:60])
    paused = [wire.is_paused]
    stream._gathered()
    paused.append(wire.is_paused)
    pieces = stream.pieces(PATIENCE)
    await anext(pieces)
    paused.append(wire.is_paused)
    wire.is_closed = True

    assert paused == [True, True, False]


# --- over a socket ----------------------------------------------------------------------------------------------------


class Scripted:
    """A server that answers each request with the next of these bytes; None: it hangs up."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or 0)))
                answer = self.answers.pop(0) if self.answers else PLAIN
                if answer is None:
                    return
                writer.write(answer)
                if b"close" in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def session_with(*answers: bytes | None, path: str = "") -> AsyncIterator[tuple[Session, Scripted]]:
    script = Scripted(*answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    access = Access(source="test", server=f"http://127.0.0.1:{script.port}{path}", token="t")
    try:
        async with asyncio.timeout(PATIENCE), Session(Credentials(access, VirtualClock())) as session:
            yield session, script
    finally:
        server.close()


def get(path: str = "/api", **more: Any) -> Request:
    return Request(method="GET", path=path, **more)


POST = Request(method="POST", path="/api", body={"a": 1}, query={"timeout": "5s"})


async def test_request_says_what_is_asked_and_who_asks() -> None:
    async with session_with(path="/k8s/") as (session, script):
        found = await session.send(POST)
        await session.send(get("/api/v1/pods", query={"fieldSelector": "status.phase!=Failed"}))
        await session.send(get("/api/a b/é\r\nX: y"))

    first, second, third = script.requests
    assert (found.status, found.body, found.retry_after) == (201, b"hello", 7.0)
    assert first.startswith(b"POST /k8s/api?timeout=5s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % script.port)
    assert b"\r\nAuthorization: Bearer t\r\n" in first
    assert first.endswith(b'Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}')
    assert second.startswith(b"GET /k8s/api/v1/pods?fieldSelector=status.phase%21%3DFailed HTTP/1.1\r\n")
    assert third.startswith(b"GET /k8s/api/a%20b/%C3%A9%0D%0AX:%20y HTTP/1.1\r\n")


async def test_connection_is_used_again_unless_the_server_closes_it() -> None:
    async with session_with(PLAIN, CHUNKED, PLAIN.replace(b"Retry", b"Connection: close\r\nRetry")) as (
        session,
        script,
    ):
        for _ in range(3):
            await session.send(POST)
        kept = script.connections
        await session.send(POST)

    assert (kept, script.connections, len(script.requests)) == (1, 2, 4)


async def test_so_many_connections_as_requests_at_a_time() -> None:
    async with session_with() as (session, script):
        await asyncio.gather(*(session.send(POST) for _ in range(5)))
        await asyncio.gather(*(session.send(POST) for _ in range(5)))

    assert script.connections == 5


async def test_question_on_a_connection_that_was_kept_is_asked_again_and_a_write_is_not() -> None:
    async with session_with(PLAIN, None, PLAIN, None) as (session, script):
        await session.send(get())
        assert (await session.send(get())).status == 201
        with pytest.raises(NoAnswer):
            await session.send(POST)

    assert len(script.requests) == 4


async def test_question_on_a_new_connection_that_breaks_has_no_answer() -> None:
    async with session_with(None) as (session, _):
        with pytest.raises(NoAnswer):
            await session.send(get())


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nmore than that",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_answer_is_none(answer: bytes) -> None:
    async with session_with(answer) as (session, _):
        with pytest.raises(NoAnswer):
            await session.send(POST)
        assert (await session.send(POST)).status == 201, "and the next one has a connection of its own"


async def test_body_without_a_length_ends_with_the_connection() -> None:
    async with session_with(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello") as (session, _):
        assert (await session.send(get())).body == b"hello"


async def test_nobody_listens_and_nothing_was_sent() -> None:
    async with session_with() as (session, _):
        pass
    closed = Access(source="test", server=session.name)
    async with Session(Credentials(closed, VirtualClock())) as other:
        with pytest.raises(NotSent):
            await other.send(POST)


async def test_answer_that_does_not_come_in_time_is_none_and_its_connection_goes() -> None:
    async with session_with(b"") as (session, script):
        with pytest.raises(NoAnswer, match=r"within 0\.05 s"):
            await session.send(Request(method="POST", path="/", seconds=0.05))
        await session.send(POST)

    assert script.connections == 2


async def test_token_with_a_line_break_is_no_header() -> None:
    access = Access(source="test", server="http://127.0.0.1:1", token="a\r\nX: y")
    async with Session(Credentials(access, VirtualClock())) as session:
        with pytest.raises(ClusterError, match="line break"):
            await session.send(POST)


async def test_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session_with() as (session, script):
        await session.send(POST)
        loop = asyncio.get_running_loop()
        now: Callable[[], float] = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + IDLE_SECONDS + 1)
        await session.send(POST)
        monkeypatch.undo()

    assert script.connections == 2


async def test_pool_that_is_closed_keeps_nothing() -> None:
    script = Scripted()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    pool = HttpPool("127.0.0.1", server.sockets[0].getsockname()[1], None)
    asking = asyncio.create_task(
        pool.ask(b"GET / HTTP/1.1\r\n\r\n", seconds=PATIENCE, connect_seconds=PATIENCE, sent=lambda _: None)
    )
    while not script.requests:  # noqa: ASYNC110
        await asyncio.sleep(0)
    pool.close()
    server.close()

    with contextlib.suppress(BrokenAnswer):
        await asking
    assert pool._open == set()


async def test_connection_that_had_its_answer_when_others_were_made_to_wait_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, wires = HttpPool("127.0.0.1", 0, None), [Wire() for _ in range(2 * TOGETHER_MIN)]
    unused = iter(wires)

    async def connected(kind: type[HttpConnection], _: float) -> HttpConnection:
        connection = kind()
        connection.connection_made(next(unused))
        return connection

    monkeypatch.setattr(pool, "_connected", connected)
    asking = [
        asyncio.create_task(pool.ask(b"x", seconds=PATIENCE, connect_seconds=PATIENCE, sent=lambda _: None))
        for _ in wires
    ]
    await asyncio.sleep(0)
    for connection in list(pool._busy):
        connection.data_received(PLAIN)
    await asyncio.gather(*asking)
    paused = [wire.is_paused for wire in wires]
    pool._gathered()

    assert any(paused)
    assert [wire.is_paused for wire in wires] == [False] * len(wires)


# --- streams over a socket --------------------------------------------------------------------------------------------


async def lines_of(session: Session, seconds: float = PATIENCE) -> list[bytes]:
    async with session.stream(Request(method="GET", path="/api", seconds=seconds)) as stream:
        assert stream.status == 200
        return [line async for lines in stream.lines() for line in lines]


async def test_lines_of_a_stream_come_whole() -> None:
    async with session_with(*STREAMED[:2]) as (session, script):
        for _ in range(2):
            assert b"\n".join(await lines_of(session)) + b"\n" == LINES

    assert script.connections == 2
    assert script.requests[0].startswith(b"GET /api HTTP/1.1\r\nHost: ")
    assert b"\r\nAuthorization: Bearer t\r\n" in script.requests[0]


async def test_stream_that_is_refused_says_why() -> None:
    refused = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nslow"
    async with session_with(refused) as (session, _), session.stream(get()) as stream:
        assert (stream.status, stream.retry_after, await stream.read()) == (429, 3.0, b"slow")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "ended before"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP"),
        (STREAMED[0][:-5] + b"xyz\r\n", "no HTTP"),
        (b"", r"within 0\.2 s"),
        (STREAMED[0][:-5], r"within 0\.2 s"),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * (PIECE_BYTES_MAX + 1),
            "a line of over",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (PIECE_BYTES_MAX + 1),
            "no size",
        ),
    ],
    ids=["hangs up", "no HTTP", "broken chunk", "silent", "silent later", "long line", "long chunk"],
)
async def test_stream_that_breaks_has_no_answer(answer: bytes | None, why: str) -> None:
    async with session_with(answer) as (session, _):
        with pytest.raises(NoAnswer, match=why):
            await lines_of(session, 0.2 if "within" in why else PATIENCE)


async def test_stream_from_nobody_was_not_sent() -> None:
    async with session_with() as (session, _):
        pass
    closed = Access(source="test", server=session.name)
    async with Session(Credentials(closed, VirtualClock())) as other:
        with pytest.raises(NotSent):
            await lines_of(other)
