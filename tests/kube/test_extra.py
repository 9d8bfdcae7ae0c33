"""Without the extra nothing of it is imported, and `tidelog serve` says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE

EXTRA = ("aiohttp", "cryptography", "jsonpatch", "kubernetes", "lightkube")
WITHOUT = f"""
import sys
for name in {EXTRA!r}:
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
        "tidelog.testing.api_server, tidelog.testing.pytest_plugin, tidelog.testing.sandbox",
        "tidelog",
    ],
)
def test_modules_are_imported_without_the_extra(modules: str) -> None:
    done = run(f"import {modules}")

    assert done.returncode == 0, done.stderr


def test_command_line_works_without_the_extra() -> None:
    done = run("from tidelog.cli.main import main; sys.exit(main(['serve', '--help']))")

    assert done.returncode == 0, done.stderr
    assert "tidelog serve --log cluster.db" in done.stdout


def test_serve_says_what_is_missing(tmp_path: object) -> None:
    done = run(
        f"from tidelog.cli.main import main; sys.exit(main(['serve', '--log', {str(tmp_path) + '/x.db'!r}]))"
    )

    assert done.returncode == 1
    assert "pip install 'tidelog[kube]'" in done.stderr
    assert "Traceback" not in done.stderr
