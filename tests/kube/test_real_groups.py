"""Test 27: a gang on a real API server that serves pod groups, if one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.real_world import (
    DAEMONS,
    Proxy,
    add_nodes,
    at_once,
    daemon,
    failures,
    kubeconfig_through,
    until,
    verified,
)
from tests.kube.server import RealServer, need
from tidelog.eventlog.records import PlacementChosen, decode_body

pytestmark = pytest.mark.slow
MEMBERS = 100
LEAST = 90
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


def test_gang_of_which_a_member_is_deleted_while_it_is_bound(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need()
    server = RealServer(
        tmp_path_factory.mktemp("server"),
        gates="GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
        flags=["--runtime-config=scheduling.k8s.io/v1beta1=true"],
    )
    proxy = Proxy(server.port)
    try:
        server.start()
        proxy.start()
        add_nodes(server, 10)
        scheduler = daemon(
            kubeconfig_through(server, proxy.port, tmp_path),
            tmp_path / "a" / "c.db",
            "schedule",
            "--lease",
            "none",
        )
        until(scheduler.ready, "the first sync")
        policy = {"gang": {"minCount": LEAST}}
        server.must("POST", GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
        group = {"schedulingGroup": {"podGroupName": "g"}}
        at_once(lambda i=i: server.add_pod(f"g-{i}", **group) for i in range(LEAST - 1))
        early = dict(server.bound())
        proxy.delay = 0.3
        at_once(lambda i=i: server.add_pod(f"g-{i}", **group) for i in range(LEAST - 1, MEMBERS))
        until(server.bound, "the first binding")
        bound = server.bound()
        gone = next(f"g-{i}" for i in reversed(range(LEAST - 1)) if f"g-{i}" not in bound)
        server.must("DELETE", f"/api/v1/namespaces/default/pods/{gone}", {"gracePeriodSeconds": 0})
        proxy.delay = 0.0
        until(lambda: len(server.bound()) == MEMBERS - 1, "the others bound")
        until(lambda: scheduler.metric('tidelog_unsettled{effect="bind"}') == 0, "all settled")

        def said() -> str:
            found = server.must("GET", f"{GROUPS}/g").get("status", {}).get("conditions", [])
            return str(next((c["status"] for c in found if c["type"] == "PodGroupInitiallyScheduled"), ""))

        until(lambda: said() == "True", "the group's condition")
        last = server.bound()
        assert scheduler.stop() == 0
        records = verified(scheduler.log)
    finally:
        while DAEMONS:
            DAEMONS.pop().end()
        proxy.end()
        server.stop()
    chosen = [b for r in records if isinstance(b := decode_body(r), PlacementChosen)]
    off = failures(records)
    print(
        f"first placement of {len(chosen[0].assignment)}, {len(bound)} bound when one was deleted, {sum(not b.sent for b in off)} withdrawn, "
        f"{sum(b.sent for b in off)} refused"
    )

    assert early == {}, "fewer than the gang needs are not placed"
    assert len(chosen[0].assignment) >= LEAST
    assert last.items() >= bound.items(), "who was bound stays where it was"
    assert gone not in last
    assert not [r for r in records if r.kind == "Evicted"]
