"""Requests to the process that writes the log: answers, errors, malformed bytes, slow clients, odd places."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.patience import until
from tests.thorough import cases
from tidelog.api.errors import (
    FieldError,
    InternalError,
    InvalidObjects,
    LogError,
    LogFenced,
    LogLocked,
    TidelogError,
    quoted,
)
from tidelog.eventlog import socket as log_socket
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.log import Log, memory_log, open_log
from tidelog.eventlog.socket import NoWriter, connect, serve


async def hand_over(path: LogAddress, message: object) -> Any:
    """One request to the process that writes this log."""
    async with connect(path) as client:
        return await client.request(message)


async def echo(data: msgspec.Raw) -> Any:
    """Answers with what it was asked; raises what it is told to."""
    message = msgspec.msgpack.decode(data)
    if message == "invalid":
        rule = FieldError(path="spec.x", kind="Invalid", value={"a": [1]}, rule="must be less")
        raise InvalidObjects("pod default/web", [rule])
    if message == "fenced":
        raise LogFenced(1, 2)
    if message == "bug":
        raise KeyError("no such thing")
    if message == "unencodable":
        return object()
    return {"echo": message}


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    async with open_log(tmp_path / "c.db", what="test") as log:
        yield log


async def test_answer_comes_back(log: Log) -> None:
    async with serve(log, echo):
        answer = await hand_over(log.name, {"verb": "apply", "objects": [1, "é", b"\x00"]})

    assert answer == {"echo": {"verb": "apply", "objects": [1, "é", b"\x00"]}}


async def test_many_requests_on_one_connection(log: Log) -> None:
    async with serve(log, echo), connect(log.name) as client:
        answers = [await client.request(number) for number in range(20)]

    assert answers == [{"echo": number} for number in range(20)]


async def test_errors_of_the_handler_reach_the_client_as_they_were(log: Log) -> None:
    async with serve(log, echo):
        with pytest.raises(InvalidObjects) as invalid:
            await hand_over(log.name, "invalid")
        with pytest.raises(LogFenced, match="epoch 1 is over"):
            await hand_over(log.name, "fenced")

    assert invalid.value.subject == "pod default/web"
    assert str(invalid.value.errors[0]) == 'spec.x: Invalid value: {"a":[1]}: must be less'


@pytest.mark.parametrize("message", ["bug", "unencodable"])
async def test_bug_in_the_handler_is_an_internal_error_and_the_server_goes_on(log: Log, message: str) -> None:
    async with serve(log, echo):
        with pytest.raises(InternalError, match="please report"):
            await hand_over(log.name, message)

        assert await hand_over(log.name, 1) == {"echo": 1}


async def test_socket_is_the_owners_alone_and_goes_when_the_server_closes(tmp_path: Path, log: Log) -> None:
    async with serve(log, echo) as server:
        mode = stat.S_IMODE(os.stat(server.address).st_mode)

    assert mode == 0o600
    assert "c.db.sock" not in os.listdir(tmp_path)


async def test_no_writer_is_named(tmp_path: Path, log: Log) -> None:
    with pytest.raises(NoWriter, match="none holds its lock"):
        await hand_over(tmp_path / "other.db", 1)
    with pytest.raises(NoWriter, match="has no socket"):
        await hand_over(log.name, 1)


async def test_dead_writers_socket_is_refused_and_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_log(path) as log:
        server = await serve(log, echo)
        dead = socket.socket(socket.AF_UNIX)
        await server.close()
        dead.bind(path + ".sock")
        dead.close()

        with pytest.raises(NoWriter, match="refused"):
            await hand_over(path, 1)
        async with serve(log, echo):
            assert await hand_over(path, 1) == {"echo": 1}


async def test_file_in_the_sockets_place_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "c.db"
    (tmp_path / "c.db.sock").write_text("mine")

    async with open_log(path) as log, serve(log, echo) as server:
        assert await hand_over(path, 1) == {"echo": 1}

    assert server.address != str(path) + ".sock"
    assert (tmp_path / "c.db.sock").read_text() == "mine"


async def test_path_longer_than_a_sockets_address_works(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()

    async with open_log(folder / "c.db") as log, serve(log, echo) as server:
        assert await hand_over(folder / "c.db", 1) == {"echo": 1}

    assert server.address == str(folder / "c.db.sock")


async def test_name_longer_than_a_sockets_address_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / ("c" * 150 + ".db")

    async with open_log(path) as log, serve(log, echo) as server:
        assert await hand_over(path, 1) == {"echo": 1}

    assert os.path.dirname(server.address) == str(tmp_path / f"tidelog-{os.geteuid()}")


async def test_folder_without_write_permission_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    bind_at = log_socket._bind_at

    def refuse_beside(address: str) -> socket.socket:
        if address.endswith("c.db.sock"):
            raise PermissionError(13, "Permission denied", address)
        return bind_at(address)

    monkeypatch.setattr(log_socket, "_bind_at", refuse_beside)

    async with open_log(tmp_path / "c.db") as log, serve(log, echo):
        assert await hand_over(tmp_path / "c.db", 1) == {"echo": 1}


async def test_private_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / f"tidelog-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    path = tmp_path / ("c" * 150 + ".db")

    async with open_log(path) as log:
        with pytest.raises(TidelogError, match="mode 0700"):
            await serve(log, echo)


async def test_log_in_memory_has_no_socket() -> None:
    async with await memory_log() as log:
        with pytest.raises(InternalError):
            await serve(log, echo)


async def raw(address: str, data: bytes) -> bytes:
    """What the server answers to these bytes before it hangs up."""
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack(">I", 5) + b"\xc1\xc1\xc1\xc1\xc1", "not msgpack"),
        (struct.pack(">I", 0xFFFFFFFF), "at most"),
        (struct.pack(">I", 100_000) + b"\x91" * 100_000, "nested too deeply"),
        (struct.pack(">I", 0), "not msgpack"),
        (struct.pack(">I", 2) + b"\x01\x02", "not msgpack"),
        (struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff", "not msgpack"),
    ],
)
async def test_malformed_message_is_answered_with_the_reason(log: Log, data: bytes, said: str) -> None:
    async with serve(log, echo) as server:
        answer = await raw(server.address, data)

        assert said in str(msgspec.msgpack.decode(answer[4:])["error"])
        assert await hand_over(log.name, 1) == {"echo": 1}


async def test_message_cut_short_changes_nothing(log: Log) -> None:
    seen = []

    async def handler(message: msgspec.Raw) -> None:
        seen.append(message)

    async with serve(log, handler) as server:
        assert await raw(server.address, struct.pack(">I", 10) + b"\x01") == b""
        assert await raw(server.address, b"\x00") == b""

    assert seen == []


async def test_slow_client_blocks_nobody(log: Log) -> None:
    async with serve(log, echo) as server:
        _, slow = await asyncio.open_unix_connection(server.address)
        slow.write(struct.pack(">I", 1000) + b"only a part")
        await slow.drain()

        assert await hand_over(log.name, 1) == {"echo": 1}
        slow.close()
        await slow.wait_closed()


async def test_message_that_takes_too_long_is_given_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_socket, "SECONDS_PER_MESSAGE", 0.01)
    async with serve(log, echo) as server:
        reader, slow = await asyncio.open_unix_connection(server.address)
        slow.write(b"\x00")

        assert await reader.read() == b""
        slow.close()
        await slow.wait_closed()


async def test_client_that_takes_no_answer_does_not_keep_the_server_from_closing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_socket, "SECONDS_AT_CLOSE", 0.01)

    asked = asyncio.Event()

    async def handler(message: msgspec.Raw) -> bytes:
        asked.set()
        return bytes(8_000_000)

    server = await serve(log, handler)
    _, greedy = await asyncio.open_unix_connection(server.address)
    greedy.write(struct.pack(">I", 1) + b"\x01")
    await asked.wait()

    await server.close()

    greedy.close()
    await greedy.wait_closed()


async def test_request_that_is_never_answered_does_not_keep_the_server_from_closing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_socket, "SECONDS_AT_CLOSE", 0.01)
    asked = asyncio.Event()

    async def handler(message: msgspec.Raw) -> None:
        asked.set()
        await asyncio.Event().wait()

    server = await serve(log, handler)
    waiting = asyncio.create_task(hand_over(log.name, 1))
    await asked.wait()

    await server.close()

    with pytest.raises(TidelogError):
        await waiting


async def test_server_that_was_replaced_leaves_its_successors_socket_alone(log: Log) -> None:
    server = await serve(log, echo)
    successor = await serve(log, echo)
    assert server.address == successor.address

    await server.close()

    assert await hand_over(log.name, 1) == {"echo": 1}
    await successor.close()
    assert not os.path.exists(successor.address)  # noqa: ASYNC240


async def test_request_under_way_is_answered_before_the_server_closes(log: Log) -> None:
    started = asyncio.Event()
    release = asyncio.Event()

    async def handler(message: msgspec.Raw) -> str:
        started.set()
        await release.wait()
        return "done"

    server = await serve(log, handler)
    asked = asyncio.create_task(hand_over(log.name, 1))
    await started.wait()
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0)
    release.set()

    assert await asked == "done"
    await closing


async def test_connections_beyond_those_that_are_answered_are_refused_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_socket, "CONNECTIONS_MAX", 2)
    asked, release = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_: msgspec.Raw) -> Any:
        asked.release()
        await release.wait()
        return "done"

    async with serve(log, slow):
        waiting = [asyncio.ensure_future(hand_over(log.name, n)) for n in range(2)]
        for _ in range(2):
            await asked.acquire()

        with pytest.raises(TidelogError, match="too many connections"):
            await hand_over(log.name, 1)
        release.set()
        assert await asyncio.gather(*waiting) == ["done", "done"]


async def test_second_writer_hears_who_holds_the_log_and_can_hand_over(log: Log) -> None:
    async with serve(log, echo):
        with pytest.raises(LogLocked, match=f"process {os.getpid()} .*test, since"):
            await open_log(log.name)

        assert await hand_over(log.name, "facts") == {"echo": "facts"}


async def test_message_over_the_limit_is_refused_by_the_client(log: Log) -> None:
    async with serve(log, echo):
        with pytest.raises(TidelogError, match="at most"):
            await hand_over(log.name, bytes(log_socket.FRAME_BYTES_MAX + 1))


async def test_foreign_socket_or_file_at_the_address_is_not_trusted(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(log, echo) as server:
        log.store.lock.announce(str(tmp_path / "c.db"))  # type: ignore[attr-defined]
        with pytest.raises(NoWriter, match="is not a socket"):
            await hand_over(log.name, 1)
        log.store.lock.announce(server.address)  # type: ignore[attr-defined]
        owner = os.stat(server.address).st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        stats = os.stat
        monkeypatch.setattr(
            os,
            "stat",
            lambda path, **more: Owned(owner + 2 if str(path).endswith(".lock") else owner, stats(path)),
        )
        with pytest.raises(NoWriter, match="belongs to somebody else"):
            await hand_over(log.name, 1)
        monkeypatch.undo()


class Owned:
    """A stat result with another owner."""

    def __init__(self, uid: int, real: os.stat_result) -> None:
        self.st_uid = uid
        self.st_mode = real.st_mode


async def test_answer_that_makes_no_sense_is_an_error(log: Log) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for answer in ANSWERS.pop():
            writer.write(struct.pack(">I", len(answer)) + answer)
        writer.close()

    async with serve(log, echo) as server:
        other = await asyncio.start_unix_server(nonsense, server.address + ".other")
        log.store.lock.announce(server.address + ".other")  # type: ignore[attr-defined]
        while ANSWERS:
            with pytest.raises(TidelogError):
                await hand_over(log.name, 1)
        other.close()
        await other.wait_closed()


ANSWERS: list[list[bytes]] = [
    [],
    [b"\xc1"],
    [msgspec.msgpack.encode(answer) for answer in ["text"]],
    [msgspec.msgpack.encode({"error": None})],
    [msgspec.msgpack.encode({"error": {"type": "Exception", "arguments": []}})],
    [msgspec.msgpack.encode({"error": {"type": "annotations", "arguments": []}})],
    [msgspec.msgpack.encode({"error": {"type": "LogFenced", "arguments": [1]}})],
    [msgspec.msgpack.encode({"error": {"type": "InvalidObjects", "arguments": ["x", [{"path": 1}]]}})],
]


JUNK = st.binary(max_size=200) | st.builds(
    lambda body, error: struct.pack(">I", max(len(body) + error, 0)) + body,
    st.binary(max_size=200),
    st.integers(-5, 5),
)


@settings(max_examples=cases(60, "TIDELOG_FUZZ_EXAMPLES"))
@given(st.lists(JUNK, min_size=1, max_size=5))
def test_no_bytes_crash_the_server_or_change_the_log(junk: list[bytes]) -> None:
    async def main(path: str) -> None:
        async with open_log(path) as log, serve(log, echo) as server:
            before = log.head
            for data in junk:
                answer = await raw(server.address, data)
                while answer:
                    (length,) = struct.unpack(">I", answer[:4])
                    assert msgspec.msgpack.decode(answer[4 : 4 + length]).keys() <= {"ok", "error"}
                    answer = answer[4 + length :]
            assert await hand_over(path, "well") == {"echo": "well"}
            assert log.head == before

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(os.path.join(folder, "c.db")))


@pytest.mark.parametrize("value", [object(), 2**70], ids=["unknown", "too large"])
def test_error_about_something_that_cannot_travel_quotes_it(value: object) -> None:
    described = log_socket._described(LogError(value))

    assert described == {"type": "LogError", "arguments": [quoted(value)]}


def test_what_is_no_error_of_ours_is_not_raised_as_what_it_calls_itself() -> None:
    for name in ("printable", "FieldError"):
        raised = log_socket._raised({"type": name, "arguments": []})

        assert isinstance(raised, TidelogError)


def test_private_folder_is_beside_the_temporary_files_where_the_user_has_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(log_socket.tempfile, "gettempdir", lambda: str(tmp_path))

    folder = log_socket._private_folder()

    assert folder == str(tmp_path / f"tidelog-{os.geteuid()}")
    assert os.stat(folder).st_mode & 0o777 == 0o700


async def test_many_silent_connections_do_not_keep_another_out(log: Log) -> None:
    async with serve(log, echo) as server:
        silent = [
            await asyncio.open_unix_connection(server.address) for _ in range(log_socket.CONNECTIONS_MAX)
        ]
        await asyncio.sleep(0)
        for _ in range(3):
            assert await hand_over(log.name, "still there") == {"echo": "still there"}
        assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


async def test_large_messages_under_way_have_one_budget(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_socket, "LOOK_SECONDS", 0.01)

    async def size(message: msgspec.Raw) -> Any:
        return len(bytes(message))

    async with serve(log, size) as server:
        begun = []
        for _ in range(10):
            reader, writer = await asyncio.open_unix_connection(server.address)
            writer.write((log_socket.FRAME_BYTES_MAX).to_bytes(4, "big") + b"x" * 100_000)
            await writer.drain()
            begun.append((reader, writer))
        assert await hand_over(log.name, b"y" * 2**20) > 2**20
        assert sum(large.size for large in server._large.values()) <= log_socket.BUDGET_BYTES
        assert await begun[0][0].read() == b""
        for _, writer in begun:
            writer.close()


async def test_large_messages_that_are_being_answered_count_until_they_are(log: Log) -> None:
    size, may_answer = log_socket.BUDGET_BYTES // 8, asyncio.Event()
    under_way: list[int] = []

    async def answer(message: msgspec.Raw) -> Any:
        under_way.append(len(bytes(message)))
        await may_answer.wait()
        return under_way.pop()

    async with serve(log, answer) as server:
        asked = [asyncio.create_task(hand_over(log.name, b"x" * size)) for _ in range(12)]
        # An eighth would be too much together with what each has beside its data.
        await until(lambda: (len(under_way), len(server._waiting)) == (7, 5))
        assert not any(task.done() for task in asked), "nobody is ended, and nobody refused"

        may_answer.set()
        assert min(await asyncio.gather(*asked)) > size
        assert not server._large


async def test_who_waits_for_room_is_passed_by_nobody_and_may_go_away(log: Log) -> None:
    may_answer = asyncio.Event()

    async def answer(_message: msgspec.Raw) -> Any:
        await may_answer.wait()
        return "done"

    async with serve(log, answer) as server:

        async def ask(mebibytes: int, waiting: int) -> asyncio.Task[Any]:
            task = asyncio.create_task(hand_over(log.name, b"x" * (mebibytes << 20)))
            await until(lambda: len(server._waiting) + len(server._large) == waiting)
            return task

        large = [await ask(15, count) for count in range(1, 5)]
        gone, big, small = await ask(14, 5), await ask(13, 6), await ask(1, 7)
        assert len(server._waiting) == 3, "the small one would fit"
        gone.cancel()
        may_answer.set()

        assert await asyncio.gather(*large, big, small) == ["done"] * 6


async def test_server_closes_while_somebody_waits_for_room(log: Log) -> None:
    async with serve(log, echo) as server:
        begun = [await asyncio.open_unix_connection(server.address) for _ in range(6)]
        for _, writer in begun:
            writer.write(log_socket.FRAME_BYTES_MAX.to_bytes(4, "big"))
        await until(lambda: (len(server._large), len(server._waiting)) == (4, 2))
    for reader, writer in begun:
        assert await reader.read() == b""
        writer.close()
    assert not server._large
    assert not server._waiting
