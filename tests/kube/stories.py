"""Stories of an API server that misbehaves, drawn from a seed, and what must be so whatever happens.

    python -m tests.kube.stories --seeds 500              tell so many, and stop at the first that ends badly
    python -m tests.kube.stories --seeds 500 --bugs       how many seeds it takes to notice each deliberate bug

Scheduler and log are the real ones, the server is the one in memory: it loses answers, delays kinds, forgets its history, is set back, and the
scheduler is killed between any two steps. The judge looks at every write as it is made, and at log and server in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from random import Random
from typing import Any

from tests.kube.bugs import BUGS
from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.patience import PATIENCE
from tidelog.daemon.process.runtime import Limits
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.records import WriteFailed, decode_body
from tidelog.kube.cluster.port import Request
from tidelog.kube.cluster.writer import WriterSettings

STEPS = (
    *["pod"] * 6, "big", "high", "cordon", "cordon", "uncordon", "delete", "anew", "touch", "touch", "cut", "break", "compact", "hold",
    "let go", "lose", "late", "late", "late and close", "repeat", "quiet", "quiet", "wait", "wait", "kill", "kill", "set back", "finish victims",
)  # fmt: skip
LENGTH = 25


class Wrong(AssertionError):
    """What must be so is not."""


class SlowStore(MemoryStore):
    """A commit takes some turns of the event loop, as on a disk."""

    async def append(self, *args: Any, **more: Any) -> Any:
        for _ in range(8):
            await asyncio.sleep(0)
        return await super().append(*args, **more)


class Judge:
    """Looks at each write before it is carried out."""

    def __init__(self) -> None:
        self.world: LiveWorld | None = None

    def look(self, request: Request) -> None:
        """Raises Wrong for a write that must not be."""
        world = self.world
        if world is None or "/pods/" not in request.path:
            return
        name = request.path.split("/")[6]
        pod = world.core.objects.get(f"Pod/default/{name}")
        if request.path.endswith("/binding"):
            self._binding(world, request, pod)
        elif request.path.endswith("/status") and "conditions" in request.body["status"]:
            said = [c for c in request.body["status"]["conditions"] if c["type"] == "PodScheduled"]
            if pod is not None and said and said[0]["status"] == "False" and pod.spec.node_name:
                raise Wrong(f"{name} is told to be unschedulable after it was placed")

    def _binding(self, world: LiveWorld, request: Request, pod: Any) -> None:
        meta, node = request.body["metadata"], request.body["target"]["name"]
        if not meta.get("uid"):
            raise Wrong("a binding that any pod of this name would take")
        _, _, seq = next(iter(meta["annotations"].values()), "//").partition("/")
        if int(seq or 0) > world.log.head.seq:
            raise Wrong(f"record {seq} is sent and not durable")
        known = world.core.objects.get(f"Node//{node}")
        if known is None or known.spec.unschedulable:
            raise Wrong(f"a binding to {node}, of which it is known that it is closed")
        if pod is not None and pod.metadata.uid == meta["uid"] and pod.spec.node_name not in ("", node):
            raise Wrong(f"{meta['name']} is sent to {node}, and the log has it on {pod.spec.node_name}")


async def tell(seed: int) -> None:
    """One story. Raises Wrong, or whatever else goes wrong."""
    random, judge, server = Random(seed), Judge(), MemoryServer()
    for number in range(3):
        server.add_node(f"n{number}", zone=f"z{number}")
    looked: list[BaseException] = []

    def look(request: Request) -> None:
        try:
            judge.look(request)
        except BaseException as error:
            looked.append(error)

    server.before = look
    snapshots = random.choice((0, 0, 3, 7))
    world = LiveWorld(
        server,
        store=SlowStore("story"),
        unsettled=random.choice((2, 8, 128)),
        limits=Limits(snapshot_every=snapshots),
        writer=WriterSettings(concurrency=random.choice((1, 2, 32))),
    )
    judge.world = world
    await world.start()
    try:
        story = _Story(random, world)
        for _ in range(random.randint(3, LENGTH)):
            await story.step()
            if looked:
                raise looked[0]
        await story.end()
        if looked:
            raise looked[0]
        await _judge_the_end(world)
    finally:
        await world.kill()


class _Story:
    def __init__(self, random: Random, world: LiveWorld) -> None:
        self.random = random
        self.world = world
        self.server = world.server
        self.names = 0

    async def step(self) -> None:
        random, server, world = self.random, self.server, self.world
        step, number = random.choice(STEPS), random.randrange(5)
        pods = sorted(server.objects["pods"])
        name = random.choice(pods).partition("/")[2] if pods else ""
        if step in ("pod", "big", "high"):
            self.names += 1
            cpu, priority = {"pod": ("900m", 0), "big": ("3500m", 0), "high": ("3", 100)}[step]
            server.add_pod(f"p{self.names}", cpu=cpu, priority=priority)
        elif step in ("cordon", "uncordon"):
            server.put("nodes", "", f"n{number % 3}", spec={"unschedulable": step == "cordon"})
        elif step in ("delete", "anew") and name:
            server.delete("pods", "default", name)
            if step == "anew":
                server.add_pod(name, cpu="900m")
        elif step == "touch" and name:
            server.put("pods", "default", name, status={"startTime": str(server.version)})
        elif step in ("cut", "break"):
            server.cut(broken=step == "break")
        elif step == "compact":
            server.compact()
        elif step == "hold":
            server.hold(("pods", "nodes")[number % 2])
        elif step == "let go":
            server.let_go()
        elif step == "lose":
            left = [number]

            def lose(request: Request) -> bool:
                left[0] -= 1
                return left[0] >= 0

            server.lose = lose
        elif step in ("late", "late and close"):
            await self._late(close=step != "late", name=name, number=number)
        elif step == "repeat" and not server.held:
            server.repeat(("pods", "nodes")[number % 2])
        elif step == "quiet":
            await world.quiet()
        elif step == "wait":
            await world.advance(number)
        elif step == "kill":
            server.let_go()
            await world.restart()
        elif step == "set back":
            backup = server.snapshot()
            if number == 0 and not server.held:
                server.add_pod(f"gone{self.names}")
                await world.quiet()
                server.restore(backup)
                await world.advance(12)
        elif step == "finish victims":
            self._finish()

    async def _late(self, *, close: bool, name: str, number: int) -> None:
        """Writes wait at the server, and something happens meanwhile."""
        server, world = self.server, self.world
        server.gate = asyncio.Event()
        for _ in range(number):
            self.names += 1
            server.add_pod(f"p{self.names}", cpu="300m")
        await world.quiet()
        for pod in list(server.objects["pods"].values()):
            if self.random.random() < 0.3:
                server.put(
                    "pods", "default", pod["metadata"]["name"], status={"startTime": str(server.version)}
                )
        if close:
            server.put("nodes", "", f"n{number % 3}", spec={"unschedulable": True})
        if name and number % 2:
            server.delete("pods", "default", name)
            server.add_pod(name, cpu="900m")
        await world.quiet()
        if self.random.random() < 0.3:
            server.let_go()
            await world.restart()
        gate, server.gate = server.gate, None
        gate.set()
        await world.quiet()

    def _finish(self) -> None:
        for pod in list(self.server.objects["pods"].values()):
            if pod["metadata"].get("deletionTimestamp"):
                self.server.delete("pods", "default", pod["metadata"]["name"])

    async def end(self) -> None:
        """Let everything be well for long enough."""
        server, world = self.server, self.world
        server.let_go()
        server.lose = lambda request: False
        for number in range(3):
            allocatable = {"cpu": "400", "memory": "800Gi", "pods": "1000"}
            server.put(
                "nodes", "", f"n{number}", spec={"unschedulable": False}, status={"allocatable": allocatable}
            )
        for _ in range(5):
            await world.advance(80)
            self._finish()
        await world.advance(80)


async def _judge_the_end(world: LiveWorld) -> None:
    from tests.kube.test_promises import assert_bound_once
    from tests.kube.test_reader import assert_in_order, assert_same

    server = world.server
    if len(world.core.promises):
        raise Wrong(f"promised and never settled: {[p.key for p in world.core.promises]}")
    if len(server.bound()) != len(server.objects["pods"]):
        raise Wrong("pods are left without a node, and there is room")
    executed = {annotation for found in server.bindings.values() for _, annotation in found}
    log_id = world.core.promises.log_id
    for record in await world.records():
        body = decode_body(record)
        if isinstance(body, WriteFailed) and body.effect == "bind" and f"{log_id}/{record.cause}" in executed:
            raise Wrong(
                f"record {record.seq} says that the binding of record {record.cause} failed, and it was made"
            )
    assert_same(world)
    if not await _was_set_back(world):
        await assert_bound_once(world)
        await assert_in_order(world)
    await world.verify()


async def _was_set_back(world: LiveWorld) -> bool:
    return any(body.reason == "wentBack" for body in await world.bodies("KindGap"))


def noticed(seeds: range) -> tuple[int, BaseException] | None:
    """The first of these stories that ends badly, and how."""
    for seed in seeds:
        try:
            asyncio.run(asyncio.wait_for(tell(seed), PATIENCE))
        except TimeoutError:
            raise  # One that hangs shows a fault of the story, not of the bug.
        except Exception as error:
            return seed, error
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--bugs", action="store_true")
    args = parser.parse_args()
    seeds = range(args.start, args.start + args.seeds)
    if not args.bugs:
        found = noticed(seeds)
        print(
            "all well"
            if found is None
            else f"seed {found[0]}: {type(found[1]).__name__}: {str(found[1])[:500]}"
        )
        return found is not None
    missed = 0
    for name, bug in BUGS.items():
        with bug():
            found = noticed(seeds)
        missed += found is None
        print(
            f"{name}: " + ("not noticed" if found is None else f"seed {found[0]}: {str(found[1])[:90]!r}"),
            flush=True,
        )
    return missed


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    sys.exit(main())
