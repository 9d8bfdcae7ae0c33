"""Opening a log and asking for its state at any moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.worlds.beginnings import behind
from tests.worlds.histories import node, pod, random_history
from tidelog.api.errors import LogError, TidelogError
from tidelog.api.times import format_time
from tidelog.cli.main import main
from tidelog.eventlog.log import open_log
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import OUTCOME_KINDS, Unschedulable
from tidelog.framework.interface import CycleState, Plugin
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.verify import recover
from tidelog.scheduler.state import SNAPSHOT, encode_state


def with_snapshot(records_before: int = 10) -> tuple[Driver, dict[int, tuple[str, bytes]]]:
    driver = Driver()
    driver.start()
    driver.put(node("n1").build(), *(pod(f"p{i}", "500m").build() for i in range(records_before)))
    driver.settle()
    snapshots = {driver.core.seq: (SNAPSHOT, encode_state(driver.core))}
    driver.put(node("n2").build(), *(pod(f"q{i}", "500m").build() for i in range(5)))
    driver.advance(seconds=20)
    return driver, snapshots


@pytest.mark.parametrize("seed", range(3))
async def test_state_at_any_record_is_the_recovered_one(seed: int, tmp_path: Path) -> None:
    records = random_history(seed).records
    await write_log(tmp_path / "log.db", records)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        for seq in range(1, len(records) + 1, 7):
            core = await history.core_at(seq, in_flight=False)
            assert core.seq == seq
            assert core.in_flight or core.digest() == recover(records[:seq], Registry()).digest()


async def test_state_from_a_snapshot_is_the_state_from_the_start(tmp_path: Path) -> None:
    driver, snapshots = with_snapshot()
    await write_log(tmp_path / "with.db", driver.records, snapshots)
    await write_log(tmp_path / "without.db", driver.records)

    for seq in (3, next(iter(snapshots)), len(driver.records) - 1, len(driver.records)):
        async with open_history(tmp_path / "with.db", Registry()) as one:
            first = await one.core_at(seq)
        async with open_history(tmp_path / "without.db", Registry()) as other:
            second = await other.core_at(seq)
        assert first.objects == second.objects
        assert first.in_flight == second.in_flight


async def test_attempts_that_were_under_way_are_in_flight(tmp_path: Path) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("n1").build(), pod("p").build())
    driver.attempt()
    driver.put(node("n2").build())
    between = len(driver.records)
    driver.commit()
    await write_log(tmp_path / "log.db", driver.records)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        assert (await history.core_at(between)).in_flight == 1
        assert (await history.core_at(between - 1)).in_flight == 0
        assert (await history.core_at(between, in_flight=False)).in_flight == 0
        assert (await history.core_at()).in_flight == 0


async def test_outcomes_can_be_iterated(tmp_path: Path) -> None:
    driver, _ = with_snapshot()
    await write_log(tmp_path / "log.db", driver.records)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        rejected = [body async for _, body in history.outcomes() if isinstance(body, Unschedulable)]

    assert rejected
    assert len(rejected) == sum(record.kind == "Unschedulable" for record in driver.records)


async def test_a_moment_that_compaction_dropped_is_one_clear_error(tmp_path: Path) -> None:
    driver, snapshots = with_snapshot()
    (seq,) = snapshots
    await write_log(tmp_path / "log.db", driver.records, snapshots)
    async with open_log(tmp_path / "log.db") as log:
        await log.compact(seq)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        assert (await history.core_at()).digest() == driver.core.digest()
        with pytest.raises(LogError, match="was compacted to record"):
            await history.core_at(seq - 5)


async def test_log_that_was_cut_before_its_first_state_is_explained_from_there(tmp_path: Path) -> None:
    """As by a compaction that is interrupted: it drops a thousand records at a time on its way to the state."""
    driver, snapshots = with_snapshot()
    (seq,) = snapshots
    await write_log(tmp_path / "log.db", driver.records, snapshots)
    async with open_log(tmp_path / "log.db") as log:
        table = ObjectTable()
        for record in driver.records[:seq]:
            table.apply(record)
        await log.put_snapshot("objects", seq, table.encode())
        await log.compact(seq - 5)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        report = await history.verify()
        living = [key for key in driver.core.objects if key.startswith("Pod/")]
        told = [await history.why(key) for key in living]
        made = await history.what_if()

    assert report.is_identical
    assert report.outcomes == sum(record.kind in OUTCOME_KINDS for record in driver.records[seq:])
    assert len(told) > 3
    assert all(why.status != "deleted" for why in told)
    assert any(f"records 1 to {seq}, " in why.note for why in told)
    assert made.comparison.is_identical


ASKED = (
    "replay verify", "replay what-if", "log verify", "log to-test", "queue --log", "get pods --log", "get events --log",
)  # fmt: skip


async def test_every_verb_begins_where_a_cut_log_can_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, snapshots = with_snapshot()
    (seq,) = snapshots
    path = tmp_path / "log.db"
    await write_log(path, driver.records, snapshots)
    async with open_log(path) as log:
        await log.put_snapshot("objects", seq, behind(driver, seq).objects)
        await log.compact(seq - 5)
    page = tmp_path / "page.html"

    def run(words: str) -> tuple[int, str]:
        code = main(words.split())
        return code, "".join(capsys.readouterr())

    for words in ASKED:
        code, said = await asyncio.to_thread(run, f"{words} {path}")
        assert (code, "internal" in said) == (0, False), (words, said)
    code, said = await asyncio.to_thread(run, f"page {path} -o {page}")
    assert code == 0, said
    for words, refusal in (
        (f"get pods --at {seq - 2} --log {path}", f"its oldest state is that of record {seq}"),
        (f"replay what-if {path} --drop {seq}", f"the log has the records {seq + 1} to"),
        (f"log to-test {path} --from {seq}", f"the log has {seq + 1} to"),
    ):
        code, said = await asyncio.to_thread(run, words)
        assert (code in (1, 2), refusal in said) == (True, True), (words, code, said)


async def test_log_that_was_compacted_to_its_end_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = random_history(3, steps=40)
    path = tmp_path / "log.db"
    await write_log(path, driver.records)

    def run(words: str) -> tuple[int, str]:
        code = main(words.split())
        return code, "".join(capsys.readouterr())

    assert (await asyncio.to_thread(run, f"log compact {path}"))[0] == 0

    for words, says in (
        (f"replay what-if {path}", "compacted to its end"),
        (f"page {path} -o {tmp_path / 'page.html'}", "compacted to its end"),
        (f"replay verify {path}", "0 outcomes"),
    ):
        code, said = await asyncio.to_thread(run, words)
        assert (code in (0, 1), says in said, "internal" in said) == (True, True, False), (words, code, said)
    moment = format_time(driver.core.at + 60 * 10**9)
    assert "node-" in (await asyncio.to_thread(run, f"get nodes --at {moment} --log {path}"))[1]


class Elsewhere(Plugin):
    """Not installed where the log is read."""

    name = "Elsewhere"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 0


async def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    from tidelog.configuration.configuration import resolve_configuration

    registry = Registry([*IN_TREE, Elsewhere])
    section = {"plugins": {"multiPoint": {"enabled": [{"name": "Elsewhere"}]}}}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    driver = Driver(registry)
    driver.start(resolve_configuration({**header, "profiles": [section]}, registry).configuration)
    await write_log(tmp_path / "log.db", driver.records)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        with pytest.raises(
            TidelogError, match="record 2 configures plugins that are not installed here: Elsewhere"
        ):
            await history.core_at()
