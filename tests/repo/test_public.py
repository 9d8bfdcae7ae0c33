"""The public surface: what `tidelog` exports is typed and on docs/library.md, and what the documents use is public."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog.daemon.actors.protocol import Actor

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/library.md").read_text()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")])


def imports(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tidelog."):
            yield from ((node.module, alias.name) for alias in node.names)


def test_type_checkers_and_the_interpreter_are_given_the_same() -> None:
    typed = {name: module for module, name in imports((ROOT / "__init__.py").read_text())}

    assert typed == {name: f"tidelog.{module}" for name, module in tidelog._MODULE_OF.items()}


def test_page_has_a_line_for_each_name_and_for_no_other() -> None:
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == tidelog.__all__


@pytest.mark.parametrize("name", [name for name in tidelog.__all__ if name != "IN_TREE"])
def test_public_things_have_docstrings_and_types(name: str) -> None:
    found = getattr(tidelog, name)
    members = vars(found).items() if inspect.isclass(found) else [(name, found)]
    functions = [
        (label, getattr(member, "__func__", member)) for label, member in members if label[:1] != "_"
    ]

    assert inspect.getdoc(found)
    for label, function in functions:
        if inspect.isfunction(function):
            assert function.__doc__ or any(
                getattr(getattr(base, label, None), "__doc__", None) for base in (*found.__mro__[1:-1], Actor)
            ), label
            assert "return" in function.__annotations__, label


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_and_examples_use_what_is_public(page: Path) -> None:
    public = re.findall(r"`(tidelog\.[\w.]+)`", PAGE[PAGE.index("## Public modules") :])
    blocks = (
        [page.read_text()]
        if page.suffix == ".py"
        else re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
    for block in blocks:
        try:
            found = list(imports(block))
        except SyntaxError:
            continue  # Part of a module, shown to make a point.
        for module, name in found:
            assert module in public, f"import {name} from tidelog, or list {module}"


def test_importing_it_imports_nothing_else() -> None:
    code = "import sys, tidelog; print(sorted(n for n in sys.modules if n.startswith('tidelog.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_example_of_the_page_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path)

    assert (done.stderr, done.stdout.splitlines()[0]) == ("", "pending (unschedulable) ['NodeResourcesFit']")
