"""Replay: how fast a log is verified, recovered, and asked about an earlier moment.

    tidelog bench replay            or            .venv/bin/python benchmarks/replay.py

- *verify*: decisions recomputed a second, in this process alone, beside the rate at which the same decisions were made;
- *recover*: the state from a snapshot and 10,000 records behind it, and from the log's first record;
- *at*: opening the log file and computing the state at a moment, with what a running scheduler would have kept: typically half way between
  the last two snapshots of the state, at worst just before the last one, with nearly all objects and as many records to play back as ever;
- *why*: the whole story of a pod that came late, from the file.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and a neighbour is called like a standard module.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.daemon.process.runtime import Limits
from tidelog.daemon.process.snapshots import state_every
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import BETWEEN, Snapshot
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.playback import recover
from tidelog.replay.verify import verify
from tidelog.replay.why import why
from tidelog.scheduler.state import SNAPSHOT, capture_state, encode_state, load_state
from tidelog.testing.builders import HOSTNAME, ZONE, node, pod

BATCH = 100
"""So many pods come at once."""

TAIL = 10_000
"""Records behind the snapshot."""

WHOLE_EVERY = Limits().snapshot_every

T = TypeVar("T")


def run(*, nodes: int = 100, pods: int = 20_000) -> dict[str, Any]:
    """Make a log of so many pods on so many nodes, and measure."""
    made, seconds = timed(lambda: _make(nodes, pods))
    driver, snapshots, kept = made
    records = driver.records
    report, verifying = timed(lambda: verify(records, Registry(), digest=False))
    assert report.is_identical, report.first_difference
    _, recovering = timed(lambda: recover(records, Registry()))
    place = min(snapshots, key=lambda seq: abs(len(records) - TAIL - seq))
    blob = snapshots[place][1]
    core, loading = timed(lambda: load_state(blob, Registry()))
    tail, tailing = timed(lambda: recover(records[place:], Registry(), core=core))
    assert tail.digest() == driver.core.digest()
    return {
        "records": len(records),
        "outcomes": report.outcomes,
        "decided_per_second": round(report.outcomes / seconds),
        "verified_per_second": round(report.outcomes / verifying),
        "recovered_from_the_start_seconds": round(recovering, 3),
        "recovered_records_per_second": round(len(records) / recovering),
        "recovered_from_a_snapshot": {
            "snapshot_megabytes": round(len(blob) / 2**20, 1),
            "load_seconds": round(loading, 3),
            "records_behind": len(records) - place,
            "tail_seconds": round(tailing, 3),
            "seconds": round(loading + tailing, 3),
        },
        **asyncio.run(_ask(driver, kept)),
    }


class Kept(NamedTuple):
    """The snapshots that a running scheduler keeps at some record."""

    seq: int
    state: bytes
    objects: bytes
    """Where it is whole."""


def _make(nodes: int, pods: int) -> tuple[Driver, dict[int, tuple[str, bytes]], list[Kept]]:
    """The log, the states at some places near its end, and what would have been kept on the way."""
    driver = Driver()
    driver.start()
    per_node = pods // nodes + BATCH
    for i in range(nodes):
        name = f"node-{i:05}"
        made = node(name).label({ZONE: f"zone-{i % 3}", HOSTNAME: name})
        driver.put(made.capacity(cpu=str(per_node), memory="4096Gi", pods=per_node).build())
    snapshots = {}
    kept: list[Kept] = []
    table, whole = ObjectTable(), 0
    base = pod("base").label(app="web").request(cpu="500m", memory="100Mi").scheduler("default-scheduler")
    for start in range(0, pods, BATCH):
        driver.put(*(base.named(f"pod-{i:06}").build() for i in range(start, min(start + BATCH, pods))))
        driver.settle()
        seq, objects = driver.core.seq, len(driver.core.objects)
        if seq - (kept[-1].seq if kept else 0) >= state_every(objects):
            encoded = b""
            if not kept or seq - whole >= max(WHOLE_EVERY, objects):
                for record in driver.records[table.seq :]:
                    table.apply(record)
                encoded, whole = table.encode(), seq
            kept.append(Kept(seq, capture_state(driver.core).blob(), encoded))
        left = 2 * (pods - start - BATCH)
        if left <= TAIL < left + 2 * BATCH or start + BATCH >= pods > 0 == len(snapshots):
            snapshots[driver.core.seq] = (SNAPSHOT, encode_state(driver.core))
    return driver, snapshots, kept


def _moments(driver: Driver, kept: list[Kept]) -> dict[str, int]:
    """The records to ask about: near the end, where most objects are."""
    if len(kept) < 2:
        return {"typical": len(driver.records) // 2, "worst": len(driver.records)}
    before, last = kept[-2].seq, kept[-1].seq
    return {"typical": (before + last) // 2, "worst": last - 1}


async def _keep(path: Path, driver: Driver, kept: list[Kept]) -> None:
    store = await SqliteStore.open(path, create=False, what="the benchmark")
    for k in kept:
        chain = driver.records[k.seq - 1].digest
        if k.objects:
            await store.put_snapshot(Snapshot.make(OBJECTS, k.seq, chain, k.objects))
        name = SNAPSHOT if k.objects else SNAPSHOT + BETWEEN
        await store.put_snapshot(Snapshot.make(name, k.seq, chain, k.state))
    await store.close()


async def _ask(driver: Driver, kept: list[Kept]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        await write_log(path, driver.records)
        await _keep(path, driver, kept)
        found: dict[str, Any] = {}
        for name, seq in _moments(driver, kept).items():
            started = perf_counter()
            async with open_history(path, Registry()) as history:
                core = await history.core_at(seq)
            found[f"at_{name}"] = {
                "seq": seq,
                "objects": len(core.objects),
                "seconds": round(perf_counter() - started, 3),
            }
        started = perf_counter()
        key = driver.records[-2 * BATCH].key
        async with open_history(path, Registry()) as history:
            span = await history.span_of(key)
            assert span is not None
            core = await history.core_from_snapshot(span[0].seq - 1)
            records = [record async for record in history.records(core.seq + 1)]
        why(records, core, key)
        found["why_seconds"] = round(perf_counter() - started, 3)
    return found


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return its result, and how long it took."""
    started = perf_counter()
    result = work()
    return result, perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
