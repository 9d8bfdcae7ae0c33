"""Random input for everything that takes bytes. `make fuzz FUZZ_EXAMPLES=20000` searches long; the usual run is short."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.thorough import cases
from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.cli.main import main
from tidelog.eventlog.records import Record
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.scheduler.state import SNAPSHOT, encode_state
from tidelog.testing import builders as b

EXAMPLES = cases(40, "TIDELOG_FUZZ_EXAMPLES")
FUZZ = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def command(*words: object) -> Said:
    """Run a command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True, newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Said(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def check_said(said: Said) -> None:
    """One clear answer: no traceback, no bug of ours, nothing that a terminal acts on."""
    assert said.code in (0, 1, 2, 3, 4), said
    assert "Traceback" not in said.err, said
    assert "internal error" not in said.err, said
    assert all(line.isprintable() for line in (said.out + said.err).split("\n")), said
    if said.code in (1, 2, 4):
        assert said.err.splitlines()[-1:] != [], said


def check_error(error: TidelogError) -> None:
    """It says something, nothing in it can act on a terminal, and every broken rule has its place."""
    assert str(error)
    assert str(error).isprintable() or not isinstance(error, InvalidObjects)
    if isinstance(error, InvalidObjects):
        assert all(found.path for found in error.errors)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list):
            for key in list(part) if isinstance(part, dict) else range(len(part)):
                found.append((part, key))
                waiting.append(part[key])
    return found


@st.composite
def mutated(draw: st.DrawFn, seed: Any, leaves: st.SearchStrategy[Any]) -> Any:
    """A copy of this plain data with a few values replaced, removed, repeated or renamed."""
    value = copy.deepcopy(seed)
    for _ in range(draw(st.integers(1, 4))):
        found = places(value)
        if not found:
            break
        part, key = found[draw(st.integers(0, len(found) - 1))]
        match draw(st.sampled_from(["replace", "replace", "remove", "repeat", "rename"])):
            case "replace":
                part[key] = draw(leaves)
            case "remove":
                del part[key]
            case "repeat" if isinstance(part, list):
                part.append(copy.deepcopy(part[key]))
            case _ if isinstance(part, dict):
                part[draw(st.text(max_size=5))] = part.pop(key)
    return value


@st.composite
def damaged(draw: st.DrawFn, seed: Any, leaves: st.SearchStrategy[Any]) -> bytes:
    """Such a copy as YAML, with a byte of its text replaced by a few others, or by none."""
    data = yaml.safe_dump(draw(mutated(seed, leaves))).encode()
    at = draw(st.integers(min_value=0)) % len(data)
    return data[:at] + draw(st.binary(max_size=3)) + data[at + 1 :]


class Story(list[Record]):
    """Records that a failing test need not print."""

    def __repr__(self) -> str:
        return f"<a story of {len(self)} records>"


def a_pod(name: str) -> b.PodBuilder:
    return b.pod(name).scheduler("default-scheduler")


def a_story() -> Story:
    """The records of a small cluster: nodes, pods that are placed, wait, are preempted."""
    driver = Driver()
    driver.start()
    driver.put(
        *(b.node(f"n{i}").label({b.ZONE: f"z{i}"}).capacity(cpu=2, memory="4Gi").build() for i in range(3))
    )
    driver.put(b.pdb("budget", {"app": "web"}, min_available=1))
    driver.put(*(a_pod(f"web-{i}").label(app="web").request(cpu=1).spread(b.ZONE).build() for i in range(8)))
    driver.settle()
    driver.put(a_pod("important").priority(100).request(cpu=2).build())
    driver.settle()
    driver.advance(60)
    return Story(driver.records)


@pytest.fixture(scope="session")
def story() -> Story:
    return a_story()


@pytest.fixture(scope="session")
def story_log(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The story in a file, with a snapshot in the middle."""
    from tidelog.plugins.registry import Registry
    from tidelog.replay.verify import recover

    path = tmp_path_factory.mktemp("story") / "c.db"
    blob = encode_state(recover(story[:13], Registry()))
    asyncio.run(write_log(path, story, {13: (SNAPSHOT, blob)}))
    return path


QUESTIONS = (
    ("get", "pods", "-o", "wide"),
    ("why", "web-0"),
    ("why-not", "important", "n1"),
    ("queue",),
    ("describe", "pod", "web-0"),
    ("log", "tail", "-n", "100"),
    ("log", "verify"),
    ("replay", "verify"),
    ("get", "pods", "--at", "14"),
    ("log", "show", "1-30"),
    ("log", "export"),
)
"""Every way in which a log is read."""
