"""Verifying a log file: as a whole, from its newest snapshot, or in segments between snapshots on all cores.

A segment begins with the state of one snapshot and ends where the next one was taken, and there its state must be that of the next:
compared by digest. So the segments together prove what one pass from the first record proves, and each can be done by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tidelog.plugins.registry import Registry
from tidelog.replay.history import open_history
from tidelog.replay.verify import Difference, Progress, Report, verify

SEGMENT_RECORDS_MIN = 20_000
"""Below this a process of its own costs more than it saves; measured at 0.4 s a process."""


class Segment(NamedTuple):
    """Records to verify in one go, and from where."""

    start: int
    """The snapshot to begin with; 0 for the first record."""
    end: int
    closes: bool
    """A snapshot was taken at `end`: the state there must be equal."""


async def verify_log(
    path: str | os.PathLike[str],
    *,
    registry: Registry | None = None,
    from_snapshot: bool = False,
    sample: int = 1,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Verify a log file. With a `registry` of the caller's own it is done in this process, in one pass."""
    async with await open_history(path, registry) as history:
        head, anchor, snapshots = history.log.head.seq, history.log.anchor.seq, await history.snapshots()
    segments = _segments(head, anchor, snapshots, from_snapshot=from_snapshot)
    workers = min(jobs or os.cpu_count() or 1, len(segments))
    if registry is not None or workers < 2 or (not jobs and head < SEGMENT_RECORDS_MIN):
        start = segments[0].start if segments else 0
        return await _verify_segment(path, Segment(start, head, False), registry, sample, progress)
    return await asyncio.to_thread(_in_parallel, Path(path), segments, sample, workers, progress)


def _segments(head: int, anchor: int, snapshots: Sequence[int], *, from_snapshot: bool) -> list[Segment]:
    """The parts of the log, in order; a compacted log begins with its oldest snapshot."""
    starts = [seq for seq in snapshots if seq < head]
    if from_snapshot and starts:
        starts = starts[-1:]
    elif not anchor:
        starts = [0, *starts]
    ends = [*starts[1:], head]
    return (
        [Segment(start, end, end in snapshots) for start, end in pairwise([*starts, ends[-1]])]
        if starts
        else []
    )


async def _verify_segment(
    path: str | os.PathLike[str],
    segment: Segment,
    registry: Registry | None,
    sample: int,
    progress: Progress | None,
) -> Report:
    async with await open_history(path, registry) as history:
        core = await history.core_from_snapshot(segment.start) if segment.start else None
        first = core.seq + 1 if core is not None else 0
        records = await history.records(first, segment.end)
        report = verify(
            records, history.registry, core=core, progress=progress, sample=sample, digest=segment.closes
        )
        if not segment.closes or not report.is_identical:
            return report
        closing = (await history.core_from_snapshot(segment.end)).digest()
    if report.digest == closing:
        return report
    difference = Difference(
        seq=segment.end,
        attempt=0,
        key="",
        what="the state computed up to here is not that of the snapshot taken here",
        recorded={"digest": closing},
        computed={"digest": report.digest},
    )
    return Report(outcomes=report.outcomes, identical=report.identical, first_difference=difference)


def _work(path: Path, segment: Segment, sample: int) -> Report:
    """What a process of its own does."""
    return asyncio.run(_verify_segment(path, segment, None, sample, None))


def _in_parallel(
    path: Path, segments: Sequence[Segment], sample: int, workers: int, progress: Progress | None
) -> Report:
    found: dict[int, Report] = {}
    done = 0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_work, path, segment, sample): i for i, segment in enumerate(segments)}
        for future in as_completed(futures):
            number = futures[future]
            found[number] = future.result()
            done += segments[number].end - segments[number].start
            if progress is not None:
                progress(done, segments[-1].end - segments[0].start)
    reports = [found[i] for i in range(len(segments))]
    return _joined(reports)


def _joined(reports: Sequence[Report]) -> Report:
    """The first difference counts; what was verified behind it is left out, as one pass would."""
    outcomes = identical = 0
    for report in reports:
        outcomes += report.outcomes
        identical += report.identical
        if report.first_difference is not None:
            return Report(outcomes=outcomes, identical=identical, first_difference=report.first_difference)
    return Report(outcomes=outcomes, identical=identical, digest=reports[-1].digest)
