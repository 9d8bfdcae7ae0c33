"""Whatever bytes the files of a log hold: one clear error, or every record as it was; never anything else, never silently.

Files are spliced, and tables are changed by SQL as somebody with another tool might.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ, QUESTIONS, Story, check_error, check_said, command
from tidelog.api.errors import TidelogError
from tidelog.eventlog.lock import read_holder
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record

FILES = ("c.db", "c.db.head", "c.db.lock")


async def read_all(path: Path) -> list[Record]:
    async with open_reader(path) as reader:
        return [record async for record in reader.read()]


async def write_and_close(path: Path) -> None:
    async with open_log(path):
        pass


def check_log(path: Path, story: Story) -> None:
    """A reader and a writer say what is wrong, or see the whole story."""
    try:
        assert asyncio.run(read_all(path)) == story
    except TidelogError as error:
        check_error(error)
    try:
        asyncio.run(write_and_close(path))
    except TidelogError as error:
        check_error(error)
    else:
        check_said(command("log", "tail", "--log", path))


def copied(log: Path, folder: str) -> Path:
    """A copy of a log's files."""
    for name in FILES:
        if (log.parent / name).exists():
            shutil.copy(log.parent / name, folder)
    return Path(folder) / "c.db"


@FUZZ
@given(
    st.sampled_from(FILES),
    st.integers(min_value=0),
    st.integers(min_value=0, max_value=200),
    st.binary(max_size=120),
)
@example("c.db", 0, 10**9, b"")
@example("c.db", 3906, 0, b"\x80")  # In a statement of the schema, which SQLite's error quotes.
@example("c.db.head", 0, 10**9, b"")
def test_spliced_files_are_refused_or_read_as_they_were(
    story: Story, story_log: Path, name: str, at: int, gone: int, new: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = copied(story_log, folder)
        file = Path(folder) / name
        data = file.read_bytes() if file.exists() else b""
        at %= len(data) + 1
        file.write_bytes(data[:at] + new + data[at + gone :])

        check_log(path, story)


@FUZZ
@given(st.sampled_from(FILES), st.binary(max_size=5000))
@example("c.db", b"SQLite format 3\0")
@example("c.db", b"SQLite format 3\0" + bytes(4096))
@example("c.db.lock", b'{"pid": 1, "host": "\\u001b[2J", "since": "\\u202e", "socket": "/dev/null"}')
@example("c.db.lock", b"[" * 5000)
def test_any_bytes_in_a_file_are_refused_or_do_no_harm(
    story: Story, story_log: Path, name: str, data: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = copied(story_log, folder)
        (Path(folder) / name).write_bytes(data)

        holder = read_holder(str(path))
        check_log(path, story)

        assert holder is None or isinstance(str(holder), str)


COLUMNS = {
    "records": ("seq", "at", "author", "kind", "key", "cause", "body", "digest"),
    "anchor": ("seq", "at", "epoch", "digest", "checked"),
    "snapshots": ("name", "seq", "chain", "digest", "size", "parts"),
    "parts": ("name", "seq", "part", "data"),
}
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 2**31, 2**62]),
    st.floats(allow_nan=False),
    st.text(max_size=10).filter(lambda text: "\0" not in text),
    st.binary(max_size=40),
)
CHANGES = st.one_of(
    st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]).flatmap(
        lambda place: st.tuples(
            st.just(f"UPDATE OR IGNORE {place[0]} SET {place[1]} = ? WHERE rowid % ? = 0"),
            st.tuples(VALUES, st.integers(1, 40)),
        )
    ),
    st.tuples(
        st.sampled_from([f"DELETE FROM {table} WHERE rowid % ? = 0" for table in COLUMNS]),
        st.tuples(st.integers(1, 40)),
    ),
    st.tuples(
        st.sampled_from(
            [
                "PRAGMA user_version = 2",
                "PRAGMA user_version = -1",
                "PRAGMA application_id = 7",
                "PRAGMA journal_mode = DELETE",
                "PRAGMA writable_schema = ON",
                "DROP TABLE parts",
                "DROP TABLE records",
                "CREATE TABLE more (x)",
                "CREATE VIEW v AS SELECT * FROM records",
                "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
                "ALTER TABLE records ADD COLUMN x DEFAULT 1",
                "ALTER TABLE anchor RENAME TO ranchor",
                "INSERT INTO anchor SELECT * FROM anchor",
                "INSERT INTO snapshots SELECT name, seq + 1, chain, digest, 9223372036854775807, parts FROM snapshots",
                "UPDATE snapshots SET name = 'objects'",
            ]
        ),
        st.just(()),
    ),
)


@FUZZ
@given(st.lists(CHANGES, min_size=1, max_size=3))
@example([("UPDATE OR IGNORE snapshots SET seq = ? WHERE rowid % ? = 0", ("", 1))])
@example([("UPDATE OR IGNORE snapshots SET seq = ? WHERE rowid % ? = 0", (1.5, 1))])
@example([("UPDATE OR IGNORE snapshots SET size = ? WHERE rowid % ? = 0", ("x", 1))])
def test_tables_changed_by_sql_are_refused_or_read_as_they_were(
    story: Story, story_log: Path, changes: list[tuple[str, tuple[object, ...]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = copied(story_log, folder)
        connection = sqlite3.connect(path, isolation_level=None)
        for statement, values in changes:
            with contextlib.suppress(sqlite3.Error, OverflowError):  # It contradicts another one.
                connection.execute(statement, values)
        connection.close()

        check_log(path, story)
        for question in QUESTIONS[::4]:
            check_said(command(*question, "--log", path))
