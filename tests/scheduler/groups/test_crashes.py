"""A group's commit, killed at every write: afterwards the log holds all of it or nothing, and a scheduler goes on from either.

The log's files are copied at each step that writes, as a kill at that moment would leave them.
"""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path

import pytest

from tests.conftest import AssertReplays
from tests.worlds.groups import RACK, members, node, nodes_of, started
from tidelog.api.objects import Pod
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.daemon.actors.volume_steps import provided
from tidelog.eventlog.log import open_log
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Draft, LossAccepted, Record, SchedulerStarted, decode_body
from tidelog.replay.driver import START, Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing import storage
from tidelog.testing.faulty_disk import FaultyDisk


class Camera:
    """Copies the log's files at each step."""

    def __init__(self, log: Path, copies: Path) -> None:
        self.log = log
        self.copies = copies
        self.taken = 0
        self.on = False

    def __call__(self, step: str) -> None:
        if self.on:
            folder = self.copies / str(self.taken)
            folder.mkdir(parents=True)
            for file in self.log.parent.glob(self.log.name + "*"):
                if not file.name.endswith(("-shm", ".lock")):
                    shutil.copy(file, folder)
            self.taken += 1


def story() -> Driver:
    driver = started()
    driver.put(node("a1", "a"), node("b1", "b", "3"), b.pod_group("train", min_count=4, level=RACK))
    driver.put(*members(4))
    driver.settle()
    return driver


def transactions(driver: Driver) -> list[list[Draft]]:
    """Facts one by one, an attempt's outcomes together."""

    def attempt(record: Record) -> int:
        return getattr(decode_body(record), "attempt", -record.seq)

    return [
        [Draft(body=decode_body(r), author=r.author, key=r.key, cause=r.cause) for r in records]
        for _, records in groupby(driver.records, key=attempt)
    ]


def bound(table: ObjectTable) -> int:
    pods = [table.get(f"Pod/default/train-{i}") for i in range(4)]
    return sum(isinstance(pod, Pod) and bool(pod.spec.node_name) for pod in pods)


async def test_killed_at_every_write_the_whole_group_is_in_the_log_or_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    camera = Camera(tmp_path / "live" / "c.db", tmp_path / "copies")
    driver = story()
    *facts, commit = transactions(driver)
    log = await open_log(camera.log, clock=lambda: START, disk=FaultyDisk(camera))
    for drafts in facts:
        await log.append(drafts)
    before = log.head.seq
    camera.on = True
    await log.append(commit)
    await log.close()
    camera.on = False

    ends: list[int] = []
    for copy in range(camera.taken):
        async with open_log(camera.copies / str(copy) / "c.db", clock=lambda: START) as again:
            records = [record async for record in again.read()]
        ends.append(len(records))
        assert len(records) in (before, before + len(commit))
        table = ObjectTable()
        for record in records:
            table.apply(record)
            assert bound(table) in (0, 4)
        assert verify(records, driver.registry).first_difference is None
        assert after_restart(driver, records) == ["a1"] * 4

    assert {before, before + len(commit)} == set(ends)


def after_restart(driver: Driver, records: list[Record]) -> list[str]:
    """Where the group is when a scheduler has come back from these records and done what there was to do."""
    back = Driver(driver.registry)
    back.core, back.records = recover(records, driver.registry), list(records)
    back.settle()
    return nodes_of(back)


# --- what a repair drops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", range(1, 6))
def test_attempt_whose_last_outcomes_are_lost_is_over_and_who_has_no_node_is_tried_again(
    left: int, assert_replays: AssertReplays
) -> None:
    whole = started()
    whole.put(node("a1", "a", "2"), b.pod_group("train", min_count=2))
    whole.put(*members(4))
    before = len(whole.records)
    whole.settle()
    outcomes = whole.kinds(before)[:5]
    assert outcomes[:3] == ["PlacementChosen", "Scheduled", "Scheduled"]

    records = whole.records[: before + left]
    driver = Driver(whole.registry, now=whole.now, core=recover(records, whole.registry))
    driver.records += records
    driver.append(Draft(body=LossAccepted(first=before + left + 1, reason="damage"), author="repair"))

    assert driver.core.in_flight == 0
    driver.append(Draft(body=SchedulerStarted(epoch=2, holder="next"), author="scheduler"))
    driver.put(node("a2", "a", "2"))
    driver.settle()
    driver.advance(seconds=10)
    assert len(driver.placements()) == 4
    assert assert_replays(driver.records)


@pytest.mark.parametrize("left", [1, 2])
def test_members_that_waited_together_are_tried_again_when_a_repair_dropped_what_ended_their_wait(
    left: int, assert_replays: AssertReplays
) -> None:
    names = [f"train-{i}" for i in range(3)]
    whole = started()
    whole.put(storage.storage_class(), node("a1", "a", "3"), b.pod_group("train", min_count=3))
    whole.put(*map(storage.claim, names))
    whole.put(
        *(b.pod(name).group("train").scheduler("default-scheduler").pvc(name).build() for name in names)
    )
    whole.settle()
    for name in names:
        claim = whole.core.objects[f"PersistentVolumeClaim/default/{name}"]
        assert isinstance(claim, PersistentVolumeClaim)
        whole.put(*provided(claim, storage.storage_class()))
    before = len(whole.records)
    whole.settle()
    assert whole.kinds(before) == ["Scheduled"] * 3

    records = whole.records[: before + left]
    driver = Driver(whole.registry, now=whole.now, core=recover(records, whole.registry))
    driver.records += records
    driver.append(Draft(body=LossAccepted(first=before + left + 1, reason="damage"), author="repair"))
    driver.append(Draft(body=SchedulerStarted(epoch=2, holder="next"), author="scheduler"))
    driver.settle()
    assert len(driver.placements()) == 3
    assert driver.core.in_flight == 0
    assert assert_replays(driver.records)
