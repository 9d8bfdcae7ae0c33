"""Hint soundness: no event that makes a waiting pod fit may leave it asleep.

A hint that says Skip wrongly is the worst bug a plugin can have: the pod waits for minutes beside a node that would take
it, and nothing looks wrong. It cannot be found by looking at the hint alone, only by trying. So: let anything happen to a
cluster, then try every pod in the pool by brute force, and report those that fit and were not woken.

    check = HintSoundness(queue, apply=cluster.apply, fits=cluster.fits)
    for event in random_events:
        assert check.step(event) == []

The caller brings the cluster. `apply` changes it and tells the queue all that follows from it (`on_event`, `update`, …);
`fits` says whether a pod would be placed now, by the plugins' own filters, and changes nothing. Gated pods may sleep: a
gate, unlike a hint, decides. To see hints judge events that fell into an attempt, pop pods before `step` and fail them in
`apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidelog.api.objects import Pod
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.queue.scheduling_queue import SchedulingQueue

E = TypeVar("E")


class HintAnswer(NamedTuple):
    """A hint's answer to an event."""

    plugin: str
    event: str
    answer: str


class Sleeper(NamedTuple):
    """A pod that fits and was left asleep."""

    pod: str
    rejectors: tuple[str, ...]
    answers: tuple[HintAnswer, ...]
    """All that the hints said of it during the step; a rejector that is not here registered for nothing that happened."""

    def __str__(self) -> str:
        said = ", ".join(f"{a.plugin} of {a.event}: {a.answer}" for a in self.answers) or "no hint was asked"
        return f"pod {self.pod}, rejected by {', '.join(self.rejectors)}, fits and was left asleep ({said})"


def left_asleep(queue: SchedulingQueue, fits: Callable[[Pod], bool]) -> list[QueuedPod]:
    """The pods in the pool that are not gated and would fit, in the order in which they went there."""
    return [
        pod
        for entity in queue.contents().unschedulable
        if not entity.is_gated
        for pod in (entity.members.values() if isinstance(entity, QueuedGroup) else (entity,))
        if fits(pod.pod)
    ]


class HintSoundness(Generic[E]):
    """The check, step by step. It makes itself the queue's observer."""

    def __init__(
        self, queue: SchedulingQueue, *, apply: Callable[[E], None], fits: Callable[[Pod], bool]
    ) -> None:
        self._queue = queue
        self._apply = apply
        self._fits = fits
        self._answers: dict[str, list[HintAnswer]] = {}
        queue.observe(self)

    def step(self, event: E) -> list[Sleeper]:
        """Let it happen; who fits now and sleeps on. A pod is reported in each step that it sleeps through."""
        self._answers.clear()
        self._apply(event)
        return [
            Sleeper(
                pod.key,
                tuple(dict.fromkeys((*pod.unschedulable_plugins, *pod.pending_plugins))),
                tuple(self._answers.get(pod.key, ())),
            )
            for pod in left_asleep(self._queue, self._fits)
        ]

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        """Remember what was said of whom."""
        self._answers.setdefault(waiting.key, []).append(HintAnswer(plugin, event.label, answer))

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        """Of no interest here."""
