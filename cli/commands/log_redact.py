"""`tidelog log redact`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import log_path, named_log

DESCRIPTION = """\
Make a copy of a log without names, to be shared: the same name becomes the same number everywhere, and every decision is made anew
from the redacted facts, so that the copy verifies and gives nothing away. Annotations, descriptions and messages are dropped;
amounts, times, the configuration and what Kubernetes coined stay. Of a compacted log the copy begins with the state that is left."""
EXAMPLES = """\
  tidelog log redact cluster.db shared.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="[LOG] COPY",
        help="the log (default: that of --log), and the copy to make",
    )


def run(args: argparse.Namespace) -> int:
    """Read, retell, write."""
    import asyncio

    from tidelog.api.errors import UsageError
    from tidelog.cli.progress import Progress
    from tidelog.replay.files import refuse_existing, write_log
    from tidelog.replay.history import open_history
    from tidelog.replay.redact import Redacted, redact

    if len(args.files) > 2:
        raise UsageError("name the log and the copy to make: `tidelog log redact cluster.db shared.db`")
    path = named_log(args.files[0]) if len(args.files) == 2 else log_path(args)
    copy = args.files[-1]
    refuse_existing(copy)

    async def make() -> Redacted:
        async with open_history(path) as history:
            with Progress("reading the log", "records") as progress, progress.reading(history.log):
                beginning = await history.beginning()
                first = 0 if beginning is None else beginning.core.seq + 1
                records = [record async for record in history.records(first)]
            with Progress("redacting", "records") as progress:
                made = redact(records, history.registry, progress.update, beginning=beginning)
        with Progress("writing the copy", "records") as progress:
            await write_log(copy, made.records, first=made.first, progress=progress.update)
        return made

    made = asyncio.run(make())
    behind = (
        ""
        if made.first is None
        else f"; it begins with the state after record {made.first.anchor.seq:,}, the oldest that is left"
    )
    print(f"{copy}: {len(made.records):,} records, {made.names:,} names replaced{behind}")
    return 0
