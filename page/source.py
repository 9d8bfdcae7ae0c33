"""The questions that the page asks about a log, answered as JSON. Read-only, of a log that somebody else may be writing.

    meta                     name, first and last record, chunks, how far the log has been gone through
    state?seq=               the rows after a record, where no chunk has it yet
    backlog?bins=            how many pods waited where over the whole log, and the marks
    chunk?n=                 a state and the steps behind it (`tidelog.page.fold`); with after=SEQ only the steps behind that record
    spans?first=&last=       which pod was where in that part of the log
    why?pod=&seq=            what `tidelog why POD --at SEQ -o json` prints, with times as integers
    why-not?pod=&node=&seq=  what `tidelog why-not` prints
    record?seq=              what `tidelog log show SEQ -o json` prints, and its digest
    figures                  what `replay what-if` compares logs by
    settings                 the configuration in force at the end, a line for each setting

The log is gone through in the background (`grow`), a slice at a time; what is asked about a moment that has not been reached is computed for
it alone.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from tidelog.api.errors import UsageError
from tidelog.cli.text.records import in_full
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record
from tidelog.page.fold import SHOWN, Fold, Span, line_of
from tidelog.page.rows import in_ms, row_of
from tidelog.page.settings import settings
from tidelog.plugins.registry import Registry, installed_plugins
from tidelog.replay.figures import Figures, figures, figures_and_waits
from tidelog.replay.history import History

SLICE = 500
"""So many records are gone through between two questions: some tens of milliseconds."""
SPANS_MAX = 50_000
"""So many spans are sent at most; the page says how many were left out."""

encode = msgspec.json.Encoder(order="deterministic").encode


class Reply(NamedTuple):
    """JSON, perhaps gzipped."""

    body: bytes
    gzipped: bool = False
    status: int = 200


class LogSource:
    """One log, opened for the page."""

    def __init__(self, history: History, fold: Fold) -> None:
        self.history = history
        self.fold = fold
        self.first = fold.seq + 1
        """The first record that can be shown."""

    @classmethod
    async def open(cls, path: str | os.PathLike[str], registry: Registry | None = None) -> Self:
        """Open the log, and stand before the first record that can be explained."""
        history = History(await open_reader(path), registry or installed_plugins())
        try:
            core = await history.core_from_snapshot(await history.first_state())
        except BaseException:
            await history.close()
            raise
        return cls(history, Fold(core))

    async def close(self) -> None:
        """Close the log."""
        await self.history.close()

    @property
    def name(self) -> str:
        """The file's name, without the way to it."""
        return Path(self.history.log.name).name

    @property
    def head(self) -> int:
        """The last record, when the log was last looked at."""
        return self.history.log.head.seq

    # --- going through ------------------------------------------------------------------------------------------------

    async def grow(self) -> bool:
        """Go through some more of the log; return whether there was anything to do."""
        log = self.history.log
        log.refresh()
        done = self.fold.read
        if done >= log.head.seq:
            return False
        async for batch in log.read_batches(done + 1, min(done + SLICE, log.head.seq)):
            for _ in self.fold.add(batch):
                pass
        return True

    # --- answers ------------------------------------------------------------------------------------------------------

    async def answer(
        self, question: str, query: Mapping[str, str], *, beside: LogSource | None = None
    ) -> Reply:
        """Answer a question; raises TidelogError for one that has no answer. `beside` is the log that this one is compared with."""
        match question:
            case "meta":
                return Reply(encode(self.meta()))
            case "backlog":
                return Reply(encode(self.fold.backlog.binned(_number(query, "bins", 1_200, most=10_000))))
            case "chunk":
                number = _number(query, "n", 0)
                if "after" in query:
                    return Reply(self.fold.steps(number, _number(query, "after", 0)))
                return Reply(self.fold.chunk(number), gzipped=True)
            case "spans":
                first, last = _number(query, "first", 0), _number(query, "last", self.fold.seq)
                return _zipped(self.spans(first, last))
            case "state":
                return _zipped(await self.state(_number(query, "seq", self.history.log.head.seq)))
            case "why":
                found = await self.why(_text(query, "pod"), _number(query, "seq", self.history.log.head.seq))
                return _zipped(found)
            case "why-not":
                seq = _number(query, "seq", self.history.log.head.seq)
                return _zipped(await self.why_not(_text(query, "pod"), _text(query, "node"), seq))
            case "record":
                return Reply(encode(await self.record(_number(query, "seq", 0))))
            case "figures":
                return Reply(encode(await self.figures(beside)))
            case "settings":
                return Reply(encode(settings(self.fold.core.configuration)))
            case _:
                raise UsageError(f"there is no question {question!a}")

    def meta(self) -> dict[str, Any]:
        """Say what there is."""
        log, fold = self.history.log, self.fold
        return {
            "log": self.name,
            "first": self.first,
            "head": log.head.seq,
            "reached": fold.seq,
            "complete": fold.read >= log.head.seq,
            "chunks": fold.chunks(),
            "at": in_ms(fold.core.at),
        }

    def spans(self, first: int, last: int) -> dict[str, Any]:
        """Return the spans that reach into these records, the newest if there are too many."""
        found = [span for span in self.fold.spans if _overlaps(span, first, last)]
        return {"spans": found[-SPANS_MAX:], "leftOut": max(len(found) - SPANS_MAX, 0)}

    async def state(self, seq: int) -> dict[str, Any]:
        """Compute the rows after a record from the nearest snapshot."""
        core = await self.history.core_at(seq)
        keys = (key for key in core.objects if key.partition("/")[0] in SHOWN)
        rows = {key: row_of(core, key) for key in keys}
        log = self.history.log
        step = line_of(await log.record(core.seq)) if core.seq > log.anchor.seq else None
        return {"seq": core.seq, "at": in_ms(core.at), "rows": rows, "step": step}

    async def why(self, pod: str, seq: int) -> Any:
        """Return the pod's story up to a record."""
        return await self.history.why(f"Pod/{pod}", seq=seq)

    async def why_not(self, pod: str, node: str, seq: int) -> Any:
        """Return every plugin's verdict on one node."""
        return await self.history.why_not(f"Pod/{pod}", node, seq=seq)

    async def record(self, seq: int) -> dict[str, Any]:
        """Return a record in full."""
        return full_record(await self.history.log.record(seq))

    async def figures(self, beside: LogSource | None = None, last: int | None = None) -> Figures:
        """Sum the log up, from where it begins. Waits are compared with those `beside` where both logs begin alike: one may be a what-if, which decides
        without delay, and that is no merit of its configuration."""
        beginning, records = await self._summed(last)
        waits = None
        if beside is not None:
            before, others = await beside._summed(last and beside.history.log.head.seq)
            if others and records and others[0].digest == records[0].digest:
                _, waits = figures_and_waits(others, beginning=before)
        return figures(records, waits, beginning)

    async def _summed(self, last: int | None) -> tuple[bytes, list[Record]]:
        begin = self.first - 1
        beginning = (await load_objects(self.history.log, begin)).encode() if begin else b""
        end = self.fold.seq if last is None else last
        return beginning, [record async for record in self.history.records(self.first, end)]


def full_record(record: Record) -> dict[str, Any]:
    """Return a record as the page shows it."""
    return {**in_full(record), "digest": record.digest.hex()}


def _zipped(found: object) -> Reply:
    return Reply(gzip.compress(encode(found), 1, mtime=0), gzipped=True)


def _overlaps(span: Span, first: int, last: int) -> bool:
    return span.first <= last and (not span.last or span.last >= first)


def _number(query: Mapping[str, str], name: str, default: int, most: int = 2**53) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= most):
        raise UsageError(f"{name}={text[:40]!a}: must be a whole number up to {most}")
    return int(text)


def _text(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "")
    if not text:
        raise UsageError(f"{name} is missing")
    return text
