"""Setting one condition among others, as every controller of Kubernetes does it."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.errors import InvalidObjects
from tidelog.api.objects import Condition, Pod
from tidelog.api.times import format_time
from tidelog.api.validation.common import validate_condition

Conditions = tuple[Condition, ...]


def merged(conditions: Conditions, new: Condition, at: int) -> Conditions:
    """The conditions with `new` in the place of the one of its type, or at the end; the same tuple if nothing changes.

    lastTransitionTime moves only when the status changes, unless `new` brings its own.
    """
    old = next((c for c in conditions if c.type == new.type), None)
    if not new.last_transition_time:
        same = old is not None and old.status == new.status and old.last_transition_time
        new = replace(new, last_transition_time=same or format_time(at))
    if old is None:
        return (*conditions, new)
    return conditions if old == new else tuple(new if c is old else c for c in conditions)


def with_condition(
    conditions: Conditions, type: str, status: str, reason: str, message: str, at: int
) -> Conditions:
    """The conditions with this one set: in its place if it was there, else at the end.

    lastTransitionTime moves only when the status changes. Returns the same tuple if nothing changes.
    """
    old = next((c for c in conditions if c.type == type), Condition(type=type))
    new = replace(old, status=status, reason=reason, message=message, last_transition_time="")
    return merged(conditions, new, at)


def set_condition(pod: Pod, type: str, status: str, reason: str, message: str, at: int) -> Pod:
    """The pod with the condition set; the same pod if that changes nothing. Raises InvalidObjects."""
    errors = validate_condition(type, status)
    if errors:
        raise InvalidObjects(f'condition of Pod "{pod.metadata.name}"', errors)
    found = with_condition(pod.status.conditions, type, status, reason, message, at)
    if found is pod.status.conditions:
        return pod
    return replace(pod, status=replace(pod.status, conditions=found))
