"""Facts reach the log by whoever holds it: ourselves, a serving process, or nobody who answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tests.patience import PATIENCE
from tidelog.cli import submit as submitting
from tidelog.testing.builders import ZONE, pod

Manifest = Callable[..., Path]
HELPER = Path(__file__).parent / "serving.py"


@contextmanager
def holder(log: Path, manner: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the log."""
    command = [sys.executable, str(HELPER), str(log), manner]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.communicate(timeout=PATIENCE)


def test_facts_are_handed_to_the_process_that_writes(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path
) -> None:
    objects = manifest(pod("web-1").label(app="web").build(), pod("web-2").build())

    with holder(tmp_path / "cluster.db", "serve"):
        applied = at_log("apply", "-f", objects)
        again = at_log("apply", "-f", objects)
        tried = at_log("apply", "-f", manifest(pod("web-3").build(), name="more.yaml"), "--dry-run")
        patched = at_log("patch-condition", "pod", "web-1", "--type", "T", "--status", "True")
        deleted = at_log("delete", "pod", "web-2")
        seen = at_log("get", "pods", "-o", "name")

    assert applied == (0, "pod/web-1 created\npod/web-2 created\n", "")
    assert again.lines == ["pod/web-1 unchanged", "pod/web-2 unchanged"]
    assert tried.lines == ["pod/web-3 created (dry run)"]
    assert patched.lines == ["pod/web-1 patched"]
    assert deleted.lines == ["pod/web-2 deleted"]
    assert seen.lines == ["pod/web-1"]
    assert at_log("log", "verify").out == "4 records, chain ok, head ok\n"


def test_refusal_reads_the_same_through_the_socket(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path
) -> None:
    bad = manifest(pod("bad").spread(ZONE, max_skew=0).priority_class("none").build())
    missing = ("delete", "pod", "web-9")
    at_log("apply", "-f", manifest(pod("web-1").build(), name="good.yaml"))

    direct = [at_log("apply", "-f", bad), at_log(*missing)]
    with holder(tmp_path / "cluster.db", "serve"):
        handed = [at_log("apply", "-f", bad), at_log(*missing)]

    assert [ran.code for ran in direct] == [1, 1]
    assert handed == direct
    assert at_log("log", "verify").out == "1 records, chain ok, head ok\n"


def test_gates_of_the_process_that_writes_count(at_log: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    objects = manifest(pod("web-1").build())

    with holder(tmp_path / "cluster.db", "serve"):
        other = at_log("--feature-gates", "SchedulerQueueingHints=false", "apply", "-f", objects)
        same = at_log("--feature-gates", "SchedulerQueueingHints=true", "apply", "-f", objects)

    assert other.code == 2
    assert "leave --feature-gates out" in other.err
    assert same.out == "pod/web-1 created\n"


def test_holder_that_does_not_serve_is_named(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "LOCK_SECONDS", 0.1)

    with holder(tmp_path / "cluster.db", "hold") as process:
        ran = at_log("apply", "-f", manifest(pod("web-1").build()))

    assert ran.code == 1
    assert f"the log is being written by process {process.pid} on " in ran.err
    assert "(tidelog run, since 20" in ran.err
    assert ran.err.count("\n") == 1


def test_holder_that_does_not_answer_is_named(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "ANSWER_SECONDS", 0.1)

    with holder(tmp_path / "cluster.db", "stop") as process:
        ran = at_log("apply", "-f", manifest(pod("web-1").build()))

    assert ran.code == 1
    assert f"the log is being written by process {process.pid} on " in ran.err
    assert "which has not answered" in ran.err


def test_holder_that_is_done_in_a_moment_is_waited_for(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "LOCK_SECONDS", PATIENCE)
    waited: list[float] = []

    with holder(tmp_path / "cluster.db", "hold") as process:

        async def let_go(seconds: float) -> None:
            """Instead of sleeping: the holder ends."""
            waited.append(seconds)
            process.communicate(timeout=PATIENCE)

        monkeypatch.setattr(submitting.asyncio, "sleep", let_go)
        ran = at_log("apply", "-f", manifest(pod("web-1").build()))

    assert ran.out == "pod/web-1 created\n"
    assert waited == [submitting.POLL_SECONDS]


def test_verbs_that_need_the_log_alone_name_its_holder(at_log: Tidelog, tmp_path: Path) -> None:
    with holder(tmp_path / "cluster.db", "serve") as process:
        for words in (("log", "compact"), ("log", "repair")):
            ran = at_log(*words)
            assert ran.code == 1
            assert f"process {process.pid}" in ran.err


def test_long_log_gets_a_snapshot_that_spares_reading(
    at_log: Tidelog, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "SNAPSHOT_EACH", 2)

    at_log("apply", "-f", manifest(pod("web-1").build(), pod("web-2").build(), pod("web-3").build()))

    assert at_log("log", "verify", "--rebuild").out == (
        "3 records, chain ok, head ok, 1 snapshot ok (1 computed again)\n"
    )
    assert at_log("get", "pods", "-o", "name").lines == ["pod/web-1", "pod/web-2", "pod/web-3"]
