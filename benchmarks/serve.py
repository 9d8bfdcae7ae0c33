"""The API server: creates a second, the list of a large cluster, and what watchers cost those who schedule.

    tidelog bench serve          or            .venv/bin/python benchmarks/serve.py

The server is a process of its own, `tidelog serve` on a log file in the directory for temporary files. It works in Python on one core at a time. The
clients are another process, which has all 32 connections, and the watchers a third one; nobody is bound to a core, and where there are two they share what
the server leaves. So the clients are lean (`_client.py`), and processor time is told beside the rates.

- *create*: pods created from 32 connections over HTTPS, each acknowledged when it is durable, in pods a second, and the processor time of server and
  clients that each takes, which a busy machine changes less;
- *list*: all pods, from the request to the last byte, with and without what the server has encoded already;
- *schedule*: from the first create to the last binding, in pods a second, on 100 nodes beside `pods` that are there: alone, while `changes` labels a second
  are changed, and while 100 watchers with field selectors and ten that see everything watch those changes, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.benchmarks._client import LeanConnection, Way

PODS = "/api/v1/namespaces/default/pods"
CONNECTIONS = 32
NODES = 100

_WATCHERS = """
import asyncio, sys
from tidelog.benchmarks.serve import watch_all
asyncio.run(watch_all(sys.argv[1], int(sys.argv[2])))
"""


def run(*, pods: int = 10_000, scheduled: int = 2_000, changes: int = 500) -> dict[str, Any]:
    """All of it; `pods` are there before anything is measured."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-serve-") as folder:
        log = Path(folder) / "bench.db"
        server = subprocess.Popen(
            [sys.executable, "-m", "tidelog.cli.main", "serve", "--log", str(log), "--listen", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if line.startswith("export KUBECONFIG="):
                    break
            kubeconfig = line.strip().removeprefix("export KUBECONFIG=")
            found = asyncio.run(_measured(kubeconfig, server.pid, pods, scheduled, changes))
        finally:
            server.terminate()
            server.wait()
            assert server.stderr is not None
            server.stderr.close()
    return found


def _session(kubeconfig: str) -> Any:
    import base64

    import aiohttp

    data = json.loads(Path(kubeconfig).read_text())
    cluster, user = data["clusters"][0]["cluster"], data["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    headers = {"Authorization": f"Bearer {user['token']}"}
    return aiohttp.ClientSession(cluster["server"], headers=headers, connector=connector, timeout=timeout)


def _pod(name: str, scheduler: str) -> bytes:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    container = {
        "name": "main",
        "image": "registry.example.com/app:1",
        "resources": resources,
        "env": [{"name": "A", "value": "b"}],
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "bench"}},
            "spec": {"containers": [container], "schedulerName": scheduler},
        }
    ).encode()


async def _create(way: Way, names: list[str], scheduler: str) -> float:
    """Seconds that it took, with so many connections that are open already."""
    waiting = list(reversed([_pod(name, scheduler) for name in names]))
    connections = [await LeanConnection.open(way) for _ in range(CONNECTIONS)]

    async def one(connection: LeanConnection) -> None:
        while waiting:
            code = await connection.ask("POST", PODS, waiting.pop())
            assert code == 201, code

    began = time.perf_counter()
    await asyncio.gather(*map(one, connections))
    took = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return took


async def _measured(kubeconfig: str, server: int, pods: int, scheduled: int, changes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pods": pods, "scheduled": scheduled, "changes": changes, "cpus": os.cpu_count()}
    way = Way.of(kubeconfig)
    async with _session(kubeconfig) as http:
        for number in range(NODES):
            status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"}}
            body = {"metadata": {"name": f"n{number}"}, "status": status}
            async with http.post("/api/v1/nodes", json=body) as reply:
                assert reply.status == 201, await reply.text()
        names = [f"old-{number}" for number in range(pods)]
        before, mine = _processor_seconds(server), time.process_time()
        found["creates_per_second"] = round(pods / await _create(way, names, "nobody"))
        found["create_processor_microseconds"] = round((_processor_seconds(server) - before) / pods * 1e6)
        found["create_client_microseconds"] = round((time.process_time() - mine) / pods * 1e6)
        found["list_seconds_first"] = round(await _list(http), 3)
        found["list_seconds"] = round(min([await _list(http) for _ in range(3)]), 3)
        found["alone"] = await _scheduling(http, way, server, "a", scheduled)
        churn = asyncio.create_task(_churn(way, names, changes))
        watchers = None
        try:
            await asyncio.sleep(1)
            found["changing"] = await _scheduling(http, way, server, "b", scheduled)
            watchers = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _WATCHERS, kubeconfig, str(NODES)
            )
            await asyncio.sleep(3)
            found["watched"] = await _scheduling(http, way, server, "c", scheduled)
        finally:
            churn.cancel()
            await asyncio.gather(churn, return_exceptions=True)
            if watchers is not None:
                watchers.terminate()
                await watchers.wait()
    rates = {name: found[name]["pods_per_second"] for name in ("changing", "watched")}
    return {**found, "watched_share": round(rates["watched"] / rates["changing"], 2)}


async def _scheduling(http: Any, way: Way, server: int, name: str, pods: int) -> dict[str, Any]:
    """Schedule so many, and what it took of the server."""
    before, changed = _processor_seconds(server), _Changes.made
    took = await _schedule(http, way, [f"{name}-{number}" for number in range(pods)])
    used = _processor_seconds(server) - before
    return {
        "pods_per_second": round(pods / took),
        "processor_microseconds": round(used / pods * 1e6),
        "changes_per_second": round((_Changes.made - changed) / took),
    }


def _processor_seconds(pid: int) -> float:
    """How long a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _list(http: Any) -> float:
    began = time.perf_counter()
    async with http.get("/api/v1/pods") as reply:
        data = await reply.read()
    assert data.startswith(b'{"kind":"PodList"')
    return time.perf_counter() - began


async def _schedule(http: Any, way: Way, names: list[str]) -> float:
    """Seconds from the first create to the last binding."""
    async with http.get("/api/v1/pods", params={"limit": "1"}) as reply:
        start = (await reply.json())["metadata"]["resourceVersion"]
    query = {
        "watch": "true",
        "resourceVersion": start,
        "fieldSelector": "spec.schedulerName=default-scheduler,spec.nodeName!=",
    }
    wanted = set(names)
    async with http.get(PODS, params=query) as events:
        began = time.perf_counter()
        creating = asyncio.create_task(_create(way, names, "default-scheduler"))
        while wanted:
            event = json.loads(await events.content.readline())
            wanted.discard(event["object"]["metadata"]["name"])
        took = time.perf_counter() - began
        await creating
    return took


class _Changes:
    """How many labels were changed."""

    made = 0


async def _churn(way: Way, names: list[str], changes: int) -> None:
    """So many labels a second, for ever, from as many connections as that takes."""
    turn = 0
    free = [await LeanConnection.open(way) for _ in range(64)]

    async def one(connection: LeanConnection, name: str, value: int) -> None:
        patch = json.dumps({"metadata": {"labels": {"turn": str(value)}}}).encode()
        await connection.ask("PATCH", f"{PODS}/{name}", patch, "application/merge-patch+json")
        _Changes.made += 1
        free.append(connection)

    async with asyncio.TaskGroup() as group:
        while True:
            due = time.perf_counter() + 0.1
            for _ in range(changes // 10):
                turn += 1
                if free:
                    group.create_task(one(free.pop(), names[turn % len(names)], turn))
            await asyncio.sleep(max(due - time.perf_counter(), 0))


async def watch_all(kubeconfig: str, count: int) -> None:
    """Watch as so many kubelets, and ten times everything, for ever."""
    way = Way.of(kubeconfig)

    async def one(query: str) -> None:
        connection = await LeanConnection.open(way)
        await connection.follow(f"/api/v1/pods?watch=true&resourceVersion=0{query}")

    kubelets = [one(f"&fieldSelector=spec.nodeName%3Dn{number}") for number in range(count)]
    await asyncio.gather(*kubelets, *(one("") for _ in range(10)))


def main() -> None:
    """Print the figures."""
    print(json.dumps(run(), indent=2))


if __name__ == "__main__":
    main()
