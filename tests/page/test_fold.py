"""Chunks and steps say, at every record, what the scheduler's own state says there."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from tidelog.api.well_known import ZONE
from tidelog.cli.demo.volumes import _database as volumes_scene
from tidelog.eventlog.records import Record
from tidelog.page import fold as folding
from tidelog.page.fold import SHOWN, Fold
from tidelog.page.lines import Point, binned
from tidelog.page.rows import row_of
from tidelog.page.source import LogSource
from tidelog.page.stories import Stories
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.story import story
from tidelog.replay.why import why
from tidelog.scheduler.core import Core
from tidelog.testing.builders import node, pdb, pod, pod_group

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


def test_steps_behind_a_record_are_those_of_the_whole_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES_MIN", 3_000)
    fold = folded(stories_of_a_small_cluster().records)

    assert len(fold.chunks()) > 2
    for number, (first, last, *_) in enumerate(fold.chunks()):
        whole = json.loads(gzip.decompress(fold.chunk(number)))["steps"]
        for after in (first - 1, first, (first + last) // 2, last, last + 9):
            left = json.loads(fold.steps(number, after))["steps"]
            assert left == [step for step in whole if step["seq"] > after]


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


def test_lines_say_how_full_zones_are_and_what_budgets_allow() -> None:
    driver = Driver()
    driver.start()
    driver.put(
        *(
            node(name).label({ZONE: name[0]}).capacity(cpu="4", pods="10").build()
            for name in ("a1", "a2", "b1")
        )
    )
    budget = pdb("guard", {"app": "x"}, min_available=1)
    driver.put(budget)
    driver.put(pdb("guard", {"app": "x"}, min_available=1, allowed=2))
    first = len(driver.records) + 1
    driver.put(*(pod(f"p-{i}").scheduler("default-scheduler").request(cpu="2").build() for i in range(6)))
    driver.advance(1)
    driver.put(node("b1").label({ZONE: "a"}).capacity(cpu="4", pods="10").build())  # It moves, with its pods.
    moved = len(driver.records)
    for i in range(6):
        driver.delete(driver.pod(f"p-{i}"))

    lines = folded(driver.records).backlog.lines

    values = {zone: [(p.seq, p.value) for p in points] for zone, points in lines.zones.items()}
    assert {zone: max(value for seq, value in found if seq < first) for zone, found in values.items()} == {
        "a": 0,
        "b": 0,
    }
    assert {zone: max(value for _, value in found) for zone, found in values.items()} == {"a": 100, "b": 100}
    assert values["a"][-1] == (len(driver.records), 0)
    assert values["b"][-1] == (moved, 0)
    assert [p.value for p in lines.budgets["default/guard"]] == [0, 2]


def test_points_that_share_a_bin_leave_the_highest() -> None:
    points = [Point(1, 5), Point(2, 9), Point(3, 1), Point(11, 2)]

    assert binned({"z": points}, first=1, size=10) == {"z": [Point(2, 9), Point(11, 2)]}


def test_choices_of_placed_pods_are_those_that_why_tells() -> None:
    driver = stories_of_a_small_cluster()

    stories = folded(driver.records, stories=True).stories

    assert stories is not None
    assert stories.unscored == 0
    placed = [key for key, _ in stories.told() if why(driver.records, Core(Registry()), f"Pod/{key}").node]
    assert len(placed) > 4
    for key in placed:
        assert stories.choices[f"Pod/{key}"] == why(driver.records, Core(Registry()), f"Pod/{key}").choice, (
            key
        )


def test_pod_whose_volume_is_awaited_says_for_whom_it_waits() -> None:
    records = volumes_scene(lambda line: None).driver.records

    rows = [row["Pod/default/db-0"] for row in rows_at(folded(records)).values() if "Pod/default/db-0" in row]

    waiting = next(row for row in rows if row["where"] == "answers")
    assert "data-0" in waiting["awaited"][0]
    assert waiting["claims"] == ["volume data-0: claim data-0, no volume yet"]
    assert rows[-1]["where"] == "placed"
    assert rows[-1]["claims"][0].startswith("volume data-0: claim data-0, volume pvc-")


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
        assert list(source.fold.finish())[-1] == len(driver.records)
    finally:
        await source.close()
