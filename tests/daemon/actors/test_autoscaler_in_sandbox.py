"""The user stories of KEP-3990 and KEP-3022 in the real runtime, with the cluster autoscaler where they have one.

And across a restart of the process, which makes a new autoscaler that remembers nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.worlds.objects import node
from tidelog.api.objects import pod_condition
from tidelog.api.times import NANOS
from tidelog.cli.demo.spread import configuration
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.daemon.actors.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSettings
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.daemon.actors.node_groups import ZONE, NodeGroup, Stockout
from tidelog.eventlog.records import Record, Scheduled, decode_body
from tidelog.plugins.registry import Registry
from tidelog.testing import builders as b
from tidelog.testing.sandbox import Sandbox
from tidelog.testing.virtual_time import START

NP = "NodeProvisioningInProgress"
FALLS_BACK = "NodeProvisioningFailed"
PREEMPTION = "PreemptionFailed"


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


def web(name: str, *criteria: str, cpu: str = "1", scheduler: str = "default-scheduler") -> Any:
    pod = b.pod(name).label(app="web").scheduler(scheduler).request(cpu=cpu)
    return pod.spread(ZONE, "app=web", fallback=criteria).build()


def node_of(cluster: Sandbox, pod: str) -> str:
    return cluster.pod(pod).spec.node_name


def said(cluster: Sandbox, pod: str) -> tuple[str, str] | None:
    condition = pod_condition(cluster.pod(pod), NP)
    return None if condition is None else (condition.status, condition.reason)


def fallen_back(records: Sequence[Record]) -> list[bool]:
    """For each binding, whether a constraint had fallen back."""
    bodies = [decode_body(record) for record in records]
    return [bool(body.fallback) for body in bodies if isinstance(body, Scheduled)]


async def seconds_of(cluster: Sandbox, kind: str) -> list[float]:
    return [(r.at - START) / NANOS for r in [record async for record in cluster.records()] if r.kind == kind]


async def test_zone_that_runs_out_lets_the_pods_fall_back() -> None:
    groups = [group("g", "a", "b", stockouts=(Stockout(zones=("b",)),))]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", zone="a", cpu="4"), node("b1", zone="b", cpu="1")])
        await cluster.apply([web(f"web-{i}", FALLS_BACK) for i in range(4)])
        await cluster.advance(minutes=2)

        assert all(node_of(cluster, f"web-{i}") for i in range(4))
        assert fallen_back([record async for record in cluster.records()]) == [False, False, False, True]
        await cluster.verify()


async def test_min_domains_spreads_a_deployment_over_at_least_five_nodes() -> None:
    """KEP-3022's story: six pods fit on the three nodes with a skew of two, the other four wait for two more nodes."""
    async with cluster_of([group("g", "a", cpu="8", provisioning_seconds=60)]) as cluster:
        await cluster.apply([node(f"n{i}", zone="a", cpu="8") for i in range(3)])
        await cluster.apply(
            [
                b.pod(f"web-{i}")
                .label(app="web")
                .request(cpu="1")
                .spread(b.HOSTNAME, "app=web", max_skew=2, min_domains=5)
                .build()
                for i in range(10)
            ]
        )
        at_once = len(cluster.placements)
        await cluster.advance(minutes=5)

        assert at_once == 6
        assert sorted(Counter(cluster.placements.values()).values()) == [2, 2, 2, 2, 2]
        await cluster.verify()


async def test_preemption_is_tried_before_the_pods_fall_back() -> None:
    """Story 3 of KEP-3990: web-1 pushes the balloon out of zone b; for web-2 there is nobody to push, so it takes zone a."""
    balloon = b.pod("balloon").request(cpu="4").priority_class("balloon").on("b1").build()
    async with Sandbox(configuration(), actors=[NodeAgent()]) as cluster:
        await cluster.apply(b.priority_class("balloon", -10))
        await cluster.apply([node("a1", zone="a", cpu="4"), node("b1", zone="b", cpu="4"), balloon])
        await cluster.apply(web("web-0", PREEMPTION))
        await cluster.apply(web("web-1", PREEMPTION, cpu="4"))
        await cluster.advance(minutes=2)
        full = cluster.placements
        await cluster.apply(web("web-2", PREEMPTION))
        await cluster.advance(minutes=2)
        await cluster.apply(web("web-3", PREEMPTION))
        await cluster.advance(minutes=2)

        records = [record async for record in cluster.records()]
        assert [record.key for record in records if record.kind == "Evicted"] == ["Pod/default/balloon"]
        assert full == {"default/web-0": "a1", "default/web-1": "b1"}
        assert (node_of(cluster, "web-2"), node_of(cluster, "web-3")) == ("a1", "a1")
        assert fallen_back(records) == [False, False, False, True]
        await cluster.verify()


async def test_order_is_delivered_after_a_restart() -> None:
    groups = [group("g", "a", provisioning_seconds=60)]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", zone="a", cpu="1"), b.pod("p").request(cpu="2").build()])
        await cluster.advance(seconds=30)
        assert said(cluster, "p") == ("True", "NodeOrdered")

        await restart_anew(cluster, groups)
        await cluster.advance(minutes=2)

        assert node_of(cluster, "p") == "g-a-1"
        await cluster.verify()


async def test_dead_autoscaler_leaves_it_to_the_timeout_across_a_restart() -> None:
    async with cluster_of([group("g", "a", "b")], configuration("2m"), stopped=True) as cluster:
        await cluster.apply([node("a1", zone="a", cpu="4"), node("b1", zone="b", cpu="1")])
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
        await cluster.apply(node("a1", zone="a", cpu="1"))
        await restart_anew(cluster, groups)

        await cluster.apply(b.pod("p").scheduler("mine").request(cpu="2").build())
        await cluster.advance(seconds=60)

        assert node_of(cluster, "p") == "g-a-1"
        await cluster.verify()


async def test_gates_are_known_after_a_restart() -> None:
    """A pod that was told False gets any node, because its constraint has fallen back: only with the gate on is that so."""
    groups = [group("g", "a", "b", stockouts=(Stockout(zones=("b",)),))]
    async with cluster_of(groups) as cluster:
        await cluster.apply([node("a1", zone="a", cpu="1"), node("b1", zone="b", cpu="1")])
        await cluster.apply([web("web-0", FALLS_BACK), web("web-1", FALLS_BACK)])
        await restart_anew(cluster, groups)

        await cluster.apply([web("web-2", FALLS_BACK, cpu="2")])
        await cluster.apply([web("web-3", FALLS_BACK, cpu="2")])
        await cluster.advance(minutes=10)

        assert all(node_of(cluster, f"web-{i}") for i in range(4))
        assert said(cluster, "web-3") == ("False", "OutOfStock")
        await cluster.verify()
