"""What the scheduler decides is told in events, as kubectl's users look for it."""

from __future__ import annotations

from typing import Any

from tests.kube.conftest import Client
from tidelog.api.objects import ObjectMeta, PriorityClass
from tidelog.testing.builders import node, pod

EVENTS = "/api/v1/namespaces/default/events"


async def told(client: Client, name: str) -> list[tuple[Any, ...]]:
    found = (await client.get(EVENTS, fieldSelector=f"involvedObject.name={name}")).body["items"]
    return [(one["type"], one["reason"], one["message"], one["count"]) for one in found]


async def test_pod_that_is_placed_is_told_where(client: Client) -> None:
    await client.sandbox.apply([node("n1").capacity(cpu="4").build(), pod("web").request(cpu="1").build()])

    assert await told(client, "web") == [
        ("Normal", "Scheduled", "Successfully assigned default/web to n1", 1)
    ]


async def test_pod_that_waits_is_told_why_once_and_how_often(client: Client) -> None:
    await client.sandbox.apply([node("n1").capacity(cpu="1").build(), pod("web").request(cpu="4").build()])
    await client.sandbox.advance(minutes=20)

    found = await told(client, "web")

    warnings = [one for one in found if one[1] == "FailedScheduling"]
    assert len(warnings) == 1
    assert warnings[0][2].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert warnings[0][3] > 1


async def test_victim_is_told_by_whom_it_was_preempted(client: Client) -> None:
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=100)
    await client.sandbox.apply(
        [high, node("n1").capacity(cpu="4").build(), pod("low").request(cpu="4").build()]
    )
    await client.sandbox.apply(pod("high").request(cpu="4").priority_class("high").build())
    preemptor = client.sandbox.pod("high")

    found = await told(client, "low")

    assert ("Normal", "Preempted", f"Preempted by pod {preemptor.metadata.uid} on node n1", 1) in found


async def test_events_have_both_forms_and_are_watched(client: Client) -> None:
    await client.sandbox.apply([node("n1").capacity(cpu="4").build(), pod("web").request(cpu="1").build()])

    found = (await client.get("/apis/events.k8s.io/v1/namespaces/default/events")).body["items"]

    assert found[0]["regarding"]["name"] == "web"
    assert found[0]["note"] == "Successfully assigned default/web to n1"
