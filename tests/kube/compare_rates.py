"""How fast pods are bound, and what it costs: this scheduler and a real kube-scheduler on one API server, in turn.

    .venv/bin/python -m tests.kube.compare_rates [--nodes 5000] [--pods 5000] [--rounds 2] [--what t,k,q,d] [--at-once]

    t   tidelog, Events as it posts them       k   kube-scheduler without limits of its client
    q   tidelog without an Event for each bound pod      d   kube-scheduler with its default limits

A backlog of pods is there when a scheduler starts, or with `--at-once` they are created while it runs. Told of each run: pods a second from the first
binding to the last, the same until the last Event, processor milliseconds a pod of the scheduler, and of the API server with its etcd. The order
turns from round to round. It needs the variables of tests/kube/server.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.kube.real_world import Daemon
from tests.kube.server import RealServer, binary

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
UNDER_WAY = 16


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, server: RealServer, http: aiohttp.ClientSession, folder: Path) -> None:
        self.server = server
        self.http = http
        self.folder = folder
        self._runs = 0

    async def many(self, calls: list[Callable[[], Awaitable[None]]]) -> None:
        left = iter(calls)

        async def work() -> None:
            for call in left:
                await call()

        await asyncio.gather(*(work() for _ in range(UNDER_WAY)))

    async def ask(self, method: str, path: str, body: Any = None, type: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers={"Content-Type": type}) as reply:
            text = await reply.read()
            assert reply.status < 300, (method, path, reply.status, text[:300])
            return json.loads(text)

    async def add_nodes(self, many: int) -> None:
        async def add(number: int) -> None:
            name = f"n{number}"
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
            await self.ask(
                "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}}
            )
            amounts = {"cpu": "32", "memory": "64Gi", "pods": "110"}
            ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            await self.ask(
                "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json"
            )

        await self.many([lambda n=n: add(n) for n in range(many)])  # type: ignore[misc]

    async def add_pods(self, many: int, scheduler: str) -> None:
        async def add(number: int) -> None:
            await self.ask("POST", PODS, self.server.pod(f"p-{number}", scheduler=scheduler))

        await self.many([lambda n=n: add(n) for n in range(many)])  # type: ignore[misc]

    async def count(self, path: str) -> int:
        found = await self.ask("GET", f"{path}?limit=1")
        return len(found["items"]) + found["metadata"].get("remainingItemCount", 0)

    async def clear(self) -> None:
        gone = json.dumps({"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"})
        headers = {"Content-Type": "application/json"}
        for path in (PODS, EVENTS):
            while await self.count(path):
                # Of thousands it does not delete all within the time that a request may take.
                async with self.http.delete(path, data=gone, headers=headers) as reply:
                    await reply.read()

    def start(self, what: str) -> int:
        """The scheduler's process id."""
        self._runs += 1
        if what in "tq":
            flags = ["--lease", "none", "--events", "all" if what == "t" else "problems"]
            daemon = Daemon(self.server, self.folder / f"{self._runs}" / "c.db", "schedule", *flags)
            self.server.processes["scheduler"] = daemon.process
            return daemon.process.pid
        client: dict[str, Any] = {"kubeconfig": str(self.server.kubeconfig())}
        if what == "k":
            client |= {"qps": 5000, "burst": 5000}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": client,
            "profiles": [{"schedulerName": "upstream"}],
        }
        path = self.folder / "kube-scheduler.yaml"
        path.write_text(json.dumps(config))
        self.server.run("scheduler", [binary("kube-scheduler"), f"--config={path}", "--secure-port=0"])
        return self.server.processes["scheduler"].pid

    async def run(self, what: str, pods: int, *, at_once: bool) -> dict[str, float]:
        name = "tidelog" if what in "tq" else "upstream"
        if not at_once:
            await self.add_pods(pods, name)
        version = (await self.ask("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(self._bound(version, pods))
        pid = self.start(what)
        if at_once:
            await asyncio.sleep(15)
        server = [self.server.processes[name].pid for name in ("kube-apiserver", "etcd")]
        before = sum(map(processor_seconds, server))
        idle = processor_seconds(pid) if at_once else 0.0
        creating = asyncio.create_task(self.add_pods(pods, name)) if at_once else None
        first, last = await watching
        served = sum(map(processor_seconds, server)) - before
        used = processor_seconds(pid) - idle
        found = {
            "bound/s": pods / (last - first),
            "ms/pod": used / pods * 1e3,
            "server ms/pod": served / pods * 1e3,
        }
        if what != "q":
            while await self.count(EVENTS) < pods:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            found["told/s"] = pods / (time.monotonic() - first)
            found["told ms/pod"] = (processor_seconds(pid) - idle) / pods * 1e3
        if creating is not None:
            await creating
        self.server.end("scheduler")
        await self.clear()
        return {key: round(value, 2) for key, value in found.items()}

    async def _bound(self, version: str, pods: int) -> tuple[float, float]:
        """When the first and when the last binding was seen."""
        seen, first, rest = 0, 0.0, b""
        while seen < pods:
            query = {"watch": "true", "resourceVersion": version, "fieldSelector": "spec.nodeName!="}
            async with self.http.get(PODS, params=query) as reply:
                async for chunk in reply.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.startswith(b'{"type":"ADDED"'):
                            seen += 1
                            first = first or time.monotonic()
                        at = line.find(b'"resourceVersion":"') + 19
                        version = line[at : line.index(b'"', at)].decode()
                    if seen >= pods:
                        break
            rest = b""
        return first, time.monotonic()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", default="t,k,q,d")
    parser.add_argument("--at-once", action="store_true")
    args = parser.parse_args()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # What is installed is compiled once, and not at each start.
    kinds = args.what.split(",")
    with tempfile.TemporaryDirectory(prefix="tidelog-rates-") as folder:
        server = RealServer(Path(folder) / "server")
        results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        try:
            server.start()
            connector = aiohttp.TCPConnector(ssl=ssl._create_unverified_context(), limit=0)
            headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
            limits = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(
                server.url, connector=connector, headers=headers, timeout=limits
            ) as http:
                bench = Bench(server, http, Path(folder))
                await bench.add_nodes(args.nodes)
                for number in range(args.rounds):
                    for kind in kinds if number % 2 == 0 else kinds[::-1]:
                        found = await bench.run(kind, args.pods, at_once=args.at_once)
                        results[kind].append(found)
                        print(number, kind, found, "load", os.getloadavg()[0], flush=True)
        finally:
            server.stop()
    middle = {
        kind: {key: round(statistics.median(one[key] for one in found), 2) for key in found[0]}
        for kind, found in results.items()
        if found
    }
    print(json.dumps(middle, indent=2))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
