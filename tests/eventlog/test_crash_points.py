"""A crash before and after every step that writes: what was acknowledged is there afterwards, once, and work goes on.

The log's files are copied at each step, as a kill at that moment would leave them, while one run goes on; then every copy is
opened. `CRASH_EVENTS=500` enumerates more than 2,000 points.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tidelog.api.errors import LogDamaged
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.repair import repair
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.transfer import export_log, import_log
from tidelog.eventlog.verify import verify
from tidelog.testing.faulty_disk import FaultyDisk

EVENTS = int(os.environ.get("CRASH_EVENTS", "40"))


class Camera:
    """Copies the log's files at each step, with what was acknowledged by then."""

    def __init__(self, log: Path, copies: Path) -> None:
        self.log = log
        self.copies = copies
        self.taken: list[tuple[str, int]] = []
        self.acknowledged = 0
        self.on = True

    def __call__(self, step: str) -> None:
        if not self.on:
            return
        folder = self.copies / str(len(self.taken))
        folder.mkdir()
        for file in self.log.parent.glob(self.log.name + "*"):
            if not file.name.endswith(("-shm", ".lock")):
                shutil.copy(file, folder)
        self.taken.append((step, self.acknowledged))


@pytest.fixture
def camera(tmp_path: Path) -> Camera:
    (tmp_path / "live").mkdir()
    (tmp_path / "copies").mkdir()
    return Camera(tmp_path / "live" / "c.db", tmp_path / "copies")


def tick(number: int) -> Draft:
    return Draft(body=Tick(), author="cluster", key=f"Pod/default/web-{number}")


async def keys(path: Path) -> list[str]:
    async with open_reader(path) as reader:
        return [record.key async for record in reader.read()]


async def test_nothing_acknowledged_is_lost_at_any_step(
    camera: Camera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.eventlog.sqlite.CHECKPOINT_BYTES", 700)
    log = await open_log(camera.log, disk=FaultyDisk(camera))
    number = 0
    while number < EVENTS:
        size = 1 + number % 3
        await log.append([tick(number + i) for i in range(size)])
        number += size
        camera.acknowledged = number
        if number % 20 == 0:
            await log.put_snapshot("objects", log.head.seq, b"state" * 300)
    await log.compact(log.head.seq // 40 * 20)
    await log.close()
    camera.on = False

    for copy, (step, acknowledged) in enumerate(camera.taken):
        path = camera.copies / str(copy) / "c.db"
        async with open_log(path) as again:
            where = f"copy {copy}, {step}"
            assert acknowledged <= again.head.seq <= acknowledged + 3, where
            found = [record.key async for record in again.read()]
            first = again.anchor.seq
            assert found == [f"Pod/default/web-{n}" for n in range(first, again.head.seq)], where
            await again.append([tick(again.head.seq)])
        async with open_reader(path) as reader:
            await verify(reader)
        await asyncio.to_thread(shutil.rmtree, camera.copies / str(copy))

    steps = {step for step, _ in camera.taken}
    assert {"after create", "before rename", "after commit", "before sync", "after checkpoint"} <= steps
    assert len(camera.taken) > 4 * EVENTS, len(camera.taken)


async def test_interrupted_repair_is_finished_by_the_next_one(camera: Camera) -> None:
    async with open_log(camera.log) as log:
        for number in range(10):
            await log.append([tick(number)])
    content = bytearray(camera.log.read_bytes())
    content[content.index(b"Pod/default/web-6")] ^= 1
    camera.log.write_bytes(content)

    done = await repair(camera.log, accept_loss=True, clock=lambda: 1, disk=FaultyDisk(camera))
    expected = await keys(camera.log)
    camera.on = False

    assert (done.kept, done.lost_last) == (6, 10)
    for copy, (step, _) in enumerate(camera.taken):
        path = camera.copies / str(copy) / "c.db"
        where = f"copy {copy}, {step}"
        try:
            found = await keys(path)
        except LogDamaged:
            await repair(path, accept_loss=True, clock=lambda: 1)
            found = await keys(path)
        assert found == expected, where
        backups = [b for b in path.parent.glob("*.damaged-*") if b.read_bytes() == bytes(content)]
        assert len(backups) == 1, where


async def test_crash_while_a_log_is_created_leaves_none_or_a_usable_one(camera: Camera) -> None:
    store = await SqliteStore.open(camera.log, disk=FaultyDisk(camera))
    camera.on = False
    await store.close()

    for copy in range(len(camera.taken)):
        async with open_log(camera.copies / str(copy) / "c.db") as log:
            assert log.head.seq == 0
            await log.append([tick(0)])


@pytest.mark.parametrize("what", ["new", "repair", "import"])
async def test_names_are_durable_before_anything_rests_on_them(what: str, tmp_path: Path) -> None:
    """A file that was made or renamed is gone after a power loss, or has its old name, until its folder was synced."""
    steps: list[str] = []
    disk, path = FaultyDisk(steps.append), tmp_path / "c.db"
    if what == "new":
        async with open_log(path, disk=disk) as log:
            opened = len(steps)
            await log.append([Draft(body=Tick(), author="cluster")])
    else:
        async with open_log(path) as log:
            await log.append([Draft(body=Tick(), author="cluster")])
        if what == "repair":
            path.with_name("c.db.head").unlink()
            await repair(path, accept_loss=True, disk=disk)
        else:
            lines: list[bytes] = []
            async with open_reader(path) as reader:
                await export_log(reader, lines.append)
            await import_log(tmp_path / "d.db", b"".join(lines).splitlines(), disk=disk)
        opened = len(steps)

    done = [step.removeprefix("after ") for step in steps[:opened] if step.startswith("after")]
    renames = [place for place, step in enumerate(done) if step == "rename"]
    assert renames
    for place in renames:
        # Between a rename and its sync nothing is written: it would rest on the name.
        following = done[place + 1 :]
        synced = following.index("sync_folder")
        assert set(following[:synced]) <= {"rename"}, done
