"""Laws of groups, on random clusters and histories.

1. Deciding about a group leaves no trace: cache, queue, nominations, claims and the snapshot are what they were.
2. The quick look at sums changes no decision: it never turns down a placement that the simulation accepts.
3. Whatever happens in between, no state that the log implies has fewer of a gang bound than it needs, unless somebody took them away.
4. Every history verifies, and comes back after a restart, wherever the log is cut between transactions.

More examples: `TIDELOG_GROUP_EXAMPLES=5000 pytest tests/scheduler/groups/test_invariants.py`.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import cases
from tests.worlds.groups import RACK, claim, device_class, devices, started
from tidelog.api.objects import Node, Pod
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import PlacementChosen, decode_body
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover
from tidelog.scheduler.groups.aggregate import AggregateCheck
from tidelog.scheduler.groups.cycle import GroupOptions, GroupResult
from tidelog.scheduler.pod_cycle import Stamp
from tidelog.testing import builders as b

EXAMPLES = cases(30, "TIDELOG_GROUP_EXAMPLES")
many = settings(max_examples=EXAMPLES)
few = settings(max_examples=max(1, EXAMPLES // 3))

CPUS = st.sampled_from(["0", "500m", "1", "1500m", "2", "3"])


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    found = []
    for number in range(draw(st.integers(1, 7))):
        node = b.node(f"n{number}")
        rack = draw(st.sampled_from(["a", "b", "c", None]))
        if rack is not None:
            node = node.label({RACK: rack})
        if draw(st.booleans()):
            node = node.label({"disk": "ssd"})
        node = node.capacity(
            cpu=draw(st.sampled_from(["1", "2", "4", "6"])),
            memory=draw(st.sampled_from(["1Gi", "4Gi"])),
            pods=str(draw(st.sampled_from([1, 2, 3, 110]))),
        )
        if draw(st.integers(0, 5)) == 0:
            node = node.taint("dedicated", "batch")
        found.append((node.cordon() if draw(st.integers(0, 7)) == 0 else node).build())
    return found


@st.composite
def pods(draw: st.DrawFn, group: str, count: int) -> list[Pod]:
    found = []
    for number in range(count):
        pod = b.pod(f"{group}-{number}").group(group).label(app=group).scheduler("default-scheduler")
        pod = pod.request(cpu=draw(CPUS), memory=draw(st.sampled_from(["0", "256Mi", "1Gi"])))
        kind = draw(st.integers(0, 9))
        if kind == 0:
            pod = pod.node_selector(disk="ssd")
        elif kind == 1:
            pod = pod.tolerate("dedicated")
        elif kind == 2:
            pod = pod.port(8080)
        elif kind == 3:
            pod = pod.pod_anti_affinity("kubernetes.io/hostname", {"app": group})
        elif kind == 4:
            pod = pod.pod_affinity(RACK, {"app": group})
        found.append(pod.build())
    return found


@st.composite
def worlds(draw: st.DrawFn) -> Driver:
    """A cluster with some room taken and some promised to others, and one group in the queue."""
    driver = started(partialPlacement=draw(st.sampled_from(["auto", "always"])))
    machines = draw(nodes())
    driver.put(*machines)
    for number in range(draw(st.integers(0, 4))):
        on = draw(st.sampled_from(machines)).metadata.name
        driver.put(b.pod(f"there-{number}").request(cpu=draw(CPUS)).on(on).build())
    for number in range(draw(st.integers(0, 2))):
        on = draw(st.sampled_from(machines)).metadata.name
        pod = b.pod(f"promised-{number}").priority(10).request(cpu=draw(CPUS)).nominated(on)
        driver.put(pod.scheduler("default-scheduler").build())
    count = draw(st.integers(1, 5))
    min_count = draw(st.one_of(st.none(), st.integers(1, count)))
    level = draw(st.sampled_from([RACK, RACK, None]))
    driver.put(b.pod_group("train", min_count=min_count, level=level, priority=0))
    driver.put(*draw(pods("train", count)))
    return driver


def decide(driver: Driver) -> GroupResult:
    core = driver.core
    assert core.configuration is not None
    group = core.queue.get_group("default/train")
    assert group is not None
    core.cluster.snapshot.refresh(core.cluster.cache)
    stamp = Stamp(core.attempts + 1, core.seq, driver.now, core.epoch)
    options = GroupOptions.of(core.configuration)
    return core.group_flights.decide(group.key, group.ordered_members(), core.frameworks, stamp, options)


def traces(driver: Driver) -> Any:
    """Everything that a cycle could leave behind."""
    core = driver.core
    seen = [
        (
            node.name,
            node.requested,
            node.non_zero_cpu,
            node.non_zero_memory,
            node.used_ports,
            sorted(node.pods),
        )
        for node in core.cluster.snapshot.nodes
    ]
    affinity = [
        sorted(node.name for node in nodes())
        for nodes in (
            core.cluster.snapshot.nodes_with_affinity_pods,
            core.cluster.snapshot.nodes_with_required_anti_affinity_pods,
        )
    ]
    nominated = [(pod.key, node) for pod, node in core.queue.nominator.nominations()]
    claims = list(core.cluster.listers.resource_claims())
    return repr((core.digest(), seen, affinity, nominated, claims))


@many
@given(worlds())
def test_law_1_deciding_leaves_no_trace(driver: Driver) -> None:
    driver.core.cluster.snapshot.refresh(driver.core.cluster.cache)
    before = traces(driver)

    decide(driver)

    assert before == traces(driver)


@few
@given(worlds(), st.integers(1, 3))
def test_law_1_holds_for_devices_too(driver: Driver, count: int) -> None:
    with_devices = started()
    with_devices.put(*(o for o in driver.core.objects.values() if isinstance(o, Node)))
    with_devices.put(devices("fa", "f1", 1), devices("fb", "f2", 2), device_class(), claim(count=count))
    members = [
        b.pod(f"train-{i}").group("train").claim("c", claim="shared").scheduler("default-scheduler").build()
        for i in range(2)
    ]
    with_devices.put(b.pod_group("train", min_count=2, level=RACK), *members)
    with_devices.core.cluster.snapshot.refresh(with_devices.core.cluster.cache)
    before = traces(with_devices)

    decide(with_devices)

    assert before == traces(with_devices)


@many
@given(worlds())
def test_law_2_sums_change_no_decision(driver: Driver) -> None:
    quick = decide(driver)
    with patch.object(AggregateCheck, "shortage", lambda *_: None):
        slow = decide(driver)

    turned_down = {e.placement.name for e in quick.evaluations if not e.steps and e.message}
    assert not turned_down & {e.placement.name for e in slow.evaluations if e.is_feasible}
    assert kind_and_places(quick) == kind_and_places(slow)


def kind_and_places(result: GroupResult) -> Any:
    (_, body), *_ = result.outcomes
    if isinstance(body, PlacementChosen):
        return body.placement, body.assignment, body.score, body.candidates
    return type(body).__name__


# --- histories --------------------------------------------------------------------------------------------------------------

STEP = st.sampled_from(
    [
        "attempt",
        "attempt",
        "commit",
        "commit one",
        "settle",
        "delete pod",
        "add pod",
        "delete node",
        "cordon",
        "add node",
        "resize group",
        "delete group",
        "add group",
        "advance",
    ]
)


def step(driver: Driver, what: str, draw: st.DataObject, sizes: dict[str, int]) -> None:
    name = draw.draw(st.sampled_from(["one", "two"]))
    number = draw.draw(st.integers(0, 3))
    pod = b.pod(f"{name}-{number}").group(name).request(cpu="1").scheduler("default-scheduler").build()
    node = b.node(f"n{number}").label({RACK: "ab"[number % 2]}).capacity(cpu="2")
    there = f"Pod/default/{name}-{number}" in driver.core.objects
    if what == "attempt":
        driver.attempt()
    elif what == "commit":
        driver.commit()
    elif what == "commit one":
        driver.commit(1)
    elif what == "settle":
        driver.commit()
        driver.settle()
    elif what == "delete pod" and there:
        driver.delete(pod)
    elif what == "add pod" and not there:
        driver.put(pod)
    elif what == "delete node" and f"Node//n{number}" in driver.core.objects:
        driver.delete(node.build())
    elif what == "add node":
        driver.put(node.build())
    elif what == "cordon":
        driver.put(node.cordon().build())
    elif what == "resize group":
        sizes[name] = number + 1
        driver.put(b.pod_group(name, min_count=number + 1, level=RACK))
    elif what == "delete group" and f"PodGroup/default/{name}" in driver.core.objects:
        driver.delete(b.pod_group(name, min_count=1))
    elif what == "add group" and f"PodGroup/default/{name}" not in driver.core.objects:
        driver.put(b.pod_group(name, min_count=sizes[name], level=RACK))
    elif what == "advance":
        driver.commit()
        driver.advance(seconds=15)


def bound(table: ObjectTable, name: str) -> int:
    found = [table.get(f"Pod/default/{name}-{i}") for i in range(4)]
    return sum(isinstance(pod, Pod) and bool(pod.spec.node_name) for pod in found)


@many
@given(st.lists(STEP, max_size=25), st.data())
def test_laws_3_and_4_of_histories(steps: list[str], draw: st.DataObject) -> None:
    driver = started()
    sizes = {"one": 2, "two": 3}
    driver.put(*(b.node(f"n{i}").label({RACK: "ab"[i % 2]}).capacity(cpu="2").build() for i in range(4)))
    for name, size in sizes.items():
        driver.put(b.pod_group(name, min_count=size, level=RACK))
        pods = (b.pod(f"{name}-{i}").group(name).request(cpu="1") for i in range(3))
        driver.put(*(pod.scheduler("default-scheduler").build() for pod in pods))

    for what in steps:
        step(driver, what, draw, sizes)
    driver.commit()

    table = _check_growth(driver)
    for key, obj in driver.core.objects.items():
        assert table.get(key) == obj
    cut = draw.draw(st.sampled_from(_boundaries(driver)))
    back = recover(driver.records[:cut], driver.registry)
    assert back.seq == cut
    assert back.digest() == recover(driver.records[:cut], driver.registry).digest()


def _check_growth(driver: Driver) -> ObjectTable:
    """The number of bound members grows by `PlacementChosen` alone, by all of its pods at once, and to the quorum."""
    table, minimum = ObjectTable(), {"one": 2, "two": 3}
    for record in driver.records:
        before = {name: bound(table, name) for name in minimum}
        table.apply(record)
        body = decode_body(record)
        for name in list(minimum):
            group = table.get(f"PodGroup/default/{name}")
            if group is not None:
                policy = group.spec.scheduling_policy  # type: ignore[union-attr]
                minimum[name] = policy.gang.min_count
            grown = bound(table, name) - before[name]
            if grown > 0:
                assert isinstance(body, PlacementChosen)
                assert record.key == f"PodGroup/default/{name}"
                assert grown == len(body.assignment)
                assert bound(table, name) >= minimum[name]
    return table


def _boundaries(driver: Driver) -> list[int]:
    """Where a crash can have cut the log: before an outcome only if its attempt begins there."""
    attempts = [getattr(decode_body(record), "attempt", None) for record in driver.records]
    inside = [
        i for i in range(1, len(attempts)) if attempts[i] is not None and attempts[i] == attempts[i - 1]
    ]
    return [i for i in range(len(attempts) + 1) if i not in inside]
