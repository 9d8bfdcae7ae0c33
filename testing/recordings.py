"""Recordings of clusters as logs: what `tidelog run --mode record` would have written, had it watched.

    records = play(read_recording(path), registry)

A recording is a gzipped file of JSON lines. The first describes it; each other line is one event of a watch, or says that the initial list of a
kind was complete (`SYNCED`). It goes the reader's way: decoded, projected, compared with what is known, and appended only where something that is
stored is different.

    python -m tidelog.testing.recordings RECORDING.jsonl.gz LOG.db
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.api.projection import Projection
from tidelog.api.times import NANOS
from tidelog.api.wire import Unreadable, read_object
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.records import (
    GENESIS,
    KIND_OF_BODY,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    KindSynced,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    Record,
    Redaction,
    Watched,
    chain_digest,
    encode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.files import write_log

AUTHOR = "cluster"
_GATES = {"TopologyAwareWorkloadScheduling": "TopologyAwareWorkloadScheduling"}
"""kube-scheduler's feature gates that are gates here, too."""


class Recording(NamedTuple):
    """The file."""

    header: Mapping[str, Any]
    lines: Sequence[Line]


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event."""

    t: float
    """Seconds since the start."""
    type: str
    kind: str
    rv: str
    object: msgspec.Raw = msgspec.Raw(b"")


def read_recording(path: str | Path) -> Recording:
    """Read a file. Raises what gzip and msgspec raise."""
    with gzip.open(path) as file:
        header = msgspec.json.decode(file.readline())
        decode = msgspec.json.Decoder(Line).decode
        return Recording(header, [decode(line) for line in file])


def configuration_of(recording: Recording, registry: Registry) -> SchedulerConfiguration:
    """The configuration that the recorded scheduler ran with."""
    gates = {name: on for name, on in recording.header.get("gates", {}).items() if name in _GATES}
    section = {"compat": "upstream", "featureGates": gates}
    data = {**recording.header["kubeSchedulerConfig"], "tidelog": section}
    return resolve_configuration(data, registry).configuration


def play(
    recording: Recording, registry: Registry, *, configuration: SchedulerConfiguration | None = None
) -> list[Record]:
    """The records of a log, from the first. `configuration`: by which decisions are to be judged, if not the recorded one."""
    player = _Player(recording, Projection())
    player.begin(configuration_of(recording, registry) if configuration is None else configuration)
    for line in recording.lines:
        player.play(line)
    return player.records


class _Player:
    def __init__(self, recording: Recording, projection: Projection) -> None:
        self.header = recording.header
        self.kinds = list(dict.fromkeys(line.kind for line in recording.lines))
        self.start = round(self.header["startedAt"] * 1000) * (NANOS // 1000)
        self.projection = projection
        self.records: list[Record] = []
        self.listing: dict[str, dict[str, Object]] = {kind: {} for kind in self.kinds}
        """Kind → what its initial list has so far; no entry once that is complete."""
        self.known: dict[str, Object] = {}

    def begin(self, configuration: SchedulerConfiguration) -> None:
        """The session."""
        name = str(self.header["name"])
        self.append(
            self.start,
            ClusterAttached(
                cluster=name,
                mode="record",
                log_id=hashlib.sha256(name.encode()).hexdigest()[:16],
                server=str(self.header.get("serverVersion", "")),
                kinds={kind: Watched(path=kind) for kind in self.kinds},
                redaction=Redaction(level=self.projection.level, digest=self.projection.digest),
            ),
        )
        self.append(
            self.start,
            ConfigurationLoaded(configuration=msgspec.to_builtins(configuration), source=name),
        )

    def play(self, line: Line) -> None:
        """One event."""
        at = self.start + round(line.t * 1000) * (NANOS // 1000)
        listing = self.listing.get(line.kind)
        if line.type == "SYNCED":
            self._synced(line, at)
            return
        try:
            obj = self.projection.of(read_object(line.kind, line.object))
        except Unreadable as error:
            self.append(at, ObjectUnread(resource_version=line.rv, error=str(error)[:256]), line.kind)
            return
        key = object_key(obj)
        if listing is not None:
            if line.type == "DELETED":
                listing.pop(key, None)
            else:
                listing[key] = obj
        elif line.type == "DELETED":
            self.known.pop(key, None)
            self.append(at, ObjectDeleted(uid=obj.metadata.uid, resource_version=line.rv), key)
        else:
            self._put(at, key, obj, line.rv)

    def _synced(self, line: Line, at: int) -> None:
        found = self.listing.pop(line.kind)
        for key, obj in sorted(found.items(), key=lambda item: _version_order(item[1])):
            self._put(at, key, obj, obj.metadata.resource_version)
        body = KindSynced(kind=line.kind, resource_version=line.rv, objects=len(found), added=len(found))
        self.append(at, body)

    def _put(self, at: int, key: str, obj: Object, version: str) -> None:
        before = self.known.get(key)
        if before is not None and before.metadata.uid != obj.metadata.uid:
            self.append(at, ObjectDeleted(uid=before.metadata.uid, resource_version=version), key)
            before = None
        self.known[key] = obj
        if before is None or not _is_same(before, obj):
            self.append(at, ObjectPut(object=obj), key)

    def append(self, at: int, body: Body, key: str = "") -> None:
        """The next record."""
        records = self.records
        last = records[-1] if records else None
        at = at if last is None else max(at, last.at)
        seq, previous = len(records) + 1, GENESIS if last is None else last.digest
        kind, data = KIND_OF_BODY[type(body)], encode_body(body)
        digest = chain_digest(previous, seq, at, AUTHOR, kind, key, 0, data)
        records.append(Record(seq, at, AUTHOR, kind, key, 0, data, digest))


def _is_same(a: Object, b: Object) -> bool:
    version = a.metadata.resource_version
    replace = msgspec.structs.replace
    return replace(b, metadata=replace(b.metadata, resource_version=version)) == a


def _version_order(obj: Object) -> tuple[int, str]:
    version = obj.metadata.resource_version
    return len(version), version


def main(arguments: Iterable[str]) -> None:
    """A recording becomes a log."""
    source, target = arguments
    asyncio.run(write_log(target, play(read_recording(source), Registry())))


if __name__ == "__main__":
    main(sys.argv[1:])
