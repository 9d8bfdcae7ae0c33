"""The API server: creates a second, the list of a large cluster, and what watchers cost those who schedule.

    tidelog bench serve          or            .venv/bin/python benchmarks/serve.py

The server is a process of its own, `tidelog serve` on a log file in the directory for temporary files; so are the clients, who share the machine with it.

- *create*: pods created from 32 connections over HTTPS, each acknowledged when it is durable, in pods a second,
  and the processor time of the server that each takes, which a busy machine does not change;
- *list*: all pods, from the request to the last byte, with and without what the server has encoded already;
- *schedule*: from the first create to the last binding, in pods a second, on 100 nodes beside `pods` that are there; once alone, and once while 100 watchers
  with field selectors and ten that see everything watch, and `changes` labels a second are changed.
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


async def _create(http: Any, names: list[str], scheduler: str) -> float:
    """Seconds that it took."""
    waiting = list(reversed(names))

    async def one() -> None:
        while waiting:
            data = _pod(waiting.pop(), scheduler)
            async with http.post(PODS, data=data, headers={"Content-Type": "application/json"}) as reply:
                text = await reply.read()
                assert reply.status == 201, text

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return time.perf_counter() - began


async def _measured(kubeconfig: str, server: int, pods: int, scheduled: int, changes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pods": pods, "scheduled": scheduled, "changes": changes, "cpus": os.cpu_count()}
    async with _session(kubeconfig) as http:
        for number in range(NODES):
            status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"}}
            body = {"metadata": {"name": f"n{number}"}, "status": status}
            async with http.post("/api/v1/nodes", json=body) as reply:
                assert reply.status == 201, await reply.text()
        names = [f"old-{number}" for number in range(pods)]
        before = _processor_seconds(server)
        found["creates_per_second"] = round(pods / await _create(http, names, "nobody"))
        found["create_processor_microseconds"] = round((_processor_seconds(server) - before) / pods * 1e6)
        found["list_seconds_first"] = round(await _list(http), 3)
        found["list_seconds"] = round(min([await _list(http) for _ in range(3)]), 3)
        before = _processor_seconds(server)
        alone = scheduled / await _schedule(http, [f"a-{number}" for number in range(scheduled)])
        found["schedule_processor_microseconds"] = round(
            (_processor_seconds(server) - before) / scheduled * 1e6
        )
        watchers = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WATCHERS, kubeconfig, str(NODES)
        )
        churn = asyncio.create_task(_churn(http, names, changes))
        try:
            await asyncio.sleep(3)
            before, began, changed = _processor_seconds(server), time.perf_counter(), _Changes.made
            watched = scheduled / await _schedule(http, [f"b-{number}" for number in range(scheduled)])
            used, took = _processor_seconds(server) - before, time.perf_counter() - began
            found["watched_processor_microseconds"] = round(used / scheduled * 1e6)
            found["watched_changes_per_second"] = round((_Changes.made - changed) / took)
        finally:
            churn.cancel()
            await asyncio.gather(churn, return_exceptions=True)
            watchers.terminate()
            await watchers.wait()
        found |= {"scheduled_per_second": round(alone), "scheduled_per_second_watched": round(watched)}
    return found


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


async def _schedule(http: Any, names: list[str]) -> float:
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
        creating = asyncio.create_task(_create(http, names, "default-scheduler"))
        while wanted:
            event = json.loads(await events.content.readline())
            wanted.discard(event["object"]["metadata"]["name"])
        took = time.perf_counter() - began
        await creating
    return took


class _Changes:
    """How many labels were changed."""

    made = 0


async def _churn(http: Any, names: list[str], changes: int) -> None:
    """So many labels a second, from as many connections as that takes."""
    turn = 0

    async def one(name: str, value: int) -> None:
        patch = json.dumps({"metadata": {"labels": {"turn": str(value)}}}).encode()
        async with http.patch(
            f"{PODS}/{name}", data=patch, headers={"Content-Type": "application/merge-patch+json"}
        ) as reply:
            await reply.read()
        _Changes.made += 1

    async with asyncio.TaskGroup() as group:
        running: set[asyncio.Task[None]] = set()
        while True:
            due = time.perf_counter() + 0.1
            for _ in range(changes // 10):
                turn += 1
                if len(running) < 64:
                    task = group.create_task(one(names[turn % len(names)], turn))
                    running.add(task)
                    task.add_done_callback(running.discard)
            await asyncio.sleep(max(due - time.perf_counter(), 0))


async def watch_all(kubeconfig: str, count: int) -> None:
    """Watch as so many kubelets, and ten times everything, for ever."""
    async with _session(kubeconfig) as http:

        async def one(query: dict[str, str]) -> None:
            while True:
                async with http.get(
                    "/api/v1/pods", params={"watch": "true", "resourceVersion": "0", **query}
                ) as reply:
                    async for _ in reply.content.iter_any():
                        pass

        kubelets = [one({"fieldSelector": f"spec.nodeName=n{number}"}) for number in range(count)]
        await asyncio.gather(*kubelets, *(one({}) for _ in range(10)))


def main() -> None:
    """Print the figures."""
    print(json.dumps(run(), indent=2))


if __name__ == "__main__":
    main()
