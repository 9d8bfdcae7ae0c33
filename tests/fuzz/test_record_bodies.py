"""A log whose chain is whole and whose records say anything: another program wrote it, or somebody who means harm.

Every question to it is answered, or refused with one line. So are questions to a log with snapshots of any content.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fuzz.conftest import EXAMPLES, FUZZ, QUESTIONS, Story, check_said, command, places
from tidelog.api.errors import LogError
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.records import RECORD_KINDS
from tidelog.replay.files import rechained, write_log
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER

FEW = settings(FUZZ, max_examples=max(8, EXAMPLES // 6))
"""Each example asks a dozen questions."""

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-2, 40),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["Pod/default/web-0", "Pod/default/none", "Node//n0", "n0", "PodTopologySpread", "\x1b[2J", ""]
    ),
    st.binary(max_size=8),
)
KEYS = st.one_of(
    st.sampled_from(
        ["Pod/default/web-0", "Node//n0", "Node/", "", "Pod", "///", "Nothing/a/b", "Pod/\x1b/\u202e"]
    ),
    st.text(max_size=8),
)


@st.composite
def mutated_bodies(draw: st.DrawFn, body: bytes) -> bytes:
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=30))
    try:
        value = msgspec.msgpack.decode(body)
    except msgspec.DecodeError:  # It was replaced by any bytes before.
        return body
    for _ in range(draw(st.integers(1, 3))):
        found = places(value)
        if not found:
            break
        part, key = found[draw(st.integers(0, len(found) - 1))]
        if draw(st.booleans()):
            part[key] = draw(LEAVES)
        else:
            del part[key]
    return msgspec.msgpack.encode(value)


DAY = 86_400 * 10**9


def ask_everything(path: Path, nanos: int = 0) -> None:
    """`nanos`: so much time goes by in the log."""
    for question in QUESTIONS:
        check_said(command(*question, "--log", path))
    check_said(command("log", "to-test", path))
    if nanos < DAY:  # A what-if lives through all of it.
        check_said(command("replay", "what-if", path, "--gate", "PodTopologySpreadFallbackMode=true"))
    redacted = command("log", "redact", path, path.with_name("shared.db"))
    check_said(redacted)
    if redacted.code == 0:
        assert command("replay", "verify", path.with_name("shared.db"), "--jobs", "1").code == 0
    check_said(command("log", "compact", "--log", path))
    check_said(command("log", "verify", "--log", path))


@pytest.mark.unreplayed("the records are made by hand: bodies that say anything")
@FEW
@given(st.data())
def test_records_that_say_anything_are_read_or_refused(story: Story, data: st.DataObject) -> None:
    records = list(story)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(records) - 1))
        record = records[place]
        match data.draw(
            st.sampled_from(
                ["body", "body", "body", "kind", "key", "cause", "author", "drop", "repeat", "at"]
            )
        ):
            case "body":
                record = replace(record, body=data.draw(mutated_bodies(record.body)))
            case "kind":
                record = replace(record, kind=data.draw(st.sampled_from(RECORD_KINDS) | st.text(max_size=5)))
            case "key":
                record = replace(record, key=data.draw(KEYS))
            case "cause":
                record = replace(record, cause=data.draw(st.integers(-1, 2**40)))
            case "author":
                record = replace(record, author=data.draw(st.text(max_size=5)))
            case "at":
                record = replace(record, at=data.draw(st.integers(record.at, 2**62)))
            case "drop":
                del records[place]
                continue
            case "repeat":
                records.insert(place, record)
        records[place] = record
        if not records:
            return
    latest = 0
    for place, record in enumerate(records):
        latest = max(latest, record.at)
        records[place] = replace(record, seq=place + 1, at=latest)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.db"
        with contextlib.suppress(LogError):  # An epoch that cannot be read is not written either.
            asyncio.run(write_log(path, rechained(records)))
            ask_everything(path, latest - records[0].at)


@FEW
@given(st.data())
def test_snapshots_of_any_content_are_passed_over_or_refused(
    story: Story, story_log: Path, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([OBJECTS, SCHEDULER, "\x1b[2J"]))
    blob = data.draw(st.one_of(st.binary(max_size=100), mutated_bodies(stored_blob(story_log))))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.db"
        asyncio.run(write_log(path, story, {13: (name, blob)}))
        ask_everything(path)


def stored_blob(path: Path) -> bytes:
    import sqlite3

    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return b"".join(data for (data,) in connection.execute("SELECT data FROM parts ORDER BY part"))
    finally:
        connection.close()
