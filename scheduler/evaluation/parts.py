"""Parts of what is prepared for a pod: for each plugin, what PreFilter and PreScore say of such pods, and the domains that it counts.

A plugin reads of a pod what it signs. So its part serves all pods that it signs alike, though other plugins may tell them apart: of pods that differ
in nothing but what they request, only those plugins are asked again that read requests. Plugins that sign the spec alone share one part, and so do those that sign requests.
A part lasts as long as a shape has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import Domains, FollowsMoves, LooksBeyond, SignsAttempts, SignsPods
from tidelog.scheduler.evaluation.asking import (
    Asked,
    Bundle,
    Evaluation,
    Way,
    Ways,
    answered,
    is_skipped,
    pre_filtered,
    skips_score,
)
from tidelog.scheduler.evaluation.kinds import is_searchable
from tidelog.scheduler.evaluation.node_index import NodeIndex


class _OwnState(CycleState):
    """The state of a part: in it are the entries of its plugins alone, and they find what earlier ones left."""

    __slots__ = ("earlier",)

    def __init__(self, earlier: CycleState) -> None:
        super().__init__(earlier.at, earlier.waiting, earlier.turn)
        self.is_shared = True
        self.earlier: CycleState | None = earlier

    def read(self, key: str) -> Any:
        found = super().read(key)
        return self.earlier.read(key) if found is None and self.earlier is not None else found


class Outline(NamedTuple):
    """Which plugins of a part are asked nothing more."""

    silent: frozenset[str]
    """They have nothing to do with such pods."""
    unfiltered: frozenset[str]
    """Their PreFilter skips, or they count no domains."""
    unscored: frozenset[str]
    """Their PreScore skips."""
    counting: frozenset[str]
    """They count domains."""


class Counted:
    """A plugin that counts domains, for all pods that it signs alike; counted anew when nodes came or went, or labels by which it counts have changed, unless it follows that itself."""

    def __init__(
        self, index: NodeIndex, name: str, weight: int, first: Domains, count: Callable[[], Domains | None]
    ) -> None:
        self.name = name
        self.weight = weight
        self._index = index
        self._count = count
        self.now = first
        self._changes = index.changes
        """Those of the index that are followed."""
        self._made_at = index.objects_changed
        self._is_lost = False
        """To follow has failed, so that it has to be counted anew."""

    def follow(self) -> None:
        """Look at the nodes that have changed. The index must be as the snapshot is. Raises NotCountable, for everybody who asks, as long as it is."""
        since, self._changes = self._changes, self._index.changes
        if self._is_lost:
            self._made_at = self._index.objects_changed
            self._count_anew()
        elif since != self._changes:
            self._is_lost = True
            self._follow_since(since)
        self._is_lost = False

    def _follow_since(self, since: int) -> None:
        index = self._index
        has_new_objects = index.objects_changed != self._made_at
        if (has_new_objects and self._is_renewed()) or not (has_new_objects or self.now.reads_pods):
            return
        follow, node_at = self.now.follow, index.node_or_none
        places = index.changed_since(since)
        for place in dict.fromkeys(places) if len(places) > 1 else places:
            node = node_at(place)
            if node is not None:
                follow(place, node)

    def _is_renewed(self) -> bool:
        """Whether nodes came or went, or were relabelled, so that it had to be counted anew."""
        index = self._index
        since, domains = self._made_at, self.now
        self._made_at = index.objects_changed
        relabelled = index.relabelled
        if (
            index.moved <= since
            and not (domains.reads_nodes and index.revised > since)
            and not any(relabelled.get(key, 0) > since for key in domains.reads_labels)
        ):
            return False
        if isinstance(domains, FollowsMoves):
            moves = index.moves_since(since)
            if moves is not None and domains.follow_moves(moves):
                return False
        self._count_anew()
        return True

    def _count_anew(self) -> None:
        now = self._count()
        assert now is not None, f"{self.name} had something to say about such pods"
        self.now = now


class Part:
    """The plugins of a bundle, for all pods that they sign alike."""

    __slots__ = ("__weakref__", "counted", "narrowed", "narrowers", "outline", "state")

    def __init__(
        self,
        framework: Framework,
        ways: Ways,
        index: NodeIndex,
        bundle: Bundle,
        earlier: CycleState,
        pod: PodInfo,
    ) -> None:
        """`earlier` is what earlier plugins left in the state. Raises NotFast, NotCountable, or SelectorError."""
        nodes = framework.snapshot.nodes
        self.state = state = _OwnState(earlier)
        self.narrowed: frozenset[str] | None = None
        """The only nodes that PreFilter leaves, as far as it looks at the pod only."""
        self.narrowers: tuple[str, ...] = ()
        silent = frozenset(plugin.name for plugin in bundle.choosy if not answered(plugin.concerns, pod))
        skipped = []
        for plugin in bundle.pre_filters:
            if plugin.name in silent:
                continue
            result = pre_filtered(plugin, state, pod, nodes)
            if is_skipped(result):
                skipped.append(plugin.name)
            elif result.nodes is not None:
                self.narrowed = result.nodes if self.narrowed is None else self.narrowed & result.nodes
                self.narrowers = (*self.narrowers, plugin.name)
        unscored = [
            plugin.name
            for plugin in bundle.pre_scores
            if plugin.name not in silent and skips_score(plugin, state, pod, nodes)
        ]
        self.counted: list[Counted] = []
        for plugin, weight in bundle.counting:
            counting = partial(answered, plugin.domains, state, pod, index)
            first = counting()
            if first is not None:
                self.counted.append(Counted(index, plugin.name, weight, first, counting))
            elif plugin.name in ways.pre_filtering:
                skipped.append(plugin.name)
        self.outline = Outline(
            silent, frozenset(skipped), frozenset(unscored), frozenset(one.name for one in self.counted)
        )
        state.earlier = None


def _follows_from_signature(asked: Asked) -> bool:
    return isinstance(asked.plugin, SignsPods) and not isinstance(asked.plugin, SignsAttempts | LooksBeyond)


class AskingPlan:
    """How plugins are asked where their parts are outlined so."""

    def __init__(self, framework: Framework, ways: Ways, outlines: Sequence[Outline]) -> None:
        self.silent = frozenset[str]().union(*[one.silent for one in outlines])
        """Plugins that have nothing to do with the pod."""
        self.settling = [p for p in ways.settling if p.name not in self.silent]
        """Plugins of which some are to settle things in the state of each attempt."""
        self.later = framework.later_for(self.silent)
        self.has_plain = not ways.plain <= self.silent
        """Some plugin is asked in each attempt."""
        self.skipped: set[str] = set(self.silent & ways.pre_filtering).union(
            *[one.unfiltered for one in outlines]
        )
        """The plugins that PreFilter skips whatever is counted."""
        counting = frozenset[str]().union(*[one.counting for one in outlines])
        self.all_skipped = self.skipped | (counting & ways.pre_filtering)
        """Those skipped as long as none that counts domains filters."""
        unscored = self.silent.union(*[one.unscored for one in outlines])
        filters = [one for one in ways.filters if one.name not in self.skipped | self.silent]
        scorers = [one for one in ways.scorers if one.name not in unscored]
        by_state = [one for one in scorers if one.way <= Way.STATE]
        self._filters = [one for one in filters if one.way <= Way.STATE]
        self._scorers = [one for one in by_state if not one.normalizes]
        self._raw_scorers = [one for one in by_state if one.normalizes]
        self._node_filters = [one for one in filters if one.way in (Way.OBJECT, Way.NODE)]
        self._node_scorers = [one for one in scorers if one.way in (Way.OBJECT, Way.NODE)]
        self._rooms = [one for one in self._filters if not one.of_traits]
        self._uses = [one for one in self._scorers if not one.of_traits]
        self._most = sum(100 * one.weight for one in self._uses)
        self.skipped_sets: dict[tuple[bool, ...], set[str]] = {}
        """By who of those that count domains has nothing to filter: the plugins skipped then. Nobody changes such a set."""
        self.is_searchable = not (self._node_filters or self._node_scorers) and is_searchable(
            self._filters, self._scorers, self._raw_scorers
        )
        """Whether all plugins that have a say may have bounds."""
        self.by_traits = [one for one in (*self._filters, *by_state) if one.of_traits]
        """The plugins that go by traits."""
        self.shares_kinds = self.is_searchable and all(map(_follows_from_signature, self.by_traits))
        """Pods that these sign alike have what they say in common."""

    def evaluation(self, state: CycleState, pod: PodInfo) -> Evaluation:
        """For this pod."""
        return Evaluation(
            state,
            pod,
            self._filters,
            self._scorers,
            self._raw_scorers,
            self._node_filters,
            self._node_scorers,
            self._rooms,
            self._uses,
            self._most,
        )
