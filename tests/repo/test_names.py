"""One name, one meaning: no two classes of the product have the same name, except where they are the same thing."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.check_imports import PRODUCT

ROOT = Path(__file__).resolve().parent.parent.parent
OWN_WORDS = ("kube", "page", "plugins")
"""Folders that speak a protocol in its words, and plugins, whose inner names never meet."""

SAME = {
    "Affinity": "a field of Kubernetes' API, and the evaluation of that field",
    "Answer": "of the fact service, and of a plugin; each stays in its module",
    "Cluster": "the port that admission asks, and the scheduler's cluster",
    "Listers": "the interface, and its implementation",
    "ObjectTable": "the objects for admission, which are a part of the table of the log",
    "Redaction": "the rules of a kind, and those of a session in its record",
    "Snapshot": "the interface and its implementation; and a stored one of the log",
    "Stamp": "the place of a fact in the log, and of an attempt",
    "Tick": "the record, and the object that hints are given for it",
}
"""Names that are used more than once, with the reason. Better to take one away than to add one."""


def test_class_names_are_used_once() -> None:
    found: dict[str, list[str]] = {}
    for folder in (folder for folder in PRODUCT if folder not in OWN_WORDS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    twice = {name: where for name, where in found.items() if len(where) > 1}

    assert {name: where for name, where in twice.items() if name not in SAME} == {}
