"""Why a decision is aborted at its commit: the causes, each with its label in the metrics and its sentence in the log.

A reason is a cause with the names it is about. Sentences become part of a log's bytes, so they never change.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class AbortCause(enum.Enum):
    """A change that takes away what a decision relies on: label in the metrics, sentence in the log."""

    NODE_DELETED = "node deleted", "node {} was deleted"
    NODE_CREATED_ANEW = "node replaced", "node {} was created anew"
    NODE_REPLACED = "node replaced", "node {} was replaced"
    NODE_CORDONED = "node cordoned", "node {} was cordoned"
    NODE_TAINTS = "node changed", "the taints of node {} changed"
    NODE_LABELS = "node changed", "the labels of node {} changed"
    NODE_ALLOCATABLE = "node changed", "the allocatable resources of node {} changed"
    ROOM_TAKEN = "room taken", "{} took room on node {}"
    ROOM_PROMISED = "room promised", "room on node {} is promised to others after all"
    POD_GONE = "pod gone", "the pod is gone"
    POD_DELETED = "pod gone", "the pod is being deleted"
    POD_CREATED_ANEW = "pod changed", "the pod was created anew"
    POD_BOUND = "pod bound", "the pod was bound to {}"
    POD_CHANGED = "pod changed", "the pod changed"
    FALLBACK_WITHDRAWN = (
        "pod changed",
        "the pod's conditions or nomination changed, and its spread constraints may be hard again",
    )
    GROUP_DELETED = "group changed", "the group's object was deleted"
    GROUP_CHANGED = "group changed", "the group's object changed"
    MEMBER_RELEASED = "group changed", "{}, which counts for the group's quorum, has lost its place"
    CLUSTER_CHANGED = "cluster changed", "{} changed, and the choice depends on more than its own node"
    OBJECT_CHANGED = "object changed", "{} changed"
    OBJECT_GIVEN_BACK = "object changed", "{} was given back"
    CLAIM_NOT_ALLOCATED = "devices taken", "{} was not allocated after all"
    DEVICE_TAKEN = "devices taken", "{} is not to be had any more: {} changed"
    VICTIM_CHANGED = "victim changed", "{}, which was to make room, changed"
    BUDGET_APPEARED = "budget changed", "PDB {} appeared"
    BUDGET_ALLOWS_LESS = "budget changed", "PDB {} allows {} disruptions instead of {}"
    BUDGET_CHANGED = "budget changed", "PDB {} changed"
    PREEMPTION_CALLED_OFF = "preemption called off", "the preemption on node {} was called off"

    def __init__(self, label: str, sentence: str) -> None:
        self.label = label
        self.sentence = sentence

    def of(self, *names: object) -> AbortReason:
        """Return the reason with these names."""
        return AbortReason(self, names)


class AbortReason(NamedTuple):
    """A cause, and the names that its sentence has places for."""

    cause: AbortCause
    names: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.cause.sentence.format(*self.names)


class Conflict(NamedTuple):
    """Why an attempt is aborted, and by which record."""

    seq: int
    reason: AbortReason
