"""The agents of all nodes: they start the pods that are bound to them, and end those that have to go.

    bound ──(start_seconds)──► Running, Ready
    deleted or evicted ──(its grace period / speed)──► gone

Nothing fails here, and nothing ends by itself: a pod runs until somebody deletes it. A pod on a node that is gone is taken away
like any other, and does not start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.conditions import merged
from tidelog.api.errors import FieldError
from tidelog.api.objects import Condition, Pod
from tidelog.api.pod_status import GRACE_SECONDS
from tidelog.api.times import NANOS, format_time, parse_time
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, delete, put
from tidelog.eventlog.records import Body, Record

START = "start"
FINISH = "finish"

READY_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
"""The conditions of a running pod."""

TERMINAL = ("Succeeded", "Failed")


class NodeAgentSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fast it is."""

    start_seconds: float = 1.0
    """From the binding until the pod runs."""
    speed: float = 1.0
    """Grace periods take this part of their time: with 10, three seconds instead of thirty."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        if not 0 <= self.start_seconds <= 86400:
            rule = "must be from 0 to 86400"
            yield FieldError(path=f"{path}.startSeconds", kind="Invalid", value=self.start_seconds, rule=rule)
        if not 0.001 <= self.speed <= 1_000_000:
            rule = "must be from 0.001 to 1000000"
            yield FieldError(path=f"{path}.speed", kind="Invalid", value=self.speed, rule=rule)


class NodeAgent:
    """Implements `tidelog.daemon.actors.protocol.Actor`. It keeps nothing: all it has to do can be seen in the pods."""

    name = "node-agent"
    Settings = NodeAgentSettings

    def __init__(self, settings: NodeAgentSettings | None = None) -> None:
        self._settings = settings or NodeAgentSettings()

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        return [
            errand
            for pod in objects.of_kind("Pod")
            if isinstance(pod, Pod)
            for errand in self._errands(pod, f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", seq, at)
        ]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        if not record.key.startswith("Pod/"):
            return ()
        pod = objects.get(record.key)
        return list(self._errands(pod, record.key, record.seq, record.at)) if isinstance(pod, Pod) else ()

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        pod = objects.get(errand.key)
        if not isinstance(pod, Pod) or not _is_on_a_node(pod):
            return NOTHING
        if pod.metadata.deletion_timestamp:
            if errand.what == FINISH and self._ends_at(pod) <= at:
                return Deeds([delete(pod)])
        elif errand.what == START and _is_to_start(pod) and objects.get(f"Node//{pod.spec.node_name}"):
            return Deeds([put(started(pod, at))])
        return NOTHING

    def _errands(self, pod: Pod, key: str, seq: int, at: int) -> Iterator[Errand]:
        if not _is_on_a_node(pod):
            return
        if pod.metadata.deletion_timestamp:
            yield Errand(self._ends_at(pod), FINISH, key, seq)
        elif _is_to_start(pod):
            yield Errand(at + round(self._settings.start_seconds * NANOS), START, key, seq)

    def _ends_at(self, pod: Pod) -> int:
        """Its deletion timestamp says when its grace period would be over."""
        grace = pod.metadata.deletion_grace_period_seconds
        nanos = (GRACE_SECONDS if grace is None else grace) * NANOS
        return parse_time(pod.metadata.deletion_timestamp) - nanos + round(nanos / self._settings.speed)


def _is_on_a_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL


def _is_to_start(pod: Pod) -> bool:
    return pod.status.phase != "Running"


def started(pod: Pod, at: int) -> Pod:
    """The pod, running since this moment."""
    conditions = pod.status.conditions
    for name in READY_CONDITIONS:
        conditions = merged(conditions, Condition(type=name, status="True"), at)
    status = replace(
        pod.status,
        phase="Running",
        start_time=pod.status.start_time or format_time(at // NANOS * NANOS),
        conditions=conditions,
    )
    return replace(pod, status=status)
