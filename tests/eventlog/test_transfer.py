"""Export as JSON lines, and import: the same bytes, the same digests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.errors import LogDamaged, LogError
from tidelog.api.kinds.registry import object_key
from tidelog.api.manifests.manifests import load
from tidelog.api.objects import ObjectMeta, Pod
from tidelog.eventlog import transfer
from tidelog.eventlog.log import Log, memory_log, open_log
from tidelog.eventlog.objects import SNAPSHOT, load_objects
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import (
    ConfigurationLoaded,
    Draft,
    ObjectPut,
    PlacementChosen,
    Record,
    decode_body,
)
from tidelog.eventlog.transfer import body_json, export_log, import_log, record_json
from tidelog.eventlog.verify import verify
from tidelog.testing.store_contract import make_records

pytestmark = pytest.mark.unreplayed("the records are made by hand: outcomes of no attempt")

KUBECTL_GET = Path(__file__).parents[1] / "acceptance" / "kubectl_get.json"


async def fill(log: Log) -> None:
    await log.take_over("é\u2028x")
    pod = Pod(metadata=ObjectMeta(name="web", namespace="default", labels={"z": "1", "a": "2"}))
    odd = {
        "big": 2**64 - 1,
        "negative": -(2**63),
        "float": 1.0,
        "tiny": 5e-324,
        "none": None,
        "list": [True, []],
    }
    await log.append(
        [
            Draft(body=ObjectPut(object=pod), author="cluster", key=object_key(pod)),
            Draft(body=ConfigurationLoaded(configuration=odd), author="x\x00", key="", cause=1),
            Draft(
                body=PlacementChosen(attempt=1, observed=1, at=1, epoch=log.epoch, placement="r", score=0.1),
                author="scheduler",
                key="PodGroup/a/b",
            ),
        ]
    )
    await log.append([Draft(body=ObjectPut(object=pod), author="cluster", key=object_key(pod))] * 10)


async def exported(log: Any) -> list[bytes]:
    out: list[bytes] = []
    await export_log(log, out.append)
    return b"".join(out).splitlines(keepends=True)


@pytest.fixture
async def lines() -> list[bytes]:
    async with await memory_log() as log:
        await fill(log)
        return await exported(log)


async def test_export_is_readable_json(lines: list[bytes]) -> None:
    first, *records, last = map(json.loads, lines)

    assert first["tidelog"] == "export"
    assert records[1]["kind"] == "ObjectPut"
    assert records[1]["body"]["object"]["metadata"]["labels"] == {"z": "1", "a": "2"}
    assert last["head"]["seq"] == len(records) == 14


async def test_every_field_of_real_objects_is_readable_in_an_export() -> None:
    """A pod's spec has so many fields that msgspec writes a longer header than its content needs."""
    objects = load(KUBECTL_GET.read_bytes(), unknown="skip")
    assert any(isinstance(obj, Pod) for obj in objects)
    async with await memory_log() as log:
        await log.append(
            [Draft(body=ObjectPut(object=obj), author="cluster", key=object_key(obj)) for obj in objects]
        )
        records = [json.loads(line) for line in (await exported(log))[1:-1]]

    assert [record["key"] for record in records] == [object_key(obj) for obj in objects]
    assert [record["body"]["object"]["metadata"]["name"] for record in records] == [
        obj.metadata.name for obj in objects
    ]


async def test_import_gives_the_same_log(lines: list[bytes], tmp_path: Path) -> None:
    seen: list[int] = []

    head = await import_log(tmp_path / "c.db", lines, seen.append)

    assert seen == [14]
    assert sorted(file.name for file in tmp_path.glob("*")) == ["c.db", "c.db.head", "c.db.lock"]  # noqa: ASYNC240
    async with open_log(tmp_path / "c.db") as log:
        assert log.head == head
        assert log.epoch == 1
        assert (await verify(log)).problems == ()
        assert await exported(log) == lines


async def test_compacted_log_is_exported_with_what_it_needs(tmp_path: Path) -> None:
    async with await memory_log() as log:
        await fill(log)
        table = await load_objects(log, 5)
        await log.put_snapshot(SNAPSHOT, 5, table.encode())
        await log.compact()
        await fill(log)
        lines = await exported(log)
        digest = (await load_objects(log)).digest()

    await import_log(tmp_path / "c.db", lines)

    async with open_reader(tmp_path / "c.db") as reader:
        assert reader.anchor.seq == 5
        assert (await load_objects(reader)).digest() == digest
        assert (await verify(reader, rebuild=True)).problems == ()


def replaced(old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [line.replace(old, new) for line in lines]


BROKEN: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
    (lambda lines: lines[:5] + lines[6:], "line 6: record 5 is missing, 6 stands in its place"),
    (lambda lines: lines[:5] + lines[4:], "line 6: record 5 is missing, 4 stands in its place"),
    (replaced(b'"z":"1"', b'"z":"2"'), "line 3: the digest of record 2 does not match its content"),
    (lambda lines: lines[:-1], "line 15: the export ends too early: its last line is missing"),
    (lambda lines: lines[:10] + lines[-1:], "line 11: the log ends at record 9"),
    (lambda lines: [*lines, b"{}\n"], "line 17: there is more after the last line"),
    (lambda lines: lines[1:], "line 1: is not a line of an export"),
    (lambda lines: [], "line 0: the export ends too early"),
    (lambda lines: [lines[0], b"garbage\n"], "line 2: is not a line of an export"),
    (lambda lines: [lines[0], b'{"seq": 1}\n'], "line 2: is not a line of an export"),
    (lambda lines: [lines[0], b"[" * 100_000], "line 2: is not a line of an export"),
    (lambda lines: [b"\xff\xfe\n"], "line 1: is not a line of an export"),
    (replaced(b'"format":1', b'"format":2'), "line 1: an export of format 2; this tidelog reads up to 1"),
    (replaced(b'"digest":"', b'"digest":"zz'), "line 1: is not a line of an export"),
    (replaced(b'"seq":0', b'"seq":%d' % 2**63), "line 1: is not a line of an export"),
    (replaced(b'"z":"1"', b'"z":%d' % 2**64), "line 3: is not a line of an export"),
]


@pytest.mark.parametrize(("change", "said"), BROKEN, ids=[said for _, said in BROKEN])
async def test_broken_export_is_refused_with_its_line_and_nothing_is_left(
    lines: list[bytes], tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    with pytest.raises(LogError, match="nothing was imported") as refused:
        await import_log(tmp_path / "c.db", change(lines))

    assert said in str(refused.value)
    assert [file.name for file in tmp_path.glob("*")] == []  # noqa: ASYNC240


async def test_changed_snapshot_is_refused(tmp_path: Path) -> None:
    async with await memory_log() as log:
        await fill(log)
        await log.put_snapshot("objects", 5, b"state")
        await log.compact()
        lines = await exported(log)
    changed = [line.replace(b'"blob":"', b'"blob":"AAAA') for line in lines]

    with pytest.raises(LogError, match="line 2: the snapshot was changed"):
        await import_log(tmp_path / "c.db", changed)


async def test_import_does_not_touch_a_log_that_is_there(lines: list[bytes], tmp_path: Path) -> None:
    await import_log(tmp_path / "c.db", lines)
    with pytest.raises(LogError, match="is there already; choose a name for a new log"):
        await import_log(tmp_path / "c.db", lines)
    (tmp_path / "c.db").unlink()
    with pytest.raises(LogError, match="is there already"):
        await import_log(tmp_path / "c.db", lines)
    with pytest.raises(LogError, match="there is no directory"):
        await import_log(tmp_path / "none" / "c.db", lines)


async def test_export_of_a_damaged_log_stops_at_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        await fill(log)
    path.write_bytes(path.read_bytes().replace(b"PodGroup/a/b", b"PodGroup/a/c"))

    async with open_reader(path) as reader:
        with pytest.raises(LogDamaged, match="records 4 to 14"):
            await export_log(reader, lambda line: None)


@pytest.mark.parametrize(
    "body",
    [b"\xc4\x01\x00", b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", b"\xcd\x00\x01", b"\xc1", b"\x81\x01\x02"],
)
def test_body_that_json_would_change_is_exported_as_bytes(body: bytes) -> None:
    record = make_records(1, body=body)[0]

    assert body_json(record.body) is None
    assert "body" not in json.loads(record_json(record))
    assert json.loads(record_json(record))["msgpack"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_any_body_is_either_the_same_through_json_or_exported_as_bytes(value: object) -> None:
    body = msgspec.msgpack.encode(value)
    text = body_json(body)

    if text is not None:
        assert msgspec.msgpack.encode(msgspec.json.decode(text)) == body
    record = Record(1, 0, "a", "Tick", "", 0, body, bytes(32))
    assert ("msgpack" in json.loads(record_json(record))) == (text is None)


async def test_empty_lines_are_passed_over(tmp_path: Path, lines: list[bytes]) -> None:
    with_gaps = [line for pair in zip(lines, [b"\n"] * len(lines), strict=True) for line in pair]

    head = await import_log(tmp_path / "copy.db", with_gaps)

    async with open_reader(tmp_path / "copy.db") as copy:
        assert await exported(copy) == lines
    assert head.seq == len(lines) - 2


async def test_long_log_is_written_in_pieces(
    tmp_path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LINES_PER_WRITE", 3)

    await import_log(tmp_path / "copy.db", lines)

    async with open_reader(tmp_path / "copy.db") as copy:
        assert await exported(copy) == lines


async def test_body_that_was_exported_as_bytes_and_a_log_without_records_come_back(tmp_path: Path) -> None:
    said: list[int] = []
    async with await memory_log() as log:
        before = await exported(log)
        await log.append([Draft(body=ConfigurationLoaded(configuration={"a": b"\xff"}), author="x")])
        lines: list[bytes] = []
        await export_log(log, lines.append, lambda done, most: said.append(done * 10 + most))
    assert b'"msgpack":' in b"".join(lines)
    assert said == [11]

    await import_log(tmp_path / "a.db", b"".join(lines).splitlines(keepends=True))
    await import_log(tmp_path / "b.db", before)

    async with open_reader(tmp_path / "a.db") as reader:
        assert [decode_body(record) for record in [r async for r in reader.read()]] == [
            ConfigurationLoaded(configuration={"a": b"\xff"})
        ]
    async with open_reader(tmp_path / "b.db") as reader:
        assert reader.head.seq == 0


async def test_snapshot_that_is_damaged_is_not_exported() -> None:
    async with await memory_log() as log:
        await fill(log)
        await log.put_snapshot(SNAPSHOT, 2, b"first")
        await log.compact()
        await log.put_snapshot("other", 3, b"second")
        good = [line for line in await exported(log) if line.startswith(b'{"snapshot"')]
        store: Any = log.store
        for key, snapshot in store._snapshots.items():
            if snapshot.name == "other":
                store._snapshots[key] = msgspec.structs.replace(snapshot, pieces=(b"another",))

        left = [line for line in await exported(log) if line.startswith(b'{"snapshot"')]

    assert [json.loads(line)["snapshot"] for line in good] == [SNAPSHOT, "other"]
    assert [json.loads(line)["snapshot"] for line in left] == [SNAPSHOT]
