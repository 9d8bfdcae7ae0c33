"""The output of `tidelog describe pod`: the pod in kubectl's layout, and events derived from the log's outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidelog.api.kinds.columns import selector_words
from tidelog.api.objects import Affinity, Object, Pod, Toleration, TopologySpreadConstraint
from tidelog.api.resources import Requests, pod_requests
from tidelog.api.text import age, safe, table
from tidelog.cli.text.describe_claims import device_words, volume_words
from tidelog.cli.text.why import advice_lines, wait_lines
from tidelog.kube.events import scheduled
from tidelog.replay.advice import amount
from tidelog.replay.story import StoryEntry
from tidelog.replay.why import Why

INDENT = 22


class PodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as Kubernetes shows it; `count` repetitions are one."""

    type: str
    reason: str
    message: str
    seq: int
    at: int
    last_at: int
    count: int
    source: str


_REASONS = {
    "scheduled": ("Normal", "Scheduled"),
    "attempt": ("Warning", "FailedScheduling"),
    "error": ("Warning", "FailedScheduling"),
    "aborted": ("Warning", "FailedScheduling"),
    "waiting": ("Normal", "WaitingOnPermit"),
    "reserved": ("Normal", "WaitingForAnswers"),
    "nominated": ("Normal", "Nominated"),
    "evicted": ("Normal", "Preempted"),
    "gated": ("Warning", "SchedulingGated"),
}
"""Entry of the story → type and reason of kubectl's event. Entries that are missing here have none."""


def events_of(found: Why) -> list[PodEvent]:
    """The pod's events, oldest first."""
    return [_event(entry, found) for entry in found.story.entries if entry.what in _REASONS]


def _event(entry: StoryEntry, found: Why) -> PodEvent:
    type_, reason = _REASONS[entry.what]
    message = entry.text.removeprefix("rejected: ")
    if entry.what == "scheduled":
        namespace, _, name = found.pod.partition("/")
        message = scheduled(namespace, name, entry.node).note
    return PodEvent(
        type=type_,
        reason=reason,
        message=message,
        seq=entry.seq,
        at=entry.at,
        last_at=entry.last_at or entry.at,
        count=entry.count,
        source="scheduler",
    )


def describe_lines(
    pod: Pod, found: Why, events: Iterable[PodEvent], objects: Mapping[str, Object]
) -> Iterator[str]:
    """The pod, section by section; its claims are among the objects, by key."""
    meta, spec = pod.metadata, pod.spec
    yield named("Name", meta.name)
    yield named("Namespace", meta.namespace)
    yield named("Priority", spec.priority or 0)
    if spec.priority_class_name:
        yield named("Priority Class Name", spec.priority_class_name)
    yield named("Scheduler", spec.scheduler_name)
    yield named("Node", spec.node_name or "<none>")
    if pod.status.nominated_node_name:
        yield named("Nominated Node", pod.status.nominated_node_name)
    yield from pairs("Labels", meta.labels)
    yield from pairs("Annotations", meta.annotations)
    yield named("Status", _status(pod))
    yield from _wishes(pod)
    yield from listed("Volumes", volume_words(pod, objects))
    yield from listed("Resource Claims", device_words(pod, objects))
    yield "Conditions:"
    rows = [(c.type, c.status, c.reason, c.message) for c in pod.status.conditions]
    yield from indented(table(["Type", "Status", "Reason", "Message"], rows) if rows else "<none>")
    if found.waits is not None:
        yield "Waits:"
        yield from (f"  {safe(line)}" for line in wait_lines(found.waits, found.at))
    if found.note:
        yield named("Note", found.note)
    yield from (line[:1].upper() + line[1:] for line in advice_lines(found))
    yield "Events:"
    lines = [(e.type, e.reason, _ages(e, found.at), e.source, e.message) for e in events]
    yield from indented(table(["Type", "Reason", "Age", "From", "Message"], lines) if lines else "<none>")


def named(name: str, value: object) -> str:
    """A line of a name and its value."""
    return f"{name + ':':<{INDENT}}{safe(value)}"


def pairs(name: str, found: Mapping[str, str]) -> Iterator[str]:
    """Labels and their like, one a line."""
    texts = [f"{key}={value}" for key, value in found.items()] or ["<none>"]
    yield from listed(name, texts)


def listed(name: str, texts: Iterable[str]) -> Iterator[str]:
    """Several values of one name, one below the other."""
    for number, text in enumerate(texts):
        yield named(name, text) if not number else f"{'':<{INDENT}}{safe(text)}"


def indented(text: str) -> Iterator[str]:
    """The lines of a section."""
    yield from (f"  {line}" for line in text.splitlines())


def _status(pod: Pod) -> str:
    if not pod.metadata.deletion_timestamp:
        return pod.status.phase or "Pending"
    return f"Terminating (until {pod.metadata.deletion_timestamp})"


def _ages(event: PodEvent, now: int) -> str:
    last = age(now - event.last_at)
    return last if event.count == 1 else f"{last} (x{event.count} over {age(now - event.at)})"


# --- what it asks for -------------------------------------------------------------------------------------------------


def _wishes(pod: Pod) -> Iterator[str]:
    spec = pod.spec
    try:
        requests = pod_requests(pod)
    except ValueError:
        requests = {}
    yield named("Requests", amount_words(requests) or "<none>")
    yield from pairs("Node-Selectors", spec.node_selector)
    yield from listed("Tolerations", [_toleration(t) for t in spec.tolerations] or ["<none>"])
    if spec.topology_spread_constraints:
        yield from listed("Topology Spread", [_spread(c) for c in spec.topology_spread_constraints])
    if spec.affinity is not None:
        yield from listed("Affinity", _affinity(spec.affinity))
    if spec.scheduling_gates:
        yield named("Scheduling Gates", ", ".join(gate.name for gate in spec.scheduling_gates))
    if spec.scheduling_group is not None:
        yield named("Pod Group", spec.scheduling_group.pod_group_name)


def amount_words(requests: Requests, of: Requests | None = None) -> str:
    """`cpu 500m (12%), memory 1Gi (3%)`; the parts only where a whole is given."""
    found = []
    for name, value in requests.items():
        whole = (of or {}).get(name, 0)
        found.append(f"{name} {amount(name, value)}" + (f" ({value * 100 // whole}%)" if whole else ""))
    return ", ".join(found)


def _toleration(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    exists = " op=Exists" if toleration.operator == "Exists" else ""
    seconds = f" for {toleration.toleration_seconds}s" if toleration.toleration_seconds is not None else ""
    return f"{toleration.key}{value}{effect}{exists}{seconds}".strip()


def _spread(constraint: TopologySpreadConstraint) -> str:
    minimum = f", at least {constraint.min_domains} domains" if constraint.min_domains else ""
    return (
        f"{constraint.topology_key}, max skew {constraint.max_skew}, {constraint.when_unsatisfiable}{minimum}, "
        f"pods with {selector_words(constraint.label_selector) or '<none>'}"
    )


def _affinity(affinity: Affinity) -> Iterator[str]:
    if affinity.node_affinity is not None:
        terms = affinity.node_affinity.required.node_selector_terms if affinity.node_affinity.required else ()
        yield f"node: {len(terms)} required terms, {len(affinity.node_affinity.preferred)} preferred"
    for name, found in (("pod", affinity.pod_affinity), ("pod anti", affinity.pod_anti_affinity)):
        if found is not None:
            for term in found.required:
                yield f"{name}: required, pods with {selector_words(term.label_selector)} in the same {term.topology_key}"
            for weighted in found.preferred:
                term = weighted.pod_affinity_term
                yield (
                    f"{name}: preferred ({weighted.weight}), pods with {selector_words(term.label_selector)} in the same {term.topology_key}"
                )
