"""Sums up all verdicts on a log: how many of each, in both modes, and those that somebody should look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import quantiles
from typing import Any

import msgspec

from tidelog.api.times import NANOS
from tidelog.eventlog.records import ShadowVerdict
from tidelog.replay.shadow.follower import JudgedDecision

FINE = frozenset(("same", "agreed", "ofGroup", "foreign", "unsupported", "unordered"))
"""Verdicts that ask for nobody's attention."""
_UNJUDGED = frozenset(("foreign", "unsupported", "unordered", "ofGroup"))
ORDER = (
    "same", "imageGap", "sampled", "gap", "refused", "agreed", "differs", "wouldPlace", "ofGroup", "unsupported", "unordered", "foreign",
)  # fmt: skip


class ReportColumn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The decisions of one kind."""

    upstream: dict[str, int]
    """Verdict → how many, in upstream mode."""
    default: dict[str, int]
    """In the default mode, of the same decisions in the same states."""
    other_view: int
    """How many are explained by another state than the one just before the record."""


class ReportedDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision."""

    seq: int
    what: str
    key: str
    verdict: str
    node: str = ""
    gap: int = 0
    rank: int = 0
    feasible: int = 0
    best: tuple[str, ...] = ()
    reason: str = ""
    view: str = ""
    default: str = ""
    """The verdict in the default mode."""


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of it."""

    records: int
    cluster: str
    server: str
    bindings: ReportColumn
    rejections: ReportColumn
    groups: ReportColumn
    alone_best: int
    """Bindings whose node is the only best one."""
    share: float
    """Of the bindings that were judged, those that are the same; 1 if there are none."""
    gaps: dict[str, int]
    """Points below the best → how many bindings; also of those that images or sampling may explain."""
    ranks: dict[str, int]
    """Place among the feasible nodes → how many of the same."""
    refused_by: dict[str, int]
    """Plugin → how many bindings it refuses."""
    waits: dict[str, float]
    """Seconds from a pod's creation to its binding: p50, p90, p99, max."""
    decisions: tuple[ReportedDecision, ...]
    """Those that ask for attention, or all."""


class Summary:
    """Counts verdicts as they come."""

    def __init__(self, *, everything: bool = False) -> None:
        """`everything`: keep each decision, and not only those that ask for attention."""
        self._everything = everything
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._other_view: Counter[str] = Counter()
        self._alone = 0
        self._gaps: Counter[int] = Counter()
        self._ranks: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._waits: list[float] = []
        self._decisions: list[ReportedDecision] = []

    def add(self, judged: JudgedDecision) -> None:
        """One verdict more."""
        upstream = judged.upstream
        self._count(judged.what, "upstream", judged.verdict)
        if judged.default.verdict:
            self._count(judged.what, "default", judged.default.verdict)
        if upstream.view is not None and upstream.view.text and judged.verdict in FINE:
            self._other_view[judged.what] += 1
        if judged.what == "binding":
            self._binding(judged)
        if self._everything or judged.verdict not in FINE:
            self._decisions.append(_decision(judged))

    def _binding(self, judged: JudgedDecision) -> None:
        upstream = judged.upstream
        self._alone += judged.verdict == "same" and len(upstream.best) == 1
        if upstream.gap or judged.verdict in ("gap", "imageGap", "sampled"):
            self._gaps[upstream.gap] += 1
            self._ranks[upstream.rank] += 1
        if judged.verdict == "refused":
            self._refused[upstream.reason.partition(":")[0]] += 1
        if judged.waited >= 0:
            self._waits.append(judged.waited / NANOS)

    def _count(self, what: str, mode: str, verdict: str) -> None:
        self._counts.setdefault((what, mode), Counter())[verdict] += 1

    def report(self, *, records: int, cluster: str = "", server: str = "") -> ShadowReport:
        """The verdict."""
        bindings = self._column("binding")
        judged = sum(n for verdict, n in bindings.upstream.items() if verdict not in _UNJUDGED)
        return ShadowReport(
            records=records,
            cluster=cluster,
            server=server,
            bindings=bindings,
            rejections=self._column("rejection"),
            groups=self._column("group"),
            alone_best=self._alone,
            share=round(bindings.upstream.get("same", 0) / judged, 4) if judged else 1.0,
            gaps=_texts(self._gaps),
            ranks=_texts(self._ranks),
            refused_by=dict(sorted(self._refused.items())),
            waits=_waits(self._waits),
            decisions=tuple(self._decisions),
        )

    def _column(self, what: str) -> ReportColumn:
        return ReportColumn(
            upstream=_ordered(self._counts.get((what, "upstream"), {})),
            default=_ordered(self._counts.get((what, "default"), {})),
            other_view=self._other_view[what],
        )


def as_record(judged: JudgedDecision) -> ShadowVerdict:
    """The verdict as the log keeps it; the record's key is the decision's, its cause the record in which that shows."""
    return ShadowVerdict(uid=judged.uid, **_told(judged))


def _decision(judged: JudgedDecision) -> ReportedDecision:
    more = _told(judged)
    return ReportedDecision(
        seq=judged.seq, what=judged.what, key=judged.key, default=judged.default.verdict, **more
    )


def _told(judged: JudgedDecision) -> dict[str, Any]:
    found = judged.upstream
    told = {name: getattr(found, name) for name in ("gap", "rank", "feasible", "best", "reason")}
    view = "" if found.view is None else found.view.text
    return {"verdict": judged.verdict, "node": judged.node, "view": view, **told}


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {verdict: counts[verdict] for verdict in ORDER if verdict in counts}


def _texts(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(value): counts[value] for value in sorted(counts)}


def _waits(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=100, method="inclusive")
    found = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(seconds)}
    return {name: round(value, 3) for name, value in found.items()}
