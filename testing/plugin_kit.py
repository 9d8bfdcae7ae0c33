"""The conformance kit: holds a plugin to what it promises the framework. For plugins of this package and of others.

    from tidelog.testing.plugin_kit import check_plugin

    def test_my_plugin_keeps_its_promises():
        check_plugin(MyPlugin, MyArgs(limit=3))

A promise that is broken is worse than a plugin that is wrong: the framework keeps answers, skips pods and undoes placements on
the strength of it. The promises, each with a check of its own:

- `hints` are sound: when a change lets the plugin accept a node that it rejected, one of its hints says Queue.
- `hooks` are exact: adding a pod to a node and removing it again changes no answer, and in between the answers are those of a
  cluster that really has the pod.
- `filter dependencies` and `score dependencies` are true: an answer does not change when something changes that the plugin says
  it does not depend on.
- `preparation` and `score preparation` look at the pod only: what PreFilter and PreScore have left holds in every cluster, where the declaration promises that.
- `shape`: pods that `sign_pod` signs alike, or that differ in name, uid and status only, get the same answers; a signature is made of `signed_parts` only.
- `scores` are scores: after normalisation one integer from 0 to 100 for every node, and so if each distinct raw score is normalised once.

Every check tries many random clusters and counts the cases that said something about the plugin; a check that never met such a
case has shown nothing, and fails. Raises `BrokenPromise` with the number of the trial, which finds the same cluster again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Node, Object, Pod
from tidelog.framework.behaviours import BEHAVIOURS
from tidelog.framework.events import ClusterEvent, EventRegistration, Hint, matches
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    NormalizeScore,
    Plugin,
    PodHooks,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.nominations import FixedNominations, NominatedPods
from tidelog.framework.object_events import Rules, effects, pod_events
from tidelog.framework.offers import EVERYTHING, PodParts, SignsAttempts, SignsPods
from tidelog.framework.preemption_plan import PreemptionPort
from tidelog.scheduler.node_facts import nodes_told_of
from tidelog.testing.plugin_worlds import SCHEDULER, Dice, Happening, World, WorldCluster

__all__ = ["BrokenPromise", "Dice", "World", "WorldCluster", "check_plugin"]

TRIALS = 300
_EXCLUDED = unresolvable("not among the nodes of PreFilter")


class BrokenPromise(AssertionError):
    """The plugin does not do what it declares, or the check could not show that it does."""


class StandardHandle:
    """A handle for plugins under test; the cluster can be exchanged between attempts."""

    def __init__(self, cluster: WorldCluster, features: FeatureGates, *, upstream: bool) -> None:
        self.snapshot = cluster
        self.features = features
        self.upstream = upstream
        self.preemption: PreemptionPort | None = None
        self.nominated: NominatedPods = FixedNominations()
        self.fallback_only_if_rejected_by_spread = False
        self.guard_starting_pods = True

    @property
    def listers(self) -> WorldCluster:
        return self.snapshot

    def behaves(self, number: int) -> bool:
        """Plugins are held to what they do today."""
        return number in BEHAVIOURS


class WaitingSubject:
    """The waiting pod that hints judge."""

    def __init__(self, pod: Pod, plugin: str) -> None:
        self.pod = pod
        self.attempted_at = 0
        self.first_rejected_at: Mapping[str, int] = {plugin: 0}
        self.blocked_by: tuple[str, ...] = ()
        self.fallback_node = ""
        self.fallback_constraints: tuple[int, ...] = ()


class Subject:
    """The plugin under test, asked as the framework asks it."""

    def __init__(self, plugin: type[Plugin], args: Any, features: FeatureGates, *, upstream: bool) -> None:
        self.handle = StandardHandle(WorldCluster(), features, upstream=upstream)
        if args is None and plugin.Args is not None:
            args = plugin.Args()
        self.plugin = plugin(args, self.handle)
        self.filters = isinstance(self.plugin, FilterPlugin | PreFilterPlugin)
        self.scores = isinstance(self.plugin, ScorePlugin)
        self.gates = isinstance(self.plugin, PreEnqueuePlugin)

    def pre_filter(
        self, cluster: WorldCluster, pod: PodInfo
    ) -> tuple[CycleState, Status | frozenset[str] | None]:
        """The state, and: None, the only nodes that can do, a rejection, or SKIP."""
        self.handle.snapshot = cluster
        state = CycleState()
        if not isinstance(self.plugin, PreFilterPlugin):
            return state, None
        result = self.plugin.pre_filter(state, pod, cluster.nodes)
        return state, result.status or result.nodes

    def depends(self, declared: Depends) -> Depends:
        """The part of a declaration that the signature of an attempt does not cover."""
        if not isinstance(self.plugin, SignsAttempts):
            return declared
        return declared & ~getattr(self.plugin, "signed_depends", Depends.POD)

    def signature(self, cluster: WorldCluster, target: Pod) -> object:
        """The plugin's of an attempt, if it gives one."""
        if not isinstance(self.plugin, SignsAttempts):
            return None
        self.handle.snapshot = cluster
        found = self.plugin.sign_attempt(CycleState(), PodInfo(target))
        return msgspec.to_builtins(found, enc_hook=repr)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self.plugin.filter(state, pod, node) if isinstance(self.plugin, FilterPlugin) else None

    def verdicts(self, cluster: WorldCluster, target: Pod) -> dict[str, Status | None]:
        """The verdict on each node of an attempt with this plugin alone."""
        pod = PodInfo(target)
        state, first = self.pre_filter(cluster, pod)
        if isinstance(first, Status):
            return dict.fromkeys(cluster.node_objects, None if first.code is Code.SKIP else first)
        return {
            node.name: self.filter(state, pod, node) if first is None or node.name in first else _EXCLUDED
            for node in cluster.nodes
        }

    def raw_score(self, cluster: WorldCluster, target: Pod, node: str) -> Any:
        """The score before normalisation, all nodes being feasible; what PreScore says if it stops there."""
        pod = PodInfo(target)
        state = self._prescored(cluster, cluster, pod)
        if isinstance(state, Status):
            return state
        found = cluster.get(node)
        assert found is not None
        return cast(ScorePlugin, self.plugin).score(state, pod, found)

    def raw_scores(self, prepared: WorldCluster, cluster: WorldCluster, pod: PodInfo) -> list[Any] | Status:
        """The same of all nodes, where PreFilter and PreScore ran in another cluster."""
        state = self._prescored(prepared, cluster, pod)
        if isinstance(state, Status):
            return state
        return [cast(ScorePlugin, self.plugin).score(state, pod, node) for node in cluster.nodes]

    def _prescored(self, prepared: WorldCluster, cluster: WorldCluster, pod: PodInfo) -> CycleState | Status:
        state = self.filtered(cluster, pod, prepared)
        if isinstance(self.plugin, PreScorePlugin):
            self.handle.snapshot = prepared
            status = self.plugin.pre_score(state, pod, prepared.nodes)
            self.handle.snapshot = cluster
            if status is not None:
                return status
        return state

    def filtered(
        self, cluster: WorldCluster, pod: PodInfo, prepared: WorldCluster | None = None
    ) -> CycleState:
        """The state after Filter, which may have found out what a score is made of; PreFilter may have run in another cluster."""
        state, first = self.pre_filter(cluster if prepared is None else prepared, pod)
        self.handle.snapshot = cluster
        if not isinstance(first, Status):
            for node in cluster.nodes:
                self.filter(state, pod, node)
        return state

    def says_queue(self, events: Iterable[tuple[ClusterEvent, Any, Any]], target: Pod) -> bool:
        """Whether one of the events would bring the waiting pod back. A hint that raises counts as Queue."""
        registrations = self.plugin.events_to_register()
        if registrations is None:
            return True
        waiting = WaitingSubject(target, self.plugin.name)
        return any(
            _answer(registration, waiting, old, new) is Hint.QUEUE
            for event, old, new in events
            for registration in registrations
            if matches(registration.event, event)
        )


def _answer(registration: EventRegistration, waiting: WaitingSubject, old: Any, new: Any) -> Hint:
    if registration.hint is None:
        return Hint.QUEUE
    try:
        return registration.hint(waiting, old, new)
    except Exception:
        return Hint.QUEUE


# --- all of it ----------------------------------------------------------------------------------------------------------


def check_plugin(
    plugin: type[Plugin],
    args: Any = None,
    *,
    world: World | None = None,
    features: FeatureGates | None = None,
    upstream: bool = False,
    trials: int = TRIALS,
    first_trial: int = 0,
) -> dict[str, int]:
    """Every check that applies to the plugin. Returns how many telling cases each one met."""
    subject = Subject(plugin, args, features or FeatureGates(), upstream=upstream)
    world = world or World()
    met = {
        name: sum(trial_of(subject, world, first_trial + i) for i in range(trials))
        for name, trial_of in _applicable(subject).items()
    }
    for name, count in met.items():
        if not count:
            raise BrokenPromise(
                f"{plugin.name}: the check of {name} met no telling case in {trials} trials: "
                "give it a World in which the plugin has something to do"
            )
    return met


Trial = Callable[[Subject, World, int], bool]
"""Tries one random case; true if it was a telling one."""


def _applicable(subject: Subject) -> dict[str, Trial]:
    trials: dict[str, Trial] = {}
    if subject.filters or subject.gates:
        trials["hints"] = _hint_trial
    if subject.filters:
        trials["hooks"] = _hook_trial
        if Depends.CLUSTER not in subject.depends(subject.plugin.filter_depends):
            trials["filter dependencies"] = _filter_dependency_trial
        if not subject.depends(subject.plugin.filter_depends) & _BEYOND:
            trials["preparation"] = _preparation_trial
    if subject.scores:
        trials["scores"] = _score_trial
        if Depends.CLUSTER not in subject.depends(subject.plugin.score_depends):
            trials["score dependencies"] = _score_dependency_trial
        if (
            isinstance(subject.plugin, PreScorePlugin)
            and not subject.depends(subject.plugin.score_depends) & _BEYOND
        ):
            trials["score preparation"] = _score_preparation_trial
    if subject.filters or subject.scores:
        trials["shape"] = _shape_trial
    return trials


def _broken(subject: Subject, trial: int, what: str) -> BrokenPromise:
    return BrokenPromise(f"{subject.plugin.name}, trial {trial}: {what}")


# --- hints --------------------------------------------------------------------------------------------------------------


STEPS = 6
"""Things tried on each cluster: few of them help anybody."""


def _hint_trial(subject: Subject, world: World, trial: int) -> bool:
    dice = Dice(trial)
    cluster, target = world.cluster(dice), world.target(dice)
    told = [
        _hint_step(subject, cluster, target, world.step(dice, cluster, target), trial) for _ in range(STEPS)
    ]
    return any(told)


def _hint_step(subject: Subject, cluster: WorldCluster, target: Pod, step: Happening, trial: int) -> bool:
    helped = _what_it_helped(subject, cluster, target, step.cluster, step.target)
    if helped is None:
        return False
    events = _events(step, target, upstream=subject.handle.upstream)
    if not subject.says_queue(events, step.target):
        labels = ", ".join(event.label for event, _, _ in events) or "no event at all"
        what = f"{helped}, yet no hint says Queue to {labels}"
        told = f"old: {_json(step.old)}\n  new: {_json(step.new)}\n  waiting: {_json(step.target)}"
        raise _broken(subject, trial, f"{what}\n  {told}")
    return True


def _events(step: Happening, before: Pod, *, upstream: bool) -> list[tuple[ClusterEvent, Any, Any]]:
    if step.of_target:
        own = pod_events(before, step.target, target=True, upstream=upstream)
        return [(event, step.old, step.new) for event in own]
    rules = Rules(schedulers=(SCHEDULER,), upstream=upstream)
    raised = [one for effect in effects(step.old, step.new, rules) for one in effect.raised]
    return [(one.event, one.old, one.new) for one in raised]


def _what_it_helped(
    subject: Subject, before: WorldCluster, old: Pod, after: WorldCluster, new: Pod
) -> str | None:
    """Which node, or the gate, the plugin lets the pod pass now and did not before. Only of a pod that it rejected."""
    if isinstance(subject.plugin, PreEnqueuePlugin):
        was_gated, is_gated = (subject.plugin.pre_enqueue(pod) is not None for pod in (old, new))
        if was_gated or is_gated:
            return None if is_gated else "the gate opened"
    rejected = subject.verdicts(before, old)
    if all(status is None for status in rejected.values()):
        return None
    accepted = [name for name, status in subject.verdicts(after, new).items() if status is None]
    opened = [name for name in accepted if rejected.get(name, _EXCLUDED) is not None]
    return f"{opened[0]} became possible" if opened else None


# --- hooks --------------------------------------------------------------------------------------------------------------


def _hook_trial(subject: Subject, world: World, trial: int) -> bool:
    dice = Dice(trial)
    cluster, target = world.cluster(dice), PodInfo(world.target(dice))
    state, first = subject.pre_filter(cluster, target)
    if isinstance(first, Status):
        return False  # Skipped or rejected: the hooks are not called.
    more = world.occupant(dice, "more", dice.pick(list(cluster.node_objects)))
    told = _there_and_back(subject, cluster, state, target, more, trial, adding=True)
    if cluster.pods:
        less = dice.pick(list(cluster.pods.values()))
        told = _there_and_back(subject, cluster, state, target, less, trial, adding=False) or told
    return told or not isinstance(subject.plugin, PodHooks)


def _there_and_back(
    subject: Subject,
    cluster: WorldCluster,
    state: CycleState,
    target: PodInfo,
    moved: Pod,
    trial: int,
    *,
    adding: bool,
) -> bool:
    """Move a pod and move it back, and compare with a cluster in which that is so. True if it made a difference."""
    original = cluster.nodes
    before = _ask_all(subject, state, target, original)
    place = next(node for node in original if node.name == moved.spec.node_name).clone()
    nodes = [place if node.name == place.name else node for node in original]
    moving, info = state.clone(), PodInfo(moved)
    _move(subject, moving, target, info, place, adding=adding)
    between = _ask_all(subject, moving, target, nodes)
    untouched = _ask_all(subject, state, target, original)
    truth = cluster.with_object(moved) if adding else cluster.without_object(moved)
    fresh = subject.verdicts(truth, target.pod)
    fresh = {name: status for name, status in fresh.items() if status is not _EXCLUDED}
    between = {name: status for name, status in between.items() if name in fresh}
    subject.handle.snapshot = cluster
    _move(subject, moving, target, info, place, adding=not adding)
    after = _ask_all(subject, moving, target, nodes)
    verb = "adding" if adding else "removing"
    told = f"\n  pod: {_json(moved)}\n  waiting: {_json(target.pod)}"
    if between != fresh:
        what = f"after {verb} a pod: {_first_difference(fresh, between)}{told}"
        raise _broken(subject, trial, what)
    if after != before:
        what = f"after {verb} a pod and undoing it: {_first_difference(before, after)}{told}"
        raise _broken(subject, trial, what)
    if untouched != before:
        what = (
            f"{verb} a pod in a clone of the state changed the original: what it keeps needs a clone(){told}"
        )
        raise _broken(subject, trial, what)
    return between != before


def _move(
    subject: Subject, state: CycleState, target: PodInfo, moved: PodInfo, place: NodeInfo, *, adding: bool
) -> None:
    """The node first, then the hook, as preemption and nominations do."""
    if adding:
        place.add_pod(moved)
    else:
        place.remove_pod(moved)
    if isinstance(subject.plugin, PodHooks):
        hook = subject.plugin.add_pod if adding else subject.plugin.remove_pod
        hook(state, target, moved, place)


def _ask_all(
    subject: Subject, state: CycleState, target: PodInfo, nodes: Iterable[NodeInfo]
) -> dict[str, Status | None]:
    return {node.name: subject.filter(state, target, node) for node in nodes}


def _first_difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    name = next(name for name in wanted if wanted[name] != found[name])
    return f"{name} should be {_shown(wanted[name])}, is {_shown(found[name])}"


def _shown(answer: Any) -> str:
    if isinstance(answer, Status):
        return f"{answer.code.value} ({answer.message})"
    return "accepted" if answer is None else str(answer)


def _json(obj: Any) -> str:
    return msgspec.json.encode(obj).decode()


# --- dependencies -------------------------------------------------------------------------------------------------------


def _filter_dependency_trial(subject: Subject, world: World, trial: int) -> bool:
    def ask(cluster: WorldCluster, target: Pod, node: str) -> Any:
        return subject.verdicts(cluster, target)[node]

    return _dependency_trial(subject, world, trial, subject.depends(subject.plugin.filter_depends), ask)


def _score_dependency_trial(subject: Subject, world: World, trial: int) -> bool:
    depends = subject.depends(subject.plugin.score_depends)
    return _dependency_trial(subject, world, trial, depends, subject.raw_score)


def _dependency_trial(
    subject: Subject, world: World, trial: int, depends: Depends, ask: Callable[[WorldCluster, Pod, str], Any]
) -> bool:
    dice = Dice(trial)
    cluster, target = world.cluster(dice), world.target(dice)
    node = dice.pick(list(cluster.node_objects))
    disturbed = disturb(dice, world, cluster, node, depends)
    if subject.signature(cluster, target) != subject.signature(disturbed, target):
        return False
    answer = ask(cluster, target, node)
    again = ask(disturbed, target, node)
    if again != answer:
        what = f"{depends!r}, but something else changed what it says of {node}"
        differing = [
            f"{name} was {_told(cluster, name)}\n    and is {_told(disturbed, name)}"
            for name in sorted({*cluster.node_objects, *disturbed.node_objects})
        ]
        told = "\n  ".join([f"{what}: {_shown(answer)} became {_shown(again)}", *differing])
        raise _broken(subject, trial, f"{told}\n  waiting: {_json(target)}")
    return answer not in (None, 0, SKIP)


_BEYOND = Depends.DOMAINS | Depends.ALL_NODES | Depends.CLUSTER


def _two_clusters(world: World, trial: int) -> tuple[WorldCluster, WorldCluster, PodInfo]:
    """They have nothing in common but the waiting pod."""
    dice = Dice(trial)
    cluster, target = world.cluster(dice), PodInfo(world.target(dice))
    return cluster, disturb(dice, world, cluster, next(iter(cluster.node_objects)), Depends.POD), target


def _preparation_trial(subject: Subject, world: World, trial: int) -> bool:
    """PreFilter runs in another cluster; Filter must not notice."""
    cluster, other, target = _two_clusters(world, trial)
    if subject.signature(cluster, target.pod) != subject.signature(other, target.pod):
        return False
    wanted, elsewhere = (subject.pre_filter(where, target) for where in (cluster, other))
    found = []
    for state, first in (wanted, elsewhere):
        subject.handle.snapshot = cluster
        found.append(first if first is not None else _ask_all(subject, state, target, cluster.nodes))
    if found[0] != found[1]:
        what = "PreFilter looks at more than the pod, though filter_depends promises that it does not"
        raise _broken(subject, trial, f"{what}: {found[1]} after another cluster, {found[0]} after this one")
    return found[0] != SKIP


def _score_preparation_trial(subject: Subject, world: World, trial: int) -> bool:
    """PreFilter and PreScore run in another cluster; Score must not notice."""
    cluster, other, target = _two_clusters(world, trial)
    if subject.signature(cluster, target.pod) != subject.signature(other, target.pod):
        return False
    found = [subject.raw_scores(where, cluster, target) for where in (cluster, other)]
    if found[0] != found[1]:
        what = "PreScore looks at more than the pod, though score_depends promises that it does not"
        raise _broken(subject, trial, f"{what}: {found[1]} after another cluster, {found[0]} after this one")
    return isinstance(found[0], list) and any(found[0])


def _shape_trial(subject: Subject, world: World, trial: int) -> bool:
    """Another pod that is signed alike."""
    dice = Dice(trial)
    cluster, target = world.cluster(dice), world.target(dice)
    _check_parts(subject, trial, cluster, target, world.target(Dice(-1 - trial)))
    other = _signed_alike(subject, dice, world, target, cluster)
    if subject.signature(cluster, target) != subject.signature(cluster, other):
        return False
    answers = [_all_answers(subject, cluster, pod) for pod in (target, other)]
    if answers[0] != answers[1]:
        what = "pods that are signed alike get other answers"
        told = f"\n  one: {_json(target)}\n  other: {_json(other)}"
        raise _broken(subject, trial, f"{what}: {answers[0]} and {answers[1]}{told}")
    return any(answer not in (None, 0, SKIP) for answer in answers[0])


def _check_parts(subject: Subject, trial: int, cluster: WorldCluster, target: Pod, drawn: Pod) -> None:
    """With what another pod has in place of the parts of which the signature is not made, it is the same."""
    plugin = subject.plugin
    parts = getattr(plugin, "signed_parts", EVERYTHING)
    if not isinstance(plugin, SignsPods) or parts is EVERYTHING:
        return
    subject.handle.snapshot = cluster
    meta, spec = target.metadata, target.spec
    if PodParts.LABELS not in parts:
        meta = replace(meta, labels=drawn.metadata.labels, owner_references=drawn.metadata.owner_references)
    if PodParts.ANNOTATIONS not in parts:
        meta = replace(meta, annotations={"drawn": "yes"})
    if PodParts.REQUESTS not in parts:
        asking = [one.resources for one in drawn.spec.containers][: len(spec.containers)]
        those = [replace(one, resources=what) for one, what in zip(spec.containers, asking, strict=False)]
        spec = replace(spec, containers=(*those, *spec.containers[len(those) :]))
    if PodParts.SPEC not in parts:
        resources = [one.resources for one in spec.containers]
        those = [
            replace(one, resources=what) for one, what in zip(drawn.spec.containers, resources, strict=False)
        ]
        spec = replace(drawn.spec, containers=(*those, *spec.containers[len(those) :]))
    other = replace(target, metadata=meta, spec=spec)
    signed, again = plugin.sign_pod(PodInfo(target)), plugin.sign_pod(PodInfo(other))
    if signed != again:
        what = "a pod that differs only in parts that signed_parts leaves out is signed otherwise"
        raise _broken(subject, trial, f"{what}: {again} of {_json(other)}, {signed} of {_json(target)}")


_PARTS = ("containers", "node_selector", "affinity", "tolerations", "topology_spread_constraints", "volumes", "resource_claims")  # fmt: skip


def _signed_alike(subject: Subject, dice: Dice, world: World, target: Pod, cluster: WorldCluster) -> Pod:
    """The pod under another name, and with as much of another pod as the plugin does not sign."""
    other = replace(target, metadata=replace(target.metadata, name="another", uid="another"))
    if not isinstance(subject.plugin, SignsPods):
        return other
    subject.handle.snapshot = cluster
    signed, drawn = subject.plugin.sign_pod(PodInfo(other)), world.target(dice)
    metadata = replace(other.metadata, labels=drawn.metadata.labels, annotations={"drawn": "yes"})
    variants = [replace(other, metadata=metadata)]
    for name in _PARTS:
        variants.append(replace(variants[0], spec=replace(other.spec, **{name: getattr(drawn.spec, name)})))
    alike = [pod for pod in variants if subject.plugin.sign_pod(PodInfo(pod)) == signed]
    return dice.pick(alike) if alike else other


def _all_answers(subject: Subject, cluster: WorldCluster, target: Pod) -> list[Any]:
    found: list[Any] = []
    if subject.filters:
        found.extend(subject.verdicts(cluster, target).values())
    if subject.scores:
        found.extend(subject.raw_score(cluster, target, name) for name in cluster.node_objects)
    return found


def _told(cluster: WorldCluster, node: str) -> str:
    pods = [pod for pod in cluster.pods.values() if pod.spec.node_name == node]
    return f"{_json(cluster.node_objects.get(node))} with {_json(pods)}"


def disturb(dice: Dice, world: World, cluster: WorldCluster, node: str, depends: Depends) -> WorldCluster:
    """The cluster with everything changed that an answer about this node, so declared, does not depend on."""
    by_domain, by_nodes = Depends.DOMAINS in depends, Depends.ALL_NODES in depends
    nodes = {}
    for name, obj in cluster.node_objects.items():
        keeps = Depends.NODE if by_nodes else depends & Depends.NODE if name == node else Depends.POD
        nodes[name] = _disturbed_node(dice, world, obj, keeps, keeps_domain=by_domain)
    if not by_domain and not by_nodes:
        nodes["other"] = world.node(dice, "other")
        nodes.pop(next((name for name in nodes if name != node), ""), None)
    keeps_pods = bool(depends & Depends.OCCUPANTS) or by_domain
    pods = list(cluster.pods.values()) if by_domain else []
    if not by_domain:
        here = [pod for pod in cluster.pods.values() if pod.spec.node_name == node]
        if Depends.PODS in depends:
            pods = here
        elif Depends.LOAD in depends:
            pods = [_another_as_heavy(dice, world, pod, i) for i, pod in enumerate(here)]
        elsewhere = [name for name in nodes if name != node or not keeps_pods]
        pods.extend(world.occupant(dice, f"d{i}", dice.pick(elsewhere)) for i in range(dice.below(6)))
    namespaces = cluster.namespaces.values() if by_domain else [world.namespace(dice, "default")]
    others: Iterable[Object] | None = None
    # Half of the time: else no attempt would be signed as before.
    if cluster.others and not depends & (Depends.STORAGE | Depends.CLUSTER) and dice.chance(50):
        theirs = {object_key(obj): obj for obj in world.others(dice, list(nodes))}
        told: Any = cluster
        # What tells of a node is a part of it.
        kept = keeps_pods or Depends.NODE in depends
        own = {
            object_key(obj): obj for obj in cluster.others if kept and node in nodes_told_of(obj, told, told)
        }
        foreign: Any = WorldCluster(nodes.values(), pods, others=theirs.values())
        others = {
            **{key: obj for key, obj in theirs.items() if node not in nodes_told_of(obj, foreign, foreign)},
            **own,
        }.values()
    services = cluster.services if by_domain else ()
    if others is None:
        return WorldCluster(nodes.values(), pods, namespaces, services, like=cluster)
    return WorldCluster(nodes.values(), pods, namespaces, services, others)


def _disturbed_node(dice: Dice, world: World, old: Node, keeps: Depends, *, keeps_domain: bool) -> Node:
    """Another node of this name, of which some is as it was; where domains count, labels and taints are."""
    if Depends.NODE in keeps:
        return old
    other = world.node(dice, old.metadata.name)
    if Depends.LABELS in keeps or keeps_domain:
        other = replace(other, metadata=old.metadata)
    if Depends.LABELS in keeps:
        status = replace(other.status, images=old.status.images, conditions=old.status.conditions)
        other = replace(other, status=status)
    if Depends.TRAITS in keeps:
        status = replace(other.status, allocatable=old.status.allocatable)
        spec = replace(other.spec, unschedulable=old.spec.unschedulable)
        other = replace(other, status=status, spec=spec)
    if Depends.TRAITS in keeps or keeps_domain:
        other = replace(other, spec=replace(other.spec, taints=old.spec.taints))
    return other


def _another_as_heavy(dice: Dice, world: World, old: Pod, number: int) -> Pod:
    """Another pod that asks for as much, and for the same ports."""
    other = world.occupant(dice, f"w{number}", old.spec.node_name)
    spec = replace(
        other.spec,
        containers=old.spec.containers,
        init_containers=old.spec.init_containers,
        overhead=old.spec.overhead,
        resources=old.spec.resources,
    )
    return replace(other, spec=spec, status=old.status)


# --- scores -------------------------------------------------------------------------------------------------------------


def _score_trial(subject: Subject, world: World, trial: int) -> bool:
    dice = Dice(trial)
    cluster, target = world.cluster(dice), PodInfo(world.target(dice))
    state = subject.filtered(cluster, target)
    plugin = subject.plugin
    if isinstance(plugin, PreScorePlugin) and plugin.pre_score(state, target, cluster.nodes) is not None:
        return False
    raws = scores = [cast(ScorePlugin, plugin).score(state, target, node) for node in cluster.nodes]
    if isinstance(plugin, NormalizeScore):
        scores = plugin.normalize_scores(state, target, cluster.nodes, list(raws))
    if len(scores) != len(cluster.nodes) or not all(type(s) is int and 0 <= s <= 100 for s in scores):
        what = f"scores of {len(cluster.nodes)} nodes must be integers from 0 to 100, are {scores}"
        raise _broken(subject, trial, what)
    if isinstance(plugin, NormalizeScore) and not subject.plugin.score_depends & _BEYOND:
        distinct = list(dict.fromkeys(raws))
        each = plugin.normalize_scores(state, target, (), list(distinct))
        if [dict(zip(distinct, each, strict=True))[raw] for raw in raws] != scores:
            what = f"normalises {raws} to {scores}, but {distinct} to {each}: how many nodes have a score must not matter"
            raise _broken(subject, trial, what)
    return True
