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
from tidelog.api.wire import Unreadable, read_meta, read_object
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.records import (
    GENESIS,
    KIND_OF_BODY,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    Draft,
    KindSynced,
    Record,
    Redaction,
    Watched,
    chain_digest,
    encode_body,
)
from tidelog.kube.cluster.view import AUTHOR, KindView, Unread
from tidelog.plugins.registry import Registry
from tidelog.replay.files import write_log

_GATES = {"TopologyAwareWorkloadScheduling": "TopologyAwareWorkloadScheduling"}
"""kube-scheduler's feature gates that are gates here, too."""


class Recording(NamedTuple):
    """The file."""

    header: Mapping[str, Any]
    lines: Sequence[RecordingLine]


class RecordingLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        decode = msgspec.json.Decoder(RecordingLine).decode
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
        self.views = {kind: KindView() for kind in self.kinds}
        self.listing: dict[str, dict[str, Object | Unread]] = {kind: {} for kind in self.kinds}
        """Kind → what its initial list has so far; no entry once that is complete."""

    def begin(self, configuration: SchedulerConfiguration) -> None:
        """The session."""
        name = str(self.header["name"])
        self.append(
            self.start,
            ClusterAttached(
                cluster=name,
                mode="record",
                log_id=hashlib.sha256(name.encode()).hexdigest()[:12],
                server=str(self.header.get("serverVersion", "")),
                kinds={kind: Watched(path=kind) for kind in self.kinds},
                redaction=Redaction(level=self.projection.level, digest=self.projection.digest),
            ),
        )
        self.append(
            self.start,
            ConfigurationLoaded(configuration=msgspec.to_builtins(configuration), source=name),
        )

    def play(self, line: RecordingLine) -> None:
        """One event."""
        at = self.start + round(line.t * 1000) * (NANOS // 1000)
        view, listing = self.views[line.kind], self.listing.get(line.kind)
        drafts: list[Draft] = []
        if line.type == "SYNCED":
            drafts = self._synced(line, view)
        elif listing is not None:
            found = self._object(line)
            key = found.key if isinstance(found, Unread) else object_key(found)
            listing[key] = found
            if line.type == "DELETED":
                del listing[key]
        elif line.type == "DELETED":
            meta = read_meta(line.object)
            drafts = view.leave(self._key(line), meta.uid, line.rv)
        else:
            found = self._object(line)
            drafts = view.unread(found) if isinstance(found, Unread) else view.put(found)
        for draft in drafts:
            self.append(at, draft.body, draft.key)

    def _synced(self, line: RecordingLine, view: KindView) -> list[Draft]:
        listed = self.listing.pop(line.kind)
        found = view.diff(listed, line.rv)
        body = KindSynced(kind=line.kind, resource_version=line.rv, objects=len(listed), added=found.added)
        return [*found.drafts, Draft(body=body, author=AUTHOR)]

    def _object(self, line: RecordingLine) -> Object | Unread:
        try:
            return self.projection.of(read_object(line.kind, line.object))
        except Unreadable as error:
            return Unread(self._key(line), read_meta(line.object).uid, line.rv, str(error)[:256])

    def _key(self, line: RecordingLine) -> str:
        meta = read_meta(line.object)
        namespace, name = self.projection.place(meta.namespace, meta.name)
        return f"{line.kind}/{namespace}/{name}"

    def append(self, at: int, body: Body, key: str = "") -> None:
        """The next record."""
        records = self.records
        last = records[-1] if records else None
        at = at if last is None else max(at, last.at)
        seq, previous = len(records) + 1, GENESIS if last is None else last.digest
        kind, data = KIND_OF_BODY[type(body)], encode_body(body)
        digest = chain_digest(previous, seq, at, AUTHOR, kind, key, 0, data)
        records.append(Record(seq, at, AUTHOR, kind, key, 0, data, digest))


def main(arguments: Iterable[str]) -> None:
    """A recording becomes a log."""
    source, target = arguments
    asyncio.run(write_log(target, play(read_recording(source), Registry())))


if __name__ == "__main__":
    main(sys.argv[1:])
