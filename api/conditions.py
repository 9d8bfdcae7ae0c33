"""Setting one condition among others, as every controller of Kubernetes does it."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.errors import InvalidObjects
from tidelog.api.objects import Condition, Pod
from tidelog.api.times import format_time
from tidelog.api.validation import validate_condition

Conditions = tuple[Condition, ...]


def with_condition(
    conditions: Conditions, type: str, status: str, reason: str, message: str, at: int
) -> Conditions:
    """The conditions with this one set: in its place if it was there, else at the end.

    lastTransitionTime moves only when the status changes. Returns the same tuple if nothing changes.
    """
    for index, old in enumerate(conditions):
        if old.type != type:
            continue
        if (old.status, old.reason, old.message) == (status, reason, message):
            return conditions
        moved = old.last_transition_time if old.status == status else format_time(at)
        new = replace(old, status=status, reason=reason, message=message, last_transition_time=moved)
        return (*conditions[:index], new, *conditions[index + 1 :])
    new = Condition(
        type=type, status=status, reason=reason, message=message, last_transition_time=format_time(at)
    )
    return (*conditions, new)


def set_condition(pod: Pod, type: str, status: str, reason: str, message: str, at: int) -> Pod:
    """The pod with the condition set; the same pod if that changes nothing. Raises InvalidObjects."""
    errors = validate_condition(type, status)
    if errors:
        raise InvalidObjects(f'condition of Pod "{pod.metadata.name}"', errors)
    found = with_condition(pod.status.conditions, type, status, reason, message, at)
    if found is pod.status.conditions:
        return pod
    return replace(pod, status=replace(pod.status, conditions=found))
