"""Completion scripts: current, and what they offer in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.cli.main import VERBS

ROOT = Path(__file__).parents[2]
CASES = [
    ("", ["apply", "get", "log", "replay", "why"], ["tail", "verify"]),
    ("ge", ["get"], ["apply"]),
    ("log ", ["tail", "verify", "export"], ["apply"]),
    ("replay w", ["what-if"], ["verify"]),
    ("get po", ["pods", "podgroups"], ["nodes"]),
    ("get ev", ["events"], ["pods"]),
    ("--log x.db get pods -o ", ["table", "wide", "json"], ["pods"]),
    ("get pods --all", ["--all-namespaces"], ["--at"]),
    ("log compact --k", ["--keep"], ["--at"]),
    ("completion ", ["bash", "zsh", "fish"], ["get"]),
]

BASH = """
source {script}
COMP_WORDS=(tidelog {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tidelog 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_scripts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_completions.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def offered(shell: str, script: Path, line: str) -> list[str]:
    if shell == "bash":
        words = line if not line.endswith(" ") and line else f"{line} ''"
        code = BASH.format(script=script, words=words)
    else:
        code = f"source {script}; complete -C 'tidelog {line}'"
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, check=True)
    return [found.split("\t")[0] for found in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(("line", "there", "absent"), CASES, ids=lambda case: str(case)[:30])
def test_shell_offers_what_may_follow(
    tidelog: Tidelog, tmp_path: Path, shell: str, line: str, there: list[str], absent: list[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(tidelog("completion", shell).out)

    found = offered(shell, script, line)

    assert [word for word in there if word not in found] == []
    assert [word for word in absent if word in found] == []


def test_zsh_reads_its_script(tidelog: Tidelog, tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = tmp_path / "_tidelog"
    script.write_text(tidelog("completion", "zsh").out)

    code = f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {script}; print $_comps[tidelog]"
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("_tidelog\n", "")


def test_every_verb_and_option_is_in_every_script(tidelog: Tidelog) -> None:
    for shell in ("bash", "zsh", "fish"):
        text = tidelog("completion", shell).out
        assert [v.name for v in VERBS if v.name.split()[-1] not in text] == []
        assert "no-headers" in text
