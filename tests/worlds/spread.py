"""A cluster of zones on the virtual clock, with pods that are spread over them and may fall back."""

from __future__ import annotations

from typing import Any

from tidelog.api.objects import Condition, Node, Pod
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.records import (
    Body,
    Fallback,
    Nominated,
    Outcome,
    PodConditionSet,
    Record,
    Scheduled,
    Unschedulable,
    decode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START, Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing.builders import ZONE, PodBuilder

PROVISIONING = "NodeProvisioningFailed"
PREEMPTION = "PreemptionFailed"
NP = "NodeProvisioningInProgress"


def configuration(
    *, timeout: str | None = None, gate: bool = True, args: dict[str, Any] | None = None, **section: Any
) -> SchedulerConfiguration:
    """With the gate on; further keyword arguments go into the section `tidelog`."""
    spread = {**(args or {}), **({"nodeProvisioningTimeout": timeout} if timeout else {})}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": spread}]}],
        "tidelog": {"featureGates": {"PodTopologySpreadFallbackMode": gate}, **section},
    }
    return resolve_configuration(file, Registry()).configuration


def node(zone: str, number: int = 1, cpu: str = "4") -> Node:
    """`a1`, `a2` … in the zone."""
    return b.node(f"{zone}{number}").label({ZONE: zone}).capacity(cpu=cpu).build()


def web(
    name: str, *criteria: str, key: str = ZONE, cpu: str = "1", priority: int = 0, **constraint: Any
) -> PodBuilder:
    """A pod of the deployment `web`, spread over zones with a skew of 1, that may fall back."""
    pod = b.pod(name).label(app="web").scheduler("default-scheduler").request(cpu=cpu).priority(priority)
    return pod.spread(key, "app=web", fallback=criteria, **constraint)


def plain(name: str, on: str = "", cpu: str = "4", priority: int = 0) -> Pod:
    """A pod that only takes room."""
    pod = b.pod(name).scheduler("default-scheduler").request(cpu=cpu).priority(priority)
    return (pod.on(on) if on else pod).build()


class World:
    """A driver, and short questions about its log."""

    def __init__(self, *objects: Any, **settings: Any) -> None:
        self.driver = Driver()
        self.driver.start(configuration(**settings))
        self.driver.put(*objects)

    @property
    def seconds(self) -> float:
        """Since the story began."""
        return (self.driver.now - START) / NANOS

    def put(self, *objects: Any) -> None:
        """Put objects, and let the scheduler do what there is to do now."""
        self.driver.put(*(o.build() if isinstance(o, PodBuilder) else o for o in objects))
        self.driver.settle()

    def say(self, pod: str, status: str, reason: str = "") -> None:
        """The autoscaler sets the pod's condition; the scheduler has until the end of any backoff to react."""
        condition = Condition(type=NP, status=status, reason=reason)
        self.driver.set_condition(self.driver.pod(pod), PodConditionSet(condition=condition))
        self.driver.advance(seconds=12)

    def advance(self, seconds: float) -> None:
        self.driver.advance(seconds)

    def node_of(self, pod: str) -> str:
        """Empty while it has none."""
        return self.driver.pod(pod).spec.node_name

    def outcomes(self, pod: str) -> list[Body]:
        """Everything that was decided about the pod, repetitions written out."""
        bodies = [self._decoded(r) for r in self.driver.records if r.key == f"Pod/default/{pod}"]
        return [body for body in bodies if isinstance(body, Outcome)]

    def _decoded(self, record: Record) -> Body:
        body = decode_body(record)
        if isinstance(body, Unschedulable) and body.same_as:
            return self._decoded(self.driver.records[body.same_as - 1])
        return body

    def attempts(self, pod: str) -> list[tuple[str, ...]]:
        """For each attempt of the pod that ended: `Scheduled` or `Unschedulable`, and the keys of what had fallen back."""
        ended = [o for o in self.outcomes(pod) if isinstance(o, Scheduled | Unschedulable)]
        return [(type(o).__name__, *(f.topology_key.rpartition("/")[2] for f in o.fallback)) for o in ended]

    def attempt_seconds(self, pod: str) -> list[float]:
        """When the attempts were made, since the story began."""
        at: dict[int, int] = {}
        for record in self.driver.records:
            body = decode_body(record)
            if record.key == f"Pod/default/{pod}" and isinstance(body, Outcome):
                at[body.attempt] = body.at
        return [(at[attempt] - START) / NANOS for attempt in at]

    def fallback(self, pod: str) -> tuple[Fallback, ...]:
        """What had fallen back in the pod's last attempt."""
        last = [o for o in self.outcomes(pod) if isinstance(o, Scheduled | Unschedulable)][-1]
        return last.fallback

    def explanation(self, pod: str) -> tuple[str, ...]:
        """What the last rejection said beyond its message."""
        return [o for o in self.outcomes(pod) if isinstance(o, Unschedulable)][-1].explanation

    def nominations(self, pod: str) -> list[tuple[str, tuple[int, ...]]]:
        """Each nomination: the node, and what had fallen back."""
        made = [o for o in self.outcomes(pod) if isinstance(o, Nominated)]
        return [(o.node, tuple(f.constraint for f in o.fallback)) for o in made]

    def ticks(self) -> list[float]:
        """When the log's clock ticked."""
        return [(r.at - START) / NANOS for r in self.driver.records if r.kind == "Tick"]

    def evicted(self) -> list[str]:
        return [r.key.rpartition("/")[2] for r in self.driver.records if r.kind == "Evicted"]

    def finish(self, pod: str) -> None:
        """The pod is gone."""
        self.driver.delete(self.driver.pod(pod))

    def assert_replays(self) -> None:
        """The log's decisions are recomputed bit for bit, and a restart finds the same state."""
        report = verify(self.driver.records, self.driver.registry)
        assert report.first_difference is None
        assert self.driver.core.digest() == report.digest
        assert self.driver.core.digest() == recover(self.driver.records, Registry()).digest()


def two_zones(*objects: Any, **settings: Any) -> World:
    """Zone a has room and the pod web-0; zone b has a node that is full, with pods that nobody may push away."""
    return World(
        node("a"), node("b"), plain("rock", "b1"), web("web-0").on("a1").build(), *objects, **settings
    )
