"""Notes of a plugin about an attempt beyond its answers, for the outcomes that the log gets: which constraints had fallen back (KEP-3990)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.eventlog.records import Fallback

__all__ = [
    "NODE_PROVISIONING_IN_PROGRESS",
    "PREEMPTION_FAILED",
    "Fallback",
    "ToldByPlugin",
]

PREEMPTION_FAILED = "PreemptionFailed"
"""A criterion of KEP-3990: the constraint stays fallen back as long as the nomination stands."""
NODE_PROVISIONING_IN_PROGRESS = "NodeProvisioningInProgress"
"""The pod's condition by which a cluster autoscaler tells what it does."""


class ToldByPlugin(NamedTuple):
    """By one plugin, left in `CycleState.told`; an attempt has at most one that tells something."""

    plugin: str
    lines: tuple[str, ...]
    """For the explanation of a rejection."""
    fallback: tuple[Fallback, ...] = ()
