"""KEP-5732 (topology-aware workload scheduling), sentence by sentence, and the acceptance list that was made of it.

Every docstring quotes the proposal. The clusters are small and the whole scheduler runs on a log, which must replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worlds.groups import (
    BLOCK,
    GATES,
    HEADER,
    RACK,
    assert_replays,
    claim,
    device_class,
    devices,
    in_rack,
    members,
    node,
    nodes_of,
    started,
    worker,
)
from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    GroupSchedulingConstraints,
    ResourceClaim,
    TopologyConstraint,
    Workload,
    WorkloadPodGroup,
    pod_condition,
)
from tidelog.api.validation.rules import validate
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import PlacementChosen, Unschedulable, decode_body
from tidelog.framework.interface import (
    Code,
    CycleState,
    GroupInfo,
    Placement,
    Plugin,
    PreFilterResult,
    Status,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.testing import builders as b
from tidelog.testing.devices import devices_of


def chosen(driver: Driver) -> PlacementChosen:
    bodies = map(decode_body, reversed(driver.records))
    return next(body for body in bodies if isinstance(body, PlacementChosen))


def rejected(driver: Driver) -> Unschedulable:
    bodies = map(decode_body, reversed(driver.records))
    return next(body for body in bodies if isinstance(body, Unschedulable) and not body.same_as)


def levels(*constraints: tuple[str, bool]) -> GroupSchedulingConstraints:
    found = tuple(TopologyConstraint(level=level, preferred=preferred) for level, preferred in constraints)
    return GroupSchedulingConstraints(topology_constraints=found)


def training(*constraints: tuple[str, bool], min_count: int = 4) -> Workload:
    group = b.workload_group("workers", min_count=min_count)
    group = WorkloadPodGroup(
        name=group.name, policy=group.policy, scheduling_constraints=levels(*constraints)
    )
    return b.workload("job", group)


def workers(count: int, replica: str = "", cpu: str = "1") -> list[Any]:
    return [worker(f"job-{replica}{i}", "job", replica=replica, cpu=cpu) for i in range(count)]


# --- User stories --------------------------------------------------------------------------------------------------------


def test_story_1_ai_training_in_a_single_rack() -> None:
    """Story 1: "I define a `TopologyConstraint` on the Workload's PodGroup specifying the rack topology label. The scheduler
    identifies a rack with sufficient capacity and schedules all pods there at once."
    """
    driver = started()
    driver.put(node("a1", "a", "2"), node("a2", "a", "1"), node("b1", "b", "2"), node("b2", "b", "2"))
    driver.put(training((RACK, False)), *workers(4))

    driver.settle()

    assert nodes_of(driver, "job") == ["b1", "b1", "b2", "b2"]
    assert driver.kinds()[-5:] == ["PlacementChosen", *["Scheduled"] * 4]
    assert_replays(driver)


def test_story_2_workload_using_interconnected_devices() -> None:
    """Story 2: "The scheduler finds a set of DRA resources (ResourceSlice) that are co-located and binds the workload's pods to them." """
    driver = started()
    driver.put(node("a1", "a", "8"), node("b1", "b", "8"), device_class())
    driver.put(devices("fa", "f1", 1, in_rack("a")), devices("fb", "f2", 2, in_rack("b")), claim())
    driver.put(b.pod_group("train", min_count=3), *members(3, claim="shared"))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 3
    assert chosen(driver).placement == "shared=f2"
    shared = driver.core.objects["ResourceClaim/default/shared"]
    assert isinstance(shared, ResourceClaim)
    assert devices_of(shared) == ["fb/fb-0", "fb/fb-1"]
    assert [user.name for user in shared.status.reserved_for] == ["train-0", "train-1", "train-2"]
    assert_replays(driver)


# --- Proposal -------------------------------------------------------------------------------------------------------------


def test_all_pods_are_placed_onto_nodes_that_share_the_label() -> None:
    """ "Ensures all pods in a PodGroup are placed onto nodes sharing a common topological characteristic (e.g., same rack), defined by
    a specific node label." Nodes without it are never used.
    """
    driver = started()
    driver.put(node("bare", None, "64"), node("a1", "a"), training((RACK, False)), *workers(4))

    driver.settle()

    assert set(nodes_of(driver, "job")) == {"a1"}
    assert_replays(driver)


def test_different_replicas_can_land_on_different_domain_instances() -> None:
    """TopologyConstraint.Level: "Different replicas of the PodGroup can land on different domain instances." """
    driver = started()
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), training((RACK, False), min_count=2))
    driver.put(*workers(2, "r0"), *workers(2, "r1"))

    driver.settle()

    placed = driver.placements()
    of = [{placed[f"default/job-{r}{i}"] for i in range(2)} for r in ("r0", "r1")]
    assert sorted(map(len, of)) == [1, 1]
    assert of[0] != of[1]
    assert_replays(driver)


def test_workload_remains_pending_if_no_placement_satisfies_the_constraints() -> None:
    """Integration tests: "Verify that Workloads remain pending if no Placement satisfies the constraints." """
    driver = started()
    driver.put(node("a1", "a", "3"), node("b1", "b", "3"), training((RACK, False)), *workers(4))

    driver.advance(seconds=120)

    condition = pod_condition(driver.pod("job-0"), "PodScheduled")
    assert driver.placements() == {}
    assert condition is not None
    assert "0/2 placements of podGroup default/job/workers are feasible" in condition.message
    assert_replays(driver)


def test_without_a_constraint_the_existing_algorithm_is_used() -> None:
    """ "Only when workload will have an explicit topology constraint set an alternative algorithm will be used." """
    driver = started()
    driver.put(node("a1", "a", "2"), node("b1", None, "2"), training(), *workers(4))

    driver.settle()

    assert nodes_of(driver, "job") == ["a1", "a1", "b1", "b1"]
    assert_replays(driver)


def test_only_a_single_constraint_is_supported_at_first() -> None:
    """ "Note: For the initial alpha scope, only a single TopologyConstraint will be supported." """
    on = FeatureGates(topology_aware_workload_scheduling=True)

    errors = validate(training((BLOCK, False), (RACK, False)), on)

    assert [error.path for error in errors] == ["spec.podGroups[0].schedulingConstraints.topologyConstraints"]


def test_configuration_may_allow_more_constraints_and_admission_follows_the_log() -> None:
    """The rule above holds "for the initial alpha scope": `maxTopologyConstraints` lifts it."""
    driver = started(maxTopologyConstraints=2)
    table = ObjectTable()
    for record in driver.records:
        table.apply(record)
    on = FeatureGates(topology_aware_workload_scheduling=True)
    workload = training((BLOCK, False), (RACK, True))

    admitted, _ = admit(workload, None, table.cluster, on, Stamp(seq=9, at=9))

    assert admitted.spec == workload.spec


def test_gate_off_refuses_the_field_and_ignores_it_where_it_is_stored() -> None:
    """ "the `schedulingConstraints` field can no longer be set on the Workloads (the already set fields continue to be set though);
    scheduler will revert to the original behavior of scheduling pods belonging to a gang".
    """
    driver = started(gates={})
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), training((RACK, False)), *workers(4))

    driver.settle()

    assert [e.kind for e in validate(training((RACK, False)), FeatureGates())] == ["Forbidden"]
    assert nodes_of(driver, "job") == ["a1", "a1", "b1", "b1"]
    assert_replays(driver)


# --- Basic policy extension ------------------------------------------------------------------------------------------------


def with_desired_count(gates: Mapping[str, bool] = GATES) -> Driver:
    driver = started(gates=dict(gates))
    driver.put(node("a1", "a", "2"), node("b1", "b", "16"))
    driver.put(b.workload("job", b.workload_group("workers", desired_count=4, level=RACK)))
    return driver


def test_desired_count_does_not_block_scheduling() -> None:
    """ "Unlike gang's minCount, this field does not block scheduling." """
    driver = with_desired_count()
    driver.put(*workers(2))

    driver.advance(seconds=6)

    assert len(nodes_of(driver, "job")) == 2
    assert_replays(driver)


def test_scheduler_prefers_placements_that_can_accommodate_the_full_desired_count() -> None:
    """ "will optimistically try to select a placement that can accommodate the future pods" """
    driver = with_desired_count()
    driver.put(*workers(2))
    driver.advance(seconds=6)
    early = set(nodes_of(driver, "job"))

    driver.put(*(worker(f"job-{i}", "job") for i in (2, 3)))
    driver.advance(seconds=6)

    assert early == {"b1"}
    assert nodes_of(driver, "job") == ["b1"] * 4
    assert_replays(driver)


def test_scheduler_delays_the_first_pod_for_a_short_amount_of_time() -> None:
    """ "the scheduler can delay scheduling the first Pod it sees for a short amount of time in order to wait for more Pods" """
    driver = with_desired_count()
    driver.put(*workers(2))
    driver.advance(seconds=4)
    waited = driver.placements()

    driver.put(*(worker(f"job-{i}", "job") for i in (2, 3)))
    driver.settle()

    assert waited == {}
    assert len(nodes_of(driver, "job")) == 4
    assert_replays(driver)


def test_desired_count_has_a_gate_of_its_own() -> None:
    """ "This field will be gated behind a separate feature gate (`WorkloadBasicPolicyDesiredCount`)"."""
    driver = with_desired_count({"TopologyAwareWorkloadScheduling": True})
    driver.put(*workers(2))

    driver.settle()

    assert nodes_of(driver, "job") == ["a1", "a1"]
    assert_replays(driver)


# --- Algorithm --------------------------------------------------------------------------------------------------------------


class Recording(Plugin):
    """Generates, assumes, reverts and scores, and writes down in which order it was asked."""

    name = "Recording"
    calls: Sequence[str] = ()
    refuses = ""

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]:
        type(self).calls = [*self.calls, f"generate {','.join(p.name for p in parents)}"]
        return parents, None

    def assume(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        type(self).calls = [*self.calls, f"assume {placement.name}"]
        return unschedulable("not here") if self.refuses and self.refuses in placement.name else None

    def revert(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        type(self).calls = [*self.calls, f"revert {placement.name}"]
        return None

    def score_placement(
        self, state: CycleState, group: GroupInfo, placement: Placement, assignment: Mapping[str, str]
    ) -> float:
        type(self).calls = [*self.calls, f"score {placement.name} {len(assignment)}"]
        return 100.0 if placement.name.endswith("=b") else 0.0


class RefusingB(Recording):
    """Does not let rack b be assumed."""

    refuses = "=b"


def recorded(plugin: type[Recording]) -> Driver:
    registry = Registry()
    registry.register(plugin)
    driver = Driver(registry)
    points = {"multiPoint": {"enabled": [{"name": "Recording", "weight": 100}]}}
    file = {**HEADER, "profiles": [{"plugins": points}], "tidelog": {"featureGates": GATES}}
    driver.start(resolve_configuration(file, registry).configuration)
    plugin.calls = ()
    driver.put(node("a1", "a"), node("b1", "b"), training((RACK, False)), *workers(4))
    return driver


class FromPreFilter(Plugin):
    """Generates a placement for each node that PreFilter has seen, or none if it has seen nothing."""

    name = "FromPreFilter"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write("FromPreFilter.seen", (pod.name, [node.name for node in nodes]))
        return PreFilterResult(status=Status(Code.SKIP))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]:
        name, nodes = state.read("FromPreFilter.seen") or ("", [])
        return [Placement(name=f"{name} on {node}", nodes=(node,)) for node in nodes], None


def seen_by_pre_filter(**settings: Any) -> Driver:
    registry = Registry()
    registry.register(FromPreFilter)
    driver = Driver(registry)
    points = {"multiPoint": {"enabled": [{"name": "FromPreFilter"}]}}
    file = {**HEADER, "profiles": [{"plugins": points}], "tidelog": {"featureGates": GATES}}
    driver.start(replace(resolve_configuration(file, registry).configuration, **settings))
    driver.put(node("a1", "a", "2"), node("b1", "b"), b.pod_group("train", min_count=3), *members(3))
    driver.settle()
    return driver


def test_generators_run_after_pre_filter_with_its_state() -> None:
    """Phase 1: "Placement generation is executed after PreFilter giving PlacementGeneratorPlugins a chance to get the list of nodes in
    the cluster."
    """
    driver = seen_by_pre_filter()

    assert chosen(driver).placement == "train-0 on b1"
    assert nodes_of(driver) == ["b1"] * 3
    assert verify(driver.records, driver.registry).first_difference is None


def test_log_that_was_written_before_gave_generators_an_empty_state() -> None:
    driver = seen_by_pre_filter(behaviours=())

    assert nodes_of(driver) == []
    assert rejected(driver).message == "no feasible placements found"
    assert verify(driver.records, driver.registry).first_difference is None


def test_each_placement_is_assumed_tried_and_reverted_and_the_feasible_ones_are_scored() -> None:
    """Phase 2: "Call `AssumePlacement` … Run default workload scheduling algorithm … Call `RevertPlacement`." Phase 3: "Call
    `ScorePlacement` for all feasible placements. … Select the Placement with the highest score."
    """
    driver = recorded(Recording)

    driver.attempt()

    a, other = f"{RACK}=a", f"{RACK}=b"
    assert [
        f"generate {a},{other}",
        *(f"assume {a}", f"revert {a}", f"assume {other}", f"revert {other}"),
        *(f"score {a} 4", f"score {other} 4"),
        *(f"assume {other}", f"revert {other}"),
    ] == Recording.calls
    driver.commit()
    assert nodes_of(driver, "job") == ["b1"] * 4


def test_placement_that_a_state_plugin_refuses_is_infeasible_and_told() -> None:
    """Phase 2: a placement whose context cannot be assumed is not feasible."""
    driver = recorded(RefusingB)

    driver.attempt()
    driver.commit()

    assert nodes_of(driver, "job") == ["a1"] * 4
    assert chosen(driver).explanation == (f"{RACK}=b: not here",)
    assert f"revert {RACK}=b" not in RefusingB.calls


def test_pods_are_processed_sequentially_and_one_that_fails_rejects_the_placement() -> None:
    """ "Pods are processed sequentially; if any fail, the placement is rejected." """
    driver = started()
    group = b.workload_group("workers", level=RACK)
    driver.put(node("a1", "a", "3"), node("a2", "a", "3"), b.workload("job", group))
    driver.put(
        worker("job-0", "job", cpu="2"), worker("job-1", "job", cpu="2"), worker("job-2", "job", cpu="2")
    )

    driver.advance(seconds=10)

    assert driver.placements() == {}
    assert (
        "2/3 pods fit, default/job-2: 0/2 nodes are available: 2 Insufficient cpu."
        in rejected(driver).message
    )
    assert_replays(driver)


def test_placement_with_the_tightest_fit_is_chosen() -> None:
    """PlacementBinPackingPlugin: "Scores Placements to maximize utilization (tightest fit) and minimize fragmentation." """
    driver = started()
    driver.put(*(node(f"{rack}1", rack, cpu) for rack, cpu in (("a", "16"), ("b", "5"), ("c", "9"))))
    driver.put(training((RACK, False)), *workers(4))

    driver.settle()

    assert set(nodes_of(driver, "job")) == {"b1"}
    assert set(chosen(driver).scores) == {f"{RACK}={r}" for r in "abc"}
    assert_replays(driver)


def test_node_whose_label_changes_before_the_commit_sends_the_group_back() -> None:
    """Acceptance: the change does not matter to the cycle, which sees a snapshot, but the placement is not committed."""
    driver = started()
    driver.put(node("a1", "a"), node("b1", "b", "16"), training((RACK, False)), *workers(4))
    driver.attempt()

    driver.put(node("a1", "z"))
    driver.commit()
    seen = driver.placements()
    driver.settle()

    assert seen == {}
    assert len(set(nodes_of(driver, "job"))) == 1
    assert_replays(driver)


# --- Potential future extensions ----------------------------------------------------------------------------------------------


def blocks(cpu: Mapping[str, str]) -> list[Any]:
    """One node for each rack, named `block-rack`."""
    return [node(f"{name}1", name, c, **{BLOCK: name[0]}) for name, c in cpu.items()]


def test_multi_level_constraints_nest() -> None:
    """ "Multi-level Scheduling Constraints: Handling nested constraints (e.g., Block -> Rack). This would involve iterative placement
    generation and a Parent field in the Placement struct."
    """
    driver = started(maxTopologyConstraints=2)
    driver.put(
        *blocks({"ax": "2", "ay": "2", "bx": "4"}), training((BLOCK, False), (RACK, False)), *workers(4)
    )

    driver.settle()

    assert chosen(driver).placement == f"{BLOCK}=b,{RACK}=bx"
    assert nodes_of(driver, "job") == ["bx1"] * 4
    assert_replays(driver)


@pytest.mark.parametrize(
    ("cpu", "placement", "nodes"),
    [
        ({"ax": "2", "ay": "4", "bx": "3"}, f"{BLOCK}=a,{RACK}=ay", {"ay1"}),
        ({"ax": "2", "ay": "2", "bx": "3"}, f"{BLOCK}=a", {"ax1", "ay1"}),
    ],
)
def test_preferred_level_falls_back_to_the_wider_one(
    cpu: dict[str, str], placement: str, nodes: set[str]
) -> None:
    """ "Prioritized Placement Scheduling: Allowing a set of preferred placements with fallbacks (e.g., prefer Rack, fallback to Block).
    This would introduce a Rank field to the Placement struct."
    """
    driver = started(maxTopologyConstraints=2)
    driver.put(*blocks(cpu), training((BLOCK, False), (RACK, True)), *workers(4))

    driver.settle()

    assert chosen(driver).placement == placement
    assert set(nodes_of(driver, "job")) == nodes
    assert_replays(driver)


def test_search_ends_when_enough_feasible_placements_are_found() -> None:
    """ "Feasible Placements Limit: Adding an option to provide a limit on the number of feasible Placements which need to be found before
    moving to Phase 3".
    """
    driver = started(maxFeasiblePlacements=2)
    driver.put(*(node(f"{rack}1", rack) for rack in "abcdef"), training((RACK, False)), *workers(4))

    driver.settle()

    assert (chosen(driver).candidates, chosen(driver).evaluated) == (2, 2)
    assert_replays(driver)
