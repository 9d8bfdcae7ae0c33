"""The fast evaluation gives the plain one's answers: on random clusters, at every attempt."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.thorough import cases
from tests.worlds.histories import random_history
from tidelog.api.objects import ContainerStatus, LabelSelector, Node, Object, Pod, pod_condition
from tidelog.configuration.configuration import resolve_configuration
from tidelog.configuration.profiles import DEFAULT_PLUGINS
from tidelog.framework.diagnosis import FitError
from tidelog.framework.interface import CycleState, Depends, Plugin, PostFilterResult, Status, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import bits_of, first_from, places_in
from tidelog.framework.node_statuses import resolvable
from tidelog.framework.results import Feasible, NodeScores
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.node_resources.many_pods import BalanceBounds, _OfAmount
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.board import Board
from tidelog.scheduler.evaluation.fast import SHAPES_MAX, FastEvaluation
from tidelog.scheduler.evaluation.node_index import NodeState
from tidelog.scheduler.evaluation.shape import Found
from tidelog.scheduler.evaluation.unlike import Search
from tidelog.testing import builders as b

SEEDS = cases(16, "TIDELOG_FAST_SEEDS")
"""`TIDELOG_FAST_SEEDS=2000` for a long run."""
STEPS = 40

ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache")
IMAGES = ("web:1", "db:2")


# --- random clusters --------------------------------------------------------------------------------------------------


class World:
    """Draws objects; the same seed draws the same ones. In every second world nodes have room and are much alike."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.roomy = seed % 2 == 1
        self.restless = seed // 2 % 2 == 1
        """In every other step some node changes, too."""
        self.number = 0
        self.nodes: list[str] = []
        self.pods: list[str] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def node(self, name: str = "") -> Node:
        if not name:
            self.number += 1
            name = f"n{self.number}"
            self.nodes.append(name)
        draw = self.random
        if self.roomy and self.chance(0.9):
            return b.node(name).label({b.ZONE: draw.choice(ZONES)}).build()
        made = b.node(name).capacity(cpu=draw.choice(["2", "4", "4"]), memory=draw.choice(["4Gi", "8Gi"]))
        made = made.capacity(pods=draw.choice(["3", "8", "110"]))
        if self.chance(0.8):
            made = made.label({b.ZONE: draw.choice(ZONES)})
        if self.chance(0.4):
            made = made.label(disk=draw.choice(["ssd", "hdd"]))
        if self.chance(0.2):
            made = made.taint("dedicated", draw.choice(["x", "y"]), draw.choice(["NoSchedule", "NoExecute"]))
        if self.chance(0.3):
            made = made.taint("slow", "", "PreferNoSchedule")
        if self.chance(0.3):
            made = made.image(draw.choice(IMAGES), draw.choice([30, 300, 900]) * 2**20)
        return made.cordon().build() if self.chance(0.05) else made.build()

    def pod(self) -> Pod:
        self.number += 1
        draw, name = self.random, f"p{self.number}"
        self.pods.append(name)
        app = draw.choice(APPS)
        made = b.pod(name).scheduler("default-scheduler").label(app=app).image(draw.choice(IMAGES))
        if self.chance(0.8):
            made = made.request(cpu=draw.choice(["100m", "500m", "1"]), memory=draw.choice(["128Mi", "1Gi"]))
        for share, more in self._extras():
            if self.chance(share / 3 if self.roomy else share):
                made = more(made)
        return made.build()

    def _extras(self) -> Iterator[tuple[float, Callable[[b.PodBuilder], b.PodBuilder]]]:
        draw = self.random
        key, app = draw.choice([b.ZONE, b.HOSTNAME]), draw.choice(APPS)
        weight, skew = draw.choice([1, 30, 100]), draw.choice([1, 2, 5])
        namespaces = draw.choice([(), ("default",), ("elsewhere",)])
        yield 0.1, lambda p: p.node_selector(disk="ssd")
        yield 0.1, lambda p: p.node_affinity(f"{b.ZONE} in (a,b)")
        yield 0.2, lambda p: p.prefer_node(weight, "disk=ssd")
        yield 0.1, lambda p: p.prefer_node(7, f"{b.ZONE}=a")
        yield 0.1, lambda p: p.node_affinity("metadata.name=n1")
        yield 0.3, lambda p: p.tolerate("dedicated", "x")
        yield 0.1, lambda p: p.tolerate("slow")
        yield 0.1, lambda p: p.port(8080)
        yield 0.2, lambda p: p.spread(key, max_skew=skew, min_domains=draw.choice([None, 2, 4]))
        yield 0.2, lambda p: p.spread(b.ZONE, f"app={app}", max_skew=skew, soft=True)
        yield 0.1, lambda p: p.spread(b.HOSTNAME, f"app={app}", soft=True, node_taints_policy="Honor")
        yield 0.15, lambda p: p.pod_affinity(key, f"app={app}", namespaces=namespaces)
        yield 0.15, lambda p: p.pod_anti_affinity(key, f"app={app}", namespaces=namespaces)
        yield 0.15, lambda p: p.prefer_pod_affinity(weight, key, f"app={app}")
        yield 0.15, lambda p: p.prefer_pod_anti_affinity(weight, key, f"app={app}")
        yield 0.1, lambda p: p.priority(draw.choice([1, 10]))
        yield 0.05, lambda p: p.spread(b.ZONE, fallback=("ScaleUpFailed",))

    def like(self, driver: Driver) -> Pod:
        """Another pod of a shape that there was before, if there is one."""
        known = [one for one in driver.core.objects.values() if isinstance(one, Pod)]
        made = self.pod()
        if not known or self.chance(0.4):
            return made
        model = self.random.choice(known)
        spec = replace(model.spec, node_name="")
        metadata = replace(model.metadata, name=made.metadata.name, deletion_timestamp="")
        return Pod(metadata=metadata, spec=spec)


def step(world: World, driver: Driver) -> None:
    """Something happens."""
    draw = world.random
    roll = draw.random()
    if roll < 0.6:
        driver.put(*(world.like(driver) for _ in range(draw.randint(1, 4))))
    elif roll < 0.64:
        driver.put(*gang(world, driver))
    elif roll < 0.7 and world.pods:
        _delete(driver, f"Pod/default/{draw.choice(world.pods)}")
    elif roll < 0.76 and world.pods:
        _change_pod(world, driver)
    elif roll < 0.82:
        driver.put(world.node())
    elif roll < 0.88:
        driver.put(world.node(draw.choice(world.nodes)))
    elif roll < 0.91:
        _delete(driver, f"Node//{draw.choice(world.nodes)}")
    elif roll < 0.95:
        driver.put(b.service("svc", {"app": draw.choice(APPS)}))
    else:
        driver.advance(draw.choice([1, 15, 300]))
    if world.restless and draw.random() < 0.5:
        _change_nodes(world, driver)
    driver.settle()


def _change_nodes(world: World, driver: Driver) -> None:
    """One comes, goes, or becomes another one, perhaps in another zone; or it goes and is back before anybody looks."""
    draw = world.random
    known = [one.metadata.name for one in driver.core.objects.values() if isinstance(one, Node)]
    roll = draw.random()
    if roll < 0.3 or not known:
        driver.put(world.node())
        return
    name = draw.choice(known)
    if roll < 0.6:
        driver.put(world.node(name))
        return
    _delete(driver, f"Node//{name}")
    if roll < 0.7:
        driver.put(world.node(name))


def gang(world: World, driver: Driver) -> list[Object]:
    """A group of a few pods, in a zone of its own or anywhere."""
    size, level = world.random.randint(2, 3), world.random.choice([None, b.ZONE])
    world.number += 1
    name = f"gang{world.number}"
    model = world.like(driver)
    found: list[Object] = [b.pod_group(name, min_count=size, level=level)]
    for i in range(size):
        member = b.pod(f"{name}-{i}").scheduler("default-scheduler").group(name).build()
        spec = replace(model.spec, scheduling_group=member.spec.scheduling_group)
        found.append(
            replace(member, metadata=replace(member.metadata, labels=model.metadata.labels), spec=spec)
        )
        world.pods.append(f"{name}-{i}")
    return found


def _delete(driver: Driver, key: str) -> None:
    found = driver.core.objects.get(key)
    if found is not None:
        driver.delete(found)


def _change_pod(world: World, driver: Driver) -> None:
    found = driver.core.objects.get(f"Pod/default/{world.random.choice(world.pods)}")
    if not isinstance(found, Pod):
        return
    metadata = replace(found.metadata, labels={"app": world.random.choice(APPS)})
    if world.chance(0.3):
        metadata = replace(metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    driver.put(replace(found, metadata=metadata))


def begin(seed: int, registry: Registry | None = None, compat: str = "default") -> tuple[World, Driver]:
    world, driver = World(seed), Driver(registry)
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = {**header, "tidelog": {"compat": compat}}
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(b.namespace("default"), *(world.node() for _ in range(world.random.randint(2, 12))))
    return world, driver


# --- the comparison -----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def places_are_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every other pair of seeds nodes keep their places for good, with all gaps and detours."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("seed", 0) // 4 % 2:
        monkeypatch.setattr("tidelog.scheduler.evaluation.node_places.GAPS_SPARE", 1_000_000)
        monkeypatch.setattr("tidelog.scheduler.evaluation.node_places.DETOURS_PER_NODE", 1_000_000)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every fast answer is compared with the plain one; counts which way pods went."""
    counts: Counter[str] = Counter()
    choose = FastEvaluation.choose

    def compared(
        self: FastEvaluation,
        state: CycleState,
        pod: PodInfo,
        turn: int,
        candidates: Sequence[NodeInfo] | None = None,
        nominated_node: str = "",
    ) -> tuple[str, Found] | FitError | None:
        answer = choose(self, state, pod, turn, candidates, nominated_node)
        if isinstance(answer, FitError):
            counts["nowhere"] += 1
            assert_same_error(self, answer, state, pod, candidates, nominated_node)
            return answer
        counts["plain" if answer is None else "fast"] += 1
        if answer is not None:
            assert plain_answer(self, state, pod, turn, candidates, nominated_node) == (
                *answer,
                state.skip_filter,
            )
            counts["in placements"] += candidates is not None
        return answer

    monkeypatch.setattr(FastEvaluation, "choose", compared)
    return counts


def assert_same_error(
    fast: FastEvaluation,
    answer: FitError,
    state: CycleState,
    pod: PodInfo,
    candidates: Sequence[NodeInfo] | None,
    nominated_node: str,
) -> None:
    framework = fast._framework
    fresh = CycleState(state.at, state.waiting, state.turn)
    found = framework.find_feasible(fresh, pod, nominated_node=nominated_node, candidates=candidates)
    assert isinstance(found, FitError)
    nodes = framework.snapshot.nodes
    mine, plain = answer.diagnosis, found.diagnosis
    assert list(mine.statuses(nodes).items()) == list(plain.statuses(nodes).items())
    places = (framework.snapshot.place_of, len(nodes))
    assert resolvable(mine.statuses(nodes), *places) == resolvable(plain.statuses(nodes), *places)
    assert (answer.message, mine.rejections(answer.node_count)) == (
        found.message,
        plain.rejections(found.node_count),
    )
    assert (mine.rejecting, mine.pending, mine.absent) == (plain.rejecting, plain.pending, plain.absent)
    assert state.skip_filter == fresh.skip_filter


def plain_answer(
    fast: FastEvaluation,
    state: CycleState,
    pod: PodInfo,
    turn: int,
    candidates: Sequence[NodeInfo] | None,
    nominated_node: str,
) -> tuple[str, Found, set[str]] | None:
    framework = fast._framework
    fresh = CycleState(state.at, state.waiting, state.turn)
    found = framework.find_feasible(fresh, pod, nominated_node=nominated_node, candidates=candidates)
    if not isinstance(found, Feasible):
        return None
    place_of = fast._index.place_of
    if len(found.nodes) == 1:
        name = found.nodes[0].name
        return name, Found(place_of(name), 1, 1 << place_of(name), 0), fresh.skip_filter
    scores = framework.score_nodes(fresh, pod, found.nodes)
    assert isinstance(scores, NodeScores)
    node, tied = framework.select(scores, turn)
    least = min(len(one.pods) for one in tied) if framework.ties_follow_pods else 0
    among = [place_of(one.name) for one in tied if len(one.pods) == least or not framework.ties_follow_pods]
    equals = bits_of(among, fast._index.size)
    best = Found(place_of(node.name), len(found.nodes), equals, max(scores.totals))
    return node.name, best, fresh.skip_filter


@pytest.mark.parametrize("seed", range(SEEDS))
def test_fast_and_plain_evaluation_agree_on_random_clusters(seed: int, asked: Counter[str]) -> None:
    world, driver = begin(seed)

    for _ in range(STEPS):
        step(world, driver)

    assert asked["fast"] > 0
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None
    assert driver.core.digest() == recover(driver.records, Registry()).digest()


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """All shapes that can be are on the board, which computes rows for two nodes at a time; how many it has computed."""
    for module in ("board", "shape", "prepared"):
        monkeypatch.setattr(f"tidelog.scheduler.evaluation.{module}.FAR", 1)
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.COLUMNS_MIN", 2)
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.ROWS_MIN", 2)
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.NODES_PER_TRAITS", 0)
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.WAITING_MIN", 2)
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.MEMO_MAX", 5)
    written = 0
    write = Board._write_row

    def counted(self: Board, place: int, state: NodeState) -> None:
        nonlocal written
        written += 1
        write(self, place, state)

    monkeypatch.setattr(Board, "_write_row", counted)
    return lambda: written


@pytest.mark.parametrize("seed", range(2_000, 2_000 + SEEDS))
def test_board_and_plain_evaluation_agree_on_random_clusters(
    seed: int, asked: Counter[str], rows: Callable[[], int]
) -> None:
    world, driver = begin(seed)
    world.roomy = True  # Pods that fit are what the board is for.
    kinds = [world.pod() for _ in range(6)]

    for _ in range(STEPS):
        step(world, driver)
        models = world.random.sample(kinds, 2)
        driver.put(*(again(world, model) for model in models))
        driver.settle()

    assert asked["fast"] > 0
    assert rows() > 0
    assert verify(driver.records, driver.registry).first_difference is None


def again(world: World, model: Pod) -> Pod:
    """Another pod like this one."""
    world.number += 1
    name = f"p{world.number}"
    world.pods.append(name)
    return replace(model, metadata=replace(model.metadata, name=name))


@pytest.mark.parametrize("seed", range(4))
def test_board_and_plain_evaluation_agree_where_nodes_fill_up_and_pods_differ_in_their_requests(
    seed: int, asked: Counter[str], rows: Callable[[], int]
) -> None:
    draw, driver = random.Random(seed), Driver()
    driver.start()
    for i in range(12):
        made = b.node(f"n{i}").capacity(cpu=draw.choice(["2", "4"]), memory=draw.choice(["4Gi", "8Gi"]))
        if i == 5:
            made = made.capacity(memory="4Pi")  # More than can be judged for many pods together.
        driver.put(made.taint("slow", "", "PreferNoSchedule").build() if i % 4 == 0 else made.build())
    kinds = [_kind(draw, i) for i in range(12)]
    gone: list[Pod] = []

    for number in range(150):
        placed = b.pod(f"p{number}") if number % 12 == 11 else draw.choice(kinds).named(f"p{number}")
        driver.put(placed.scheduler("default-scheduler").build())
        driver.settle()
        there = [one for one in driver.core.objects.values() if isinstance(one, Pod) and one.spec.node_name]
        if draw.random() < 0.4 and there:
            gone.append(draw.choice(there))
            driver.delete(gone[-1])

    assert rows() > 20
    assert asked["fast"] > 50
    assert verify(driver.records, driver.registry).first_difference is None


def _kind(draw: random.Random, number: int) -> b.PodBuilder:
    """Some ask for round amounts, some for nothing of a resource, and some cannot be judged with others."""
    made = b.pod("model").label(app=f"a{number}")
    if draw.random() < 0.8:
        made = made.request(cpu=f"{draw.choice([100, 250, 500, draw.randrange(900)])}m")
    if draw.random() < 0.8:
        made = made.request(memory=f"{draw.choice([128, 512, 1024, draw.randrange(1, 2_000)])}Mi")
    return made.port(8080 + number) if draw.random() < 0.1 else made


@pytest.mark.parametrize("seed", range(8))
def test_fast_and_plain_evaluation_agree_in_upstream_mode(seed: int, asked: Counter[str]) -> None:
    world, driver = begin(seed, compat="upstream")
    for _ in range(40):
        step(world, driver)

    assert asked


@pytest.mark.parametrize("seed", range(1_000, 1_000 + SEEDS // 4))
def test_log_is_the_same_with_and_without_the_fast_evaluation(seed: int) -> None:
    world, driver = begin(seed)
    for _ in range(STEPS):
        step(world, driver)
    plain = Driver()
    plain.core = Core(plain.registry, fast=False)
    again = World(seed)
    plain.start()
    plain.put(b.namespace("default"), *(again.node() for _ in range(again.random.randint(2, 12))))

    for _ in range(STEPS):
        step(again, plain)

    assert [record.body for record in plain.records] == [record.body for record in driver.records]


class OddNodes(Plugin):
    """Declares nothing, and changes its mind with the pods that a node has."""

    name = "OddNodes"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods) % 2 * 100


def test_plugin_that_declares_nothing_is_asked_about_every_node(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.configuration import profiles

    monkeypatch.setattr(
        profiles, "DEFAULT_PLUGINS", (*DEFAULT_PLUGINS, profiles.DefaultPlugin("OddNodes", 1))
    )
    registry = Registry()
    registry.register(OddNodes)
    world, driver = begin(7, registry)

    for _ in range(20):
        step(world, driver)

    assert OddNodes.score_depends is Depends.CLUSTER
    assert asked["fast"] > 10
    assert verify(driver.records, registry).first_difference is None


class Curious(Plugin):
    """A PostFilter of somebody else, which says what PreFilter has left."""

    name = "Curious"

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult:
        wanted = state.read("NodeResourcesFit.wanted")
        return PostFilterResult(unschedulable(f"wanted: {wanted}"), "")


@pytest.mark.parametrize("others", ["beside preemption", "alone"])
def test_post_filter_of_somebody_else_finds_what_pre_filter_left_where_preemption_would_not_look(
    others: str, asked: Counter[str]
) -> None:
    registry = Registry()
    registry.register(Curious)
    disabled = [{"name": "DefaultPreemption"}] if others == "alone" else []
    post_filter = {"enabled": [{"name": "Curious"}], "disabled": disabled}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"postFilter": post_filter}}],
    }
    configuration = resolve_configuration(file, registry).configuration
    fast, plain = Driver(registry), Driver(registry)
    plain.core = Core(registry, fast=False)

    for driver in (fast, plain):
        driver.start(configuration)
        driver.put(b.node("n1").cordon().build())
        driver.put(b.pod("p").scheduler("default-scheduler").request(cpu="1500m").build())
        driver.settle()

    assert asked == Counter(nowhere=1)
    condition = pod_condition(fast.pod("p"), "PodScheduled")
    assert condition is not None
    assert "wanted: ((('cpu', 1500),), frozenset())" in condition.message
    assert [record.body for record in fast.records] == [record.body for record in plain.records]


# --- sets -----------------------------------------------------------------------------------------------------------------


def test_first_place_is_looked_for_from_the_start_and_then_from_the_beginning() -> None:
    bits = bits_of([3, 70, 71], 100)

    assert [first_from(bits, start) for start in (0, 3, 4, 71, 72, 99)] == [3, 3, 70, 71, 3, 3]


def test_places_of_a_set_are_those_it_was_made_of() -> None:
    assert list(places_in(bits_of([0, 8, 63, 64], 65))) == [0, 8, 63, 64]


def copies(count: int, like: b.PodBuilder) -> list[Object]:
    return [like.named(f"{like.meta.name}-{i}").build() for i in range(count)]


def test_replicas_ask_the_plugins_about_changed_nodes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.plugins.node_resources.fit import NodeResourcesFit

    calls = 0
    ask = NodeResourcesFit.filter

    def counted(self: NodeResourcesFit, state: CycleState, pod: PodInfo, node: NodeInfo) -> object:
        nonlocal calls
        calls += 1
        return ask(self, state, pod, node)

    monkeypatch.setattr(NodeResourcesFit, "filter", counted)
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").build() for i in range(200)))
    driver.put(*copies(300, b.pod("web").scheduler("default-scheduler").request(cpu="100m", memory="128Mi")))

    driver.settle()

    assert len(driver.placements()) == 300
    assert calls <= 3


@pytest.mark.parametrize("seed", range(6))
def test_pods_of_which_no_two_are_alike_are_placed_as_by_the_plain_evaluation(
    seed: int, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Counter[bool]()
    find = Search.find

    def counted(self: Search, *args: Any, **options: Any) -> Any:
        found = find(self, *args, **options)
        once[found is not None] += 1
        return found

    monkeypatch.setattr(Search, "find", counted)
    draw = random.Random(seed)
    driver = Driver()
    driver.start()
    for i in range(40):
        made = b.node(f"n{i}").capacity(cpu=draw.choice(["2", "4"]), memory=draw.choice(["4Gi", "8Gi"]))
        made = made.image("web:1", 900 * 2**20) if draw.random() < 0.3 else made
        driver.put(made.taint("full", "", "NoSchedule").build() if draw.random() < 0.1 else made.build())
    for i in range(120):
        made_pod = b.pod(f"p{i}").scheduler("default-scheduler").image("web:1").label(app=f"a{i}")
        if draw.random() < 0.9:
            made_pod = made_pod.request(cpu=f"{draw.randint(1, 900)}m", memory=f"{draw.randint(1, 1500)}Mi")
        driver.put(made_pod.build())

    driver.settle()

    assert asked["fast"] + asked["nowhere"] == 120
    assert once[True] > 80
    assert verify(driver.records, driver.registry).first_difference is None


def test_nodes_of_many_sizes_are_one_search_for_a_pod_and_put_pods_into_lanes_once_for_each_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty sizes are five amounts of cpu and four of memory. Half of the pods come a second time, when all that wait get columns."""
    monkeypatch.setattr("tidelog.scheduler.evaluation.board.NODES_PER_TRAITS", 1)
    calls = Counter[str]()
    for kind, name in ((BalanceBounds, "bounds_for"), (_OfAmount, "put"), (Board, "fill"), (Search, "find")):
        monkeypatch.setattr(kind, name, counting(getattr(kind, name), calls, f"{kind.__name__}.{name}"))
    driver = Driver()
    driver.start()
    for i in range(100):
        size = {"cpu": str(4 + i % 5 * 4), "memory": f"{16 + i % 4 * 16}Gi"}
        driver.put(b.node(f"n{i}").capacity(**size, pods="110").build())
    models = [
        b.pod("p").request(cpu=f"{100 + i}m", memory=f"{100 + i}Mi").label(app=f"a{i}") for i in range(40)
    ]
    for i, model in enumerate((*models, *models[:20])):
        driver.put(model.named(f"p{i}").scheduler("default-scheduler").build())
        driver.settle()
        if i == len(models) - 1:
            assert calls["BalanceBounds.bounds_for"] == calls["Search.find"] == len(models)
            calls.clear()

    assert calls["Board.fill"] == 1
    # Free parts only: no node is so full that another sum is needed.
    assert calls["_OfAmount.put"] == (5 + 4) * len(models)
    assert verify(driver.records, driver.registry).first_difference is None


def counting(function: Callable[..., Any], calls: Counter[str], name: str) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return function(*args, **options)

    return counted


# --- odd clusters, odd profiles, and little room to remember ------------------------------------------------------------


def profile(disabled: Sequence[str] = (), args: dict[str, Any] | None = None) -> Any:
    """The default one without these plugins, and with these arguments."""
    section = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"disabled": [{"name": name} for name in disabled]}},
        "pluginConfig": [{"name": name, "args": given} for name, given in (args or {}).items()],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [section],
    }
    return resolve_configuration(document, Registry()).configuration


def fill(driver: Driver, draw: random.Random, pods: int) -> None:
    """Pods of which no two are alike, and of which some ask for one resource or none."""
    for i in range(pods):
        pod = b.pod(f"p{i}").scheduler("default-scheduler").label(app=f"a{i}")
        if draw.random() < 0.7:
            pod = pod.request(cpu=f"{draw.randint(1, 700)}m")
        if draw.random() < 0.7:
            pod = pod.request(memory=f"{draw.randint(1, 900)}Mi")
        driver.put(pod.build())
        driver.settle()


@pytest.mark.parametrize("seed", range(4))
def test_nodes_that_lack_a_resource_or_have_too_little_are_judged_as_by_the_plain_evaluation(
    seed: int, asked: Counter[str]
) -> None:
    draw = random.Random(seed)
    driver = Driver()
    driver.start()
    for i in range(30):
        cpu, memory = draw.choice([("4", "4Gi"), ("4", "300Mi"), ("0", "4Gi"), ("4", "0"), ("300m", "4Gi")])
        driver.put(b.node(f"n{i}").capacity(cpu=cpu, memory=memory).build())
        # Some are nearly full, and some more than full: bound by somebody who asked nobody.
        used = b.pod(f"used-{i}").request(
            cpu=f"{draw.randint(3500, 4100)}m", memory=f"{draw.randint(100, 400)}Mi"
        )
        if draw.random() < 0.6:
            driver.put(used.on(f"n{i}").build())

    fill(driver, draw, 60)

    assert asked["fast"] + asked["nowhere"] + asked["plain"] >= 60
    assert asked["fast"] > 30
    assert verify(driver.records, driver.registry).first_difference is None


def test_nodes_about_equally_full_of_which_some_have_room_are_told_apart(asked: Counter[str]) -> None:
    """They are one cell of the index, and it is on the edge: what fits on one does not fit on its neighbour."""
    driver = Driver()
    driver.start()
    for i in range(20):
        driver.put(b.node(f"n{i}").capacity(cpu="4", memory="8Gi").build())
        driver.put(b.pod(f"used-{i}").request(cpu=f"{3010 + i}m", memory="1Gi").on(f"n{i}").build())

    driver.put(b.pod("exact").scheduler("default-scheduler").request(cpu="980m", memory="1Gi").build())
    driver.settle()

    assert asked == Counter(fast=1)
    assert int(driver.placements()["default/exact"].removeprefix("n")) <= 10


@pytest.mark.parametrize(
    "configuration",
    [
        profile(["TaintToleration"]),
        profile(["ImageLocality"]),
        profile(["NodeResourcesBalancedAllocation"]),
        profile(["NodeResourcesFit"]),
        profile(args={"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}}),
        profile(args={"NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]}}),
    ],
    ids=[
        "no taints",
        "no images",
        "no balance",
        "no fit",
        "other score for resources",
        "balance of one resource",
    ],
)
def test_profiles_that_lack_a_plugin_or_score_otherwise_are_judged_as_by_the_plain_evaluation(
    configuration: Any, asked: Counter[str]
) -> None:
    draw = random.Random(1)
    driver = Driver()
    driver.start(configuration)
    for i in range(15):
        node = b.node(f"n{i}").capacity(cpu=draw.choice(["2", "4"]), memory=draw.choice(["4Gi", "8Gi"]))
        driver.put(node.taint("busy", "", draw.choice(["PreferNoSchedule", "NoSchedule"])).build())

    fill(driver, draw, 20)
    driver.put(*copies(5, b.pod("web").scheduler("default-scheduler").request(cpu="100m").tolerate("busy")))
    driver.settle()

    assert asked["fast"] > 5
    assert verify(driver.records, driver.registry).first_difference is None


def test_scores_too_high_for_a_lane_leave_those_of_other_pods_alone(
    asked: Counter[str], rows: Callable[[], int]
) -> None:
    """Who requests nothing is not scored for balance, and stays on the board."""
    weighted = [{"name": "NodeResourcesBalancedAllocation", "weight": 2**31 - 1}]
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": weighted}}}],
    }
    draw, driver = random.Random(1), Driver()
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(*(b.node(f"n{i}").capacity(cpu=draw.choice("248"), memory="8Gi").build() for i in range(20)))

    for number in range(60):
        made = b.pod(f"p{number}").scheduler("default-scheduler").tolerate(f"of-{number % 12}")
        driver.put((made if number % 4 else made.request(cpu="3", memory="1Gi")).build())
        driver.settle()

    assert asked["fast"] > 40
    assert rows() > 0
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize(
    ("module", "limit"),
    [("node_index", "EMPTY_STATES_MAX"), ("state_table", "MEMO_SPARE"), ("fast", "SHAPES_MAX")],
)
def test_what_is_forgotten_for_want_of_room_costs_no_answer(
    module: str, limit: str, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"tidelog.scheduler.evaluation.{module}.{limit}", -20 if limit == "MEMO_SPARE" else 1)
    world, driver = begin(11)
    for i in range(4):
        driver.put(*copies(40, b.pod(f"web-{i}").scheduler("default-scheduler").request(cpu=f"{10 + i}m")))
        driver.settle()

    for _ in range(STEPS):
        step(world, driver)

    assert asked["fast"] > 100
    assert verify(driver.records, driver.registry).first_difference is None


def test_index_starts_over_where_it_cannot_know_what_has_changed(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, driver = begin(13)
    driver.put(*copies(10, b.pod("web").scheduler("default-scheduler").request(cpu="10m")))
    driver.settle()
    monkeypatch.setattr(Snapshot, "changed_since", lambda self, generation: None)

    for _ in range(STEPS):
        step(world, driver)

    assert asked["fast"] + asked["plain"] + asked["nowhere"] > 10
    monkeypatch.undo()
    assert verify(driver.records, driver.registry).first_difference is None


def test_pod_whose_requests_its_status_tells_is_a_shape_by_them(asked: Counter[str]) -> None:
    driver = Driver()
    driver.start()
    driver.put(b.node("n1").build(), b.node("n2").build())
    pod = b.pod("resized").scheduler("default-scheduler").request(cpu="100m").build()
    status = replace(
        pod.status, container_statuses=(ContainerStatus(name="main", allocated_resources={"cpu": "2"}),)
    )

    driver.put(replace(pod, status=status))
    driver.settle()

    assert asked == Counter({"fast": 1, "in placements": 0})
    assert len(driver.placements()) == 1


def test_pod_with_a_term_that_does_not_parse_is_left_to_the_plain_evaluation(asked: Counter[str]) -> None:
    driver = Driver()
    driver.start()
    driver.put(b.namespace("default"), b.node("n1").build(), b.node("n2").build())
    broken = LabelSelector(match_expressions=(b.requirement("app", "Unknown"),))

    driver.put(b.pod("p").scheduler("default-scheduler").pod_affinity("zone", broken).build())
    driver.settle()

    assert asked == Counter(plain=1)
    assert driver.placements() == {}


def test_pods_tell_nodes_apart_only_where_they_are_few_kinds_and_look_at_nodes_alone() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").label(disk="ssd" if i < 2 else "hdd").build() for i in range(4)))
    driver.put(b.pod("first").scheduler("default-scheduler").build())
    driver.settle()
    (framework,) = driver.core.frameworks.values()
    fast = FastEvaluation(framework)

    def apart(*pods: b.PodBuilder) -> list[list[int]] | None:
        found = fast.told_apart([PodInfo(pod.build()) for pod in pods])
        return None if found is None else sorted(list(places_in(bits)) for bits in found)

    order = [node.labels["disk"] for node in framework.snapshot.nodes]
    ssd = [place for place, disk in enumerate(order) if disk == "ssd"]
    choosy = b.pod("choosy").node_selector({"disk": "ssd"})
    found = apart(b.pod("any"), choosy)
    assert found is not None
    assert ssd in found
    assert apart(choosy, b.pod("near").pod_affinity("zone", "app=web")) is None
    assert apart(*(b.pod("p").label(app=f"{i}") for i in range(SHAPES_MAX + 1))) == []
    assert apart(*(b.pod("p").request(cpu=f"{i}m") for i in range(SHAPES_MAX + 1))) is None


def test_changes_of_traits_that_no_node_has_any_more_are_followed_when_one_has_them_again() -> None:
    """As in this history, in which only pods of a known shape are tried while a node has them for a while."""
    driver = random_history(1, steps=150)

    assert verify(driver.records, Registry()).first_difference is None
