"""SIGUSR2: what is in memory is told, and compared with the log."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from tests.daemon.process.test_process import a_node, a_pod, apply, is_leading, log, running
from tests.patience import until
from tidelog.daemon.process.inspection import compare, inspect, picture_of
from tidelog.daemon.process.process import Options
from tidelog.eventlog.objects import load_objects
from tidelog.testing import builders as b

__all__ = ["log"]


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    return [record.fields for record in caplog.records if record.message == message]  # type: ignore[attr-defined]


async def test_signals_tell_or_do_nothing_and_the_process_goes_on(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tidelog")
    async with running(Options(log=log)) as (process, _):
        await until(is_leading(process))
        assert process.state.runtime is not None
        await apply(log, a_node(), a_pod("fits"), a_pod("big", cpu="9"), b.pod("gated").gate("g").build())
        await process.state.runtime.settled()

        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        await until(lambda: bool(told(caplog, "memory is as the log says")))

        (node,) = told(caplog, "cached node")
        assert (node["node"], node["pods"]) == ("n1", 1)
        assert {row["pod"]: row["place"] for row in told(caplog, "queued pod")} == {
            "default/big": "unschedulable",
            "default/gated": "gated",
        }
        (summary,) = told(caplog, "memory is as the log says")
        assert (summary["nodes"], summary["pods"], summary["queued"]) == (1, 1, 2)
        await apply(log, a_pod("later"))


async def test_memory_that_lost_or_made_up_something_is_told(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(Options(log=log)) as (process, _):
        await until(is_leading(process))
        runtime = process.state.runtime
        assert runtime is not None
        await apply(log, a_node("n1"), a_node("n2"), a_pod("a"), a_pod("big", cpu="9"))
        await runtime.settled()
        cache = runtime.core.cluster.cache
        placed = runtime.core.cluster.pod("Pod/default/a")
        assert placed is not None
        picture = picture_of(runtime.core)
        table = await load_objects(runtime.log, picture.seq)

        cache.remove_pod(placed.metadata.uid)
        lost = compare(picture_of(runtime.core), table)
        found = await inspect(runtime.core, runtime.log)
        made_up = compare(
            picture._replace(
                placed={**picture.placed, "x/y": "n1"}, queue={**picture.queue, "x/z": "active"}
            ),
            table,
        )

        assert compare(picture, table) == ((), ())
        assert found == lost == ((f"pod default/a on {placed.spec.node_name}",), ())
        assert made_up == ((), ("pod x/y on n1", "pending pod x/z"))
        assert told(caplog, "memory and log differ")
        process.stop()
        await asyncio.sleep(0)
