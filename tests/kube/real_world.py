"""`tidelog run --kubeconfig` on a real API server: many requests at once, the daemon as a process, and what its log must hold in the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.kube.server import RealServer, binary
from tests.patience import PATIENCE
from tests.ports import free_port
from tidelog.api.projection import Projection
from tidelog.api.wire import read_object
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Record, Scheduled, WriteFailed, decode_body
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import verify

TIDELOG = [str(Path(sys.executable).parent / "tidelog")]


def at_once(calls: Iterable[Callable[[], Any]], workers: int = 16) -> None:
    """Make these calls beside one another."""
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def add_nodes(server: RealServer, many: int, prefix: str = "n", cpu: str = "64") -> None:
    at_once(lambda i=i: server.add_node(f"{prefix}{i}", cpu=cpu, zone=f"z{i % 3}") for i in range(many))


def add_pods(server: RealServer, many: int, prefix: str, **more: Any) -> None:
    at_once(lambda i=i: server.add_pod(f"{prefix}-{i}", **more) for i in range(many))


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.3)


class Daemon:
    """One `tidelog run`."""

    def __init__(
        self,
        server: RealServer | Path,
        log: Path,
        mode: str,
        *flags: str,
        user: str = "admin",
        scheduler: str = "tidelog",
    ) -> None:
        """`server`: a real one, or a kubeconfig."""
        self.log = log
        self.port = free_port()
        folder = log.parent
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "scheduler.yaml"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "profiles": [{"schedulerName": scheduler}],
                    "tidelog": {"featureGates": {"DisruptionPolicyInPriorityClass": True}},
                }
            )
        )
        kubeconfig = server if isinstance(server, Path) else server.kubeconfig(user)
        self.command = [
            *TIDELOG,
            "run",
            "--log",
            str(log),
            "--config",
            str(config),
            "--kubeconfig",
            str(kubeconfig),
        ]
        self.command += ["--mode", mode, "--listen", f"127.0.0.1:{self.port}", *flags]
        self.start()

    def start(self) -> None:
        with (self.log.parent / "daemon.txt").open("ab") as errors:
            self.process = subprocess.Popen(self.command, stderr=errors)

    def ready(self) -> bool:
        return "cluster" not in self.troubles() and self.asked("/readyz")[0] == 200

    def asked(self, path: str) -> tuple[int, str]:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def troubles(self) -> str:
        status, text = self.asked("/readyz?verbose")
        return "" if status == 200 else text

    def metric(self, name: str) -> float:
        total = 0.0
        for line in self.asked("/metrics")[1].splitlines():
            if line.startswith(name):
                total += float(line.rpartition(" ")[2])
        return total

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


def records_of(log: Path) -> list[Record]:
    import asyncio

    from tidelog.eventlog.reader import open_reader

    async def read() -> list[Record]:
        async with await open_reader(log) as reader:
            return [record async for record in reader.read(0)]

    return asyncio.run(read())


def verified(log: Path) -> list[Record]:
    """The log's records, when every decision in it was made again and is the same."""
    records = records_of(log)
    report = verify(records, Registry())
    assert report.first_difference is None, report.first_difference
    return records


def assert_same(server: RealServer, records: list[Record], kinds: Iterable[str] = ("Pod", "Node")) -> None:
    """The log's objects are the server's, projected."""
    table = ObjectTable()
    for record in records:
        table.apply(record)
    projection = Projection()
    paths = {
        "Pod": "/api/v1/pods?fieldSelector=status.phase!=Succeeded,status.phase!=Failed",
        "Node": "/api/v1/nodes",
    }
    for kind in kinds:
        wanted = {}
        for item in server.must("GET", paths[kind])["items"]:
            obj = projection.of(read_object(kind, json.dumps(item).encode()))
            meta = obj.metadata
            wanted[f"{kind}/{meta.namespace}/{meta.name}"] = _plain(obj)
        found = {
            f"{kind}/{e.object.metadata.namespace}/{e.object.metadata.name}": _plain(e.object)
            for e in table.of_kind(kind)
        }
        assert found.keys() == wanted.keys()
        assert found == wanted


def _plain(obj: Any) -> Any:
    plain = msgspec.to_builtins(obj)
    plain["metadata"].pop("resourceVersion", None)
    return plain


def assert_bound_once(server: RealServer, records: list[Record], prefix: str, many: int) -> None:
    """All are bound, each where the log says that its own decision put it."""
    outcomes = {r.seq: (r.key, b.node) for r in records if isinstance(b := decode_body(r), Scheduled)}
    pods = {name: pod for name, pod in server.pods().items() if name.startswith(f"{prefix}-")}
    assert len(pods) == many
    for name, pod in pods.items():
        node = pod["spec"].get("nodeName")
        assert node, name
        _, _, seq = pod["metadata"]["annotations"]["scheduling.tidelog.dev/decision"].partition("/")
        assert outcomes[int(seq)] == (f"Pod/default/{name}", node), name


def failures(records: list[Record]) -> list[WriteFailed]:
    return [b for r in records if isinstance(b := decode_body(r), WriteFailed)]


class Kubelet(threading.Thread):
    """Starts pods that have a node, and ends those that are to go."""

    def __init__(self, server: RealServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.2):
            try:
                for name, pod in self.server.pods().items():
                    self._look(name, pod)
            except OSError:
                continue

    def _look(self, name: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{name}"
        if meta.get("deletionTimestamp"):
            options = {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": meta["uid"]},
            }
            self.server.ask("DELETE", path, options)
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
            conditions = [
                {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized")
            ]
            status = {
                "phase": "Running",
                "conditions": conditions,
                "startTime": "2026-11-19T00:00:00Z",
                "podIP": "10.1.0.1",
            }
            self.server.ask(
                "PATCH", f"{path}/status", {"status": status}, type="application/strategic-merge-patch+json"
            )

    def stop(self) -> None:
        self.done.set()
        self.join()


class Proxy(threading.Thread):
    """Between a daemon and the server: passes bytes on, late, not at all, or never an end."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.delay = 0.0
        self.silent = False
        """Connections stay open, and nothing passes."""
        self.refusing = False
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                if self.delay:
                    time.sleep(self.delay)
                while self.silent:
                    time.sleep(0.05)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def cut(self) -> None:
        """Break every connection."""
        found, self._open = self._open, []
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def end(self) -> None:
        self.silent = False
        self._listener.close()
        self.cut()


def kubeconfig_through(server: RealServer, port: int, folder: Path) -> Path:
    """A kubeconfig that leads through a proxy."""
    changed = json.loads(server.kubeconfig().read_text())
    changed["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = folder / "proxied.kubeconfig"
    path.write_text(json.dumps(changed))
    return path


DAEMONS: list[Daemon] = []
"""Those of the test that runs; the fixture `server` ends them."""


def daemon(server: RealServer | Path, log: Path, mode: str = "schedule", *flags: str, **more: str) -> Daemon:
    found = Daemon(server, log, mode, *flags, **more)
    DAEMONS.append(found)
    return found


def start_kube_scheduler(server: RealServer, name: str = "default-scheduler", **more: object) -> None:
    config = server.folder / "kube-scheduler.yaml"
    client = {"kubeconfig": str(server.kubeconfig()), "qps": 5000, "burst": 5000}
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": client,
        "profiles": [{"schedulerName": name}],
        **more,
    }
    config.write_text(json.dumps(content))
    server.run("kube-scheduler", [binary("kube-scheduler"), f"--config={config}", "--secure-port=0"])
