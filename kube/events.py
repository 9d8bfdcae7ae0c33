"""Events in their two forms: `v1`, as everybody reads them, and `events.k8s.io/v1`, as they are written today. One object under both names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def as_core(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The event in the form of `v1`."""
    return {_OLD_NAMES.get(key, key): value for key, value in manifest.items()}


def as_new(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The event in the form of `events.k8s.io/v1`."""
    return {_NEW_NAMES.get(key, key): value for key, value in manifest.items()}
