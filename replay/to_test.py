"""A log, or a slice of one, as a pytest file: the same facts, and the outcomes that they led to.

The test holds the records themselves, compressed, beside a readable list of what was decided; so a report from production becomes a test of
the repository, or of a plugin author, in one step. It asserts that today's code still comes to these outcomes, byte for byte.

A slice that does not begin with the log's first record holds the scheduler's state before it. Such a test is bound to the version of the state's
bytes, as snapshots are; one from the first record is not.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from tidelog.api.errors import TidelogError, printable
from tidelog.eventlog.records import OUTCOME_KINDS, Record, decode_outcome
from tidelog.plugins.registry import Registry
from tidelog.replay.files import rechained
from tidelog.replay.history import History
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import encode_state, load_state

LINE = 100
LISTED_MAX = 200
"""Number of outcomes listed readably; the others are asserted all the same."""


def packed(records: Iterable[Record]) -> str:
    """Records as text; `unpacked` is the reverse."""
    raw = msgspec.msgpack.encode([msgspec.structs.astuple(record)[:7] for record in records])
    return base64.b85encode(zlib.compress(raw, 9)).decode()


def unpacked(text: str) -> list[Record]:
    """The records of a packed text, chained anew."""
    rows = msgspec.msgpack.decode(zlib.decompress(base64.b85decode("".join(text.split()))))
    return rechained(
        [
            Record(seq, at, author, kind, key, cause, body, b"")
            for seq, at, author, kind, key, cause, body in rows
        ]
    )


def packed_state(core: Core) -> str:
    """A state with nothing in flight as text; `unpacked_state` is the reverse."""
    return base64.b85encode(zlib.compress(encode_state(core), 9)).decode()


def unpacked_state(text: str, registry: Registry) -> Core:
    """The state of a packed text."""
    core = load_state(zlib.decompress(base64.b85decode("".join(text.split()))), registry)
    if core is None:
        raise TidelogError(
            "the state was written by another version of tidelog: write the test anew from its log"
        )
    return core


async def slice_of(history: History, first: int | None, last: int | None) -> tuple[Core | None, list[Record]]:
    """Records, and the state before them (None: they begin with the log), from `first` or as far before it as attempts were in flight there."""
    start = max((first or 1) - 1, await history.first_state())
    while early := [
        body.observed for r in await history.later(start) if (body := decode_outcome(r)) is not None
    ]:
        start = min(early)
    core = await history.core_at(start) if start else None
    return core, [record async for record in history.records(start + 1, last)]


def to_test(records: Sequence[Record], name: str, source: str, core: Core | None = None) -> str:
    """The text of a pytest file. `core`: the state before the records, unless they begin with the log's first. Their outcomes are asserted."""
    if not any(record.kind in OUTCOME_KINDS for record in records):
        raise TidelogError(
            f"nothing was decided in these {len(records)} records, so there is nothing to assert"
        )
    outcomes = [record for record in records if record.kind in OUTCOME_KINDS]
    lines = "\n".join(f"    {_as_code(_listed(record))}," for record in outcomes[:LISTED_MAX])
    more = len(outcomes) - min(len(outcomes), LISTED_MAX)
    note = f"\n# … and {more} more, which are compared as well." if more else ""
    return _TEMPLATE.format(
        name=name,
        source=re.sub(r'[\\"]', "", printable(source)),
        count=len(records),
        outcomes=lines,
        note=note,
        data=_wrapped(packed(records)),
        state="" if core is None else _STATE.format(data=_wrapped(packed_state(core)), seq=core.seq),
        imported="" if core is None else ", unpacked_state",
        begun="" if core is None else ", core=unpacked_state(STATE, installed_plugins())",
    )


def _wrapped(text: str) -> str:
    return "\n".join(f"    {text[i : i + LINE]}" for i in range(0, len(text), LINE))


def _listed(record: Record) -> tuple[int, str, str, str]:
    """Number, kind, key, and the node or the plugins."""
    body = decode_outcome(record)
    node = getattr(body, "node", "")
    said = node or ", ".join(getattr(body, "plugins", ()))
    return record.seq, record.kind, record.key, said


def _as_code(row: tuple[int, str, str, str]) -> str:
    seq, *texts = row
    return f"({seq}, {', '.join(map(_literal, texts))})"


def _literal(text: str) -> str:
    """A string in Python. Nothing in it may play with the terminal or the editor of who reads the test."""
    return msgspec.json.encode(text).decode() if text.isascii() and text.isprintable() else ascii(text)


def summary(records: Iterable[Record]) -> list[tuple[int, str, str, str]]:
    """The decisions, readably, for comparison with the list in a test."""
    return [_listed(record) for record in records if record.kind in OUTCOME_KINDS]


_TEMPLATE = '''"""{source}: {count} records, and the outcomes that they led to.

Written by `tidelog log to-test`. RECORDS holds the log, OUTCOMES what was decided in it.
"""

from tidelog.plugins.registry import installed_plugins
from tidelog.replay.to_test import summary, unpacked{imported}
from tidelog.replay.verify import verify

# (record, outcome, about whom, node or plugins)
OUTCOMES = [
{outcomes}
]{note}

RECORDS = """
{data}
"""
{state}

def test_{name}_still_comes_to_the_recorded_outcomes() -> None:
    records = unpacked(RECORDS)

    report = verify(records, installed_plugins(){begun})

    assert report.first_difference is None
    assert summary(records)[: len(OUTCOMES)] == OUTCOMES
'''

_STATE = '''
# The scheduler's state after record {seq}.
STATE = """
{data}
"""
'''
