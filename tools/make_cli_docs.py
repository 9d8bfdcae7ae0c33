"""Writes docs/cli.md from the `--help` of every verb: `python tools/make_cli_docs.py`; with `--check` it only compares."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tidelog.cli.main import VERBS, overview, parser_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield "# The command line"
    yield ""
    yield "Made from `--help` by `tools/make_cli_docs.py`; a test keeps it current."
    yield ""
    yield "Results go to stdout, errors and progress to stderr. An error is one line that says what is wrong and what to do;"
    yield "where several rules are broken, a line for each follows. Options stand anywhere behind the verb."
    yield ""
    yield from fenced(overview())
    for verb in VERBS:
        yield ""
        yield f"## tidelog {verb.name}"
        yield ""
        yield from fenced(parser_of(verb).format_help().rstrip())


def fenced(text: str) -> Iterator[str]:
    """A block of plain text."""
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"


def page() -> str:
    """The whole page. argparse breaks lines by the width of the terminal, so one is given to it."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "110"
    try:
        return "\n".join(lines()) + "\n"
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    if not PAGE.exists() or PAGE.read_text() != page():
        print("docs/cli.md is not current: run `python tools/make_cli_docs.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
