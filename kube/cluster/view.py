"""View of one kind in the log, and the records to append when the server tells of it: pure, one for each kind.

    a watch's line ──► put, leave, unread ──► drafts; none where nothing that is stored has changed
    a whole list   ──► diff               ──► drafts: deletions, replaced incarnations, the rest by resourceVersion

An object is told apart by its key and uid. A version that is not newer than the known one of that uid is dropped: after a reconnection the
server may repeat itself. Versions of one kind are compared with one another only, as integers of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.eventlog.attachment import is_newer
from tidelog.eventlog.records import Draft, ObjectDeleted, ObjectPut, ObjectUnread

AUTHOR = "cluster"


class Unread(msgspec.Struct, frozen=True, gc=False):
    """A version that could not be read."""

    key: str
    uid: str
    version: str
    error: str


class Known(NamedTuple):
    """The last version of an object that the server told of."""

    uid: str
    version: str
    object: Object | None
    """As the log has it; None if it could never be read."""
    unread: bool = False


class Difference(NamedTuple):
    """The result of a relist."""

    drafts: list[Draft]
    added: int
    changed: int
    removed: int


class KindView:
    """The server's objects of one kind, as far as the log has them or is about to."""

    def __init__(self, known: Iterable[Object] = (), unread: Mapping[str, str] | None = None) -> None:
        """`known`: as the server last told of them, without what we want of them. `unread`: as `Attachment.unread`."""
        unread = unread or {}
        self._known: dict[str, Known] = {}
        for obj in known:
            key, meta = object_key(obj), obj.metadata
            version = unread.get(key, meta.resource_version)
            self._known[key] = Known(meta.uid, version, obj, key in unread)
        self.suppressed = 0
        """Versions in which nothing that is stored was different."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str, uid: str) -> Object | None:
        """The object of this uid as the server last told of it."""
        found = self._known.get(key)
        return None if found is None or found.uid != uid else found.object

    def put(self, obj: Object) -> list[Draft]:
        """The server has this version."""
        key, meta = object_key(obj), obj.metadata
        known = self._known.get(key)
        if known is None or known.uid != meta.uid:
            drafts = [] if known is None else [_deleted(key, known.uid, meta.resource_version)]
            self._known[key] = Known(meta.uid, meta.resource_version, obj)
            return [*drafts, _put(key, obj)]
        if not is_newer(meta.resource_version, known.version):
            return []
        if known.object is not None and not known.unread and _is_same(known.object, obj):
            self._known[key] = Known(known.uid, meta.resource_version, known.object)
            self.suppressed += 1
            return []
        self._known[key] = Known(meta.uid, meta.resource_version, obj)
        return [_put(key, obj)]

    def leave(self, key: str, uid: str, version: str) -> list[Draft]:
        """The object is gone, or matches the selector no more."""
        known = self._known.get(key)
        if known is None or (uid and known.uid != uid) or not is_newer(version, known.version):
            return []
        del self._known[key]
        return [_deleted(key, known.uid, version)]

    def unread(self, found: Unread) -> list[Draft]:
        """The server has a version that cannot be read; the last one that could counts on."""
        key = found.key
        known = self._known.get(key)
        drafts: list[Draft] = []
        if known is not None and known.uid != found.uid:
            drafts.append(_deleted(key, known.uid, found.version))
            known = None
        if known is not None and not is_newer(found.version, known.version):
            return []
        self._known[key] = Known(found.uid, found.version, None if known is None else known.object, True)
        body = ObjectUnread(resource_version=found.version, uid=found.uid, error=found.error)
        return [*drafts, Draft(body=body, author=AUTHOR, key=key)]

    def diff(self, listed: Mapping[str, Object | Unread], version: str) -> Difference:
        """The server has exactly these objects, as of `version`. Newer or not does not matter: a server may have been set back."""
        gone = [key for key in self._known if key not in listed]
        drafts = [_deleted(key, self._known.pop(key).uid, version) for key in gone]
        replaced: list[Object | Unread] = []
        rest: list[Object | Unread] = []
        for key, found in listed.items():
            uid = found.uid if isinstance(found, Unread) else found.metadata.uid
            known = self._known.get(key)
            (replaced if known is not None and known.uid != uid else rest).append(found)
        added = changed = 0
        for found in [*sorted(replaced, key=_version_order), *sorted(rest, key=_version_order)]:
            key = found.key if isinstance(found, Unread) else object_key(found)
            before = self._known.get(key)
            was = None if before is None else before.uid
            if (
                before is not None
                and before.unread
                and isinstance(found, Unread)
                and before.version == found.version
            ):
                continue
            if before is not None:
                self._known[key] = before._replace(version="")  # Whatever it says now is taken.
            new = self.unread(found) if isinstance(found, Unread) else self.put(found)
            drafts += new
            if was is None:
                added += 1
            elif new:
                changed += 1
        return Difference(drafts, added, changed, len(gone))


def _is_same(a: Object, b: Object) -> bool:
    """Whether nothing that is stored differs but the resourceVersion."""
    version = a.metadata.resource_version
    return replace(b, metadata=replace(b.metadata, resource_version=version)) == a


def _version_order(found: Object | Unread) -> tuple[int, str]:
    version = found.version if isinstance(found, Unread) else found.metadata.resource_version
    return len(version), version


def _put(key: str, obj: Object) -> Draft:
    return Draft(body=ObjectPut(object=obj), author=AUTHOR, key=key)


def _deleted(key: str, uid: str, version: str) -> Draft:
    return Draft(body=ObjectDeleted(uid=uid, resource_version=version), author=AUTHOR, key=key)
