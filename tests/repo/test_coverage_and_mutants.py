"""The tools that judge the tests: they find what they should, and can fail."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.golden.make import preemption
from tests.other_seed import OtherSeed, SameSeed

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = '''"""What it is."""
LIMIT: int = 3


def clamp(value: int, least: int = 0) -> bool:
    """Not mutated."""
    assert value != 7, f"{value + 1}"
    if value < least:
        return max(least, value)
    for other in range(value):
        if other:
            break
        print(other)
    raise ValueError(value + 1)
'''
MUTANTS = """\
 | LIMIT: int = 3 | LIMIT: int = 4
 | LIMIT: int = 3 | LIMIT: int = 2
 | def clamp(value: int, least: int=0) -> bool: | def clamp(value: int, least: int=1) -> bool:
 | def clamp(value: int, least: int=0) -> bool: | def clamp(value: int, least: int=-1) -> bool:
clamp | if value < least: | if value <= least:
clamp | if value < least: | if value >= least:
clamp | return max(least, value) | return True
clamp | return max(least, value) | return False
clamp | return max(least, value) | return min(least, value)
clamp | if other: | if not other:
clamp | break | continue
clamp | print(other) | pass
clamp | raise ValueError(value + 1) | pass
"""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def found(tmp_path: Path) -> list[Any]:
    (tmp_path / "module.py").write_text(SOURCE)
    mutants: list[Any] = load("mutants").mutants(tmp_path, tmp_path / "module.py")
    return mutants


def test_mutants_are_one_mistake_each_and_spare_assertions_messages_and_annotations(found: list[Any]) -> None:
    listed = [f"{mutant.name} | {mutant.before} | {mutant.after}" for mutant in found]

    assert listed == MUTANTS.splitlines()


def test_what_is_evaluated_at_import_is_told_from_what_a_function_does(found: list[Any]) -> None:
    assert [mutant.inside for mutant in found] == [False] * 4 + [True] * 9


def test_code_of_a_mutant_has_its_mistake_and_no_other(found: list[Any]) -> None:
    def clamp(mutant: Any) -> Any:
        names: dict[str, Any] = {}
        exec(mutant.code("module.py"), names)
        return names["clamp"]

    results = [clamp(mutant)(-1) for mutant in found if mutant.before.startswith("return")]

    assert results == [True, False, -1]
    assert clamp(found[0])(-1) == 0


@pytest.mark.parametrize("missed", ["AT_LEAST", "BRANCHES_AT_LEAST"])
def test_a_package_below_one_of_its_figures_is_named(tmp_path: Path, missed: str) -> None:
    """By one line, or by one branch."""
    tool = load("check_coverage")
    both, branches = tool.AT_LEAST["eventlog"], tool.BRANCHES_AT_LEAST["eventlog"]
    run = {"covered_lines": 100, "covered_branches": branches - (missed == "BRANCHES_AT_LEAST")}
    if missed == "AT_LEAST":
        run = {"covered_lines": 2 * both - 100 - 1, "covered_branches": 100}

    def summary(**run: int) -> dict[str, Any]:
        return {"summary": {"num_statements": 100, "num_branches": 100, **run}}

    files = {f"{package}/a.py": summary(covered_lines=100, covered_branches=100) for package in tool.AT_LEAST}
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": {**files, "eventlog/a.py": summary(**run)}}))

    done = subprocess.run(
        [sys.executable, "tools/check_coverage.py", str(report)], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr.startswith("eventlog: ")
    assert done.stderr.endswith(f": at least {both} % and {branches} % have to be covered\n")
    assert done.stderr.count("\n") == 1


def test_nothing_traces_a_test_that_is_not_measured() -> None:
    """Under pytest-xdist, too: a measurement that goes on triples what the whole run costs, and nothing else shows it."""
    assert not type(sys.gettrace()).__module__.startswith("coverage")


def test_every_deliberate_bug_has_its_one_place_in_the_code() -> None:
    bugs = load("deliberate_bugs").bugs()

    assert bugs
    odd = [bug.name for bug in bugs if (ROOT / bug.file).read_text(encoding="utf-8").count(bug.old) != 1]
    assert odd == []


def test_every_mutant_that_is_listed_as_equivalent_has_a_reason() -> None:
    load("mutants")
    reasons = load("mutation_score").equivalents()

    assert [key for key, reason in reasons.items() if len(reason) < 10] == []


def test_replay_in_this_process_finds_what_the_one_with_another_hash_seed_finds(
    other_seed: OtherSeed,
) -> None:
    records = preemption().records
    stand_in = SameSeed()

    assert stand_in.replay(records) == other_seed.replay(records)
    assert stand_in.replay(records[1:]) == other_seed.replay(records[1:])
    assert stand_in.replay(records[1:]).difference != ""
