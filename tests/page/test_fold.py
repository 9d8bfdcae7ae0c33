"""Chunks and steps say, at every record, what the scheduler's own state says there."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from tidelog.eventlog.records import Record
from tidelog.page import fold as folding
from tidelog.page.fold import SHOWN, Fold
from tidelog.page.rows import row_of
from tidelog.page.source import LogSource
from tidelog.page.stories import Stories
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.story import story
from tidelog.scheduler.core import Core
from tidelog.testing.builders import node, pod, pod_group

GOLDEN = Path(__file__).parent.parent / "golden"


def stories_of_a_small_cluster() -> Driver:
    """Placed, pending, preempted, deleted; a node that comes later, a group."""
    driver = Driver()
    driver.start()
    driver.put(node("a").label({"zone": "1"}).capacity(cpu="2").build(), node("b").capacity(cpu="2").build())
    low = [pod(f"low-{i}").scheduler("default-scheduler").request(cpu="1").build() for i in range(4)]
    driver.put(*low)
    driver.advance(1)
    driver.put(pod("high").scheduler("default-scheduler").request(cpu="2").priority(1000).build())
    driver.advance(1)
    driver.put(pod("waits").scheduler("default-scheduler").request(cpu="4").build())
    driver.advance(30)
    driver.delete(driver.pod("low-0"))
    driver.put(node("c").capacity(cpu="8").build())
    driver.advance(400)
    driver.put(pod_group("g", min_count=2))
    driver.put(
        *(pod(f"g-{i}").scheduler("default-scheduler").group("g").request(cpu="1").build() for i in range(2))
    )
    driver.advance(30)
    return driver


def folded(records: list[Record], stories: bool = False) -> Fold:
    core = Core(Registry())
    fold = Fold(core, Stories(core) if stories else None)
    for start in range(0, len(records), 7):
        list(fold.add(records[start : start + 7]))
    list(fold.finish())
    return fold


def rows_at(fold: Fold) -> dict[int, dict[str, object]]:
    """The rows after each record, as the browser puts them together."""
    found: dict[int, dict[str, object]] = {}
    for number in range(len(fold.chunks())):
        chunk = json.loads(gzip.decompress(fold.chunk(number)))
        rows = chunk["frame"]
        for step in chunk["steps"]:
            for key, row in step.get("rows", {}).items():
                if row is None:
                    del rows[key]
                else:
                    rows[key] = row
            found[step["seq"]] = dict(rows)
    return found


@pytest.mark.parametrize("chunk_bytes", [300, 200_000])
async def test_rows_at_every_record_are_those_of_the_state_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES_MIN", chunk_bytes)
    records = stories_of_a_small_cluster().records
    await write_log(tmp_path / "log.db", records)

    found = rows_at(folded(records))

    assert sorted(found) == [record.seq for record in records]
    async with await open_history(tmp_path / "log.db") as history:
        for seq, rows in found.items():
            core = await history.core_at(seq)
            expected = {key: row_of(core, key) for key in core.objects if key.partition("/")[0] in SHOWN}
            assert json.loads(msgspec.json.encode(expected)) == rows, f"record {seq}"


def test_small_chunks_cover_the_log_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES_MIN", 300)
    records = stories_of_a_small_cluster().records

    chunks = folded(records).chunks()

    assert len(chunks) > 3
    assert [first for first, *_ in chunks[1:]] == [last + 1 for _, last, *_ in chunks[:-1]]
    assert (chunks[0].first, chunks[-1].last) == (1, len(records))


def test_stories_of_all_pods_are_those_told_one_by_one() -> None:
    driver = stories_of_a_small_cluster()

    fold = folded(driver.records, stories=True)

    assert fold.stories is not None
    told = dict(fold.stories.told())
    assert {"default/high", "default/waits", "default/low-0", "default/g-1"} <= set(told)
    for name, found in told.items():
        assert found == story(driver.records, Core(Registry()), f"Pod/{name}"), name


def test_spans_say_where_a_pod_was_and_for_whom_it_went() -> None:
    fold = folded(stories_of_a_small_cluster().records)

    spans = {span.pod: span for span in fold.spans}
    assert spans["default/high"].last == 0
    gone = [span for span in fold.spans if span.preempted_by]
    assert all(span.preempted_by == "default/high" and span.last > span.first for span in gone)


def test_backlog_counts_what_the_rows_say() -> None:
    fold = folded(stories_of_a_small_cluster().records)

    backlog = fold.backlog.binned(len(fold.backlog.seqs))

    for place, (seq, rows) in enumerate(rows_at(fold).items()):
        pods = [row["where"] for key, row in rows.items() if key.startswith("Pod/")]  # type: ignore[index]
        for where, counts in backlog["places"].items():
            assert counts[place] == pods.count(where), f"record {seq}: {where}"


async def test_log_that_may_grow_is_gone_through_as_far_as_it_is_certain(tmp_path: Path) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("a").build(), pod("p").scheduler("default-scheduler").build())
    driver.settle()
    await write_log(tmp_path / "log.db", driver.records)
    source = await LogSource.open(tmp_path / "log.db")

    try:
        assert await source.grow()
        assert not await source.grow()

        # Attempts may have been made before the last record whose outcomes are still to come.
        assert source.meta()["reached"] == len(driver.records) - 1
        assert source.meta()["complete"]
        state = await source.state(len(driver.records))
        assert state["rows"]["Pod/default/p"].where == "placed"
        assert state["step"].kind == "Scheduled"
        assert [seq async for seq in source.go_through()][-1] == len(driver.records)
    finally:
        await source.close()
