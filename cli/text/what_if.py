"""The output of `replay what-if`, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.api.text import as_yaml, safe, table, with_times
from tidelog.replay.comparison import Comparison, PodResult, PodRow
from tidelog.replay.figures import Figures, WaitFigures
from tidelog.replay.words import short

_WORDS = {
    "same": "the same fate",
    "as_good": "placed on another node that is equally good",
    "another_node": "placed on another node",
    "placed_only_recorded": "placed as recorded, not in the what-if",
    "placed_only_what_if": "placed in the what-if only",
    "evicted_only_recorded": "evicted as recorded, not in the what-if",
    "evicted_only_what_if": "evicted in the what-if only",
    "other": "different otherwise",
}


def as_data(found: Comparison, *, pods: bool) -> dict[str, Any]:
    """Everything; the table of pods only on request."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    rows = plain.pop("by_pod")
    if pods:
        plain["by_pod"] = [row for row in rows if row["differs"]]
    return plain


def comparison_lines(found: Comparison, *, pods: bool) -> Iterator[str]:
    """How much differs, where it began, the figures side by side."""
    outcomes = found.outcomes
    yield (
        f"{outcomes['recorded']:,} outcomes recorded, {outcomes['what_if']:,} in the what-if: "
        f"{outcomes['identical']:,} identical, {outcomes['differing']:,} differ"
        + (f", {outcomes['as_good']:,} of them by an equally good node only" if outcomes["as_good"] else "")
    )
    total = sum(found.pods.values())
    told = ", ".join(f"{count:,} {_WORDS[name]}" for name, count in found.pods.items() if count)
    yield f"{total:,} pods: {told or 'none'}"
    if found.first_difference is not None:
        yield from _first(found)
    yield ""
    yield table(
        ["FIGURE", "RECORDED", "WHAT-IF", "DIFFERENCE"],
        _figures(found.figures["recorded"], found.figures["what_if"]),
    )
    if found.first_difference is not None:
        yield "(what took as many attempts as recorded is counted as pending for as long: the what-if decides without delay, which is no gain)"
    if pods:
        yield ""
        rows = [_pod(row) for row in found.by_pod if row.differs]
        yield (
            table(["POD", "RECORDED", "AFTER", "WHAT-IF", "AFTER", "NODE"], rows)
            if rows
            else "no pod's fate differs"
        )


def _first(found: Comparison) -> Iterator[str]:
    first = found.first_difference
    assert first is not None
    attempt = f", attempt {first.number} of" if first.number else ","
    about = f"{attempt} {short(first.key)}" if first.key else ""
    yield safe(f"the what-if leaves the recorded history before record {first.seq}{about}: {first.reason}")
    for title, body in (("recorded", first.recorded), ("what-if", first.computed)):
        if body is not None:
            told = {name: value for name, value in body.items() if name not in _PLACE}
            yield f"  {title}:"
            yield from (f"    {line}" for line in as_yaml(with_times(told)).splitlines())


def _figures(recorded: Figures, what_if: Figures) -> Iterator[tuple[object, ...]]:
    for name in Figures.__struct_fields__:
        one, other = getattr(recorded, name), getattr(what_if, name)
        if isinstance(one, WaitFigures):
            words = name.removesuffix("_seconds").replace("_", " ")
            for part in ("p50", "p90", "p99"):
                yield _row(f"{words}, {part}", getattr(one, part), getattr(other, part), "s")
        elif name in _PARTS:
            yield _row(name.replace("_", " "), round(one * 100, 2), round(other * 100, 2), "%")
        else:
            yield _row(name.replace("_", " "), one, other, "")


_PLACE = ("attempt", "observed", "epoch")
"""Which decision of the log it was. People count those of a pod."""
_PARTS = ("cpu_imbalance", "memory_imbalance", "fragmentation")
"""Figures that are parts of one."""


def _row(words: str, one: float, other: float, unit: str) -> tuple[object, ...]:
    """A difference of percentages is in percentage points."""
    change = round(other - one, 4)
    named = " points" if unit == "%" else unit
    return words, f"{one:g}{unit}", f"{other:g}{unit}", f"{change:+g}{named}" if change else "-"


def _pod(row: PodRow) -> tuple[object, ...]:
    return (
        row.pod,
        *_result(row.recorded),
        *_result(row.what_if),
        "equally good" if row.as_good else "different",
    )


def _result(result: PodResult | None) -> tuple[str, str]:
    if result is None:
        return "never there", ""
    where = result.node or "pending"
    return where + (", evicted" if result.evicted else ""), f"{result.pending_seconds:g}s"
