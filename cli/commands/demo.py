"""`tidelog demo`."""

from __future__ import annotations

import argparse

DESCRIPTION = """\
Show the main job on a log of its own: tell it a cluster, ask, be refused, go back, verify. Every step is a command that
you can type yourself afterwards."""
EXAMPLES = """\
  tidelog demo
  tidelog demo --log demo.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """There is nothing beyond --log."""


def run(args: argparse.Namespace) -> int:
    """Tell the story."""
    from pathlib import Path

    from tidelog.api.errors import UsageError
    from tidelog.cli.demo.demo import tell
    from tidelog.eventlog.address import database_name, is_database

    if args.log is not None and is_database(args.log):
        raise UsageError(f"--log {database_name(args.log)}: the demo makes a log of its own, in a file")
    tell(None if args.log is None else Path(args.log))
    return 0
