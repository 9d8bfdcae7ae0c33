"""Why no node was found for a pod: the status of each node, who rejected the pod, and the sentence that tells it.

The sentence is read by people and scripts, so it is kube-scheduler's to the letter. Which plugins are to blame decides which events
may wake the pod (see `tidelog.queue`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidelog.eventlog.records import Rejection
from tidelog.framework.interface import Code, Status, unresolvable
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_statuses import NodeStatuses, grouped
from tidelog.framework.reasons import nodes_message

NO_NODES = unresolvable("no nodes available to schedule pods")
"""The answer when there are no nodes at all. Not a fit error: no plugin is to blame, and no preemption is tried."""

_ABSENT = unresolvable()


class Diagnosis:
    """The verdicts on the nodes in one attempt, or in several of pods that are alike. Asked for its words, it is complete."""

    __slots__ = (
        "_rejected",
        "_rejections",
        "_text",
        "absent",
        "node_statuses",
        "pending",
        "pre_filter_message",
        "rejecting",
    )

    def __init__(self, narrowers: Iterable[str] = ()) -> None:
        self._rejected: dict[str, Status] = {}
        self._text: tuple[int, str] | None = None
        self._rejections: tuple[int, tuple[Rejection, ...]] | None = None
        """The last answers of `text` and `rejections`, and for how many nodes: pods that are alike are told the same."""
        self.node_statuses: Mapping[str, Status] = self._rejected
        """Node → the status of the first plugin that rejected it, for every examined and infeasible node."""
        self.absent: Status = _ABSENT
        """The status of every node that was not examined."""
        self.pre_filter_message: str = ""
        """The message of the PreFilter rejection, if PreFilter rejected the pod."""
        self.rejecting: set[str] = set(narrowers)
        """Plugins an event of which may help: those that rejected the pod or a node, and those that narrowed the nodes."""
        self.pending: set[str] = set()
        """Those of `rejecting` that wait for something outside the scheduler."""

    def leave_out(self, narrowers: Sequence[str]) -> None:
        """Nodes that are not examined were left out by these PreFilter plugins."""
        self.absent = unresolvable(did_not_satisfy(narrowers))

    def blame(self, status: Status) -> None:
        """Remember the plugin of a rejection. An empty intersection of node sets has none."""
        if status.plugin:
            self.rejecting.add(status.plugin)
            if status.code is Code.PENDING:
                self.pending.add(status.plugin)

    def reject_node(self, name: str, status: Status) -> None:
        """The node was examined and is not feasible."""
        self._rejected[name] = status
        self.blame(status)

    def reject_nodes(self, statuses: NodeStatuses) -> None:
        """These nodes, and no others, were examined and are not feasible."""
        self.node_statuses = statuses
        for status, _ in statuses.groups():
            self.blame(status)

    def status_of(self, name: str) -> Status:
        """The status of any node that is not feasible."""
        return self.node_statuses.get(name, self.absent)

    def text(self, node_count: int) -> str:
        """The sentence about so many nodes. Its entries are sorted as text, so `11 x` comes before `2 y`."""
        if self._text is None or self._text[0] != node_count:
            self._text = (node_count, self._make_text(node_count))
        return self._text[1]

    def _make_text(self, node_count: int) -> str:
        if self.pre_filter_message:
            return f"0/{node_count} nodes are available: {self.pre_filter_message}."
        return nodes_message(node_count, reason_counts(node_count, self))

    def rejections(self, node_count: int) -> tuple[Rejection, ...]:
        """Return the number of nodes for each plugin and reason, most nodes first."""
        if self._rejections is None or self._rejections[0] != node_count:
            self._rejections = (node_count, self._count_rejections(node_count))
        return self._rejections[1]

    def _count_rejections(self, node_count: int) -> tuple[Rejection, ...]:
        counts: Counter[tuple[str, str]] = Counter()
        for status, nodes in grouped(self.node_statuses):
            for reason in status.reasons:
                counts[status.plugin, reason] += nodes
        absent = node_count - len(self.node_statuses)
        if absent > 0:
            counts.update({(self.absent.plugin, reason): absent for reason in self.absent.reasons})
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            Rejection(plugin=plugin, reason=reason, nodes=nodes) for (plugin, reason), nodes in ordered
        )

    def statuses(self, nodes: Sequence[NodeInfo]) -> Mapping[str, Status]:
        """The status of each of the nodes, examined or not, as PostFilter wants them."""
        if isinstance(self.node_statuses, NodeStatuses) and len(self.node_statuses) == len(nodes):
            return self.node_statuses
        return {node.name: self.status_of(node.name) for node in nodes}


def did_not_satisfy(narrowers: Sequence[str]) -> str:
    """Return the reason for nodes that these plugins left out in PreFilter."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(narrowers)}]"


class FitError:
    """The pod fits on none of the nodes. Not an exception: it is the ordinary answer of an attempt."""

    __slots__ = ("diagnosis", "node_count", "post_filter_message")

    def __init__(self, node_count: int, diagnosis: Diagnosis) -> None:
        self.node_count = node_count
        """The nodes in the (placement's) cluster; 1 when Reserve or Permit rejected the chosen one."""
        self.diagnosis = diagnosis
        self.post_filter_message = ""

    @classmethod
    def of_node(cls, name: str, status: Status) -> FitError:
        """The chosen node was rejected after all: by Reserve, Permit, or while the pod waited."""
        diagnosis = Diagnosis()
        diagnosis.reject_node(name, status)
        return cls(1, diagnosis)

    @property
    def unschedulable_plugins(self) -> tuple[str, ...]:
        """The plugins to blame, by name: an event that one of them finds helpful wakes the pod."""
        return tuple(sorted(self.diagnosis.rejecting))

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        """Those among them that answered Pending, by name."""
        return tuple(sorted(self.diagnosis.pending))

    @property
    def message(self) -> str:
        """`0/3 nodes are available: 2 Insufficient cpu, 1 Too many pods.` and what PostFilter says."""
        text = self.diagnosis.text(self.node_count)
        return f"{text} {self.post_filter_message}" if self.post_filter_message else text


def reason_counts(node_count: int, diagnosis: Diagnosis) -> Mapping[str, int]:
    """How many nodes gave each reason; a node may give several. Nodes without a status of their own give `absent`'s."""
    counts: Counter[str] = Counter()
    for status, nodes in grouped(diagnosis.node_statuses):
        for reason in status.reasons:
            counts[reason] += nodes
    absent = node_count - len(diagnosis.node_statuses)
    if absent > 0:
        for reason in diagnosis.absent.reasons:
            counts[reason] += absent
    return counts
