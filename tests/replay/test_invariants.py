"""The laws of replay, each held by a test below under random histories (`histories.py`).

 1. State is a function of the log: recovering it gives the state that the driver is in.
 2. Decisions are a function of the log: recomputing them gives what was recorded, byte for byte.
 3. Twice is once: recovering again, or verifying, ends in the same state.
 4. A prefix and then the rest is the whole.
 5. A log cut after any record verifies up to there.
 6. From a snapshot as from the start: the same state, the same decisions.
 7. Another PYTHONHASHSEED gives the same bytes.
 8. A log that went through a file is the same log.
 9. What-if under the recorded rules is the recorded log.
10. A redacted log tells the same story.

Laws 1, 2, 6 and 7 also hold for every log that any other test writes with a driver (`tests/conftest.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.other_seed import OtherSeed
from tests.worlds.histories import random_history
from tidelog.eventlog.records import OUTCOME_KINDS, Record
from tidelog.plugins.registry import Registry
from tidelog.replay.comparison import compare
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.redact import redact
from tidelog.replay.verify import recover, verify
from tidelog.replay.what_if import run_what_if
from tidelog.scheduler.recorded import RecordedAttempts
from tidelog.scheduler.state import encode_state, load_state

SEEDS = range(int(os.environ.get("TIDELOG_REPLAY_SEEDS", "12")))
"""More with the variable, for a long run."""


def settled_places(records: list[Record]) -> list[int]:
    """Where nothing is in flight: no attempt was popped before and ends behind."""
    attempts = [(pop.observed, pop.outcomes[-1][0].seq) for pop in RecordedAttempts(records)]
    straddled = {place for observed, last in attempts for place in range(observed + 1, last)}
    return [place for place in range(1, len(records) + 1) if place not in straddled]


def is_cut_within_an_attempt(records: list[Record], place: int) -> bool:
    """A transaction is in the log whole or not at all, so no crash cuts here."""
    return any(pop.outcomes[0][0].seq <= place < pop.outcomes[-1][0].seq for pop in RecordedAttempts(records))


@pytest.fixture(params=SEEDS)
def records(request: pytest.FixtureRequest) -> list[Record]:
    return random_history(request.param).records


@pytest.mark.parametrize("seed", SEEDS)
def test_law_1_recovered_state_is_the_state_that_the_log_implies(seed: int) -> None:
    driver = random_history(seed)

    recovered = recover(driver.records, Registry())

    assert driver.core.digest() == recovered.digest()


def test_law_2_recomputed_decisions_are_the_recorded_ones(records: list[Record]) -> None:
    report = verify(records, Registry())

    assert report.first_difference is None
    assert report.outcomes == report.identical == sum(r.kind in OUTCOME_KINDS for r in records)


def test_law_3_twice_is_once(records: list[Record]) -> None:
    digests = {recover(records, Registry()).digest() for _ in range(2)}

    assert digests == {verify(records, Registry()).digest}


def test_law_4_a_prefix_and_then_the_rest_is_the_whole(records: list[Record]) -> None:
    whole = recover(records, Registry()).digest()

    for place in settled_places(records)[:: max(len(records) // 10, 1)]:
        core = recover(records[:place], Registry())
        assert recover(records[place:], Registry(), core=core).digest() == whole


def test_law_5_a_log_cut_after_any_record_verifies_up_to_there(records: list[Record]) -> None:
    for place in range(1, len(records) + 1):
        if not is_cut_within_an_attempt(records, place):
            assert verify(records[:place], Registry()).first_difference is None


def test_law_6_from_a_snapshot_as_from_the_start(records: list[Record]) -> None:
    whole = recover(records, Registry()).digest()

    for place in settled_places(records)[:: max(len(records) // 8, 1)]:
        blob = encode_state(recover(records[:place], Registry()))
        believed, decided = load_state(blob, Registry()), load_state(blob, Registry())
        assert believed is not None
        assert recover(records[place:], Registry(), core=believed).digest() == whole
        report = verify(records[place:], Registry(), core=decided)
        assert (report.first_difference, report.digest) == (None, whole)


def test_law_7_another_hash_seed_gives_the_same_bytes(records: list[Record], other_seed: OtherSeed) -> None:
    digest = recover(records, Registry()).digest()

    answer = other_seed.replay(records)

    assert answer.is_one_state()
    assert answer.digest == digest


async def test_law_8_a_log_that_went_through_a_file_is_the_same_log(
    records: list[Record], tmp_path: Path
) -> None:
    await write_log(tmp_path / "log.db", records)

    async with open_history(tmp_path / "log.db", Registry()) as history:
        assert [record async for record in history.records()] == records
        assert (await history.core_at()).digest() == recover(records, Registry()).digest()


def test_law_9_what_if_under_the_recorded_rules_is_the_recorded_log(records: list[Record]) -> None:
    made = run_what_if(records, Registry())

    assert made.divergence is None
    assert records == made.driver.records
    assert compare(records, made).is_identical


def test_law_10_a_redacted_log_tells_the_same_story(records: list[Record]) -> None:
    made = redact(records, Registry()).records

    assert [(r.seq, r.at, r.kind) for r in records] == [(r.seq, r.at, r.kind) for r in made]
    assert verify(made, Registry()).first_difference is None
    text = b"".join(r.key.encode() + r.body for r in made)
    assert not any(name in text for name in (b"pod-", b"node-", b"dedicated", b"web"))


def test_histories_hold_all_kinds_of_outcomes_that_one_pod_can_have() -> None:
    """The laws above are only as good as what happens in the histories."""
    kinds = {record.kind for seed in SEEDS for record in random_history(seed).records}

    assert {"Scheduled", "Unschedulable", "AttemptAborted", "Tick", "ObjectDeleted"} <= kinds
