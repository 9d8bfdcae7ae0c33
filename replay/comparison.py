"""Two logs of the same cluster side by side: which outcomes differ, what became of each pod, and the figures of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from tidelog.api.objects import Object, Pod
from tidelog.api.pod_status import is_preempted
from tidelog.api.times import NANOS
from tidelog.eventlog.attachment import attached
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import OUTCOME_KINDS, ObjectPut, Record, Scheduled, decode_body, decode_outcome
from tidelog.replay.figures import Figures, creation_times, figures_and_waits
from tidelog.replay.foreign import only_records
from tidelog.replay.what_if import Divergence, WhatIfOutcomes

_BESIDE = ("attempt", "observed", "at", "epoch", "score")
"""Where, when and by how many points, as opposed to what."""


class PodResult(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a pod in one log."""

    node: str
    """Empty: pending, or gone before it was placed."""
    attempts: int
    pending_seconds: float
    """Until it was placed; of one that was not, until the later of the two ends."""
    evicted: bool


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in both."""

    pod: str
    differs: bool
    as_good: bool
    """It differs by no more than the node, and the recorded one was as good when the what-if chose."""
    recorded: PodResult | None
    what_if: PodResult | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two logs."""

    outcomes: dict[str, int]
    """`recorded`, `what_if`, `identical`, `differing`, and `as_good`: those of the differing that differ by no more than an equally good node."""
    pods: dict[str, int]
    """`same`, `as_good` (on another node, equally good), `another_node`, `placed_only_…` and `evicted_only_…` in one of the two, `other`."""
    first_difference: Divergence | None
    figures: dict[str, Figures]
    """`recorded` and `what_if`."""
    by_pod: list[PodRow]

    @property
    def is_identical(self) -> bool:
        """Every outcome is the same."""
        return not self.outcomes["differing"]


def compare(
    recorded: Sequence[Record],
    made: WhatIfOutcomes,
    beginning: bytes = b"",
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """The recorded log beside the what-if. Costs a few passes over both.

    `beginning` is the encoded table of the objects before the first record, where that is not the log's first.
    """
    driver = made.driver
    # One moment for both, so that a pod which waits in both has waited for as long.
    end = max((records[-1].at for records in (recorded, driver.records) if records), default=0)
    rows = _rows(
        _results(recorded, beginning, end),
        _results(driver.records, beginning, end),
        {key for key, _ in made.as_good},
    )
    before, waits = figures_and_waits(recorded, None, beginning, progress)
    after, _ = figures_and_waits(driver.records, waits, beginning, progress)
    return Comparison(
        outcomes=_outcomes(recorded, driver.records, made.as_good),
        pods=_pods(rows),
        first_difference=made.divergence,
        figures={"recorded": before, "what_if": after},
        by_pod=rows,
    )


def _outcomes(
    recorded: Sequence[Record], made: Sequence[Record], as_good: Collection[tuple[str, int]]
) -> dict[str, int]:
    """An object's n-th outcome is compared with its n-th; what has no counterpart differs."""
    one, other = _by_key(recorded), _by_key(made)
    identical = sum(a == b for key in one for a, b in zip(one[key], other.get(key, ()), strict=False))
    counts = [sum(map(len, side.values())) for side in (one, other)]
    most = sum(max(len(one.get(key, ())), len(other.get(key, ()))) for key in {**one, **other})
    return {
        "recorded": counts[0],
        "what_if": counts[1],
        "identical": identical,
        "differing": most - identical,
        "as_good": len(as_good),
    }


def _by_key(records: Iterable[Record]) -> dict[str, list[tuple[str, Any]]]:
    found: dict[str, list[tuple[str, Any]]] = {}
    for record in records:
        if record.kind in OUTCOME_KINDS:
            found.setdefault(record.key, []).append((record.kind, _content(record)))
    return found


def _content(record: Record) -> dict[str, Any]:
    """The decision, for comparison. The numbers of records differ as soon as one outcome does, so they do not count."""
    body = msgspec.msgpack.decode(record.body)
    return {k: v if k not in ("sameAs", "conflict") else bool(v) for k, v in body.items() if k not in _BESIDE}


def _results(records: Sequence[Record], beginning: bytes, end: int) -> dict[str, PodResult]:
    """By pod key, at a moment behind the last record. A pod that was created again counts from then on."""
    table = ObjectTable.decode(beginning) if beginning else ObjectTable()
    created = {key: at for key, at in creation_times(table).items() if key.startswith("Pod/")}
    found = {key: _at_first(table.get(key)) for key in created}
    attachment = table.attachment
    for record in records:
        key = record.key
        if record.kind == "ClusterAttached":
            attachment = attached(attachment, key, decode_body(record))
        if record.kind == "ObjectPut" and key.startswith("Pod/"):
            if key not in created:
                created[key] = record.at
                found[key] = PodResult(node="", attempts=0, pending_seconds=0.0, evicted=False)
            if only_records(attachment):
                found[key] = _shown(found[key], record, created[key])
        elif record.kind == "ObjectDeleted":
            created.pop(key, None)
        elif record.kind in OUTCOME_KINDS and key in found:
            found[key] = _after(found[key], record, created.get(key, record.at))
    return {
        key: result
        if result.node or key not in created
        else msgspec.structs.replace(result, pending_seconds=(end - created[key]) / NANOS)
        for key, result in found.items()
    }


def _at_first(pod: Object | None) -> PodResult:
    assert isinstance(pod, Pod)
    return PodResult(node=pod.spec.node_name, attempts=0, pending_seconds=0.0, evicted=is_preempted(pod))


def _shown(result: PodResult, record: Record, created: int) -> PodResult:
    """Return the decisions of another scheduler that a version of the pod shows."""
    body = decode_body(record)
    assert isinstance(body, ObjectPut)
    pod = body.object
    if not isinstance(pod, Pod):
        return result
    replace = msgspec.structs.replace
    if pod.spec.node_name and not result.node:
        waited = round((record.at - created) / NANOS, 3)
        result = replace(result, node=pod.spec.node_name, pending_seconds=waited)
    return replace(result, evicted=True) if is_preempted(pod) and not result.evicted else result


def _after(result: PodResult, record: Record, created: int) -> PodResult:
    replace = msgspec.structs.replace
    if record.kind == "Scheduled":
        body = decode_outcome(record)
        assert isinstance(body, Scheduled)
        waited = round((record.at - created) / NANOS, 3)
        return replace(result, node=body.node, attempts=result.attempts + 1, pending_seconds=waited)
    if record.kind == "Evicted":
        return replace(result, evicted=True)
    if record.kind in ("Unschedulable", "Waiting", "Reserved", "AttemptAborted", "AttemptError"):
        return replace(result, attempts=result.attempts + 1)
    return result


def _rows(
    recorded: dict[str, PodResult], made: dict[str, PodResult], as_good: Collection[str]
) -> list[PodRow]:
    return [_row(key, recorded.get(key), made.get(key), key in as_good) for key in {**recorded, **made}]


def _row(key: str, one: PodResult | None, other: PodResult | None, is_as_good: bool) -> PodRow:
    differs = _place(one) != _place(other)
    if one is not None and other is not None and one.attempts == other.attempts and one.node and other.node:
        # The what-if's clock lets no time pass while it decides: that is no gain.
        other = msgspec.structs.replace(other, pending_seconds=one.pending_seconds)
    both = (
        one is not None
        and other is not None
        and bool(one.node and other.node)
        and one.evicted == other.evicted
    )
    return PodRow(
        pod=key.partition("/")[2],
        differs=differs,
        as_good=differs and both and is_as_good,
        recorded=one,
        what_if=other,
    )


def _place(result: PodResult | None) -> tuple[str, bool] | None:
    return None if result is None else (result.node, result.evicted)


def _pods(rows: Iterable[PodRow]) -> dict[str, int]:
    counts = {
        "same": 0,
        "as_good": 0,
        "another_node": 0,
        "placed_only_recorded": 0,
        "placed_only_what_if": 0,
        "evicted_only_recorded": 0,
        "evicted_only_what_if": 0,
        "other": 0,
    }
    for row in rows:
        one, other = (r.node if r is not None else "" for r in (row.recorded, row.what_if))
        lost, lost_too = (r is not None and r.evicted for r in (row.recorded, row.what_if))
        if not row.differs:
            counts["same"] += 1
        elif row.as_good:
            counts["as_good"] += 1
        elif one and other and lost != lost_too:
            counts["evicted_only_recorded" if lost else "evicted_only_what_if"] += 1
        elif one and other and one != other:
            counts["another_node"] += 1
        elif one and not other:
            counts["placed_only_recorded"] += 1
        elif other and not one:
            counts["placed_only_what_if"] += 1
        else:
            counts["other"] += 1
    return counts
