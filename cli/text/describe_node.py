"""The output of `tidelog describe node`: the node in kubectl's layout, its pods, and what they have taken of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.api.kinds.columns import node_status, requests_of, taint_words
from tidelog.api.objects import Node, Pod
from tidelog.api.resources import PODS, Requests, parse_requests
from tidelog.api.text import age, safe, table
from tidelog.api.times import parse_time
from tidelog.cli.text.describe import amount_words, indented, listed, named, pairs
from tidelog.replay.advice import amount


def node_lines(node: Node, pods: Sequence[Pod], now: int, nominated: Sequence[Pod] = ()) -> Iterator[str]:
    """The node, section by section. `pods` are those that take room on it, `nominated` those that room is kept for."""
    meta = node.metadata
    yield named("Name", meta.name)
    yield from pairs("Labels", meta.labels)
    yield from pairs("Annotations", meta.annotations)
    yield named("CreationTimestamp", meta.creation_timestamp or "<unknown>")
    yield from listed("Taints", [taint_words(taint) for taint in node.spec.taints] or ["<none>"])
    yield named("Unschedulable", str(node.spec.unschedulable).lower())
    yield named("Status", node_status(node))
    yield "Conditions:"
    rows = [(c.type, c.status, c.reason, c.message) for c in node.status.conditions]
    yield from indented(table(["Type", "Status", "Reason", "Message"], rows) if rows else "<none>")
    yield "Capacity:"
    yield from _amounts(node.status.capacity or node.status.allocatable)
    yield "Allocatable:"
    yield from _amounts(node.status.allocatable)
    requests = {f"{pod.metadata.namespace}/{pod.metadata.name}": requests_of(pod) for pod in pods}
    allocatable = _parsed(node.status.allocatable)
    yield f"Non-terminated Pods:  ({len(pods)} in total)"
    yield from _pods(pods, requests, allocatable, now)
    if nominated:
        yield f"Nominated Pods:  ({len(nominated)}; room is kept for them from pods of no higher priority)"
        kept = {f"{pod.metadata.namespace}/{pod.metadata.name}": requests_of(pod) for pod in nominated}
        yield from _pods(nominated, kept, allocatable, now)
    yield "Allocated resources:"
    yield from _allocated(list(requests.values()), allocatable, len(pods))


def _amounts(amounts: Mapping[str, object]) -> Iterator[str]:
    if not amounts:
        yield "  <none>"
    width = max(map(len, amounts), default=0) + 1
    yield from (f"  {safe(name + ':'):<{width}}  {safe(value)}" for name, value in sorted(amounts.items()))


def _parsed(amounts: Mapping[str, object]) -> Requests:
    try:
        return parse_requests(amounts)  # type: ignore[arg-type]
    except ValueError:
        return {}  # Only a log that another program wrote can hold a quantity that does not parse.


def _pods(
    pods: Sequence[Pod], requests: Mapping[str, Requests], allocatable: Requests, now: int
) -> Iterator[str]:
    if not pods:
        yield "  <none>"
        return
    rows = [
        (
            pod.metadata.namespace,
            pod.metadata.name,
            amount_words(requests[f"{pod.metadata.namespace}/{pod.metadata.name}"], allocatable) or "<none>",
            pod.spec.priority or 0,
            _age(pod, now),
        )
        for pod in pods
    ]
    yield from indented(table(["Namespace", "Name", "Requests", "Priority", "Age"], rows))


def _age(pod: Pod, now: int) -> str:
    try:
        return age(now - parse_time(pod.metadata.creation_timestamp))
    except ValueError:
        return "<unknown>"


def _allocated(requests: Sequence[Requests], allocatable: Requests, count: int) -> Iterator[str]:
    rows: list[tuple[object, ...]] = []
    for name in dict.fromkeys((*allocatable, *(name for found in requests for name in found))):
        used = count if name == PODS else sum(found.get(name, 0) for found in requests)
        whole = allocatable.get(name, 0)
        part = f"{used * 100 // whole}%" if whole else "-"
        rows.append((name, amount(name, used), amount(name, whole), part, amount(name, whole - used)))
    yield from indented(
        table(["Resource", "Requests", "Allocatable", "Used", "Free"], rows) if rows else "<none>"
    )
