"""A log in memory: for tests, the virtual-clock sandbox, and what-if runs. Nothing of it survives the process.

It never waits, so it also runs on event loops whose clock is virtual.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.eventlog.records import Record, Row
from tidelog.eventlog.store import BETWEEN, EMPTY, ROWS_PER_READ, Head, Snapshot, SnapshotInfo, superfluous


class MemoryStore:
    """A `Store` whose rows are a list."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.anchor = EMPTY
        self.head = EMPTY
        self._rows: list[Row] = []
        self._snapshots: dict[tuple[str, int], Snapshot] = {}

    def check_room(self) -> None:
        """There is always room."""

    async def check(self) -> None:
        """Nobody can take a list away."""

    async def append(self, records: Sequence[Record], head: Head) -> None:
        """As in `Store`."""
        self._rows.extend(map(msgspec.structs.astuple, records))
        self.head = head

    async def tidy(self) -> None:
        """There is nothing to do."""

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`."""
        start = max(first - self.anchor.seq - 1, 0)
        stop = min(last - self.anchor.seq, start + ROWS_PER_READ)
        return self._rows[start : max(stop, start)]

    async def span(self, key: str, last: int) -> tuple[int, int] | None:
        """As in `Store`."""
        found = [row[0] for row in self._rows if row[4] == key and row[0] <= last]
        return (found[0], found[-1]) if found else None

    def refresh(self) -> Head:
        """Nobody else can move the head."""
        return self.head

    async def put_snapshot(self, snapshot: Snapshot, *, urgent: bool = False) -> None:  # noqa: ARG002
        """As in `Store`."""
        self._snapshots[snapshot.name, snapshot.seq] = snapshot
        mine = sorted(seq for name, seq in self._snapshots if name == snapshot.name)
        whole = sorted(seq for name, seq in self._snapshots if name == snapshot.name.removesuffix(BETWEEN))
        for seq in superfluous(snapshot.name, mine, whole):
            del self._snapshots[snapshot.name, seq]

    async def reload(self) -> None:
        """Nobody else compacts."""

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `Store`."""
        return self._snapshots.get((name, seq))

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `Store`."""
        return [
            SnapshotInfo(name=name, seq=seq, size=self._snapshots[name, seq].size)
            for name, seq in sorted(self._snapshots)
        ]

    async def footprint(self) -> tuple[int, int]:
        """Of the bodies."""
        return sum(len(row[6]) for row in self._rows), 0

    async def check_storage(self) -> list[str]:
        """A list is never wrong with itself."""
        return []

    async def compact(self, anchor: Head) -> None:
        """As in `Store`."""
        self._rows = self._rows[anchor.seq - self.anchor.seq :]
        self._snapshots = {key: s for key, s in self._snapshots.items() if s.seq >= anchor.seq}
        self.anchor = anchor

    async def reclaim(self, *, whole: bool = False) -> bool:  # noqa: ARG002
        """Python does that."""
        return False

    async def close(self) -> None:
        """The rows stay, so that a test can open them again."""
