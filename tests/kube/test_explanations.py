"""The annotation in which a rejected pod's explanation reaches who has kubectl and nothing else."""

from __future__ import annotations

from typing import Any

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tidelog.api.overrides import EXPLAIN, SPREAD_FALLBACK
from tidelog.kube.cluster.writer import WriterSettings

ZONE = "topology.kubernetes.io/zone"
CONFIG: Any = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "tidelog": {"featureGates": {"PodTopologySpreadFallbackMode": True}},
}


def a_server() -> MemoryServer:
    """One zone has no room for the second pod, and nobody has said that it gets none."""
    server = MemoryServer()
    server.add_node("n0", zone="a")
    server.add_node("n1", cpu="100m", zone="b")
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    fallback = {SPREAD_FALLBACK: f'{{"{ZONE}": ["NodeProvisioningFailed"]}}'}
    for number in range(2):
        name = f"web-{number}"
        server.add_pod(name, cpu="1", labels={"app": "web"}, topologySpreadConstraints=[spread])
        server.put("pods", "default", name, metadata={"annotations": fallback})
    return server


def explanation(server: MemoryServer, name: str) -> str | None:
    found: str | None = server.pod(name)["metadata"]["annotations"].get(EXPLAIN)
    return found


async def test_rejected_pod_says_why_its_constraint_holds_and_is_not_tried_again_for_saying_so() -> None:
    attempts = []
    for annotates in (False, True):
        server = a_server()
        settings = WriterSettings(annotate_explanation=annotates)
        async with LiveWorld(server, config=CONFIG, writer=settings) as world:
            await world.advance(20)
            rejections = await world.bodies("Unschedulable")
            attempts.append(len(rejections))
            lines = rejections[0].explanation

            assert set(server.bound()) == {"default/web-0"}
            assert "NodeProvisioningFailed" in "\n".join(lines)
            assert explanation(server, "web-1") == ("\n".join(lines) if annotates else None)
            assert explanation(server, "web-0") is None
            await world.verify()

    assert attempts[0] == attempts[1]


async def test_explanation_that_is_no_more_goes() -> None:
    server = a_server()
    server.put("pods", "default", "web-1", metadata={"annotations": {EXPLAIN: "of another time"}})
    server.put(
        "pods", "default", "web-1", spec={"topologySpreadConstraints": None, "nodeSelector": {"a": "b"}}
    )
    async with LiveWorld(server, config=CONFIG, writer=WriterSettings(annotate_explanation=True)) as world:
        (rejection,) = await world.bodies("Unschedulable")

        assert rejection.explanation == ()
        assert explanation(server, "web-1") is None
        await world.verify()
