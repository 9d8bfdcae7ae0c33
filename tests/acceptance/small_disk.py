"""A disk of our own, which can be full or read-only: `unshare --user --map-root-user --mount python -m tests.acceptance.small_disk CASE FOLDER`.

In a name space of its own a process may mount a small file system in memory, without being root, and nobody else sees it. Each case drives
a real daemon on it, and leaves its log in the folder. Ends with 0 if all that was to be seen was seen.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.acceptance.daemons import Daemon, daemon, placements, tidelog
from tests.acceptance.load import Load, check_nothing_lost, nodes
from tests.acceptance.test_real_faults import all_records, health
from tests.patience import until
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.daemon.intake.messages import Apply, read_answer, write_request
from tidelog.eventlog.socket import connect
from tidelog.testing import builders as b

SIZE_MIB = 24
RESERVE_KIB = SIZE_MIB * 1024 // 20
"""With less room than this, nothing is begun (`tidelog.eventlog.sqlite`)."""


class Disk:
    """The small file system, mounted in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        self._ballast = self.folder / "ballast"
        mount("-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", self.folder)

    def leave(self, kib: int) -> None:
        """Fill it up to this."""
        with self._ballast.open("ab", buffering=0) as file:
            used = shutil.disk_usage(self.folder)
            file.write(bytes(max(0, used.free - kib * 1024)))

    def make_room(self) -> None:
        self._ballast.unlink()

    def allow_writes(self, allowed: bool) -> None:
        mount("-o", "remount,rw" if allowed else "remount,ro", self.folder)


def mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def new_log(disk: Disk) -> Path:
    """A log with some nodes."""
    log, manifest = disk.folder / "cluster.db", disk.folder / "nodes.yaml"
    manifest.write_text(dump_yaml(nodes()))
    tidelog("apply", "--log", log, "-f", manifest)
    return log


async def full(disk: Disk, log: Path) -> None:
    """Nothing is written, the daemon says so and waits, and goes on when there is room."""
    with daemon(log) as running:
        async with Load(log) as load:
            await load.more()
            disk.leave(RESERVE_KIB // 2)
            await refused(load)
            disk.leave(0)
            before = dict(load.acknowledged)
            await asyncio.sleep(1.5)
            assert load.acknowledged == before
            assert load.errors.keys() == {"LogFull"}, load.errors
            assert "free on this disk" in health(running, "/readyz")
            assert health(running, "/livez") == "ok"
            disk.make_room()
            await load.more()
            assert health(running, "/readyz") == "ok"
        assert running.stop() == 0
    check_nothing_lost(await all_records(log), load.acknowledged)


async def refused(load: Load) -> None:
    """Return when everybody was."""
    await until(lambda: load.errors["LogFull"] > 5)


async def full_in_the_middle(disk: Disk, log: Path) -> None:
    """A group that is larger than what is kept free meets the end of the disk while it is written: it waits for room, and so do its callers."""
    manifest = disk.folder / "many.yaml"
    manifest.write_text(
        dump_yaml([b.pod(f"large-{n}").annotate({"text": "x" * 4_000}).build() for n in range(500)])
    )
    with daemon(log) as running:
        async with Load(log) as load:
            await load.more()
        disk.leave(RESERVE_KIB + 300)
        waiting = asyncio.create_task(asyncio.to_thread(tidelog, "apply", "--log", log, "-f", manifest))
        await asyncio.to_thread(wait_for_words, running, "a group waits to be written")
        assert "free on this disk" in health(running, "/readyz")
        assert not waiting.done()
        disk.make_room()
        assert "pod/large-499" in (await waiting).stdout
        async with Load(log, first=10_000) as more:
            await more.more()
        assert running.stop() == 0
    manifest.unlink()
    records = await all_records(log)
    check_nothing_lost(records, load.acknowledged | more.acknowledged)
    large = [record.key for record in records if record.kind == "ObjectPut" and "large" in record.key]
    assert (len(large), len(set(large))) == (500, 500)


def wait_for_words(running: Daemon, message: str) -> None:
    running.wait_for(message)


async def full_and_closed(disk: Disk, log: Path) -> None:
    """Nobody holds the log, and there is not a byte: it is read, called whole, and what would write says that the disk is full. Then it is the
    way out: a daemon starts and waits, and a compaction makes room."""
    with daemon(log, "--snapshot-every", 200) as running:
        await grow(log, 6_000)
        assert running.stop() == 0
    expected = placements(log)
    disk.leave(0)

    assert placements(log) == expected
    assert "chain ok" in tidelog("log", "verify", log).stdout
    assert "nothing to repair" in tidelog("log", "repair", log).stdout
    refused = tidelog("apply", "--log", log, "-f", disk.folder / "nodes.yaml", ok=False)
    assert (refused.returncode, "free on this disk" in refused.stderr) == (1, True), refused.stderr
    with daemon(log, ready="the disk is full: the log is not taken yet") as running:
        assert running.stop() == 0
    disk.leave(0)

    dropped = tidelog("log", "compact", log)
    assert "dropped" in dropped.stdout, dropped
    shutil.copy(disk.folder / "nodes.yaml", disk.folder / "again.yaml")
    with daemon(log) as running:
        async with Load(log, first=20_000) as load:
            await load.more()
        assert running.stop() == 0
    assert not any(".ready" in file.name or file.name.endswith(".new") for file in disk.folder.iterdir())
    assert expected.items() <= placements(log).items()
    assert "identical" in tidelog("replay", "verify", log).stdout


async def full_and_killed(disk: Disk, log: Path) -> None:
    """The same after a kill, with a write-ahead log that is to be read."""
    with daemon(log) as running:
        await grow(log, 500)
        running.kill()
    disk.leave(0)
    assert len(named(log)) == 500
    assert "chain ok" in tidelog("log", "verify", log).stdout
    refused = tidelog("apply", "--log", log, "-f", disk.folder / "nodes.yaml", ok=False)
    assert (refused.returncode, "free on this disk" in refused.stderr) == (1, True), refused.stderr
    assert len(named(log)) == 500


async def grow(log: Path, pods: int) -> None:
    async with await connect(log) as client:
        for start in range(0, pods, 100):
            some = [b.pod(f"p{n}").request(cpu="1m").build() for n in range(start, start + 100)]
            read_answer(await client.request(write_request(Apply(objects=some))))


async def read_only(disk: Disk, log: Path) -> None:
    """A daemon is told in one line, readers read, nothing is changed; also what a killed one left, its write-ahead log and all."""
    for stopped in (True, False):
        with daemon(log) as running:
            async with Load(log, first=10_000 if stopped else 20_000) as load:
                await load.more()
            await asyncio.sleep(0.3)
            if stopped:
                running.stop()
            else:
                running.kill()
        expected = await asyncio.to_thread(placements, log) if stopped else {}
        disk.allow_writes(False)
        before = contents(disk)
        for argv in (("run", "--listen", "off"), ("apply", "-f", disk.folder / "nodes.yaml")):
            done = tidelog(*argv, "--log", log, ok=False)
            *_, line = done.stderr.splitlines()
            assert done.returncode == 1, done.stderr
            assert str(log) in line, done.stderr
            assert "Read-only file system" in line, done.stderr
        assert "chain ok" in tidelog("log", "verify", log).stdout
        found = placements(log)
        assert not stopped or found == expected
        assert set(load.acknowledged) <= {f"Pod/default/{name}" for name in named(log)}
        assert contents(disk) == before
        disk.allow_writes(True)
    with daemon(log) as running:
        async with Load(log, first=30_000) as load:
            await load.more()
        assert running.stop() == 0


def named(log: Path) -> list[str]:
    return [
        name.removeprefix("pod/")
        for name in tidelog("get", "pods", "--log", log, "-o", "name").stdout.split()
    ]


def contents(disk: Disk) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in disk.folder.iterdir() if path.is_file()}


CASES: dict[str, Callable[[Disk, Path], Awaitable[None]]] = {
    case.__name__: case for case in (full, full_in_the_middle, full_and_closed, full_and_killed, read_only)
}


def main() -> None:
    case, folder = sys.argv[1], Path(sys.argv[2])
    disk = Disk(folder)
    log = new_log(disk)
    asyncio.run(CASES[case](disk, log))  # type: ignore[arg-type]
    if case == "full_and_closed":
        return  # It was compacted, and has been replayed from there.
    for suffix in ("", "-wal", ".head"):
        if Path(f"{log}{suffix}").exists():
            shutil.copy(f"{log}{suffix}", folder)


if __name__ == "__main__":
    main()
