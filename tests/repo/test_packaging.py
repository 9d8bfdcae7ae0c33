"""The rules of docs/decisions/0001: one namespace package, and nothing that hides the standard library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = (
    "api",
    "cli",
    "configuration",
    "daemon",
    "eventlog",
    "framework",
    "kube",
    "page",
    "plugins",
    "queue",
    "replay",
    "scheduler",
    "testing",
)
SHIPPED = ("benchmarks", "examples")
"""Folders that the wheel has because verbs need them (docs/decisions/0002); they are no part of the import contract."""
NOT_OURS = "import queue; queue.SimpleQueue; import aiosqlite; print(queue.__file__)"


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_standard_library(printed: str) -> bool:
    return Path(printed.strip()).parent == Path(os.__file__).parent


def test_no_root_folder_has_an_init_module() -> None:
    found = [folder for folder in (*FOLDERS, *SHIPPED) if (ROOT / folder / "__init__.py").exists()]

    assert found == []


def test_package_list_equals_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]

    nested = [
        ".".join(("tidelog", *p.relative_to(ROOT).parts))
        for folder in FOLDERS
        for p in sorted((ROOT / folder).rglob("*"))
        if p.is_dir() and any(p.glob("*.py"))
    ]
    folders = [f"tidelog.{folder}" for folder in (*FOLDERS, *SHIPPED)]
    assert sorted(listed) == sorted(["tidelog", *folders, *nested])


def test_queue_is_the_standard_librarys_from_the_repository_root() -> None:
    assert is_standard_library(run(sys.executable, "-c", NOT_OURS))


def test_queue_is_the_standard_librarys_under_dash_m() -> None:
    printed = run(sys.executable, "-m", "timeit", "-n1", "-r1", "-s", NOT_OURS, "queue.SimpleQueue")

    assert is_standard_library(printed.splitlines()[0])


def test_queue_is_the_standard_librarys_under_pytest() -> None:
    import queue

    assert is_standard_library(queue.__file__)


def test_tests_run_beside_what_an_editable_install_leaves_in_the_root(tmp_path: Path) -> None:
    """From its list of files pytest takes `queue` and `selectors` for modules of the plugin, and warns that they are there already."""
    left = tmp_path / "tidelog.egg-info"
    left.mkdir()
    (left / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: tidelog\nVersion: 0.1.0\n")
    (left / "SOURCES.txt").write_text("api/selectors.py\nqueue/order.py\n")
    (left / "entry_points.txt").write_text("[pytest11]\ntidelog = tidelog.testing.pytest_plugin\n")
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/api/validation/test_names.py")

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_wheel_installs_nothing_at_top_level_but_tidelog(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"tidelog", next(t for t in tops if t.endswith(".dist-info"))} == tops
    assert not [name for name in names if "/tests/" in name or name.startswith("tests")]
    assert "tidelog/queue/scheduling_queue.py" in names

    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    installed = (
        environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )

    assert is_standard_library(run(str(python), "-c", NOT_OURS, cwd=installed / "tidelog"))
    command = str(environment / "bin" / "tidelog")
    assert "usage" in run(command, "--help", cwd=tmp_path).lower()
    assert "chain ok" in run(command, "demo", "--log", str(tmp_path / "demo.db"), cwd=tmp_path)
    assert "queue" in run(command, "bench", cwd=tmp_path)
