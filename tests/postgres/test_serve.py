"""`tidelog serve` on a log in a database, as processes: clients work on it, and where the leader ends the next one goes on at the same revisions."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.daemons import ApiDaemon, tidelog
from tests.acceptance.test_serve_command import NODE, POD, Client
from tests.kube.test_kubectl import KUBECTLS
from tests.patience import PATIENCE, wait_until
from tests.postgres.conftest import Logs
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.status import log_status

EXAMPLES = Path(__file__).parents[2] / "examples"
PODS = "/api/v1/namespaces/default/pods"


class Served:
    """One `tidelog serve` of a fleet on one log."""

    def __init__(self, url: LogAddress, folder: Path) -> None:
        self.kubeconfig = folder / "cluster.kubeconfig"
        folder.mkdir()
        self.daemon = ApiDaemon(url, "--kubeconfig-out", self.kubeconfig)  # type: ignore[arg-type]

    def client(self) -> Client:
        """As soon as it leads."""
        self.daemon.wait_for("scheduling")
        return Client(self.kubeconfig)


@pytest.fixture
async def url(logs: Logs) -> str:
    return await logs.new()


def node_of(client: Client, pod: str) -> str:
    found = client.ask(f"{PODS}/{pod}")
    return str(found["spec"].get("nodeName", ""))


def test_served_database_schedules_and_the_next_leader_goes_on(url: str, tmp_path: Path) -> None:
    first = Served(url, tmp_path / "first")
    second = None
    try:
        client = first.client()
        client.ask("/api/v1/nodes", NODE)
        client.ask(PODS, POD)
        wait_until(lambda: node_of(client, "p") == "n")
        second = Served(url, tmp_path / "second")
        second.daemon.wait_for("standing by")
        status = asyncio.run(log_status(url))
        assert "(tidelog serve, " in status.leader
        before = client.ask(f"{PODS}/p")
        listed = client.ask(PODS)["metadata"]["resourceVersion"]
        assert first.daemon.stop() == 0

        client = second.client()
        after = client.ask(f"{PODS}/p")
        client.ask(PODS, {**POD, "metadata": {"name": "q"}})
        wait_until(lambda: node_of(client, "q") == "n")
        since = client.ask(f"{PODS}?resourceVersion={listed}&resourceVersionMatch=Exact")

        assert (tmp_path / "second" / "cluster.tls").exists()
        assert '"log"' in second.daemon.get("/ui/api/a/meta")
    finally:
        for served in (first, second):
            if served is not None and served.daemon.process.poll() is None:
                served.daemon.stop()

    assert before == after
    assert [item["metadata"]["name"] for item in since["items"]] == ["p"]
    assert "2 identical" in tidelog("replay", "verify", "--log", url).stdout


@pytest.mark.skipif(not KUBECTLS, reason="kubectl is not there: set TIDELOG_KUBECTL")
def test_kubectl_works_on_a_served_database(url: str, tmp_path: Path) -> None:
    served = Served(url, tmp_path / "served")

    def kubectl(*words: object, ok: bool = True) -> str:
        done = subprocess.run(
            [KUBECTLS[0], *map(str, words)],
            env={**os.environ, "KUBECONFIG": str(served.kubeconfig), "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert not ok or done.returncode == 0, done.stderr
        return done.stdout

    try:
        served.client()
        created = kubectl("apply", "-f", EXAMPLES / "1-nodes.yaml")
        kubectl("apply", "-f", EXAMPLES / "daemon" / "1-shop.yaml")
        kubectl("wait", "--for=condition=PodScheduled", "pod/shop-1", "--timeout=60s")
        kubectl("label", "pod/shop-1", "tier=front")
        listed = kubectl("get", "pods", "-l", "tier=front", "-o", "name")
        told = kubectl("describe", "pod/shop-1")
        kubectl("delete", "pod/shop-1", "--grace-period=0", "--force")
        gone = kubectl("get", "pod/shop-1", "--ignore-not-found")
    finally:
        assert served.daemon.stop() == 0

    assert created.count("created") == 6
    assert listed.split() == ["pod/shop-1"]
    assert "Successfully assigned default/shop-1" in told
    assert gone == ""
    assert "chain ok" in tidelog("log", "verify", "--log", url).stdout
