"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import BETWEEN, BETWEEN_KEPT, Snapshot, Store, superfluous
from tidelog.testing.store_contract import StoreContract

pytestmark = pytest.mark.unreplayed("the rows of the contract are made by hand")


class TestMemoryStore(StoreContract):
    async def open_store(self) -> Store:
        return MemoryStore()

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return store


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cluster ?#%é.db"

    async def open_store(self) -> Store:
        return await SqliteStore.open(self.path)

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await SqliteStore.open(self.path, create=False)


def test_snapshot_knows_when_it_was_changed() -> None:
    snapshot = Snapshot.make("a", 1, bytes(32), b"state")

    assert snapshot.is_sound
    for other in (
        Snapshot(name="b", seq=1, chain=bytes(32), pieces=(b"state",), digest=snapshot.digest),
        Snapshot(name="a", seq=2, chain=bytes(32), pieces=(b"state",), digest=snapshot.digest),
        Snapshot(name="a", seq=1, chain=bytes(32), pieces=(b"stats",), digest=snapshot.digest),
    ):
        assert not other.is_sound


def test_changes_are_kept_from_each_whole_snapshot_on_and_behind_the_newest_all() -> None:
    changes = range(1, 3 * BETWEEN_KEPT)
    whole = [0, 2 * BETWEEN_KEPT]

    dropped = superfluous("a" + BETWEEN, changes, whole)

    assert dropped == list(range(BETWEEN_KEPT + 1, 2 * BETWEEN_KEPT + 1))
