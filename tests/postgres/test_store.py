"""The store in PostgreSQL keeps the contract that all stores keep."""

from __future__ import annotations

import pytest

from tests.postgres.conftest import Logs
from tidelog.eventlog.postgres.store import PostgresStore
from tidelog.eventlog.store import Store
from tidelog.testing.store_contract import StoreContract

pytestmark = pytest.mark.unreplayed("the rows of the contract are made by hand")


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, logs: Logs) -> None:
        self.logs = logs
        self.url = ""

    async def open_store(self) -> Store:
        self.url = await self.logs.new()
        return await PostgresStore.open(self.url)

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await PostgresStore.open(self.url)
