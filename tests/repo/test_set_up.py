"""`make` sets up `.venv` without a word of the tools that do it, unless one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTE = "DEPRECATION: a note that is not about the product"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose Python says something whatever it is asked, and does it if it can."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "{NOTE}"\necho "{NOTE}" >&2\ntest ! -e broken\n')
    python.chmod(0o700)
    return tmp_path


def install(clone: Path) -> subprocess.CompletedProcess[str]:
    # `make test` tells the makes below it that they are below one, and they say so.
    env = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    return subprocess.run(["make", "install"], cwd=clone, capture_output=True, text=True, env=env)


def test_set_up_that_succeeds_says_nothing_of_its_tools(clone: Path) -> None:
    done = install(clone)

    assert (done.returncode, done.stdout, done.stderr) == (0, "setting up .venv\n", "")


def test_set_up_that_fails_shows_why_and_is_tried_again(clone: Path) -> None:
    (clone / "broken").touch()
    failed = install(clone)
    (clone / "broken").unlink()
    again = install(clone)

    assert failed.returncode != 0
    assert NOTE in failed.stderr
    assert (again.returncode, again.stdout) == (0, "setting up .venv\n")
