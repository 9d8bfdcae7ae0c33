"""Against a real API server, if one is named (tests/kube/server.py): recording, scheduling, and everything that breaks between.

TIDELOG_LIVE_NODES says on how many nodes those run that are about many (by default 200, 5,000 for a claim).
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.kube.real_world import (
    DAEMONS,
    Kubelet,
    Proxy,
    add_nodes,
    add_pods,
    assert_bound_once,
    assert_same,
    at_once,
    daemon,
    failures,
    kubeconfig_through,
    records_of,
    start_kube_scheduler,
    until,
    verified,
)
from tests.kube.server import RealServer, binary, need
from tidelog.eventlog.records import KindGap, KindSynced, LeadershipChanged, ObjectPut, Record, decode_body

pytestmark = pytest.mark.slow
NODES = int(os.environ.get("TIDELOG_LIVE_NODES", "200"))
HEARTBEATS = max(3_000, 2 * NODES)


def all_bound(server: RealServer, prefix: str, many: int) -> bool:
    return sum(name.startswith(f"{prefix}-") for name in server.bound()) == many


def test_recording_is_what_the_server_has(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 10)
    recorder = daemon(server, tmp_path / "a" / "c.db", "record")
    until(recorder.ready, "the first sync")
    add_pods(server, 300, "p")
    at_once(
        lambda i=i: server.must("DELETE", f"/api/v1/namespaces/default/pods/p-{i}") for i in range(0, 300, 2)
    )
    server.restart_apiserver()
    add_pods(server, 20, "q")
    until(
        lambda: recorder.ready() and "q-19" in json.dumps([r.key for r in records_of(recorder.log)[-400:]]),
        "the last pods",
    )
    time.sleep(3)
    assert recorder.stop() == 0
    records = verified(recorder.log)

    assert_same(server, records)


def test_server_that_is_killed_while_pods_are_scheduled(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 20)
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    until(scheduler.ready, "the first sync")
    add_pods(server, 400, "p")
    until(lambda: len(server.bound()) > 50, "the first bindings")
    server.restart_apiserver()
    until(lambda: all_bound(server, "p", 400), "all bound")
    time.sleep(2)
    assert scheduler.stop() == 0

    assert_bound_once(server, verified(scheduler.log), "p", 400)


def test_scheduler_that_is_killed_again_and_again(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 20)
    scheduler = daemon(server, tmp_path / "a" / "c.db", "schedule", "--lease", "none")
    chance = random.Random(1)
    add_pods(server, 300, "p")
    for _ in range(6):
        until(server.bound, "the first bindings")
        time.sleep(chance.random() * 2 + 1)
        scheduler.kill()
        scheduler.start()
    until(lambda: all_bound(server, "p", 300), "all bound")
    # The last one may have begun just now, and a program that begins does not know yet how to end.
    until(scheduler.ready, "its last start")
    time.sleep(2)
    assert scheduler.stop() == 0
    records = verified(scheduler.log)

    assert_bound_once(server, records, "p", 300)
    assert not [body for body in failures(records) if not body.sent]


def test_history_that_is_gone_while_nobody_records_is_bridged(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need()
    server = RealServer(tmp_path_factory.mktemp("server"), flags=["--etcd-compaction-interval=3s"])
    try:
        server.start()
        add_nodes(server, 5)
        add_pods(server, 30, "p")
        recorder = daemon(server, tmp_path / "a" / "c.db", "record")
        until(recorder.ready, "the first sync")
        assert recorder.stop() == 0
        at_once(
            lambda i=i: server.must("DELETE", f"/api/v1/namespaces/default/pods/p-{i}") for i in range(15)
        )
        time.sleep(7)
        server.restart_apiserver()
        recorder.start()
        until(recorder.ready, "the second sync")
        time.sleep(1)
        assert recorder.stop() == 0
        records = verified(recorder.log)

        assert [b for r in records if isinstance(b := decode_body(r), KindGap)]
        assert_same(server, records)
    finally:
        while DAEMONS:
            DAEMONS.pop().end()
        server.stop()


def test_server_that_was_restored_from_a_backup(server: RealServer, tmp_path: Path) -> None:
    import shutil

    add_nodes(server, 3)
    add_pods(server, 10, "p")
    server.end("kube-apiserver")
    server.end("etcd", signal.SIGTERM)
    shutil.copytree(server.folder / "etcd", server.folder / "backup")
    server.start()
    recorder = daemon(server, tmp_path / "a" / "c.db", "record")
    until(recorder.ready, "the first sync")
    add_pods(server, 30, "q")
    time.sleep(2)
    server.end("kube-apiserver")
    server.end("etcd", signal.SIGTERM)
    shutil.rmtree(server.folder / "etcd")
    shutil.copytree(server.folder / "backup", server.folder / "etcd")
    server.start()

    def relisted() -> bool:
        found = [decode_body(r) for r in records_of(recorder.log)]
        return sum(isinstance(b, KindSynced) and b.kind == "Pod" for b in found) > 1

    until(relisted, "the relist")
    time.sleep(2)
    assert recorder.stop() == 0
    assert_same(server, verified(recorder.log))


def test_role_that_comes_late_is_waited_for(server: RealServer, tmp_path: Path) -> None:
    user = "system:serviceaccount:kube-system:tidelog"
    recorder = daemon(server, tmp_path / "a" / "c.db", "record", user=user)
    time.sleep(3)
    refused = recorder.process.poll() is None
    apply_manifests(server, "recorder")
    until(recorder.ready, "the first sync")
    server.must("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tidelog-recorder")
    server.restart_apiserver()
    until(lambda: "403" in recorder.troubles(), "the trouble")
    apply_manifests(server, "recorder")
    until(recorder.ready, "the end of the trouble")

    assert refused
    assert recorder.stop() == 0


def apply_manifests(server: RealServer, folder: str) -> None:
    from tests.kube.test_manifests import FOLDER, documents

    group = "/apis/rbac.authorization.k8s.io/v1"
    for document in documents(FOLDER / folder):
        path = {
            "ClusterRole": f"{group}/clusterroles",
            "ClusterRoleBinding": f"{group}/clusterrolebindings",
            "Role": f"{group}/namespaces/kube-system/roles",
            "RoleBinding": f"{group}/namespaces/kube-system/rolebindings",
            "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        }.get(document["kind"])
        if path is not None:
            status, found = server.ask("POST", path, document)
            assert status in (201, 409), (status, found)


def test_rights_of_the_manifests_are_enough(server: RealServer, tmp_path: Path) -> None:
    user = "system:serviceaccount:kube-system:tidelog"
    apply_manifests(server, "scheduler")
    add_nodes(server, 3)
    scheduler = daemon(server, tmp_path / "a" / "c.db", user=user)
    until(scheduler.ready, "the first sync")
    add_pods(server, 10, "p")
    add_pods(server, 1, "big", cpu="1000")
    until(lambda: all_bound(server, "p", 10), "all bound")
    until(lambda: server.pods()["big-0"]["status"].get("conditions"), "the condition")
    until(lambda: len(server.must("GET", "/apis/events.k8s.io/v1/events")["items"]) >= 11, "the events")

    assert scheduler.metric('tidelog_api_requests_total{verb="post",resource="pods/binding",code="403"}') == 0
    assert scheduler.stop() == 0
    verified(scheduler.log)


def test_recorders_rights_do_not_let_it_schedule(server: RealServer, tmp_path: Path) -> None:
    user = "system:serviceaccount:kube-system:tidelog"
    apply_manifests(server, "recorder")
    add_nodes(server, 3)
    add_pods(server, 3, "p")
    scheduler = daemon(server, tmp_path / "a" / "c.db", "schedule", "--lease", "none", user=user)

    assert scheduler.process.wait(120) == 2
    assert "let this user create pods/binding" in (tmp_path / "a" / "daemon.txt").read_text()
    assert not server.bound()


def test_two_schedulers_of_which_the_leader_is_killed_or_stands_still(
    server: RealServer, tmp_path: Path
) -> None:
    add_nodes(server, 20)
    daemons = [daemon(server, tmp_path / name / "c.db") for name in "ab"]
    for each in daemons:
        until(each.ready, "the first sync")
    until(lambda: sum(each.metric("tidelog_leader") for each in daemons) == 1, "a leader")
    add_pods(server, 200, "p")
    until(lambda: len(server.bound()) > 20, "the first bindings")
    leader = next(each for each in daemons if each.metric("tidelog_leader"))
    other = next(each for each in daemons if each is not leader)
    leader.process.send_signal(signal.SIGSTOP)
    until(lambda: other.metric("tidelog_leader") == 1, "the second leader")
    until(lambda: all_bound(server, "p", 200), "all bound")
    leader.process.send_signal(signal.SIGCONT)
    until(lambda: leader.metric("tidelog_leader") == 0, "the end of the first one's reign")
    add_pods(server, 100, "q")
    other.kill()
    until(lambda: leader.metric("tidelog_leader") == 1, "its return")
    until(lambda: all_bound(server, "q", 100), "all bound")
    time.sleep(2)
    assert leader.stop() == 0
    for each in daemons:
        verified(each.log)

    assert led(records_of(leader.log))[-1]
    logs = {
        pod["metadata"]["annotations"]["scheduling.tidelog.dev/decision"].split("/")[0]
        for pod in server.pods().values()
    }
    assert len(logs) == 2


def led(records: list[Record]) -> list[bool]:
    """Whether it leads, each time that this has changed."""
    return [b.ours for r in records if isinstance(b := decode_body(r), LeadershipChanged)]


@pytest.mark.parametrize("fault", ["cut", "silent", "slow"])
def test_network_that_fails_binds_nothing_twice_and_loses_nothing(
    server: RealServer, tmp_path: Path, fault: str
) -> None:
    add_nodes(server, 10)
    proxy = Proxy(server.port)
    proxy.start()
    scheduler = daemon(kubeconfig_through(server, proxy.port, tmp_path), tmp_path / "a" / "c.db")
    try:
        until(lambda: scheduler.metric("tidelog_leader") == 1 and scheduler.ready(), "leadership")
        if fault == "slow":
            proxy.delay = 0.5
        add_pods(server, 100, "p")
        until(server.bound, "the first bindings")
        if fault == "cut":
            for seconds in (1, 14):
                proxy.refusing = True
                proxy.cut()
                time.sleep(seconds)
                proxy.refusing = False
            add_pods(server, 50, "q")
        elif fault == "silent":
            proxy.silent = True
            until(lambda: not led(records_of(scheduler.log))[-1], "the end of its leadership")
            add_pods(server, 50, "q")
            proxy.silent = False
            proxy.cut()
        else:
            add_pods(server, 50, "q")
        until(lambda: all_bound(server, "p", 100) and all_bound(server, "q", 50), "all bound")
        proxy.delay = 0.0
        until(lambda: scheduler.metric('tidelog_unsettled{effect="bind"}') == 0, "all settled")
        assert scheduler.stop() == 0
    finally:
        proxy.end()
    records = verified(scheduler.log)
    changes = led(records)

    assert_bound_once(server, records, "p", 100)
    assert_bound_once(server, records, "q", 50)
    assert changes[0]
    assert len(changes) >= (3 if fault == "silent" else 1)


def test_slow_consumer_misses_nothing(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 3)
    add_pods(server, 50, "p", scheduler="nobody")
    recorder = daemon(server, tmp_path / "a" / "c.db", "record")
    until(recorder.ready, "the first sync")
    recorder.process.send_signal(signal.SIGSTOP)
    big = "x" * 8_000

    def change(number: int) -> None:
        annotations = {"metadata": {"annotations": {"big": big}, "labels": {"v": str(number)}}}
        path = f"/api/v1/namespaces/default/pods/p-{number % 50}"
        server.must("PATCH", path, annotations, type="application/merge-patch+json")

    at_once(lambda i=i: change(i) for i in range(2_000))
    recorder.process.send_signal(signal.SIGCONT)
    time.sleep(5)
    until(recorder.ready, "readiness")
    time.sleep(3)
    assert recorder.stop() == 0
    assert_same(server, verified(recorder.log))


def test_conflict_with_kube_scheduler_binds_each_pod_once(server: RealServer, tmp_path: Path) -> None:
    need("kube-scheduler")
    add_nodes(server, 20)
    start_kube_scheduler(server)
    scheduler = daemon(
        server, tmp_path / "a" / "c.db", "schedule", "--replace-kube-scheduler", scheduler="default-scheduler"
    )
    until(scheduler.ready, "the first sync")
    add_pods(server, 500, "p", scheduler="default-scheduler")
    until(lambda: all_bound(server, "p", 500), "all bound")
    time.sleep(3)
    assert scheduler.stop() == 0
    records = verified(scheduler.log)
    ours = sum(
        "scheduling.tidelog.dev/decision" in p["metadata"].get("annotations", {})
        for p in server.pods().values()
    )
    lost = [body for body in failures(records) if body.by]

    assert 0 < ours <= 500
    assert all(body.effect == "bind" for body in lost)
    assert_same(server, records)
    print("ours", ours, "lost", len(lost))


def test_side_by_side_with_kube_scheduler_on_the_same_nodes(server: RealServer, tmp_path: Path) -> None:
    need("kube-scheduler")
    add_nodes(server, 10, cpu="4")
    start_kube_scheduler(server)
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    until(scheduler.ready, "the first sync")
    add_pods(server, 150, "k", scheduler="default-scheduler", cpu="100m")
    add_pods(server, 150, "t", cpu="100m")
    until(lambda: len(server.bound()) == 300, "all bound")
    for pod in server.pods().values():
        decided = "scheduling.tidelog.dev/decision" in pod["metadata"].get("annotations", {})
        assert decided == (pod["spec"]["schedulerName"] == "tidelog")
    time.sleep(2)
    assert scheduler.stop() == 0
    assert_bound_once(server, verified(scheduler.log), "t", 150)


def test_kube_scheduler_that_holds_its_lease_is_not_replaced_by_chance(
    server: RealServer, tmp_path: Path
) -> None:
    need("kube-scheduler")
    start_kube_scheduler(server, leaderElection={"leaderElect": True})
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
    until(lambda: server.ask("GET", path)[0] == 200, "its lease")
    scheduler = daemon(server, tmp_path / "a" / "c.db", "schedule", scheduler="default-scheduler")

    assert scheduler.process.wait(120) == 2
    assert "--replace-kube-scheduler" in (tmp_path / "a" / "daemon.txt").read_text()


def test_heartbeats_cost_no_records(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, NODES)
    recorder = daemon(server, tmp_path / "a" / "c.db", "record")
    until(recorder.ready, "the first sync")
    time.sleep(3)
    seq, before = len(records_of(recorder.log)), recorder.cpu()
    time.sleep(10)
    idle = (recorder.cpu() - before) / 10
    before, began = recorder.cpu(), time.monotonic()

    def beat(number: int) -> None:
        condition = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(number)),
            "lastTransitionTime": "2026-01-01T00:00:00Z",  # As kubelets say it.
        }
        path = f"/api/v1/nodes/n{number % NODES}/status"
        server.must(
            "PATCH",
            path,
            {"status": {"conditions": [condition]}},
            type="application/strategic-merge-patch+json",
        )

    at_once(lambda i=i: beat(1_700_000_000 + i) for i in range(HEARTBEATS))
    seconds = time.monotonic() - began
    time.sleep(2)
    used = recorder.cpu() - before - idle * (time.monotonic() - began)
    suppressed = recorder.metric('tidelog_watch_suppressed_total{kind="Node"}')
    assert recorder.stop() == 0
    records = records_of(recorder.log)

    assert suppressed >= HEARTBEATS
    assert not [r for r in records[seq:] if isinstance(decode_body(r), ObjectPut)]
    print(
        f"{HEARTBEATS / seconds:.0f} heartbeats/s of {NODES} nodes, {used / HEARTBEATS * 1e6:.0f} us of CPU each above "
        f"{idle:.3f} s/s, which is {used / seconds:.1%} of a core"
    )


def test_images_that_change_on_every_node_cost_decisions_little(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, NODES)
    scheduler = daemon(server, tmp_path / "a" / "c.db", "schedule", "--events", "none")
    until(scheduler.ready, "the first sync")

    pods = min(NODES, 2_000)

    def pull(number: int) -> None:
        images = {"status": {"images": [{"names": [f"example.com/app:{number}"], "sizeBytes": 1_000_000}]}}
        server.must(
            "PATCH", f"/api/v1/nodes/n{number}/status", images, type="application/strategic-merge-patch+json"
        )

    at_once(lambda i=i: (pull(i), i < pods and server.add_pod(f"p-{i}")) for i in range(NODES))
    until(lambda: all_bound(server, "p", pods), "all bound")
    time.sleep(1)
    seconds = scheduler.metric("scheduler_scheduling_algorithm_duration_seconds_sum")
    assert scheduler.stop() == 0

    assert_bound_once(server, verified(scheduler.log), "p", pods)
    print(f"{seconds / pods * 1e3:.2f} ms a decision while images change")


def test_unschedulable_pods_are_patched_once_each(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 3, cpu="1")
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    until(scheduler.ready, "the first sync")
    add_pods(server, 300, "big", cpu="100")
    until(
        lambda: sum(bool(p["status"].get("conditions")) for p in server.pods().values()) == 300,
        "the conditions",
    )
    time.sleep(5)
    answered = 'tidelog_api_requests_total{verb="patch",resource="pods/status",code="200"'
    patches = scheduler.metric(answered)
    server.add_node("large", cpu="40000")
    until(lambda: all_bound(server, "big", 110), "as many as a node takes")
    time.sleep(5)
    outcomes = sum(r.kind == "Unschedulable" for r in records_of(scheduler.log))
    later = scheduler.metric(answered)
    assert scheduler.stop() == 0
    verified(scheduler.log)

    assert patches == 300
    assert later <= outcomes


def test_canaries_are_in_no_file(server: RealServer, tmp_path: Path) -> None:
    canary = "CANARY-7f3a9c"
    pod = server.pod("p-0")
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": canary, "x": canary}
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": canary}]
    pod["spec"]["containers"][0]["args"] = [canary]
    csi = {"driver": "d.example", "volumeAttributes": {"k": canary}}
    pod["spec"]["volumes"] = [{"name": "v", "csi": csi}]
    add_nodes(server, 1)
    server.must("POST", "/api/v1/namespaces/default/pods", pod)
    status = {"conditions": [{"type": "Ready", "status": "False", "message": canary, "reason": "X"}]}
    server.must(
        "PATCH",
        "/api/v1/namespaces/default/pods/p-0/status",
        {"status": status},
        type="application/strategic-merge-patch+json",
    )
    scheduler = daemon(server, tmp_path / "a" / "c.db", "schedule", "-vv")
    until(scheduler.ready, "the first sync")
    until(lambda: "p-0" in json.dumps([r.key for r in records_of(scheduler.log)]), "the pod")
    time.sleep(1)
    told = "".join(
        scheduler.asked(path)[1]
        for path in ("/metrics", "/statusz", "/configz", "/readyz?verbose", "/metrics/resources")
    )
    assert scheduler.stop() == 0
    found = [path.name for path in (tmp_path / "a").iterdir() if canary.encode() in path.read_bytes()]

    assert found == []
    assert canary not in told


def test_pod_that_is_gated_is_scheduled_once_when_the_gate_opens(server: RealServer, tmp_path: Path) -> None:
    add_nodes(server, 2)
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    until(scheduler.ready, "the first sync")
    add_pods(server, 5, "p", schedulingGates=[{"name": "example.com/wait"}])
    time.sleep(2)
    early = dict(server.bound())
    gates = {"spec": {"schedulingGates": []}}
    for number in range(5):
        server.must(
            "PATCH", f"/api/v1/namespaces/default/pods/p-{number}", gates, type="application/merge-patch+json"
        )
    until(lambda: all_bound(server, "p", 5), "all bound")
    time.sleep(1)
    assert scheduler.stop() == 0

    assert early == {}
    assert_bound_once(server, verified(scheduler.log), "p", 5)


def start_controllers(server: RealServer) -> None:
    names = [
        "deployment",
        "replicaset",
        "statefulset",
        "job",
        "disruption",
        "garbage-collector",
        "podgroup-protection",
    ]
    flags = [
        f"--kubeconfig={server.kubeconfig()}",
        "--use-service-account-credentials=false",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={server.folder / 'sa.key'}",
        "--controllers=" + ",".join(f"{name}-controller" for name in names),
    ]
    server.run("kube-controller-manager", [binary("kube-controller-manager"), *flags])


def a_deployment(server: RealServer, replicas: int, version: str = "1") -> dict[str, object]:
    template = server.pod("x")
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    spread["matchLabelKeys"] = ["pod-template-hash"]
    template["metadata"] = {"labels": {"app": "web", "version": version}}
    template["spec"]["topologySpreadConstraints"] = [spread]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


def test_rolling_update_and_drain(server: RealServer, tmp_path: Path) -> None:
    need("kube-controller-manager", "kubectl")
    import subprocess

    add_nodes(server, 9)
    start_controllers(server)
    kubelet = Kubelet(server)
    kubelet.start()
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    until(scheduler.ready, "the first sync")
    path = "/apis/apps/v1/namespaces/default/deployments"
    try:
        server.must("POST", path, a_deployment(server, 60))
        budget = {
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 5, "selector": {"matchLabels": {"app": "web"}}},
        }
        server.must("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        until(
            lambda: server.must("GET", f"{path}/web")["status"].get("readyReplicas") == 60,
            "the first rollout",
        )
        server.must(
            "PATCH",
            f"{path}/web",
            a_deployment(server, 60, "2"),
            type="application/strategic-merge-patch+json",
        )

        def updated() -> bool:
            status = server.must("GET", f"{path}/web")["status"]
            return (status.get("updatedReplicas"), status.get("readyReplicas"), status.get("replicas")) == (
                60,
                60,
                60,
            )

        until(updated, "the update")
        zones: dict[str, int] = {}
        for pod in server.pods().values():
            zone = pod["metadata"]["labels"].get("topology.kubernetes.io/zone")
            if zone is not None and not pod["metadata"].get("deletionTimestamp"):
                zones[zone] = zones.get(zone, 0) + 1
        kubectl = [binary("kubectl"), f"--kubeconfig={server.kubeconfig()}"]
        subprocess.run(
            [*kubectl, "drain", "n0", "--timeout=240s", "--ignore-daemonsets"],
            check=True,
            capture_output=True,
        )
        until(
            lambda: server.must("GET", f"{path}/web")["status"].get("readyReplicas") == 60,
            "the pods elsewhere",
        )
        assert "n0" not in server.bound().values()
        subprocess.run([*kubectl, "uncordon", "n0"], check=True, capture_output=True)
    finally:
        kubelet.stop()
    time.sleep(2)
    assert scheduler.stop() == 0
    verified(scheduler.log)

    assert max(zones.values()) - min(zones.values()) <= 1


def test_preemption_asks_budgets_that_a_controller_keeps(server: RealServer, tmp_path: Path) -> None:
    need("kube-controller-manager")
    server.add_node("n0", cpu="2")
    server.add_node("n1", cpu="2")
    start_controllers(server)
    kubelet = Kubelet(server)
    kubelet.start()
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    key = "scheduling.tidelog.dev/allow-disruption-by-priority-greater-than-or-equal"
    server.must(
        "POST", classes, {"metadata": {"name": "guarded", "annotations": {key: "1000000"}}, "value": 10}
    )
    server.must("POST", classes, {"metadata": {"name": "high"}, "value": 1000})
    scheduler = daemon(server, tmp_path / "a" / "c.db")
    try:
        until(scheduler.ready, "the first sync")
        template = server.pod("x", cpu="1900m", priorityClassName="guarded")
        template["metadata"] = {"labels": {"app": "g"}}
        replicas = {
            "metadata": {"name": "g"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "g"}}, "template": template},
        }
        server.must("POST", "/apis/apps/v1/namespaces/default/replicasets", replicas)
        budget = {
            "metadata": {"name": "g"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "g"}}},
        }
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        server.must("POST", budgets, budget)
        until(lambda: len(server.bound()) == 2, "the guarded pods")
        until(lambda: server.must("GET", f"{budgets}/g")["status"].get("currentHealthy") == 2, "the budget")
        time.sleep(1)
        server.must(
            "POST",
            "/api/v1/namespaces/default/pods",
            server.pod("h-0", cpu="1900m", priorityClassName="high"),
        )
        time.sleep(5)
        refused = dict(server.bound())
        server.must(
            "PATCH", f"{budgets}/g", {"spec": {"maxUnavailable": 1}}, type="application/merge-patch+json"
        )
        until(lambda: "h-0" in server.bound(), "the pod of high priority")
    finally:
        kubelet.stop()
    time.sleep(2)
    assert scheduler.stop() == 0
    verified(scheduler.log)

    assert "h-0" not in refused
    assert len(refused) == 2
