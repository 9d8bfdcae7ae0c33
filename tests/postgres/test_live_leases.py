"""A live cluster and a log in a database: the leader holds the lease of each, and stops when it loses either; as processes, on a served cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from tests.acceptance.daemons import Daemon
from tests.acceptance.test_serve_command import Client
from tests.kube.test_over_http import Serving, a_pod, served
from tests.patience import wait_until
from tests.postgres.conftest import Logs
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import LeadershipChanged, Record, decode_body
from tidelog.eventlog.status import log_status

pytest.importorskip("aiohttp", reason="needs the extra [kube]")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tidelog-scheduler"
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"},
    "profiles": [{"schedulerName": "tidelog"}],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Serving]:
    with served(tmp_path) as found:
        yield found


@pytest.fixture
async def url(logs: Logs) -> str:
    return await logs.new()


Start = Callable[[], Daemon]


@pytest.fixture
def start(cluster: Serving, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts schedulers of the cluster, on one log, each as on a machine of its own."""
    config = tmp_path / "scheduler.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    started: list[Daemon] = []

    def start() -> Daemon:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"machine-{len(started)}"))
        options = ("--config", config, "--kubeconfig", cluster.kubeconfig, "--mode", "schedule")
        started.append(Daemon(url, *options, listen="off"))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
        daemon.end()


def lease_of(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.ask(LEASE)
    return found


def leader_of(url: str) -> str:
    return asyncio.run(log_status(url)).leader


def on_server(url: str, statement: str) -> Any:
    """The value that a statement on the log's tables returns, done behind everybody's back."""
    address, _, schema = url.partition("?schema=")

    async def done() -> Any:
        connection = await asyncpg.connect(address, server_settings={"search_path": schema})
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(done())


async def records_of(url: str) -> list[Record]:
    async with open_reader(url) as reader:
        return [record async for record in reader.read()]


def test_leader_holds_both_leases_and_hands_both_over(cluster: Serving, url: str, start: Start) -> None:
    client = Client(cluster.kubeconfig)
    first = start()
    first.wait_for("leading the cluster")
    second = start()
    second.wait_for("standing by")
    one = lease_of(client)["spec"]["holderIdentity"]
    led_by = leader_of(url)
    cluster.apply(*(a_pod(f"p-{number}") for number in range(10)))
    wait_until(lambda: len(cluster.bound()) == 10)

    assert first.stop() == 0
    second.wait_for("leading the cluster")
    other = lease_of(client)["spec"]["holderIdentity"]
    then_led_by = leader_of(url)
    cluster.apply(*(a_pod(f"q-{number}") for number in range(10)))
    wait_until(lambda: len(cluster.bound()) == 20)
    assert second.stop() == 0

    assert led_by.startswith(f"process {first.process.pid} on ")
    assert then_led_by.startswith(f"process {second.process.pid} on ")
    assert one
    assert other
    assert one != other
    records = asyncio.run(records_of(url))
    changes = [body for record in records if isinstance(body := decode_body(record), LeadershipChanged)]
    assert [change.holder for change in changes if change.ours] == [one, other]


def test_leader_that_loses_the_databases_lease_ends_and_binds_nothing_more(
    cluster: Serving, url: str, start: Start
) -> None:
    daemon = start()
    daemon.wait_for("leading the cluster")
    cluster.apply(a_pod("before"))
    wait_until(lambda: "before" in cluster.bound())
    on_server(
        url,
        "UPDATE lease SET term = term + 1, holder = 'somebody else', expires = clock_timestamp() + interval '1 hour', seconds = 3600",
    )
    cluster.apply(a_pod("after"))

    assert daemon.end() == 1
    assert "somebody else took it over" in daemon.lines[-1]
    assert set(cluster.bound()) == {"before"}
    assert (
        on_server(url, "SELECT count(*) FROM records WHERE key = 'Pod/default/after' AND kind = 'Scheduled'")
        == 0
    )


def test_leader_that_loses_the_clusters_lease_decides_nothing_until_it_has_it_again(
    cluster: Serving, url: str, start: Start
) -> None:
    client = Client(cluster.kubeconfig)
    daemon = start()
    daemon.wait_for("leading the cluster")
    taken = lease_of(client)
    taken["spec"]["holderIdentity"] = "somebody else"
    taken["spec"].pop("leaseDurationSeconds", None)
    while True:  # It may be renewed in between.
        taken["metadata"]["resourceVersion"] = lease_of(client)["metadata"]["resourceVersion"]
        if client.put(LEASE, {**taken, "spec": {**taken["spec"], "leaseDurationSeconds": 10}}):
            break
    daemon.wait_for("not leading the cluster any more")
    cluster.apply(a_pod("meanwhile"))
    _renewed_for(client, 3.0)

    assert cluster.bound() == {}
    assert (leader_of(url)).startswith(f"process {daemon.process.pid} on ")
    daemon.wait_for("leading the cluster")  # The other one has not renewed it for its duration.
    wait_until(lambda: "meanwhile" in cluster.bound())
    assert daemon.stop() == 0


def _renewed_for(client: Client, seconds: float) -> None:
    """Somebody else keeps it for so long."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        found = lease_of(client)
        assert found["spec"]["holderIdentity"] == "somebody else"
        found["spec"]["leaseTransitions"] = number
        assert client.put(LEASE, found)
