"""Every file that Tidelog makes is its owner's alone, whatever the umask."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemons import Daemon, tidelog
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.testing.builders import node, pod

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "daemon", "eventlog", "plugins", "queue", "replay", "scheduler")


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """This one is in force, in this process and in those that it starts."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}


def test_every_file_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    made = tmp_path / "made"
    made.mkdir(0o700)
    log, manifest = made / "cluster.db", tmp_path / "pods.yaml"
    manifest.write_text(dump_yaml([node("n1").capacity(cpu=4).build(), pod("web").build()]))
    seen: dict[str, int] = {}

    tidelog("apply", "--log", log, "-f", manifest)
    seen |= modes(made)
    daemon = Daemon(log)
    daemon.wait_for("scheduling")
    seen |= modes(made)
    assert daemon.stop() == 0
    seen |= modes(made)
    tidelog("log", "export", "--log", log, "--to", made / "lines.jsonl")
    tidelog("log", "import", made / "lines.jsonl", "--log", made / "again.db")
    tidelog("log", "redact", "--log", log, made / "redacted.db")
    tidelog("run", "--write-config-to", made / "scheduler.yaml")
    seen |= modes(made)

    companions = ("", "-wal", "-shm", ".head", ".lock", ".sock")
    expected = {f"cluster.db{suffix}" for suffix in companions} | {
        "lines.jsonl",
        "again.db",
        "redacted.db",
        "scheduler.yaml",
    }
    assert expected <= seen.keys()
    assert {name: oct(mode) for name, mode in seen.items() if mode & 0o077} == {}


@pytest.mark.parametrize("umask", [0], indirect=True)
def test_the_demo_makes_a_folder_that_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    tidelog("demo", TMPDIR=str(tmp_path))

    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {name: oct(mode) for name, mode in modes(folder).items() if mode & 0o077} == {}


def test_the_program_makes_no_file_in_another_way() -> None:
    """Whatever opens a file for writing says that it is its owner's alone, or leaves that to those who do."""
    offending = []
    for path in sorted(ROOT.glob("[a-z]*/**/*.py")):
        if path.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        for call in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            modes = [a.value for a in call.args[1:2] if isinstance(a, ast.Constant)] if name == "open" else []
            writes = any(isinstance(mode, str) and set(mode) & set("wxa+") for mode in modes)
            private = any(keyword.arg == "opener" for keyword in call.keywords)
            if (writes and not private) or name in (
                "write_text",
                "write_bytes",
                "NamedTemporaryFile",
                "mkstemp",
            ):
                offending.append(f"{path.relative_to(ROOT)}:{call.lineno}")

    assert offending == []
