"""How long a rejected entity waits before it may be tried again, and where it waits.

    count     consecutive errors if there are any, else rejections; 0 = no backoff
    limit     the maximum; for a group of n members, maximum · √n
    duration  initial · 2^(count-1), at most the limit
    expiry    timestamp + duration

With `windows` (kube-scheduler's SchedulerPopFromBackoffQ) both the expiry and the time it is compared with are cut to
the whole second, so that everything that expires within a second forms one window, ordered by priority. An entity is
backing off as long as its expiry is not *before* now: one that failed at 0.3 s with one second of backoff is free at
2.0 s, not at 1.3 s.

Rejected entities and those that failed with an error wait apart, because only the former may be popped early when there
is nothing else to do: an error is retried no sooner than it has to be.
"""

from __future__ import annotations

from math import isqrt

from tidelog.api.times import NANOS
from tidelog.queue.entity import NO_EXPIRY, AnyEntity, QueuedGroup
from tidelog.queue.heap import Heap


class BackoffPolicy:
    """The arithmetic."""

    __slots__ = ("_initial", "_maximum", "_windows")

    def __init__(self, initial: int, maximum: int, *, windows: bool) -> None:
        self._initial = initial
        self._maximum = maximum
        self._windows = windows

    def expiry(self, entity: AnyEntity) -> int:
        """End of the entity's backoff, or `NO_EXPIRY`. Computed once per failure, and kept."""
        if entity.expiry == NO_EXPIRY:
            count = entity.consecutive_errors or entity.unschedulable_count
            if count and self._maximum:
                entity.expiry = self._cut(entity.timestamp + self._duration(count, entity))
        return entity.expiry

    def is_backing_off(self, entity: AnyEntity, now: int) -> bool:
        """Its backoff is not over. `<=`, not `<`: see the head of the module."""
        return self._cut(now) <= self.expiry(entity)

    def free_at(self, expiry: int) -> int:
        """The first moment at which an entity of this expiry is not backing off."""
        return expiry + (NANOS if self._windows else 1)

    def _duration(self, count: int, entity: AnyEntity) -> int:
        limit = self._maximum
        if isinstance(entity, QueuedGroup) and len(entity.members) > 1:
            limit = isqrt(limit * limit * len(entity.members))
        # Beyond 64 doublings every initial duration is over every limit.
        return min(self._initial << min(count - 1, 64), limit)

    def _cut(self, time: int) -> int:
        return time - time % NANOS if self._windows else time


class BackoffQueue:
    """Entities by the end of their backoff (expiry, order)."""

    __slots__ = ("_errors", "_group_errors_wait", "_policy", "_rejected")

    def __init__(self, policy: BackoffPolicy, *, group_errors_wait: bool) -> None:
        self._policy = policy
        self._group_errors_wait = group_errors_wait
        self._rejected: Heap[AnyEntity] = Heap()
        self._errors: Heap[AnyEntity] = Heap()

    def __len__(self) -> int:
        return len(self._rejected) + len(self._errors)

    def put(self, entity: AnyEntity) -> None:
        """The entity waits here; also after its order has changed."""
        rejected = entity.has_rejectors
        if rejected and self._group_errors_wait and isinstance(entity, QueuedGroup):
            # Some member was rejected, and another met an error: the group waits for the error.
            rejected = not entity.consecutive_errors
        heap = self._rejected if rejected else self._errors
        heap.push(entity, (self._policy.expiry(entity), *entity.order))

    def discard(self, entity: AnyEntity) -> None:
        """Take the entity out."""
        if not self._rejected.discard(entity):
            self._errors.discard(entity)

    def pop_early(self) -> AnyEntity | None:
        """The rejected entity that would be free first, though it is not free yet. Errors are never popped early."""
        return self._rejected.pop()

    def pop_expired(self, now: int) -> list[AnyEntity]:
        """Take out all whose backoff is over."""
        expired: list[AnyEntity] = []
        if not (self._rejected.live or self._errors.live):
            return expired
        for heap in (self._rejected, self._errors):
            while (
                heap.live
                and (entity := heap.first()) is not None
                and not self._policy.is_backing_off(entity, now)
            ):
                heap.discard(entity)
                expired.append(entity)
        return expired

    def next_free_at(self) -> int | None:
        """When the next backoff ends."""
        firsts = [e for heap in (self._rejected, self._errors) if (e := heap.first()) is not None]
        return min((self._policy.free_at(e.expiry) for e in firsts), default=None)

    def unordered(self) -> list[AnyEntity]:
        """Everyone, in no order that means anything."""
        return self._rejected.unordered() + self._errors.unordered()

    def rejected(self) -> list[AnyEntity]:
        """The entities that a plugin rejected, in the order of their expiry."""
        return self._rejected.ordered()

    def errors(self) -> list[AnyEntity]:
        """The entities that failed with an error, in the order of their expiry."""
        return self._errors.ordered()
