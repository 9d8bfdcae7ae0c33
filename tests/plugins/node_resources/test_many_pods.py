"""What is said for many pods or uses of nodes at once is what is said for each of them alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from tests.thorough import cases
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState
from tidelog.framework.lanes import WIDTH
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import NodeUse, Together
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
) -> tuple[random.Random, NodeResourcesFit, NodeResourcesBalancedAllocation, tuple[int, int]]:
    """What draws, the two plugins, and a node's cpu and memory."""
    draw = random.Random(seed)
    handle = FrameworkHandle(Snapshot(), Listers())
    weights = (ResourceSpec(name="cpu", weight=1 + seed % 3), ResourceSpec(name="memory", weight=1))
    args = NodeResourcesFit.Args(scoring_strategy=ScoringStrategy(resources=weights))
    fit = NodeResourcesFit(args, handle)
    balance = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocation.Args(), handle)
    return draw, fit, balance, (draw.choice(CPUS), draw.choice(MEMORIES))


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
    """What says it of all, and what says it of one."""
    state = CycleState()

    def room(pod: PodInfo) -> Callable[[NodeUse], int]:
        fits = fit.use_fits(state, pod, node)
        assert fits is not None
        return lambda use: int(fits(use))

    def score_of(plugin: Any) -> Callable[[PodInfo], Callable[[NodeUse], int]]:
        return lambda pod: plugin.use_score(state, pod, node)  # type: ignore[no-any-return]

    for offered, one in (
        (fit.rooms_together, room),
        (fit.scores_together, score_of(fit)),
        (balance.scores_together, score_of(balance)),
    ):
        yield cast("Callable[[], Together]", partial(offered, node)), one


def lane_of(lanes: int, lane: int) -> int:
    return lanes >> WIDTH * lane & 255


@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_pods_are_judged_as_each_alone(seed: int) -> None:
    draw, fit, balance, (cpu, memory) = drawn(seed)
    node = NodeInfo(b.node("n").capacity(cpu=f"{cpu}m", memory=str(memory)).build())
    pods = [drawn_pod(draw, number) for number in range(80)]
    sure = 0

    for made, one in answers(fit, balance, node):
        many = made().pods()
        for lane, pod in enumerate(pods):
            many.put(lane, draw.choice(pods))
            many.put(lane, pod)
        for _ in range(20):
            use = drawn_use(draw, cpu, memory)
            found, doubt = many.answers(use)
            for lane, pod in enumerate(pods):
                if not lane_of(doubt, lane):
                    sure += 1
                    assert lane_of(found, lane) == one(pod)(use)

    assert sure > 1_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_uses_are_judged_as_each_alone_and_no_use_in_a_range_is_better_than_its_bound(seed: int) -> None:
    draw, fit, balance, (cpu, memory) = drawn(seed)
    node = NodeInfo(b.node("n").capacity(cpu=f"{cpu}m", memory=str(memory)).build())
    ranges = [[drawn_use(draw, cpu, memory) for _ in range(draw.randint(1, 3))] for _ in range(30)]
    sure = 0

    for made, one in answers(fit, balance, node):
        for pod in (drawn_pod(draw, number) for number in range(20)):
            together = made()
            uses = together.uses()
            for lane, those in enumerate(ranges):
                uses.put_use(lane, draw.choice(draw.choice(ranges)))
                uses.put_use(lane, those[0])
            found, doubt = uses.answers_for(pod)
            for lane, those in enumerate(ranges):
                if not lane_of(doubt, lane):
                    sure += 1
                    assert lane_of(found, lane) == one(pod)(those[0])
            if together.bounds is None:
                continue
            bounded = together.bounds()
            at = bounded.corner(pod)
            for lane, those in enumerate(ranges):
                cpus = [(max if at.cpu else min)(part) for part in zip(*those, strict=True)]
                memories = [(max if at.memory else min)(part) for part in zip(*those, strict=True)]
                bounded.put_use(lane, NodeUse(cpus[0], memories[1], cpus[2], memories[3]))
            bounds = bounded.bounds_for(pod)
            fits = fit.use_fits(CycleState(), pod, node)
            assert fits is not None
            for lane, those in enumerate(ranges):
                assert lane_of(bounds, lane) <= 100
                assert lane_of(bounds, lane) >= max([one(pod)(use) for use in those if fits(use)], default=0)

    assert sure > 1_000


@pytest.mark.parametrize("percent", [0, 1, 50, 99])
def test_pods_of_which_single_bytes_decide_are_judged_right_or_in_doubt(percent: int) -> None:
    _, fit, balance, _ = drawn(0)
    cpu, memory = 4_000, (16 << 30) - 12_345
    node = NodeInfo(b.node("n").capacity(cpu=f"{cpu}m", memory=str(memory)).build())
    used = 1 << 20
    use = NodeUse(0, used, 0, used)
    # With so much more there is just that percentage left.
    most = memory - used - -(-percent * memory // 100)
    pods = [PodInfo(b.pod(f"p{more}").request(memory=str(most + more)).build()) for more in range(-3, 4)]
    doubted = 0

    for made, one in answers(fit, balance, node):
        many, uses = made().pods(), made().uses()
        uses.put_use(0, use)
        for lane, pod in enumerate(pods):
            many.put(lane, pod)
        found, doubt = many.answers(use)
        for lane, pod in enumerate(pods):
            alone, alone_doubt = uses.answers_for(pod)
            doubted += lane_of(doubt, lane) + lane_of(alone_doubt, 0)
            assert lane_of(doubt, lane) or lane_of(found, lane) == one(pod)(use)
            assert lane_of(alone_doubt, 0) or lane_of(alone, 0) == one(pod)(use)

    assert doubted > 0


def test_equal_pods_that_fit_exactly_are_not_in_doubt() -> None:
    _, fit, _, _ = drawn(0)
    node = NodeInfo(b.node("n").capacity(cpu="4", memory="4Gi").build())
    pods = [PodInfo(b.pod(f"p{n}").request(cpu="100m", memory="128Mi").build()) for n in range(9)]

    for taken, fits in ((31, 1), (32, 0)):
        use = NodeUse(100 * taken, 128 * MIB * taken, 100 * taken, 128 * MIB * taken)
        for together, each in ((fit.rooms_together(node), fits), (fit.scores_together(node), None)):
            assert together is not None
            many = together.pods()
            for lane, pod in enumerate(pods):
                many.put(lane, pod)
            found, doubt = many.answers(use)
            assert doubt == 0
            assert each is None or [lane_of(found, lane) for lane in range(9)] == [each] * 9


def test_nodes_that_have_too_much_to_count_are_left_to_one_question_a_pod() -> None:
    handle = FrameworkHandle(Snapshot(), Listers())
    fit = NodeResourcesFit(NodeResourcesFit.Args(), handle)
    balance = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocation.Args(), handle)
    node = NodeInfo(b.node("n").capacity(cpu="4", memory=str(AMOUNT_MAX)).build())

    found = [fit.rooms_together(node), fit.scores_together(node), balance.scores_together(node)]

    assert found == [None, None, None]
