"""PrioritySort: the order of the active queue. Higher priority first, and among equals who has waited longest."""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.framework.interface import Plugin, QueueSortPlugin


class PrioritySort(Plugin):
    """Sorts by priority, then by the time at which the pod last entered the queue or came back to it."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, timestamp: int) -> tuple[int, ...]:
        """Smaller keys are popped first. A pod without a priority has priority 0."""
        return (-(pod.spec.priority or 0), timestamp)


_queue_sort: type[QueueSortPlugin] = PrioritySort
