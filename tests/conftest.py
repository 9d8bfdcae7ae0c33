"""What holds for every test: each log that one writes, wherever (`tests/every_log.py`), is replayed at its end.

Verified from the start, recovered, recovered and verified from a snapshot in the middle, and verified and recovered in a process with another hash
seed; whatever way, the state must be the same, and the one that a driver is in. A log that was replayed before is not replayed again.

A test, or a file of tests, whose logs are meant not to replay says why: `@pytest.mark.unreplayed("…")`; `tests/repo/test_unreplayed.py` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.every_log import EveryLog, Unreadable, WrittenLog
from tests.other_seed import OtherSeed, as_sent, place_of
from tidelog.eventlog.records import Record
from tidelog.plugins.behaviours import BEHAVIOURS
from tidelog.plugins.registry import Registry
from tidelog.replay.playback import pops
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import encode_state, load_state

AssertReplays = Callable[..., str]


class Replays:
    """Replays logs in every way there is, each log once."""

    def __init__(self, other: OtherSeed) -> None:
        self._other = other
        self._proven: dict[Any, str] = {}
        """What makes a log and its replay what they are → the digest of the state at its end."""

    def check(self, logs: Sequence[WrittenLog]) -> list[str]:
        """The digests of the states at their ends, "" if attempts are in flight."""
        known = [_identity(log) for log in logs]
        new = {key: log for key, log in zip(known, logs, strict=True) if key not in self._proven}
        if new:
            self._other.ask([as_sent(log.records, log.registry, log.snapshot) for log in new.values()])
        try:
            digests = [_checked(log) for log in new.values()]
        finally:
            answers = self._other.answers() if new else []
        for digest, answer in zip(digests, answers, strict=True):
            assert (answer.difference, answer.digest, answer.recovered) == ("", digest, digest)
        self._proven.update(zip(new, digests, strict=True))
        return [self._proven[key] for key in known]


def _identity(log: WrittenLog) -> Any:
    """Equal for logs of the same records, which are chained, decided by the same plugins."""
    last = log.records[-1] if log.records else None
    return log.snapshot, last and (last.seq, last.digest), tuple(log.registry), tuple(BEHAVIOURS)


def _checked(log: WrittenLog) -> str:
    report = verify(log.records, log.registry, core=_begun(log))
    assert report.first_difference is None
    recovered = recover(log.records, log.registry, core=_begun(log))
    digest = "" if recovered.in_flight else recovered.digest()
    assert report.digest == digest
    _check_snapshot(log, digest)
    return digest


def _begun(log: WrittenLog) -> Core:
    core = load_state(log.snapshot, log.registry) if log.snapshot else Core(log.registry)
    assert core is not None
    return core


def _check_snapshot(log: WrittenLog, digest: str) -> None:
    """The state from a snapshot and the records behind it is the same, verified or believed."""
    middle = _settled_near(log.records, len(log.records) // 2)
    if not middle or not digest:
        return
    blob = encode_state(recover(log.records[:middle], log.registry, core=_begun(log)))
    rest = log._replace(records=log.records[middle:], snapshot=blob)
    assert recover(rest.records, rest.registry, core=_begun(rest)).digest() == digest
    report = verify(rest.records, rest.registry, core=_begun(rest))
    assert (report.first_difference, report.digest) == (None, digest)


def _settled_near(records: Sequence[Record], wanted: int) -> int:
    """The last place, at or before the wanted one, at which nothing was in flight: no attempt straddles it."""
    first = records[0].seq if records else 1
    attempts = [(pop.observed, pop.outcomes[-1][0].seq) for pop in pops(records)]
    straddled = {place for observed, last in attempts for place in range(observed + 1, last)}
    return next((place for place in range(wanted, 0, -1) if place + first - 1 not in straddled), 0)


@pytest.fixture(scope="session")
def other_seed() -> Iterator[OtherSeed]:
    """A process with another hash seed."""
    other = OtherSeed()
    yield other
    other.close()


@pytest.fixture(scope="session")
def replays(other_seed: OtherSeed) -> Replays:
    """What replays logs; remembers which it has replayed."""
    return Replays(other_seed)


@pytest.fixture(scope="session")
def assert_replays(replays: Replays) -> AssertReplays:
    """Replays records in every way there is; returns the digest of the state at their end, "" if attempts are in flight."""

    def check(records: Sequence[Record], registry: Registry | None = None) -> str:
        log = WrittenLog(list(records), Registry() if registry is None else registry)
        return replays.check([log])[0]

    return check


@pytest.fixture(autouse=True)
def _every_log_is_replayed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, replays: Replays
) -> Iterator[None]:
    if request.node.get_closest_marker("unreplayed") is not None:
        yield
        return
    every = EveryLog()
    every.watch(monkeypatch)
    yield
    if request.node.stash.get(_FAILED, False):
        return
    # Those of the acceptance tests are replayed by a fixture of theirs, and by the installed command.
    folder = None if "acceptance" in request.path.parts else request.node.funcargs.get("tmp_path")
    logs = list(every.logs(folder))
    unreadable = [f"{log.path}: {log.error}" for log in logs if isinstance(log, Unreadable)]
    assert unreadable == []
    _replay(replays, [log for log in logs if isinstance(log, WrittenLog) and log.records])


def _replay(replays: Replays, logs: Sequence[WrittenLog]) -> None:
    lost = sorted(
        {plugin.__qualname__ for log in logs for plugin in log.registry if place_of(plugin) is None}
    )
    assert lost == [], "no other process can import these plugins: define them in the module"
    for log, digest in zip(logs, replays.check(logs), strict=True):
        assert log.core is None or log.core.in_flight or not digest or log.core.digest() == digest


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Remember that the test failed: its log is then of no interest."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report
