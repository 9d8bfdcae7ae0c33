"""One HTML file with a log in it: to attach to an incident, to open from disk, to keep.

What is in it: every chunk, every pod's story, for pods that are pending at the end the matrix of nodes and plugins, and records in full, the
newest first, as far as there is room. What was left out is said on the page and by the command.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidelog.api.errors import TidelogError
from tidelog.page.bundle import document
from tidelog.page.fold import Fold
from tidelog.page.settings import settings
from tidelog.page.source import LogSource, encode, full_record
from tidelog.page.stories import Stories
from tidelog.replay.why import Why, explain_now

BUCKETS = 64
"""Stories are packed in so many parts, of which the page unpacks what it is asked for."""
RECORDS_A_BLOCK = 1_000
PACKED_BYTES = 10 * 2**20
"""Records in full fill a file up to so much, packed; a third more as text."""
MATRICES_MAX = 200
"""So many pending pods get the verdict of every plugin on every node."""

Progress = Callable[[int, int], None]


class Exported(NamedTuple):
    """The result of an export."""

    text: str
    left_out: tuple[str, ...]


async def export(
    logs: Mapping[str, str | Path],
    *,
    first: int | None = None,
    last: int | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Make the page of one log, `{"a": path}`, or of two to compare. `first` and `last` are the records that it shows."""
    async with AsyncExitStack() as stack:
        blocks: list[tuple[str, bytes]] = []
        index: dict[str, Any] = {}
        notes: list[str] = []
        name = ""
        beside: LogSource | None = None
        for side, path in logs.items():
            source = await LogSource.open(path)
            stack.push_async_callback(source.close)
            name = name or source.name
            part = await _Side(source, first, last, progress, beside).made()
            beside = source
            index[side] = part.answers
            blocks += [(f"{side}-{block}", data) for block, data in part.blocks]
            notes += part.left_out
        blocks.append(("index", _packed(index)))
        return Exported(document(f"{name} – tidelog", blocks), tuple(notes))


class _Part(NamedTuple):
    answers: dict[str, Any]
    blocks: list[tuple[str, bytes]]
    left_out: list[str]


class _Side:
    """One of the logs."""

    def __init__(
        self,
        source: LogSource,
        first: int | None,
        last: int | None,
        progress: Progress | None,
        beside: LogSource | None,
    ) -> None:
        log = source.history.log
        self.source = source
        self.beside = beside
        self.first = max(first or 0, source.first)
        self.last = min(last or log.head.seq, log.head.seq)
        if source.first > log.head.seq:
            raise TidelogError(f"{log.name}: the log was compacted to its end: no record is left to show")
        if self.first > self.last:
            raise TidelogError(
                f"{log.name}: there is no record from {self.first if first is None else first} to {self.last}: the log has {source.first} to {log.head.seq}"
            )
        self.progress = progress
        self.left_out: list[str] = []

    async def made(self) -> _Part:
        fold = await self._gone_through()
        meta = {
            **self.source.meta(),
            "first": self.first,
            "head": fold.seq,
            "reached": fold.seq,
            "complete": True,
            "chunks": fold.chunks(),
        }
        blocks = [(f"chunk-{number}", fold.chunk(number)) for number in range(len(fold.chunks()))]
        blocks.append(("spans", _packed(fold.spans)))
        blocks += self._whys(fold)
        records, kept = await self._records(PACKED_BYTES - sum(len(block) for _, block in blocks))
        if self.left_out:
            meta["left"] = "; ".join(self.left_out)
        index = {
            "meta": meta,
            "backlog": fold.backlog.binned(1_200),
            "buckets": BUCKETS,
            "records": kept,
            "settings": settings(fold.core.configuration),
            "figures": None
            if self.first > self.source.first
            else await self.source.figures(self.beside, self.last),
        }
        return _Part(index, [*blocks, *records], self.left_out)

    async def _gone_through(self) -> Fold:
        history = self.source.history
        core = (
            await history.core_at(self.first - 1)
            if self.first > self.source.fold.seq + 1
            else self.source.fold.core
        )
        stories = Stories(core)
        fold = Fold(core, stories)
        async for batch in history.log.read_batches(self.first, self.last):
            for seq in fold.add(batch):
                if self.progress is not None:
                    self.progress(seq - self.first, self.last - self.first + 1)
        for _ in fold.finish():
            pass
        return fold

    def _whys(self, fold: Fold) -> Iterator[tuple[str, bytes]]:
        assert fold.stories is not None
        buckets: list[dict[str, Why]] = [{} for _ in range(BUCKETS)]
        examined = 0
        for name, story in fold.stories.told():
            why = explain_now(fold.core, f"Pod/{name}", story)
            if why.node or why.status == "deleted":
                why = replace(why, choice=fold.stories.choices.get(f"Pod/{name}"))
            if why.by_node:
                examined += 1
                if examined > MATRICES_MAX:
                    why = replace(why, by_node={})
            buckets[bucket_of(name)][name] = why
        if examined > MATRICES_MAX:
            self.left_out.append(
                f"the plugins' verdicts for {examined - MATRICES_MAX} of {examined} pending pods"
            )
        if fold.stories.unscored:
            self.left_out.append(f"the scores of {fold.stories.unscored} placed pods")
        for number, bucket in enumerate(buckets):
            yield f"why-{number}", _packed(bucket)

    async def _records(self, room: int) -> tuple[list[tuple[str, bytes]], list[tuple[int, int]]]:
        """The records in full, in blocks, newest first as long as there is room."""
        found: list[tuple[str, bytes]] = []
        kept: list[tuple[int, int]] = []
        end = self.last
        while end >= self.first:
            begin = max(self.first, end - RECORDS_A_BLOCK + 1)
            block = _packed([full_record(record) async for record in self.source.history.records(begin, end)])
            room -= len(block)
            if room < 0:
                self.left_out.append(f"records {self.first} to {end} in full")
                break
            found.append((f"records-{begin}", block))
            kept.append((begin, end))
            end = begin - 1
        return found, kept


def bucket_of(text: str) -> int:
    """FNV-1a over UTF-16 units, as `assets/port.js` computes it."""
    found = 0x811C9DC5
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        found = ((found ^ (low | high << 8)) * 0x01000193) & 0xFFFFFFFF
    return found % BUCKETS


def _packed(value: object) -> bytes:
    return gzip.compress(encode(value), 6, mtime=0)
