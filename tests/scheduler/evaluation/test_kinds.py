"""Functions of use that a plugin has for some nodes only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.scheduler.evaluation.foreign_plugins import configured, registry_with
from tests.scheduler.evaluation.test_fast import asked
from tidelog.framework.interface import (
    CycleState,
    Depends,
    Plugin,
    Status,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import NodeUse, Together
from tidelog.plugins.node_resources.many_pods import RoomsOfPods, RoomsOfUses, is_countable
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

__all__ = ["asked"]


def amounts(pod: PodInfo) -> tuple[int, int]:
    return pod.requests.get("cpu", 0), pod.requests.get("memory", 0)


def has_room(pod: PodInfo, node: NodeInfo, use: NodeUse) -> bool:
    cpu, memory = amounts(pod)
    room = node.allocatable
    return (not cpu or use.cpu + cpu <= room.get("cpu", 0)) and (
        not memory or use.memory + memory <= room.get("memory", 0)
    )


class EvenOnSlow(Plugin):
    """Goes by cpu and memory; on nodes with a taint by the number of pods, of which a function of use knows nothing."""

    name = "EvenOnSlow"
    filter_depends = Depends.STATE

    def sign_pod(self, pod: PodInfo) -> object:
        return list(amounts(pod))

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.node.spec.taints:
            return unschedulable("odd") if len(node.pods) % 2 else None
        taken = node.requested.get("cpu", 0), node.requested.get("memory", 0)
        return None if has_room(pod, node, NodeUse(*taken, *taken)) else unschedulable("full")

    def use_fits(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], bool] | None:
        return None if node.node.spec.taints else partial(has_room, pod, node)

    def rooms_together(self) -> Together | None:
        return Together(is_countable, partial(RoomsOfPods, amounts), partial(RoomsOfUses, amounts))


def test_plugin_that_has_functions_for_some_nodes_only_is_asked_about_each(asked: Counter[str]) -> None:
    registry = registry_with([EvenOnSlow])
    driver = Driver(registry)
    driver.start(configured(registry, [EvenOnSlow]))
    for number in range(60):
        made = b.node(f"n{number}").capacity(cpu="32", memory="64Gi")
        is_slow = number % 2
        driver.put(made.taint("slow", "", "PreferNoSchedule").build() if is_slow else made.build())
        cpu = f"{100 + number}m" if is_slow else f"{8000 + number}m"
        driver.put(b.pod(f"there-{number}").request(cpu=cpu).on(f"n{number}").build())

    for number in range(40):
        pod = b.pod(f"p{number}").request(cpu=f"{100 + number % 20}m").tolerate("slow")
        driver.put(pod.scheduler("default-scheduler").build())
        driver.settle()

    assert len(driver.placements()) == 100
    assert asked["fast"] == 40
