"""Both ends of the socket, with somebody at the other who does not keep to the protocol.

A command that hears nonsense from the process that writes the log says so, and changes nothing; a writer carries out the requests
that arrive whole, in their order, however the bytes are cut, and none else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import EXAMPLES, FUZZ, a_pod, check_said, command, mutated
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.manifests.manifests import dump_json
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.intake.messages import Answer, Apply, Delete, Facts, Result, write_request
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.log import open_log
from tidelog.eventlog.socket import serve

FEW = settings(FUZZ, max_examples=max(20, EXAMPLES // 3))
"""Each example makes a log on the disk."""


def framed(message: object) -> bytes:
    data = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(data)) + data


def messages(data: bytes) -> list[Any]:
    """The messages in these bytes."""
    found = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        found.append(msgspec.msgpack.decode(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [
        data[first:last]
        for first, last in zip([0, *places], [*places, len(data)], strict=True)
        if first < last
    ]


CUTS = st.lists(st.integers(0, 2**20), max_size=4)


# --- a writer that answers anything ---------------------------------------------------------------------------------------


class Impostor:
    """Holds a log's lock and takes its requests; says what it is told to, whatever it was asked."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "c.db"
        self.manifest = folder / "pod.json"
        self.manifest.write_text(dump_json([a_pod("web").build()]))
        command("apply", "-f", self.manifest, "--log", self.log)
        self.before = self.log.read_bytes()
        self.pieces: list[bytes] = []
        self.listens = True
        self._lock = WriterLock(str(self.log), "test")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.log) + ".sock")
        self._socket.listen()
        self._lock.announce(str(self.log) + ".sock")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection, contextlib.suppress(OSError):
                if not self.pieces:
                    return
                if self.listens:
                    connection.recv(65536)
                for piece in self.pieces:
                    connection.sendall(piece)

    def close(self) -> None:
        self.pieces = []
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.log) + ".sock")
        self._thread.join()
        self._socket.close()
        self._lock.release()


@pytest.fixture(scope="module")
def impostor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impostor]:
    found = Impostor(tmp_path_factory.mktemp("impostor"))
    yield found
    found.close()


RULE = {"path": "spec.x", "kind": "Invalid", "rule": "must be less", "value": {"a": [1]}}
DONE = msgspec.to_builtins(Answer(head=3, results=(Result(key="Pod/default/web", action="created", seq=3),)))
ANSWERS: list[Any] = [
    {"ok": DONE},
    {"ok": {**DONE, "results": [], "refusals": [{"subject": "pod web", "errors": [RULE]}], "of": 1}},
    {"error": {"type": "InvalidObjects", "arguments": ["pod web", [RULE]]}},
    {"error": {"type": "LogDamaged", "arguments": ["c.db", 1, 2, "torn"]}},
    {"error": {"type": "LogFull", "arguments": ["c.db", 2**20]}},
    {"error": {"type": "LogFenced", "arguments": [1, 2]}},
    {"error": {"type": "TidelogError", "arguments": ["no"]}},
    {"error": {"type": "NoWriter", "arguments": ["c.db", "gone"]}},
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from(
        ["\x1b[2J", "", "LogError", "InternalError", "UsageError", "PluginError", "FieldError", "quoted"]
    ),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FRAMES = st.one_of(
    st.sampled_from(ANSWERS).flatmap(lambda answer: mutated(answer, LEAVES)).map(framed),
    st.sampled_from(ANSWERS).map(framed),
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda data: struct.pack(">I", len(data)) + data),
)
NESTED: list[bytes] = [
    msgspec.msgpack.encode({"error": None})[:-1],
    msgspec.msgpack.encode({"ok": None})[:-1],
    msgspec.msgpack.encode({"error": {"type": "TidelogError", "arguments": None}})[:-1],
    msgspec.msgpack.encode(
        {"error": {"type": "InvalidObjects", "arguments": ["x", [{**RULE, "value": None}]]}}
    )[:-1],
    msgspec.msgpack.encode({"ok": {"refusals": [{"subject": "x", "errors": [{**RULE, "value": None}]}]}})[
        :-1
    ],
]
"""Answers that end where something may be nested."""


@FUZZ
@given(st.lists(FRAMES, min_size=1, max_size=3), CUTS, st.integers(0, 60) | st.none(), st.booleans())
@example([framed({"error": {"type": "InvalidObjects", "arguments": [5, []]}})], [], None, True)
@example([framed({"error": {"type": "LogFull", "arguments": ["c.db", "much"]}})], [], None, True)
@example([framed({"ok": DONE})] * 2, [5], None, True)
@example([framed({"ok": DONE})], [], 20, True)
@example([framed({"ok": DONE})], [1, 2, 3], None, False)
def test_any_answer_is_understood_or_told_in_one_line(
    impostor: Impostor, frames: list[bytes], cuts: list[int], end: int | None, listens: bool
) -> None:
    """Mutated, in any pieces, ended anywhere, repeated, or given before anything was asked."""
    impostor.pieces = pieces_of(b"".join(frames)[:end], cuts) or [b"\0"]
    impostor.listens = listens

    said = command("apply", "-f", impostor.manifest, "--log", impostor.log)

    check_said(said)
    assert impostor.log.read_bytes() == impostor.before


@pytest.mark.parametrize("begun", NESTED, ids=range(len(NESTED)))
def test_answer_nested_at_any_depth_is_told_in_one_line(impostor: Impostor, begun: bytes) -> None:
    """Also at those that Python can just read, but not show."""
    impostor.listens = True
    for depth in (*range(190, 205), *range(960, 1000), 5000):
        data = begun + b"\x91" * depth + b"\xc0"
        impostor.pieces = [struct.pack(">I", len(data)) + data]

        said = command("apply", "-f", impostor.manifest, "--log", impostor.log)

        check_said(said)
        assert said.code == 1


# --- clients that ask anyhow ------------------------------------------------------------------------------------------------

REQUESTS: st.SearchStrategy[Facts] = st.one_of(
    st.builds(
        lambda names: Apply(objects=[a_pod(name).build() for name in names]),
        st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda name: Delete(keys=[f"Pod/default/{name}"], grace_period_seconds=0, ignore_not_found=True),
        st.sampled_from(["a", "b", "c", "d"]),
    ),
)


def outcome(requests: Sequence[Facts]) -> set[str]:
    """The pods that there are after these requests."""
    found: set[str] = set()
    for request in requests:
        if isinstance(request, Apply):
            found |= {f"Pod/default/{obj.metadata.name}" for obj in request.objects}
        elif isinstance(request, Delete):
            found -= set(request.keys)
    return found


async def conversation(path: Path, pieces: Sequence[bytes], *, hangs_up: bool) -> tuple[bytes, set[str]]:
    """What the writer answers to these bytes, and the pods that there are then."""
    async with open_log(path) as log:
        service = await FactService.start(log, FeatureGates())
        async with serve(log, service.handle) as server:
            reader, writer = await asyncio.open_unix_connection(server.address)
            answers = b""
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if not hangs_up:
                    writer.write_eof()
                    answers = await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            # Whoever comes next is served.
            reader, writer = await asyncio.open_unix_connection(server.address)
            writer.write(framed(write_request(Apply(objects=[a_pod("last").build()]))))
            writer.write_eof()
            assert "ok" in messages(await reader.read())[0]
            writer.close()
            await writer.wait_closed()
        await service.catch_up()
        return answers, {object_key(entry.object) for entry in service.objects.of_kind("Pod")}


@FEW
@given(st.lists(REQUESTS, min_size=1, max_size=4), CUTS, st.integers(0, 2**12) | st.none(), st.booleans())
@example([Apply(objects=[a_pod("a").build()])] * 2, [3, 5], None, False)
def test_requests_that_arrive_whole_are_carried_out_in_order_and_none_else(
    requests: list[Facts], cuts: list[int], missing: int | None, hangs_up: bool
) -> None:
    """Several at once, repeated, cut anywhere, the last one perhaps not to its end, the client gone without a word."""
    frames = [framed(write_request(request)) for request in requests]
    data = b"".join(frames)
    if missing is not None:
        data = data[: len(data) - missing % len(data)]
    whole = sum(len(b"".join(frames[: i + 1])) <= len(data) for i in range(len(frames)))

    with tempfile.TemporaryDirectory() as folder:
        answers, pods = asyncio.run(
            conversation(Path(folder) / "c.db", pieces_of(data, cuts), hangs_up=hangs_up)
        )

    if hangs_up:
        done = [outcome(requests[:count]) for count in range(whole + 1)]
        assert pods - {"Pod/default/last"} in done
    else:
        assert [list(answer) for answer in messages(answers)] == [["ok"]] * whole
        assert pods - {"Pod/default/last"} == outcome(requests[:whole])
