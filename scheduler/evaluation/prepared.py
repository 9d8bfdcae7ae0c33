"""Prepares the pods of one shape: PreFilter and PreScore have run, and it is settled how each plugin is asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from tidelog.framework.diagnosis import Diagnosis
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.node_sets import Bits, Groups, bits_of
from tidelog.framework.offers import NotCountable
from tidelog.scheduler.evaluation.asking import (
    Asked,
    Way,
    Ways,
    beyond_nodes,
    is_skipped,
    pre_filtered,
    skips_score,
)
from tidelog.scheduler.evaluation.board import FAR, Board, BoardTable
from tidelog.scheduler.evaluation.columns import AnswerColumn
from tidelog.scheduler.evaluation.kinds import KnownKinds, TraitKinds
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.evaluation.parts import AskingPlan, Counted, Part
from tidelog.scheduler.evaluation.shape import Shape

NARROWED_FEW = 16
"""Where PreFilter leaves so few nodes, to ask about each of them costs less than a table of all."""


class Prepared:
    """A shape, and what the cycle's state is to hold for its pods."""

    def __init__(
        self,
        ways: Ways,
        index: NodeIndex,
        board: Board,
        parts: Sequence[Part],
        plan: AskingPlan,
        state: CycleState,
        pod: PodInfo,
        known: KnownKinds,
    ) -> None:
        """`state` is what the parts left in it, `known` what is known of nodes by their traits for such pods. Raises NotCountable."""
        self.ways = ways
        self._index = index
        self._board = board
        self.state = state
        self.parts = parts
        self.plan = plan
        self.narrowed: frozenset[str] | None = None
        """The only nodes that PreFilter leaves, as far as it looks at the pod only."""
        self.narrowers: tuple[str, ...] = ()
        self.domains: list[Counted] = []
        for part in parts:
            self.domains += part.counted
            if part.narrowed is not None:
                self._narrow(part, part.narrowed)
        self.evaluation = plan.evaluation(state, pod)
        self.kinds = TraitKinds(self.evaluation, known) if plan.is_searchable else None
        """Knowledge of nodes by their traits, if the plugins offer that."""
        self._changes = index.changes
        """Those of the index that the domains follow, until there is a table."""
        self._waiting: BoardTable | None = None
        """A table that may get a column before the shape's second pod comes."""
        self._seldom = False
        """Many nodes have changed since the shape's first pod."""
        self.shape: Shape | None = None
        self.beyond: tuple[Hashable, ...] = beyond_nodes(ways.looking_beyond, pod)
        """Versions of what plugins read beyond the nodes, when this was made."""
        self.beside_generation: tuple[int, int] = (-1, 0)
        """Of the nominations and the pod's priority for which the table's `beside` holds."""
        self.beside_whom: dict[str, Sequence[PodInfo]] = {}
        """These nominations: node → pods."""
        self.nowhere: tuple[int, Bits, list[tuple[Status, Bits]], Diagnosis] | None = None
        """The last time that no node was left: after which moves of nodes, among which of them, who rejected which of them, and that as a diagnosis, which pods share."""
        self._narrowed_bits: tuple[int, Bits] = (-1, 0)

    def _narrow(self, part: Part, names: frozenset[str]) -> None:
        self.narrowed = names if self.narrowed is None else self.narrowed & names
        self.narrowers = tuple(sorted((*self.narrowers, *part.narrowers)))
        if not self.narrowed:
            raise NotCountable("PreFilter leaves no node")

    def follow(self) -> None:
        """Be as the index is, where no table does it."""
        places = self._index.changed_since(self._changes)
        self._changes = self._index.changes
        self._seldom = len(places) >= FAR
        for counted in self.domains:
            counted.follow()

    def made_shape(self) -> Shape:
        """The table, which is made when it is first asked for: in the attempt for which this was prepared."""
        if self.shape is None:
            self.shape = Shape(
                self._index,
                self.evaluation,
                self.domains,
                kinds=self.kinds,
                on_board=self._on_board,
                seldom=self._seldom,
            )
            self._stop_waiting()
        return self.shape

    def wait(self) -> None:
        """There may be more pods of the shape: with others like that it may get a table."""
        if self.kinds is not None and self._waiting is None:
            self._waiting = BoardTable(self._board, self.evaluation, self.kinds)

    def _on_board(self, kinds: TraitKinds) -> BoardTable:
        found, self._waiting = self._waiting, None
        return found or BoardTable(self._board, self.evaluation, kinds)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.give_up()
            self._waiting = None

    def give_up(self) -> None:
        """Nobody asks any more."""
        self._stop_waiting()
        if self.shape is not None:
            self.shape.give_up()

    def decides_by_nodes_alone(self) -> bool:
        """Whether what is said of a node follows from its state and its own object."""
        evaluation = self.evaluation
        return (
            not self.plan.has_plain
            and self.narrowed is None
            and all(counted.now.has_no_say for counted in self.domains)
            and all(one.way is Way.OBJECT for one in (*evaluation.node_filters, *evaluation.node_scorers))
        )

    def skip_filter(self) -> set[str]:
        """The names of the plugins that PreFilter skips, as things are now."""
        plan = self.plan
        for counted in self.domains:
            if not counted.now.skips_filter:
                break
        else:
            return plan.all_skipped
        idle = tuple([counted.now.skips_filter for counted in self.domains])
        known = plan.skipped_sets.get(idle)
        if known is None:
            known = plan.skipped_sets[idle] = plan.skipped | {
                counted.name
                for counted, skips in zip(self.domains, idle, strict=True)
                if skips and counted.name in self.ways.pre_filtering
            }
        return known

    def filters_by_domains(self) -> bool:
        """Whether a plugin that counts domains filters for the pod as things are now."""
        return any(not counted.now.skips_filter for counted in self.domains)

    def bits(self, names: frozenset[str] | None) -> Bits:
        """The nodes of these names; None: all."""
        if names is None:
            return self._index.all
        return self._index.bits_of_names(names)

    def narrowed_bits(self) -> Bits:
        """The nodes that PreFilter leaves."""
        if self.narrowed is None:
            return self._index.all
        moved, bits = self._narrowed_bits
        if moved != self._index.moved:
            bits = self.bits(self.narrowed)
            self._narrowed_bits = (self._index.moved, bits)
        return bits

    def complete(self, state: CycleState) -> None:
        """Leave in the state of an attempt what PreFilter would leave, as far as it is not there."""
        state.adopt(self.state)
        for counted in self.domains:
            if not counted.now.skips_filter:
                counted.now.fill(state)


class Anew:
    """The plugins that are asked in each attempt, in one attempt."""

    def __init__(
        self,
        framework: Framework,
        ways: Ways,
        index: NodeIndex,
        state: CycleState,
        pod: PodInfo,
        silent: frozenset[str],
    ) -> None:
        """Runs their PreFilter, but for those that have nothing to do with the pod. Raises NotFast."""
        self._framework = framework
        self._index = index
        self._state = state
        self._pod = pod
        self._ways = ways
        self.skipped: set[str] = set()
        self.nodes: frozenset[str] | None = None
        self.narrowers: tuple[str, ...] = ()
        self._silent = silent
        for plugin in ways.plain_pre_filters:
            if plugin.name in silent:
                continue
            result = pre_filtered(plugin, state, pod, framework.snapshot.nodes)
            if ways.of_filter(plugin) is not Way.PLAIN:
                continue  # It is known; only its state was wanted.
            if is_skipped(result):
                self.skipped.add(plugin.name)
            elif result.nodes is not None:
                self.nodes = result.nodes if self.nodes is None else self.nodes & result.nodes
                self.narrowers = tuple(sorted((*self.narrowers, plugin.name)))
        self._columns: dict[str, AnswerColumn[Status | None]] = {
            asked.name: AnswerColumn(asked, index, self._verdict(asked), outlives=False)
            for asked in ways.filters
            if asked.way is Way.PLAIN and asked.name not in self.skipped | silent
        }

    def _verdict(self, asked: Asked) -> Callable[..., Status | None]:
        return lambda node: asked.verdict(self._state, self._pod, node)

    def passing(self, feasible: Bits) -> Bits:
        """Those of these nodes that pass. A filter is asked about the nodes that those before it left."""
        for column in self._columns.values():
            if not feasible:
                break
            column.learn(feasible)
            feasible &= column.sets.get(None, 0)
        return feasible

    def rejections(self, name: str, among: Bits) -> Sequence[tuple[Status, Bits]]:
        """Return the rejections of these nodes by the filter of this name."""
        column = self._columns.get(name)
        if column is None:
            return ()
        return [(status, bits) for status, bits in column.groups(among) if status is not None]

    def scores(self, feasible: Bits) -> list[tuple[int, Groups]]:
        """Weights and normalised scores of the feasible nodes, each asked about, as the plain evaluation does it."""
        scorers = [
            asked for asked in self._ways.scorers if asked.way is Way.PLAIN and asked.name not in self._silent
        ]
        if not scorers:
            return []
        index, state, pod = self._index, self._state, self._pod
        nodes = index.in_order(feasible)
        places = [index.place_of(node.name) for node in nodes]
        unscored = {
            p.name
            for p in self._ways.plain_pre_scores
            if p.name not in self._silent and skips_score(p, state, pod, nodes)
        }
        found = []
        for asked in scorers:
            if asked.name in unscored:
                continue
            raws = [asked.raw_score(state, pod, node) for node in nodes]
            if asked.normalizes:
                raws = asked.normalized(state, pod, nodes, raws)
            at: dict[int, list[int]] = {}
            for place, score in zip(places, raws, strict=True):
                at.setdefault(score, []).append(place)
            size = index.size
            found.append((asked.weight, [(score, bits_of(those, size)) for score, those in at.items()]))
        return found
