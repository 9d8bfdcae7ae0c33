"""The shadow report for people: what another scheduler's decisions are by our rules."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.api.text import safe
from tidelog.replay.shadow.report import FINE, ReportColumn, ReportedDecision, ShadowReport

WORDS = {
    "same": "the node is among our best",
    "imageGap": "feasible; the sizes or counts of images that kube-scheduler had may explain it",
    "sampled": "feasible; kube-scheduler may have scored only a part of so many nodes",
    "gap": "feasible, and not among our best",
    "refused": "no state found in which we would let the pod there",
    "agreed": "so do we, for the same reasons",
    "differs": "so do we, for other reasons or numbers",
    "wouldPlace": "we would find a node",
    "ofGroup": "told of the group, judged with it",
    "unsupported": "needs what is not recorded, or no plugin looks after",
    "unordered": "shows while the log was catching up with the server",
    "foreign": "not decided by a profile that is known here",
}
DECISIONS_MAX = 50


def report_lines(report: ShadowReport) -> Iterator[str]:
    """All of it."""
    whose = f" of cluster {safe(report.cluster)}" if report.cluster else ""
    version = f" ({safe(report.server)})" if report.server else ""
    yield f"{report.records} records{whose}{version}"
    yield from _column("bindings", report.bindings)
    if report.bindings.upstream:
        yield f"  the same: {report.share:.2%} of those that were judged; {report.alone_best} of them alone best"
    if report.gaps:
        yield f"  points below the best: {_pairs(report.gaps)}; place among the feasible nodes: {_pairs(report.ranks)}"
    if report.refused_by:
        yield f"  refused by: {_pairs(report.refused_by)}"
    yield from _column("rejections", report.rejections)
    yield from _column("groups", report.groups)
    if report.waits:
        times = ", ".join(f"{name} {value:.3f}s" for name, value in report.waits.items())
        yield ""
        yield f"from creation to binding: {times}"
    if report.decisions:
        yield ""
        yield "decisions:"
        for decision in report.decisions[:DECISIONS_MAX]:
            yield from _decision(decision)
        if len(report.decisions) > DECISIONS_MAX:
            yield f"  … and {len(report.decisions) - DECISIONS_MAX} more (-o json has them all)"


def _column(title: str, column: ReportColumn) -> Iterator[str]:
    if not column.upstream:
        return
    yield ""
    yield f"{title:<14}  {'UPSTREAM':>8}  {'DEFAULT':>8}"
    for verdict, words in WORDS.items():
        if verdict in column.upstream or verdict in column.default:
            ours, other = column.upstream.get(verdict, 0), column.default.get(verdict, 0)
            yield f"  {verdict:<12}  {ours:>8}  {other:>8}  {words}"
    if column.other_view:
        yield f"  {column.other_view} of them in another state than the one just before the record"


def _pairs(counts: dict[str, int]) -> str:
    return ", ".join(f"{safe(name)}: {count}" for name, count in counts.items())


def _decision(one: ReportedDecision) -> Iterator[str]:
    gap = f" by {one.gap} points, place {one.rank} of {one.feasible}" if one.gap else ""
    node = f" on {safe(one.node)}" if one.node else ""
    mode = f" (default mode: {one.default})" if one.default and one.default != one.verdict else ""
    yield f"  {one.seq:>7}  {safe(one.key)}: {one.what}{node}: {one.verdict}{gap}{mode}"
    if one.best and one.verdict not in FINE:
        yield f"           our best: {', '.join(map(safe, one.best))}"
    if one.reason:
        yield f"           {safe(one.reason)}"
