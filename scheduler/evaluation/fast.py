"""The fast evaluation: the same node as the plain one of `Framework.schedule_pod` finds, without asking every plugin about every node.

    pod ─► shape (what plugins read of it) ─► its table, brought up to date ─► sets of nodes ─► best total ─► first from the scan's start

How often a plugin is asked follows from its declaration and from what it offers (`asking`): once for a state of nodes (`shape`), once for a
node that changed (`columns`), never (counted domains), or in each attempt about the nodes that all others left (`prepared.Anew`). It answers None,
and the plain evaluation decides, where a plugin fails or rejects the pod in PreFilter, or where PreFilter leaves a few nodes.

Its tables are caches: nothing of them is state, and an answer does not depend on which of them exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from tidelog.api.selectors import SelectorError
from tidelog.framework.diagnosis import Diagnosis, FitError
from tidelog.framework.interface import Code, CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits
from tidelog.framework.node_statuses import NodeStatuses
from tidelog.framework.offers import NotCountable
from tidelog.framework.placements import future_pod
from tidelog.framework.tie_break import scan_start
from tidelog.queue.nominator import Nominator
from tidelog.scheduler.evaluation.asking import (
    NotFast,
    Ways,
    answered,
    beyond_nodes,
    is_skipped,
    pre_filtered,
    skips_score,
)
from tidelog.scheduler.evaluation.board import Board
from tidelog.scheduler.evaluation.columns import AnswerColumn
from tidelog.scheduler.evaluation.kinds import KnownKinds
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.evaluation.parts import AskingPlan, Outline, Part
from tidelog.scheduler.evaluation.placements import PlacementMemory, Watch
from tidelog.scheduler.evaluation.prepared import NARROWED_FEW, Anew, Prepared
from tidelog.scheduler.evaluation.shape import Found, Shape
from tidelog.scheduler.evaluation.signing import Signed, Signing
from tidelog.scheduler.evaluation.unlike import Search

if TYPE_CHECKING:
    from tidelog.framework.framework import Framework, Observer

SHAPES_MAX = 64
"""So many tables are kept in any case …"""
PLACES_MAX = 2_500_000
"""… and more, as long as all together have no more places than this. A table costs some twenty bytes a node."""

DEMANDS_PER_STEP = 8
"""Of so many demands on other pods a node takes a step to be counted. Roughly: a spread constraint costs less, and an affinity term twice to four times as much."""

PLAIN_MAX = 4_096
"""So many shapes are remembered of which only the plain evaluation can tell."""

PLANS_MAX = 256
"""Of so many sets of plugins that have nothing to do with a pod it is remembered who is asked then."""

_Key = tuple[bytes, ...]
"""Tells the pods of a shape from others."""

_FAILURES = (NotFast, NotCountable, SelectorError)

_NO_ATTEMPTS: Mapping[str, bytes] = {}

_encode = msgspec.msgpack.Encoder().encode


class FastEvaluation:
    """Of one framework. Costs nothing until it is asked."""

    def __init__(self, framework: Framework, index: NodeIndex | None = None) -> None:
        """`index` is that of all profiles together."""
        self._framework = framework
        self._ways = Ways(framework)
        self._can_count_nominated = isinstance(framework.nominated, Nominator)
        self._post_filter_needs_no_state = all(
            getattr(p, "tries_resolvable_only", False) for p in framework.post_filter
        )
        """As long as there is no node to try."""
        self._index = index or NodeIndex(framework.snapshot)
        self._signing = Signing(self._ways)
        self._members: dict[PodInfo, Signed] = {}
        """Those of the latest group that was asked about."""
        self._shapes: dict[_Key, Prepared] = {}
        """The latest used last."""
        self._plain: dict[_Key, int] = {}
        """Shapes of which only the plain evaluation can tell, as long as the objects of nodes are of this generation."""
        self._parts: WeakValueDictionary[tuple[object, ...], Part] = WeakValueDictionary()
        """By the number of the bundle and what its plugins read: those that some shape has."""
        self._plans: dict[tuple[Outline, ...], AskingPlan] = {}
        self._kinds: dict[tuple[AskingPlan, bytes], KnownKinds] = {}
        """Those that shapes have in common."""
        self._board = Board(self._index)
        """Of the shapes there."""
        self._search = Search(self._index)
        self._candidates: tuple[Sequence[NodeInfo], int, Bits] = ((), -1, 0)
        """The latest candidates, for which moves of nodes, and as a set."""
        self._signed_for = (-1, -1, -1)
        """Generations of listers, of the labels that are asked for, and of device classes, for which signatures hold, …"""
        self._epoch = -1
        """… and that of the index for which the tables do."""
        self._nominated: tuple[tuple[int, int], Bits] = ((-1, -1), 0)
        """The nodes to which somebody is nominated, and for which nominations and moves of nodes."""
        self._noted = -1
        """The nominations whose terms are known."""
        self.rekeyed = 0
        """How often pods had to be told apart anew because terms asked for a label that none had asked for before; about `KEYS_MAX` times at most."""
        self.placements = PlacementMemory(self, self._index)
        self.watch: Watch | None = None
        """Shown every choice, if somebody wants to know among whom."""

    def choose(
        self,
        state: CycleState,
        pod: PodInfo,
        turn: int,
        candidates: Sequence[NodeInfo] | None = None,
        nominated_node: str = "",
    ) -> tuple[str, Found] | FitError | None:
        """The node for the pod, or why there is none; None where the plain evaluation has to answer. Leaves `state` as PreFilter would leave it.

        `candidates` are those of a placement: a list that does not change as long as it is in use.
        """
        found: tuple[str, Found] | FitError | None = None
        if self.watch is not None:
            self.watch.tries += 1
        if self._can_count_nominated:
            try:
                found = self._choose(state, pod, turn, candidates, nominated_node)
            except _FAILURES:
                self._forget_tables()
        if found is None and self.watch is not None:
            self.watch.is_blind = True
        return found

    def _choose(
        self,
        state: CycleState,
        pod: PodInfo,
        turn: int,
        candidates: Sequence[NodeInfo] | None,
        nominated_node: str,
    ) -> tuple[str, Found] | FitError | None:
        key, attempts = self._key_of(state, pod)
        if self._is_plain(key):
            return None
        self._index.refresh()
        prepared = self._prepared(key, attempts, state, pod)
        if prepared is None:
            return None
        start = scan_start(turn, self._framework.snapshot.node_count)
        if prepared.shape is None and candidates is None and not nominated_node:
            found = self._find_once(prepared, start)
            if found is not None:
                return self._leave(state, pod, found, prepared, prepared.skip_filter()), found
        attempt = _Attempt(self, prepared, state, pod, candidates)
        feasible = attempt.feasible()
        if not feasible:
            if nominated_node and self._framework.names_nominated_rejectors:
                return None
            return attempt.nowhere()
        if nominated_node:
            node = self._framework.snapshot.get(nominated_node)
            bit = 0 if node is None else 1 << self._index.place_of(nominated_node)
            feasible = feasible & bit or feasible
        also = attempt.anew.scores(feasible) if attempt.anew is not None and feasible & (feasible - 1) else ()
        found = attempt.shape.choose(feasible, start, also, fewest=self._framework.ties_follow_pods)
        if self.watch is not None:
            self.watch.chosen(found.tied, found.place)
        return self._leave(state, pod, found, prepared, attempt.skipped, feasible), found

    def _leave(
        self,
        state: CycleState,
        pod: PodInfo,
        found: Found,
        prepared: Prepared,
        skipped: set[str],
        feasible: Bits = 0,
    ) -> str:
        """The state as the rest of the cycle needs it: plugins that take part in that find what they wrote. Returns the node's name."""
        state.skip_filter = skipped
        state.later = prepared.plan.later
        framework, node = self._framework, self._index.node_at(found.place)
        for plugin in prepared.plan.settling:
            if plugin in framework.pre_filter and is_skipped(
                pre_filtered(plugin, state, pod, framework.snapshot.nodes)
            ):
                continue
            asked = next(one for one in self._ways.filters if one.plugin is plugin)
            asked.verdict(state, pod, node)
            if plugin in framework.pre_score and found.feasible > 1:
                skips_score(plugin, state, pod, self._index.in_order(feasible))
        if framework.observer is not None:
            self._show(framework.observer, state, pod, node, prepared)
        return node.name

    def _show(
        self, observer: Observer, state: CycleState, pod: PodInfo, node: NodeInfo, prepared: Prepared
    ) -> None:
        """Have each filter say of the chosen node what nobody had to ask, for the observer alone: on a state that nobody else sees."""
        framework, seen = self._framework, state.clone()
        prepared.complete(seen)
        observer.begin()
        asked = [plugin for plugin in framework.filter if plugin.name not in state.skip_filter]
        framework.run_filters_alone(seen, pod, node, asked)

    # --- for groups ---------------------------------------------------------------------------------------------------

    def told_apart(self, pods: Sequence[PodInfo]) -> tuple[Bits, ...] | None:
        """The sets of nodes that these pods tell apart by labels, where they look at nothing else but the nodes' states.

        None if they do, or may while some of them are placed: at domains of pods, or at what only the plain evaluation knows.
        """
        if not self._can_count_nominated or self._ways.looking_beyond:
            return None
        try:
            return self._told_apart(pods)
        except _FAILURES:
            self._forget_tables()
            return None

    def _told_apart(self, pods: Sequence[PodInfo]) -> tuple[Bits, ...] | None:
        self._index.refresh()
        state = CycleState()
        shapes: dict[_Key, PodInfo] = {}
        self._keep_signing()
        self._members = {}
        for pod in pods:
            if pod.has_affinity:
                return None
            signed = self._members[pod] = self._sign(state, pod)
            if signed.varying:
                return None
            shapes.setdefault(signed.key, pod)
            if len(shapes) > SHAPES_MAX:
                return None
        apart: dict[Bits, None] = {}
        for pod in shapes.values():
            key, attempts = self._key_of(state, pod)
            prepared = None if self._is_plain(key) else self._prepared(key, attempts, state, pod)
            if prepared is None:
                return None
            shape = prepared.made_shape()
            shape.refresh()
            if not prepared.decides_by_nodes_alone():
                return None
            apart.update(dict.fromkeys(shape.apart()))
        return tuple(apart)

    def spec_key(self, pod: PodInfo) -> tuple[bytes, ...]:
        """Equal for pods that no plugin tells apart."""
        return self._sign(CycleState(), pod).key

    def starts(self, members: Sequence[PodInfo], attempt: int) -> Callable[[int], int]:
        """Where the scan for one of several equally good nodes begins in a group's attempt, by the number of the try: the members come
        one by one, and then pods that are still to come."""
        framework, nodes = self._framework, self._framework.snapshot.node_count
        if not framework.ties_follow_pods:
            start = scan_start(attempt, nodes)
            return lambda _: start

        def start_of(number: int) -> int:
            pod = members[number] if number < len(members) else future_pod(members[-1], number - len(members))
            return scan_start(framework.turn_of(pod, attempt), nodes)

        return start_of

    def nominated_nodes(self) -> Sequence[str]:
        """Where more counts than the pods that are there."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        return nominator.nodes()

    # --- shapes -------------------------------------------------------------------------------------------------------

    def _key_of(self, state: CycleState, pod: PodInfo) -> tuple[_Key, Mapping[str, bytes]]:
        """The pod's shape, and what plugins sign of its attempt by their names."""
        self._keep_signing()
        signed = self._sign(state, pod)
        if not signed.varying:
            return signed.key, _NO_ATTEMPTS
        attempts = {p.name: _encode(answered(p.sign_attempt, state, pod)) for p in signed.varying}
        return (*signed.key, *attempts.values()), attempts

    def _prepared(
        self, key: _Key, attempts: Mapping[str, bytes], state: CycleState, pod: PodInfo
    ) -> Prepared | None:
        """For a shape of which more than the plain evaluation can tell, as far as is known."""
        self._keep_tables()
        known = self._shapes.pop(key, None)
        if (
            known is not None
            and known.beyond
            and known.beyond != beyond_nodes(self._ways.looking_beyond, pod)
        ):
            known.give_up()
            known = None
        if known is None:
            return self._prepare(key, attempts, state, pod)
        if known.shape is None and not self._gets_table(known):
            self._keep_plain(key)
            return None
        self._shapes[key] = known
        return known

    def _is_plain(self, key: _Key) -> bool:
        return self._plain.get(key) == self._framework.snapshot.object_generation

    def _keep_plain(self, key: _Key) -> None:
        if len(self._plain) >= PLAIN_MAX:
            self._plain.clear()
        self._plain[key] = self._framework.snapshot.object_generation

    def _gets_table(self, prepared: Prepared) -> bool:
        """It was used once, without a table, and so not followed."""
        try:
            prepared.follow()
            prepared.made_shape()
        except _FAILURES:
            return False
        return True

    def _prepare(
        self,
        key: _Key,
        attempts: Mapping[str, bytes],
        state: CycleState,
        pod: PodInfo,
    ) -> Prepared | None:
        try:
            made = self._made(key, attempts, state, pod)
            if made.narrowed is not None and len(made.narrowed) <= NARROWED_FEW:
                raise NotFast("few nodes")
        except _FAILURES:
            self._keep_plain(key)
            return None
        shapes, places = self._shapes, self._index.size
        if len(shapes) >= SHAPES_MAX and (len(shapes) + 1) * places > PLACES_MAX:
            shapes.pop(next(iter(shapes))).give_up()
        shapes[key] = made
        return made

    def _made(
        self,
        key: _Key,
        attempts: Mapping[str, bytes],
        state: CycleState,
        pod: PodInfo,
    ) -> Prepared:
        shared = CycleState(state.at, state.waiting, state.turn)
        shared.is_shared = True
        parts = []
        for number, bundle in enumerate(self._ways.bundles):
            signed: tuple[object, ...] = (number, key[number])
            if attempts and bundle.varying:
                signed = (*signed, *[attempts.get(plugin.name) for plugin in bundle.varying])
            if bundle.looking_beyond:
                signed = (*signed, *beyond_nodes(bundle.looking_beyond, pod))
            part = self._parts.get(signed)
            if part is None:
                part = self._parts[signed] = Part(
                    self._framework, self._ways, self._index, bundle, shared, pod
                )
                if part.counted:
                    effort = self._framework.snapshot.effort
                    effort.keep(part)
                    effort.spend(self._index.size * (1 + _demands(pod)) // DEMANDS_PER_STEP)
            shared.adopt(part.state)
            parts.append(part)
        outlines = tuple([part.outline for part in parts])
        plan = self._plans.get(outlines)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[outlines] = AskingPlan(self._framework, self._ways, outlines)
        kinds = self._kinds_for(plan, pod)
        made = Prepared(self._ways, self._index, self._board, parts, plan, shared, pod, kinds)
        made.follow()
        return made

    def _kinds_for(self, plan: AskingPlan, pod: PodInfo) -> KnownKinds:
        """Knowledge of nodes for pods that the plugins that go by traits sign like this one."""
        if not plan.shares_kinds:
            return KnownKinds()
        key = plan, _encode([one.plugin.sign_pod(pod) for one in plan.by_traits])
        known = self._kinds.get(key)
        if known is None:
            if len(self._kinds) >= SHAPES_MAX:
                self._kinds.clear()
            known = self._kinds[key] = KnownKinds()
        return known

    def _keep_signing(self) -> None:
        framework = self._framework
        if len(framework.nominated):  # type: ignore[arg-type]
            self._note_nominated()
        keys = framework.snapshot.label_keys.generation
        listers = framework.handle.listers
        signed_for = (listers.generation, keys, listers.devices.classes_generation)
        if signed_for == self._signed_for:
            return
        self._forget_shapes()
        self._plain.clear()
        self._signing.forget()
        self._members = {}
        self.rekeyed += keys != self._signed_for[1] >= 0
        self._signed_for = signed_for

    def _keep_tables(self) -> None:
        """The index is as the snapshot is."""
        if self._epoch != self._index.epoch or self._board.size < self._index.size:
            self._forget_shapes()
            self._epoch = self._index.epoch

    def _forget_shapes(self) -> None:
        self._forget_tables()
        self._parts.clear()

    def _forget_tables(self) -> None:
        """An attempt failed, perhaps half way. Parts know themselves what they have not followed."""
        self._shapes.clear()
        self._kinds.clear()
        self._board = Board(self._index)

    def nominated_bits(self, nominator: Nominator) -> Bits:
        """The nodes to which somebody is nominated."""
        made_for = (nominator.generation, self._index.moved)
        if self._nominated[0] != made_for:
            self._nominated = (made_for, self._index.bits_of_names(nominator.nodes()))
        return self._nominated[1]

    def _note_nominated(self) -> None:
        """Their terms count as if they were placed."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        if self._noted == nominator.generation:
            return
        self._noted = nominator.generation
        note = self._framework.snapshot.label_keys.note
        for name in nominator.nodes():
            for other in nominator.pods_on(name):
                note(other)

    def _sign(self, state: CycleState, pod: PodInfo) -> Signed:
        if self._members and pod in self._members:
            return self._members[pod]
        return self._signing.sign(state, pod)

    def _find_once(self, prepared: Prepared, start: int) -> Found | None:
        """The first pod of a shape, perhaps the only one: without a table."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        if (
            len(nominator)
            or prepared.plan.has_plain
            or prepared.narrowed is not None
            or prepared.kinds is None
        ):
            return None
        found = self._search.find(
            prepared.evaluation,
            prepared.domains,
            start,
            fewest=self._framework.ties_follow_pods,
            kinds=prepared.kinds,
        )
        if found is None:
            return None
        prepared.wait()
        if self.watch is not None:
            self.watch.chosen(found.tied, found.place)
        return found

    def bits_of(self, candidates: Sequence[NodeInfo]) -> Bits:
        """A placement's nodes, which every member of its group asks for."""
        index = self._index
        latest, moved, bits = self._candidates
        if latest is not candidates or moved != index.moved:
            everything = len(candidates) == self._framework.snapshot.node_count
            bits = index.all if everything else index.bits_of_names([node.name for node in candidates])
            self._candidates = (candidates, index.moved, bits)
        return bits


def _demands(pod: PodInfo) -> int:
    """How many of its constraints and terms are about other pods."""
    terms = (
        pod.affinity_required,
        pod.affinity_preferred,
        pod.anti_affinity_required,
        pod.anti_affinity_preferred,
    )
    return len(pod.pod.spec.topology_spread_constraints) + sum(map(len, terms))


class _Attempt:
    """One pod's question, which its shape's table answers with sets."""

    __slots__ = (
        "_fast",
        "_framework",
        "_index",
        "_is_complete",
        "_pod",
        "_prepared",
        "_state",
        "among",
        "anew",
        "examined",
        "shape",
        "skipped",
    )

    def __init__(
        self,
        fast: FastEvaluation,
        prepared: Prepared,
        state: CycleState,
        pod: PodInfo,
        candidates: Sequence[NodeInfo] | None,
    ) -> None:
        self._fast = fast
        self._framework = framework = fast._framework
        self._index = index = fast._index
        self._prepared = prepared
        self._state = state
        self._pod = pod
        self.shape: Shape = prepared.shape or prepared.made_shape()
        self.shape.refresh()
        self.among = index.all if candidates is None else fast.bits_of(candidates)
        """The nodes that there are for this pod."""
        self.anew = (
            Anew(framework, fast._ways, index, state, pod, prepared.plan.silent)
            if prepared.plan.has_plain
            else None
        )
        self.examined = self.among if prepared.narrowed is None else self.among & prepared.narrowed_bits()
        """Those that PreFilter leaves."""
        self.skipped = prepared.skip_filter()
        if self.anew is not None:
            self.skipped = self.skipped | self.anew.skipped
            if self.anew.nodes is not None:
                self.examined &= prepared.bits(self.anew.nodes)
                if not self.examined:
                    raise NotFast("PreFilter leaves no node")
        self._is_complete = False

    def feasible(self) -> Bits:
        """The nodes that pass all filters."""
        feasible = self.shape.feasible(self.examined)
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        if feasible and len(nominator):
            feasible = self._without_nominated(feasible, nominator)
        if feasible and self.anew is not None:
            feasible = self.anew.passing(feasible)
        return feasible

    def _complete(self) -> CycleState:
        """The attempt's state, as PreFilter would leave it."""
        if not self._is_complete:
            self._is_complete = True
            self._prepared.complete(self._state)
            self._state.skip_filter = self.skipped
        return self._state

    def _without_nominated(self, feasible: Bits, nominator: Nominator) -> Bits:
        """Leave out nodes on which the pod would be in the way of others that are nominated there."""
        beside = feasible & self._fast.nominated_bits(nominator)
        if not beside:
            return feasible
        column = self._beside(nominator)
        column.learn(beside)
        return feasible & (column.sets.get(None, 0) | ~beside)

    def _beside(self, nominator: Nominator) -> AnswerColumn[Status | None]:
        """The verdicts on going beside those that are nominated to a node: those known for its shape, where they are the same for all its pods."""
        prepared, shape = self._prepared, self.shape
        if (
            self.anew is not None
            or prepared.filters_by_domains()
            or self._fast._ways.looking_beyond
            or nominator.is_nominated(self._pod.uid)
        ):
            return AnswerColumn(None, self._index, self._verdict_beside, outlives=False)
        made_for = (nominator.generation, self._pod.priority)
        if shape.beside is None or prepared.beside_generation[1] != self._pod.priority:
            shape.beside = AnswerColumn(None, self._index, self._verdict_beside)
            prepared.beside_whom = {}
        if prepared.beside_generation != made_for:
            self._forget_beside_others(shape.beside, nominator)
            prepared.beside_generation = made_for
        shape.beside.ask_from_now_on(self._verdict_beside)
        return shape.beside

    def _forget_beside_others(self, column: AnswerColumn[Status | None], nominator: Nominator) -> None:
        """Other pods than before are nominated to some nodes."""
        before = self._prepared.beside_whom
        now: dict[str, Sequence[PodInfo]] = {name: nominator.pods_on(name) for name in nominator.nodes()}
        others = [name for name, pods in now.items() if before.get(name) != pods]
        column.forget(self._index.places.of_those_there(others))
        self._prepared.beside_whom = now

    def _verdict_beside(self, node: NodeInfo) -> Status | None:
        status = self._framework.run_filters(self._complete(), self._pod, node)
        if status is not None and not status.is_rejected:
            raise NotFast("a filter failed")
        return status

    # --- no node --------------------------------------------------------------------------------------------------------

    def nowhere(self) -> FitError:
        """Why no node is left, in groups: each node with what the first filter says that it does not pass."""
        examined, state = self.examined, self._state
        state.skip_filter = self.skipped
        found = self._rejections_beside_nominated()
        left = examined
        for bits in found.values():
            left ^= bits
        for asked in self._fast._ways.filters:
            if asked.name in self.skipped:
                continue
            rejections = [*self.shape.rejections(asked.name, left)] if left else []
            if left and self.anew is not None:
                rejections += self.anew.rejections(asked.name, left)
            for status, bits in rejections:
                found[status] = found.get(status, 0) | bits
                left ^= bits
        assert not left, "a node was ruled out, and no filter says so"
        if not self._fast._post_filter_needs_no_state or any(s.code is Code.UNSCHEDULABLE for s in found):
            # Preemption will try nodes, and others may do what they like: with the state that PreFilter leaves.
            self._complete()
        return self._as_error(list(found.items()))

    def _as_error(self, rejected: list[tuple[Status, Bits]]) -> FitError:
        prepared, examined, anew = self._prepared, self.examined, self.anew
        seen = (self._index.moved, examined, rejected)
        if prepared.nowhere is None or prepared.nowhere[:3] != seen or anew is not None:
            narrowers = tuple(sorted((*prepared.narrowers, *(anew.narrowers if anew else ()))))
            diagnosis = Diagnosis(narrowers)
            if narrowers:
                diagnosis.leave_out(narrowers)
            diagnosis.reject_nodes(NodeStatuses(rejected, self._index))
            prepared.nowhere = (*seen, diagnosis)
        count = (
            self._framework.snapshot.node_count if self.among is self._index.all else self.among.bit_count()
        )
        return FitError(count, prepared.nowhere[3])

    def _rejections_beside_nominated(self) -> dict[Status, Bits]:
        """Return the verdicts on the nodes to which pods are nominated. Raises NotFast if a plugin fails."""
        nominator = self._framework.nominated
        assert isinstance(nominator, Nominator)
        beside = self.examined & self._fast.nominated_bits(nominator)
        if not beside:
            return {}
        groups = self._beside(nominator).groups(beside)
        if any(status is None for status, _ in groups):
            raise NotFast("a filter failed")
        return {status: bits for status, bits in groups if status is not None}
