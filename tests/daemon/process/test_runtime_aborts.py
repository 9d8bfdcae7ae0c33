"""Aborted attempts end: what is decided beside them does not go on for ever."""

from __future__ import annotations

import asyncio

from tidelog.daemon.process.runtime import Limits
from tidelog.testing import builders as b
from tidelog.testing.sandbox import Sandbox


async def test_pods_that_watch_each_other_do_not_abort_each_other_for_ever() -> None:
    """Nodes come while pods are being placed that look at each other; an abort of one disturbs those that saw it in its place."""
    async with Sandbox(limits=Limits(slice_steps=1)) as cluster:
        await cluster.apply(b.node("closed").cordon().build())
        web = b.pod("web").label(app="web").spread(b.HOSTNAME)
        await cluster.apply([web.named(f"web-{i}").build() for i in range(5)])
        await cluster.advance(seconds=30)

        await asyncio.gather(*(cluster.apply(b.node(f"n{i}").build(), settle=False) for i in range(5)))
        await cluster.settled()

        assert sorted(cluster.placements.values()) == [f"n{i}" for i in range(5)]
        aborted = [
            record
            for record in [record async for record in cluster.records()]
            if record.kind == "AttemptAborted"
        ]
        assert 1 <= len(aborted) <= 10
