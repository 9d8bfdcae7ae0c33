"""Preemption at a live cluster: who is asked to go, in which order, and what follows a refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_promises import condition
from tidelog.kube.cluster.port import Request

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "tidelog": {"featureGates": {"DisruptionPolicyInPriorityClass": True}},
}


def a_server(nodes: int) -> MemoryServer:
    """Each node is full with one pod of low priority, named as it."""
    server = MemoryServer()
    for number in range(nodes):
        server.add_node(f"n{number}", cpu="1")
        server.add_pod(f"v{number}", cpu="1", nodeName=f"n{number}", labels={"app": f"v{number}"})
        server.put(
            "pods",
            "default",
            f"v{number}",
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        )
    return server


def protect(server: MemoryServer, name: str, budget: str, allowed: int = 1) -> None:
    server.put("pods", "default", name, spec={"allowDisruptionByPriorityGreaterThanOrEqual": 1_000_000})
    add_budget(server, budget, name, allowed)


def add_budget(server: MemoryServer, budget: str, app: str, allowed: int) -> None:
    server.put(
        "poddisruptionbudgets",
        "default",
        budget,
        metadata={"generation": 1},
        spec={"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1},
        status={
            "disruptionsAllowed": allowed,
            "observedGeneration": 1,
            "currentHealthy": 1,
            "desiredHealthy": 0,
            "expectedPods": 1,
        },
    )


def writes(server: MemoryServer) -> list[str]:
    """The writes about pods, by name and part."""
    found = []
    for request in server.requests:
        parts = request.path.split("/")
        if request.method != "GET" and "pods" in parts:
            found.append(" ".join([request.method, *parts[6:]]))
    return found


def finish(server: MemoryServer, name: str) -> None:
    """What the kubelet does with a pod that is to go."""
    if server.pod(name)["metadata"].get("deletionTimestamp"):
        server.delete("pods", "default", name)


async def test_without_the_proposal_a_victim_is_deleted_as_kube_scheduler_does() -> None:
    server = a_server(1)
    async with LiveWorld(server) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.quiet()

        assert writes(server) == ["PATCH high status", "PATCH v0 status", "DELETE v0"]
        await world.verify()


async def test_nomination_comes_before_the_eviction_and_the_pod_follows_its_victim() -> None:
    server = a_server(1)
    async with LiveWorld(server, config=CONFIG) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.quiet()
        asked = writes(server)
        finish(server, "v0")
        await world.advance(3)

        assert asked == ["PATCH high status", "POST v0 eviction"]
        assert server.pod("high")["spec"]["nodeName"] == "n0"
        assert condition(server.pod("high"))["status"] == "True"
        assert len(world.core.promises) == 0
        await world.verify()


async def test_nobody_is_asked_to_go_before_the_nomination_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, answered = a_server(1), asyncio.Event()
    send = server.send

    async def slow(request: Request) -> Any:
        if request.method == "PATCH" and "/high/" in request.path:
            await answered.wait()
        return await send(request)

    monkeypatch.setattr(server, "send", slow)
    async with LiveWorld(server, config=CONFIG) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(2)
        before = writes(server)
        answered.set()
        await world.quiet()

        assert before == []
        assert writes(server) == ["PATCH high status", "POST v0 eviction"]
        await world.verify()


async def test_refused_eviction_of_a_protected_pod_leads_to_the_next_candidate() -> None:
    server = a_server(2)
    protect(server, "v0", "b0")
    protect(server, "v1", "b1")
    spent: list[str] = []

    def spend(request: Request) -> None:
        # Somebody else's drain takes what the budget allowed, and the log has not heard of it.
        if request.path.endswith("/eviction") and not spent:
            number = request.path.split("/")[6][1:]
            spent.append(number)
            server.hold("poddisruptionbudgets")
            server.put("poddisruptionbudgets", "default", f"b{number}", status={"disruptionsAllowed": 0})

    async with LiveWorld(server, config=CONFIG) as world:
        server.before = spend
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(5)
        refused = f"v{spent[0]}"
        other = "v1" if refused == "v0" else "v0"
        (failed,) = await world.bodies("WriteFailed")

        assert (failed.code, failed.causes, failed.budget) == (
            429,
            ("DisruptionBudget",),
            f"PodDisruptionBudget/default/b{spent[0]}",
        )
        assert not server.pod(refused)["metadata"].get("deletionTimestamp")
        assert not world.core.objects[f"Pod/default/{refused}"].metadata.deletion_timestamp
        assert server.pod(other)["metadata"]["deletionTimestamp"]
        assert server.pod("high")["status"]["nominatedNodeName"] == f"n{other[1]}"
        finish(server, other)
        server.let_go()
        await world.advance(5)
        assert server.pod("high")["spec"]["nodeName"] == f"n{other[1]}"
        await world.verify()


async def test_victims_of_a_plan_that_is_called_off_are_not_asked_any_more() -> None:
    server = MemoryServer()
    server.add_node("n0", cpu="3")
    for number in range(3):
        server.add_pod(f"v{number}", cpu="1", nodeName="n0", labels={"app": f"v{number}"})
        server.put(
            "pods",
            "default",
            f"v{number}",
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        )
        protect(server, f"v{number}", f"b{number}")
    evictions = 0

    def spend(request: Request) -> None:
        nonlocal evictions
        if request.path.endswith("/eviction"):
            evictions += 1
            if evictions == 2:
                server.hold("poddisruptionbudgets")
                server.put(
                    "poddisruptionbudgets",
                    "default",
                    f"b{request.path.split('/')[6][1:]}",
                    status={"disruptionsAllowed": 0},
                )

    async with LiveWorld(server, config=CONFIG) as world:
        server.before = spend
        server.add_pod("high", cpu="3", priority=100)
        await world.advance(5)
        failed = await world.bodies("WriteFailed")
        going = [n for n in ("v0", "v1", "v2") if server.pod(n)["metadata"].get("deletionTimestamp")]

        assert evictions == 2
        assert sorted(body.sent for body in failed) == [False, True]
        assert len(going) == 1
        assert not server.pod("high")["status"].get("nominatedNodeName")
        await world.verify()


async def test_refused_eviction_of_an_unprotected_pod_becomes_a_deletion() -> None:
    server = a_server(1)
    add_budget(server, "b", "v0", allowed=1)

    def spend(request: Request) -> None:
        if request.path.endswith("/eviction"):
            server.hold("poddisruptionbudgets")
            server.put("poddisruptionbudgets", "default", "b", status={"disruptionsAllowed": 0})

    async with LiveWorld(server, config=CONFIG) as world:
        server.before = spend
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(2)

        assert writes(server) == ["PATCH high status", "POST v0 eviction", "PATCH v0 status", "DELETE v0"]
        assert server.pod("v0")["metadata"]["deletionTimestamp"]
        assert condition(server.pod("v0"), "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        server.let_go()
        await world.verify()


async def test_protected_pod_under_two_budgets_is_never_asked() -> None:
    server = a_server(1)
    protect(server, "v0", "b0")
    add_budget(server, "b1", "v0", allowed=1)
    async with LiveWorld(server, config=CONFIG) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(5)

        assert not [w for w in writes(server) if "v0" in w]
        await world.verify()


async def test_unprotected_pod_under_two_budgets_is_deleted_at_once() -> None:
    server = a_server(1)
    add_budget(server, "b0", "v0", allowed=1)
    add_budget(server, "b1", "v0", allowed=1)
    async with LiveWorld(server, config=CONFIG) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(2)

        assert [w for w in writes(server) if "v0" in w] == ["PATCH v0 status", "DELETE v0"]
        await world.verify()


async def test_budgets_are_the_servers_to_charge() -> None:
    server = a_server(2)
    add_budget(server, "b", "v0", allowed=1)
    async with LiveWorld(server, config=CONFIG) as world:
        server.add_pod("high", cpu="1", priority=100)
        await world.advance(2)
        mine: Any = world.core.objects["PodDisruptionBudget/default/b"]

        assert (
            mine.status.disruptions_allowed
            == server.objects["poddisruptionbudgets"]["default/b"]["status"]["disruptionsAllowed"]
        )


async def test_eviction_goes_on_after_a_restart() -> None:
    server = a_server(1)
    world = LiveWorld(server)
    async with world:
        server.unreachable = False
        lost = [True]
        server.lose = lambda r: r.path.endswith("/eviction") and bool(lost) and lost.pop()
        server.add_pod("high", cpu="1", priority=100)
        await world.quiet()
        await world.restart()
        finish(server, "v0")
        await world.advance(5)

        assert server.pod("high")["spec"]["nodeName"] == "n0"
        await world.verify()
