"""NodeResourcesBalancedAllocation: the golden vectors of kube-scheduler's own tests, and when nothing is scored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.api.features import FeatureGates
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import SKIP, CycleState
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from tidelog.testing.builders import PodBuilder, node, pod

GPU = "nvidia.com/gpu"


def plugin(*resources: str) -> NodeResourcesBalancedAllocation:
    named = {"resources": [{"name": name} for name in resources]} if resources else {}
    args = msgspec.convert(named, NodeResourcesBalancedAllocationArgs)
    return NodeResourcesBalancedAllocation(args, FrameworkHandle(Snapshot(), Listers()))


def asking(name: str, amounts: tuple[int, ...]) -> PodBuilder:
    cpu, memory, *gpus = amounts
    return pod(name).request({GPU: gpus[0]} if gpus else {}, cpu=f"{cpu}m", memory=memory)


def score(
    there: tuple[int, ...], added: tuple[int, ...], allocatable: tuple[int, ...], *resources: str
) -> int:
    cpu, memory, *gpus = allocatable
    capacity = node("n").allocatable({GPU: gpus[0]} if gpus else {}, cpu=f"{cpu}m", memory=memory, pods=10)
    info = NodeInfo(capacity.build(), [PodInfo(asking("there", there).build())])
    balanced, state, incoming = plugin(*resources), CycleState(), PodInfo(asking("p", added).build())
    assert balanced.pre_score(state, incoming, [info]) is None
    answer = balanced.score(state, incoming, info)
    assert answer == balanced.score(CycleState(), incoming, info), "PreScore only saves work"
    return answer


@pytest.mark.parametrize(
    ("there", "added", "allocatable", "expected"),
    [
        ((0, 0), (3000, 5000), (4000, 10000), 68),
        ((0, 0), (3000, 5000), (6000, 10000), 75),
        ((3000, 0), (3000, 5000), (10000, 20000), 73),
        ((3000, 5000), (3000, 5000), (10000, 20000), 74),
        ((3000, 5000), (3000, 5000), (10000, 50000), 70),
        ((3000, 0), (0, 5000), (3000, 5000), 100),
        ((0, 0), (0, 5000), (3000, 5000), 50),
    ],
)
def test_two_resources(
    there: tuple[int, int], added: tuple[int, int], allocatable: tuple[int, int], expected: int
) -> None:
    assert score(there, added, allocatable) == expected


@pytest.mark.parametrize(
    ("there", "added", "expected"),
    [((3000, 5000, 3), (0, 0, 1), 75), ((3000, 5000, 0), (0, 0, 1), 76)],
)
def test_three_resources(there: tuple[int, ...], added: tuple[int, ...], expected: int) -> None:
    assert score(there, added, (3500, 40000, 8), "cpu", "memory", GPU) == expected


def test_a_resource_of_which_the_node_has_none_is_left_out() -> None:
    assert score((0, 0), (100, 100), (1000, 0)) == 75


def test_more_than_everything_counts_as_everything() -> None:
    assert score((5000, 9000), (100, 100), (1000, 1000)) == 75


@pytest.mark.parametrize("incoming", [pod("p"), pod("p").request({GPU: 1}), pod("p").request(cpu=0)])
def test_a_pod_that_requests_none_of_the_resources_is_not_scored(incoming: PodBuilder) -> None:
    assert plugin().pre_score(CycleState(), PodInfo(incoming.build()), []) == SKIP


def test_pod_level_requests_count() -> None:
    incoming = PodInfo(pod("p").pod_level({"cpu": "1", "memory": "0"}).build())
    info = NodeInfo(node("n").allocatable(cpu=2, memory=100).build())

    assert plugin().score(CycleState(), incoming, info) == 50 + (50 + 75 - 100) // 2


def errors(*resources: dict[str, Any]) -> list[str]:
    args = msgspec.convert({"resources": resources}, NodeResourcesBalancedAllocationArgs)
    found = NodeResourcesBalancedAllocation.validate_args(args, "args", FeatureGates())
    return [f"{error.path} {error.kind}" for error in found]


def test_weights_must_be_one_and_names_unique() -> None:
    assert errors({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 0}) == []
    assert errors({"name": "cpu", "weight": 2}, {"name": "cpu"}) == [
        "args.resources[0].weight Invalid",
        "args.resources[1].name Duplicate",
    ]
