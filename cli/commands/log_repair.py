"""`tidelog log repair`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_log, add_output, log_path

DESCRIPTION = """\
Go on with a damaged log. Everything from the first record on that is missing or changed is dropped, because what comes
after it cannot be trusted, and the loss is recorded in the log. The damaged files are kept beside it. A backup is the
better way, if there is one. Without --accept-loss nothing is changed: it only says what would be lost."""
EXAMPLES = """\
  tidelog log repair cluster.db
  tidelog log repair --accept-loss cluster.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument(
        "--accept-loss", action="store_true", help="do it: the records that are named are lost for good"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Repair, and say what was done."""
    import asyncio

    from tidelog.api.text import formatted
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.repair import Repaired, repair

    with Progress("checking" if not args.accept_loss else "repairing", "records") as progress:
        done: Repaired = asyncio.run(
            repair(log_path(args), accept_loss=args.accept_loss, progress=progress.update)
        )
    if args.output != "table":
        print(formatted(done, args.output))
    elif not done.reason:
        print(f"nothing to repair: {done.kept} records, chain ok, head ok")
    else:
        print(_sentence(done.kept, done.lost_last, done.reason))
        if done.begins:
            print(
                f"it begins behind record {done.begins} now, where its oldest state is: of the records before, some were damaged"
            )
        if done.backup:
            print(f"the damaged log is kept as {done.backup}")
    return 0


def _sentence(kept: int, lost_last: int | None, reason: str) -> str:
    if lost_last is None:
        lost = f"whatever came after record {kept} is lost"
    elif lost_last <= kept:
        lost = "no record is lost"
    elif lost_last == kept + 1:
        lost = f"record {lost_last} is lost"
    else:
        lost = f"records {kept + 1} to {lost_last} are lost"
    return f"repaired: the log goes on after record {kept}, {lost} ({reason})"
