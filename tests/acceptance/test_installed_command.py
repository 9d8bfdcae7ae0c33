"""The installed command on real files, as a user meets it. Few tests: what can be tested in the process is tested there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidelog.api.manifests.manifests import dump_yaml, load, to_builtins
from tidelog.testing.builders import pod

COMMAND = str(Path(sys.executable).with_name("tidelog"))
HERE = Path(__file__).parent


def started(*words: object, **options: Any) -> subprocess.Popen[str]:
    # What a shell starts in the background ignores SIGINT, and so would all of its descendants.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def tidelog(*words: object, given: str | None = None, code: int = 0) -> str:
    """What it prints; it must end with this code."""
    done = subprocess.run(
        [COMMAND, *map(str, words)], input=given, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def pods(*names: str) -> str:
    return dump_yaml([pod(name).label(app="web").build() for name in names])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with one pod."""
    path = tmp_path / "cluster.db"
    tidelog("apply", "--log", path, "-f", "-", given=pods("web-1"))
    return path


def test_one_command_after_the_other(log: Path) -> None:
    tidelog("apply", "--log", log, "-f", "-", given=pods("web-2", "web-3"))
    tidelog("delete", "--log", log, "pod", "web-1")

    assert tidelog("get", "pods", "--log", log, "-o", "name").split() == ["pod/web-2", "pod/web-3"]
    assert tidelog("get", "pods", "--log", log, "-o", "name", "--at", 1).split() == ["pod/web-1"]
    assert tidelog("log", "verify", log) == "4 records, chain ok, head ok\n"


def test_appliers_at_the_same_time_take_turns(log: Path) -> None:
    appliers = [started("apply", "--log", log, "-f", "-", stdin=subprocess.PIPE) for _ in range(4)]
    for number, applier in enumerate(appliers):
        _, errors = applier.communicate(pods(f"pod-{number}"), timeout=PATIENCE)
        assert (applier.returncode, errors) == (0, "")

    assert len(tidelog("get", "pods", "--log", log, "-o", "name").split()) == 5
    assert tidelog("log", "verify", log) == "5 records, chain ok, head ok\n"


def test_follower_sees_what_another_process_appends_and_ends_quietly_when_interrupted(log: Path) -> None:
    follower = started("log", "tail", "-f", "--log", log, "-o", "json")
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())

    tidelog("apply", "--log", log, "-f", "-", given=pods("web-2"))
    second = json.loads(follower.stdout.readline())
    follower.send_signal(signal.SIGINT)
    rest, errors = follower.communicate(timeout=PATIENCE)

    assert (first["key"], second["key"]) == ("Pod/default/web-1", "Pod/default/web-2")
    assert (follower.returncode, rest, errors) == (130, "", "")


def test_reader_that_has_seen_enough_may_go(log: Path) -> None:
    tidelog("apply", "--log", log, "-f", "-", given=pods(*(f"pod-{n}" for n in range(2_000))))

    exporter = started("log", "export", log)
    assert exporter.stdout is not None
    exporter.stdout.readline()
    exporter.stdout.close()
    assert exporter.stderr is not None
    errors = exporter.stderr.read()
    exporter.stderr.close()

    assert (exporter.wait(timeout=PATIENCE), errors) == (141, "")


def test_exported_log_comes_back_the_same_through_a_pipe(log: Path, tmp_path: Path) -> None:
    exported = tidelog("log", "export", log)

    tidelog("log", "import", "-", "--log", tmp_path / "copy.db", given=exported)

    assert tidelog("log", "export", tmp_path / "copy.db") == exported


def test_reading_needs_no_right_to_write(log: Path) -> None:
    for file in log.parent.iterdir():
        file.chmod(0o400)
    log.parent.chmod(0o500)
    try:
        assert tidelog("get", "pods", "--log", log, "-o", "name") == "pod/web-1\n"
        assert tidelog("log", "verify", log) == "1 records, chain ok, head ok\n"
    finally:
        log.parent.chmod(0o700)


# --- a real cluster's objects -----------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def test_what_a_real_cluster_writes_goes_in_and_comes_out(tmp_path: Path) -> None:
    """`kubectl get nodes,pods -A -o json`, with managed fields, volumes, probes, statuses: what we model stays as it was."""
    dump = (HERE / "kubectl_get.json").read_text()
    log = tmp_path / "cluster.db"

    said = tidelog("apply", "--log", log, "-f", "-", given=dump)
    again = tidelog("apply", "--log", log, "-f", "-", given=dump)
    printed = tidelog("get", "all", "-A", "--log", log, "-o", "json")

    assert [line.split()[1] for line in said.splitlines()] == ["created"] * 4
    assert [line.split()[1] for line in again.splitlines()] == ["unchanged"] * 4
    given = {obj.metadata.uid: dict(leaves(to_builtins(obj))) for obj in load(dump)}
    kept = {obj.metadata.uid: dict(leaves(to_builtins(obj))) for obj in load(printed)}
    assert kept.keys() == given.keys()
    for uid, fields in given.items():
        changed = {
            path: (value, kept[uid].get(path))
            for path, value in fields.items()
            if kept[uid].get(path) != value and path != ".metadata.resourceVersion"
        }
        assert changed == {}
