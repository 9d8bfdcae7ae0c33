"""A cluster on the Driver in which pods preempt each other, told in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Pod, PodDisruptionBudget, pod_condition
from tidelog.configuration.configuration import (
    SchedulerConfiguration,
    default_configuration,
    resolve_configuration,
)
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    Body,
    Draft,
    Evicted,
    EvictionRefused,
    Nominated,
    Record,
    SchedulerStarted,
    decode_body,
)
from tidelog.framework.interface import Plugin
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b

GUARDED = FeatureGates(disruption_policy_in_priority_class=True)
T = TypeVar("T")


def configuration(
    gates: FeatureGates = GUARDED, *, upstream: bool = False, **settings: Any
) -> SchedulerConfiguration:
    """The default one with these gates and settings."""
    compat = "upstream" if upstream else "default"
    return replace(default_configuration(Registry()), feature_gates=gates, compat=compat, **settings)


def running(name: str, on: str, cpu: str = "1", priority: int = 0, **labels: str) -> b.PodBuilder:
    """A pod that is on a node, and Ready."""
    made = b.pod(name).uid(f"uid-{name}").label(labels).request(cpu=cpu).priority(priority)
    return made.on(on).condition("Ready")


def pending(name: str, cpu: str = "1", priority: int = 0, **labels: str) -> b.PodBuilder:
    made = b.pod(name).uid(f"uid-{name}").label(labels).request(cpu=cpu).priority(priority)
    return made.scheduler("default-scheduler")


def budget(
    name: str = "web", allowed: int = 0, selector: str = "app=web", **more: Any
) -> PodDisruptionBudget:
    return b.pdb(name, selector, allowed=allowed, **more)


class World(Driver):
    """A Driver with a configuration, and questions about its log."""

    def __init__(self, gates: FeatureGates = GUARDED, *, upstream: bool = False, **settings: Any) -> None:
        super().__init__()
        self.start(configuration(gates, upstream=upstream, **settings))

    def add(self, *built: Any) -> None:
        """Put objects and half-built objects."""
        self.put(
            *(each.build() if isinstance(each, b.PodBuilder | b.NodeBuilder) else each for each in built)
        )

    def restart(self) -> None:
        """A scheduler that knows nothing but the log takes over."""
        self.core = recover(self.records, self.registry)
        body = SchedulerStarted(epoch=self.core.epoch + 1, holder="another")
        self.append(Draft(body=body, author="scheduler"))

    def finish(self, *names: str) -> None:
        """These pods have ended."""
        for name in names:
            self.delete(self.pod(name))

    def finish_terminating(self) -> list[str]:
        """Every terminating pod has ended; their names."""
        going = [
            obj
            for obj in list(self.core.objects.values())
            if isinstance(obj, Pod) and obj.metadata.deletion_timestamp
        ]
        for pod in going:
            self.delete(pod)
        return [pod.metadata.name for pod in going]

    def bodies(self, kind: type[T]) -> list[tuple[str, T]]:
        """(name of the object, body) of every record of this kind."""
        found = []
        for record in self.records:
            if record.kind == kind.__name__:
                body = decode_body(record)
                assert isinstance(body, kind)
                found.append((record.key.rpartition("/")[2], body))
        return found

    def evicted(self) -> list[str]:
        """Names of the pods that were asked to go, in order."""
        return [name for name, _ in self.bodies(Evicted)]

    def methods(self) -> dict[str, str]:
        """Victim → how it was asked to go."""
        return {name: body.method for name, body in self.bodies(Evicted)}

    def refused(self) -> list[str]:
        """What was said of every eviction that was refused."""
        return [body.message for _, body in self.bodies(EvictionRefused)]

    def nominations(self) -> list[tuple[str, str]]:
        """(pod, node) of every nomination that was made or, with an empty node, taken back."""
        return [(name, body.node) for name, body in self.bodies(Nominated)]

    def nominated(self, name: str) -> str:
        return self.pod(name).status.nominated_node_name

    def message(self, name: str) -> str:
        """Why the pod is pending."""
        condition = pod_condition(self.pod(name), "PodScheduled")
        return "" if condition is None else condition.message

    def budget(self, name: str = "web") -> PodDisruptionBudget:
        found = self.core.objects[f"PodDisruptionBudget/default/{name}"]
        assert isinstance(found, PodDisruptionBudget)
        return found

    def attempts_of(self, name: str) -> int:
        """How often the pod was tried."""
        own = ("Unschedulable", "Scheduled", "AttemptError", "AttemptAborted")
        return sum(r.kind in own and r.key == f"Pod/default/{name}" for r in self.records)

    def check(self) -> None:
        """The log verifies, a recovered scheduler is in the same state, and the table of objects agrees with the core."""
        report = verify(self.records, self.registry)
        assert report.first_difference is None
        assert self.core.digest() == report.digest
        assert self.core.digest() == recover(self.records, self.registry).digest()
        assert_same_objects(self)


class PluginWorld(World):
    """With a plugin of the test's own, and the gates as they are by default."""

    def __init__(self, plugin: type[Plugin]) -> None:
        registry = Registry((*IN_TREE, plugin))
        Driver.__init__(self, registry)
        file = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}],
        }
        self.start(resolve_configuration(file, registry).configuration)


def assert_same_objects(driver: Driver) -> None:
    """What `get` shows is what the scheduler decides on."""
    table = ObjectTable()
    for record in driver.records:
        table.apply(record)
    assert dict(driver.core.objects) == {key: table.get(key) for key in driver.core.objects}


def transactions(records: Sequence[Record]) -> list[list[tuple[Record, Body]]]:
    """The records in the groups in which they were appended: an attempt's outcomes together, everything else alone."""
    groups: list[list[tuple[Record, Body]]] = []
    last = 0
    for record in records:
        body = decode_body(record)
        attempt = getattr(body, "attempt", 0)
        if not attempt or attempt != last:
            groups.append([])
        last = attempt
        groups[-1].append((record, body))
    return groups
