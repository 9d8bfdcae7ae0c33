"""The benchmark beside a file runs, and leaves nothing behind."""

from __future__ import annotations

import asyncpg
import pytest

from tests.postgres.server import PostgresServer
from tidelog.benchmarks.postgres import measure

pytestmark = pytest.mark.unreplayed("the records are made by hand: outcomes of no attempt")


async def test_benchmark_measures_both_stores_and_drops_its_schemas(server: PostgresServer) -> None:
    figures = await measure(
        server.url() + "?lease=500ms", records=100, nodes=3, pods=6, take_overs=1, load_seconds=0
    )

    for store in ("file", "postgres"):
        assert set(figures["appends_per_second_by_callers"][store]) == {"1", "32", "1000"}
        assert figures["scheduling_pods_per_second"][store] > 0
    assert figures["take_over"]["clean"]["p50_s"] >= 0
    assert figures["full_load"]["rounds"] == 2
    connection = await asyncpg.connect(server.url())
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'bench_%'") == 0
    await connection.close()
