"""A log that is damaged and repaired, or exported and imported in its place, and the judge of what came of it.

    mending = Mending(files, step, records)     damages the log, as the step says
    await mending.work(clock)                   in a process; again, where it was killed or has failed
    mending.kept()                              so many of the records are left; raises Violation

What has to be left is found without the product: the rows of a copy of the files, as far as they are the records that were durable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.simulation.judge import Violation
from tests.simulation.real_store import RealFiles
from tests.simulation.steps import Reimport, Repair
from tidelog.eventlog import rebuild
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import Record
from tidelog.eventlog.repair import repair
from tidelog.eventlog.transfer import export_log, import_log

SELECT = "SELECT seq, at, author, kind, key, cause, body, digest FROM records WHERE seq = ?"
STATES = "SELECT seq FROM snapshots WHERE name NOT LIKE '%-changes'"
LOSS = "LossAccepted"


class Mending:
    """Of one log."""

    def __init__(
        self,
        files: RealFiles,
        step: Repair | Reimport | None,
        records: Sequence[Record],
        *,
        follows: bool = False,
    ) -> None:
        """Without a step it is damaged already. `follows`: a standby has the files open meanwhile."""
        self.is_done = False
        self._files = files
        self._records = records
        self._export: list[bytes] = []
        self._is_import = isinstance(step, Reimport)
        self._may_lose = isinstance(step, Repair)
        self.begins = 0
        """The log begins behind this record now, since the damage was before its oldest state; 0: where it did."""
        self._first, _, self._states = self._rows()
        if isinstance(step, Repair):
            self._damage(step)
        left = [self._good(self._rows(with_log=with_log)[1], self._first) for with_log in (True, False)]
        # By the index that a standby keeps, what was moved to the database is read from there, though the write-ahead log may still have it.
        is_hidden = follows and isinstance(step, Repair) and step.damage == "byte"
        self._left = min(left) if is_hidden else max(left)
        """So many records are still good: a damaged write-ahead log may hide what was moved to the database."""

    # --- damage ---------------------------------------------------------------------------------------------------------

    def _damage(self, step: Repair) -> None:
        path = Path(self._files.disk.folder, "cluster.db.head" if step.damage == "head" else "cluster.db")
        known = self._records[self._first - 1 :]
        if step.damage != "record" and (self._first == 1 or step.damage == "head"):
            content = path.read_bytes() if path.exists() else b""
            if content:
                at = int(step.place * len(content))
                self._files.disk.damage(path.name, at, bytes([content[at] ^ 0x5A]))
        elif known:  # What a compacted log begins with is there once only: of such a log a record, and no state with it.
            known = [record for record in known if record.seq not in self._states] or known
            digest = known[int(step.place * len(known))].digest
            for name in ("cluster.db", "cluster.db-wal"):
                self._overwrite(name, digest)

    def _overwrite(self, name: str, what: bytes) -> None:
        """Wherever it is in the file."""
        path = Path(self._files.disk.folder, name)
        content = path.read_bytes() if path.exists() else b""
        at = content.find(what)
        while at >= 0:
            self._files.disk.damage(name, at, bytes([what[0] ^ 0xFF]))
            at = content.find(what, at + 1)

    # --- the work -------------------------------------------------------------------------------------------------------

    async def work(self, clock: Callable[[], int]) -> None:
        """As the operator does it."""
        path, disk = self._files.path, self._files.disk
        if not self._is_import or rebuild.is_ready(path):
            await repair(path, accept_loss=True, clock=clock, disk=disk)
        else:
            if not self._export:
                self._export = await self._exported()
            for suffix in ("", "-wal", "-shm", ".head"):
                disk.remove(path + suffix)
            await import_log(path, self._export, disk=disk)
        self.is_done = True

    async def _exported(self) -> list[bytes]:
        written: list[bytes] = []
        reader = LogReader(await self._files.open_reader())
        try:
            await export_log(reader, written.append)
        finally:
            await reader.close()
        return b"".join(written).splitlines(keepends=True)

    # --- what came of it --------------------------------------------------------------------------------------------------

    def kept(self) -> int:
        """The last record of those that were durable that is left. Raises Violation."""
        first, rows, _ = self._rows()
        left = self._good(rows, first)
        if first != self._first:
            explained = any(self._first - 1 <= seq <= self._left for seq in self._states)
            is_state = first - 1 in self._states and not explained
            _hold(is_state, f"the log began with record {self._first}, and with {first} now")
            self.begins = first - 1
        _hold(left >= self._left, f"records {left + 1} to {self._left} were good, and are gone")
        more = [row for row in rows if row.seq > left]
        if left < len(self._records) or self.begins:
            _hold(self._may_lose, f"of {len(self._records)} records {left} are left, and none was damaged")
            told = [row.kind for row in more]
            _hold(told == [LOSS], f"after record {left} come {told}, and nobody is told of the loss")
        return left

    def _good(self, rows: Sequence[Record], first: int) -> int:
        """The last of the records from the first one on up to which all are what was durable."""
        left = first - 1
        for row in rows:
            if left >= len(self._records) or row != self._records[left]:
                break
            left = row.seq
        return left

    def _rows(self, *, with_log: bool = True) -> tuple[int, list[Record], set[int]]:
        """Of a copy of the files: the first record that the log should have (0 where nobody can tell), all from there on that can be read, and at which
        records it has states."""
        with tempfile.TemporaryDirectory(dir=Path(self._files.disk.folder).parent) as folder:
            for name in ("cluster.db", "cluster.db-wal")[: 1 + with_log]:
                if (path := Path(self._files.disk.folder, name)).exists():
                    shutil.copy(path, folder)
            with contextlib.closing(sqlite3.connect(os.path.join(folder, "cluster.db"))) as connection:
                first, rows, states = 0, list[Record](), set[int]()
                with contextlib.suppress(sqlite3.DatabaseError):
                    first = 1 + int(connection.execute("SELECT seq FROM anchor").fetchone()[0])
                with contextlib.suppress(sqlite3.DatabaseError):
                    seq = first or self._first
                    while row := connection.execute(SELECT, (seq,)).fetchone():
                        rows.append(Record(*row))
                        seq += 1
                with contextlib.suppress(sqlite3.DatabaseError):
                    states = {seq for (seq,) in connection.execute(STATES)}
                return first, rows, states


def _hold(holds: bool, text: str) -> None:
    if not holds:
        raise Violation("lost", text)
