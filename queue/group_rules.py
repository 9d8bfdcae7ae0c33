"""The groups' rules, and the two that keep a whole group out of the queues.

- A gang waits until `min_count` of its members are known.
- A group with a `desired_count` waits for that many, but no longer than `desired_count_wait` after the first was seen.

Known members are those with a node, whom the caller counts (`GroupInfo.placed`), and the pending ones, whom the queue
counts, wherever they are. In `upstream` mode there are no such rules: there a plugin's PreEnqueue holds gangs back.

Nothing here reads Kubernetes' Workload or PodGroup: the caller says what a group is, and says it again when it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from tidelog.queue.entity import QueuedGroup
from tidelog.queue.heap import Heap

GANG_GATE = "GangScheduling"
DESIRED_COUNT_GATE = "DesiredCount"
WAITING_FOR_GANG = ("waiting for minCount pods from a gang to appear in scheduling queue",)
WAITING_FOR_DESIRED_COUNT = (
    "waiting a moment for desiredCount pods of the group to appear in scheduling queue",
)


class QueuedGroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group's rules for the queue. A count is 0 where the group has no such rule."""

    key: str
    priority: int = 0
    min_count: int = 0
    desired_count: int = 0
    desired_count_wait: int = 0
    """Nanoseconds; 0 does not wait."""
    placed: int = 0
    """Members that have a node."""

    def may_help(self, before: QueuedGroupInfo) -> bool:
        """Whether this version of the group could be placed where the one before could not."""
        return (
            self.placed > before.placed
            or self.priority != before.priority
            or self.min_count != before.min_count
            or self.desired_count != before.desired_count
            or self.desired_count_wait != before.desired_count_wait
        )


class GroupRules:
    """The groups' infos, how many members each has, and who waits for more of them."""

    __slots__ = ("_pending_pods", "_seen_at", "_upstream", "infos", "waits")

    def __init__(self, *, upstream: bool) -> None:
        self._upstream = upstream
        self._pending_pods: dict[str, int] = {}
        """Group → how many pods of it the queue knows: queued, in flight, pending or incomplete."""
        self._seen_at: dict[str, int] = {}
        """When the first member was seen; kept while the group's object or any pod of it is known."""
        self.waits: Heap[QueuedGroup] = Heap()
        """Groups that wait for `desired_count`, by the end of the wait."""
        self.infos: dict[str, QueuedGroupInfo] = {}

    def member_seen(self, group: str, now: int) -> None:
        """A pending pod of the group is there."""
        self._pending_pods[group] = self._pending_pods.get(group, 0) + 1
        self._seen_at.setdefault(group, now)

    def member_gone(self, group: str) -> None:
        """A pod of the group is no longer pending: it has a node, or is deleted."""
        self._pending_pods[group] -= 1
        self._forget_if_unknown(group)

    def remove(self, group: str) -> None:
        """The group's object is gone."""
        self.infos.pop(group, None)
        self._forget_if_unknown(group)

    def gate(self, group: QueuedGroup, now: int) -> tuple[str, tuple[str, ...]] | None:
        """Which rule keeps the group out at this time, and its words; None when it may be tried."""
        self.waits.discard(group)
        info = self.infos.get(group.key)
        if info is None or self._upstream:
            return None
        known = info.placed + self._pending_pods.get(group.key, 0)
        if known < info.min_count:
            return GANG_GATE, WAITING_FOR_GANG
        until = self._seen_at.get(group.key, now) + info.desired_count_wait
        if known < info.desired_count and now < until:
            self.waits.push(group, (until, group.sequence))
            return DESIRED_COUNT_GATE, WAITING_FOR_DESIRED_COUNT
        return None

    def stop_waiting(self, group: QueuedGroup) -> None:
        """The group is no longer in the queues."""
        self.waits.discard(group)

    def waits_until(self, group: QueuedGroup) -> int | None:
        """When the group will have waited long enough; None if it does not wait for `desired_count`."""
        return self._until(group) if group in self.waits else None

    def done_waiting(self, now: int) -> list[QueuedGroup]:
        """Take out the groups that have waited long enough for `desired_count`."""
        found = []
        while (group := self.waits.first()) is not None and self._until(group) <= now:
            self.waits.discard(group)
            found.append(group)
        return found

    def next_wait_until(self) -> int | None:
        """When the next group will have waited long enough."""
        group = self.waits.first()
        return None if group is None else self._until(group)

    def dump(self) -> dict[str, Any]:
        """Everything that cannot be told from the entities, as builtins."""
        return {
            "infos": [msgspec.to_builtins(self.infos[key]) for key in sorted(self.infos)],
            "seen_at": dict(sorted(self._seen_at.items())),
            "waits": [[self._until(group), group.key] for group in self.waits.ordered()],
        }

    def restore(self, state: dict[str, Any], queued: dict[str, QueuedGroup], members: Iterable[str]) -> None:
        """Take over a dumped state. `members`: the group of each pending pod that has one."""
        self.infos = {i["key"]: msgspec.convert(i, QueuedGroupInfo) for i in state["infos"]}
        self._seen_at = dict(state["seen_at"])
        self._pending_pods = dict(Counter(members))
        for until, key in state["waits"]:
            self.waits.push(queued[key], (until, queued[key].sequence))

    def _until(self, group: QueuedGroup) -> int:
        order: tuple[int, ...] = self.waits.order_of(group)
        return order[0]

    def _forget_if_unknown(self, group: str) -> None:
        if not self._pending_pods.get(group):
            self._pending_pods.pop(group, None)
            if group not in self.infos:
                self._seen_at.pop(group, None)
