"""The order in which entities are tried: the QueueSort plugin's key, then who came first.

The key is computed once per timestamp and version of a pod, not once per comparison.
"""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.framework.interface import QueueSortPlugin
from tidelog.queue.entity import Entity


class Order:
    """Gives entities their timestamps and their place."""

    __slots__ = ("_sort_key", "issued")

    def __init__(self, plugin: QueueSortPlugin) -> None:
        self._sort_key = plugin.sort_key
        self.issued = 0
        """How many timestamps have been given; the sequence of the last."""

    def stamp(self, entity: Entity, pod: Pod, timestamp: int) -> None:
        """The entity has come from outside or back from an attempt, and is sorted as this pod."""
        self.issued = sequence = self.issued + 1
        entity.timestamp = timestamp
        entity.sequence = sequence
        entity.order = (*self._sort_key(pod, timestamp), sequence)

    def of(self, entity: Entity, pod: Pod) -> tuple[int, ...]:
        """Its place if it is sorted as this pod, everything else unchanged."""
        return (*self._sort_key(pod, entity.timestamp), entity.sequence)
