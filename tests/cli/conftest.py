"""A log, some manifests, and the command line as a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.api.manifests.manifests import dump_yaml
from tidelog.api.objects import Object
from tidelog.cli.main import main
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing.builders import pod


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Tidelog = Callable[..., Ran]


@pytest.fixture
def tidelog(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tidelog:
    """Runs a command line in this process. No log is set in the environment."""
    monkeypatch.delenv("TIDELOG_LOG", raising=False)

    def run(*argv: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def at_log(tidelog: Tidelog, tmp_path: Path) -> Tidelog:
    """The same, on a log in a directory of the test's own: `tmp_path / "cluster.db"`."""
    return lambda *argv: tidelog("--log", tmp_path / "cluster.db", *argv)


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., Path]:
    """Writes objects into a manifest."""

    def write(*objects: Object, name: str = "objects.yaml") -> Path:
        path = tmp_path / name
        path.write_text(dump_yaml(objects))
        return path

    return write


@pytest.fixture
def two_pods(at_log: Tidelog, manifest: Callable[..., Path]) -> Tidelog:
    """A log that has the pods web-1 and web-2."""
    base = pod("web-1").label(app="web").request(cpu="500m")
    ran = at_log("apply", "-f", manifest(base.build(), base.named("web-2").build()))
    assert ran == (0, "pod/web-1 created\npod/web-2 created\n", ran.err)
    return at_log


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def driver() -> Driver:
    """A scheduler without a disk, with the default configuration."""
    started = Driver()
    started.start()
    return started


@pytest.fixture
def run(driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line on what the driver has done so far; its exit code and what it printed."""
    path = tmp_path / "cluster.db"

    def run_it(*words: str) -> tuple[int, str]:
        if not path.exists():
            asyncio.run(write_log(path, driver.records))
        code = main([*words, "--log", str(path)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run_it
