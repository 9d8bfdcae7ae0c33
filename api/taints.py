"""Taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.api.objects import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Effect empty or equal, key empty or equal, and `Exists`, or `Equal` (the default) with the same value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps pods away (NoSchedule, NoExecute) and is not tolerated."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations):
            return taint
    return None
