"""The cluster autoscaler in the real runtime, and across a restart of the process, which makes a new one that remembers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.api import builders as b
from tidelog.api.objects import pod_condition
from tidelog.api.times import NANOS
from tidelog.daemon.actors.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSettings
from tidelog.daemon.actors.node_groups import ZONE, NodeGroup, Stockout
from tidelog.daemon.demo_spread import configuration
from tidelog.daemon.sandbox import Sandbox
from tidelog.daemon.virtual_time import START
from tidelog.eventlog.records import Scheduled, decode_body
from tidelog.plugins.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.plugins.registry import Registry

NP = "NodeProvisioningInProgress"
FALLS_BACK = "NodeProvisioningFailed"


def cluster_of(
    groups: Sequence[NodeGroup], config: SchedulerConfiguration | None = None, **settings: Any
) -> Sandbox:
    """A sandbox with an autoscaler that may buy from these groups."""
    chosen = ClusterAutoscalerSettings(node_groups=tuple(groups), **settings)
    return Sandbox(config or configuration(), actors=[ClusterAutoscaler(chosen)])


async def restart_anew(cluster: Sandbox, groups: Sequence[NodeGroup]) -> None:
    """A new process: the configuration is the same, so the log is told of none, and the actors are made again."""
    await cluster.restart([ClusterAutoscaler(ClusterAutoscalerSettings(node_groups=tuple(groups)))])


def group(name: str, *zones: str, cpu: str = "2", **fields: Any) -> NodeGroup:
    size: dict[str, Any] = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return NodeGroup(name=name, zones=zones, resources=size, **fields)


def node(name: str, zone: str, cpu: str) -> Any:
    return b.node(name).label({ZONE: zone}).capacity(cpu=cpu).build()


def web(name: str, *criteria: str, cpu: str = "1", scheduler: str = "default-scheduler") -> Any:
    pod = b.pod(name).label(app="web").scheduler(scheduler).request(cpu=cpu)
    return pod.spread(ZONE, "app=web", fallback=criteria).build()


def node_of(cluster: Sandbox, pod: str) -> str:
    return cluster.pod(pod).spec.node_name


def said(cluster: Sandbox, pod: str) -> tuple[str, str] | None:
    condition = pod_condition(cluster.pod(pod), NP)
    return None if condition is None else (condition.status, condition.reason)


async def seconds_of(cluster: Sandbox, kind: str) -> list[float]:
    return [(r.at - START) / NANOS for r in await cluster.records() if r.kind == kind]


async def test_zone_that_runs_out_lets_the_pods_fall_back() -> None:
    groups = [group("g", "a", "b", stockouts=(Stockout(zones=("b",)),))]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", "a", "4"), node("b1", "b", "1")])
        await cluster.apply([web(f"web-{i}", FALLS_BACK) for i in range(4)])
        await cluster.advance(minutes=2)

        assert all(node_of(cluster, f"web-{i}") for i in range(4))
        bodies = [decode_body(record) for record in await cluster.records()]
        fallen = [bool(body.fallback) for body in bodies if isinstance(body, Scheduled)]
        assert fallen == [False, False, False, True]
        await cluster.verify()


async def test_order_is_delivered_after_a_restart() -> None:
    groups = [group("g", "a", provisioning_seconds=60)]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", "a", "1"), b.pod("p").request(cpu="2").build()])
        await cluster.advance(seconds=30)
        assert said(cluster, "p") == ("True", "NodeOrdered")

        await restart_anew(cluster, groups)
        await cluster.advance(minutes=2)

        assert node_of(cluster, "p") == "g-a-1"
        await cluster.verify()


async def test_dead_autoscaler_leaves_it_to_the_timeout_across_a_restart() -> None:
    async with cluster_of([group("g", "a", "b")], configuration("2m"), stopped=True) as cluster:
        await cluster.apply([node("a1", "a", "4"), node("b1", "b", "1")])
        await cluster.apply([web(f"web-{i}", FALLS_BACK) for i in range(4)])
        await cluster.advance(seconds=60)

        await cluster.restart()
        await cluster.advance(seconds=59)
        before = [pod for pod in (f"web-{i}" for i in range(4)) if not node_of(cluster, pod)]
        await cluster.advance(seconds=1)

        assert len(before) == 1
        assert node_of(cluster, before[0]) == "a1"
        assert await seconds_of(cluster, "Tick") == [120]
        await cluster.verify()


async def test_configuration_is_known_after_a_restart() -> None:
    """The pod's scheduler is not the default one: in another configuration the autoscaler would not look at it."""
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
    }
    config = resolve_configuration(file, Registry()).configuration
    groups = [group("g", "a", provisioning_seconds=20)]
    async with cluster_of(groups, config) as cluster:
        await cluster.apply(node("a1", "a", "1"))
        await restart_anew(cluster, groups)

        await cluster.apply(b.pod("p").scheduler("mine").request(cpu="2").build())
        await cluster.advance(seconds=60)

        assert node_of(cluster, "p") == "g-a-1"
        await cluster.verify()


async def test_gates_are_known_after_a_restart() -> None:
    """A pod that was told False gets any node, because its constraint has fallen back: only with the gate on is that so."""
    groups = [group("g", "a", "b", stockouts=(Stockout(zones=("b",)),))]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", "a", "1"), node("b1", "b", "1")])
        await cluster.apply([web("web-0", FALLS_BACK), web("web-1", FALLS_BACK)])
        await restart_anew(cluster, groups)

        await cluster.apply([web("web-2", FALLS_BACK, cpu="2")])
        await cluster.apply([web("web-3", FALLS_BACK, cpu="2")])
        await cluster.advance(minutes=10)

        assert all(node_of(cluster, f"web-{i}") for i in range(4))
        assert said(cluster, "web-3") == ("False", "OutOfStock")
        await cluster.verify()
