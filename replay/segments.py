"""Verifying a log file: as a whole, from its newest snapshot, or in segments between snapshots on all cores.

A segment begins with the state of one snapshot and ends where the next one was taken, and there its state must be that of the next:
compared, as at each snapshot of what changed that lies between. So the segments together prove what one pass from the first record proves, and each can be done by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.errors import LogError, LogOvertaken
from tidelog.eventlog import password
from tidelog.eventlog.store import Snapshot, SnapshotInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.history import History, open_history
from tidelog.replay.states import NAMES, ObjectsGone, loaded
from tidelog.replay.verify import Difference, Progress, Report, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT, capture_state

SEGMENT_RECORDS_MIN = 20_000
"""Below this a process of its own costs more than it saves; measured at 0.4 s a process."""

BEGINNINGS_MAX = 5
"""So often a verification begins that is overtaken by compactions; arbitrary."""


class Segment(NamedTuple):
    """Records to verify in one go, and from where."""

    start: int
    """The snapshot to begin with; 0 for the first record."""
    end: int


async def verify_log(
    path: str | os.PathLike[str],
    *,
    registry: Registry | None = None,
    from_snapshot: bool = False,
    sample: int = 1,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Verify a log file. With a `registry` of the caller's own it is done in this process, in one pass.

    If somebody drops records that were still to be read, it begins again behind them. Raises `LogOvertaken` when that happens too often.
    """
    read = -1
    failure: LogError | None = None
    for _ in range(BEGINNINGS_MAX):
        async with open_history(path, registry) as history:
            head, begin = history.log.head.seq, await history.first_state()
            snapshots = await history.snapshots()
        if failure is not None and begin <= read:
            raise failure
        read = begin
        segments = _segments(head, begin, snapshots, from_snapshot=from_snapshot)
        workers = min(jobs or os.cpu_count() or 1, len(segments))
        try:
            if registry is not None or workers < 2 or (not jobs and head < SEGMENT_RECORDS_MIN):
                start = segments[0].start if segments else begin  # Everything may have been compacted.
                return await _verify_segment(path, Segment(start, head), registry, sample, progress)
            return await asyncio.to_thread(_in_parallel, os.fspath(path), segments, sample, workers, progress)
        except LogError as error:
            failure = error
    raise LogOvertaken(os.fspath(path), read) from failure


def _segments(head: int, begin: int, snapshots: Sequence[int], *, from_snapshot: bool) -> list[Segment]:
    """The parts of the log, in order; a compacted log begins with its oldest snapshot."""
    starts = [seq for seq in snapshots if seq < head]
    if from_snapshot and starts:
        starts = starts[-1:]
    elif not begin:
        starts = [0, *starts]
    ends = [*starts[1:], head]
    return [Segment(start, end) for start, end in pairwise([*starts, ends[-1]])] if starts else []


async def _verify_segment(
    path: str | os.PathLike[str],
    segment: Segment,
    registry: Registry | None,
    sample: int,
    progress: Progress | None,
) -> Report:
    async with open_history(path, registry) as history:
        core = await history.core_from_snapshot(segment.start) if segment.start else Core(history.registry)
        records = [record async for record in history.records(core.seq + 1, segment.end)]
        passed = [info for info in await history.log.snapshots() if segment.start < info.seq <= segment.end]
        passage = _Passage(history, core, [info for info in passed if info.name in NAMES])
        begin, found = 0, []
        for stop in dict.fromkeys([*sorted(passage.infos), segment.end]):
            end = begin + stop - core.seq
            told = progress and partial(_told, progress, begin, len(records))
            found.append(
                verify(
                    records[begin:end],
                    history.registry,
                    core=core,
                    progress=told,
                    sample=sample,
                    digest=False,
                )
            )
            begin = end
            if found[-1].is_identical and (difference := await passage.difference()) is not None:
                found[-1] = replace(found[-1], first_difference=difference)
            if not found[-1].is_identical:
                break
    return _joined(found)


def _told(progress: Progress, before: int, of: int, done: int, _of: int) -> None:
    progress(before + done, of)


class _Passage:
    """Compares the state of a verification with the snapshots that it passes: nothing was in flight where they were taken.

    Computed once more, a snapshot has the same bytes. Only where it has not, the states are loaded and compared. The objects are at whole ones.
    """

    def __init__(self, history: History, core: Core, infos: Iterable[SnapshotInfo]) -> None:
        self.history = history
        self.core = core
        self.infos: dict[int, list[SnapshotInfo]] = {}
        for info in infos:
            self.infos.setdefault(info.seq, []).append(info)

    async def difference(self) -> Difference | None:
        """Complaints about the snapshots that were taken here."""
        infos = self.infos.pop(self.core.seq, [])
        if not infos or self.core.in_flight:
            return None
        blob = capture_state(self.core).blob()
        for info in infos:
            stored = await self.history.log.stored_snapshot(info)
            if stored is not None and stored.is_sound and not await self._is_this(stored, blob):
                return Difference(
                    seq=info.seq,
                    attempt=0,
                    key="",
                    what=f"the state computed up to here is not that of the snapshot `{info.name}` taken here",
                )
        return None

    async def _is_this(self, stored: Snapshot, blob: bytes) -> bool:
        if blob == stored.blob and stored.name != SNAPSHOT:
            return True
        try:
            state = await loaded(self.history.log, self.history.registry, stored)
        except ObjectsGone:
            state = None
        if state is None:
            return True  # It is passed over by everybody, as is one of another version.
        if blob != stored.blob:
            return state.core.digest() == self.core.digest()
        return state.core.objects == self.core.objects


def _work(path: str, segment: Segment, sample: int) -> Report:
    """The work of a child process."""
    return asyncio.run(_verify_segment(path, segment, None, sample, None))


def _in_parallel(
    path: str, segments: Sequence[Segment], sample: int, workers: int, progress: Progress | None
) -> Report:
    found: dict[int, Report] = {}
    done = 0
    with ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=password.give, initargs=(password.kept(),)
    ) as pool:
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
