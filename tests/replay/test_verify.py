"""What verification catches: every way in which a decision can be something else than a function of the log."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.replay import unsteady_plugins
from tests.worlds.histories import node, pod, random_history
from tidelog.cli.main import main
from tidelog.eventlog.log import open_log
from tidelog.eventlog.records import OUTCOME_KINDS, Record, Scheduled, Unschedulable, decode_body, encode_body
from tidelog.eventlog.store import BETWEEN
from tidelog.plugins.registry import Registry
from tidelog.replay import segments
from tidelog.replay.driver import Driver
from tidelog.replay.files import rechained, write_log
from tidelog.replay.segments import verify_log
from tidelog.replay.to_test import packed
from tidelog.replay.verify import Difference, verify
from tidelog.scheduler.state import SNAPSHOT, capture_state, encode_state


def a_day() -> Driver:
    """Four nodes, ten pods, one of which does not fit."""
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}", "abcd"[i]).build() for i in range(4)))
    driver.put(*(pod(f"p{i}", "500m").build() for i in range(9)), pod("big", "9").build())
    driver.settle()
    return driver


def difference_of(records: list[Record]) -> Difference:
    found = verify(rechained(records), Registry()).first_difference
    assert found is not None
    return found


def changed(records: list[Record], kind: str, change: Callable[[Record], Record]) -> list[Record]:
    """The records with the first of a kind changed."""
    place = next(i for i, record in enumerate(records) if record.kind == kind)
    return [*records[:place], change(records[place]), *records[place + 1 :]]


# --- plugins that are not pure --------------------------------------------------------------------------------------


def log_made_with(name: str) -> Driver:
    driver = Driver(unsteady_plugins.registry_with(name))
    driver.start(unsteady_plugins.configuration_with(name))
    driver.put(*(node(f"n{i}").build() for i in range(4)))
    driver.put(*(pod(f"p{i}", "10m").build() for i in range(30)))
    driver.settle()
    return driver


@pytest.mark.unreplayed("a plugin of the log is no function of its input")
@pytest.mark.parametrize("name", ["ReadsTheClock", "DrawsLots", "RemembersAcrossAttempts"])
def test_a_plugin_that_is_not_a_function_of_its_input_is_caught_and_named(name: str) -> None:
    driver = log_made_with(name)

    report = verify(driver.records, driver.registry)

    assert report.first_difference is not None
    assert name in report.first_difference.plugins


@pytest.mark.unreplayed("a plugin of the log is no function of its input")
def test_a_plugin_that_iterates_a_set_is_caught_and_named_under_another_hash_seed() -> None:
    driver = log_made_with("IteratesASet")
    blamed = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-P", unsteady_plugins.__file__, "IteratesASet"],
            input=packed(driver.records),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        blamed.append(json.loads(run.stdout))

    # This process may have one of the two seeds by chance, so at least one of them is another.
    assert ["IteratesASet"] in blamed


# --- logs that were tampered with ---------------------------------------------------------------------------------


def test_another_node_is_a_difference_with_both_sides_and_the_fields() -> None:
    records = a_day().records

    def elsewhere(record: Record) -> Record:
        body = decode_body(record)
        assert isinstance(body, Scheduled)
        other = "n1" if body.node != "n1" else "n2"
        return msgspec.structs.replace(record, body=encode_body(msgspec.structs.replace(body, node=other)))

    found = difference_of(changed(records, "Scheduled", elsewhere))

    assert found.fields == ("node",)
    assert found.recorded["node"] != found.computed["node"]
    assert found.attempt == 1


def test_another_reason_is_a_difference_that_names_the_plugin() -> None:
    def otherwise(record: Record) -> Record:
        body = decode_body(record)
        assert isinstance(body, Unschedulable)
        rejections = tuple(msgspec.structs.replace(r, nodes=r.nodes - 1) for r in body.rejections)
        return msgspec.structs.replace(
            record, body=encode_body(msgspec.structs.replace(body, rejections=rejections))
        )

    found = difference_of(changed(a_day().records, "Unschedulable", otherwise))

    assert found.plugins == {
        "NodeResourcesFit": "rejected 3 nodes and rejects 4: Insufficient cpu",
    }


def test_a_placement_on_a_node_that_a_plugin_rejects_names_the_plugin() -> None:
    driver = Driver()
    driver.start()
    driver.put(node("good").build(), node("tainted").taint("a", "b").build(), pod("p").build())
    driver.settle()

    def onto_the_taint(record: Record) -> Record:
        body = decode_body(record)
        return msgspec.structs.replace(
            record, body=encode_body(msgspec.structs.replace(body, node="tainted"))
        )

    found = difference_of(changed(driver.records, "Scheduled", onto_the_taint))

    assert "rejects node tainted, which was chosen" in found.plugins["TaintToleration"]


def test_a_lost_decision_is_a_difference() -> None:
    records = a_day().records
    place = next(i for i, record in enumerate(records) if record.kind == "Scheduled")
    without = [
        msgspec.structs.replace(r, seq=r.seq - (i > place)) for i, r in enumerate(records) if i != place
    ]

    found = difference_of(without)

    assert "attempt" in found.what


def test_a_doubled_decision_is_a_difference() -> None:
    records = a_day().records
    place = next(i for i, record in enumerate(records) if record.kind == "Scheduled")
    doubled = [*records[: place + 1], *(msgspec.structs.replace(r, seq=r.seq + 1) for r in records[place:])]

    found = difference_of(doubled)

    assert found.seq == records[place].seq + 1


def test_a_changed_fact_shows_in_the_decisions_that_it_led_to() -> None:
    def smaller(record: Record) -> Record:
        return msgspec.structs.replace(
            record,
            body=encode_body(type(decode_body(record))(object=node("n0", cpu="100m").build())),  # type: ignore[call-arg]
        )

    found = difference_of(changed(a_day().records, "ObjectPut", smaller))

    assert found.recorded is not None
    assert found.computed is not None


def test_a_sample_recomputes_only_some_attempts() -> None:
    driver = random_history(3, steps=100)
    attempts = driver.core.attempts

    report = verify(driver.records, Registry(), sample=4)

    assert report.is_identical
    assert report.outcomes < attempts
    assert report.digest == driver.core.digest()


def test_a_sample_does_not_see_what_it_does_not_recompute_but_still_every_pop() -> None:
    records = a_day().records

    def elsewhere(record: Record) -> Record:
        body = decode_body(record)
        return msgspec.structs.replace(record, body=encode_body(msgspec.structs.replace(body, feasible=99)))

    tampered = rechained(changed(records, "Scheduled", elsewhere))

    assert verify(tampered, Registry(), sample=1000).is_identical
    assert not verify(tampered, Registry()).is_identical


def test_a_sample_does_not_believe_in_a_node_that_is_not_there() -> None:
    def nowhere(record: Record) -> Record:
        body = decode_body(record)
        return msgspec.structs.replace(
            record, body=encode_body(msgspec.structs.replace(body, node="nowhere"))
        )

    tampered = rechained(changed(a_day().records, "Scheduled", nowhere))

    found = verify(tampered, Registry(), sample=1000).first_difference

    assert found is not None
    assert found.what == "the decision names node nowhere, which there was not"


# --- files ----------------------------------------------------------------------------------------------------------


async def test_a_log_with_snapshots_is_verified_in_segments_like_in_one_pass(tmp_path: Path) -> None:
    driver, snapshots = with_snapshots()
    await write_log(tmp_path / "log.db", driver.records, snapshots)

    whole = await verify_log(tmp_path / "log.db", registry=Registry())
    parts = await verify_log(tmp_path / "log.db", jobs=2)
    tail = await verify_log(tmp_path / "log.db", from_snapshot=True)

    assert whole.is_identical
    assert parts == whole
    assert tail.is_identical
    assert 0 < tail.outcomes < whole.outcomes


async def test_a_snapshot_of_another_state_is_a_difference(tmp_path: Path) -> None:
    driver, snapshots = with_snapshots()
    other, _ = with_snapshots("200m")
    assert len(other.records) == len(driver.records)
    first, last = sorted(snapshots)
    wrong = {first: snapshots[first], last: (SNAPSHOT, with_snapshots("200m")[1][last][1])}
    await write_log(tmp_path / "log.db", driver.records, wrong)

    report = await verify_log(tmp_path / "log.db", jobs=2)

    assert report.first_difference is not None
    assert "not that of the snapshot" in report.first_difference.what


@pytest.mark.parametrize("wrong", [0, 1])
async def test_a_state_between_that_is_another_is_a_difference(tmp_path: Path, wrong: int) -> None:
    driver, snapshots = with_states_between()
    first, *changed = sorted(snapshots)
    seq = changed[wrong]
    version, rest = msgspec.msgpack.decode(snapshots[seq][1])
    another = msgspec.msgpack.encode((version, rest | {"attempts": 99}))
    tampered = snapshots | {seq: (SNAPSHOT + BETWEEN, another)}
    await write_log(tmp_path / "right.db", driver.records, snapshots)
    await write_log(tmp_path / "wrong.db", driver.records, tampered)

    right = await verify_log(tmp_path / "right.db")
    report = await verify_log(tmp_path / "wrong.db")

    assert right.is_identical
    assert report.first_difference is not None
    assert (report.first_difference.seq, first < seq) == (seq, True)
    assert f"not that of the snapshot `{SNAPSHOT}{BETWEEN}`" in report.first_difference.what


def overtaken(monkeypatch: pytest.MonkeyPatch, seqs: list[int]) -> None:
    """Each time that a verification has found out where the log begins, records up to the next of these are dropped."""
    right = segments._verify_segment

    async def behind(path: Path, *args: Any) -> Any:
        if seqs:
            async with open_log(path) as log:
                await log.compact(seqs.pop(0))
        return await right(path, *args)

    monkeypatch.setattr(segments, "_verify_segment", behind)


async def test_a_verification_that_a_compaction_overtakes_begins_again_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, snapshots = with_snapshots()
    await write_log(tmp_path / "log.db", driver.records, snapshots)
    whole = await verify_log(tmp_path / "log.db")
    overtaken(monkeypatch, sorted(snapshots))

    report = await verify_log(tmp_path / "log.db")

    assert report.is_identical
    assert report.outcomes == sum(record.kind in OUTCOME_KINDS for record in driver.records[max(snapshots) :])
    assert 0 < report.outcomes < whole.outcomes


def test_a_verification_that_is_overtaken_time_and_again_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, snapshots = with_snapshots()
    asyncio.run(write_log(tmp_path / "log.db", driver.records, snapshots))
    overtaken(monkeypatch, sorted(snapshots))
    monkeypatch.setattr(segments, "BEGINNINGS_MAX", 1)

    code = main(["replay", "verify", str(tmp_path / "log.db")])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 5
    assert "were dropped by compaction while they were being read: try again" in line


def with_states_between() -> tuple[Driver, dict[int, tuple[str, bytes]]]:
    """A log of four rounds of pods, with a whole snapshot after the first, and one between after the next two."""
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}").build() for i in range(3)))
    snapshots: dict[int, tuple[str, bytes]] = {}
    for count in range(4):
        driver.put(*(pod(f"p{count}-{i}", "100m").build() for i in range(4)))
        driver.settle()
        if count < 3:
            name = SNAPSHOT + BETWEEN if snapshots else SNAPSHOT
            snapshots[driver.core.seq] = (name, capture_state(driver.core).blob())
    return driver, snapshots


def with_snapshots(cpu: str = "100m") -> tuple[Driver, dict[int, tuple[str, bytes]]]:
    """A log of three rounds of pods, with a snapshot after the first and the second."""
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}").build() for i in range(3)))
    snapshots = {}
    for round_ in range(3):
        driver.put(*(pod(f"p{round_}-{i}", cpu).build() for i in range(10)))
        driver.settle()
        if round_ < 2:
            snapshots[driver.core.seq] = (SNAPSHOT, encode_state(driver.core))
    return driver, snapshots


async def test_command_counts_and_exits_with_zero(tmp_path: Path) -> None:
    await write_log(tmp_path / "log.db", a_day().records)

    said, code = await _run("replay", "verify", str(tmp_path / "log.db"))

    assert (said, code) == ("10 outcomes, 10 identical\n", 0)


@pytest.mark.unreplayed("an outcome of the log was changed")
async def test_command_shows_the_first_difference_in_full_and_exits_with_three(tmp_path: Path) -> None:
    def elsewhere(record: Record) -> Record:
        body = decode_body(record)
        return msgspec.structs.replace(
            record, body=encode_body(msgspec.structs.replace(body, node="n3", score=1))
        )

    await write_log(tmp_path / "log.db", rechained(changed(a_day().records, "Scheduled", elsewhere)))

    said, code = await _run("replay", "verify", str(tmp_path / "log.db"))
    data, code_of_json = await _run("replay", "verify", str(tmp_path / "log.db"), "-o", "json")

    assert (code, code_of_json) == (3, 3)
    assert said.startswith("1 outcomes, 0 identical\n")
    assert "first difference: record 17, attempt 1, pod default/p0" in said
    assert "recorded:" in said
    assert "computed:" in said
    assert list(json.loads(data)) == ["outcomes", "identical", "first_difference"]
    assert json.loads(data)["first_difference"]["seq"] == 17


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--sample", "0"), "--sample 0: must be 1 or more"),
        (("--jobs", "-1"), "--jobs -1: must be 1 or more"),
        (("nowhere.db",), "nowhere.db"),
    ],
)
async def test_bad_input_is_one_clear_line(words: tuple[str, ...], error: str, tmp_path: Path) -> None:
    await write_log(tmp_path / "log.db", a_day().records[:5])

    said, code = await _run("replay", "verify", "--log", str(tmp_path / "log.db"), *words)

    assert code in (1, 2)
    assert error in said
    assert said.count("\n") == 1


async def _run(*words: str) -> tuple[str, int]:
    """The command line runs a loop of its own, so it gets a thread of its own."""
    import asyncio
    import contextlib
    import io

    said = io.StringIO()

    def run() -> int:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return main(list(words))

    code = await asyncio.to_thread(run)
    return said.getvalue(), code
