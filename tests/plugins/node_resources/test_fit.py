"""NodeResourcesFit: what fits, how it is scored, what may wake a pod that did not fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Node, Pod
from tidelog.configuration.configuration import read_configuration
from tidelog.framework.events import Action, ClusterEvent, Hint, Resource, matches
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import Code, CycleState, Status
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.node_resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from tidelog.plugins.node_resources.scoring import interpolate
from tidelog.plugins.registry import Registry
from tidelog.testing.builders import NodeBuilder, PodBuilder, node, pod

UU = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
U = Code.UNSCHEDULABLE
GPU = "example.com/gpu"


def args(**values: Any) -> NodeResourcesFitArgs:
    """Arguments as a configuration file spells them."""
    return msgspec.convert(values, NodeResourcesFitArgs)


def plugin(**values: Any) -> NodeResourcesFit:
    return NodeResourcesFit(args(**values), FrameworkHandle(Snapshot(), Listers()))


def occupied(builder: NodeBuilder, *pods: PodBuilder) -> NodeInfo:
    return NodeInfo(builder.build(), [PodInfo(one.named(f"there-{i}").build()) for i, one in enumerate(pods)])


def verdict(incoming: PodBuilder, info: NodeInfo, **values: Any) -> Status | None:
    fit, state, one = plugin(**values), CycleState(), PodInfo(incoming.build())
    fit.pre_filter(state, one, [info])
    answer = fit.filter(state, one, info)
    assert answer == fit.filter(CycleState(), one, info), "the answer does not depend on PreFilter having run"
    return answer


def score(incoming: PodBuilder, info: NodeInfo, **values: Any) -> int:
    fit, state, one = plugin(**values), CycleState(), PodInfo(incoming.build())
    fit.pre_score(state, one, [info])
    answer = fit.score(state, one, info)
    assert answer == fit.score(CycleState(), one, info), "the answer does not depend on PreScore having run"
    return answer


SMALL = node("n").capacity(cpu=1, memory="1Gi", pods=2)


# --- filtering ------------------------------------------------------------------------------------------------------------


def test_a_pod_that_just_fits_passes() -> None:
    assert verdict(pod("p").request(cpu="600m"), occupied(SMALL, pod("a").request(cpu="400m"))) is None


def test_all_shortages_are_reported() -> None:
    info = occupied(SMALL, pod("a").request(cpu="400m", memory="1Gi"), pod("b"))

    answer = verdict(pod("p").request(cpu="601m", memory="1"), info)

    assert answer == Status(U, ("Too many pods", "Insufficient cpu", "Insufficient memory"))


def test_a_request_beyond_the_whole_node_is_beyond_help() -> None:
    info = occupied(SMALL, pod("a").request(memory="1Gi"))

    answer = verdict(pod("p").request(cpu="1001m", memory="1Mi"), info)

    assert answer == Status(UU, ("Insufficient cpu", "Insufficient memory"))


def test_too_many_pods_alone_may_be_helped_even_where_no_pod_is_allowed() -> None:
    assert verdict(pod("p"), occupied(node("n").allocatable(pods=0))) == Status(U, ("Too many pods",))


def test_nothing_is_checked_that_is_not_asked_for() -> None:
    overcommitted = occupied(SMALL, pod("a").request(cpu="5", memory="5Gi"))

    assert verdict(pod("p"), overcommitted) is None
    assert verdict(pod("p").request(cpu="0"), overcommitted) is None
    assert verdict(pod("p").request(memory="1"), overcommitted) == Status(U, ("Insufficient memory",))


def test_a_resource_the_node_does_not_have_is_zero() -> None:
    assert verdict(pod("p").request({GPU: 1}), occupied(SMALL)) == Status(UU, (f"Insufficient {GPU}",))


def test_reasons_for_other_resources_are_in_order_of_their_names() -> None:
    incoming = pod("p").request({"example.com/b": 1, "example.com/a": 1, "ephemeral-storage": "1Gi"})

    answer = verdict(incoming, occupied(SMALL))

    assert answer is not None
    assert answer.reasons == (
        "Insufficient ephemeral-storage",
        "Insufficient example.com/a",
        "Insufficient example.com/b",
    )


def test_names_without_a_meaning_are_ignored() -> None:
    assert verdict(pod("p").request({"storage": "5Gi"}), occupied(SMALL)) is None


def test_ignored_resources_and_groups_are_not_checked() -> None:
    incoming = pod("p").request({GPU: 1})

    assert verdict(incoming, occupied(SMALL), ignoredResources=[GPU]) is None
    assert verdict(incoming, occupied(SMALL), ignoredResourceGroups=["example.com"]) is None
    assert verdict(incoming, occupied(SMALL), ignoredResources=["example.com/fpga"]) is not None


def test_native_resources_cannot_be_ignored() -> None:
    incoming = pod("p").request(cpu=2)

    assert verdict(incoming, occupied(SMALL), ignoredResources=["cpu"]) == Status(UU, ("Insufficient cpu",))


def test_terminating_pods_still_use_their_resources() -> None:
    info = occupied(SMALL, pod("a").request(cpu=1).terminating())

    assert verdict(pod("p").request(cpu="1m"), info) == Status(U, ("Insufficient cpu",))


# --- scoring --------------------------------------------------------------------------------------------------------------

MI = 1024 * 1024
BIG = node("n").capacity(cpu=1, memory=1000 * MI)


def test_least_allocated_averages_the_free_percentages() -> None:
    info = occupied(BIG, pod("a").request(cpu="100m", memory=100 * MI))

    assert score(pod("p").request(cpu="100m", memory=300 * MI), info) == (80 + 60) // 2


def test_an_overcommitted_resource_scores_zero() -> None:
    info = occupied(BIG, pod("a").request(cpu="950m", memory="0"))

    assert score(pod("p").request(cpu="100m", memory="0"), info) == (0 + 100) // 2


def test_containers_without_requests_count_with_defaults_on_both_sides() -> None:
    assert score(pod("p"), occupied(BIG, pod("a"))) == (80 + 60) // 2


def test_a_resource_of_which_the_node_has_none_is_left_out() -> None:
    assert score(pod("p").request(cpu="100m"), occupied(node("n").allocatable(cpu=1, memory=0))) == 90
    assert score(pod("p"), occupied(node("n").allocatable(cpu=0, memory=0))) == 0


def strategy(type: str, *resources: tuple[str, int], shape: list[dict[str, int]] | None = None) -> Any:
    named = [{"name": name, "weight": weight} for name, weight in resources]
    ratio = {"requestedToCapacityRatio": {"shape": shape}} if shape else {}
    return {"type": type, "resources": named, **ratio}


def test_most_allocated_is_the_used_part_and_clips() -> None:
    info = occupied(BIG, pod("a").request(cpu="950m", memory="0"))

    answer = score(
        pod("p").request(cpu="100m", memory=300 * MI), info, scoringStrategy=strategy("MostAllocated")
    )

    assert answer == (100 + 30) // 2


def test_weights_count() -> None:
    info = occupied(BIG)
    weighted = strategy("MostAllocated", ("cpu", 3), ("memory", 0))

    assert score(pod("p").request(cpu="400m", memory=0), info, scoringStrategy=weighted) == (3 * 40 + 0) // 4


def test_a_scalar_resource_counts_only_for_pods_that_ask_for_it() -> None:
    info = occupied(BIG.allocatable({GPU: 4, "cpu": 1}))
    gpus = strategy("MostAllocated", (GPU, 1), ("cpu", 1))

    assert score(pod("p").request({GPU: 1}, cpu="500m"), info, scoringStrategy=gpus) == (25 + 50) // 2
    assert score(pod("p").request(cpu="500m"), info, scoringStrategy=gpus) == 50


RISING = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]


def test_requested_to_capacity_ratio_ignores_what_scores_zero_and_rounds() -> None:
    info = occupied(BIG)
    rising = strategy("RequestedToCapacityRatio", ("cpu", 1), ("memory", 1), shape=RISING)
    uneven = strategy("RequestedToCapacityRatio", ("cpu", 1), ("memory", 1), shape=RISING)

    assert score(pod("p").request(cpu="600m", memory=0), info, scoringStrategy=rising) == 60
    assert score(pod("p").request(cpu="600m", memory=310 * MI), info, scoringStrategy=uneven) == 46  # 45.5
    assert score(pod("p").request(cpu=2, memory=0), info, scoringStrategy=rising) == 100


@pytest.mark.parametrize(
    ("shape", "utilization", "expected"),
    [
        ([(0, 100), (100, 0)], 33, 67),
        ([(0, 10), (70, 50)], 33, 28),
        ([(0, 50), (70, 10)], 33, 32),
        ([(10, 40), (70, 50)], 5, 40),
        ([(10, 40), (70, 50)], 90, 50),
        ([(10, 40), (70, 50)], 70, 50),
        ([(10, 40)], 10, 40),
    ],
)
def test_shapes_are_interpolated_and_truncated(
    shape: list[tuple[int, int]], utilization: int, expected: int
) -> None:
    assert interpolate(shape, utilization) == expected


# --- arguments ------------------------------------------------------------------------------------------------------------


def errors(**values: Any) -> list[str]:
    found = NodeResourcesFit.validate_args(args(**values), "args", FeatureGates())
    return [f"{error.path} {error.kind}" for error in found]


def test_the_defaults_are_valid() -> None:
    assert errors() == []
    assert errors(scoringStrategy=strategy("RequestedToCapacityRatio", shape=RISING)) == []


def test_every_broken_rule_is_reported_with_its_path() -> None:
    falling = [
        {"utilization": 50, "score": 11},
        {"utilization": 50, "score": -1},
        {"utilization": 101, "score": 1},
    ]

    found = errors(
        ignoredResources=["ok.io/x", "not valid"],
        ignoredResourceGroups=["example.com/gpu", "-x"],
        scoringStrategy={
            **strategy("Fullest", ("cpu", 101), ("memory", -1), ("cpu", 1)),
            "requestedToCapacityRatio": {"shape": RISING},
        },
    )
    shapes = errors(scoringStrategy=strategy("RequestedToCapacityRatio", shape=falling))

    assert found == [
        "args.ignoredResources[1] Invalid",
        "args.ignoredResourceGroups[0] Invalid",
        "args.ignoredResourceGroups[1] Invalid",
        "args.scoringStrategy.type NotSupported",
        "args.scoringStrategy.resources[0].weight Invalid",
        "args.scoringStrategy.resources[1].weight Invalid",
        "args.scoringStrategy.resources[2].name Duplicate",
        "args.scoringStrategy.requestedToCapacityRatio Forbidden",
    ]
    assert shapes == [
        "args.scoringStrategy.requestedToCapacityRatio.shape[0].score Invalid",
        "args.scoringStrategy.requestedToCapacityRatio.shape[1].utilization Invalid",
        "args.scoringStrategy.requestedToCapacityRatio.shape[1].score Invalid",
        "args.scoringStrategy.requestedToCapacityRatio.shape[2].utilization Invalid",
    ]


def test_a_resource_needs_a_name() -> None:
    assert errors(scoringStrategy={"resources": [{"weight": 2}, {}]}) == [
        "args.scoringStrategy.resources[0].name Required",
        "args.scoringStrategy.resources[1].name Required",
    ]


def test_the_ratio_needs_a_shape() -> None:
    assert errors(scoringStrategy={"type": "RequestedToCapacityRatio"}) == [
        "args.scoringStrategy.requestedToCapacityRatio.shape Required"
    ]


def test_arguments_in_a_configuration_file_are_refused_with_their_path() -> None:
    text = """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - schedulerName: x
          pluginConfig:
          - name: NodeResourcesFit
            args:
              ignoredResources: ["bad name"]
              scoringStrategy: {type: Fullest, resources: [{weight: 200}, 5, null], more: 1}
    """

    with pytest.raises(InvalidObjects) as caught:
        read_configuration(text, Registry())

    found = sorted(
        error.path.removeprefix("profiles[0].pluginConfig[0].args.") for error in caught.value.errors
    )
    assert found == [
        "ignoredResources[0]",
        "scoringStrategy.more",
        "scoringStrategy.resources[1]",
        "scoringStrategy.resources[2]",
        "scoringStrategy.type",
    ]


# --- hints ----------------------------------------------------------------------------------------------------------------


class Waiting:
    """A pod in the unschedulable pool."""

    attempted_at = 0
    first_rejected_at: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, builder: PodBuilder) -> None:
        self.pod = builder.build()


def hint(
    waiting: PodBuilder,
    event: ClusterEvent,
    old: Pod | Node | None,
    new: Pod | Node | None,
) -> Hint:
    found = [r for r in plugin().events_to_register() if matches(r.event, event)]
    assert len(found) == 1
    assert found[0].hint is not None
    return found[0].hint(Waiting(waiting), old, new)


DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
SCALED_DOWN = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
NODE_GREW = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
WANTS_CPU = pod("waiting").request(cpu="500m")


def test_a_deleted_pod_helps_if_it_had_a_place() -> None:
    assert hint(WANTS_CPU, DELETED, pod("a").on("n").build(), None) is Hint.QUEUE
    assert hint(WANTS_CPU, DELETED, pod("a").nominated("n").build(), None) is Hint.QUEUE
    assert hint(WANTS_CPU, DELETED, pod("a").build(), None) is Hint.SKIP


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pod("a").on("n").request(cpu=2), pod("a").on("n").request(cpu=1), Hint.QUEUE),
        (pod("a").on("n").request(memory=2), pod("a").on("n").request(memory=1), Hint.SKIP),
        (pod("a").request(cpu=2), pod("a").request(cpu=1), Hint.SKIP),
    ],
)
def test_a_scaled_down_pod_helps_if_it_takes_less_of_what_is_wanted(
    before: PodBuilder, after: PodBuilder, expected: Hint
) -> None:
    assert hint(WANTS_CPU, SCALED_DOWN, before.build(), after.build()) is expected


def test_the_waiting_pods_own_scale_down_always_helps() -> None:
    own = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)

    assert hint(WANTS_CPU, own, WANTS_CPU.build(), pod("waiting").build()) is Hint.QUEUE


def test_a_new_node_helps_if_the_pod_fits_on_it_while_it_is_empty() -> None:
    assert hint(WANTS_CPU, NODE_ADDED, None, SMALL.build()) is Hint.QUEUE
    assert hint(WANTS_CPU.request({GPU: 1}), NODE_ADDED, None, SMALL.build()) is Hint.SKIP


@pytest.mark.parametrize(
    ("waiting", "after", "expected"),
    [
        (WANTS_CPU, SMALL.allocatable(cpu=2, memory="1Gi", pods=2), Hint.QUEUE),
        (WANTS_CPU, SMALL.allocatable(cpu=1, memory="9Gi", pods=2), Hint.SKIP),
        (WANTS_CPU, SMALL.allocatable(cpu=1, memory="1Gi", pods=3), Hint.QUEUE),
        (WANTS_CPU.request(memory="2Gi"), SMALL.allocatable(cpu=2, memory="1Gi", pods=2), Hint.SKIP),
        (pod("waiting"), SMALL.allocatable(cpu=9, memory="1Gi", pods=2), Hint.SKIP),
    ],
)
def test_a_grown_node_helps_if_something_grew_that_the_pod_needs(
    waiting: PodBuilder, after: NodeBuilder, expected: Hint
) -> None:
    assert hint(waiting, NODE_GREW, SMALL.build(), after.build()) is expected


def test_an_ignored_resource_does_not_keep_a_new_node_from_helping() -> None:
    (registration,) = [
        r for r in plugin(ignoredResources=[GPU]).events_to_register() if matches(r.event, NODE_ADDED)
    ]

    assert registration.hint is not None
    assert registration.hint(Waiting(WANTS_CPU.request({GPU: 1})), None, SMALL.build()) is Hint.QUEUE
