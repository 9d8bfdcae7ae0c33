"""The output of `replay verify`, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.api.text import as_yaml, safe
from tidelog.replay.verify import Difference, Report
from tidelog.replay.words import short


def as_data(report: Report) -> dict[str, Any]:
    """The three fields that programs are promised."""
    return {
        "outcomes": report.outcomes,
        "identical": report.identical,
        "first_difference": msgspec.to_builtins(report.first_difference),
    }


def report_lines(report: Report) -> Iterator[str]:
    """The count and, if there is one, the first difference in full."""
    yield f"{report.outcomes:,} outcomes, {report.identical:,} identical"
    if report.first_difference is not None:
        yield from _difference(report.first_difference)


def _difference(found: Difference) -> Iterator[str]:
    attempt = f", attempt {found.attempt}" if found.attempt else ""
    yield ""
    yield safe(f"first difference: record {found.seq}{attempt}, {short(found.key)}: {found.what}")
    if found.fields:
        yield safe(f"  fields that differ: {', '.join(found.fields)}")
    for plugin, what in found.plugins.items():
        yield safe(f"  {plugin} {what}")
    for title, body in (("recorded", found.recorded), ("computed", found.computed)):
        if body is not None:
            yield f"  {title}:"
            yield from (f"    {line}" for line in as_yaml(body).splitlines())
