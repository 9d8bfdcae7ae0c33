"""The cluster that a log is attached to, as the log knows it: whose it is, and how far each watch has come.

A pure fold over the records, kept by the object table and in its snapshots. A log without `ClusterAttached` has none.

A kind's *position* is the resourceVersion from which a watch of it can go on: that of its last `KindSynced`, and of whatever came
since. Between `KindGap` and `KindSynced`, and before the first, a kind has no position: it has to be listed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tidelog.eventlog.records import (
    Body,
    ClusterAttached,
    Cursor,
    KindGap,
    KindSynced,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    Redaction,
)


def is_newer(version: str, than: str) -> bool:
    """Whether a resourceVersion of one kind is later than another one: they compare as integers of any length."""
    return (len(version), version) > (len(than), than)


class Attachment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The latest session, and the positions."""

    cluster: str
    """The uid of the namespace kube-system."""
    log_id: str
    mode: str
    server: str = ""
    redaction: Redaction
    kinds: tuple[str, ...] = ()
    """Those that are watched."""
    positions: dict[str, str] = {}
    """Kind → resourceVersion, of kinds that agree with the server up to there."""
    unread: dict[str, str] = {}
    """Key of an object whose newest version could not be read → that version."""


def attached(known: Attachment | None, key: str, body: Body) -> Attachment | None:
    """Take the next record into account. Costs nothing in a log that is not attached."""
    match body:
        case ClusterAttached():
            positions = known.positions if known is not None and known.cluster == body.cluster else {}
            return Attachment(
                cluster=body.cluster,
                log_id=body.log_id,
                mode=body.mode,
                server=body.server,
                kinds=tuple(body.kinds),
                redaction=body.redaction,
                positions=positions,
                unread=known.unread if known is not None and positions else {},
            )
        case _ if known is None:
            return None
        case ObjectPut():
            return _moved(_read(known, key), key, body.object.metadata.resource_version)
        case ObjectDeleted():
            return _moved(_read(known, key), key, body.resource_version)
        case ObjectUnread():
            unread = {**known.unread, key: body.resource_version}
            return _moved(replace(known, unread=unread), key, body.resource_version)
        case KindSynced():
            return replace(known, positions={**known.positions, body.kind: body.resource_version})
        case KindGap():
            return replace(known, positions=_without(known.positions, body.kind))
        case Cursor():
            found = known.positions
            moved = {
                kind: v for kind, v in body.positions.items() if kind in found and is_newer(v, found[kind])
            }
            return replace(known, positions={**found, **moved})
        case _:
            return known


def _moved(known: Attachment, key: str, version: str) -> Attachment:
    kind = key.partition("/")[0]
    position = known.positions.get(kind)
    if position is None or not is_newer(version, position):
        return known
    return replace(known, positions={**known.positions, kind: version})


def _read(known: Attachment, key: str) -> Attachment:
    return replace(known, unread=_without(known.unread, key)) if key in known.unread else known


def _without(entries: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in entries.items() if name != key}
