"""Stories in which nodes are alike but for one thing that a dry run goes by: with what was remembered the log is the same as without.

More seeds: `TIDELOG_MEMORY_SEEDS=2000 pytest tests/plugins/default_preemption/test_memory.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.thorough import cases
from tidelog.api.objects import Container, ContainerStatus, Node, Pod
from tidelog.eventlog.records import Record
from tidelog.framework.interface import Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.default_preemption.candidates import Candidate, Pattern
from tidelog.plugins.default_preemption.dry_run import DryRun
from tidelog.plugins.default_preemption.memory import Memory, Recollection
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

SEEDS = cases(30, "TIDELOG_MEMORY_SEEDS")
STEPS = 10
NODES = 12
GPU = "example.com/gpu"
FPGA = "example.com/fpga"


class Story:
    """The same one for the same seed. What pods and nodes are like is drawn from few kinds, so that most of them have twins."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.driver = Driver()
        self.driver.start()
        self.number = 0
        self.driver.put(b.namespace("default"))
        for i in range(NODES):
            self.driver.put(self.node(i), *self.victims(i))

    def play(self) -> list[Record]:
        for _ in range(STEPS):
            self.step()
            self.driver.settle()
        return self.driver.records

    def kind(self, of: str, count: int) -> random.Random:
        """Draws the same things for the same one of so many kinds."""
        return random.Random(f"{self.seed} {of} {self.random.randrange(count)}")

    def name(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}-{self.number}"

    def node(self, number: int) -> Node:
        draw = self.kind("node", 2)
        made = b.node(f"n{number}").capacity(cpu="4", pods=draw.choice(["3", "12"]))
        for name in draw.choice([(), (), (GPU, FPGA), (FPGA, GPU)]):
            made = made.capacity({name: 2})
        if draw.random() < 0.3:
            made = made.taint("dedicated", draw.choice(["one", "two"]))
        return made.cordon().build() if draw.random() < 0.1 else made.build()

    def victims(self, node: int) -> Iterator[Pod]:
        draw = self.kind("victims", 2)
        for _ in range(draw.randint(1, 4)):
            made = self.pod("victim", draw).priority(draw.choice([0, 0, 3])).on(f"n{node}")
            if self.random.random() < 0.1:
                made = made.terminating()
            if self.seed % 3 == 0 or (self.seed % 3 == 1 and self.random.random() < 0.5):
                made = made.started(f"2026-01-01T00:00:1{self.random.randrange(3)}Z")
            pod = made.build()
            yield self.resized(pod) if self.random.random() < 0.1 else pod

    def pod(self, prefix: str, draw: random.Random) -> b.PodBuilder:
        made = b.pod(self.name(prefix)).request(cpu=draw.choice(["500m", "1", "2"]))
        if draw.random() < 0.3:
            made = made.request({draw.choice([GPU, FPGA]): 1})
        if draw.random() < 0.2:
            made = made.overhead(cpu="250m")
        if draw.random() < 0.4:
            made = made.port(80, host_ip=draw.choice(["", "10.0.0.1"]))
        return made.tolerate("dedicated", "one") if draw.random() < 0.3 else made

    def resized(self, pod: Pod) -> Pod:
        """It takes more than its spec says."""
        (container,) = pod.spec.containers
        assert isinstance(container, Container)
        status = ContainerStatus(name=container.name, allocated_resources={"cpu": "3"})
        return replace(pod, status=replace(pod.status, container_statuses=(status,)))

    def step(self) -> None:
        driver, roll = self.driver, self.random.random()
        if roll < 0.5:
            draw = self.kind("preemptors", 2)
            state = draw.getstate()
            for _ in range(self.random.randint(1, 4)):
                draw.setstate(state)
                pod = self.pod("new", draw).priority(9).scheduler("default-scheduler").build()
                driver.put(self.resized(pod) if self.random.random() < 0.1 else pod)
        elif roll < 0.6:
            waits = b.pod(self.name("promised")).nominated(f"n{self.random.randrange(NODES)}")
            driver.put(waits.priority(20).request(cpu="2").gate("later").build())
        elif roll < 0.7:
            driver.put(self.node(self.random.randrange(NODES)))
        elif roll < 0.8:
            driver.put(*self.victims(self.random.randrange(NODES)))
        else:
            for obj in [o for o in driver.core.objects.values() if isinstance(o, Pod)]:
                if obj.metadata.deletion_timestamp or self.random.random() < 0.1:
                    driver.delete(obj)


@pytest.mark.no_cover  # Hundreds of preemptions; the tests of preemption cover it.
def test_log_is_the_same_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = 0
    on = Pattern.on

    def counted(*args: Any) -> Any:
        nonlocal twins
        twins += 1
        return on(*args)

    monkeypatch.setattr(Pattern, "on", counted)
    remembering = [Story(seed).play() for seed in range(SEEDS)]
    monkeypatch.setattr(Memory, "_answers", lambda *_: None)
    forgetful = [Story(seed).play() for seed in range(SEEDS)]

    assert twins > SEEDS // 2
    assert remembering == forgetful


def test_nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each preemptor meets five new nodes, and there are never more than five."""
    found: list[Memory] = []
    recollection = Memory.recollection

    def noted(self: Memory, *args: Any) -> Recollection:
        found.append(self)
        return recollection(self, *args)

    monkeypatch.setattr(Memory, "recollection", noted)
    driver = Driver()
    driver.start()
    driver.put(b.pdb("all", "app=any", allowed=9))
    for number in range(20):
        nodes = [b.node(f"n{number}-{i}").capacity(cpu="4").build() for i in range(5)]
        pods = [b.pod(f"p{number}-{i}").request(cpu="4").on(f"n{number}-{i}").build() for i in range(5)]
        new = b.pod(f"new-{number}").request(cpu="4").priority(9).scheduler("default-scheduler").build()
        driver.put(*nodes, *pods, new)
        driver.settle()
        for obj in (new, *pods, *nodes):
            driver.delete(obj)

    assert len(found) == 20
    (answers,) = found[-1]._shapes.values()
    assert 5 <= len(answers.by_node) <= 15


def preempted(*objects: Node | b.PodBuilder) -> set[str]:
    """Who is asked to go for two preemptors, one after the other, that are alike and want a port."""
    driver = Driver()
    driver.start()
    driver.put(*(obj.build() if isinstance(obj, b.PodBuilder) else obj for obj in objects))
    for name in ("first", "second"):
        pod = b.pod(name).request(cpu="1").port(80).priority(9).scheduler("default-scheduler")
        driver.put(pod.build())
        driver.settle()
    pods = [obj for obj in driver.core.objects.values() if isinstance(obj, Pod)]
    return {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp}


def test_twins_have_the_same_ports_at_the_same_places() -> None:
    """On each node one of two victims holds the port: the first by name, or the second."""
    nodes = [b.node(name).capacity(cpu="4").build() for name in ("n0", "n1")]
    pods = [b.pod(name).request(cpu="1").on(f"n{name[1]}") for name in ("a0", "b0", "a1", "b1")]
    pods[0], pods[3] = pods[0].port(80), pods[3].port(80)

    assert preempted(*nodes, *pods) == {"a0", "b1"}


@pytest.mark.parametrize(
    ("ports", "going"), [((81, 80), {"a0"}), ((80, 81), {"a1"}), ((81, 81), {"a0", "a1"})]
)
def test_twins_have_the_same_ports_taken_by_others(ports: tuple[int, int], going: set[str]) -> None:
    """Who must not go holds the port that is wanted, or another one."""
    nodes = [b.node(name).capacity(cpu="2").build() for name in ("n0", "n1")]
    low = [b.pod(f"a{i}").request(cpu="1").on(f"n{i}") for i in range(2)]
    high = [b.pod(f"h{i}").request(cpu="1").on(f"n{i}").priority(20).port(ports[i]) for i in range(2)]

    assert preempted(*nodes, *low, *high) == going


def test_nodes_with_pods_alike_are_tried_once_in_whatever_order_the_pods_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two kinds of pods of one priority: who comes first is told by the beginnings of their names."""
    tried: list[str] = []
    on = DryRun.on

    def noted(self: DryRun, node: NodeInfo) -> Candidate | Status:
        tried.append(node.name)
        return on(self, node)

    monkeypatch.setattr(DryRun, "on", noted)
    driver = Driver()
    driver.start()
    for i in range(24):
        small = b.pod(f"small-{i}").request(cpu="1").on(f"n{i}").build()
        large = b.pod(f"large-{i}").request(cpu="2").on(f"n{i}").build()
        driver.put(b.node(f"n{i}").capacity(cpu="4").build(), *((small, large) if i % 2 else (large, small)))
    driver.put(b.pod("new").request(cpu="2").priority(9).scheduler("default-scheduler").build())
    driver.settle()

    assert len(tried) == 1


def test_names_that_begin_alike_are_compared_to_their_ends() -> None:
    """On each node one of two is large, the first or the second; the small one can stay."""
    nodes = [b.node(name).capacity(cpu="4").build() for name in ("n0", "n1")]
    large, small = b.pod("large").request(cpu="3500m"), b.pod("small").request(cpu="500m")
    pods = [large.named("a1-0"), small.named("a2-0"), small.named("a1-1"), large.named("a2-1")]

    assert preempted(*nodes, *(pod.on(f"n{i // 2}") for i, pod in enumerate(pods))) == {"a1-0", "a2-1"}


def test_likeness_is_of_pods_whose_going_makes_the_same_difference() -> None:
    like = b.pod("web-1").request(cpu="1").priority(1)
    others = [
        like.named("db-1"),
        like.priority(2),
        like.request(cpu="2"),
        like.port(80),
        like.started("2026-01-01T00:00:00Z"),
        like.guarded_below(5),
    ]

    numbers = [PodInfo(one.build()).likeness for one in (like, like.named("web-2"), *others)]

    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == len(numbers) - 1
