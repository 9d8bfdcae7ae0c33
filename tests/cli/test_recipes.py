"""The one-line recipes of docs/log.md read a log with the programs that are here, and count right."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

ROOT = Path(__file__).parents[2]
RECIPES = (
    (ROOT / "docs" / "log.md").read_text().split("## Other tools")[1].split("```sh\n")[1].split("```")[0]
)
LINES = {
    next(name for name in ("sqlite3 ", "pandas", "duckdb", "jq ") if name in line): line
    for line in RECIPES.splitlines()
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pods on n1, two on n2."""
    driver = Driver()
    driver.start()
    driver.put(b.node("n1").capacity(cpu="3").build(), b.node("n2").capacity(cpu="2").build())
    driver.put(*(b.pod(f"p{i}").request(cpu="1").scheduler("default-scheduler").build() for i in range(5)))
    driver.settle()
    path = tmp_path_factory.mktemp("recipes") / "c.db"
    asyncio.run(write_log(path, driver.records))
    return path


def is_here(program: str) -> bool:
    return shutil.which(program.strip()) is not None or find_spec(program) is not None


@pytest.mark.parametrize("program", ["sqlite3 ", "pandas", "duckdb", "jq "])
def test_recipe_reads_the_log(log: Path, program: str) -> None:
    if not is_here(program):
        pytest.skip(f"{program.strip()} is not installed")
    python = Path(sys.executable)
    environment = {**os.environ, "TIDELOG_LOG": str(log), "PATH": f"{python.parent}:{os.environ['PATH']}"}

    done = subprocess.run(
        ["bash", "-c", LINES[program]], capture_output=True, text=True, env=environment, check=True
    )

    if program == "jq ":
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert [row[2] for row in rows].count("n1") == 3
        assert len(rows) == 5
    else:
        counts = dict(
            line.replace("│", " ").replace("|", " ").replace("\x1f", " ").split()[:2]
            for line in done.stdout.splitlines()
            if "n1" in line or "n2" in line
        )
        assert counts == {"n1": "3", "n2": "2"}
