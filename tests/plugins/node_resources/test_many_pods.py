"""What is said for many pods or uses of nodes at once is what is said for each of them alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from tests.thorough import cases
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState
from tidelog.framework.lanes import WIDTH
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import NodeSize, NodeUse, Together
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.plugins.node_resources.many_pods import AMOUNT_MAX
from tidelog.plugins.node_resources.scoring import ResourceSpec, ScoringStrategy
from tidelog.testing import builders as b

MIB = 1 << 20
SEEDS = cases(20, "TIDELOG_FAST_SEEDS")
CPUS = (1, 7, 1_000, 3_920, 4_000, 7_910, 64_000)
MEMORIES = (3, 4 << 30, 16 << 30, (16 << 30) - 12_345, 16_374_532 << 10)


def drawn(
    seed: int,
) -> tuple[random.Random, NodeResourcesFit, NodeResourcesBalancedAllocation]:
    """What draws, and the two plugins."""
    draw = random.Random(seed)
    handle = FrameworkHandle(Snapshot(), Listers())
    weights = (ResourceSpec(name="cpu", weight=1 + seed % 3), ResourceSpec(name="memory", weight=1))
    args = NodeResourcesFit.Args(scoring_strategy=ScoringStrategy(resources=weights))
    fit = NodeResourcesFit(args, handle)
    balance = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocation.Args(), handle)
    return draw, fit, balance


def drawn_size(draw: random.Random) -> NodeSize:
    return NodeSize(draw.choice(CPUS), draw.choice(MEMORIES))


def node_of(size: NodeSize) -> NodeInfo:
    return NodeInfo(b.node("n").capacity(cpu=f"{size.cpu}m", memory=str(size.memory)).build())


def fit_of(fit: NodeResourcesFit, node: NodeInfo) -> Callable[[PodInfo], Callable[[NodeUse], bool]]:
    def room(pod: PodInfo) -> Callable[[NodeUse], bool]:
        fits = fit.use_fits(CycleState(), pod, node)
        assert fits is not None
        return fits

    return room


def drawn_pod(draw: random.Random, number: int) -> PodInfo:
    made = b.pod(f"p{number}")
    if draw.random() < 0.85:
        made = made.request(cpu=f"{draw.choice([100, 250, 500, 1_000, draw.randrange(1, 5_000)])}m")
    if draw.random() < 0.85:
        made = made.request(
            memory=str(draw.choice([128 * MIB, 512 * MIB, 1 << 30, draw.randrange(1, 1 << 33)]))
        )
    return PodInfo(made.build())


def drawn_use(draw: random.Random, cpu: int, memory: int) -> NodeUse:
    """Round amounts as well, which floats put now above and now below a whole percentage; some nodes are overcommitted."""
    cpu = draw.choice([0, cpu, draw.randrange(cpu + 1), draw.randrange(cpu + 1) // 100 * 100, 2 * cpu])
    memory = draw.choice([0, memory, draw.randrange(memory + 1), draw.randrange(memory + 1) >> 27 << 27])
    return NodeUse(cpu, memory, cpu + draw.choice([0, 100]), memory + draw.choice([0, 200 * MIB]))


def answers(
    fit: NodeResourcesFit, balance: NodeResourcesBalancedAllocation, node: NodeInfo
) -> Iterator[tuple[Callable[[], Together], Callable[[PodInfo], Callable[[NodeUse], int]]]]:
    """What says it of all, and what says it of one on such a node."""
    state = CycleState()

    fits = fit_of(fit, node)

    def room(pod: PodInfo) -> Callable[[NodeUse], int]:
        return lambda use: int(fits(pod)(use))

    def score_of(plugin: Any) -> Callable[[PodInfo], Callable[[NodeUse], int]]:
        return lambda pod: plugin.use_score(state, pod, node)  # type: ignore[no-any-return]

    for offered, one in (
        (fit.rooms_together, room),
        (fit.scores_together, score_of(fit)),
        (balance.scores_together, score_of(balance)),
    ):
        yield cast("Callable[[], Together]", offered), one


def lane_of(lanes: int, lane: int) -> int:
    return lanes >> WIDTH * lane & 255


@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_pods_are_judged_as_each_alone(seed: int) -> None:
    draw, fit, balance = drawn(seed)
    pods = [drawn_pod(draw, number) for number in range(80)]
    sizes = [drawn_size(draw) for _ in range(3)]
    judged = [answers(fit, balance, node_of(size)) for size in sizes]
    sure = 0

    for ways in zip(*judged, strict=True):
        many = ways[0][0]().pods()
        for lane, pod in enumerate(pods):
            many.put(lane, draw.choice(pods))
            if lane == 40:
                many.answers(drawn_use(draw, *sizes[0]), sizes[0])
            many.put(lane, pod)
        for _ in range(20):
            for size, (_, one) in zip(sizes, ways, strict=True):
                use = drawn_use(draw, *size)
                found, doubt = many.answers(use, size)
                for lane, pod in enumerate(pods):
                    if not lane_of(doubt, lane):
                        sure += 1
                        assert lane_of(found, lane) == one(pod)(use)

    assert sure > 3_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_uses_are_judged_as_each_alone_and_no_use_in_a_range_is_better_than_its_bound(seed: int) -> None:
    draw, fit, balance = drawn(seed)
    sizes = [drawn_size(draw) for _ in range(3)]
    of_lane = [draw.randrange(3) for _ in range(30)]
    ranges = [[drawn_use(draw, *sizes[of]) for _ in range(draw.randint(1, 3))] for of in of_lane]
    judged = [answers(fit, balance, node_of(size)) for size in sizes]
    rooms = [fit_of(fit, node_of(size)) for size in sizes]
    sure = 0

    for ways in zip(*judged, strict=True):
        together = ways[0][0]()
        uses, bounded = together.uses(), together.bounds and together.bounds()
        for pod in (drawn_pod(draw, number) for number in range(20)):
            for lane, (those, of) in enumerate(zip(ranges, of_lane, strict=True)):
                uses.put_use(lane, drawn_use(draw, *sizes[of]), sizes[of])
                uses.put_use(lane, those[0], sizes[of])
            found, doubt = uses.answers_for(pod)
            for lane, (those, of) in enumerate(zip(ranges, of_lane, strict=True)):
                if not lane_of(doubt, lane):
                    sure += 1
                    assert lane_of(found, lane) == ways[of][1](pod)(those[0])
            if bounded is None:
                continue
            for lane, (those, of) in enumerate(zip(ranges, of_lane, strict=True)):
                low = NodeUse(*map(min, zip(*those, strict=True)))
                high = NodeUse(*map(max, zip(*those, strict=True)))
                bounded.put_range(lane, drawn_use(draw, *sizes[of]), high, sizes[of])
                bounded.put_range(lane, low, high, sizes[of])
            bounds = bounded.bounds_for(pod)
            for lane, (those, of) in enumerate(zip(ranges, of_lane, strict=True)):
                fits, one = rooms[of](pod), ways[of][1](pod)
                assert lane_of(bounds, lane) <= 100
                assert lane_of(bounds, lane) >= max([one(use) for use in those if fits(use)], default=0)

    assert sure > 1_000


@pytest.mark.parametrize("percent", [0, 1, 50, 99])
def test_pods_of_which_single_bytes_decide_are_judged_right_or_in_doubt(percent: int) -> None:
    _, fit, balance = drawn(0)
    memory = (16 << 30) - 12_345
    size = NodeSize(4_000, memory)
    used = 1 << 20
    use = NodeUse(0, used, 0, used)
    # With so much more there is just that percentage left.
    most = memory - used - -(-percent * memory // 100)
    pods = [PodInfo(b.pod(f"p{more}").request(memory=str(most + more)).build()) for more in range(-3, 4)]
    doubted = 0

    for made, one in answers(fit, balance, node_of(size)):
        many, uses = made().pods(), made().uses()
        uses.put_use(0, use, size)
        for lane, pod in enumerate(pods):
            many.put(lane, pod)
        found, doubt = many.answers(use, size)
        for lane, pod in enumerate(pods):
            alone, alone_doubt = uses.answers_for(pod)
            doubted += lane_of(doubt, lane) + lane_of(alone_doubt, 0)
            assert lane_of(doubt, lane) or lane_of(found, lane) == one(pod)(use)
            assert lane_of(alone_doubt, 0) or lane_of(alone, 0) == one(pod)(use)

    assert doubted > 0


def test_equal_pods_that_fit_exactly_are_not_in_doubt() -> None:
    _, fit, _ = drawn(0)
    size = NodeSize(4_000, 4 << 30)
    pods = [PodInfo(b.pod(f"p{n}").request(cpu="100m", memory="128Mi").build()) for n in range(9)]

    for taken, fits in ((31, 1), (32, 0)):
        use = NodeUse(100 * taken, 128 * MIB * taken, 100 * taken, 128 * MIB * taken)
        for together, each in ((fit.rooms_together(), fits), (fit.scores_together(), None)):
            assert together is not None
            many = together.pods()
            for lane, pod in enumerate(pods):
                many.put(lane, pod)
            found, doubt = many.answers(use, size)
            assert doubt == 0
            assert each is None or [lane_of(found, lane) for lane in range(9)] == [each] * 9


@pytest.mark.parametrize("size", [NodeSize(4_000, AMOUNT_MAX), NodeSize(0, 4 << 30), NodeSize(4_000, 0)])
def test_nodes_that_have_too_much_to_count_or_nothing_are_left_to_one_question_a_pod(size: NodeSize) -> None:
    _, fit, balance = drawn(0)

    for together in (fit.rooms_together(), fit.scores_together(), balance.scores_together()):
        assert together is not None
        assert not together.covers(size)
        assert together.covers(NodeSize(4_000, 4 << 30))
