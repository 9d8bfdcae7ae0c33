"""The simulated store keeps what every store promises, and the simulated disk is as unreliable as it should be."""

from __future__ import annotations

import random

from tests.simulation.disk import SimDisk
from tests.simulation.sim_store import SimFiles, SimStore
from tidelog.eventlog.store import Store
from tidelog.testing.store_contract import StoreContract

PATH = "/simulated/cluster.db"


class TestSimStore(StoreContract):
    """The suite of all stores."""

    async def open_store(self) -> Store:
        self.files = SimFiles(SimDisk(random.Random(1)), lambda: 0.0)
        return await SimStore.open(self.files, PATH)

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await SimStore.open(self.files, PATH)
