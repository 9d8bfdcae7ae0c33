"""`tidelog get events`: what the log's outcomes say of its objects, in kubectl's columns."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tidelog.api.errors import UsageError
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.text import age, formatted, safe, table
from tidelog.api.times import format_time, parse_duration
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, log_path
from tidelog.cli.moments import NOW, At, dated, parse_at, present, seq_of, tell_end
from tidelog.cli.object_names import key_of, named_objects
from tidelog.cli.progress import Progress
from tidelog.cli.tables.listing import fields_of
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Unschedulable, decode_body
from tidelog.kube.selectors import field_matcher
from tidelog.replay.cluster_events import EventTable, ToldEvent


def print_events(args: argparse.Namespace) -> int:
    """Read, select, print."""
    import asyncio

    if args.objects[1:]:
        raise UsageError("events have no names here: `tidelog get events --for pod/web-1`")
    if args.selector:
        raise UsageError("events have no labels: leave out -l, or name an object with --for")
    matches = field_matcher(fields_of(args.field_selector, "Event"), _field)
    at = parse_at(args.at)
    found, now, dropped = asyncio.run(_read(log_path(args), at, _nanos(args.since)))
    chosen = [event for event in found if _is_asked_for(event, args) and (matches is None or matches(event))]
    if args.output == "name":
        raise UsageError("events have no names here: -o table, wide, json or yaml")
    if args.output in ("json", "yaml"):
        print(formatted(chosen, args.output))
    elif not chosen:
        of = " that are asked for" if found else ""
        print(
            f"no events{of} in the last {args.since} of the log{dropped and '; '}{dropped}", file=sys.stderr
        )
    else:
        tell_end(at, now)
        print(_table(chosen, args, now))
    return 0


def _nanos(text: str) -> int:
    try:
        return parse_duration(f"{int(text[:-1]) * 24}h" if text[-1:] == "d" and text[:-1].isdigit() else text)
    except ValueError:
        raise UsageError(f"--since {text}: must be a duration such as 30m, 12h or 2d") from None


async def _read(path: LogAddress, at: At, since: int) -> tuple[list[ToldEvent], int, str]:
    """The events of the time before the moment, the moment, and what is missing from them. Time counts from the log's last record: one that has
    stopped has events too."""
    async with open_reader(path) as log:
        at = await dated(log, at)
        last = await seq_of(log, at)
        end = log.anchor.at if last <= log.anchor.seq else (await log.record(last)).at
        is_short = log.anchor.seq > 0 and log.anchor.at > end - since
        dropped = f"those until {format_time(log.anchor.at)} were dropped by compaction" if is_short else ""
        if last <= log.anchor.seq:
            return [], time.time_ns(), dropped
        events = EventTable()
        first = max(await log.seq_at(end - since - 1), log.anchor.seq) + 1
        with Progress("reading the log", "records") as progress, progress.reading(log):
            async for batch in log.read_batches(first, last):
                for record in batch:
                    events.add(record)
        told = await _dropped_rejections(path) if min(events.unknown, default=last) <= log.anchor.seq else {}
        for seq, waiting in events.unknown.items():
            # What a repetition refers to, where it is older than all this.
            body = decode_body(await log.record(seq)) if seq > log.anchor.seq else told.get(seq)
            for event in waiting:
                event.message = body.message if isinstance(body, Unschedulable) else "as before"
    now = present(path, end) if at == NOW else at.time if at.time is not None else end
    return events.events(), now, dropped


async def _dropped_rejections(path: LogAddress) -> dict[int, Unschedulable]:
    """Return the rejections whose records a compaction dropped, by their number, as far as the state with which the log begins tells them."""
    from tidelog.replay.history import open_history

    async with open_history(path) as history:
        return (await history.core_from_snapshot(await history.first_state())).last_rejections()


def _is_asked_for(event: ToldEvent, args: argparse.Namespace) -> bool:
    namespace = event.object.split("/")[1]
    if args.about:
        return event.object in _keys(args.about, args.namespace or DEFAULT_NAMESPACE)
    return args.all_namespaces or namespace in ("", args.namespace or DEFAULT_NAMESPACE)


def _field(event: ToldEvent, field: str) -> str:
    """A field of the Event that an API server would have of it."""
    kind, namespace, name = event.object.split("/")
    fields = {
        "involvedObject.kind": kind,
        "involvedObject.namespace": namespace,
        "involvedObject.name": name,
        "metadata.namespace": namespace,
        "reason": event.reason,
        "type": event.type,
    }
    if field not in fields:
        raise UsageError(
            f"--field-selector: events of a log are selected by {', '.join(fields)}, not by {field}"
        )
    return fields[field]


def _keys(words: str, namespace: str) -> Sequence[str]:
    pairs = named_objects(words.split(","))
    if any(name is None for _, name in pairs):
        raise UsageError(f"--for {words}: name an object as KIND/NAME, for example pod/web-1")
    return [key_of(kind, namespace, name or "") for kind, name in pairs]


def _table(events: Sequence[ToldEvent], args: argparse.Namespace, now: int) -> str:
    wide = args.output == "wide"
    columns = ["LAST SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    if args.all_namespaces:
        columns.insert(0, "NAMESPACE")
    if wide:
        columns += ["FIRST SEEN", "RECORD"]
    rows = []
    for event in events:
        kind, namespace, name = event.object.split("/")
        singular = KIND_BY_NAME[kind].singular if kind in KIND_BY_NAME else kind.lower()
        row: list[object] = [
            age(now - event.last_at),
            event.count,
            event.type,
            event.reason,
            f"{singular}/{name}",
            safe(event.message),
        ]
        if args.all_namespaces:
            row.insert(0, namespace)
        if wide:
            row += [age(now - event.at), event.seq]
        rows.append(row)
    return table(columns, rows, headings=not args.no_headers)
