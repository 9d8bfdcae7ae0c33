"""Random histories of a small cluster: what can happen does, in any order, with attempts in flight in between."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from tidelog.api.objects import Node, Pod
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

SCHEDULER = "default-scheduler"


def node(name: str, zone: str = "a", cpu: str = "4") -> b.NodeBuilder:
    return b.node(name).label({b.ZONE: zone, b.HOSTNAME: name}).capacity(cpu=cpu, memory="8Gi")


def pod(name: str, cpu: str = "1") -> b.PodBuilder:
    return b.pod(name).request(cpu=cpu, memory="512Mi").scheduler(SCHEDULER)


class History:
    """A driver, and the dice that decide what happens to it."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.driver = Driver()
        self.driver.start()
        self.names = 0
        self.steps: list[Callable[[], None]] = [
            self.add_node, self.add_pod, self.add_pod, self.add_pod, self.delete_pod, self.change_node,
            self.delete_node, self.attempt, self.attempt, self.commit, self.commit, self.settle, self.wait,
            self.ungate,
        ]  # fmt: skip

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}-{self.names}"

    def run(self, steps: int) -> Driver:
        """Let so many things happen, and everything that is due be done."""
        for _ in range(3):
            self.add_node()
        for _ in range(steps):
            self.dice.choice(self.steps)()
        self.driver.commit()
        self.driver.settle()
        return self.driver

    def add_node(self) -> None:
        made = node(self.name("node"), self.dice.choice("abc"), self.dice.choice(["1", "2", "4"]))
        if self.dice.random() < 0.2:
            made = made.taint("dedicated", "gpu", self.dice.choice(["NoSchedule", "PreferNoSchedule"]))
        self.driver.put(made.build())

    def add_pod(self) -> None:
        made = pod(self.name("pod"), self.dice.choice(["250m", "500m", "1", "3"]))
        made = made.label(app=self.dice.choice(["web", "db"])).priority(self.dice.choice([0, 0, 0, 10]))
        kind = self.dice.randrange(6)
        if kind == 0:
            made = made.spread(b.ZONE, selector="app=web")
        elif kind == 1:
            made = made.pod_anti_affinity(b.HOSTNAME, "app=db")
        elif kind == 2:
            made = made.pod_affinity(b.ZONE, "app=web")
        elif kind == 3:
            made = made.gate("wait")
        self.driver.put(made.build())

    def _any(self, type_: type) -> object | None:
        found = [obj for obj in self.driver.core.objects.values() if isinstance(obj, type_)]
        return self.dice.choice(found) if found else None

    def delete_pod(self) -> None:
        found = self._any(Pod)
        if isinstance(found, Pod):
            self.driver.delete(found)

    def delete_node(self) -> None:
        found = self._any(Node)
        if isinstance(found, Node) and self.dice.random() < 0.4:
            self.driver.delete(found)

    def change_node(self) -> None:
        found = self._any(Node)
        if isinstance(found, Node):
            spec = replace(found.spec, unschedulable=not found.spec.unschedulable)
            self.driver.put(replace(found, spec=spec))

    def ungate(self) -> None:
        for obj in list(self.driver.core.objects.values()):
            if isinstance(obj, Pod) and obj.spec.scheduling_gates:
                self.driver.put(replace(obj, spec=replace(obj.spec, scheduling_gates=())))
                return

    def attempt(self) -> None:
        self.driver.attempt()

    def commit(self) -> None:
        self.driver.commit(1)

    def settle(self) -> None:
        self.driver.commit()
        self.driver.settle()

    def wait(self) -> None:
        self.driver.commit()
        self.driver.advance(seconds=self.dice.choice([0.3, 2, 31, 400]))


def random_history(seed: int, steps: int = 60) -> Driver:
    """The same for the same seed."""
    return History(seed).run(steps)
