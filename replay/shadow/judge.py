"""Another scheduler's decision, judged by our plugins in the states that it may have been made in.

    binding     same: the node is among our best · gap: it is feasible, and so many points below · refused: no state lets the pod there
    rejection   agreed: the same reasons with the same numbers · wouldPlace: we find a node · differs: another reason or number

`kube-scheduler` draws lots among equals, so what counts is the set of the best. A rejection with a nomination is a preemption: the node must
be among the best candidates by all criteria, and the victims those that went, or pods that are as important.

In a second mode the same decision is looked at in the state that explained it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.api.objects import Pod
from tidelog.framework.diagnosis import NO_NODES, FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.results import Feasible, NodeScores
from tidelog.plugins.default_preemption.candidates import Candidate, Twin, rank
from tidelog.plugins.default_preemption.plugin import DefaultPreemption
from tidelog.plugins.image_locality import ImageLocality, pod_images, score_of_size
from tidelog.queue.entity import pod_uid
from tidelog.replay.foreign import rejection_shown
from tidelog.replay.shadow import messages
from tidelog.replay.shadow.search import SearchView, Sought, first, is_pending
from tidelog.replay.shadow.world import ShadowStep, ShadowWorld
from tidelog.scheduler.groups.group import group_name

SAMPLED_ABOVE = 100
"""Of more feasible nodes kube-scheduler scores only a part, unless it is told otherwise."""
BEST_MAX = 8


class JudgedChoice(NamedTuple):
    """Which nodes would do for a pod in one state, and how good each is."""

    totals: Mapping[str, int]
    """Of the feasible nodes; all 0 if there was nothing to choose."""
    error: FitError | Status | None = None
    scores: NodeScores | None = None

    @property
    def best(self) -> list[str]:
        top = max(self.totals.values(), default=0)
        return sorted(name for name, total in self.totals.items() if total == top)

    def gap(self, node: str) -> int:
        """How many points a feasible node is below the best."""
        return max(self.totals.values()) - self.totals[node]

    def rank(self, node: str) -> int:
        """Its place among the feasible ones, from 1."""
        mine = self.totals[node]
        return 1 + sum(total > mine for total in self.totals.values())


class ModeVerdict(NamedTuple):
    """The verdict on a decision in one mode."""

    verdict: str
    view: SearchView | None = None
    gap: int = 0
    rank: int = 0
    feasible: int = 0
    best: tuple[str, ...] = ()
    reason: str = ""


def choose(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    nominated: str,
    within: frozenset[str] = frozenset(),
) -> JudgedChoice:
    """Every plugin on every node of the snapshot, or of these."""
    nodes = framework.snapshot.nodes
    if not nodes:
        return JudgedChoice({}, NO_NODES)
    candidates = [node for node in nodes if node.name in within] if within else None
    found = framework.find_feasible(state, pod, nominated_node=nominated, candidates=candidates)
    if not isinstance(found, Feasible):
        return JudgedChoice({}, found)
    if len(found.nodes) == 1:
        return JudgedChoice({found.nodes[0].name: 0})
    scores = framework.score_nodes(state, pod, found.nodes)
    if isinstance(scores, Status):
        return JudgedChoice({}, scores)
    return JudgedChoice(dict(zip((n.name for n in scores.nodes), scores.totals, strict=True)), None, scores)


class PendingPod:
    """A pod whose decision is judged, as the world shows it while it is pending."""

    def __init__(self, world: ShadowWorld, old: Pod) -> None:
        self.world = world
        self.key = f"Pod/{old.metadata.namespace}/{old.metadata.name}"
        self.uid = pod_uid(old)
        self.profile = old.spec.scheduler_name

    def _is_over(self, step: ShadowStep) -> bool:
        """The pod was created or rejected by this record, or lost its last gate."""
        if step.entry.record.key != self.key or not isinstance(step.new, Pod):
            return False
        return not is_pending(step.old if isinstance(step.old, Pod) else None) or is_rejected(step)

    def _pod(self) -> PodInfo | None:
        pod = self.world.pod(self.key, self.uid)
        return PodInfo(pod) if is_pending(pod) and pod is not None else None


# --- bindings -----------------------------------------------------------------------------------------------------------


class BindingJudge(PendingPod):
    """One pod, bound to one node."""

    def __init__(
        self, world: ShadowWorld, old: Pod, node: str, at: int, within: frozenset[str] = frozenset()
    ) -> None:
        """`within`: the nodes of the placement that its group was given; empty for all."""
        super().__init__(world, old)
        self.within = within
        self.node = node
        self.group = group_name(old)
        self.sought = Sought(frozenset((self.uid,)), at, self._is_over, self.group)
        self.nearest: ModeVerdict | None = None
        """The smallest gap so far."""
        self.refusal: ModeVerdict | None = None

    def judge(self) -> tuple[ModeVerdict, ModeVerdict]:
        """In upstream mode, and in the default mode."""
        found = first(self.world, self.sought, self._look)
        if found is not None:
            return found
        world = self.world
        world.refresh()
        upstream = self.nearest or self.refusal or ModeVerdict("refused", reason="the pod was not pending")
        if self.nearest is not None and self.nearest.feasible > SAMPLED_ABOVE:
            text = f"of {self.nearest.feasible} feasible nodes kube-scheduler may score only a part"
            upstream = self.nearest._replace(verdict="sampled", reason=text)
        pod = self._pod()
        view = SearchView(world.seq, self.sought.at, 0, 0)
        return upstream, ModeVerdict("refused") if pod is None else self._in_view("default", pod, view)

    def _look(self, view: SearchView) -> tuple[ModeVerdict, ModeVerdict] | None:
        pod = self._pod()
        if pod is None:
            return None
        found = self._in_view("upstream", pod, view)
        if found.verdict == "same":
            return found, self._in_view("default", pod, view)
        if found.verdict == "refused":
            self.refusal = self.refusal or found
        elif self.nearest is None or _distance(found) < _distance(self.nearest):
            self.nearest = found
        return None

    def _in_view(self, mode: str, pod: PodInfo, view: SearchView) -> ModeVerdict:
        framework = self.world.frameworks[mode].get(self.profile)
        assert framework is not None, f"{self.profile} is no profile"
        # A member of a group is told its node between decision and binding.
        nominated = "" if self.group else pod.pod.status.nominated_node_name
        choice = choose(framework, CycleState(view.at), pod, nominated, self.within)
        best = tuple(choice.best)
        more: dict[str, Any] = {"view": view, "feasible": len(choice.totals), "best": best[:BEST_MAX]}
        if self.node not in choice.totals:
            return ModeVerdict("refused", reason=self._why(choice, framework, nominated), **more)
        if self.node in best:
            return ModeVerdict("same", rank=1, **more)
        images = choice.scores is not None and explained_by_images(
            self.world, framework, pod, choice.scores, self.node
        )
        return ModeVerdict(
            "gap" if not images else "imageGap",
            gap=choice.gap(self.node),
            rank=choice.rank(self.node),
            reason="the sizes or counts of images that kube-scheduler had may make it the best"
            if images
            else "",
            **more,
        )

    def _why(self, choice: JudgedChoice, framework: Framework, nominated: str) -> str:
        if self.world.cluster.snapshot.get(self.node) is None:
            return f"there is no node {self.node}"
        if isinstance(choice.error, Status):
            return choice.error.message
        if isinstance(choice.error, FitError):
            status = choice.error.diagnosis.status_of(self.node)
            return f"{status.plugin}: {', '.join(status.reasons)}"
        if nominated:
            return f"the pod is nominated to {nominated}, which takes it"
        return self._asked_alone(framework)

    def _asked_alone(self, framework: Framework) -> str:
        """Why the node is out although others are not."""
        pod = self._pod()
        node = framework.snapshot.get(self.node)
        if pod is None or node is None:
            return ""
        state = CycleState(self.sought.at)
        outcome = framework.run_pre_filter(state, pod)
        if outcome.nodes is not None and self.node not in outcome.nodes:
            return f"{', '.join(outcome.narrowers)}: names other nodes"
        status = framework.run_filters(state, pod, node)
        return "" if status is None else f"{status.plugin}: {', '.join(status.reasons)}"


def _distance(found: ModeVerdict) -> tuple[bool, int]:
    """How far from the same; what images explain is nearest."""
    return found.verdict != "imageGap", found.gap


def is_rejected(step: ShadowStep) -> bool:
    """The record shows that a pod was rejected."""
    return (
        isinstance(step.new, Pod)
        and rejection_shown(step.old if isinstance(step.old, Pod) else None, step.new) is not None
    )


def explained_by_images(
    world: ShadowWorld, framework: Framework, pod: PodInfo, scores: NodeScores, node: str
) -> bool:
    """Whether a node can be the best with sizes and counts of images as they have been some time."""
    own = scores.plugins.get(ImageLocality.name)
    if own is None:
        return False
    images = pod_images(pod.pod)
    total = len(framework.snapshot.nodes)

    def bounds(there: NodeInfo) -> tuple[int, int]:
        low = high = 0
        for image in images:
            if image in there.images:
                (small, large), (few, many) = world.images.sizes(image), world.images.counts(image)
                low += int(small * (max(few, 1) / total))
                high += int(large * (min(many, total) / total))
        return score_of_size(low, len(images)), score_of_size(high, len(images))

    reached, needed = 0, 0
    for there, whole, score in zip(scores.nodes, scores.totals, own.normalized, strict=True):
        low, high = bounds(there)
        without = whole - own.weight * score
        if there.name == node:
            reached = without + own.weight * high
        else:
            needed = max(needed, without + own.weight * low)
    return reached >= needed


# --- rejections ---------------------------------------------------------------------------------------------------------


class RejectionJudge(PendingPod):
    """One pod that no node could take, and, if it was nominated, the room that is made for it."""

    def __init__(self, world: ShadowWorld, old: Pod, message: str, at: int, evicted: Sequence[Pod]) -> None:
        """`evicted`: who was asked to go about then, on any node, as they were before."""
        super().__init__(world, old)
        self.message = messages.parsed(message)
        self.evicted = evicted
        self.sought = Sought(frozenset((self.uid,)), at, self._is_over)
        self.other: ModeVerdict | None = None
        """The verdict of the first state, if none agrees."""

    def judge(self) -> tuple[ModeVerdict, ModeVerdict]:
        """In upstream mode, and in the default mode."""
        found = first(self.world, self.sought, self._look)
        if found is not None:
            return found
        self.world.refresh()
        view = SearchView(self.world.seq, self.sought.at, 0, 0)
        pod = self._pod()
        default = ModeVerdict("differs") if pod is None else self._in_view("default", pod, view)
        return self.other or ModeVerdict("differs", reason="the pod was not pending"), default

    def _look(self, view: SearchView) -> tuple[ModeVerdict, ModeVerdict] | None:
        pod = self._pod()
        if pod is None:
            return None
        found = self._in_view("upstream", pod, view)
        if found.verdict == "agreed":
            return found, self._in_view("default", pod, view)
        if self.other is None or (self.other.verdict == "wouldPlace" and found.verdict == "differs"):
            self.other = found
        return None

    def _in_view(self, mode: str, pod: PodInfo, view: SearchView) -> ModeVerdict:
        framework = self.world.frameworks[mode][self.profile]
        state = CycleState(view.at)
        nominated = pod.pod.status.nominated_node_name
        choice = choose(framework, state, pod, nominated)
        if choice.totals:
            return ModeVerdict(
                "wouldPlace", view, feasible=len(choice.totals), best=tuple(choice.best)[:BEST_MAX]
            )
        error = choice.error
        if not isinstance(error, FitError):
            text = "" if error is None else error.message
            return ModeVerdict(
                "agreed" if messages.parsed(text) == self.message else "differs", view, reason=text
            )
        statuses = error.diagnosis.statuses(framework.snapshot.nodes)
        result = framework.run_post_filter(state, pod, statuses) if framework.post_filter else None
        if result is not None and result.status is not None:
            error.post_filter_message = result.status.message
        ours = messages.parsed(error.message)
        if ours.reasons != self.message.reasons:
            return ModeVerdict("differs", view, reason=error.message)
        if self.message.placement:
            return self._preemption(framework, state, pod, statuses, view, error.message)
        agrees = ours.preemption == self.message.preemption and not ours.placement
        return ModeVerdict("agreed" if agrees else "differs", view, reason="" if agrees else error.message)

    def _preemption(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        statuses: Mapping[str, Status],
        view: SearchView,
        text: str,
    ) -> ModeVerdict:
        plugin = next((p for p in framework.post_filter if isinstance(p, DefaultPreemption)), None)
        if plugin is None or plugin.handle.preemption is None:
            return ModeVerdict("differs", view, reason=text)
        port = plugin.handle.preemption
        found = plugin.search(port, plugin.allowances(port, state, pod), state, pod, statuses)
        if not found.candidates:
            return ModeVerdict("differs", view, reason=text)
        top = min(rank(candidate, state.at) for candidate in found.candidates)
        best = {c.node: c for c in found.candidates if rank(c, state.at) == top}
        chosen = best.get(self.message.placement)
        names = tuple(sorted(best))[:BEST_MAX]
        if chosen is None:
            return ModeVerdict("differs", view, best=names, reason=text)
        if not self._went(chosen):
            victims = ", ".join(victim.key for victim in chosen.victims)
            return ModeVerdict("differs", view, best=names, reason=f"our victims are {victims}")
        return ModeVerdict("agreed", view, best=names, reason="preemption")

    def _went(self, candidate: Candidate | Twin) -> bool:
        """Our victims are as many as theirs, and each is among those that went, or as important as one of them."""
        if len(candidate.victims) != self.message.victims:
            return False
        wanted = Counter(
            _importance(v.pod) for v in candidate.victims if not v.pod.metadata.deletion_timestamp
        )
        there = Counter(_importance(p) for p in self.evicted if p.spec.node_name == candidate.node)
        return not wanted - there


def _importance(pod: Pod) -> tuple[int, str]:
    return pod.spec.priority or 0, pod.status.start_time
