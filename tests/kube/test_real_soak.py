"""Test 35: hours of churn on a real API server that restarts, behind a network that fails. `make live-soak MINUTES=30` runs it.

Pods are created and deleted at a steady rate; every minute something goes wrong between the daemon and the server, and now and then the server
is killed. In the end every pod that is there is bound, where the log's own decision put it and by one binding; the log verifies; and the daemon
needs no more memory than after its first third.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kube.real_world import (
    Proxy,
    add_nodes,
    assert_bound_once,
    assert_same,
    daemon,
    kubeconfig_through,
    until,
    verified,
)
from tests.kube.server import RealServer
from tidelog.eventlog.records import Scheduled, WriteFailed, decode_body

pytestmark = pytest.mark.slow
MINUTES = float(os.environ.get("TIDELOG_LIVE_SOAK", "0"))
RATE = float(os.environ.get("TIDELOG_LIVE_RATE", "50"))
LIVING = 500
"""So many pods are there at a time."""
GROWTH_MAX = 0.10
"""Of memory, from the second third to the last one."""


def fits_nowhere(name: str) -> bool:
    return int(name.partition("-")[2]) % 50 == 0


class Churn:
    """Creates pods and deletes the oldest ones, as many as the rate says, whatever the server does."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self._number = 0
        self._living: list[str] = []
        self._done = threading.Event()
        self.failed = 0

    def go_on(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            due = time.monotonic()
            while not self._done.is_set():
                name = f"p-{self._number}"
                cpu = "1000" if fits_nowhere(name) else "50m"
                self._number += 1
                pool.submit(self._try, "POST", "", self._server.pod(name, cpu=cpu))
                self._living.append(name)
                if len(self._living) > LIVING:
                    gone = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
                    pool.submit(self._try, "DELETE", f"/{self._living.pop(0)}", gone)
                due = max(due + 1 / RATE, time.monotonic() - 1)
                time.sleep(max(due - time.monotonic(), 0))

    def _try(self, method: str, path: str, body: object) -> None:
        """Until it is done: the server may be away."""
        while True:
            try:
                status, _ = self._server.ask(method, f"/api/v1/namespaces/default/pods{path}", body)
            except OSError:
                status = 0
            if status in (200, 201, 404, 409):
                return
            self.failed += 1
            time.sleep(0.5)

    def end(self) -> int:
        self._done.set()
        return self._number


def break_something(proxy: Proxy, server: RealServer, chance: random.Random, *, kill: bool) -> str:
    what = "kill" if kill else chance.choice(["cut", "refuse", "silent", "slow"])
    if what == "kill":
        server.restart_apiserver()
    elif what == "cut":
        proxy.cut()
    elif what == "refuse":
        proxy.refusing = True
        proxy.cut()
        time.sleep(chance.uniform(1, 20))
        proxy.refusing = False
    elif what == "silent":
        proxy.silent = True
        time.sleep(chance.uniform(1, 20))
        proxy.silent = False
        proxy.cut()
    else:
        proxy.delay = 0.3
        time.sleep(chance.uniform(5, 15))
        proxy.delay = 0.0
    return what


@pytest.mark.skipif(not MINUTES, reason="a soak: make live-soak MINUTES=30")
def test_soak(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 60)
    proxy = Proxy(server.port)
    proxy.start()
    scheduler = daemon(kubeconfig_through(server, proxy.port, tmp_path), tmp_path / "a" / "c.db")
    until(lambda: scheduler.metric("tidelog_leader") == 1 and scheduler.ready(), "leadership")
    churn, chance = Churn(server), random.Random(1)
    working = threading.Thread(target=churn.go_on)
    working.start()
    began, memory, faults = time.monotonic(), list[tuple[float, int]](), Counter[str]()
    try:
        kill_every, next_fault, next_kill = min(600.0, MINUTES * 60 / 4), 45.0, min(600.0, MINUTES * 60 / 4)
        while (now := time.monotonic() - began) < MINUTES * 60:
            assert scheduler.process.poll() is None, "the daemon ended"
            memory.append((now, scheduler.memory()))
            if now >= next_fault:
                kill = now >= next_kill
                next_kill += kill_every * kill
                faults[break_something(proxy, server, chance, kill=kill)] += 1
                next_fault = time.monotonic() - began + 45
            time.sleep(5)
    finally:
        made = churn.end()
        working.join()
        proxy.delay, proxy.silent, proxy.refusing = 0.0, False, False

    def all_bound() -> bool:
        found = server.pods()
        return all(pod["spec"].get("nodeName") or fits_nowhere(name) for name, pod in found.items())

    until(all_bound, "all bound", seconds=600)
    until(lambda: scheduler.metric('tidelog_unsettled{effect="bind"}') == 0, "all settled", seconds=120)
    time.sleep(3)
    used = scheduler.cpu()
    assert scheduler.stop() == 0
    proxy.end()
    records = verified(scheduler.log)
    decided = Counter(r.key for r in records if isinstance(decode_body(r), Scheduled))
    off = Counter(
        r.key for r in records if isinstance(b := decode_body(r), WriteFailed) and b.effect == "bind"
    )
    third = MINUTES * 20
    early = statistics.median(kib for at, kib in memory if third <= at < 2 * third)
    late = statistics.median(kib for at, kib in memory if at >= 2 * third)
    print(
        f"{MINUTES:g} minutes, {made} pods, {dict(faults)}, {churn.failed} requests of the churn tried again; {len(records)} records, "
        f"{sum(decided.values())} decisions, {sum(off.values())} called off; memory {early / 1024:.0f} -> {late / 1024:.0f} MiB; "
        f"{used / made * 1e6:.0f} us of CPU a pod"
    )

    assert_same(server, records)
    for name, pod in server.pods().items():
        if not pod["spec"].get("nodeName"):
            server.must("DELETE", f"/api/v1/namespaces/default/pods/{name}")
    assert_bound_once(server, records, "p", len(server.pods()))
    assert not [key for key, many in decided.items() if many - off[key] > 1]
    assert late <= early * (1 + GROWTH_MAX)
