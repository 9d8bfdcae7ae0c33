"""Decisions of a cluster's own scheduler, in a log that only records that cluster: they show in the pods' versions.

They are no outcomes of ours, and yet they are what a what-if on such a log decides anew: so it takes each version without them. What a kubelet
tells of a pod, what somebody changes, and pods that had their node when they were first seen stay as they are.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec.structs import replace

from tidelog.api.objects import Pod, pod_condition
from tidelog.api.pod_status import is_preempted
from tidelog.api.well_known import REGION, ZONE
from tidelog.eventlog.attachment import Attachment

_CONDITIONS = ("PodScheduled", "DisruptionTarget")
"""Written by schedulers."""


def only_records(attachment: Attachment | None) -> bool:
    """The log is of a cluster in which another scheduler decides."""
    return attachment is not None and attachment.mode != "schedule"


def is_complete(attachment: Attachment | None) -> bool:
    """The log has the whole cluster: every watched kind has been listed."""
    return attachment is not None and all(kind in attachment.positions for kind in attachment.kinds)


def placed_on(old: Pod | None, new: Pod) -> str:
    """The node that a scheduler has given the pod in this version; empty if none has."""
    if old is None or old.spec.node_name or old.metadata.uid != new.metadata.uid:
        return ""
    return new.spec.node_name


def undecided(before: Pod | None, new: Pod, current: Pod | None, ours: Container[str]) -> Pod:
    """The version without what its scheduler, one of those that are played here, has done to the pod.

    `before` is the version before in the log, `current` the pod as it is in the other history.
    """
    if before is None or before.metadata.uid != new.metadata.uid or new.spec.scheduler_name not in ours:
        return new
    meta, status = new.metadata, new.status
    if is_preempted(new):
        deletion = before.metadata
        meta = replace(
            meta,
            deletion_timestamp=deletion.deletion_timestamp,
            deletion_grace_period_seconds=deletion.deletion_grace_period_seconds,
        )
    if new.spec.node_name:
        # The API server copies where the node is into the pod's labels.
        here = {} if current is None else current.metadata.labels
        labels = {key: value for key, value in meta.labels.items() if key not in (ZONE, REGION)}
        meta = replace(meta, labels=labels | {key: here[key] for key in (ZONE, REGION) if key in here})
    kept = tuple(c for c in before.status.conditions if c.type in _CONDITIONS)
    others = tuple(c for c in status.conditions if c.type not in _CONDITIONS)
    status = replace(
        status, nominated_node_name=before.status.nominated_node_name, conditions=(*others, *kept)
    )
    return replace(new, metadata=meta, spec=replace(new.spec, node_name=before.spec.node_name), status=status)


def rejection_shown(old: Pod | None, new: Pod) -> str | None:
    """The message of a rejection that is new in this version; None if there is none."""
    condition = pod_condition(new, "PodScheduled")
    if new.spec.node_name or condition is None or condition.status != "False":
        return None
    if condition.reason != "Unschedulable":
        return None
    if old is not None and old.metadata.uid == new.metadata.uid:
        before = pod_condition(old, "PodScheduled")
        if before is not None and (before.status, before.reason, before.message) == (
            condition.status,
            condition.reason,
            condition.message,
        ):
            return None
    return condition.message
