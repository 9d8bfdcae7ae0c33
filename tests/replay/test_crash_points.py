"""A log that ends after any record, as a crash may leave it, verifies and is recovered up to there: with groups, preemption and fallback."""

from __future__ import annotations

import pytest

from tests.golden import make
from tests.worlds.spread import PREEMPTION, two_zones, web
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.recorded import RecordedAttempts
from tidelog.testing import builders as b

RACK = "example.com/rack"


def groups() -> Driver:
    """A gang that waits for its last member and is placed, one that fits nowhere, and one whose node goes away."""
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").label({RACK: f"r{i % 2}"}).capacity(cpu="4").build() for i in range(4)))
    for name, cpu in (("train", "1"), ("large", "3"), ("small", "500m")):
        driver.put(b.pod_group(name, min_count=4, level=RACK))
        for i in range(4):
            made = b.pod(f"{name}-{i}").group(name).request(cpu=cpu).scheduler("default-scheduler")
            driver.put(made.build())
            driver.settle()
    driver.delete(b.node("n1").build())
    driver.advance(seconds=30)
    return driver


def fallback() -> Driver:
    """A pod whose zone is full falls back when preemption has failed; another comes later."""
    world = two_zones()
    world.put(web("web-1", PREEMPTION))
    world.driver.advance(seconds=60)
    world.put(web("web-2", PREEMPTION))
    world.driver.advance(seconds=60)
    return world.driver


@pytest.mark.parametrize(
    ("driver", "kind"),
    [(groups(), "PlacementChosen"), (make.preemption(), "Evicted"), (fallback(), "Scheduled")],
    ids=["groups", "preemption", "fallback"],
)
def test_log_cut_after_any_record_verifies_and_is_recovered(driver: Driver, kind: str) -> None:
    records = driver.records
    # A transaction is in the log whole or not at all.
    whole = [(pop.outcomes[0][0].seq, pop.outcomes[-1][0].seq) for pop in RecordedAttempts(records)]
    cuts = [seq for seq in range(len(records) + 1) if not any(a <= seq < z for a, z in whole)]

    assert kind in {record.kind for record in records}
    for cut in cuts:
        report, recovered = verify(records[:cut], Registry()), recover(records[:cut], Registry())
        assert report.first_difference is None
        assert (recovered.seq, recovered.digest()) == (cut, report.digest)
