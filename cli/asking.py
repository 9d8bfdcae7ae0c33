"""Shared by the verbs that ask about the past: which pod, which moment, and the log opened for it."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, log_path
from tidelog.cli.moments import NOW, At, dated, parse_at, present, seq_of
from tidelog.cli.progress import Progress
from tidelog.eventlog.address import LogAddress
from tidelog.replay.history import History, open_history
from tidelog.scheduler.core import Core

GROUPS = ("podgroup", "podgroups")


def add_at(parser: argparse.ArgumentParser) -> None:
    """`--at`."""
    parser.add_argument(
        "--at",
        metavar="SEQ|TIME",
        help="as it was after this record, or at this time: 14:03, yesterday 14:03, 2026-03-01T14:03:00Z, or 5m ago",
    )


def pod_key(text: str, namespace: str | None) -> str:
    """The record key of the pod that `web-1`, `pod/web-1` or `default/web-1` names."""
    kind, slash, rest = text.partition("/")
    if slash and kind.lower() in ("pod", "pods", "po"):
        text = rest
    elif slash and kind.lower() in GROUPS:
        raise UsageError(
            f"{text}: the story of a group is told with that of each of its pods; `tidelog get pods` names them"
        )
    first, slash, name = text.rpartition("/")
    if slash and namespace and first != namespace:
        raise UsageError(f"{text} is in another namespace than --namespace {namespace}")
    if not name or "/" in first:
        raise UsageError(f"{text!r} is no name of a pod; write NAME or NAMESPACE/NAME")
    return f"Pod/{first or namespace or DEFAULT_NAMESPACE}/{name}"


class QuestionTime(NamedTuple):
    """A record, and the time that the question counts from."""

    seq: int
    at: int


async def _moment_of(path: LogAddress, history: History, at: At) -> QuestionTime:
    """The moment that `--at` names; now, where it names none, for a log that ended long ago its end."""
    _collect_little()
    at = await dated(history.log, at)
    seq = await seq_of(history.log, at)
    if at == NOW:
        return QuestionTime(seq, present(path, history.log.head.at) if seq else time.time_ns())
    if at.time is not None:
        return QuestionTime(seq, at.time)
    return QuestionTime(seq, (await history.log.record(seq)).at if seq > history.log.anchor.seq else 0)


def _collect_little() -> None:
    """This process answers one question and ends: what the collector would find in its state meanwhile is nothing."""
    gc.set_threshold(200_000, 50, 1_000)


@asynccontextmanager
async def asked(
    args: argparse.Namespace, at: At | None = None
) -> AsyncIterator[tuple[History, QuestionTime]]:
    """Open the log for a question about the moment that `--at` names (or `at`, if that was parsed already), and show how far it is read."""
    at = parse_at(args.at) if at is None else at
    async with open_history(log_path(args)) as history:
        with Progress("reading the log", "records") as progress, progress.reading(history.log):
            yield history, await _moment_of(log_path(args), history, at)


async def state_at(args: argparse.Namespace) -> tuple[Core, QuestionTime]:
    """The scheduler's state at that moment, attempts in flight included."""
    async with asked(args) as (history, moment):
        return await history.core_at(moment.seq), moment
