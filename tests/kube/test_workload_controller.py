"""Deployments, ReplicaSets, StatefulSets and Jobs become pods, and go with them."""

from __future__ import annotations

from typing import Any

from tests.kube.conftest import Client, MakeClient
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.daemon.actors.volume_controller import VolumeController
from tidelog.daemon.actors.workload_controller import WorkloadController

APPS = "/apis/apps/v1/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


def template(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}]}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], **spec}}


def workload(replicas: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "x"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "x"}},
            "template": template(),
            **spec,
        },
    }


async def cluster(serve: MakeClient) -> Client:
    client = await serve(actors=[NodeAgent(), WorkloadController()])
    allocatable = {"cpu": "9", "memory": "9Gi", "pods": "99"}
    await client.post("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}})
    return client


async def put(client: Client, path: str, manifest: dict[str, Any]) -> Any:
    answer = await client.post(path, manifest)
    assert answer.status == 201, answer.body
    await client.sandbox.advance(10)
    return answer.body


async def pods(client: Client) -> list[Any]:
    found: list[Any] = (await client.get(PODS)).body["items"]
    return found


async def test_deployment_becomes_a_replica_set_and_pods_with_owner_labels_and_all_of_the_template(
    serve: MakeClient,
) -> None:
    client = await cluster(serve)
    made = await put(client, f"{APPS}/deployments", workload(3))
    (replica_set,) = (await client.get(f"{APPS}/replicasets")).body["items"]
    found = await pods(client)
    status = (await client.get(f"{APPS}/deployments/x")).body["status"]

    label = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"x-{label}"
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "x", "pod-template-hash": label}
    assert len(found) == 3
    for pod in found:
        assert pod["metadata"]["name"].startswith(f"x-{label}-")
        assert pod["metadata"]["labels"] == {"app": "x", "pod-template-hash": label}
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replica_set["metadata"]["uid"]
        assert pod["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
        assert pod["spec"]["nodeName"] == "n1"
    assert status["readyReplicas"] == status["replicas"] == status["updatedReplicas"] == 3


async def test_another_template_replaces_the_pods(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/deployments", workload(2))
    before = {pod["metadata"]["name"] for pod in await pods(client)}

    await client.patch(
        f"{APPS}/deployments/x", {"spec": {"template": template(priority=None, dnsPolicy="Default")}}
    )
    await client.sandbox.advance(60)

    found = await pods(client)
    assert len(found) == 2
    assert before.isdisjoint({pod["metadata"]["name"] for pod in found})
    assert {pod["spec"]["dnsPolicy"] for pod in found} == {"Default"}


async def test_scaling_up_and_down(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/replicasets", workload(1))
    counts = []
    for replicas in (4, 2, 0):
        await client.patch(f"{APPS}/replicasets/x/scale", {"spec": {"replicas": replicas}})
        await client.sandbox.advance(60)
        counts.append(len(await pods(client)))

    assert counts == [4, 2, 0]


async def test_pod_that_is_gone_is_replaced(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/replicasets", workload(2))
    first = (await pods(client))[0]["metadata"]["name"]

    await client.delete(f"{PODS}/{first}", {"gracePeriodSeconds": 0})
    await client.sandbox.advance(10)

    names = [pod["metadata"]["name"] for pod in await pods(client)]
    assert len(names) == 2
    assert first not in names


async def test_what_nobody_owns_any_more_goes(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/deployments", workload(2))

    await client.delete(f"{APPS}/deployments/x")
    await client.sandbox.advance(60)

    assert await pods(client) == []
    assert (await client.get(f"{APPS}/replicasets")).body["items"] == []


async def test_orphans_stay(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/replicasets", workload(2))

    await client.delete(f"{APPS}/replicasets/x", propagationPolicy="Orphan")
    await client.sandbox.advance(60)

    found = await pods(client)
    assert len(found) == 2
    assert all("ownerReferences" not in pod["metadata"] for pod in found)


async def test_stateful_set_has_ordinals_one_after_the_other(serve: MakeClient) -> None:
    client = await cluster(serve)
    answer = await client.post(f"{APPS}/statefulsets", workload(3))
    assert answer.status == 201, answer.body
    await client.sandbox.advance(0.5)
    early = [pod["metadata"]["name"] for pod in await pods(client)]
    await client.sandbox.advance(30)
    found = await pods(client)

    assert early == ["x-0"]
    assert [pod["metadata"]["name"] for pod in found] == ["x-0", "x-1", "x-2"]
    assert found[2]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "2"


async def test_parallel_stateful_set(serve: MakeClient) -> None:
    client = await cluster(serve)
    await client.post(f"{APPS}/statefulsets", workload(3, podManagementPolicy="Parallel"))
    await client.sandbox.advance(0.5)

    assert [pod["metadata"]["name"] for pod in await pods(client)] == ["x-0", "x-1", "x-2"]


async def test_job_runs_until_enough_have_succeeded(serve: MakeClient) -> None:
    client = await cluster(serve)
    spec = {
        "completions": 3,
        "parallelism": 2,
        "completionMode": "Indexed",
        "template": template(restartPolicy="Never"),
    }
    await put(client, JOBS, {"metadata": {"name": "j"}, "spec": spec})
    first = await pods(client)
    for _ in range(2):
        for pod in await pods(client):
            path = f"{PODS}/{pod['metadata']['name']}/status"
            await client.patch(path, {"status": {"phase": "Succeeded"}})
        await client.sandbox.advance(10)
    job = (await client.get(f"{JOBS}/j")).body

    indexes = sorted(
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in await pods(client)
    )
    assert len(first) == 2
    assert indexes == ["0", "1", "2"]
    assert job["status"]["succeeded"] == 3
    assert job["status"]["conditions"][0]["type"] == "Complete"


async def test_job_fails_when_too_many_pods_failed(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(
        client,
        JOBS,
        {"metadata": {"name": "j"}, "spec": {"backoffLimit": 1, "template": template(restartPolicy="Never")}},
    )
    for _ in range(3):
        for pod in await pods(client):
            await client.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
        await client.sandbox.advance(10)
    job = (await client.get(f"{JOBS}/j")).body

    assert job["status"]["failed"] == 2
    assert job["status"]["conditions"][0]["type"] == "Failed"


async def test_template_that_may_not_enter_harms_nobody(serve: MakeClient) -> None:
    client = await cluster(serve)
    bad = workload(2)
    bad["spec"]["template"]["spec"]["containers"] = [{"name": "C!"}]
    await put(client, f"{APPS}/replicasets", bad)
    good = workload(1)
    good["metadata"] = {"name": "good"}
    await put(client, f"{APPS}/replicasets", good)

    assert [pod["metadata"]["ownerReferences"][0]["name"] for pod in await pods(client)] == ["good"]


async def test_restart_makes_no_pod_twice(serve: MakeClient) -> None:
    client = await cluster(serve)
    await put(client, f"{APPS}/deployments", workload(3))
    before = [pod["metadata"]["uid"] for pod in await pods(client)]

    await client.sandbox.restart(actors=[NodeAgent(), WorkloadController()])
    await client.sandbox.advance(30)

    assert [pod["metadata"]["uid"] for pod in await pods(client)] == before


async def test_stateful_set_with_claim_templates_gets_a_volume_for_each_pod_and_keeps_them(
    serve: MakeClient,
) -> None:
    client = await serve(actors=[NodeAgent(), WorkloadController(), VolumeController()])
    allocatable = {"cpu": "9", "memory": "9Gi", "pods": "99"}
    await client.post("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}})
    classes = {
        "metadata": {"name": "fast"},
        "provisioner": "d.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await client.post("/apis/storage.k8s.io/v1/storageclasses", classes)
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = [{"metadata": {"name": "data"}, "spec": spec}]

    await put(client, f"{APPS}/statefulsets", workload(2, serviceName="x", volumeClaimTemplates=claims))
    await client.sandbox.advance(20)

    found = await pods(client)
    assert [(p["metadata"]["name"], p["spec"].get("nodeName")) for p in found] == [
        ("x-0", "n1"),
        ("x-1", "n1"),
    ]
    made = (await client.get("/api/v1/namespaces/default/persistentvolumeclaims")).body["items"]
    assert [(c["metadata"]["name"], c["status"]["phase"]) for c in made] == [
        ("data-x-0", "Bound"),
        ("data-x-1", "Bound"),
    ]
