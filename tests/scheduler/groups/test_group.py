"""The table of groups: which there are, as their objects and pods come and go."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.objects import Pod
from tidelog.scheduler.groups.group import GroupTable, misfits
from tidelog.testing import builders as b

WORK = b.workload("job", b.workload_group("workers", min_count=2))
GROUP = "default/job/workers"


def worker(name: str, replica: str, node: str = "") -> Pod:
    pod = b.pod(name).workload("job", "workers", replica)
    return (pod.on(node) if node else pod).build()


def test_replica_is_known_as_long_as_it_has_pods() -> None:
    table = GroupTable()
    table.change(None, WORK)
    table.change(None, worker("a", "r0"))
    table.change(None, worker("b", "r1"))
    assert table.names() == [GROUP, f"{GROUP}/r0", f"{GROUP}/r1"]

    assert table.change(worker("a", "r0"), None) == [f"{GROUP}/r0"]

    assert table.names() == [GROUP, f"{GROUP}/r1"]
    assert table.info(f"{GROUP}/r0") is None
    assert table.change(WORK, None) == [GROUP, f"{GROUP}/r1"]


def test_pods_with_a_node_are_counted_as_they_come_get_one_and_go() -> None:
    table = GroupTable()
    table.change(None, WORK)
    table.change(None, worker("a", "r0", "n1"))
    table.change(None, worker("b", "r0"))

    def placed() -> int:
        info = table.info(f"{GROUP}/r0")
        assert info is not None
        return info.placed

    assert placed() == 1
    table.change(worker("b", "r0"), worker("b", "r0", "n1"))
    assert placed() == 2
    table.change(worker("a", "r0", "n1"), None)
    assert placed() == 1


def test_group_is_told_anew_only_where_its_info_may_be_another_one() -> None:
    table = GroupTable()
    table.change(None, WORK)

    assert table.change(None, worker("a", "r0")) == [f"{GROUP}/r0"], "the replica is known from now on"
    known = table.info(f"{GROUP}/r0")
    assert table.change(None, worker("b", "r0")) == []
    assert table.info(f"{GROUP}/r0") == known
    assert table.change(None, worker("c", "r0", "n1")) == [f"{GROUP}/r0"]
    assert table.change(worker("b", "r0"), worker("b", "r1")) == [f"{GROUP}/r0", f"{GROUP}/r1"]


def test_replica_whose_pods_have_gone_and_come_again_counts_anew() -> None:
    table = GroupTable()
    table.change(None, WORK)
    table.change(None, worker("a", "r0", "n1"))
    table.change(worker("a", "r0", "n1"), None)

    table.change(None, worker("b", "r0"))

    info = table.info(f"{GROUP}/r0")
    assert info is not None
    assert (info.placed, [pod.metadata.name for pod in table.members(f"{GROUP}/r0")]) == (0, ["b"])


def test_pods_that_differ_where_a_group_must_not_are_named_with_both_values() -> None:
    one = b.pod("a").priority(5).scheduler("one").build()
    other = b.pod("b").priority(5).scheduler("two").build()
    spec = one.spec
    never = replace(one, spec=replace(spec, preemption_policy="Never"))
    same = "all pods in a single pod group should have the same"

    assert misfits(5, [one, one]) == ""
    assert misfits(6, [one]) == f"{same} priority as the pod group's priority, got 5 and 6"
    assert misfits(5, [one, other]) == f"{same} .spec.schedulerName, got one and two"
    assert misfits(5, [one, never]) == f"{same} preemption policy, got PreemptLowerPriority and Never"
