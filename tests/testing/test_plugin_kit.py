"""The conformance kit notices every kind of broken promise, and says where."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.api.objects import Node, Pod
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    Plugin,
    PreFilterResult,
    Status,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import PodParts
from tidelog.testing.plugin_kit import BrokenPromise, Dice, World, check_plugin

NODES = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
PODS = ClusterEvent(Resource.ASSIGNED_POD, Action.ALL)


class SsdOnly(Plugin):
    """Correct: wants a label of the node."""

    name = "SsdOnly"
    filter_depends = Depends.NODE
    score_depends = Depends.NODE

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if node.labels["disk"] == "ssd" else unschedulable("no ssd")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if node.labels["disk"] == "ssd" else 50

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        return [EventRegistration(NODES, self.node_changed)]

    def node_changed(self, waiting: Any, old: Node | None, new: Node) -> Hint:
        return Hint.QUEUE if new.metadata.labels["disk"] == "ssd" else Hint.SKIP


class Crowd:
    """Counts pods of a label, as a plugin's PreFilter state."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def clone(self) -> Crowd:
        return Crowd(dict(self.counts))


class OneWebPod(Plugin):
    """Correct: at most one pod `app=web` on a node, counted ahead and kept by hooks."""

    name = "OneWebPod"
    filter_depends = Depends.DOMAINS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        counts = {node.name: sum(p.labels.get("app") == "web" for p in node.pods.values()) for node in nodes}
        state.write(self.name, Crowd(counts))
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("web is here") if state.read(self.name).counts[node.name] > 0 else None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        state.read(self.name).counts[node.name] += added.labels.get("app") == "web"

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        state.read(self.name).counts[node.name] -= removed.labels.get("app") == "web"

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        return [EventRegistration(NODES), EventRegistration(PODS)]


class Gate(Plugin):
    """Correct: waits until the pod is labelled tier=front."""

    name = "Gate"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return None if pod.metadata.labels.get("tier") == "front" else unschedulable("not in front")

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        return [EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL))]


@pytest.mark.parametrize(
    ("plugin", "checks"),
    [
        (
            SsdOnly,
            {"hints", "hooks", "filter dependencies", "preparation", "scores", "score dependencies", "shape"},
        ),
        (OneWebPod, {"hints", "hooks", "filter dependencies", "shape"}),
        (Gate, {"hints"}),
        (type("Nothing", (Plugin,), {"name": "Nothing"}), set()),
    ],
)
def test_plugin_that_keeps_its_promises_passes_the_checks_that_apply(
    plugin: type[Plugin], checks: set[str]
) -> None:
    met = check_plugin(plugin, trials=100)

    assert set(met) == checks
    assert all(count > 0 for count in met.values())


def test_plugin_that_registers_nothing_is_woken_by_everything() -> None:
    class Unregistered(SsdOnly):
        def events_to_register(self) -> None:
            return None

    assert check_plugin(Unregistered, trials=50)["hints"] > 0


def test_hint_that_raises_counts_as_queue() -> None:
    class Confused(SsdOnly):
        def node_changed(self, waiting: Any, old: Node | None, new: Node) -> Hint:
            raise ValueError("cannot tell")

    assert check_plugin(Confused, trials=50)["hints"] > 0


def test_dependence_on_anything_is_not_checked() -> None:
    class Anything(SsdOnly):
        filter_depends = score_depends = Depends.CLUSTER

    assert set(check_plugin(Anything, trials=50)) == {"hints", "hooks", "scores", "shape"}


# --- broken promises --------------------------------------------------------------------------------------------------------------


class DeafToLabels(SsdOnly):
    def events_to_register(self) -> Sequence[EventRegistration]:
        return [EventRegistration(ClusterEvent(Resource.NODE, Action.ADD), self.node_changed)]


class SkipsNewNodes(SsdOnly):
    def node_changed(self, waiting: Any, old: Node | None, new: Node) -> Hint:
        return Hint.SKIP if old is None else super().node_changed(waiting, old, new)


class DeafGate(Gate):
    def events_to_register(self) -> Sequence[EventRegistration]:
        return []


class DeafFilterBehindGate(DeafToLabels):
    """Its gate is open for all but a few pods, and says nothing of the filter."""

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return unschedulable("held") if pod.metadata.labels.get("app") == "db" else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        own_label = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
        return [*super().events_to_register(), EventRegistration(own_label)]


class NoHooks(OneWebPod):
    add_pod = remove_pod = None  # type: ignore[assignment]


class ForgetsToRemove(OneWebPod):
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        pass


class SharedState(OneWebPod):
    """Keeps a plain dict, which a cloned state shares."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        result = super().pre_filter(state, pod, nodes)
        state.write(self.name, SimpleNamespace(counts=state.read(self.name).counts))
        return result


class SignsLabels(SsdOnly):
    """Says that its signature is made of the spec."""

    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get("app")


class SignsRequests(SsdOnly):
    signed_parts = PodParts.SPEC | PodParts.LABELS

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.requests


class SaysOccupants(SsdOnly):
    filter_depends = Depends.OCCUPANTS


class SaysNode(OneWebPod):
    filter_depends = Depends.NODE


class ScoresByCrowd(SsdOnly):
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods)


class ScoresByCluster(SsdOnly):
    score_depends = Depends.NODE | Depends.OCCUPANTS

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return sum(len(other.pods) for other in self.handle.snapshot.nodes)


class ScoresTooMuch(SsdOnly):
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 101


class ScoresFractions(SsdOnly):
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 0.5  # type: ignore[return-value]


class LosesScores(SsdOnly):
    def normalize_scores(self, state: Any, pod: Any, nodes: Any, scores: list[int]) -> list[int]:
        return scores[1:]


class CountsAhead(Plugin):
    """Says of a node what its pods are; but PreFilter, whose findings may be kept, has looked."""

    name = "CountsAhead"
    filter_depends = Depends.OCCUPANTS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write(self.name, Crowd({node.name: len(node.pods) for node in nodes}))
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("crowded") if state.read(self.name).counts.get(node.name, 0) > 1 else None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        state.read(self.name).counts[node.name] += 1

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        state.read(self.name).counts[node.name] -= 1


class ScoresAhead(Plugin):
    """Says of a node how many pods it has; but PreScore, whose findings may be kept, has looked."""

    name = "ScoresAhead"
    score_depends = Depends.OCCUPANTS

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        state.write(self.name, Crowd({node.name: len(node.pods) for node in nodes}))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return min(100, 10 * state.read(self.name).counts.get(node.name, 0))


class SignsTooLittle(Plugin):
    """Reads a label that it does not sign."""

    name = "SignsTooLittle"
    filter_depends = Depends.NODE

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.namespace

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        is_slow = pod.labels.get("app") == "web" and node.labels["disk"] == "hdd"
        return unschedulable("slow") if is_slow else None


class ReadsNames(SsdOnly):
    """Signs nothing, and reads more than such plugins may."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(pod.name)


class SharesOut(SsdOnly):
    """Two nodes of a score get less than one."""

    def normalize_scores(self, state: Any, pod: Any, nodes: Any, scores: list[int]) -> list[int]:
        return [100 * score // sum(scores) for score in scores]


class ScoresByRank(SsdOnly):
    """Of nodes with one score the first gets more."""

    def normalize_scores(self, state: Any, pod: Any, nodes: Any, scores: list[int]) -> list[int]:
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        return [100 - order.index(place) for place in range(len(scores))]


class NeverScores(SsdOnly):
    """Says nothing of its score, so that nothing can be said of what the score depends on."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status:
        return SKIP


class NeverAsked(SsdOnly):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None


@pytest.mark.parametrize(
    ("plugin", "what"),
    [
        (DeafToLabels, "became possible, yet no hint says Queue to NodeUpdateNodeLabel"),
        (SkipsNewNodes, "new became possible, yet no hint says Queue to NodeAdd"),
        (DeafGate, "the gate opened, yet no hint says Queue to TargetPodUpdatePodLabel"),
        (DeafFilterBehindGate, "became possible, yet no hint says Queue to .*NodeUpdateNodeLabel"),
        (NoHooks, "after (adding|removing) a pod: .* should be (accepted|Unschedulable)"),
        (ForgetsToRemove, "after removing a pod|and undoing it"),
        (SharedState, "changed the original: what it keeps needs a clone"),
        (SignsLabels, "parts that signed_parts leaves out"),
        (SignsRequests, "parts that signed_parts leaves out"),
        (SaysOccupants, "something else changed what it says"),
        (SaysNode, "something else changed what it says"),
        (ScoresByCrowd, "something else changed what it says"),
        (ScoresByCluster, "something else changed what it says"),
        (ScoresTooMuch, "must be integers from 0 to 100"),
        (ScoresFractions, "must be integers from 0 to 100"),
        (LosesScores, "must be integers from 0 to 100"),
        (CountsAhead, "PreFilter looks at more than the pod, though filter_depends promises"),
        (ScoresAhead, "PreScore looks at more than the pod, though score_depends promises"),
        (SignsTooLittle, "pods that are signed alike get other answers"),
        (ReadsNames, "pods that are signed alike get other answers"),
        (SharesOut, "normalises .* how many nodes have a score must not matter"),
        (ScoresByRank, "normalises .* how many nodes have a score must not matter"),
        (NeverScores, "the check of scores met no telling case"),
        (NeverAsked, "the check of hints met no telling case"),
    ],
)
def test_broken_promise_is_found_and_told(plugin: type[Plugin], what: str) -> None:
    with pytest.raises(BrokenPromise, match=what):
        check_plugin(plugin)


def test_trial_named_in_the_message_finds_it_again() -> None:
    with pytest.raises(BrokenPromise) as first:
        check_plugin(SaysOccupants)
    trial = int(str(first.value).split("trial ")[1].split(":")[0])

    with pytest.raises(BrokenPromise) as again:
        check_plugin(SaysOccupants, first_trial=trial, trials=1)

    assert str(again.value) == str(first.value)


# --- worlds -----------------------------------------------------------------------------------------------------------------------


def test_dice_are_the_same_for_the_same_seed() -> None:
    rolls = [Dice(7).below(1000) for _ in range(2)]

    assert rolls == [rolls[0]] * 2
    assert [Dice(7).below(1000), Dice(8).below(1000)] == [487, 622]


def test_own_world_gives_a_plugin_something_to_do() -> None:
    class Colourful(World):
        def node_labels(self, dice: Dice, name: str) -> dict[str, str]:
            return super().node_labels(dice, name) | {"colour": dice.pick(("red", "blue"))}

    class RedOnly(SsdOnly):
        def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
            return None if node.labels.get("colour") == "red" else unschedulable("not red")

        def node_changed(self, waiting: Any, old: Node | None, new: Node) -> Hint:
            return Hint.QUEUE

    with pytest.raises(BrokenPromise, match="met no telling case"):
        check_plugin(RedOnly, trials=50)
    assert check_plugin(RedOnly, world=Colourful(), trials=50)["hints"] > 0
