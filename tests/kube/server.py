"""A real API server for tests: etcd, kube-apiserver and what else is named, on free ports of the loopback interface.

    TIDELOG_KUBE_APISERVER, TIDELOG_ETCD      paths of the binaries; both are needed
    TIDELOG_KUBE_SCHEDULER, TIDELOG_KUBE_CONTROLLER_MANAGER, TIDELOG_KUBECTL      for tests that need them
    KUBEBUILDER_ASSETS (a directory), TEST_ASSET_KUBE_APISERVER, TEST_ASSET_ETCD  are taken, too

Without them, `need` skips the test and says in one line which variable is missing. Nothing outlives `stop`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.ports import free_port

VARIABLES = {
    "kube-apiserver": ("TIDELOG_KUBE_APISERVER", "TEST_ASSET_KUBE_APISERVER"),
    "etcd": ("TIDELOG_ETCD", "TEST_ASSET_ETCD"),
    "kube-scheduler": ("TIDELOG_KUBE_SCHEDULER",),
    "kube-controller-manager": ("TIDELOG_KUBE_CONTROLLER_MANAGER",),
    "kubectl": ("TIDELOG_KUBECTL", "TEST_ASSET_KUBECTL"),
}
USERS = {
    "admin": "system:masters",
    "system:kube-scheduler": "",
    "system:serviceaccount:kube-system:tidelog": "system:serviceaccounts,system:serviceaccounts:kube-system",
}


def binary(name: str) -> str:
    """The path of a program that somebody named; empty if nobody did."""
    for variable in VARIABLES[name]:
        if path := os.environ.get(variable):
            return path
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    path = str(Path(assets) / name) if assets else ""
    return path if path and Path(path).exists() else ""


def need(*names: str) -> None:
    """Skip the test if one of these programs is not there."""
    for name in ("etcd", "kube-apiserver", *names):
        if not binary(name):
            pytest.skip(f"{name} is not there: set {VARIABLES[name][0]}")


class RealServer:
    """etcd and kube-apiserver, in a folder of their own."""

    def __init__(self, folder: Path, *, gates: str = "", flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self._etcd_port, self._peer_port = free_port(), free_port()
        self._gates = gates
        self._flags = tuple(flags)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._idle: list[http.client.HTTPSConnection] = []
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        folder.mkdir(parents=True, exist_ok=True)
        rows = [f'{self.tokens[u]},{u},{u},"{groups}"' for u, groups in USERS.items()]
        (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        subprocess.run(
            ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True
        )

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        flags = [f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}"]
        flags += [f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"]
        flags += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        self.run("etcd", [binary("etcd"), *flags])

    def start_apiserver(self) -> None:
        folder = self.folder
        flags = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={folder / 'certs'}",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--service-account-issuer=https://127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--endpoint-reconciler-type=none",
            *self._flags,
        ]
        if self._gates:
            flags.append(f"--feature-gates={self._gates}")
        self.run("kube-apiserver", [binary("kube-apiserver"), *flags])
        self.wait(lambda: self.ask("GET", "/readyz")[0] == 200)

    def run(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.txt").open("ab") as output:
            self.processes[name] = subprocess.Popen(command, stdout=output, stderr=output)

    def wait(self, condition: Any, what: str = "it") -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            for name, process in self.processes.items():
                assert process.poll() is None, (
                    f"{name} ended: {(self.folder / f'{name}.txt').read_text()[-2000:]}"
                )
            assert time.monotonic() < deadline, f"{what} did not happen"
            time.sleep(0.05)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(how)
            process.wait()

    def restart_apiserver(self) -> None:
        """As kill -9, and again."""
        self.end("kube-apiserver")
        self.start_apiserver()

    def stop(self) -> None:
        while self._idle:
            self._idle.pop().close()
        for name in [n for n in self.processes if n != "etcd"]:
            self.end(name)
        self.end("etcd", signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- asking it --------------------------------------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Any = None, user: str = "admin", type: str = "application/json"
    ) -> tuple[int, Any]:
        """(status, JSON or text) of one request."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": type}
        data = None if body is None else json.dumps(body)
        with contextlib.suppress(IndexError):
            kept = self._idle.pop()
            # The server may have closed it meanwhile, and then it has not taken the request.
            with contextlib.suppress(
                http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError
            ):
                return self._ask(kept, method, path, data, headers)
        context = ssl._create_unverified_context()
        kept = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        return self._ask(kept, method, path, data, headers)

    def _ask(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: str | None,
        headers: dict[str, str],
    ) -> tuple[int, Any]:
        """On this connection, which is used again if all goes well."""
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data.decode("utf-8", "replace")

    def must(
        self, method: str, path: str, body: Any = None, user: str = "admin", type: str = "application/json"
    ) -> Any:
        status, found = self.ask(method, path, body, user, type)
        assert 200 <= status < 300, (method, path, status, found)
        return found

    def kubeconfig(self, user: str = "admin") -> Path:
        """A file for the clients of this user."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path.write_text(json.dumps(content))
        return path

    def add_node(self, name: str, cpu: str = "32", zone: str = "z0") -> None:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {}}
        self.must("POST", "/api/v1/nodes", node)
        quantities = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        since = "2026-01-01T00:00:00Z"  # As kubelets say it; heartbeats do not change it.
        conditions = [
            {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": since}
        ]
        status = {"status": {"capacity": quantities, "allocatable": quantities, "conditions": conditions}}
        self.must("PATCH", f"/api/v1/nodes/{name}/status", status, type="application/merge-patch+json")

    def pod(self, name: str, cpu: str = "100m", scheduler: str = "tidelog", **spec: Any) -> dict[str, Any]:
        container = {"name": "c", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu}}}
        meta = {"name": name, "labels": {"app": name.partition("-")[0]}}
        return {"metadata": meta, "spec": {"schedulerName": scheduler, "containers": [container], **spec}}

    def add_pod(self, name: str, namespace: str = "default", **more: Any) -> None:
        self.must("POST", f"/api/v1/namespaces/{namespace}/pods", self.pod(name, **more))

    def pods(self) -> dict[str, Any]:
        found = self.must("GET", "/api/v1/pods")
        return {item["metadata"]["name"]: item for item in found["items"]}

    def bound(self) -> dict[str, str]:
        return {n: p["spec"]["nodeName"] for n, p in self.pods().items() if p["spec"].get("nodeName")}
