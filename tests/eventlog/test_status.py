"""The status of a log in a file: where it ends, and who leads it, as long as somebody does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.api.errors import LogError
from tidelog.eventlog.log import open_log
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.status import log_status


async def test_leader_is_told_while_it_has_the_log(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_log(path, what="the test") as log:
        await log.take_over("test")
        await log.append([Draft(body=Tick(), author="cluster")])
        led = await log_status(path)
        log.store.lock.announce("somewhere.sock")  # type: ignore[attr-defined]
        serving = await log_status(path)
    left = await log_status(path)

    assert (led.log, led.first, led.last, led.epoch) == (str(path), 1, 2, 1)
    assert led.leader.startswith(f"process {os.getpid()} on ")
    assert "the test" in led.leader
    assert (led.takes_facts, serving.takes_facts, left.takes_facts) == (False, True, False)
    assert (left.leader, left.last) == ("", 2)


async def test_log_that_is_not_there_has_no_status(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no such log"):
        await log_status(tmp_path / "c.db")
