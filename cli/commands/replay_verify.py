"""`tidelog replay verify`."""

from __future__ import annotations

import argparse

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import add_output, log_path, named_log, print_found

DESCRIPTION = """\
Recompute every decision of a log from its facts alone, and compare byte for byte with what was recorded. A log with snapshots is
verified in segments, on all cores. The first difference is shown in full, with the plugins that answer differently; the exit
code is then 3."""
EXAMPLES = """\
  tidelog replay verify cluster.db
  tidelog replay verify cluster.db --from-snapshot
  tidelog replay verify cluster.db --sample 100 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log (default: that of --log)")
    parser.add_argument(
        "--from-snapshot",
        action="store_true",
        help="only what came after the newest snapshot of the scheduler's state",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=1,
        metavar="N",
        help="recompute only every N-th attempt, and believe the others",
    )
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="processes to use (default: one for each core)"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Verify, report, and say by the exit code whether anything differed."""
    import asyncio

    from tidelog.cli.progress import Progress
    from tidelog.cli.text.verify import as_data, report_lines
    from tidelog.replay.segments import verify_log

    if args.sample < 1:
        raise UsageError(f"--sample {args.sample}: must be 1 or more")
    if args.jobs < 0:
        raise UsageError(f"--jobs {args.jobs}: must be 1 or more")
    path = named_log(args.file) if args.file else log_path(args)
    with Progress("verifying", "records") as progress:
        report = asyncio.run(
            verify_log(
                path,
                from_snapshot=args.from_snapshot,
                sample=args.sample,
                jobs=args.jobs,
                progress=progress.update,
            )
        )
    print_found(args, as_data(report), report_lines(report))
    return 0 if report.is_identical else 3
