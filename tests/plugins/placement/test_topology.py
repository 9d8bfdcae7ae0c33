"""TopologyPlacement: one placement for each domain of a level."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tests.worlds.placements import BLOCK, RACK, group, handle, node
from tidelog.api.objects import Node, Pod
from tidelog.framework.behaviours import all_behaviours
from tidelog.framework.events import Hint
from tidelog.framework.interface import CycleState, LevelConstraint, Placement
from tidelog.framework.placements import NO_PLACEMENTS, whole
from tidelog.plugins.placement.topology import TopologyPlacement, spec_changed
from tidelog.queue.entity import QueuedPod
from tidelog.testing import builders as b

ALL = all_behaviours()
NODES = [
    node("n1", rack="r2", block="b1"),
    node("n2", rack="r1", block="b1"),
    node("n3", rack="r3", block="b2"),
    node("n4", rack="r2", block="b1"),
    node("n5"),
]


def generate(
    found: object, *, nodes: list[Node] = NODES, upstream: bool = False
) -> tuple[list[tuple[str, int, tuple[str, ...]]], str]:
    plugin = TopologyPlacement(None, handle(nodes, upstream=upstream))
    parents = [whole([n.metadata.name for n in nodes])]
    placements, status = plugin.generate(CycleState(), found, parents)  # type: ignore[arg-type]
    told = "" if status is None else f"{status.code.value}: {status.message}"
    return [(p.name, p.rank, p.nodes) for p in placements], told


def on(name: str, where: str) -> tuple[Pod, str]:
    return b.pod(name).on(where).build(), where


def test_each_value_is_a_placement_and_nodes_without_the_label_are_in_none() -> None:
    found, told = generate(group(RACK))

    assert found == [("rack=r1", 0, ("n2",)), ("rack=r2", 0, ("n1", "n4")), ("rack=r3", 0, ("n3",))]
    assert told == ""


def test_upstream_names_a_placement_after_its_value_and_the_empty_value_is_one() -> None:
    found, _ = generate(group(RACK), nodes=[node("n1", rack=""), node("n2", rack="r1")], upstream=True)

    assert found == [("", 0, ("n1",)), ("r1", 0, ("n2",))]


def test_group_without_a_constraint_keeps_the_parents() -> None:
    found, _ = generate(group())

    assert found == [("", 0, ("n1", "n2", "n3", "n4", "n5"))]


def test_no_domain_at_all_rejects_the_group() -> None:
    found, told = generate(group("zone"))

    assert ([], f"Unschedulable: {NO_PLACEMENTS}") == (found, told)


def test_second_level_splits_the_domains_of_the_first() -> None:
    found, _ = generate(group(BLOCK, RACK))

    assert [name for name, _, _ in found] == ["block=b1,rack=r1", "block=b1,rack=r2", "block=b2,rack=r3"]


def test_preferred_level_keeps_the_wider_placement_one_rank_behind() -> None:
    found, _ = generate(group(BLOCK, LevelConstraint(RACK, preferred=True)))

    assert [(name, rank) for name, rank, _ in found] == [
        ("block=b1,rack=r1", 0),
        ("block=b1,rack=r2", 0),
        ("block=b2,rack=r3", 0),
        ("block=b1", 1),
        ("block=b2", 1),
    ]


def test_placed_members_leave_their_domain_only() -> None:
    found, _ = generate(group(RACK, placed=[on("p", "n4")]))

    assert found == [("rack=r2", 0, ("n1", "n4"))]


def test_members_in_two_domains_leave_none_and_that_is_an_error_upstream() -> None:
    split = group(RACK, placed=[on("p", "n2"), on("q", "n3")])
    said = (
        "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: r1, r3"
    )

    assert ([], f"UnschedulableAndUnresolvable: {said}") == generate(split)
    assert ([], f"Error: {said}") == generate(split, upstream=True)


def test_member_on_a_node_without_the_label_or_unknown_leaves_none() -> None:
    _, bare = generate(group(RACK, placed=[on("p", "n5")]))
    _, gone = generate(group(RACK, placed=[on("p", "n9")]))

    assert bare.endswith("no topology domain found for pod default/p")
    assert gone.endswith('getting node for pod default/p: nodeinfo not found for node name "n9"')


def test_members_in_two_domains_of_a_preferred_level_do_not_matter() -> None:
    found, told = generate(
        group(LevelConstraint(RACK, preferred=True), placed=[on("p", "n2"), on("q", "n3")])
    )

    assert told == ""
    assert len(found) == 4


def test_parents_pass_on_their_rank_and_devices() -> None:
    plugin = TopologyPlacement(None, handle(NODES))
    parent = Placement(name="x", nodes=("n1",), rank=3, allocations=(("claim", "devices"),))

    (child,), _ = plugin.generate(CycleState(), group(RACK), [parent])

    assert ("x,rack=r2", 3, "x", parent.allocations) == (
        child.name,
        child.rank,
        child.parent,
        child.allocations,
    )


# --- hints -----------------------------------------------------------------------------------------------------------------


def waiting(pod: Pod) -> QueuedPod:
    return QueuedPod(key="default/p", timestamp=0, uid="p", pod=pod, profile="default-scheduler")


def hint_of(
    index: int, pod: Pod, old: object, new: object, *levels: LevelConstraint, behaviours: Sequence[int] = ALL
) -> Hint:
    """`levels`: of the pod's group; a rack, if there are none."""
    given = handle(NODES)
    given.behaviours = frozenset(behaviours)
    given.listers.levels = lambda asked: (levels or (LevelConstraint(RACK),)) if asked is pod else ()
    hint = TopologyPlacement(None, given).events_to_register()[index].hint
    assert hint is not None
    return hint(waiting(pod), old, new)


MEMBER = b.pod("p").group("g").build()


def test_new_labels_may_open_a_domain_and_a_heartbeat_does_not() -> None:
    before = node("n1", rack="r1")

    assert hint_of(0, MEMBER, None, before) is Hint.QUEUE
    assert hint_of(0, MEMBER, before, node("n1", rack="r2")) is Hint.QUEUE
    assert hint_of(0, MEMBER, before, node("n1", rack="r1", cpu="8")) is Hint.SKIP


def test_only_labels_of_the_groups_own_levels_may_open_a_domain() -> None:
    before = node("n1", rack="r1", seen="1")
    block, preferred = LevelConstraint(BLOCK), LevelConstraint(RACK, preferred=True)

    assert hint_of(0, MEMBER, before, node("n1", rack="r1", seen="2")) is Hint.SKIP
    assert hint_of(0, MEMBER, before, node("n1", seen="1")) is Hint.QUEUE
    assert hint_of(0, MEMBER, before, node("n1", rack="r2"), block) is Hint.SKIP
    assert hint_of(0, MEMBER, before, node("n1", rack="r2"), block, preferred) is Hint.QUEUE


def test_new_node_is_in_a_domain_of_each_level_that_must_be_kept_to() -> None:
    block, preferred = LevelConstraint(BLOCK), LevelConstraint(RACK, preferred=True)

    assert hint_of(0, MEMBER, None, node("n9")) is Hint.SKIP
    assert hint_of(0, MEMBER, None, node("n9", rack="r1"), block, LevelConstraint(RACK)) is Hint.SKIP
    assert hint_of(0, MEMBER, None, node("n9", block="b1"), block, preferred) is Hint.QUEUE
    assert hint_of(0, MEMBER, None, node("n9"), preferred) is Hint.QUEUE


def test_any_label_woke_before_that_was_numbered() -> None:
    before = node("n1", rack="r1", seen="1")

    assert hint_of(0, MEMBER, before, node("n1", rack="r1", seen="2"), behaviours=()) is Hint.QUEUE
    assert hint_of(0, MEMBER, None, node("n9"), behaviours=()) is Hint.QUEUE


def test_end_of_a_placed_member_may_unpin_the_group_and_that_of_a_stranger_does_not() -> None:
    assert hint_of(1, MEMBER, b.pod("q").group("g").on("n1").build(), None) is Hint.QUEUE
    assert hint_of(1, MEMBER, b.pod("q").group("h").on("n1").build(), None) is Hint.SKIP


def test_own_group_that_asks_for_something_else_wakes_and_its_status_does_not() -> None:
    old, new = b.pod_group("g", min_count=3), b.pod_group("g", min_count=2)
    told = replace(old, status=replace(old.status, conditions=()))

    assert spec_changed(waiting(MEMBER), old, new) is Hint.QUEUE
    assert spec_changed(waiting(MEMBER), old, told) is Hint.SKIP
    assert spec_changed(waiting(MEMBER), None, b.pod_group("h", min_count=1)) is Hint.SKIP
    of_workload = b.pod("p").workload("w", "g").build()
    assert spec_changed(waiting(of_workload), None, b.workload("w", b.workload_group("g"))) is Hint.QUEUE
