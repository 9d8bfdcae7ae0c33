"""`tidelog version`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_output, print_found

DESCRIPTION = "Print the versions of the program, of the log format it writes, and of what it runs on."
EXAMPLES = """\
  tidelog version
  tidelog version -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Print them."""

    versions = collect()
    print_found(args, versions, (f"{name:<12}{value}" for name, value in versions.items()))
    return 0


def collect() -> dict[str, str | int]:
    """Name → version."""
    import platform
    import sqlite3
    from importlib.metadata import version

    from tidelog.eventlog.records import FORMAT

    return {
        "tidelog": version("tidelog"),
        "log format": FORMAT,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": version("msgspec"),
    }
