"""The results of a profile's extension points: what is made of the answers of all its plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.api.writes import Write
from tidelog.framework.diagnosis import Diagnosis
from tidelog.framework.interface import Status
from tidelog.framework.node_info import NodeInfo


class PreFilterOutcome(NamedTuple):
    """The nodes that PreFilter left."""

    nodes: frozenset[str] | None
    """The only nodes that can do, or None for all."""
    status: Status | None
    """The rejection of the pod, or an error."""
    narrowers: tuple[str, ...]
    """The plugins that returned a set of nodes, by name."""


class PermitOutcome(NamedTuple):
    """`status` is None (go ahead), a rejection, an error, or WAIT; then `waits` holds (plugin, nanoseconds) pairs."""

    status: Status | None
    waits: tuple[tuple[str, int], ...] = ()


class PluginScores(NamedTuple):
    """One plugin's scores, in the order of the nodes."""

    weight: int
    raw: list[int]
    normalized: list[int]


class NodeScores(NamedTuple):
    """The scores of all feasible nodes."""

    nodes: Sequence[NodeInfo]
    plugins: Mapping[str, PluginScores]
    """By plugin; one that skipped is missing."""
    totals: list[int]
    """The weighted sums, in the order of the nodes."""


NOTHING_READ: frozenset[str] = frozenset()
ANY_DEVICE = frozenset({"Device/"})
"""In what was read: some devices, it is not known which."""


class PromisedWrites(NamedTuple):
    """Writes that one plugin needs before a pod is bound."""

    plugin: str
    writes: tuple[Write, ...]
    timeout: int
    """How long the answers may take, in nanoseconds."""


class Feasible(NamedTuple):
    """The nodes on which the pod can run, in the snapshot's order."""

    nodes: list[NodeInfo]
    diagnosis: Diagnosis
    is_nominated: bool = False
    """It is the node that the pod was nominated to, tried alone: take it without scoring."""


class ScheduleResult(NamedTuple):
    """The node for a pod."""

    node: str
    feasible: int
    """How many nodes could have taken the pod, as far as was looked."""
    scores: NodeScores | None = None
    """None when there was nothing to choose from, and after the fast evaluation."""
    score: int = 0
    """The node's total; 0 when there was nothing to choose from."""
