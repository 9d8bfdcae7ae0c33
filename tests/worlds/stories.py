"""Random stories on the synchronous driver: what happens to a cluster in an hour or so, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.worlds.objects import ZONE, node
from tidelog.api.objects import Node, Pod
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b


class SlowPermit(Plugin):
    """Lets pods labelled `slow` wait for twenty seconds, and then be rejected."""

    name = "SlowPermit"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        if "slow" in pod.labels:
            return PermitResult(Status(Code.WAIT), 20)
        return PermitResult()


class Story:
    """Does one random thing after the other. Two stories of one seed do the same things, if their clusters are the same."""

    def __init__(self, seed: int, driver: Driver) -> None:
        self.random = random.Random(seed)
        self.driver = driver

    def step(self) -> None:
        happen: Callable[[], None] = self.random.choice(
            [
                self.add_pods,
                self.add_pods,
                self.add_node,
                self.change_node,
                self.remove_node,
                self.remove_pod,
                self.bind_elsewhere,
                self.decide,
                self.decide,
                self.commit,
                self.commit,
                self.wait,
                self.reconfigure,
            ]
        )
        happen()

    def quiet(self) -> None:
        """Nothing is in flight any more."""
        self.driver.commit()

    def _pods(self) -> list[Pod]:
        return [obj for obj in self.driver.core.objects.values() if isinstance(obj, Pod)]

    def _nodes(self) -> list[Node]:
        return [obj for obj in self.driver.core.objects.values() if isinstance(obj, Node)]

    def add_pods(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            name = f"p{self.random.randrange(40)}"
            if f"Pod/default/{name}" in self.driver.core.objects:
                continue
            # A uid of its own for each life, as admission gives it.
            pod = b.pod(name).scheduler("default-scheduler").uid(f"{name}-{len(self.driver.records)}")
            pod = pod.request(cpu=self.random.choice(["100m", "1", "3", "9"])).label(app="web")
            kind = self.random.randrange(5)
            if kind == 0:
                pod = pod.spread(ZONE, max_skew=1)
            elif kind == 1:
                pod = pod.pod_anti_affinity("kubernetes.io/hostname", {"app": "web"})
            elif kind == 2:
                pod = pod.priority(self.random.randrange(3) * 100)
            elif kind == 3 and self.random.random() < 0.5:
                pod = pod.label(slow="yes")
            self.driver.put(pod.build())

    def add_node(self) -> None:
        name = f"n{self.random.randrange(6)}"
        self.driver.put(node(name, self.random.choice(["2", "4"]), zone=self.random.choice("abc")))

    def change_node(self) -> None:
        nodes = self._nodes()
        if nodes:
            old = self.random.choice(nodes)
            changed = b.node(old.metadata.name).label(old.metadata.labels).capacity(cpu="4")
            if self.random.random() < 0.5:
                changed = changed.cordon()
            self.driver.put(changed.build())

    def remove_node(self) -> None:
        nodes = self._nodes()
        if len(nodes) > 2:
            self.driver.delete(self.random.choice(nodes))

    def remove_pod(self) -> None:
        if pods := self._pods():
            self.driver.delete(self.random.choice(pods))

    def bind_elsewhere(self) -> None:
        name = f"guest{self.random.randrange(5)}"
        if f"Pod/default/{name}" not in self.driver.core.objects:
            self.driver.put(b.pod(name).request(cpu="1").on(f"n{self.random.randrange(7)}").build())

    def decide(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.driver.attempt()

    def commit(self) -> None:
        self.driver.commit(self.random.randint(1, 5))

    def wait(self) -> None:
        self.driver.commit()
        self.driver.advance(seconds=self.random.choice([0.5, 3, 15, 400]))

    def reconfigure(self) -> None:
        if self.random.random() < 0.2:
            self.driver.commit()
            self.driver.configure(configuration(self.driver.registry))


def configuration(registry: Registry) -> SchedulerConfiguration:
    """The default one, with the plugin that waits."""
    return resolve_configuration(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"permit": {"enabled": [{"name": "SlowPermit"}]}}}],
        },
        registry,
    ).configuration


def registry() -> Registry:
    return Registry((*IN_TREE, SlowPermit))


def story(seed: int) -> Story:
    driver = Driver(registry())
    driver.start(configuration(driver.registry))
    driver.put(node("n0", zone="a"), node("n1", zone="b"))
    return Story(seed, driver)
