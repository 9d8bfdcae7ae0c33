"""What holds for every test: each log that one writes with a driver or in a sandbox is replayed at its end.

Verified from the start, recovered, recovered from a snapshot in the middle, and both again in a process with another hash seed; whatever way,
the state must be the same, and the one that the driver is in. (A sandbox may have been stopped anywhere, so only its log counts.) A test whose
log is meant not to replay asks for the fixture `unreplayed`.

A test that writes a log in another way hands its records to the fixture `assert_replays`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from tests.other_seed import OtherSeed, place_of
from tidelog.daemon.sandbox import Sandbox
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.records import Record
from tidelog.plugins.disruption_budgets import EvictionsFromBudgets
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.playback import pops
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import encode_state, load_state

LOGS_MAX = 10
"""Of a test that writes more, the last ones are replayed: property tests write hundreds."""

AssertReplays = Callable[..., str]
T = TypeVar("T")


@pytest.fixture(scope="session")
def other_seed() -> Iterator[OtherSeed]:
    """A process with another hash seed."""
    other = OtherSeed()
    yield other
    other.close()


@pytest.fixture(scope="session")
def assert_replays(other_seed: OtherSeed) -> AssertReplays:
    """Replays records in every way there is; returns the digest of the state at their end, "" if attempts are in flight."""

    def check(records: Sequence[Record], registry: Registry | None = None) -> str:
        known = Registry() if registry is None else registry
        report = verify(records, known)
        assert report.first_difference is None
        recovered = recover(records, known)
        digest = "" if recovered.in_flight else recovered.digest()
        assert report.digest == digest
        _check_snapshot(records, known, digest)
        if all(place_of(plugin) for plugin in known):
            other = other_seed.replay(records, known)
            assert (other.difference, other.digest, other.recovered) == ("", digest, digest)
        return digest

    return check


def _check_snapshot(records: Sequence[Record], registry: Registry, digest: str) -> None:
    """The state from a snapshot and the records behind it is the same, verified or believed."""
    middle = _settled_near(records, len(records) // 2)
    if not middle or not digest:
        return
    blob = encode_state(recover(records[:middle], registry))
    rest = records[middle:]
    loaded = load_state(blob, registry)
    assert loaded is not None
    assert recover(rest, registry, core=loaded).digest() == digest
    loaded = load_state(blob, registry)
    report = verify(rest, registry, core=loaded)
    assert (report.first_difference, report.digest) == (None, digest)


def _settled_near(records: Sequence[Record], wanted: int) -> int:
    """The last place, at or before the wanted one, at which nothing was in flight: no attempt straddles it."""
    attempts = [(pop.observed, pop.outcomes[-1][0].seq) for pop in pops(records)]
    straddled = {place for observed, last in attempts for place in range(observed + 1, last)}
    return next((place for place in range(wanted, 0, -1) if place not in straddled), 0)


@pytest.fixture
def unreplayed() -> None:
    """The test's logs are meant not to replay."""


@pytest.fixture(autouse=True)
def _every_log_is_replayed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, assert_replays: AssertReplays
) -> Iterator[None]:
    drivers = _made(Driver, monkeypatch)
    sandboxes = _made(Sandbox, monkeypatch)
    yield
    if "unreplayed" in request.fixturenames or request.node.stash.get(_FAILED, False):
        return
    for sandbox in sandboxes:
        store = sandbox.store
        if not isinstance(store, MemoryStore) or store.anchor.seq or not store.head.seq:
            continue
        if isinstance(sandbox.core.evictions.port, EvictionsFromBudgets):
            assert_replays(_records(store), sandbox.registry)
    for driver in drivers:
        if not isinstance(driver.core.evictions.port, EvictionsFromBudgets):
            continue  # Evictions were answered by the test, so only the test can answer them again.
        digest = assert_replays(driver.records, driver.registry)
        core: Core = driver.core
        assert core.in_flight or not digest or core.digest() == digest


def _made(kind: type[T], monkeypatch: pytest.MonkeyPatch) -> list[T]:
    """A list of the last ones of this class, which fills as the test makes them."""
    made: list[T] = []
    original: Any = kind.__init__

    def recording(self: T, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)
        del made[:-LOGS_MAX]

    monkeypatch.setattr(kind, "__init__", recording)
    return made


def _records(store: MemoryStore) -> list[Record]:
    """All that it holds, the test's event loop being closed."""
    found: list[Record] = []
    while rows := _at_once(store.read(len(found) + 1, store.head.seq)):
        found += [Record(*row) for row in rows]
    return found


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits, as those of a log in memory do not."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Remember that the test failed: its log is then of no interest."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report
