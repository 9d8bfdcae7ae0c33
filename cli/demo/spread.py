"""The demo's chapter on topology spread that falls back (KEP-3990) and opens zones (KEP-3022), with an autoscaler to talk to.

Three scenes, each on a log of its own in memory and on a clock that is moved by hand. What is printed is read from that log, and at the
end of each scene the log is verified: every decision is made once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidelog.api.objects import Node, Pod
from tidelog.api.times import NANOS, format_time
from tidelog.api.well_known import ZONE
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.daemon.actors.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSettings
from tidelog.daemon.actors.errands import ErrandBook, KeyedObjects
from tidelog.daemon.actors.node_groups import NodeGroup, Stockout
from tidelog.daemon.actors.protocol import Actor
from tidelog.eventlog.records import (
    Body,
    ObjectPut,
    PodConditionSet,
    Record,
    Scheduled,
    Tick,
    Unschedulable,
    decode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START, Driver
from tidelog.replay.verify import Report, verify
from tidelog.testing import builders as b

Say = Callable[[str], None]


class Stage:
    """A scheduler and actors on one virtual clock."""

    def __init__(self, configuration: SchedulerConfiguration, actors: Sequence[Actor] = ()) -> None:
        self.driver = Driver()
        self._objects = KeyedObjects(self.driver.core.objects)
        self._book = ErrandBook(actors)
        self._told = 0
        self._book.begin(self._objects, 0, self.driver.now)
        self.driver.start(configuration)

    def put(self, *objects: Any) -> None:
        """Builders or objects."""
        self.driver.put(*(obj.build() if hasattr(obj, "build") else obj for obj in objects))

    def restart_actors(self) -> None:
        """They lose their memory, and look at the cluster anew."""
        self._tell()
        self._book.begin(self._objects, self.driver.core.seq, self.driver.now)

    def play(self, seconds: float) -> None:
        """Let time go by; whatever is due on the way is done when it is due."""
        end = self.driver.now + round(seconds * NANOS)
        self.driver.settle()
        self._tell()
        while (due := self._next_due()) is not None and due <= end:
            self.driver.advance_to(max(due, self.driver.now))
            self._tell()
            for entry in self._book.take_due(self.driver.now):
                self.driver.append(*self._book.run(entry, self._objects, self.driver.now))
            self.driver.settle()
            self._tell()
        self.driver.advance_to(end)

    def _next_due(self) -> int | None:
        return min(
            (at for at in (self.driver.next_due(), self._book.next_at()) if at is not None), default=None
        )

    def _tell(self) -> None:
        while self._told < len(self.driver.records):
            record = self.driver.records[self._told]
            self._told += 1
            self._book.consume(record, decode_body(record), self._objects)

    def verify(self) -> Report:
        """Decide everything once more."""
        return verify(self.driver.records, self.driver.registry)

    def prove(self, say: Say) -> None:
        """Do that, and tell."""
        report, records = self.verify(), len(self.driver.records)
        assert report.is_identical, "the demo's log does not verify"
        say(
            f"  The log holds {records} records; made once more, all {report.outcomes} decisions are the same."
        )


def tell(say: Say = print) -> None:
    """The three scenes."""
    for title, scene in (
        ("A zone runs out of instances", stockout),
        ("The autoscaler is dead", _dead),
        ("A third zone is opened", _third_zone),
    ):
        say(f"\n{title}\n")
        stage = scene(say)
        stage.prove(say)


def stockout(say: Say) -> Stage:
    """Play the scene of a zone that has no instances left."""
    say(
        "  Four pods are spread over the zones a and b, with a skew of at most 1. Each zone has one node, the one in b is full with one pod, and"
    )
    say(
        "  zone b has no instances left. The pods may fall back when the autoscaler says that it gets no node."
    )
    group = NodeGroup(
        name="general", zones=("a", "b"), resources=_size("2"), stockouts=(Stockout(zones=("b",)),)
    )
    stage = _stage([group], timeout="5m")
    stage.put(_node("a1", "a", "4"), _node("b1", "b", "1"), *(_web(i) for i in range(1, 4)), _web(4))
    stage.play(120)
    _print_story(stage, say)
    return stage


def _dead(say: Say) -> Stage:
    say(
        "  The same zones, but nobody answers. After nodeProvisioningTimeout, here 2 minutes, the pods help themselves."
    )
    autoscaler = ClusterAutoscalerSettings(
        node_groups=(NodeGroup(name="general", zones=("a", "b")),), stopped=True
    )
    stage = Stage(configuration("2m"), [ClusterAutoscaler(autoscaler)])
    stage.put(_node("a1", "a", "4"), _node("b1", "b", "1"), *(_web(i) for i in range(1, 4)), _web(4))
    stage.play(180)
    _print_story(stage, say)
    return stage


def _third_zone(say: Say) -> Stage:
    say(
        "  minDomains: 3 counts an absent zone as an empty one. There are nodes in a and b only, and room enough; the third pod waits for"
    )
    say("  a zone that does not exist, until the autoscaler sees that a node in c would help.")
    group = NodeGroup(name="general", zones=("a", "b", "c"), provisioning_seconds=90)
    stage = _stage([group])
    stage.put(_node("a1", "a", "4"), _node("b1", "b", "4"))
    stage.put(*(_web(i, min_domains=3) for i in range(1, 4)))
    stage.play(180)
    _print_story(stage, say)
    return stage


def _stage(groups: Iterable[NodeGroup], timeout: str = "") -> Stage:
    settings = ClusterAutoscalerSettings(node_groups=tuple(groups))
    return Stage(configuration(timeout), [ClusterAutoscaler(settings)])


def configuration(timeout: str = "") -> SchedulerConfiguration:
    """With the gate on, and a timeout if one is given."""
    args = [{"name": "PodTopologySpread", "args": {"nodeProvisioningTimeout": timeout}}] if timeout else []
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": args}],
        "tidelog": {"featureGates": {"PodTopologySpreadFallbackMode": True}},
    }
    return resolve_configuration(file, Registry()).configuration


def _size(cpu: str) -> dict[str, Any]:
    return {"cpu": cpu, "memory": "8Gi", "pods": "110"}


def _node(name: str, zone: str, cpu: str) -> Node:
    return b.node(name).label({ZONE: zone}).capacity(_size(cpu)).build()


def _web(number: int, **constraint: Any) -> Pod:
    pod = b.pod(f"web-{number}").label(app="web").scheduler("default-scheduler").request(cpu="1")
    criteria = () if constraint else ("NodeProvisioningFailed",)
    return pod.spread(ZONE, "app=web", fallback=criteria, **constraint).build()


# --- reading the log ----------------------------------------------------------------------------------------------------


def _print_story(stage: Stage, say: Say) -> None:
    say("")
    for record in stage.driver.records:
        for line in _lines(record, decode_body(record)):
            seconds = (record.at - START) / NANOS
            say(f"  {seconds:6.1f} s  {line}")
    say("")


def _lines(record: Record, body: Body) -> list[str]:
    name = record.key.rpartition("/")[2]
    match body:
        case Scheduled():
            return [
                f"{name} ─► {body.node}",
                *(f"         {f.topology_key} only preferred: {f.reason}" for f in body.fallback),
            ]
        case Unschedulable() if not body.same_as:
            return [f"{name} finds no node", *(f"         {line}" for line in body.explanation)]
        case PodConditionSet():
            condition = body.condition
            return [f"{record.author}: {name} {condition.type} {condition.status} ({condition.reason})"]
        case Tick():
            return [f"tick: it is {format_time(record.at)}"]
        case ObjectPut() if record.author == "cluster-autoscaler":
            return [f"{record.author}: node {name} is there"]
        case _:
            return []
