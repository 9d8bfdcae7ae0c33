"""Which tests write logs that are not replayed at their end, and why: nobody gets onto this list unnoticed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
REASONS = {
    "the log is damaged": 22,
    "their files are taken away, cut and overwritten": 2,
    "the log contradicts itself": 1,
    "the test answers the evictions": 9,
    "the records are made by hand: outcomes of no attempt": 5,
    "the records are made by hand: an outcome of no attempt": 1,
    "the records are made by hand: a configuration of nothing": 1,
    "the records are made by hand: configurations of nothing": 1,
    "the records are made by hand: a configuration of gates only": 1,
    "the records are made by hand: bodies that say anything": 1,
    "the rows of the contract are made by hand": 2,
    "the snapshots are made by hand": 8,
    "no scheduler ran, so that the compacted log has no state to begin with": 1,
    "a plugin of the log is no function of its input": 2,
    "the simulation replays what it writes": 5,
    "a mistake of the store is made on purpose": 1,
    "an outcome of the log was changed": 1,
    "the log asks for a behaviour that is not known": 1,
    "a plugin is taken away behind the back of the log": 1,
    "the scheduler's cache is changed behind the back of the log": 1,
    "the queue is changed behind the back of the log": 1,
}
"""Reason → how many tests, or files of tests, give it."""


def reasons() -> Iterator[str]:
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.unreplayed":
                (reason,) = node.args
                assert isinstance(reason, ast.Constant), f"{file}: a marker without a reason"
                yield str(reason.value)


def test_every_log_that_is_not_replayed_has_one_of_the_reasons_known_here() -> None:
    assert Counter(reasons()) == REASONS


def test_the_marker_is_never_set_without_a_reason() -> None:
    bare = [
        f"{file.name}:{node.lineno}"
        for file in sorted(TESTS.rglob("*.py"))
        for tree in [ast.parse(file.read_text(encoding="utf-8"))]
        for called in [{id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "unreplayed" and id(node) not in called
    ]

    assert bare == []
