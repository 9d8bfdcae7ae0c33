"""PlacementBinPacking and PlacementPodCountScorer: golden values, and what counts."""

from __future__ import annotations

import pytest

from tests.worlds.placements import group, handle
from tidelog.api.objects import Node, Pod
from tidelog.framework.interface import CycleState, Placement
from tidelog.framework.placements import FUTURE_PODS
from tidelog.plugins.placement.bin_packing import PlacementBinPacking
from tidelog.plugins.placement.pod_count import PlacementPodCountScorer
from tidelog.testing import builders as b

BOTH = Placement(name="both", nodes=("n1", "n2"))


def small(name: str) -> Node:
    """kube-scheduler's own test of placements has nodes of 5 cores and 5,000 bytes."""
    return b.node(name).capacity(cpu="5", memory="5000").build()


def pod(name: str, cpu: str, memory: str) -> Pod:
    return b.pod(name).request(cpu=cpu, memory=memory).build()


ASSIGNED = {"default/p": "n1", "default/q": "n2"}
MEMBERS = [pod("p", "1", "0"), pod("q", "2", "2000")]


@pytest.mark.parametrize(
    ("there", "upstream", "exact"),
    [((), 25, 25.0), ((b.pod("x").request(cpu="1", memory="0").on("n1").build(),), 30, 30.0)],
)
def test_bin_packing_scores_the_used_part_of_all_nodes_together(
    there: tuple[Pod, ...], upstream: int, exact: float
) -> None:
    nodes = [small("n1"), small("n2")]

    for wanted, is_upstream in ((upstream, True), (exact, False)):
        plugin = PlacementBinPacking(None, handle(nodes, pods=there, upstream=is_upstream))
        score = plugin.score_placement(CycleState(), group(members=MEMBERS), BOTH, ASSIGNED)
        assert score == pytest.approx(wanted)


def test_bin_packing_floors_each_resource_upstream_and_keeps_fractions_else() -> None:
    nodes = [b.node("n1").capacity(cpu="3", memory="3000").build()]
    members = [pod("p", "1", "1000")]
    one = Placement(name="one", nodes=("n1",))

    exact, floored = (
        PlacementBinPacking(None, handle(nodes, upstream=upstream)).score_placement(
            CycleState(), group(members=members), one, {"default/p": "n1"}
        )
        for upstream in (False, True)
    )

    assert (round(exact, 3), floored) == (33.333, 33.0)


def test_bin_packing_counts_what_the_members_ask_for_besides_cpu_and_memory() -> None:
    gpus = b.node("n1").capacity({"example.com/gpu": "4"}, cpu="4", memory="4000").build()
    member = b.pod("p").request({"example.com/gpu": "4"}, cpu="0", memory="0").build()
    plugin = PlacementBinPacking(None, handle([gpus]))

    score = plugin.score_placement(
        CycleState(), group(members=[member]), Placement(name="x", nodes=("n1",)), {"default/p": "n1"}
    )

    assert score == pytest.approx(100 / 3)


def test_members_without_a_place_do_not_count() -> None:
    plugin = PlacementBinPacking(None, handle([small("n1"), small("n2")]))

    without = plugin.score_placement(CycleState(), group(members=MEMBERS), BOTH, {})

    assert without == 0.0


def test_pod_count_includes_placed_and_future_pods() -> None:
    state = CycleState()
    state.write(FUTURE_PODS, {"both": 3})
    plugin = PlacementPodCountScorer(None, handle([small("n1")]))
    found = group(members=MEMBERS, placed=[(pod("r", "1", "0"), "n1")])

    assert plugin.score_placement(state, found, BOTH, ASSIGNED) == 6.0


@pytest.mark.parametrize(
    ("upstream", "normalized"), [(True, [100.0, 66.0, 33.0]), (False, [100.0, 200 / 3, 100 / 3])]
)
def test_pod_count_is_normalised_by_the_best(upstream: bool, normalized: list[float]) -> None:
    plugin = PlacementPodCountScorer(None, handle([small("n1")], upstream=upstream))

    assert plugin.normalize_placement_scores([3.0, 2.0, 1.0]) == pytest.approx(normalized)
    assert plugin.normalize_placement_scores([0.0, 0.0]) == [0.0, 0.0]
