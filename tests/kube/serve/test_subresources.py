"""Bindings, evictions, scales, events and leases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.conftest import Client
from tidelog.daemon.actors.disruption_controller import DisruptionController
from tidelog.daemon.actors.node_agent import NodeAgent

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody", **spec},
    }


async def running(serve: Any, *names: str) -> Client:
    client: Client = await serve(actors=[NodeAgent(), DisruptionController()])
    await client.post(
        "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}}
    )
    for name in names:
        await client.post(PODS, pod(name))
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        await client.post(f"{PODS}/{name}/binding", binding)
    await client.sandbox.advance(5)
    return client


async def test_binding_gives_the_pod_its_node_annotations_and_topology(serve: Any) -> None:
    client = await serve()
    await client.post(
        "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}}
    )
    created = (await client.post(PODS, pod("web"))).body
    meta = {"name": "web", "uid": created["metadata"]["uid"], "annotations": {"a": "b"}}

    answer = await client.post(f"{PODS}/web/binding", {"metadata": meta, "target": {"name": "n1"}})
    found = (await client.get(f"{PODS}/web")).body

    assert answer.status == 201
    assert answer.body["status"] == "Success"
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["annotations"] == {"a": "b"}
    assert found["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z"
    assert found["status"]["conditions"][0]["type"] == "PodScheduled"
    assert found["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize("metadata", [{}, {"name": "other"}])
async def test_binding_of_another_name_is_refused(metadata: dict[str, str], serve: Any) -> None:
    client = await serve()
    await client.post(PODS, pod("web"))

    answer = await client.post(f"{PODS}/web/binding", {"metadata": metadata, "target": {"name": "n1"}})

    assert (answer.status, answer.body["message"]) == (
        400,
        "name in URL does not match name in Binding object",
    )


async def test_eviction_is_charged_to_the_budget_and_then_refused(serve: Any) -> None:
    client = await running(serve, "a", "b")
    budget = {
        "metadata": {"name": "pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    await client.post(BUDGETS, budget)
    await client.sandbox.advance(1)

    granted = await client.post(f"{PODS}/a/eviction", {})
    refused = await client.post(f"{PODS}/b/eviction", {})
    found = (await client.get(f"{PODS}/a")).body
    charged = (await client.get(f"{BUDGETS}/pdb")).body

    assert granted.status == 201
    assert refused.status == 429
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert found["metadata"]["deletionTimestamp"]
    assert "EvictionByEvictionAPI" in [condition.get("reason") for condition in found["status"]["conditions"]]
    assert charged["status"]["disruptionsAllowed"] == 0
    assert list(charged["status"]["disruptedPods"]) == ["a"]


async def test_eviction_under_two_budgets_is_an_error(serve: Any) -> None:
    client = await running(serve, "a")
    for name in ("one", "two"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}
        await client.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})

    answer = await client.post(f"{PODS}/a/eviction", {})

    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.body["message"]


async def test_dry_run_of_an_eviction_changes_nothing(serve: Any) -> None:
    client = await running(serve, "a")
    before = client.sandbox.log.head.seq

    answer = await client.post(f"{PODS}/a/eviction", {"deleteOptions": {"dryRun": ["All"]}})

    assert answer.status == 201
    assert client.sandbox.log.head.seq == before


async def test_pod_on_a_node_ends_when_its_node_agent_ends_it(serve: Any) -> None:
    client = await running(serve, "a")

    going = await client.delete(f"{PODS}/a")
    await client.sandbox.advance(31)

    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await client.get(f"{PODS}/a")).status == 404


async def test_scale(client: Client) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
    }
    await client.post(path, {"metadata": {"name": "rs"}, "spec": spec})

    scale = (await client.get(f"{path}/rs/scale")).body
    put = await client.put(f"{path}/rs/scale", {**scale, "spec": {"replicas": 5}})
    patched = await client.patch(f"{path}/rs/scale", {"spec": {"replicas": 3}})
    bad = await client.patch(f"{path}/rs/scale", {"spec": {"replicas": -3}})

    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "a=b"}
    assert put.body["spec"] == {"replicas": 5}
    assert patched.body["spec"] == {"replicas": 3}
    assert bad.status == 400
    assert (await client.get(f"{path}/rs")).body["spec"]["template"] == spec["template"]


# --- beside the log -------------------------------------------------------------------------------------------------


async def test_event_has_two_forms_and_is_not_in_the_log(client: Client) -> None:
    before = client.sandbox.log.head.seq
    event = {
        "metadata": {"name": "e.1"},
        "regarding": {"kind": "Pod", "name": "web"},
        "note": "hi",
        "reason": "R",
        "type": "Normal",
    }

    created = await client.post(EVENTS, event)
    core = (
        await client.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=web")
    ).body
    patched = await client.patch(f"{EVENTS}/e.1", {"series": {"count": 2}})

    assert created.status == 201
    assert created.body["regarding"]["name"] == "web"
    assert core["items"][0]["involvedObject"]["name"] == "web"
    assert core["items"][0]["message"] == "hi"
    assert patched.body["series"] == {"count": 2}
    assert client.sandbox.log.head.seq == before


async def test_lease_is_taken_by_one(client: Client) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}

    first = await client.post(LEASES, lease)
    second = await client.post(LEASES, lease)
    renewed = await client.put(f"{LEASES}/l", {**first.body, "spec": {"holderIdentity": "b"}})
    late = await client.put(f"{LEASES}/l", {**first.body, "spec": {"holderIdentity": "c"}})

    assert (first.status, second.status, renewed.status, late.status) == (201, 409, 200, 409)
    assert second.body["reason"] == "AlreadyExists"
    assert late.body["reason"] == "Conflict"


async def test_events_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.kube.serve import memory

    monkeypatch.setitem(memory.OBJECTS_MAX, "Event", 3)
    for number in range(5):
        await client.post(EVENTS, {"metadata": {"name": f"e{number}"}})

    found = (await client.get(EVENTS)).body["items"]

    assert [item["metadata"]["name"] for item in found] == ["e2", "e3", "e4"]


async def test_revisions_beside_the_log_do_not_come_again_after_a_restart(client: Client) -> None:
    before = (await client.post(EVENTS, {"metadata": {"name": "e"}})).body["metadata"]["resourceVersion"]
    await client.sandbox.advance(1)
    await client.sandbox.restart()

    async with client.http.get(EVENTS, params={"watch": "true", "resourceVersion": before}) as reply:
        text = await reply.text()

    assert '"code":410' in text
