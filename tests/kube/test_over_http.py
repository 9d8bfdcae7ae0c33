"""Over HTTP, without any foreign binary: one tidelog serves its log as the Kubernetes API, another is attached to that as to any cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.kube.real_world import TIDELOG, Daemon, failures, records_of, until, verified
from tests.ports import free_port
from tidelog.api.objects import Pod
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import KindSynced, LeadershipChanged, decode_body


class Serving:
    """`tidelog serve --no-scheduler`."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "served.db"
        self.kubeconfig = folder / "kubeconfig"
        self.port = free_port()
        self.errors = folder / "serve.txt"
        self.start()

    def start(self) -> None:
        command = [
            *TIDELOG,
            "serve",
            "--log",
            str(self.log),
            "--no-scheduler",
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        command += ["--kubeconfig-out", str(self.kubeconfig)]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors)
        until(lambda: self.kubeconfig.exists() and self.run("get", "pods") == 0, "the server")

    def run(self, verb: str, *args: str, text: str = "") -> int:
        done = subprocess.run(
            [*TIDELOG, verb, *args, "--log", str(self.log)], input=text, text=True, capture_output=True
        )
        return done.returncode

    def apply(self, *objects: dict[str, object]) -> None:
        assert self.run("apply", "-f", "-", text=yaml.safe_dump_all(objects)) == 0

    def bound(self) -> dict[str, str]:
        table = ObjectTable()
        for record in records_of(self.log):
            table.apply(record)
        pods = [e.object for e in table.of_kind("Pod")]
        return {p.metadata.name: p.spec.node_name for p in pods if isinstance(p, Pod) and p.spec.node_name}

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def a_node(name: str) -> dict[str, object]:
    allocatable = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": f"z{name[-1]}"}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def a_pod(name: str, cpu: str = "100m") -> dict[str, object]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "tidelog", "containers": [container]},
    }


@contextmanager
def served(folder: Path) -> Iterator[Serving]:
    """A log that is served, with three nodes."""
    found = Serving(folder)
    try:
        found.apply(*(a_node(f"n{number}") for number in range(3)))
        yield found
    finally:
        found.end()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def scheduler(serving: Serving, tmp_path: Path) -> Iterator[Daemon]:
    found = Daemon(serving.kubeconfig, tmp_path / "s" / "c.db", "schedule")
    try:
        until(found.ready, "the first sync")
        yield found
    finally:
        found.end()


def test_pods_of_a_served_log_are_bound_from_outside(serving: Serving, scheduler: Daemon) -> None:
    serving.apply(*(a_pod(f"p-{number}") for number in range(40)), a_pod("big", cpu="100"))

    until(lambda: len(serving.bound()) == 40, "all bound")
    until(lambda: scheduler.metric('tidelog_unsettled{effect="bind"}') == 0, "all settled")
    assert scheduler.stop() == 0
    records = verified(scheduler.log)
    verified(serving.log)
    placed = {r.key.rpartition("/")[2]: decode_body(r).node for r in records if r.kind == "Scheduled"}  # type: ignore[union-attr]

    assert placed == serving.bound()
    assert failures(records) == []
    assert [b.ours for r in records if isinstance(b := decode_body(r), LeadershipChanged)][:1] == [True]


def test_server_and_scheduler_that_are_killed_bind_each_pod_once(serving: Serving, scheduler: Daemon) -> None:
    serving.apply(*(a_pod(f"p-{number}") for number in range(30)))
    until(serving.bound, "the first bindings")
    serving.end()
    serving.start()
    scheduler.kill()
    scheduler.start()
    serving.apply(*(a_pod(f"q-{number}") for number in range(20)))
    until(lambda: len(serving.bound()) == 50, "all bound")
    until(scheduler.ready, "readiness")
    assert scheduler.stop() == 0
    records = verified(scheduler.log)
    served = verified(serving.log)
    puts = [r for r in served if r.kind == "ObjectPut" and r.key.startswith("Pod/")]

    assert puts
    assert len([b for r in records if isinstance(b := decode_body(r), KindSynced) and b.kind == "Pod"]) >= 2
