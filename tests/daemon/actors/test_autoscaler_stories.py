"""Random stories with the autoscaler: stockouts, restarts, pauses and lost nodes, judged by the log alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.kep.spread_judge import Judge
from tests.thorough import cases
from tests.worlds.spread import NP, PREEMPTION, PROVISIONING, web
from tidelog.api.objects import Node, Pod, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED, UNSCHEDULABLE
from tidelog.api.times import NANOS, format_time
from tidelog.cli.demo.spread import Stage, configuration
from tidelog.daemon.actors.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSettings
from tidelog.daemon.actors.node_groups import NODE_GROUP, ZONE, NodeGroup, Stockout
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, decode_body
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START
from tidelog.replay.verify import recover
from tidelog.testing import builders as b

STORIES = cases(3, "TIDELOG_AUTOSCALER_STORIES")
SECONDS = {"": None, "45s": 45, "2m": 120}
"""nodeProvisioningTimeout, as it is configured and in seconds."""
END = 1800
"""From this second on every zone has instances again."""


class Story(Stage):
    """Half an hour in which zones run out of instances and recover, and a quiet one after it."""

    ZONES = "abc"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.timeout = self.random.choice(list(SECONDS))
        self.groups = [self._group(name) for name in ("small", "large")[: self.random.randint(1, 2)]]
        self.autoscaler = ClusterAutoscaler(
            ClusterAutoscalerSettings(node_groups=tuple(self.groups), stockout_backoff_seconds=60)
        )
        super().__init__(configuration(self.timeout), [self.autoscaler])
        self.put(*(b.node(f"{zone}0").label({ZONE: zone}).capacity(cpu="2") for zone in "ab"))
        self.pods = 0

    def _group(self, name: str) -> NodeGroup:
        zones = tuple(self.random.sample(self.ZONES, self.random.randint(1, 3)))
        size = "2" if name == "small" else "4"
        return NodeGroup(
            name=name,
            zones=zones,
            max=self.random.choice([2, 5, 50]),
            provisioning_seconds=self.random.choice([0, 15, 90]),
            resources={"cpu": size, "memory": "8Gi", "pods": "110"},
            stockouts=tuple(self._stockout(zones) for _ in range(3)),
        )

    def _stockout(self, zones: tuple[str, ...]) -> Stockout:
        start, end = sorted(self.random.sample(range(END + 1), 2))
        start, end = START + start * NANOS, START + end * NANOS
        where = (self.random.choice(zones),) if self.random.random() < 0.7 else ()
        return Stockout(zones=where, start=format_time(start), end=format_time(end))

    def run(self) -> None:
        happen = (
            self.add_pods,
            self.add_pods,
            self.wait,
            self.wait,
            self.remove_pod,
            self.remove_node,
            self.actor,
        )
        while self.driver.now < START + END * NANOS:
            self.random.choice(happen)()
        self.autoscaler.start()
        self.restart_actors()
        self.play(1000)

    def add_pods(self) -> None:
        criteria = self.random.choice([(), (PROVISIONING,), (PROVISIONING,), (PROVISIONING, PREEMPTION)])
        constraint: dict[str, Any] = (
            {"min_domains": self.random.choice([2, 3])} if self.random.random() < 0.3 else {}
        )
        for _ in range(self.random.randint(1, 4)):
            self.pods += 1
            pod = web(f"web-{self.pods}", *criteria, cpu=self.random.choice(["500m", "1", "2"]), **constraint)
            self.put(pod.uid(f"u{self.pods}"))

    def wait(self) -> None:
        self.play(self.random.choice([1, 10, 40, 130]))

    def remove_pod(self) -> None:
        pods = self.all_pods()
        if pods:
            self.driver.delete(self.random.choice(pods))

    def remove_node(self) -> None:
        """With the pods that are on it."""
        nodes = [obj for obj in self.driver.core.objects.values() if isinstance(obj, Node)]
        if len(nodes) > 2:
            gone = self.random.choice(nodes)
            self.driver.delete(gone)
            for pod in self.all_pods():
                if pod.spec.node_name == gone.metadata.name:
                    self.driver.delete(pod)

    def actor(self) -> None:
        """It loses its memory, or pauses, or goes on."""
        self.random.choice([self.restart_actors, self.autoscaler.stop, self.autoscaler.start])()

    def all_pods(self) -> list[Pod]:
        return [obj for obj in self.driver.core.objects.values() if isinstance(obj, Pod)]


def assert_within_limits(story: Story) -> None:
    """No group ever has more nodes than its maximum, and none comes where there are no instances."""
    groups = {group.name: group for group in story.groups}
    there: dict[str, set[str]] = {name: set() for name in groups}
    for record in story.driver.records:
        body = decode_body(record)
        if isinstance(body, ObjectDeleted):
            for nodes in there.values():
                nodes.discard(record.key)
        if record.author == story.autoscaler.name and isinstance(body, ObjectPut):
            labels = body.object.metadata.labels
            group = groups[labels[NODE_GROUP]]
            assert not group.is_out_of_stock(labels[ZONE], record.at), record
            there[group.name].add(record.key)
            assert len(there[group.name]) <= group.max, record


def assert_nobody_waits_unanswered(story: Story) -> None:
    """In the end nobody is promised a node that does not come, and nobody can fall back and has not been told that it may."""
    for pod in story.all_pods():
        scheduled, told = pod_condition(pod, POD_SCHEDULED), pod_condition(pod, NP)
        if pod.spec.node_name or pod.status.nominated_node_name:
            continue
        assert scheduled is not None, pod
        assert scheduled.reason == UNSCHEDULABLE, pod
        assert told is not None, pod
        assert told.status == "False", pod


@pytest.mark.parametrize("seed", range(STORIES))
def test_random_story_keeps_constraints_and_limits(seed: int) -> None:
    story = Story(seed)
    story.run()
    judge = Judge(SECONDS[story.timeout])

    judge.read(story.driver.records)

    assert judge.hard + judge.fallen
    assert_within_limits(story)
    assert_nobody_waits_unanswered(story)
    report = story.verify()
    assert report.first_difference is None
    assert story.driver.core.digest() == report.digest
    assert story.driver.core.digest() == recover(story.driver.records, Registry()).digest()
