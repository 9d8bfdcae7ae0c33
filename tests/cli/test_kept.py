"""Room that is kept for nominated pods is told by why, why-not and describe."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.acceptance.tasks.world import history, pod
from tests.cli.conftest import Tidelog
from tidelog.replay.files import write_log

SAID = "n2 has room for it, but this is kept for default/batch-3, nominated to n2"


def test_node_with_room_that_is_kept_is_named(tidelog: Tidelog, tmp_path: Path) -> None:
    driver, log = history(), tmp_path / "x.db"
    driver.put(pod("new").build())
    driver.settle()
    asyncio.run(write_log(log, driver.records))

    assert SAID in tidelog("why", "new", "--log", log).out
    assert SAID in tidelog("why-not", "new", "n2", "--log", log).out
    assert SAID in tidelog("describe", "pod", "new", "--log", log).out
    assert SAID not in tidelog("why-not", "new", "n1", "--log", log).out
    assert "kept for" not in tidelog("why", "big", "--log", log).out
    assert "default     batch-3" in tidelog("describe", "node", "n2", "--log", log).out
