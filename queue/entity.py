"""Entities, which the queue holds: a pod, or a group of pods that is scheduled as one. The word is Kubernetes'.

An entity remembers how often and why it was rejected, because that decides how long it backs off and which hints may
wake it. Its fields belong to the queue: others read them, and only the queue changes them. An entity is equal to itself
only, and hashes by identity; nothing may depend on that hash's order, so wherever entities are looked at one after the
other they stand in an insertion-ordered dict or are sorted by a key of their own.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from tidelog.api.objects import Pod

Rejector = tuple[str, str]
"""A profile and one of its plugins: under this an entity that waits for events is filed."""

NO_EXPIRY = -1
"""Not backing off, or not computed yet."""


class Where(StrEnum):
    """Where a pod or group is. Each is in exactly one place."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    """In the pool: rejected and waiting for an event, or gated."""
    IN_FLIGHT = "in_flight"
    MEMBER = "member"
    """A pod inside a queued group: it is where the group is."""
    PENDING_MEMBER = "pending_member"
    """A pod whose group is being tried without it; it joins when that attempt ends."""
    INCOMPLETE_MEMBER = "incomplete_member"
    """A pod whose group's object is not known yet."""
    GONE = "gone"


class Strategy(IntEnum):
    """The effect of an event, or of an attempt's end, on an entity; of several the greatest counts."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class Entity(msgspec.Struct, eq=False, gc=False):
    """The part that pods and groups share. Times are nanoseconds; 0 means never."""

    key: str
    """`namespace/name` of a pod, or the caller's name of a group."""
    timestamp: int
    """When it came from outside or back from an attempt. Moves between the queues leave it alone, so that a pod that
    was woken keeps its place."""
    sequence: int = 0
    """Grows with each timestamp given, over all entities: breaks ties of the order."""
    order: tuple[int, ...] = ()
    """The sort plugin's key and the sequence: smaller is tried first. No two entities' are equal."""
    where: Where = Where.GONE
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    unschedulable_plugins: tuple[str, ...] = ()
    """The plugins that rejected it in its last attempt or have gated it since. Kept at the pop, replaced at the next failure."""
    pending_plugins: tuple[str, ...] = ()
    """The plugins whose Queue skips the backoff, because the rejected attempt was not wasted."""
    gating_plugin: str = ""
    gating_reasons: tuple[str, ...] = ()
    expiry: int = NO_EXPIRY
    """End of the backoff, computed once per failure."""
    flushed_at: int = 0
    """Last time it was woken only because it had waited too long."""
    was_flushed: bool = False
    """The flush was its last way out of the pool. If it is placed now, some hint slept."""
    entered_active_at: int = 0
    """First time it entered the active queue."""
    parked: int = 0
    """Position among all that ever entered the pool: the order in which an event goes through it."""
    filed_under: tuple[Rejector, ...] = ()
    """The pool's index entries that name this entity."""

    @property
    def is_gated(self) -> bool:
        """A PreEnqueue plugin, or a rule for groups, keeps it out of the queues."""
        return bool(self.gating_plugin)

    def reject(self, unschedulable: tuple[str, ...], pending: tuple[str, ...], *, is_error: bool) -> None:
        """An attempt has failed: because of these plugins, or with an error, which has its own count for the backoff."""
        if is_error:
            self.consecutive_errors += 1
        else:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        self._forget_attempt()
        self.unschedulable_plugins, self.pending_plugins = unschedulable, pending

    def absolve(self) -> None:
        """The attempt succeeded, and yet there is something left to try: as if it had never failed."""
        self.unschedulable_count = self.consecutive_errors = 0
        self._forget_attempt()

    def _forget_attempt(self) -> None:
        """State that lasts only from one attempt to the next."""
        self.unschedulable_plugins = self.pending_plugins = ()
        self.open_gate()
        self.expiry, self.flushed_at = NO_EXPIRY, 0
        self.was_flushed = False

    def close_gate(self, plugin: str, reasons: tuple[str, ...]) -> None:
        """Gated. The plugin counts among the rejectors from now on, so that its hints are asked."""
        self.gating_plugin, self.gating_reasons = plugin, reasons
        self.was_flushed = False
        if plugin not in self.unschedulable_plugins:
            self.unschedulable_plugins = (*self.unschedulable_plugins, plugin)

    def open_gate(self) -> None:
        """No longer gated; who gated it stays among the rejectors until the next failure."""
        self.gating_plugin, self.gating_reasons = "", ()


class QueuedPod(Entity, eq=False, gc=False, kw_only=True):
    """A pending pod. This is what hints get as `WaitingPod`."""

    uid: str
    pod: Pod
    """The newest version, also while an older one is being tried."""
    profile: str
    """The scheduler name: whose plugins judge it."""
    group: str = ""
    """Key of the group it is a member of."""
    attempted_at: int = 0
    """When its last attempt was popped."""
    first_rejected_at: dict[str, int] = {}
    """Plugin → first rejection since the pod was created or last ungated. Later attempts never change it, because
    KEP-3990 measures from here how long a pod has waited for nodes."""
    blocked_by: tuple[str, ...] = ()
    """Keys of the disruption budgets that kept it from preempting in its last attempt (KEP-4664)."""
    fallback_node: str = ""
    """The node to which it is nominated, if spread constraints had fallen back when it was (KEP-3990)."""
    fallback_constraints: tuple[int, ...] = ()
    """The indices of those that had because preemption had failed."""

    @property
    def has_rejectors(self) -> bool:
        """Some plugin rejected it: it waits for that plugin's events, not for an error to pass."""
        return bool(self.unschedulable_plugins or self.pending_plugins)

    def filing(self) -> tuple[Rejector, ...]:
        """Under whom the pool has to find it. Who is gated is found by its gate's events alone."""
        if self.gating_plugin:
            return ((self.profile, self.gating_plugin),)
        plugins = dict.fromkeys((*self.unschedulable_plugins, *self.pending_plugins))
        return tuple((self.profile, plugin) for plugin in plugins)

    def fail(self, unschedulable: tuple[str, ...], pending: tuple[str, ...], at: int) -> None:
        """Its attempt has failed; with no plugin to blame, with an error."""
        self.reject(unschedulable, pending, is_error=not (unschedulable or pending))
        for plugin in (*unschedulable, *pending):
            self.first_rejected_at.setdefault(plugin, at)

    def mark_fallback(self, node: str, constraints: tuple[int, ...]) -> None:
        """It is being nominated to the node; the constraints that had fallen back stay so as long as it is."""
        self.fallback_node, self.fallback_constraints = (node, constraints) if constraints else ("", ())

    def member_order(self) -> tuple[int, int, int, str, str]:
        """Place among the members of its group."""
        meta = self.pod.metadata
        return (-(self.pod.spec.priority or 0), -self.attempts, self.timestamp, meta.name, self.key)


class QueuedGroup(Entity, eq=False, gc=False, kw_only=True):
    """Pods that are tried together. Its own rejectors are those that no single member can be blamed for."""

    members: dict[str, QueuedPod] = {}
    """By key. Those in flight are not here but in `popped`."""
    popped: tuple[QueuedPod, ...] = ()
    """The members that its last attempt was made for, in their order."""
    hints: bool
    """Waits in the pool for hints after a rejection; False is upstream's way, which knows only backoff for groups."""
    disturbed: bool = False
    """The group itself changed while it was in flight, so a rejection must not put it to sleep."""

    @property
    def has_rejectors(self) -> bool:
        """Upstream's groups never have any, which keeps them in the error half of the backoff queue."""
        return self.hints and (
            bool(self.unschedulable_plugins or self.pending_plugins)
            or any(member.has_rejectors for member in self.members.values())
        )

    def ordered_members(self) -> list[QueuedPod]:
        """Priority and attempts descending, then time in the queue, then name."""
        return sorted(self.members.values(), key=QueuedPod.member_order)

    @property
    def profile(self) -> str:
        """The scheduler name of its members; if somebody made a mistake and they differ, that of the first."""
        return next(iter(self.members.values())).profile

    def filing(self) -> tuple[Rejector, ...]:
        """As for a pod, over all members."""
        if self.gating_plugin:
            return ((self.profile, self.gating_plugin),)
        own = (*self.unschedulable_plugins, *self.pending_plugins)
        found: dict[Rejector, None] = {(self.profile, plugin): None for plugin in own}
        for member in self.members.values():
            plugins = (*member.unschedulable_plugins, *member.pending_plugins)
            found.update(((member.profile, plugin), None) for plugin in plugins)
        return tuple(found)


AnyEntity = QueuedPod | QueuedGroup


def pod_key(pod: Pod) -> str:
    """`namespace/name`."""
    meta = pod.metadata
    return f"{meta.namespace}/{meta.name}"


def pod_uid(pod: Pod) -> str:
    """Identity of a pod among pods of the same name at other times."""
    return pod.metadata.uid or pod_key(pod)
