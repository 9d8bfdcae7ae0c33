"""A full and a read-only file system under a real daemon: what `small_disk.py` does, where the system lets it.

Where it does not, `tests/eventlog/test_disk_faults.py` still lets every step fail, and `test_real_faults.py` has the system refuse writes.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.acceptance.small_disk import CASES

NAME_SPACES = (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"])
ROOT = Path(__file__).parents[2]


@cache
def name_space() -> list[str] | None:
    """The command that may mount, or None."""
    for command in NAME_SPACES:
        try:
            done = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
        except FileNotFoundError:
            return None
        if done.returncode == 0:
            return command
    return None


@pytest.mark.parametrize("case", CASES)
def test_small_disk(case: str, tmp_path: Path) -> None:
    command = name_space()
    if command is None:
        pytest.skip("this system lets nobody mount a file system in a name space of one's own")

    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.acceptance.small_disk", case, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
