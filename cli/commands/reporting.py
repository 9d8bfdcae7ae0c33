"""Shared by the writing verbs: submit, and report the result for each object."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tidelog.api.text import formatted, safe
from tidelog.cli.commands.options import feature_gates, log_path
from tidelog.cli.progress import Progress
from tidelog.cli.submit import submit
from tidelog.daemon.intake.messages import Answer, Facts


def submit_and_report(args: argparse.Namespace, facts: Facts, verb: str, *, create: bool = True) -> int:
    """Get the facts into the log and print a line for each object."""
    with Progress(verb, "objects") as progress:
        answer = asyncio.run(
            submit(
                log_path(args),
                facts,
                verb=verb,
                create=create,
                dry_run=args.dry_run,
                gates=feature_gates(args),
                progress=progress,
            )
        )
    for result in answer.results:
        for warning in result.warnings:
            print(f"tidelog: warning: {safe(result.name)}: {safe(warning)}", file=sys.stderr)
    if args.output == "table":
        for line in lines(answer):
            print(line)
    else:
        print(formatted(answer, args.output))
    return 0


def lines(answer: Answer) -> list[str]:
    """As kubectl says it: `pod/web-1 created`."""
    end = " (dry run)" if answer.dry_run else ""
    return [f"{safe(result.name)} {result.action}{end}" for result in answer.results]
