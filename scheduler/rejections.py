"""The last rejection of each pod and group, so that one like it need not be written out again.

A pod that fits nowhere is tried again and again, and most of the time nothing is different. A rejection that says what the last one in the
log said is abbreviated to its number (`same_as`), and a nomination that changes nothing is left out. Who reads such a record gets the whole
text from here (`Rejections.resolve`).

What is remembered follows from the records alone: it is what they say, by the pod's uid or the group's record key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidelog.api.objects import Object, Pod, PodGroup
from tidelog.api.pod_status import UNSCHEDULABLE, is_rejected_with, with_group_condition
from tidelog.api.steps import Steps, listing
from tidelog.eventlog.records import Body, Nominated, Unschedulable
from tidelog.queue.entity import pod_key
from tidelog.queue.scheduling_queue import SchedulingQueue
from tidelog.scheduler.fallback import preemption_marks

Outcomes = tuple[tuple[str, Body], ...]


class Rejections:
    """The last rejections of pods and groups: repetitions refer to them."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, Unschedulable]] = {}
        """Pod uid, or record key of a group → the seq of its last rejection with content, and that. Taken out where something else became of it."""

    # --- remembering --------------------------------------------------------------------------------------------------

    def consume(self, who: str, seq: int, body: Unschedulable) -> Unschedulable:
        """Record `seq` is this rejection. Returns what it says in full, if need be as an earlier attempt said it."""
        if body.same_as:
            return self.last[who][1]
        self.last[who] = (seq, body)
        return body

    def in_full(self, who: str, body: Unschedulable) -> Unschedulable:
        """Return a rejection that is not in the log yet in full."""
        return self.last[who][1] if body.same_as else body

    def forget_group(self, key: str) -> None:
        """The group's object is gone, and with it those that are named below it."""
        for who in [who for who in self.last if who == key or who.startswith(f"{key}/")]:
            del self.last[who]

    # --- abbreviating -------------------------------------------------------------------------------------------------

    def abbreviated(self, uid: str, pod: Pod, outcomes: Outcomes, queue: SchedulingQueue) -> Outcomes:
        """A pod's outcomes without what the log says already: a rejection like the last one, a nomination that was not there."""
        found = []
        for key, body in outcomes:
            if isinstance(body, Unschedulable):
                body = self._abbreviated(uid, body, (pod,))
            elif isinstance(body, Nominated) and _changes_nothing(body, pod, queue):
                continue
            found.append((key, body))
        return tuple(found)

    def abbreviated_group(
        self, key: str, body: Unschedulable, group: Object | None, pod_of: Callable[[str], Pod | None]
    ) -> Unschedulable:
        """A group's rejection, if it is like the last one, its pods say so, and the group's own object, if there is one, has nothing new to say."""
        if isinstance(group, PodGroup):
            told = with_group_condition(group, "False", UNSCHEDULABLE, body.message, body.at)
            if told is not group:
                return body
        return self._abbreviated(key, body, map(pod_of, body.members))

    def _abbreviated(self, who: str, body: Unschedulable, pods: Iterable[Pod | None]) -> Unschedulable:
        seq, last = self.last.get(who, (0, None))
        if last is None or body.writes or not _is_same(body, last):
            return body
        if not all(pod is not None and is_rejected_with(pod, body.message) for pod in pods):
            return body
        return Unschedulable(
            attempt=body.attempt, observed=body.observed, at=body.at, epoch=body.epoch, same_as=seq
        )

    # --- the state as a value -----------------------------------------------------------------------------------------

    def dumping(self) -> Steps[list[list[Any]]]:
        """Rows of who, seq and body; bodies are as they are."""
        return listing([who, seq, body] for who, (seq, body) in self.last.items())

    def load(self, dumped: Iterable[Iterable[Any]]) -> None:
        """Take over what `dump` told, with the bodies as builtins."""
        self.last = {who: (seq, msgspec.convert(body, Unschedulable)) for who, seq, body in dumped}


def _changes_nothing(body: Nominated, pod: Pod, queue: SchedulingQueue) -> bool:
    """Whether the pod has this nomination already, and for the same reason."""
    return (
        body.node == queue.nominator.node_of(pod)
        and not body.victims
        # While a pod waits for its permit the nominator does not know it; its status still tells of the nomination.
        and (body.node or not pod.status.nominated_node_name)
        and _marks_of(pod, queue) == preemption_marks(body.fallback)
    )


def _marks_of(pod: Pod, queue: SchedulingQueue) -> tuple[int, ...]:
    """The spread constraints that stay fallen back as long as the pod's nomination stands."""
    entity = queue.get(pod_key(pod))
    return () if entity is None else entity.fallback_constraints


def _is_same(a: Unschedulable, b: Unschedulable) -> bool:
    """Whether two rejections differ in nothing but their attempt."""
    return (
        a.message == b.message
        and a.plugins == b.plugins
        and a.pending == b.pending
        and a.rejections == b.rejections
        and a.nodes == b.nodes
        and a.blocked_by == b.blocked_by
        and a.fallback == b.fallback
        and a.explanation == b.explanation
        and a.members == b.members
    )
