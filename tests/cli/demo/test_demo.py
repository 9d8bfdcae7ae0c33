"""The demo runs from its beginning to its end, and says the truth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.cli.demo import demo

ROOT = Path(__file__).resolve().parents[3]


def test_demo_tells_its_story_on_the_log_it_is_given(tidelog: Tidelog, tmp_path: Path) -> None:
    log = tmp_path / "demo.db"

    ran = tidelog("demo", "--log", log)

    assert (ran.code, ran.err) == (0, "")
    assert "pod/web-1 created" in ran.out
    assert "spec.topologySpreadConstraints[0].maxSkew" in ran.out
    assert "15 records, chain ok, head ok" in ran.out
    assert str(log) in ran.out
    assert tidelog("get", "pods", "-o", "name", "--log", log).lines == [
        "pod/render-1",
        "pod/report-1",
        *(f"pod/shop-{i}" for i in range(1, 7)),
        "pod/web-1",
        "pod/web-2",
    ]


def test_demo_makes_its_own_log_whatever_the_environment_names(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_LOG", str(tmp_path / "mine.db"))
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda prefix: str(tmp_path))

    ran = tidelog("demo")

    assert ran.code == 0
    assert not (tmp_path / "mine.db").exists()
    assert (tmp_path / "cluster.db").exists()


def test_demo_has_a_chapter_for_each_of_the_proposals(tidelog: Tidelog, tmp_path: Path) -> None:
    """What the chapters tell is tested with them."""
    told = tidelog("demo", "--log", tmp_path / "demo.db").out

    chapters = ("When a zone has no room", "A promise that is kept", "All or nothing", "The log")
    places = [told.index(f"\n{title}\n") for title in chapters]
    assert places == sorted(places)
    assert "protected by PDB default/brokers" in told[places[1] : places[2]]
    assert "alpha" in told[places[2] : places[3]]


def test_demo_writes_into_no_log_that_is_there(two_pods: Tidelog) -> None:
    ran = two_pods("demo")

    assert ran.code == 2
    assert "the demo needs a log of its own" in ran.err


def test_demo_without_a_terminal_has_no_colour(tidelog: Tidelog, tmp_path: Path) -> None:
    assert "\x1b" not in tidelog("demo", "--log", tmp_path / "demo.db").out


def test_demo_on_a_terminal_has_colour(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "colourful", lambda: True)

    assert "\x1b[1m$ tidelog apply" in tidelog("demo", "--log", tmp_path / "demo.db").out


def test_steps_of_the_demo_can_be_typed(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the repository's root, where the demo's paths are relative, typing them again on another log does the same."""
    import shlex

    monkeypatch.chdir(ROOT)
    told = tidelog("demo", "--log", tmp_path / "demo.db").out
    commands = re.findall(r"^    \$ tidelog (.*)$", told, re.MULTILINE)

    typed = [tidelog(*shlex.split(command), "--log", tmp_path / "typed.db") for command in commands]

    assert len(commands) >= 9
    assert [ran.code for ran in typed] == [0, 0, 0, 1, *[0] * (len(commands) - 4)]


def test_step_that_ends_otherwise_than_told_is_our_fault(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "folder", lambda _: tmp_path)

    ran = tidelog("demo", "--log", tmp_path / "demo.db")

    assert ran.code == 1
    assert "internal error: the demo's `tidelog apply" in ran.err


def test_demo_runs_the_daemon_and_a_hint_gets_the_pod_placed(tidelog: Tidelog, tmp_path: Path) -> None:
    log = tmp_path / "demo.db"

    ran = tidelog("demo", "--log", log)

    assert ran.code == 0
    assert "a larger node: the pod asks for 12 cpu" in ran.out
    assert "NodeAdd node c-3: NodeUnschedulable says that may help" in ran.out
    assert "pod default/render-1: placed on c-3" in ran.out
    assert re.search(r"(\d+) outcomes, \1 identical", ran.out)
