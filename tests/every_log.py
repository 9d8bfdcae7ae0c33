"""Every log that a test makes, wherever: collected as they are made, and read when the test is over.

    Driver                        its records
    MemoryStore                   its rows: sandboxes, logs of a test, what-ifs
    SqliteStore                   its file, read when it is closed and once more at the end, if it is still there then
    files below `tmp_path`        found by their head file: other processes wrote them, or something that builds files (import, repair)

A log without a scheduler's work is replayed like any other: its chain is checked and its facts are folded. One that was compacted begins with its
oldest snapshot of the scheduler; if there is none, because no scheduler ever ran, its chain is all that can be checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import pytest

from tidelog.api.errors import LogError
from tidelog.daemon.process.runtime import Runtime
from tidelog.eventlog import database, opening
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import ConfigurationLoaded, Record, check_rows, decode_body
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import Head, Snapshot
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import AUTHOR
from tidelog.scheduler.state import SNAPSHOT, encode_state, has_objects, load_state

CORES_KEPT = 10
"""Of so many drivers, the last ones, the state they are in is compared, too: property tests make hundreds, and states are large."""

T = TypeVar("T")


class WrittenLog(NamedTuple):
    """What was written, and what it takes to replay it."""

    records: list[Record]
    """All, or those behind the snapshot that it begins with."""
    registry: Registry
    snapshot: bytes = b""
    core: Core | None = None
    """In the state that it must lead to."""


class Unreadable(NamedTuple):
    """A log that cannot even be read."""

    path: str
    error: Exception


class EveryLog:
    """Collects from the moment of `watch`."""

    def __init__(self) -> None:
        self._drivers: list[Driver] = []
        self._earlier: list[tuple[list[Record], Registry]] = []
        self._memory: list[MemoryStore] = []
        self._files: dict[tuple[str, bytes], WrittenLog | Unreadable] = {}
        """By path and first record: a log made anew under the same name is another one."""
        self._paths: dict[str, None] = {}
        self._registries: dict[str, Registry] = {}
        """Who ran on the log of this name, with which plugins."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin to collect."""
        _after(monkeypatch, Driver, "__init__", self._made_driver)
        _after(monkeypatch, MemoryStore, "__init__", self._memory.append)
        _after(monkeypatch, Runtime, "__init__", self._made_runtime)
        close: Callable[[SqliteStore], Coroutine[Any, Any, None]] = SqliteStore.close

        @wraps(close)
        async def close_and_read(store: SqliteStore) -> None:
            await close(store)
            self._paths[store.name] = None
            self._keep(store.name, self._of_closed_file)

        monkeypatch.setattr(SqliteStore, "close", close_and_read)

    def _made_driver(self, driver: Driver) -> None:
        if driver.core.seq:
            return  # It goes on behind another log, to find out what would be.
        self._drivers.append(driver)
        if len(self._drivers) > CORES_KEPT:
            oldest = self._drivers.pop(0)
            self._earlier.append((oldest.records, oldest.registry))

    def _made_runtime(self, runtime: Runtime) -> None:
        self._registries[runtime.log.name] = runtime.core.registry

    def logs(self, folder: Path | None) -> Iterator[WrittenLog | Unreadable]:
        """All that were made, and those whose files are below the folder."""
        for records, registry in self._earlier:
            yield WrittenLog(records, registry)
        for driver in self._drivers:
            yield WrittenLog(driver.records, driver.registry, core=driver.core)
        for store in self._memory:
            yield self._of_rows(store)
        below = (
            [] if folder is None else [str(head)[: -len(".head")] for head in sorted(folder.rglob("*.head"))]
        )
        for path in dict.fromkeys([*self._paths, *below]):
            self._keep(path, self._of_file)
        yield from self._files.values()

    def _of_rows(self, store: MemoryStore) -> WrittenLog | Unreadable:
        try:
            anchor = store.anchor
            records = check_rows(store._rows, anchor.seq, anchor.at, anchor.digest)
        except Exception as error:
            return Unreadable(store.name, error)
        kept = [s for (name, _), s in sorted(store._snapshots.items()) if name in (SNAPSHOT, OBJECTS)]
        return self._written(store.name, anchor, records, kept)

    def _keep(self, path: str, read: Callable[[str], WrittenLog | Unreadable]) -> None:
        """Take what is in the file now, if it is there."""
        if not Path(path).is_file():
            return
        try:
            found = read(path)
        except Exception as error:
            found = Unreadable(path, error)
        first = found.records[0].digest if isinstance(found, WrittenLog) and found.records else b""
        self._files[path, first] = found

    def _of_file(self, path: str) -> WrittenLog | Unreadable:
        """As any reader of a log does."""
        opened = opening.open_reading(path, Disk())
        try:
            return self._of_database(path, opened.connection, opened.anchor, opened.head.seq)
        finally:
            opened.close()

    def _of_closed_file(self, path: str) -> WrittenLog | Unreadable:
        """Without touching anything beside it: tests look what is there."""
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as connection:
            anchor = database.read_anchor(connection)
            return self._of_database(path, connection, anchor, database.last_seq(connection, anchor))

    def _of_database(
        self, path: str, connection: sqlite3.Connection, anchor: Head, last: int
    ) -> WrittenLog | Unreadable:
        records = [record for batch in database.walk(connection, anchor, last) for record in batch]
        kept: Iterable[Snapshot | None] = ()
        if anchor.seq:
            infos = [info for info in database.list_snapshots(connection) if info.name in (SNAPSHOT, OBJECTS)]
            kept = [database.get_snapshot(connection, info.name, info.seq) for info in infos]
        return self._written(path, anchor, records, [s for s in kept if s is not None and s.is_sound])

    def _written(
        self, name: str, anchor: Head, records: list[Record], kept: list[Snapshot]
    ) -> WrittenLog | Unreadable:
        registry = self._registries.get(name) or self._registry_for(records)
        if not anchor.seq:
            return WrittenLog(records, registry)
        begin = beginning(records, kept, registry)
        if begin is None:
            if any(record.author == AUTHOR for record in records):
                return Unreadable(
                    name, LogError("it was compacted, and has no snapshot of the scheduler to begin with")
                )
            return WrittenLog([], registry)
        seq, state = begin
        return WrittenLog([r for r in records if r.seq > seq], registry, state)

    def _registry_for(self, records: list[Record]) -> Registry:
        """The first one around that has all plugins that the log names."""
        names = {
            name for record in records if record.kind == "ConfigurationLoaded" for name in _plugins(record)
        }
        around = [Registry(), *self._registries.values(), *(driver.registry for driver in self._drivers)]
        return next((r for r in around if all(r.get(name) for name in names)), around[0])


def beginning(
    records: Sequence[Record], kept: Sequence[Snapshot], registry: Registry
) -> tuple[int, bytes] | None:
    """The oldest state that can be loaded, with its objects in it, and its record."""
    for state in (snapshot for snapshot in kept if snapshot.name == SNAPSHOT):
        if has_objects(state.blob):
            return state.seq, state.blob
        before = [snapshot for snapshot in kept if snapshot.name == OBJECTS and snapshot.seq <= state.seq]
        if before:
            table = ObjectTable.decode(before[-1].blob)
            for record in records:
                if table.seq < record.seq <= state.seq:
                    table.apply(record)
            core = load_state(state.blob, registry, table.objects())
            return None if core is None else (state.seq, encode_state(core))
    return None


def _plugins(record: Record) -> set[str]:
    body = decode_body(record)
    assert isinstance(body, ConfigurationLoaded)
    profiles: list[dict[str, Any]] = body.configuration.get("profiles", [])
    return {entry["name"] for p in profiles for entries in p.get("points", {}).values() for entry in entries}


def _after(monkeypatch: pytest.MonkeyPatch, kind: type[T], name: str, then: Callable[[T], None]) -> None:
    """Call `then` with the object whenever this method of it has run."""
    original: Any = getattr(kind, name)

    @wraps(original)
    def method(self: T, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        then(self)

    monkeypatch.setattr(kind, name, method)
