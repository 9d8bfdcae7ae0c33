"""Retention as its user sees it: what is dropped, what is still answered, and how large the file is."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.acceptance.tasks.world import write
from tests.cli.conftest import Tidelog
from tests.golden.make import STORIES
from tests.worlds.beginnings import quiet_places
from tidelog.daemon.process.retention import Retention
from tidelog.daemon.process.runtime import Limits
from tidelog.daemon.process.scheduler import Scheduler
from tidelog.eventlog.records import OUTCOME_KINDS
from tidelog.replay.files import write_log
from tidelog.testing import builders as b


async def churn(path: Path) -> list[int]:
    """A scheduler that drops old records while pods come and go; the size of its file now and then."""
    limits = Limits(snapshot_every=300, keep=Retention(records=1_000), retain_every=100)
    sizes = []
    async with Scheduler.open(path, limits=limits) as scheduler:
        await scheduler.apply([b.node(f"n{n}").capacity(cpu="64", pods=500).build() for n in range(4)])
        await scheduler.apply(b.pod("stays").request(cpu="1m").build())
        for wave in range(60):
            names = [f"w{wave}-{n}" for n in range(50)]
            await scheduler.apply([b.pod(name).request(cpu="10m").build() for name in names])
            await scheduler.settled()
            await scheduler.delete([f"Pod/default/{name}" for name in names], grace_period_seconds=0)
            await scheduler.settled()
            sizes.append(os.path.getsize(path))  # noqa: ASYNC240
        await scheduler.apply(b.pod("newest").request(cpu="1m").build())
        await scheduler.settled()
        await asyncio.sleep(0)
        log = scheduler.runtime.log
        kept = log.head.seq - log.anchor.seq
        assert log.anchor.seq > 5_000

    assert 1_000 <= kept <= 1_000 + 12 * 400
    return sizes


def test_running_scheduler_drops_what_is_older_and_explains_what_it_keeps(
    tmp_path: Path, tidelog: Tidelog
) -> None:
    path = tmp_path / "c.db"

    sizes = asyncio.run(churn(path))

    assert max(sizes[20:]) <= 2 * max(sizes[:20]), sizes
    assert "chain ok" in tidelog("log", "verify", path).out
    assert "identical" in tidelog("replay", "verify", path).out
    assert "default/newest" in tidelog("why", "newest", "--log", path).out
    # Of a pod that is there, and whose records are not.
    for verb in (("why",), ("describe", "pod")):
        ran = tidelog(*verb, "stays", "--log", path)
        assert ran.code == 0, ran.err
        assert "was dropped by compaction" in ran.out
    ran = tidelog("why-not", "stays", "n1", "--log", path)
    assert (ran.code, "was dropped by compaction" in ran.out) == (0, True), ran
    gone = tidelog("why", "w0-0", "--log", path)
    assert (gone.code, "was dropped by compaction" in gone.err) == (1, True), gone


async def make(path: Path) -> None:
    async with Scheduler.open(path, limits=Limits(snapshot_every=100)) as scheduler:
        await scheduler.apply([b.node("n1").capacity(cpu="64", pods=500).build()])
        for n in range(120):
            await scheduler.apply(b.pod(f"p{n}").request(cpu="10m").build())
            await scheduler.settled()


def test_keep_option_of_log_compact_says_first_what_it_does_and_needs(
    tmp_path: Path, tidelog: Tidelog
) -> None:
    path = tmp_path / "c.db"
    asyncio.run(make(path))
    content = path.read_bytes()

    tried = tidelog("log", "compact", path, "--keep", "100", "--dry-run")
    assert "would be dropped, the log would begin at record" in tried.out
    assert "needs up to" in tried.err
    assert path.read_bytes() == content

    done = tidelog("log", "compact", path, "--keep", "100")
    assert (
        done.out.replace(" dropped, the log begins", " would be dropped, the log would begin").partition(":")[
            0
        ]
        == (tried.out.partition(":")[0])
    )
    assert path.stat().st_size < len(content)
    assert "head ok" in tidelog("log", "verify", path, "--rebuild").out
    assert "identical" in tidelog("replay", "verify", path).out
    assert "nothing to drop" in tidelog("log", "compact", path, "--keep", "100").out
    assert "nothing to drop" in tidelog("log", "compact", path, "--keep", "30d").out


@pytest.mark.parametrize("option", ["--keep", "--to"])
@pytest.mark.parametrize("world", ["interrupted", "gangs", "device-placements", "random-1"])
def test_log_without_snapshots_begins_close_to_where_it_was_asked_to_and_is_all_explained(
    world: str, option: str, tmp_path: Path, tidelog: Tidelog
) -> None:
    """At the last record before which no attempt was under way there."""
    driver = STORIES[world]()
    end, quiet = len(driver.records), quiet_places(driver)
    for wanted in range(1, end, max(end // 6, 1)):
        path = tmp_path / f"{wanted}.db"
        asyncio.run(write_log(path, driver.records))
        place = max((seq for seq in quiet if seq <= wanted), default=0)

        tried = tidelog(
            "log", "compact", path, option, wanted if option == "--to" else end - wanted, "--dry-run"
        )
        done = tidelog("log", "compact", path, option, wanted if option == "--to" else end - wanted)

        if not place:
            assert done.out == "nothing to drop: the log begins at record 1\n"
            continue
        assert done.out.startswith(f"records 1 to {place} dropped, the log begins at record {place + 1}: ")
        assert tried.out.startswith(f"records 1 to {place} would be dropped")
        outcomes = sum(record.kind in OUTCOME_KINDS for record in driver.records[place:])
        assert tidelog("replay", "verify", path).out == f"{outcomes} outcomes, {outcomes} identical\n"
        assert tidelog("log", "verify", path, "--rebuild").code == 0


def test_state_of_another_version_is_not_called_damage(
    tmp_path: Path, tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.db"
    asyncio.run(make(path))
    tidelog("log", "compact", path)
    with monkeypatch.context() as other:
        other.setattr("tidelog.scheduler.state.VERSION", 9_999)
        other.setattr("tidelog.eventlog.objects.KIND_BY_NAME", {})

        for words in (
            ["get", "nodes", "--log"],
            ["queue", "--log"],
            ["replay", "verify"],
            ["run", "--listen", "off", "--log"],
        ):
            ran = tidelog(*words, path)
            assert (ran.code, "another version" in ran.err) == (1, True), ran


def test_advice_after_a_compaction_is_the_advice_before(tmp_path: Path, tidelog: Tidelog) -> None:
    path = tmp_path / "c.db"

    async def crowded() -> None:
        async with Scheduler.open(path) as scheduler:
            nodes = [
                b.node("n1").capacity(cpu="2", pods=10),
                b.node("n2").capacity(cpu="2", pods=10).taint("x", "y"),
            ]
            await scheduler.apply([node.build() for node in nodes])
            await scheduler.apply(b.pod("there").request(cpu="1500m").build())
            await scheduler.settled()
            await scheduler.apply([b.pod("big").request(cpu="1").build(), b.pod("gated").gate("g").build()])
            await scheduler.settled()

    asyncio.run(crowded())
    before = [tidelog("why", pod, "--log", path).out for pod in ("big", "gated")]

    assert tidelog("log", "compact", path).code == 0
    after = [tidelog("why", pod, "--log", path).out for pod in ("big", "gated")]

    for told, again in zip(before, after, strict=True):
        assert _advice(told) == _advice(again)
    assert "500m more cpu on n1" in _advice(after[0])
    assert "removing the scheduling gates g" in _advice(after[1])


def _advice(told: str) -> str:
    return told.partition("what would help")[2].partition("\n\n")[0].strip()


def test_log_without_snapshots_begins_between_two_attempts_wherever_it_is_cut(
    tmp_path: Path, tidelog: Tidelog
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    write(whole)
    end = 56

    for keep in (1, 9, 14, 17, 23, 30, 40, end - 1):
        folder = shutil.copytree(whole, tmp_path / str(keep))
        path = folder / "cluster.db"

        tried = tidelog("log", "compact", path, "--keep", str(keep), "--dry-run").out
        done = tidelog("log", "compact", path, "--keep", str(keep)).out

        first = int(tried.partition("begin at record ")[2].partition(":")[0])
        assert f"the log begins at record {first}:" in done
        # An attempt whose outcomes are kept is kept whole, so that there may be some more.
        assert end - keep - 3 < first <= end - keep + 1
        assert tidelog("replay", "verify", path).code == 0
        assert "head ok" in tidelog("log", "verify", "--rebuild", path).out
        assert "1 more nvidia.com/gpu on g1" in tidelog("why", "training", "--log", path).out
