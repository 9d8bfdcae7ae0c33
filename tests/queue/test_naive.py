"""The naive queue answers the recorded traces, so what it says where there is no recording is worth something."""

from __future__ import annotations

import pytest

from tests.queue.naive import NaiveQueue
from tests.queue.traces import recorded


@pytest.mark.parametrize("family", ["queue", "queue_groups"])
def test_naive_queue_follows_every_recorded_trace(family: str) -> None:
    wrong = []
    for case in recorded(family):
        naive = NaiveQueue(case)
        if any(naive.step(step) != step["expect"] for step in case["steps"]):
            wrong.append(case["id"])

    assert wrong == []
