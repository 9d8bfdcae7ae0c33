"""Without the extras nothing of them is imported, and what needs one says how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

EXTRAS = ("aiohttp", "asyncpg", "cryptography", "jsonpatch", "kubernetes", "lightkube")
WITHOUT = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # Importing it raises ModuleNotFoundError.
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT + program], capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.parametrize(
    "modules",
    [
        "tidelog.kube.opaque, tidelog.kube.patches, tidelog.kube.paths, tidelog.kube.resources, tidelog.kube.selectors, tidelog.kube.status",
        "tidelog.daemon.process.process, tidelog.daemon.actors.workload_controller",
        "tidelog.kube.cluster.process",
        "tidelog.testing.api_server, tidelog.testing.pytest_plugin, tidelog.testing.sandbox",
        "tidelog",
    ],
)
def test_modules_are_imported_without_the_extras(modules: str) -> None:
    done = run(f"import {modules}")

    assert done.returncode == 0, done.stderr


def test_command_line_works_without_the_extras() -> None:
    done = run("from tidelog.cli.main import main; sys.exit(main(['serve', '--help']))")

    assert done.returncode == 0, done.stderr
    assert "tidelog serve --log cluster.db" in done.stdout


DATABASE = "postgresql://me@127.0.0.1:1/db"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("serve", "--log", "x.db"), "kube"),
        (("serve", "--log", DATABASE), "kube"),
        (("bench", "serve"), "kube,postgres"),
        (("run", "--log", DATABASE), "postgres"),
        (("delete", "node/a", "--log", DATABASE), "postgres"),
        (("get", "pods", "--log", DATABASE), "postgres"),
        (("log", "init", DATABASE), "postgres"),
        (("log", "status", DATABASE), "postgres"),
        (("replay", "verify", "--log", DATABASE), "postgres"),
        (("bench", "postgres", "--log", DATABASE), "kube,postgres"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else value,
)
def test_verb_says_which_extra_it_needs(words: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    done = run(
        f"import os; os.chdir({str(tmp_path)!r}); from tidelog.cli.main import main; sys.exit(main({list(words)!r}))"
    )

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidelog: error: ")
    assert line.endswith(f": pip install 'tidelog[{extra}]'")
