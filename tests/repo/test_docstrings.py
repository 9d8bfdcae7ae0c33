"""A docstring begins with a verb, or with the thing itself, not with "Who", "What" or "That"."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
FOLDERS = sorted({name.split(".")[1] for name in PACKAGES if "." in name} | {"tools"})
ODD = re.compile(r"(Who|What|That|Whom|Whose|Whoever|Whatever)\b")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring, those below attributes included."""
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(found))):
                    yield statement.lineno, found


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_verb_or_the_thing_itself(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))

    odd = [
        f"{module.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for module in modules
        for line, text in docstrings(module.read_text())
        if ODD.match(text)
    ]

    assert modules
    assert odd == []


def test_odd_docstrings_are_found() -> None:
    text = '"""What it is."""\n\nclass A:\n    b = 1\n    """Who reads it."""\n\n    def c(self):\n        """Whole, so no."""\n'

    found = [(line, said) for line, said in docstrings(text) if ODD.match(said)]

    assert found == [(1, "What it is."), (5, "Who reads it.")]
