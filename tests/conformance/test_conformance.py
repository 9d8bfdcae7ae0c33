"""Every recorded case of every family passes, and the runner says so in its own words.

A family whose module does not exist yet is skipped only if it is named in `NOT_YET`: a module that disappears is noticed.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
NOT_YET: tuple[str, ...] = ()


def load_runner() -> ModuleType:
    """The runner is a script; loading it puts its folder on the path, where it finds the families."""
    spec = importlib.util.spec_from_file_location("conformance_runner", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = load_runner()


def has_module(family: str) -> bool:
    return (HERE / "families" / f"{family.replace('-', '_')}.py").exists()


def cases_of(family: str) -> Path:
    return HERE / "cases" / f"{family}.jsonl.gz"


@pytest.mark.parametrize("family", runner.FAMILIES)
def test_every_recorded_case_passes(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not has_module(family) and family in NOT_YET:
        pytest.skip(f"nothing answers the family {family} yet")

    status = runner.main([str(cases_of(family)), "--family", family])

    printed = capsys.readouterr().out
    with gzip.open(cases_of(family), "rt") as lines:
        count = sum(1 for _ in lines)
    assert (status, printed) == (0, f"{family}: {count} passed, 0 failed\n")


def write_cases(path: Path, cases: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def first_queue_case() -> dict[str, Any]:
    with gzip.open(cases_of("queue"), "rt") as lines:
        found: dict[str, Any] = json.loads(next(lines))
    return found


def test_a_wrong_answer_fails_the_run_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = first_queue_case(), first_queue_case()
    wrong["id"] = "wrong"
    wrong["steps"][3]["expect"]["active"] = ["somebody else"]
    path = write_cases(tmp_path / "cases.jsonl", [right, wrong])

    status = runner.main([str(path)])

    printed = capsys.readouterr().out
    assert status == 1
    assert "queue wrong" in printed
    assert "step 3" in printed
    assert 'want ["somebody else"]' in printed
    assert printed.endswith("queue: 1 passed, 1 failed\n")


def test_a_crash_is_a_failure_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = first_queue_case()
    case["steps"][0]["op"] = "no such operation"

    status = runner.main([str(write_cases(tmp_path / "cases.jsonl", [case]))])

    printed = capsys.readouterr().out
    assert status == 1
    assert "AttributeError" in printed
    assert "queue.py" in printed


def test_results_hold_what_was_computed(tmp_path: Path) -> None:
    case = first_queue_case()
    path = write_cases(tmp_path / "cases.jsonl", [case])
    out = tmp_path / "out.jsonl"

    assert runner.main([str(path), "--results", str(out)]) == 0

    (line,) = out.read_text().splitlines()
    assert json.loads(line) == {
        "id": case["id"],
        "expect": {"steps": [step["expect"] for step in case["steps"]]},
    }


def test_nothing_to_ask_is_told_apart_from_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main([str(write_cases(tmp_path / "cases.jsonl", []))]) == 2
    assert "no cases found" in capsys.readouterr().err


def test_a_family_that_nobody_answers_is_counted_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_cases(tmp_path / "cases.jsonl", [{"id": "x", "family": "unheard-of"}])

    assert runner.main([str(path)]) == 1
    assert capsys.readouterr().out.endswith("unheard-of: 0 passed, 1 failed\n")
