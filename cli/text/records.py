"""How records are shown: one line for people, the whole of it for programs."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from tidelog.api.errors import LogError
from tidelog.api.manifests.manifests import to_builtins
from tidelog.api.text import as_json_line, formatted, safe, with_times
from tidelog.api.times import NANOS, format_duration, format_time
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    Cursor,
    Evicted,
    EvictionRefused,
    KindGap,
    KindSynced,
    LeadershipChanged,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Reserved,
    Scheduled,
    SchedulerStarted,
    ShadowVerdict,
    Tick,
    Unschedulable,
    Waiting,
    WriteFailed,
    decode_body,
)

HEADING = f"{'SEQ':>7}  {'TIME':<20}  {'AUTHOR':<9}  {'KIND':<19}  KEY"


def line(record: Record) -> str:
    """Number, time, author, kind, key, and what it says in a few words."""
    text = (
        f"{record.seq:>7}  {_to_the_second(record.at)}  {safe(record.author):<9}  {safe(record.kind):<19}  "
        f"{safe(record.key)}"
    )
    words = _words(record)
    return f"{text}  {safe(words)}".rstrip() if words else text.rstrip()


def _to_the_second(at: int) -> str:
    return format_time(at - at % NANOS)


def _words(record: Record) -> str:
    try:
        return in_a_few_words(decode_body(record), record.at)
    except LogError:
        return "(of a newer tidelog)"


def in_a_few_words(body: Body, at: int) -> str:
    """Describe the record beyond its kind and key."""
    match body:
        case ObjectPut() | ObjectDeleted() | Tick():
            return ""
        case PodConditionSet(condition=condition):
            reason = f" ({condition.reason})" if condition.reason else ""
            return f"{condition.type}={condition.status}{reason}"
        case ConfigurationLoaded():
            return f"from {body.source}" if body.source else ""
        case SchedulerStarted():
            return f"epoch {body.epoch}, {body.holder}"
        case LossAccepted():
            last = f" to {body.last}" if body.last else " on"
            return f"records from {body.first}{last} are lost: {body.reason}"
        case ClusterAttached():
            return f"to cluster {body.cluster} ({body.server or 'version unknown'}), to {body.mode}"
        case KindSynced():
            changes = f"{body.added} added, {body.changed} changed, {body.removed} removed"
            return f"{body.kind} at {body.resource_version} ({body.how}): {body.objects} objects, {changes}"
        case KindGap():
            reason = f": {body.reason}" if body.reason else ""
            return f"{body.kind} from {body.start or 'the start'}{reason}"
        case Cursor():
            return ", ".join(f"{kind} at {version}" for kind, version in body.positions.items())
        case ObjectUnread():
            return f"version {body.resource_version}: {_short(body.error)}"
        case LeadershipChanged():
            who = f"{body.holder}{', this scheduler' if body.ours else ''}" if body.holder else "nobody"
            return f"to {who}"
        case WriteFailed():
            code = f" {body.code}" if body.code else ""
            return f"{body.effect}:{code} {body.reason or _short(body.message)}".rstrip()
        case ShadowVerdict():
            return " ".join(filter(None, (body.verdict, body.node, body.reason)))
        case Scheduled():
            return f"on {body.node}{_fallback(body.fallback)}"
        case Unschedulable():
            return f"as record {body.same_as} says" if body.same_as else _short(body.message)
        case Waiting():
            return f"for {', '.join(body.plugins)}, on {body.node}, {format_duration(body.deadline - at)} at most"
        case Reserved():
            count = f"{len(body.writes)} {'write' if len(body.writes) == 1 else 'writes'}"
            return f"on {body.node}, until {count} for {', '.join(body.plugins)} are answered, {format_duration(body.deadline - at)} at most"
        case AttemptAborted():
            return f"{body.reason} (record {body.conflict})" if body.conflict else body.reason
        case AttemptError():
            return f"{body.plugin}: {_short(body.message)}" if body.plugin else _short(body.message)
        case Nominated():
            if not body.node:
                return "to no node any more"
            return f"to {body.node}" + (
                f", for which {', '.join(body.victims)} must go" if body.victims else ""
            )
        case Evicted():
            return f"from {body.node}, for {body.preemptor}"
        case EvictionRefused():
            return f"from {body.node}, for {body.preemptor}: {body.budget or body.message}"
        case PlacementChosen():
            return f"{body.placement}, {len(body.assignment)} pods, of {body.candidates} placements"
        case _:
            assert_never(body)


def _fallback(fallback: tuple[object, ...]) -> str:
    return ", with a spread constraint only preferred" if fallback else ""


def _short(message: str, limit: int = 120) -> str:
    first = message.split("\n", 1)[0]
    return first if len(first) <= limit else first[: limit - 1] + "…"


def in_full(record: Record) -> dict[str, Any]:
    """All of the record, as plain data."""
    try:
        body = decode_body(record)
    except LogError as error:
        shown: Any = {"unreadable": str(error)}
    else:
        shown = msgspec.to_builtins(body)
        if isinstance(body, ObjectPut):
            shown["object"] = to_builtins(body.object)
    return {
        "seq": record.seq,
        "at": format_time(record.at),
        "author": record.author,
        "kind": record.kind,
        **({"key": record.key} if record.key else {}),
        **({"cause": record.cause} if record.cause else {}),
        "body": shown,
        "digest": record.digest.hex(),
    }


def rendered(record: Record, output: str) -> str:
    """The record in the format that `-o` names: a line, a line of JSON, or a YAML document."""
    if output == "table":
        return line(record)
    if output == "json":
        return as_json_line(with_times(in_full(record)))
    return f"---\n{formatted(in_full(record), 'yaml')}"
