"""What holds for every test: each log that one writes, wherever (`tests/every_log.py`), is replayed at its end.

Recovered here; and in a process with another hash seed (`tests/other_seed.py`) verified and recovered, from the start and from a snapshot in the middle.
Whatever way, the state must be the same, and the one that a driver is in. A log that was replayed before is not replayed again. Of a test that
draws hundreds of worlds at random, a hundred logs are.

Coverage is measured where floors are to be held, by the tests of their packages, and not while logs are replayed: tracing doubles what a test costs.

Files are kept in memory where the system has a place for that: thousands of syncs to a disk do nothing for a test but wait, and whether a disk
keeps its word is for `tests/eventlog/power_loss.py` to play. Only the real daemons of `tests/acceptance` have a real one. `$TMPDIR` puts all elsewhere.

Hypothesis looks at no clock, on a slow machine either: one profile for all tests, made here.

A test, or a file of tests, whose logs are meant not to replay says why: `@pytest.mark.unreplayed("…")`; `tests/repo/test_unreplayed.py` counts them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import HealthCheck, settings

from tests.every_log import EveryLog, Unreadable, WrittenLog
from tests.other_seed import OtherSeed, as_sent, place_of
from tests.thorough import cases
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Record
from tidelog.framework.behaviours import BEHAVIOURS
from tidelog.plugins.registry import Registry
from tidelog.replay.playback import recover
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import load_state

AssertReplays = Callable[..., str]

REPLAYED_MOST = cases(100)
"""Of a test that writes more logs than this, every second is replayed, or every third …: `make thorough` replays five times as many."""

settings.register_profile(
    "tidelog",
    settings.default,
    deadline=None,
    max_examples=cases(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile(
    "tidelog"
)  # Here and not in a hook: the tests' own settings are made from it when they are imported.

TESTS = Path(__file__).parent
MEASURED = (
    "api",
    "configuration",
    "conformance",
    "eventlog",
    "framework",
    "kep",
    "plugins",
    "queue",
    "scheduler",
    "kube/test_device_promises.py",
    "kube/test_groups_live.py",
    "kube/test_preemption_live.py",
    "kube/test_volume_promises.py",
)
"""The folders and files whose tests are traced for coverage, but for files and tests marked `no_cover`. What core and log do for a live cluster only is
tried with one."""

DISK = tempfile.gettempdir()
MEMORY = Path("/dev/shm")
ROOM = 1 << 30
"""Bytes that have to be free there; in containers there often are not."""


def pytest_configure() -> None:
    """Let temporary files, pytest's own too, be in memory."""
    if "TMPDIR" not in os.environ and _is_of_use(MEMORY):
        tempfile.tempdir = str(MEMORY)


def _is_of_use(folder: Path) -> bool:
    """Whether it has room, and lets programs run."""
    return (
        folder.is_dir()
        and shutil.disk_usage(folder).free >= ROOM
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
    )


@contextmanager
def untraced(config: pytest.Config) -> Iterator[None]:
    """What runs within does not count for the coverage that pytest measures."""
    tracing = coverage.Coverage.current() if config.pluginmanager.hasplugin("_cov") else None
    if tracing is not None:
        tracing.stop()
    try:
        yield
    finally:
        if (
            tracing is not None and coverage.Coverage.current() is None
        ):  # `no_cover` begins it anew by itself.
            tracing.start()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Leave one measurement on: in xdist's workers pytest-cov begins two, of which the one that nobody reads goes on when the other stops."""
    if session.config.pluginmanager.hasplugin("_cov"):
        newest = coverage.Coverage.current()
        while (running := coverage.Coverage.current()) is not None:
            running.stop()
        if newest is not None:
            newest.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Do not trace what needs no measure, with its fixtures."""
    path = item.path.relative_to(TESTS)
    if path.parts[0] in MEASURED or path.as_posix() in MEASURED:
        return (yield)
    with untraced(item.config):
        return (yield)


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
            digests = [_digest_here(log) for log in new.values()]
        finally:
            answers = self._other.answers() if new else []
        for digest, answer in zip(digests, answers, strict=True):
            assert answer.is_one_state(), answer
            assert digest == answer.digest
        self._proven.update(zip(new, digests, strict=True))
        return [self._proven[key] for key in known]


def _identity(log: WrittenLog) -> Any:
    """Equal for logs of the same records, which are chained, decided by the same plugins."""
    last = log.records[-1] if log.records else None
    return log.snapshot, last and (last.seq, last.digest), tuple(log.registry), tuple(BEHAVIOURS)


def _assert_objects_are_those_of_the_table(records: Sequence[Record], core: Core) -> None:
    """In its order, kind by kind: a state is kept without its objects, and loaded with the table's."""
    table = ObjectTable()
    for record in records:
        table.apply(record)
    found = table.objects()
    found.update((key, core.objects[key]) for key in core.cluster.apart)
    kinds = list(dict.fromkeys(key.partition("/")[0] for key in found))
    assert found == core.objects
    assert list(found) == sorted(core.objects, key=lambda key: kinds.index(key.partition("/")[0]))


def _digest_here(log: WrittenLog) -> str:
    core = load_state(log.snapshot, log.registry) if log.snapshot else None
    recovered = recover(log.records, log.registry, core=core)
    if core is None:
        _assert_objects_are_those_of_the_table(log.records, recovered)
    return "" if recovered.in_flight else recovered.digest()


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
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path")  # Made before, it is removed after what is in it was replayed.
    every = EveryLog()
    every.watch(monkeypatch)
    yield
    if not request.node.stash.get(_FAILED, False):
        with untraced(request.config):
            _replay_all(request, every, replays)


def _replay_all(request: pytest.FixtureRequest, every: EveryLog, replays: Replays) -> None:
    # Those of the acceptance tests are replayed by a fixture of theirs, and by the installed command.
    folder = None if "acceptance" in request.path.parts else request.node.funcargs.get("tmp_path")
    assert folder is None or folder.is_dir(), "removed before what is in it was replayed"
    logs = list(every.logs(folder))
    unreadable = [f"{log.path}: {log.error}" for log in logs if isinstance(log, Unreadable)]
    assert unreadable == []
    written = [log for log in logs if isinstance(log, WrittenLog) and log.records]
    _replay(replays, written[:: -(-len(written) // REPLAYED_MOST) or 1])


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
