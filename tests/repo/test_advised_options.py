"""Options that messages advise exist: each `--name` in a text of the product is an option of some verb, or of a program that the text names."""

from __future__ import annotations

import ast
import re

from tests.repo.test_docs import ROOT, tracked
from tidelog.cli.main import VERBS, parser_of

OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")
OTHERS = {"--help", "--version", "--token-auth-file"}
"""Of the command line itself, and of kube-apiserver."""
FOLDERS = ("api", "cli", "configuration", "daemon", "eventlog", "kube", "page", "replay", "scheduler")


def test_every_option_in_a_message_is_one() -> None:
    known = {name for verb in VERBS for action in parser_of(verb)._actions for name in action.option_strings}
    wrong = []
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        # PostgreSQL's tools have options of their own.
        if path.suffix == ".py" and parts[0] in FOLDERS and "postgres" not in parts:
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and "kubectl" not in node.value
                ):
                    found = set(OPTION.findall(node.value)) - known - OTHERS
                    wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(found)]

    assert wrong == []
