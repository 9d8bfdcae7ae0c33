"""Notes of a plugin about an attempt beyond its answers, for the outcomes that the log gets: which constraints had fallen back (KEP-3990)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.eventlog.records import Fallback
from tidelog.framework.interface import CycleState

__all__ = [
    "NODE_PROVISIONING_IN_PROGRESS",
    "PREEMPTION_FAILED",
    "Fallback",
    "ToldByPlugin",
    "tell",
    "told_in",
]

PREEMPTION_FAILED = "PreemptionFailed"
"""A criterion of KEP-3990: the constraint stays fallen back as long as the nomination stands."""
NODE_PROVISIONING_IN_PROGRESS = "NodeProvisioningInProgress"
"""The pod's condition by which a cluster autoscaler tells what it does."""

_KEY = "told"


class ToldByPlugin(NamedTuple):
    """By one plugin; an attempt has at most one that tells something."""

    plugin: str
    lines: tuple[str, ...]
    """For the explanation of a rejection."""
    fallback: tuple[Fallback, ...] = ()


def tell(state: CycleState, told: ToldByPlugin) -> None:
    """Leave this for the attempt's outcomes."""
    state.write(_KEY, told)


def told_in(state: CycleState) -> ToldByPlugin | None:
    """Return the note that a plugin left; None if none did, or the attempt ended before that."""
    found: ToldByPlugin | None = state.read(_KEY)
    return found
