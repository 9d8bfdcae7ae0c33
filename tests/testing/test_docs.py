"""The tests of docs/testing.md run as they stand, with nothing but the installed plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "testing.md"


def test_tests_of_the_document_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_document.py").write_text("\n\n".join(blocks))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_document.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    tests = sum(block.count("\nasync def test_") + block.count("\ndef test_") for block in blocks)
    assert f"{tests} passed" in done.stdout


def test_plugin_does_not_stand_in_the_way_where_pytest_asyncio_is_missing() -> None:
    code = "import sys; sys.modules['pytest_asyncio'] = None; import tidelog.testing.pytest_plugin"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)

    assert (done.returncode, done.stderr) == (0, "")


def test_plugin_imports_nothing_of_tidelog_by_itself() -> None:
    code = "import sys, tidelog.testing.pytest_plugin; print([m for m in sys.modules if m.startswith('tidelog.')])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)

    assert done.stdout.strip() == "['tidelog.testing', 'tidelog.testing.pytest_plugin']"
