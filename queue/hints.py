"""Which plugins are interested in an event, and what their hints say (KEP-4247).

A plugin registers the events that may make schedulable what it rejected, each with an optional hint. `HintMap` answers
two questions, both from tables that are filled once per kind of event: whom does this event concern (before any pod is
looked at), and what shall become of this pod or group (by asking the hints of the plugins that rejected it).

A hint is asked only if its plugin is among the rejectors. One Queue is enough, whatever the others say. A Queue from a
*pending* plugin skips the backoff; one from any other leads through it. A hint that fails counts as Queue, because a
wrong Queue costs one attempt and a wrong Skip can cost minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tidelog.api.errors import FieldError, InvalidObjects, PluginError
from tidelog.api.objects import Pod
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, HintFn, Resource, matches
from tidelog.framework.interface import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    WaitsForTime,
)
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Rejector, Strategy, pod_key, pod_uid
from tidelog.queue.in_flight import InFlightEvent

REJECTING_POINTS = (PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, ReservePlugin, PermitPlugin)

DEFAULT_REGISTRATIONS: tuple[EventRegistration, ...] = tuple(
    EventRegistration(ClusterEvent(resource, Action.ALL))
    for resource in (
        Resource.ASSIGNED_POD,
        Resource.UNSCHEDULED_POD,
        Resource.TARGET_POD,
        Resource.NODE,
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.STORAGE_CLASS,
        Resource.RESOURCE_CLAIM,
        Resource.DEVICE_CLASS,
        Resource.POD_GROUP,
    )
)
"""The events of a plugin that can reject but registers nothing."""


class QueueObserver(Protocol):
    """An observer of the queue, for metrics and explanations. It must not change anything."""

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        """A hint was asked; `answer` is `Queue`, `QueueSkip`, or `Error` for a hint that failed."""

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        """The entity entered the active or backoff queue or the pool (`entity.where`) because of this event."""


def registrations_of(plugins: Sequence[Plugin]) -> dict[str, tuple[EventRegistration, ...]]:
    """Plugin name → what it is registered for, in the order of the plugins; refuses registrations that cannot work."""
    found: dict[str, tuple[EventRegistration, ...]] = {}
    errors: list[FieldError] = []
    for plugin in plugins:
        try:
            declared = plugin.events_to_register()
        except Exception as error:
            raise PluginError(
                plugin.name, f"cannot say what may wake its pods: {type(error).__name__}: {error}"
            ) from error
        if declared is None:
            declared = DEFAULT_REGISTRATIONS if isinstance(plugin, REJECTING_POINTS) else ()
        # Without a hint, every pod that the plugin rejected would be tried again at each tick.
        errors.extend(
            FieldError(
                path=f"plugins[{plugin.name}].eventsToRegister[{number}]",
                kind="Required",
                rule="a registration for Time needs a hint",
            )
            for number, registration in enumerate(declared)
            if registration.event.resource is Resource.TIME and registration.hint is None
        )
        found[plugin.name] = tuple(declared)
    if errors:
        raise InvalidObjects("the list of plugins", errors)
    return found


class HintMap:
    """The registrations of all profiles, by kind of event."""

    __slots__ = ("_ask", "_hints", "_interested", "_registrations", "_timed", "_upstream", "observer")

    def __init__(
        self, profiles: Mapping[str, Sequence[Plugin]], *, ask_hints: bool = True, upstream: bool = False
    ) -> None:
        self._registrations = {profile: registrations_of(plugins) for profile, plugins in profiles.items()}
        self._timed: dict[Rejector, WaitsForTime | None] = {
            (profile, plugin.name): plugin if isinstance(plugin, WaitsForTime) else None
            for profile, plugins in profiles.items()
            for plugin in plugins
            if any(r.event.resource is Resource.TIME for r in self._registrations[profile][plugin.name])
        }
        """Plugins registered for Time; None for those that do not tell when a tick is worth while."""
        self._ask = ask_hints
        self._upstream = upstream
        self._interested: dict[ClusterEvent, tuple[Rejector, ...]] = {}
        self._hints: dict[str, dict[ClusterEvent, dict[str, list[HintFn | None]]]] = {p: {} for p in profiles}
        self.observer: QueueObserver | None = None

    def interested(self, event: ClusterEvent) -> tuple[Rejector, ...]:
        """Return the registrations for such an event, in any profile. Computed once per kind of event."""
        found = self._interested.get(event)
        if found is None:
            found = tuple(
                (profile, plugin)
                for profile, registrations in self._registrations.items()
                for plugin in self._matching(registrations, event)
            )
            self._interested[event] = found
        return found

    def time_due(self, entity: AnyEntity) -> int | None:
        """From when on a tick may help the entity; None if time cannot. Costs a call for each rejector that waits for time."""
        dues: list[int] = []
        for rejector in entity.filing() if self._timed else ():
            if rejector in self._timed:
                dues.extend(self._dues(rejector, self._timed[rejector], entity))
        return min(dues, default=None)

    def _dues(self, rejector: Rejector, plugin: WaitsForTime | None, entity: AnyEntity) -> Iterator[int]:
        for pod in (entity,) if isinstance(entity, QueuedPod) else entity.members.values():
            if pod.profile == rejector[0]:
                try:
                    due = 0 if plugin is None else plugin.time_due(pod)
                except Exception:  # As with a hint: a tick too many costs less than a pod that is forgotten.
                    due = 0
                if due is not None:
                    yield due

    def strategy(self, entity: AnyEntity, event: ClusterEvent, old: Any, new: Any) -> Strategy:
        """Ask the hints what this event does with the entity: for a group, the best of its members."""
        if isinstance(entity, QueuedPod):
            return self._judge(entity, entity.unschedulable_plugins, entity.pending_plugins, event, old, new)
        best = Strategy.SKIP
        blamed = entity.has_rejectors
        for member in self._addressed(entity, event, new) if blamed else entity.members.values():
            unschedulable, pending = _rejectors_in_group(entity, member)
            # A member that nobody rejected says nothing about a group that somebody did. (Upstream lets it speak.)
            if blamed and not unschedulable and not pending:
                continue
            best = max(best, self._judge(member, unschedulable, pending, event, old, new))
            if _is_settled(best, entity):
                break
        return best

    def _addressed(self, group: QueuedGroup, event: ClusterEvent, new: Any) -> Iterable[QueuedPod]:
        """The members that the event can concern. A change of one is nobody else's business, and a group of n that is rejected
        has n of them: judging all by each would cost n²."""
        if event.resource is not Resource.TARGET_POD or self._upstream or not isinstance(new, Pod):
            return group.members.values()
        own = group.members.get(pod_key(new))
        return () if own is None else (own,)

    def concerns(self, pod: QueuedPod, event: ClusterEvent) -> bool:
        """Whether such an event has to be judged at all for a rejected pod. Anything else is a Skip."""
        if event.resource is Resource.WILDCARD and event.is_wildcard:
            return True
        hints = self._hints_for(pod.profile, event)
        if hints is None:
            return True
        return any(p in hints for p in pod.unschedulable_plugins) or any(
            p in hints for p in pod.pending_plugins
        )

    def best_strategy(self, entity: AnyEntity, events: Iterable[InFlightEvent]) -> Strategy:
        """Ask the hints what these events together do with the entity."""
        best = Strategy.SKIP
        for happened in events:
            best = max(best, self.strategy(entity, happened.event, happened.old, happened.new))
            if _is_settled(best, entity):
                break
        return best

    def _hints_for(self, profile: str, event: ClusterEvent) -> dict[str, list[HintFn | None]] | None:
        """Plugin → its hints for such an event, computed once; None for a profile that does not exist."""
        by_event = self._hints.get(profile)
        if by_event is None:
            return None
        hints = by_event.get(event)
        if hints is None:
            hints = by_event[event] = self._matching(self._registrations[profile], event)
        return hints

    def _matching(
        self, registrations: Mapping[str, tuple[EventRegistration, ...]], event: ClusterEvent
    ) -> dict[str, list[HintFn | None]]:
        """Plugin → the hints of its registrations that this event matches."""
        return {
            plugin: hints
            for plugin, registered in registrations.items()
            if (hints := [r.hint for r in registered if matches(r.event, event)])
        }

    def _judge(
        self,
        waiting: QueuedPod,
        unschedulable: tuple[str, ...],
        pending: tuple[str, ...],
        event: ClusterEvent,
        old: Any,
        new: Any,
    ) -> Strategy:
        """The verdict for one pod that these plugins rejected."""
        if not unschedulable and not pending:
            return Strategy.AFTER_BACKOFF
        if event.resource is Resource.WILDCARD and event.is_wildcard:
            # A wildcard with a pod is that pod's activation and nobody else's business.
            return Strategy.AFTER_BACKOFF if new is None or _is(waiting, new) else Strategy.SKIP
        hints = self._hints_for(waiting.profile, event)
        if hints is None:
            return Strategy.AFTER_BACKOFF
        if event.resource is Resource.TARGET_POD and not self._upstream and not _is(waiting, new):
            return Strategy.SKIP
        best: Strategy = Strategy.SKIP
        for plugin, functions in hints.items():
            if plugin in pending:
                if self._says_queue(waiting, plugin, functions, event, old, new):
                    return Strategy.IMMEDIATELY
            elif best is Strategy.SKIP and plugin in unschedulable:
                if self._says_queue(waiting, plugin, functions, event, old, new):
                    if not pending:
                        return Strategy.AFTER_BACKOFF
                    best = Strategy.AFTER_BACKOFF
        return best

    def _says_queue(
        self,
        waiting: QueuedPod,
        plugin: str,
        functions: list[HintFn | None],
        event: ClusterEvent,
        old: Any,
        new: Any,
    ) -> bool:
        """Whether any of the plugin's hints lets the pod be tried again."""
        for function in functions:
            answer = "Queue"
            if function is not None and self._ask:
                try:
                    said: object = function(waiting, old, new)
                    answer = said.value if isinstance(said, Hint) else "Error"
                except Exception:  # A plugin's bug must not stop the queue; it is reported as the answer.
                    answer = "Error"
            if self.observer is not None:
                self.observer.hint_answered(waiting, plugin, event, answer)
            if answer != "QueueSkip":
                return True
        return False


def _is(waiting: QueuedPod, changed: Any) -> bool:
    return isinstance(changed, Pod) and pod_uid(changed) == waiting.uid


def _rejectors_in_group(group: QueuedGroup, member: QueuedPod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The plugins that speak for a member: its own rejectors, and the group's."""
    if not group.hints:
        return member.unschedulable_plugins, member.pending_plugins
    return (
        (*member.unschedulable_plugins, *group.unschedulable_plugins),
        (*member.pending_plugins, *group.pending_plugins),
    )


def _is_settled(best: Strategy, entity: AnyEntity) -> bool:
    """Whether no further event or member can improve on this."""
    if best is Strategy.AFTER_BACKOFF:
        members = entity.members.values() if isinstance(entity, QueuedGroup) else ()
        return not entity.pending_plugins and not any(member.pending_plugins for member in members)
    return best is Strategy.IMMEDIATELY
