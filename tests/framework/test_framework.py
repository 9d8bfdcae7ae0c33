"""How the framework treats the answers of plugins, point by point, with plugins that answer what a test tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tidelog.framework.diagnosis import NO_NODES, FitError
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    PermitResult,
    Plugin,
    PostFilterResult,
    PreFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.nominations import FixedNominations
from tidelog.framework.results import Feasible, NodeScores, ScheduleResult
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.registry import POINTS
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import node, pod

PENDING = Status(Code.PENDING, ("not yet",))
WAIT = Status(Code.WAIT)
ERROR = Status(Code.ERROR, ("broken",))
SUCCESS = Status(Code.SUCCESS)
Answers = Any


class Fake(Plugin):
    """Takes part where it is told, and answers what it is told: a value, an exception, or a function of the arguments."""

    calls: list[str]

    def __init__(self, name: str, calls: list[str], **answers: Answers) -> None:
        self.name = name  # type: ignore[misc]
        self.answers = answers
        self.calls = calls

    def answer(self, method: str, *arguments: Any, default: Any = None) -> Any:
        self.calls.append(f"{self.name}.{method}")
        found = self.answers.get(method, default)
        if callable(found) and not isinstance(found, Exception):
            return found(*arguments)
        if isinstance(found, Exception):
            raise found
        return found

    def pre_enqueue(self, incoming: Any) -> Status | None:
        return self.answer("pre_enqueue", incoming)  # type: ignore[no-any-return]

    def pre_filter(self, state: CycleState, incoming: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        found = self.answer("pre_filter", state, incoming, nodes)
        if isinstance(found, PreFilterResult):
            return found
        if isinstance(found, set):
            return PreFilterResult(frozenset(found))
        return PreFilterResult(status=found)

    def filter(self, state: CycleState, incoming: PodInfo, one: NodeInfo) -> Status | None:
        found = self.answer("filter", state, incoming, one)
        return found.get(one.name) if isinstance(found, dict) else found  # type: ignore[no-any-return]

    def post_filter(
        self, state: CycleState, incoming: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult:
        found = self.answer("post_filter", state, incoming, statuses)
        return found if isinstance(found, PostFilterResult) else PostFilterResult(found)

    def pre_score(self, state: CycleState, incoming: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        return self.answer("pre_score", state, incoming, nodes)  # type: ignore[no-any-return]

    def score(self, state: CycleState, incoming: PodInfo, one: NodeInfo) -> int:
        found = self.answer("score", state, incoming, one, default=0)
        return found.get(one.name, 0) if isinstance(found, dict) else found  # type: ignore[no-any-return]

    def reserve(self, state: CycleState, incoming: PodInfo, name: str) -> Status | None:
        return self.answer("reserve", name)  # type: ignore[no-any-return]

    def unreserve(self, state: CycleState, incoming: PodInfo, name: str) -> None:
        self.answer("unreserve", name)

    def permit(self, state: CycleState, incoming: PodInfo, name: str) -> PermitResult:
        found = self.answer("permit", name)
        return found if isinstance(found, PermitResult) else PermitResult(found)

    def pre_bind(self, state: CycleState, incoming: PodInfo, name: str) -> Status | None:
        return self.answer("pre_bind", name)  # type: ignore[no-any-return]

    def bind(self, state: CycleState, incoming: PodInfo, name: str) -> Status | None:
        return self.answer("bind", name)  # type: ignore[no-any-return]

    def post_bind(self, state: CycleState, incoming: PodInfo, name: str) -> None:
        self.answer("post_bind", name)


class Hooked(Fake):
    """Counts the pods on each node in its state, and keeps the count by the hooks."""

    def pre_filter(self, state: CycleState, incoming: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write(self.name, Counts(Counter({one.name: len(one.pods) for one in nodes})))
        return super().pre_filter(state, incoming, nodes)

    def filter(self, state: CycleState, incoming: PodInfo, one: NodeInfo) -> Status | None:
        assert state.read(self.name).counts[one.name] == len(one.pods)
        return super().filter(state, incoming, one)

    def add_pod(self, state: CycleState, incoming: PodInfo, added: PodInfo, one: NodeInfo) -> Status | None:
        state.read(self.name).counts[one.name] += 1
        return self.answer("add_pod", added)  # type: ignore[no-any-return]

    def remove_pod(
        self, state: CycleState, incoming: PodInfo, removed: PodInfo, one: NodeInfo
    ) -> Status | None:
        state.read(self.name).counts[one.name] -= 1
        return self.answer("remove_pod", removed)  # type: ignore[no-any-return]


class Counts:
    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def clone(self) -> Counts:
        return Counts(self.counts.copy())


class Normalizing(Fake):
    """Doubles its raw scores."""

    def normalize_scores(
        self, state: CycleState, incoming: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        return self.answer("normalize", scores, default=[2 * score for score in scores])  # type: ignore[no-any-return]


Make = Callable[..., Fake]


class Rig:
    """A framework of fakes on a cluster of nodes n0, n1, …"""

    def __init__(self, nodes: int = 3, nominated: Mapping[str, Sequence[PodInfo]] | None = None) -> None:
        self.calls: list[str] = []
        self.plugins: list[Fake] = []
        self.cache = Cache()
        for i in range(nodes):
            self.cache.put_node(node(f"n{i}").build())
        self.nominated = FixedNominations(nominated)
        self.weights: dict[str, int] = {}
        self.state = CycleState()
        self.pod = PodInfo(pod("p").priority(5).build())

    def plugin(self, name: str, kind: type[Fake] = Fake, **answers: Answers) -> Rig:
        self.plugins.append(kind(name, self.calls, **answers))
        return self

    @property
    def framework(self) -> Framework:
        """Each fake takes part at the points that it has an answer for."""
        snapshot = Snapshot()
        snapshot.refresh(self.cache)
        points = {
            point: [p for p in self.plugins if methods[0] in p.answers] for point, methods in POINTS.items()
        }
        return Framework(
            "test",
            points,
            FrameworkHandle(snapshot, Listers()),
            weights=self.weights,
            nominated=self.nominated,
        )

    def feasible(self, **options: Any) -> Feasible | FitError | Status:
        return self.framework.find_feasible(self.state, self.pod, **options)

    def fit_error(self, **options: Any) -> FitError:
        found = self.feasible(**options)
        assert isinstance(found, FitError)
        return found

    def names(self, **options: Any) -> list[str]:
        found = self.feasible(**options)
        assert isinstance(found, Feasible)
        return [one.name for one in found.nodes]


# --- PreFilter ------------------------------------------------------------------------------------------------------------


def test_node_sets_are_intersected_and_the_rest_is_told_who_narrowed() -> None:
    rig = (
        Rig(4)
        .plugin("B", pre_filter={"n0", "n1", "gone"})
        .plugin("A", pre_filter={"n1", "n2"})
        .plugin("F", filter=unschedulable("full"))
    )

    error = rig.fit_error()

    assert error.message == ("0/4 nodes are available: 1 full, 3 node(s) didn't satisfy plugin(s) [A B].")
    assert error.unschedulable_plugins == ("A", "B", "F")
    assert rig.calls.count("F.filter") == 1
    assert error.diagnosis.status_of("n0") == unresolvable("node(s) didn't satisfy plugin(s) [A B]")


def test_narrowing_leaves_the_nodes_in_their_order() -> None:
    assert Rig(4).plugin("A", pre_filter={"n3", "n1"}).names() == ["n1", "n3"]


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        ([set()], "node(s) didn't satisfy plugin P0"),
        ([{"n0"}, {"n1"}], "node(s) didn't satisfy plugin(s) [P0 P1] simultaneously"),
    ],
)
def test_an_empty_intersection_rejects_the_pod_and_blames_the_narrowers(
    sets: list[set[str]], reason: str
) -> None:
    rig = Rig()
    for i, names in enumerate(sets):
        rig.plugin(f"P{i}", pre_filter=names)
    rig.plugin("later", pre_filter=None)

    error = rig.fit_error()

    assert error.message == f"0/3 nodes are available: {reason}."
    assert error.unschedulable_plugins == tuple(f"P{i}" for i in range(len(sets)))
    assert "later.pre_filter" not in rig.calls


def test_only_nodes_that_exist_are_examined_and_none_may_be_left() -> None:
    error = Rig(2).plugin("A", pre_filter={"gone"}).fit_error()

    assert error.message == "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [A]."


def test_an_unresolvable_rejection_ends_pre_filter_and_blames_its_plugin_alone() -> None:
    rig = (
        Rig()
        .plugin("N", pre_filter={"n0"})
        .plugin("U", pre_filter=unresolvable("never"))
        .plugin("later", pre_filter=None)
    )

    error = rig.fit_error()

    assert error.message == "0/3 nodes are available: never."
    assert error.unschedulable_plugins == ("U",)
    assert error.diagnosis.status_of("n0") == unresolvable("never").by("U")
    assert "later.pre_filter" not in rig.calls


def test_after_a_resolvable_rejection_the_others_go_on_and_the_last_one_counts() -> None:
    rig = (
        Rig()
        .plugin("N", pre_filter={"n0"})
        .plugin("A", pre_filter=unschedulable("first"))
        .plugin("B", pre_filter=unschedulable("last"))
        .plugin("later", pre_filter=None)
    )

    error = rig.fit_error()

    assert error.message == "0/3 nodes are available: last."
    assert error.unschedulable_plugins == ("B", "N")
    assert error.diagnosis.status_of("n2").code is Code.UNSCHEDULABLE
    assert "later.pre_filter" in rig.calls


@pytest.mark.parametrize("status", [PENDING, WAIT, ERROR])
def test_other_answers_to_pre_filter_are_errors(status: Status) -> None:
    found = Rig().plugin("A", pre_filter=status).feasible()

    assert isinstance(found, Status)
    assert (found.code, found.plugin) == (Code.ERROR, "A")


def test_a_skip_leaves_out_the_filter_and_the_hooks_and_what_the_plugin_returned() -> None:
    nominated = PodInfo(pod("other").priority(9).build())
    rig = Rig(2, {"n0": [nominated]}).plugin(
        "A", Hooked, pre_filter=PreFilterResult(frozenset({"n0"}), SKIP), filter=unschedulable("no")
    )

    assert rig.names() == ["n0", "n1"]
    assert rig.calls == ["A.pre_filter"]


# --- Filter ---------------------------------------------------------------------------------------------------------------


def test_the_first_rejecting_plugin_is_reported_and_blamed_for_its_node() -> None:
    rig = (
        Rig(3)
        .plugin("A", filter={"n0": unschedulable("a")})
        .plugin("B", filter={"n0": unresolvable("b"), "n1": unresolvable("b"), "n2": SUCCESS})
    )

    found = rig.feasible()

    assert isinstance(found, Feasible)
    assert found.diagnosis.node_statuses == {
        "n0": unschedulable("a").by("A"),
        "n1": unresolvable("b").by("B"),
    }
    assert [one.name for one in found.nodes] == ["n2"]


def test_pending_rejects_the_node_and_is_remembered_as_pending() -> None:
    error = Rig(1).plugin("A", filter=PENDING).fit_error()

    assert (error.unschedulable_plugins, error.pending_plugins) == (("A",), ("A",))


@pytest.mark.parametrize("status", [WAIT, SKIP, ERROR])
def test_other_answers_to_filter_fail_the_attempt(status: Status) -> None:
    found = Rig().plugin("A", filter={"n1": status}).feasible()

    assert isinstance(found, Status)
    assert (found.code, found.plugin) == (Code.ERROR, "A")


def test_a_plugin_that_raises_fails_the_attempt_with_its_name() -> None:
    found = Rig().plugin("A", filter=KeyError("x")).feasible()

    assert found == Status(Code.ERROR, ("running Filter plugin \"A\": KeyError: 'x'",), "A")


@pytest.mark.parametrize("point", ["pre_filter", "filter", "post_filter", "reserve", "permit", "bind"])
def test_a_plugin_that_answers_something_else_fails_the_attempt(point: str) -> None:
    """Nothing that a plugin returns stops the scheduler."""

    class Wrong(Fake):
        pass

    setattr(Wrong, point, lambda *_: False)
    framework = Rig(1).plugin("A", Wrong, **{point: None}).framework
    state, incoming = CycleState(), Rig().pod
    runs: dict[str, Callable[[], Any]] = {
        "pre_filter": lambda: framework.find_feasible(state, incoming),
        "filter": lambda: framework.find_feasible(state, incoming),
        "post_filter": lambda: framework.run_post_filter(state, incoming, {}).status,
        "reserve": lambda: framework.run_reserve(state, incoming, "n0"),
        "permit": lambda: framework.run_permit(state, incoming, "n0").status,
        "bind": lambda: framework.run_bind(state, incoming, "n0"),
    }

    status = runs[point]()

    assert status.code is Code.ERROR
    assert status.message.endswith("must be a " + WORDS.get(point, "Status or None"))


WORDS = {"pre_filter": "PreFilterResult", "post_filter": "PostFilterResult", "permit": "PermitResult"}


def test_memory_addresses_do_not_get_into_messages() -> None:
    found = Rig().plugin("A", pre_filter=ValueError(f"bad {object()!r}")).feasible()

    assert isinstance(found, Status)
    assert found.message == 'running PreFilter plugin "A": ValueError: bad <object object at 0x…>'


def test_what_is_no_score_is_shown_without_its_memory_address() -> None:
    of_node, of_placement = scores(Rig(2).plugin("A", score=object())), run_placing_score(object())

    assert isinstance(of_node, Status)
    assert isinstance(of_placement, Status)
    assert of_node.message.endswith(
        "returned the score <object object at 0x…>, which is not an integer in 0..100"
    )
    assert of_placement.message.endswith("returned <object object at 0x…> instead of a finite number")


def test_no_nodes_at_all_is_no_fit_error() -> None:
    rig = Rig(0).plugin("A", filter=unschedulable("no"))

    assert rig.framework.schedule_pod(rig.state, rig.pod, turn=1) is NO_NODES


def test_the_candidates_of_a_placement_are_the_only_nodes_that_count() -> None:
    rig = Rig(5).plugin("A", pre_filter={"n0", "n1"}).plugin("F", filter=unschedulable("full"))
    framework = rig.framework

    found = framework.find_feasible(rig.state, rig.pod, candidates=framework.snapshot.nodes[1:3])

    assert isinstance(found, FitError)
    assert found.message == "0/2 nodes are available: 1 full, 1 node(s) didn't satisfy plugin(s) [A]."


# --- nominated pods -------------------------------------------------------------------------------------------------------


def empty_only(_state: CycleState, _incoming: PodInfo, one: NodeInfo) -> Status | None:
    return unschedulable("occupied") if one.pods else None


def occupied_only(_state: CycleState, _incoming: PodInfo, one: NodeInfo) -> Status | None:
    return None if one.pods else unschedulable("empty")


@pytest.mark.parametrize(("priority", "names"), [(4, ["n0", "n1"]), (5, ["n1"]), (6, ["n1"])])
def test_pods_nominated_with_at_least_the_same_priority_are_counted(priority: int, names: list[str]) -> None:
    other = PodInfo(pod("other").priority(priority).build())
    rig = Rig(2, {"n0": [other]}).plugin("A", Hooked, pre_filter=None, filter=empty_only)

    assert rig.names() == names


def test_the_node_must_also_do_without_the_nominated_pods() -> None:
    other = PodInfo(pod("other").priority(9).build())
    rig = Rig(1, {"n0": [other]}).plugin("A", Hooked, pre_filter=None, filter=occupied_only)

    assert rig.fit_error().message == "0/1 nodes are available: 1 empty."
    assert rig.calls == ["A.pre_filter", "A.add_pod", "A.filter", "A.filter"]


def test_the_pods_own_nomination_does_not_stand_in_its_way() -> None:
    rig = Rig(1)
    rig.nominated = FixedNominations({"n0": [rig.pod]})

    assert rig.plugin("A", filter=empty_only).names() == ["n0"]


def test_the_snapshot_and_the_state_are_as_before() -> None:
    other = PodInfo(pod("other").priority(9).build())
    rig = Rig(1, {"n0": [other]}).plugin("A", Hooked, pre_filter=None, filter=None)
    framework = rig.framework

    framework.find_feasible(rig.state, rig.pod)

    assert framework.snapshot.nodes[0].pods == {}
    assert rig.state.read("A").counts == Counter({"n0": 0})


def test_a_hook_that_fails_fails_the_attempt() -> None:
    other = PodInfo(pod("other").priority(9).build())
    rig = Rig(1, {"n0": [other]}).plugin(
        "A", Hooked, pre_filter=None, filter=None, add_pod=unschedulable("no")
    )

    found = rig.feasible()

    assert isinstance(found, Status)
    assert found.message == 'running PreFilter AddPod plugin "A": Unschedulable: no'


def test_a_hook_that_raises_is_named_with_its_plugin() -> None:
    other = PodInfo(pod("other").build())
    broken = ValueError("broken")
    rig = Rig(1).plugin("A", Hooked, pre_filter=None, filter=None, add_pod=broken, remove_pod=broken)
    framework = rig.framework
    clone = framework.snapshot.nodes[0].clone()
    framework.run_pre_filter(rig.state, rig.pod)

    added = framework.add_pod(rig.state, rig.pod, other, clone)
    removed = framework.remove_pod(rig.state, rig.pod, other, clone)

    assert added is not None
    assert removed is not None
    assert (added.code, added.plugin) == (removed.code, removed.plugin) == (Code.ERROR, "A")
    assert added.message == 'running PreFilter AddPod plugin "A": ValueError: broken'
    assert removed.message == 'running PreFilter RemovePod plugin "A": ValueError: broken'


def test_removing_a_pod_tells_the_hooks() -> None:
    other = PodInfo(pod("other").build())
    rig = Rig(1).plugin("A", Hooked, pre_filter=None, filter=None)
    framework = rig.framework
    clone = framework.snapshot.nodes[0].clone()
    framework.run_pre_filter(rig.state, rig.pod)

    framework.add_pod(rig.state, rig.pod, other, clone)
    status = framework.remove_pod(rig.state, rig.pod, other, clone)

    assert status is None
    assert clone.pods == {}
    assert rig.state.read("A").counts["n0"] == 0


# --- the pod's own nomination ---------------------------------------------------------------------------------------------


def test_the_nominated_node_is_tried_alone_and_taken_unscored() -> None:
    rig = Rig(3).plugin("A", filter=None).plugin("S", score={"n0": 100})

    result = rig.framework.schedule_pod(rig.state, rig.pod, turn=1, nominated_node="n2")

    assert result == ScheduleResult("n2", 1)
    assert rig.calls == ["A.filter"]


@pytest.mark.parametrize("nominated", ["n0", "gone"])
def test_a_nomination_that_is_no_good_is_passed_over(nominated: str) -> None:
    rig = Rig(3).plugin("A", filter={"n0": unschedulable("full")})

    assert rig.names(nominated_node=nominated) == ["n1", "n2"]


def test_a_nominated_node_outside_the_narrowed_ones_is_passed_over() -> None:
    assert Rig(3).plugin("A", pre_filter={"n1"}).names(nominated_node="n2") == ["n1"]


# --- PostFilter -----------------------------------------------------------------------------------------------------------


def post_filter(rig: Rig) -> PostFilterResult:
    return rig.framework.run_post_filter(rig.state, rig.pod, {})


def test_the_first_success_ends_post_filter() -> None:
    rig = (
        Rig()
        .plugin("A", post_filter=unschedulable("no"))
        .plugin("B", post_filter=PostFilterResult(None, "n1"))
        .plugin("C", post_filter=None)
    )

    assert post_filter(rig) == PostFilterResult(None, "n1")
    assert rig.calls == ["A.post_filter", "B.post_filter"]


def test_without_success_the_reasons_add_up_and_the_last_nomination_counts() -> None:
    rig = (
        Rig()
        .plugin("A", post_filter=PostFilterResult(unschedulable("a"), ""))
        .plugin("B", post_filter=unschedulable("b"))
        .plugin("C", post_filter=PENDING)
    )

    assert post_filter(rig) == PostFilterResult(unschedulable("a", "b", "not yet").by("A"), "")


def test_an_unresolvable_answer_ends_post_filter() -> None:
    rig = Rig().plugin("A", post_filter=unresolvable("never")).plugin("B", post_filter=None)

    assert post_filter(rig) == PostFilterResult(unresolvable("never").by("A"))
    assert rig.calls == ["A.post_filter"]


@pytest.mark.parametrize("answer", [ERROR, WAIT, SKIP, ValueError("x")])
def test_other_answers_to_post_filter_are_errors(answer: Answers) -> None:
    result = post_filter(Rig().plugin("A", post_filter=answer).plugin("B", post_filter=None))

    assert result.status is not None
    assert (result.status.code, result.status.plugin) == (Code.ERROR, "A")


# --- scores ---------------------------------------------------------------------------------------------------------------


def scores(rig: Rig) -> NodeScores | Status:
    framework = rig.framework
    return framework.score_nodes(rig.state, rig.pod, framework.snapshot.nodes)


def test_totals_are_the_weighted_sums_of_normalized_scores() -> None:
    rig = Rig(2).plugin("A", score={"n0": 10, "n1": 20}).plugin("B", Normalizing, score={"n0": 50, "n1": 5})
    rig.weights = {"A": 3}

    found = scores(rig)

    assert isinstance(found, NodeScores)
    assert found.totals == [3 * 10 + 100, 3 * 20 + 10]
    assert found.plugins["B"] == (1, [50, 5], [100, 10])


def test_a_plugin_that_skips_is_left_out() -> None:
    rig = Rig(1).plugin("A", pre_score=SKIP, score=7).plugin("B", pre_score=None, score=5)

    found = scores(rig)

    assert isinstance(found, NodeScores)
    assert list(found.plugins) == ["B"]
    assert "A.score" not in rig.calls


@pytest.mark.parametrize(
    "answers",
    [
        {"pre_score": unschedulable("no"), "score": 1},
        {"pre_score": ValueError("x"), "score": 1},
        {"score": ValueError("x")},
        {"score": 101},
        {"score": -1},
        {"score": 1.5},
        {"score": True},
        {"score": 1, "normalize": None},
        {"score": 1, "normalize": [1]},
    ],
)
def test_whatever_goes_wrong_in_scoring_is_an_error(answers: dict[str, Any]) -> None:
    found = scores(Rig(2).plugin("A", Normalizing if "normalize" in answers else Fake, **answers))

    assert isinstance(found, Status)
    assert (found.code, found.plugin) == (Code.ERROR, "A")


def test_a_single_feasible_node_is_not_scored() -> None:
    rig = Rig(2).plugin("A", filter={"n0": unschedulable("full")}).plugin("S", pre_score=None, score=1)

    result = rig.framework.schedule_pod(rig.state, rig.pod, turn=1)

    assert result == ScheduleResult("n1", 1)
    assert not any(call.startswith("S.") for call in rig.calls)


# --- the choice among equals ----------------------------------------------------------------------------------------------


def picks(rig: Rig, turns: Sequence[int]) -> list[str]:
    framework, found = rig.framework, []
    for turn in turns:
        result = framework.schedule_pod(CycleState(), rig.pod, turn=turn)
        assert isinstance(result, ScheduleResult)
        found.append(result.node)
    return found


def test_only_the_best_are_chosen_and_all_of_them_in_turn() -> None:
    rig = Rig(6).plugin("S", score={"n1": 9, "n2": 9, "n5": 9, "n0": 8})

    found = picks(rig, range(1, 200))

    assert set(found) == {"n1", "n2", "n5"}
    assert picks(rig, range(1, 200)) == found


def test_equally_good_nodes_are_told() -> None:
    rig = Rig(4).plugin("S", score={"n1": 9, "n2": 9})

    result = rig.framework.schedule_pod(rig.state, rig.pod, turn=3)

    assert isinstance(result, ScheduleResult)
    assert result.feasible == 4
    assert result.scores is not None
    _, tied = rig.framework.select(result.scores, 3)
    assert [node.name for node in tied] == ["n1", "n2"]


# --- after the choice -----------------------------------------------------------------------------------------------------


def test_a_failed_reservation_undoes_all_in_reverse() -> None:
    rig = (
        Rig().plugin("A", reserve=None).plugin("B", reserve=unschedulable("taken")).plugin("C", reserve=None)
    )

    status = rig.framework.run_reserve(rig.state, rig.pod, "n0")

    assert status == unschedulable("taken").by("B")
    assert rig.calls == ["A.reserve", "B.reserve", "C.unreserve", "B.unreserve", "A.unreserve"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (PENDING, Code.PENDING),
        (ERROR, Code.ERROR),
        (WAIT, Code.ERROR),
        (SKIP, Code.ERROR),
        (KeyError(), Code.ERROR),
    ],
)
def test_reserve_rejects_or_fails(answer: Answers, code: Code) -> None:
    status = Rig().plugin("A", reserve=answer).framework.run_reserve(CycleState(), Rig().pod, "n0")

    assert status is not None
    assert (status.code, status.plugin) == (code, "A")


def test_everybody_unreserves_even_after_one_that_raised() -> None:
    rig = Rig().plugin("A", reserve=None).plugin("B", reserve=None, unreserve=ValueError("x"))

    status = rig.framework.run_unreserve(rig.state, rig.pod, "n0")

    assert status is not None
    assert status.plugin == "B"
    assert rig.calls == ["B.unreserve", "A.unreserve"]


def permit(rig: Rig) -> tuple[Status | None, tuple[tuple[str, int], ...]]:
    return rig.framework.run_permit(rig.state, rig.pod, "n0")


def test_all_are_asked_for_a_permit_even_if_one_waits() -> None:
    rig = (
        Rig()
        .plugin("A", permit=PermitResult(WAIT, 1.5))
        .plugin("B", permit=None)
        .plugin("C", permit=PermitResult(WAIT, 3600))
    )

    assert permit(rig) == (WAIT, (("A", 1_500_000_000), ("C", 900_000_000_000)))
    assert rig.calls == ["A.permit", "B.permit", "C.permit"]


def test_a_rejection_ends_the_waiting_before_it_begins() -> None:
    rig = Rig().plugin("A", permit=PermitResult(WAIT, 1)).plugin("B", permit=unschedulable("no"))

    assert permit(rig) == (unschedulable("no").by("B"), ())


@pytest.mark.parametrize("answer", [ERROR, SKIP, ValueError("x")])
def test_other_answers_to_permit_are_errors(answer: Answers) -> None:
    status, _ = permit(Rig().plugin("A", permit=answer))

    assert status is not None
    assert (status.code, status.plugin) == (Code.ERROR, "A")


def test_a_pod_that_everybody_permits_goes_ahead() -> None:
    assert permit(Rig().plugin("A", permit=None)) == (None, ())


@pytest.mark.parametrize(
    "answer", [unschedulable("no"), unresolvable("no"), PENDING, WAIT, ERROR, ValueError()]
)
def test_whatever_goes_wrong_while_binding_is_an_error(answer: Answers) -> None:
    before = Rig().plugin("A", pre_bind=answer).framework.run_pre_bind(CycleState(), Rig().pod, "n0")
    itself = Rig().plugin("A", bind=answer).framework.run_bind(CycleState(), Rig().pod, "n0")

    for status in (before, itself):
        assert status is not None
        assert (status.code, status.plugin) == (Code.ERROR, "A")


def test_the_first_bind_plugin_that_does_not_skip_binds() -> None:
    rig = Rig().plugin("A", bind=SKIP).plugin("B", bind=None).plugin("C", bind=None)

    assert rig.framework.run_bind(rig.state, rig.pod, "n0") is None
    assert rig.calls == ["A.bind", "B.bind"]


def test_a_pod_that_nobody_binds_is_an_error() -> None:
    status = Rig().plugin("A", bind=SKIP).framework.run_bind(CycleState(), Rig().pod, "n0")

    assert status is not None
    assert status.code is Code.ERROR


def test_everybody_hears_of_the_binding() -> None:
    rig = Rig().plugin("A", post_bind=ValueError("x")).plugin("B", post_bind=None)

    status = rig.framework.run_post_bind(rig.state, rig.pod, "n0")

    assert status is not None
    assert status.plugin == "A"
    assert rig.calls == ["A.post_bind", "B.post_bind"]


def told(name: str) -> Status:
    return unschedulable(f"not on {name}")


def test_plugins_after_the_choice_are_told_which_node_it_is() -> None:
    rig = Rig().plugin("A", reserve=told, permit=told, pre_bind=told, bind=told)
    framework, state, pod = rig.framework, rig.state, rig.pod

    found = [
        run(state, pod, "n1") for run in (framework.run_reserve, framework.run_pre_bind, framework.run_bind)
    ]

    assert [status is not None and "not on n1" in status.message for status in found] == [True] * 3
    assert permit(rig)[0] == unschedulable("not on n0").by("A")


# --- placements -----------------------------------------------------------------------------------------------------------


class Placing:
    """A plugin of placements that does always the same."""

    name = "P"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def generate(self, *arguments: Any) -> Any:
        return ((), self.assume()) if self._answer is not ERROR else ((), ERROR)

    def assume(self, *arguments: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    revert = score_placement = assume


def run_placing(answer: Any) -> dict[str, Any]:
    """What the framework makes of this answer, by point."""
    framework, plugin, log = Rig().framework, Placing(answer), Log()
    framework.observer = log
    found = {
        "generate": framework.run_generate(plugin, CycleState(), None, ())[1],  # type: ignore[arg-type]
        "assume": framework.run_assume(plugin, CycleState(), None, None),  # type: ignore[arg-type]
        "revert": framework.run_revert(plugin, CycleState(), None, None),  # type: ignore[arg-type]
        "score": framework.run_score_placement(plugin, CycleState(), None, None, {}),  # type: ignore[arg-type]
    }
    assert {plugin for _, plugin, _ in log.entries} <= {"P"}
    return found


@pytest.mark.parametrize("answer", [ValueError("x"), ERROR])
def test_plugin_that_fails_over_a_placement_is_an_error_of_that_plugin(answer: Any) -> None:
    found = run_placing(answer)

    codes = {(status.code, status.plugin) for status in found.values()}
    assert codes == {(Code.ERROR, "P")}


def test_placement_may_be_refused_but_its_refusal_not_be_taken_back() -> None:
    found = run_placing(unschedulable("no"))

    assert (found["generate"], found["assume"]) == (unschedulable("no").by("P"),) * 2
    assert found["revert"].code is Code.ERROR


@pytest.mark.parametrize(("score", "expected"), [(3, 3.0), (0.5, 0.5)])
def test_score_of_a_placement_is_a_number(score: float, expected: float) -> None:
    assert run_placing_score(score) == expected


@pytest.mark.parametrize("score", [float("nan"), float("inf"), True, "1", None])
def test_score_of_a_placement_that_is_no_finite_number_is_an_error(score: Any) -> None:
    found = run_placing_score(score)

    assert isinstance(found, Status)
    assert (found.code, found.plugin) == (Code.ERROR, "P")


def run_placing_score(score: Any) -> float | Status:
    framework = Rig().framework
    return framework.run_score_placement(Placing(score), CycleState(), None, None, {})  # type: ignore[arg-type]


# --- observing ------------------------------------------------------------------------------------------------------------


class Log:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, Status | None]] = []

    def begin(self) -> None:
        """Nothing is measured."""

    def plugin_ran(self, point: str, plugin: str, status: Status | None) -> None:
        self.entries.append((point, plugin, status))


def test_an_observer_is_told_every_answer() -> None:
    rig, log = Rig(2), Log()
    rig.plugin("A", pre_filter=None, filter={"n0": unschedulable("full")}).plugin("S", score=1, reserve=None)
    framework = rig.framework
    framework.observer = log

    framework.schedule_pod(rig.state, rig.pod, turn=1)
    framework.run_reserve(rig.state, rig.pod, "n1")

    assert log.entries == [
        ("PreFilter", "A", None),
        ("Filter", "A", unschedulable("full")),
        ("Filter", "A", None),
        ("Reserve", "S", None),
    ]


def test_an_observer_is_told_of_every_extension_point_that_answers() -> None:
    rig, log, told = Rig(2), Log(), unschedulable("no")
    rig.plugin("A", pre_filter=None, filter=None, pre_score=None, score=1, reserve=None)
    rig.plugin("B", post_filter=told, permit=told, pre_bind=told, bind=told)
    framework, placing = rig.framework, Placing(None)
    framework.observer = log

    framework.schedule_pod(rig.state, rig.pod, turn=1)
    framework.run_post_filter(rig.state, rig.pod, {})
    framework.run_reserve(rig.state, rig.pod, "n0")
    framework.run_permit(rig.state, rig.pod, "n0")
    framework.run_pre_bind(rig.state, rig.pod, "n0")
    framework.run_bind(rig.state, rig.pod, "n0")
    framework.run_generate(placing, CycleState(), None, ())  # type: ignore[arg-type]
    framework.run_assume(placing, CycleState(), None, None)  # type: ignore[arg-type]
    framework.run_revert(placing, CycleState(), None, None)  # type: ignore[arg-type]
    framework.run_score_placement(Placing(1), CycleState(), None, None, {})  # type: ignore[arg-type]

    scheduled = ["PreFilter", "Filter", "Filter", "PreScore", "Score"]
    assert log.entries == [
        *((point, "A", None) for point in scheduled),
        ("PostFilter", "B", told),
        ("Reserve", "A", None),
        *((point, "B", told) for point in ("Permit", "PreBind", "Bind")),
        *((f"Placement{point}", "P", None) for point in ("Generate", "Assume", "Revert", "Score")),
    ]
