"""What a power loss leaves of a log: everything that was synced, and of the rest whatever the disk pleased.

    a real log ──► Recorder: each write, sync, creation, removal ──► Machine: replays them up to some step ──► image(rng)

The steps are recorded once, SQLite's own below its VFS (`sqlite_watch`) and the head file's at the `Disk` port; each image costs some
milliseconds. In an image

- what was written before the last sync of its file is there;
- of what was written after it each sector is as it was, or new, or torn in the middle, or zeros, or noise; a later one may be there and an
  earlier one not. Bytes outside what was written are unharmed: SQLite relies on that too (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`);
- creations, renames and removals since the folder was last synced happened up to some point.

A disk may also be one that lies: its syncs of some files do nothing from some step on.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

from tests.eventlog import sqlite_watch
from tidelog.eventlog.disk import Disk

SECTOR = 512
Way = Callable[[random.Random, bytearray, int, bytes], None]
"""How a sector fares that was written and not synced."""


class Step(NamedTuple):
    """Something that was done. `what` is create, write, truncate, sync, rename, remove, sync_folder or acknowledge."""

    what: str
    name: str = ""
    number: int = 0
    """Where it was written, to what size it was cut, what was acknowledged."""
    data: bytes = b""
    new_name: str = ""


class Recorder(Disk, sqlite_watch.Watcher):
    """The real disk; notes what is done to one folder, by SQLite and by us, until it is stopped."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Statements that are executed in the place of others."""

    def __init__(self, folder: Path) -> None:
        self.steps: list[Step] = []
        self._folder = str(folder)
        self._names: dict[int, str] = {}
        sqlite_watch.watch(self._folder, self)

    def stop(self) -> None:
        """Note nothing more."""
        sqlite_watch.unwatch(self._folder)

    def acknowledged(self, seq: int) -> None:
        """Note that somebody was told that this record is durable."""
        self.steps.append(Step("acknowledge", number=seq))

    def _note(self, what: str, path: str, number: int = 0, data: bytes = b"", new_path: str = "") -> None:
        self.steps.append(Step(what, os.path.basename(path), number, data, os.path.basename(new_path)))

    # --- SQLite ---------------------------------------------------------------------------------------------------------

    def connect(self, uri: str) -> sqlite3.Connection:
        instead = self.instead

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
                return super().execute(instead.get(sql, sql), *args)  # type: ignore[arg-type]

        if "vfs=" not in uri:
            uri += f"&vfs={sqlite_watch.NAME}"
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=5.0, cached_statements=64, factory=Connection
        )

    def created(self, path: str) -> None:
        self._note("create", path)

    def written(self, path: str, offset: int, data: bytes) -> None:
        self._note("write", path, offset, data)

    def truncated(self, path: str, size: int) -> None:
        self._note("truncate", path, size)

    def synced(self, path: str) -> None:
        self._note("sync", path)

    def removed(self, path: str, durably: bool) -> None:
        self._note("remove", path)
        if durably:
            self._note("sync_folder", path)

    # --- ours -----------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            self._note("create", path)
        fd = super().open(path, flags)
        self._names[fd] = path
        if flags & os.O_TRUNC:
            self._note("truncate", path)
        return fd

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._note("write", self._names[fd], offset, data)
        super().write_at(fd, data, offset)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._note("sync", self._names[fd])

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self._note("sync_folder", path)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._names = {fd: new if name == old else name for fd, name in self._names.items()}
        self._note("rename", old, new_path=new)

    def remove(self, path: str) -> None:
        if os.path.exists(path):
            self._note("remove", path)
        super().remove(path)


class _File:
    """Its content as of the last sync, and the changes since."""

    def __init__(self, content: bytes = b"") -> None:
        self.synced = bytearray(content)
        self.changes: list[Step] = []

    def sync(self) -> None:
        for change in self.changes:
            _change(self.synced, change)
        self.changes = []


class Machine:
    """A disk that is about to lose power; `lies` says of which files it does not sync what it says it syncs."""

    def __init__(
        self,
        files: dict[str, bytes] | None = None,
        *,
        acknowledged: int = 0,
        lies: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.acknowledged = acknowledged
        self._lies = lies
        self._names = {name: _File(content) for name, content in (files or {}).items()}
        self._synced_names = dict(self._names)
        self._renamings: list[dict[str, _File]] = []
        """The folder after each change since it was last synced."""

    def run(self, steps: Sequence[Step]) -> None:
        """Do these."""
        for step in steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        what, name = step.what, step.name
        if what in ("write", "truncate"):
            self._names[name].changes.append(step)
        elif what == "sync":
            self._sync(name)
        elif what == "sync_folder":
            self._sync_folder()
        elif what == "acknowledge":
            self.acknowledged = max(self.acknowledged, step.number)
        else:
            if what == "create":
                self._names[name] = _File()
            elif what == "rename":
                self._names[step.new_name] = self._names.pop(name)
            else:
                del self._names[name]
            self._renamings.append(dict(self._names))

    def _sync(self, name: str) -> None:
        if self._lies(name):
            return
        self._names[name].sync()
        if name.endswith(("-wal", "-journal")) and self._synced_names.get(name) is not self._names[name]:
            # SQLite syncs the folder itself with the first sync of a journal that it made.
            self._sync_folder()

    def _sync_folder(self) -> None:
        self._synced_names = dict(self._names)
        self._renamings = []

    def forget(self, name: str) -> None:
        """A sync of this file has failed: what was written since the last one will never be on the disk."""
        self._names[name].changes = []

    def files(self) -> dict[str, bytes]:
        """What a process sees, also one that is started after another was killed: name → content."""
        return {name: _left(file, random.Random(), _kept) for name, file in self._names.items()}

    def image(self, rng: random.Random, way: Way | None = None) -> dict[str, bytes]:
        """What is found on the disk when the power is back: name → content. Each file fares in a way of its own, if none is given."""
        folder = rng.choice([self._synced_names, *self._renamings])
        return {name: _left(file, rng, way or rng.choice(WAYS)) for name, file in folder.items()}


def _left(file: _File, rng: random.Random, way: Way) -> bytes:
    """What is left of a file whose unsynced sectors fare in this way."""
    changes = file.changes
    if way is _first and changes:
        changes, way = changes[: rng.randrange(len(changes) + 1)], _kept
    content = bytearray(file.synced)
    for change in changes:
        if change.what == "truncate":
            if way is _kept or (way is not _lost and rng.random() < 0.5):
                _change(content, change)
            continue
        for start, data in _sectors(change):
            way(rng, content, start, data)
    return bytes(content)


def _sectors(change: Step) -> list[tuple[int, bytes]]:
    """A write, cut at the borders of sectors."""
    borders = range((change.number // SECTOR + 1) * SECTOR, change.number + len(change.data), SECTOR)
    places = [change.number, *borders, change.number + len(change.data)]
    return [
        (start, change.data[start - change.number : end - change.number]) for start, end in pairwise(places)
    ]


def _change(content: bytearray, change: Step) -> None:
    if change.what == "truncate":
        del content[change.number :]
        content.extend(bytes(change.number - len(content)))
    else:
        _put(content, change.number, change.data)


def _put(content: bytearray, start: int, data: bytes) -> None:
    content.extend(bytes(max(0, start - len(content))))
    content[start : start + len(data)] = data


# --- ways in which what was not synced fares: called for each sector, or the part of one that was written ----------------


def _lost(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    pass


def _kept(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    _put(content, start, data)


def _first(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    """Some changes in order, the rest not."""


def _some(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    """This one or not: with others, this is reordering."""
    if rng.random() < 0.5:
        _put(content, start, data)


def _most(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    if rng.random() < 0.95:
        _put(content, start, data)


def _torn(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    """Its beginning only."""
    size = rng.randrange(len(data) + 1) if rng.random() < 0.5 else len(data)
    _put(content, start, data[:size])


def _allocated(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    """The file has grown, but the data never came."""
    _put(content, start, data if start < len(content) and rng.random() < 0.5 else bytes(len(data)))


def _noise(rng: random.Random, content: bytearray, start: int, data: bytes) -> None:
    _put(content, start, data if rng.random() < 0.5 else rng.randbytes(len(data)))


WAYS = (_lost, _kept, _first, _some, _most, _torn, _allocated, _noise)
