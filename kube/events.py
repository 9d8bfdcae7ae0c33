"""Events: what a scheduler says in them, and their two forms.

    Scheduled           Normal   Binding      Successfully assigned default/web to n1
    FailedScheduling    Warning  Scheduling   0/3 nodes are available: …
    Preempted           Normal   Preempting   Preempted by pod … on node n1

`v1` is how everybody reads them, `events.k8s.io/v1` how they are written today: one object under both names. These words are kube-scheduler's; there
are words of ours for the other outcomes, which `tidelog get events` lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

GROUP = "events.k8s.io"
_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
NOTE_BYTES_MAX = 1024
"""A longer note is refused by API servers."""


class Saying(NamedTuple):
    """The words of an event."""

    type: str
    reason: str
    action: str
    note: str


def scheduled(namespace: str, name: str, node: str) -> Saying:
    """The pod was bound."""
    return Saying("Normal", "Scheduled", "Binding", f"Successfully assigned {namespace}/{name} to {node}")


def rejected(message: str) -> Saying:
    """No place was found for the pod."""
    return Saying("Warning", "FailedScheduling", "Scheduling", message)


def preempted(preemptor: str, node: str) -> Saying:
    """The pod was asked to go. `preemptor`: its uid or its name, empty if nobody knows for whom any more."""
    who = f"pod {preemptor}" if preemptor else "a pod"
    return Saying("Normal", "Preempted", "Preempting", f"Preempted by {who} on node {node}")


def eviction_refused(preemptor: str, node: str, why: str) -> Saying:
    """The pod was asked to go, in vain."""
    return Saying("Warning", "EvictionRefused", "Preempting", f"on {node}, for {preemptor}: {why}")


def nominated(node: str, victims: Sequence[str]) -> Saying:
    """Room is made for the pod."""
    instead = f", in place of {', '.join(victims)}" if victims else ""
    return Saying("Normal", "Nominated", "Scheduling", f"to {node}{instead}")


def waiting(node: str, plugins: Sequence[str]) -> Saying:
    """The pod has a node, and waits for these plugins to permit it."""
    return Saying("Normal", "WaitingOnPermit", "Scheduling", f"on {node}, for {', '.join(plugins)}")


def reserved(node: str, writes: int) -> Saying:
    """The pod has a node, and waits for its volumes and devices."""
    return Saying("Normal", "WaitingForAnswers", "Scheduling", f"on {node}, for {writes} writes")


def cut(note: str) -> str:
    """As much of it as an API server takes."""
    text = note.encode()
    return (
        note if len(text) <= NOTE_BYTES_MAX else text[: NOTE_BYTES_MAX - 4].decode("utf-8", "ignore") + " ..."
    )


def as_core(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The event in the form of `v1`."""
    return {_OLD_NAMES.get(key, key): value for key, value in manifest.items()}


def as_new(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The event in the form of `events.k8s.io/v1`."""
    return {_NEW_NAMES.get(key, key): value for key, value in manifest.items()}
