"""Figures that sum a log up: how long pods waited, how many were placed, at whose cost, and how even the cluster looks at the end.

They are what two policies are compared by, so each is defined by the log alone and means the same for a recorded log and a what-if.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from statistics import fmean, median, pstdev

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Node, Object, Pod, PodDisruptionBudget, PodGroup
from tidelog.api.pod_status import is_preempted, is_terminal
from tidelog.api.resources import CPU, MEMORY
from tidelog.api.selectors import SelectorError, label_matcher, selector_key
from tidelog.api.times import NANOS, parse_time
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import ObjectPut, Record, decode_body
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.pod_topology_spread.constraints import HARD
from tidelog.replay.foreign import only_records, placed_on

DIGITS = 4
PROGRESS_EVERY = 1_000


class WaitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, in seconds."""

    count: int
    p50: float
    p90: float
    p99: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One log, summed up."""

    placed: int
    """Pods that were given a node by the scheduler, those included that were evicted or deleted later."""
    on_nodes: int
    """Pods that have a node at the end."""
    unplaced: int
    """Pods that are pending at the end."""
    deleted_while_pending: int = 0
    """Pods that were gone before they had a node: with the two above, as many as came without one."""
    nodes: int
    """Nodes at the end."""
    nodes_in_use: int
    """How many of them run a pod that is not a DaemonSet's."""
    attempts: int
    pending_seconds: WaitFigures
    """From a pod's creation to its placement."""
    preemptions: int
    """Pods that were evicted to make room."""
    budget_violations: int
    """Number of victims covered by a disruption budget that allowed no disruption."""
    evictions_refused: int
    spread_skew_max: int
    """The largest difference between two domains over all hard spread constraints, at the end."""
    spread_skew_mean: float
    cpu_imbalance: float
    """Standard deviation of the nodes' used part of their cpu, 0 to 0.5, at the end."""
    memory_imbalance: float
    fragmentation: float
    """The part of the free cpu that lies on nodes which could not take one more pod of the median size."""
    groups: int
    groups_complete: int
    """Pod groups of which every member that there is has a node."""
    group_seconds: WaitFigures
    """From a group's creation to the placement of its last member."""


Wait = tuple[int, int]
"""How many attempts it took, and how long, in nanoseconds."""
Waits = dict[str, list[Wait]]
"""By the key of a pod or group: each time that it was placed."""


def figures(records: Sequence[Record], beside: Waits | None = None, beginning: bytes = b"") -> Figures:
    """Sum these records up, which are a log's from its first. Costs a few microseconds a record.

    `beside` are the waits of the log that a what-if was made of: what took as many attempts here waits as long as there. A what-if decides
    without delay, and that it does is no merit of its configuration. `beginning` is the encoded table of the objects before the first record,
    where that is not the log's first.
    """
    return figures_and_waits(records, beside, beginning)[0]


def figures_and_waits(
    records: Sequence[Record],
    beside: Waits | None = None,
    beginning: bytes = b"",
    progress: Callable[[int, int], object] | None = None,
) -> tuple[Figures, Waits]:
    """As `figures`, and how long each pod and group waited, each time. `progress` is told now and then how many records are done, and of how many."""
    count = _Count(beside or {}, beginning)
    return count.of(records, progress), count.waits


def fair(own: Wait, beside: Wait | None) -> int:
    """The duration to compare, in nanoseconds: as recorded where it took as many attempts."""
    return beside[1] if beside is not None and beside[0] == own[0] else own[1]


class _Count:
    def __init__(self, beside: Waits, beginning: bytes) -> None:
        self.beside = beside
        self.table = ObjectTable.decode(beginning) if beginning else ObjectTable()
        self.created = creation_times(self.table)
        self.waits: Waits = {}
        self.placed_at: dict[str, int] = {}
        self.tries: dict[str, int] = {}
        """By key: attempts since it was created."""
        self.attempts = 0
        self.evictions = 0
        self.violations = 0
        self.refused = 0
        self.gone = 0

    def of(self, records: Sequence[Record], progress: Callable[[int, int], object] | None) -> Figures:
        for number, record in enumerate(records):
            if progress is not None and number % PROGRESS_EVERY == 0:
                progress(number, len(records))
            self._before(record)
            self.table.apply(record)
        pods = [e.object for e in self.table.of_kind("Pod") if isinstance(e.object, Pod)]
        nodes = _occupied((e.object for e in self.table.of_kind("Node")), pods)
        skews = list(_skews(pods, nodes))
        pod_waits = self._compared()
        complete, group_waits, groups = self._groups(pods)
        return Figures(
            placed=len(pod_waits),
            on_nodes=sum(bool(pod.spec.node_name) and not is_terminal(pod) for pod in pods),
            unplaced=sum(not pod.spec.node_name and not is_terminal(pod) for pod in pods),
            deleted_while_pending=self.gone,
            nodes=len(nodes),
            nodes_in_use=sum(
                any(not _is_daemon(pod.pod) for pod in node.pods.values()) for node in nodes.values()
            ),
            attempts=self.attempts,
            pending_seconds=_waits(pod_waits),
            preemptions=self.evictions,
            budget_violations=self.violations,
            evictions_refused=self.refused,
            spread_skew_max=max(skews, default=0),
            spread_skew_mean=_rounded(fmean(skews)) if skews else 0.0,
            cpu_imbalance=_imbalance(nodes, CPU),
            memory_imbalance=_imbalance(nodes, MEMORY),
            fragmentation=_fragmentation(nodes, pods),
            groups=groups,
            groups_complete=complete,
            group_seconds=_waits(group_waits),
        )

    def _before(self, record: Record) -> None:
        """Count a record; the objects are still those from before it."""
        key = record.key
        if record.kind == "ObjectPut" and self.table.get(key) is None:
            self.created[key] = record.at
            self.placed_at.pop(key, None)
            self.tries.pop(key, None)
        elif record.kind == "ObjectPut" and only_records(self.table.attachment):
            self._shown(record)
        elif record.kind == "Scheduled":
            self._placed(key, record.at, self.tries.get(key, 0) + 1)
        elif record.kind == "Evicted":
            self.evictions += 1
            self.violations += self._violates(self.table.get(key))
        elif record.kind == "EvictionRefused":
            self.refused += 1
        elif record.kind == "ObjectDeleted":
            pod = self.table.get(key)
            self.gone += isinstance(pod, Pod) and not pod.spec.node_name and not is_terminal(pod)
        if record.kind in (
            "Scheduled",
            "Unschedulable",
            "Waiting",
            "Reserved",
            "AttemptAborted",
            "AttemptError",
        ):
            self.attempts += 1
            self.tries[key] = self.tries.get(key, 0) + 1

    def _placed(self, key: str, at: int, attempts: int) -> None:
        self.placed_at[key] = at
        self.waits.setdefault(key, []).append((attempts, at - self.created.get(key, at)))

    def _compared(self) -> list[int]:
        """The waits of all pods so far; a recorded one in the place of one that took as many attempts."""
        return [
            fair(own, recorded)
            for key, waits in self.waits.items()
            for own, recorded in zip_longest(waits, self.beside.get(key, ())[: len(waits)])
        ]

    def _shown(self, record: Record) -> None:
        """A version of a pod may show where another scheduler has placed it."""
        old, body = self.table.get(record.key), decode_body(record)
        assert isinstance(body, ObjectPut)
        new = body.object
        if not isinstance(old, Pod) or not isinstance(new, Pod):
            return
        if placed_on(old, new):
            self._placed(record.key, record.at, 0)
        if is_preempted(new) and not is_preempted(old):
            self.evictions += 1
            self.violations += self._violates(old)

    def _violates(self, victim: Object | None) -> bool:
        if not isinstance(victim, Pod):
            return False
        budgets = (e.object for e in self.table.of_kind("PodDisruptionBudget"))
        return any(
            isinstance(b, PodDisruptionBudget)
            and b.metadata.namespace == victim.metadata.namespace
            and b.status.disruptions_allowed <= 0
            and victim.metadata.name not in b.status.disrupted_pods
            and _selects(b, victim)
            for b in budgets
        )

    def _groups(self, pods: Iterable[Pod]) -> tuple[int, list[int], int]:
        members: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.spec.scheduling_group is not None:
                key = f"PodGroup/{pod.metadata.namespace}/{pod.spec.scheduling_group.pod_group_name}"
                members.setdefault(key, []).append(pod)
        groups = [e.object for e in self.table.of_kind("PodGroup") if isinstance(e.object, PodGroup)]
        complete, waits = 0, []
        for group in groups:
            key = f"PodGroup/{group.metadata.namespace}/{group.metadata.name}"
            of_group = members.get(key, [])
            if of_group and all(pod.spec.node_name for pod in of_group):
                complete += 1
                keys = [f"Pod/{p.metadata.namespace}/{p.metadata.name}" for p in of_group]
                placed = [self.placed_at[k] for k in keys if k in self.placed_at]
                own = (self.tries.get(key, 0), max(placed, default=self.created[key]) - self.created[key])
                self.waits[key] = [own]
                waits.append(fair(own, next(iter(self.beside.get(key, ())), None)))
        return complete, waits, len(groups)


def creation_times(table: ObjectTable) -> dict[str, int]:
    """When each object of the table was created; those that do not tell, at the moment of the table."""
    found: dict[str, int] = {}
    for entry in table:
        try:
            found[object_key(entry.object)] = parse_time(entry.object.metadata.creation_timestamp)
        except ValueError:
            found[object_key(entry.object)] = table.at
    return found


def _is_daemon(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    try:
        return label_matcher(budget.spec.selector)(pod.metadata.labels)
    except SelectorError:
        return False


def _occupied(nodes: Iterable[Object], pods: Iterable[Pod]) -> dict[str, NodeInfo]:
    found = {node.metadata.name: NodeInfo(node) for node in nodes if isinstance(node, Node)}
    for pod in pods:
        if pod.spec.node_name in found and not is_terminal(pod):
            info = PodInfo(pod)
            if info.uid not in found[pod.spec.node_name].pods:
                found[pod.spec.node_name].add_pod(info)
    return found


def _skews(pods: Iterable[Pod], nodes: dict[str, NodeInfo]) -> Iterator[int]:
    """For each hard constraint that pods share, by how much the fullest domain exceeds the emptiest."""
    seen: set[tuple[object, ...]] = set()
    for pod in pods:
        for constraint in pod.spec.topology_spread_constraints:
            selector = constraint.label_selector
            if constraint.when_unsatisfiable != HARD or selector is None:
                continue
            key = (pod.metadata.namespace, constraint.topology_key, selector_key(selector))
            if key not in seen:
                seen.add(key)
                try:
                    matches = label_matcher(selector)
                except SelectorError:
                    continue  # One that cannot be read matches nobody.
                yield _skew(pod.metadata.namespace, constraint.topology_key, matches, nodes)


def _skew(namespace: str, topology_key: str, matches: object, nodes: dict[str, NodeInfo]) -> int:
    assert callable(matches)
    counts: dict[str, int] = {}
    for node in nodes.values():
        domain = node.labels.get(topology_key)
        if domain is not None:
            here = sum(p.namespace == namespace and matches(p.labels) for p in node.pods.values())
            counts[domain] = counts.get(domain, 0) + here
    return max(counts.values(), default=0) - min(counts.values(), default=0)


def _imbalance(nodes: dict[str, NodeInfo], resource: str) -> float:
    used = [
        n.requested.get(resource, 0) / n.allocatable[resource]
        for n in nodes.values()
        if n.allocatable.get(resource)
    ]
    return _rounded(pstdev(used)) if used else 0.0


def _fragmentation(nodes: dict[str, NodeInfo], pods: Sequence[Pod]) -> float:
    requests = [PodInfo(pod).requests for pod in pods]
    if not requests:
        return 0.0
    cpu = median(r.get(CPU, 0) for r in requests)
    memory = median(r.get(MEMORY, 0) for r in requests)
    free = stranded = 0
    for node in nodes.values():
        here = max(node.allocatable.get(CPU, 0) - node.requested.get(CPU, 0), 0)
        free += here
        room = node.allocatable.get(MEMORY, 0) - node.requested.get(MEMORY, 0)
        if here < cpu or room < memory or len(node.pods) >= node.allowed_pods:
            stranded += here
    return _rounded(stranded / free) if free else 0.0


def _waits(nanos: Iterable[int]) -> WaitFigures:
    ordered = sorted(nanos)
    return WaitFigures(count=len(ordered), p50=_at(ordered, 50), p90=_at(ordered, 90), p99=_at(ordered, 99))


def _at(ordered: Sequence[int], percent: int) -> float:
    """The nearest-rank percentile in seconds."""
    if not ordered:
        return 0.0
    return _rounded(ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] / NANOS)


def _rounded(value: float) -> float:
    return round(value, DIGITS)
