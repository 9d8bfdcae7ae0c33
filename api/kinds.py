"""Finding a kind by whatever name people give it: `Pod`, `pods`, `po`, `pods.v1.`, `poddisruptionbudgets.policy`."""

from __future__ import annotations

import difflib

from tidelog.api.errors import UsageError
from tidelog.api.objects import KINDS, Kind

ELSEWHERE: dict[str, str] = {
    "CompositePodGroup": "composite pod groups are not supported; use PodGroup or Workload",
    "Binding": "a binding is the scheduler's own decision; to tell of one made elsewhere, apply the pod with its nodeName",
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "Job", "CronJob"),
        "controllers are not run here; apply the pods that they make",
    ),
    "KubeSchedulerConfiguration": "it is the configuration; pass it with --config",
}
"""Kinds that people try, with what to do instead."""


def _names(kind: Kind) -> tuple[str, ...]:
    return kind.name.lower(), kind.plural, *kind.short_names


_BY_NAME: dict[str, Kind] = {name: kind for kind in KINDS for name in _names(kind)}
RESOURCES: tuple[str, ...] = tuple(kind.plural for kind in KINDS)


def find_kind(text: str) -> Kind | None:
    """The kind of that name, in any case; a group and a version may follow after dots."""
    head, dot, rest = text.lower().partition(".")
    kind = _BY_NAME.get(head)
    if kind is None or not dot:
        return kind
    version, _, group = rest.partition(".")
    if version in (kind.version, *kind.other_versions):
        return kind if group == kind.group or (not group and "." not in rest) else None
    return kind if rest == kind.group else None


def kind_named(text: str) -> Kind:
    """As `find_kind`; raises UsageError with the closest name and all names."""
    kind = find_kind(text)
    if kind is not None:
        return kind
    close = suggestion(text.lower(), list(_BY_NAME))
    raise UsageError(
        f'there is no kind "{text}"'
        + (f', did you mean "{close}"?' if close else "")
        + f" (known: {', '.join(RESOURCES)})"
    )


def suggestion(text: str, known: list[str]) -> str:
    """The closest of the known names, or nothing if none is close."""
    # Longer names are not typing errors, and comparing them costs the square of their length.
    found = difflib.get_close_matches(text, known, n=1, cutoff=0.6) if len(text) <= 64 else []
    return found[0] if found else ""
