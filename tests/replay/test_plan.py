"""A plan says what would happen, and nothing happens."""

from pathlib import Path

import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.objects import Object
from tidelog.eventlog.objects import load_objects
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.plan import Plan, plan
from tidelog.testing.builders import node, pod, pod_group, priority_class


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.start()
    return driver


async def planned(driver: Driver, path: Path, *objects: Object, seq: int | None = None) -> Plan:
    await write_log(path / "log.db", driver.records)
    before = (path / "log.db").read_bytes()
    async with await open_history(path / "log.db") as history:
        core = await history.core_at(seq, in_flight=False)
        found = plan(core, await load_objects(history.log, core.seq), objects, driver.now)
    assert (path / "log.db").read_bytes() == before
    return found


async def test_plan_names_the_nodes_that_the_pods_then_get(driver: Driver, tmp_path: Path) -> None:
    driver.put(*(node(name).capacity(cpu="4").build() for name in "abc"))
    pods = [pod(f"p{i}").scheduler("default-scheduler").request(cpu="1").build() for i in range(7)]

    found = await planned(driver, tmp_path, *pods)

    driver.put(*pods)
    driver.settle()
    assert {one.pod: one.node for one in found.pods} == driver.placements()


async def test_plan_tells_equally_good_nodes_from_the_best(driver: Driver, tmp_path: Path) -> None:
    driver.put(*(node(name).capacity(cpu="4").build() for name in "abc"))
    driver.put(pod("old").scheduler("default-scheduler").request(cpu="1").build())
    driver.settle()

    found = await planned(
        driver, tmp_path, pod("new").scheduler("default-scheduler").request(cpu="1").build()
    )

    assert (found.pods[0].feasible, found.pods[0].tied) == (3, 2)


async def test_plan_of_a_preemption_names_who_would_have_to_go(driver: Driver, tmp_path: Path) -> None:
    driver.put(node("a").capacity(cpu="2").build(), priority_class("vip", 1000))
    driver.put(pod("low").scheduler("default-scheduler").request(cpu="2").build())
    driver.settle()

    found = await planned(
        driver,
        tmp_path,
        pod("high").scheduler("default-scheduler").request(cpu="2").priority_class("vip").build(),
    )

    assert (found.pods[0].node, found.pods[0].nominated, found.pods[0].preempts) == (
        "",
        "a",
        ("default/low",),
    )


async def test_plan_of_a_pod_that_fits_nowhere_says_why_and_what_would_help(
    driver: Driver, tmp_path: Path
) -> None:
    driver.put(node("a").capacity(cpu="2").build())

    found = await planned(
        driver, tmp_path, pod("big").scheduler("default-scheduler").request(cpu="9").build()
    )

    assert "Insufficient cpu" in found.pods[0].message
    assert any("a larger node" in text for help_ in found.pods[0].help for text in help_.advice)


async def test_plan_places_a_group_whole_or_not_at_all(driver: Driver, tmp_path: Path) -> None:
    driver.put(node("a").capacity(cpu="2").build())
    gang = [pod(f"g{i}").scheduler("default-scheduler").group("g").request(cpu="1").build() for i in range(3)]

    none = await planned(driver, tmp_path, pod_group("g", min_count=3), *gang)
    driver.put(node("b").capacity(cpu="2").build())
    (tmp_path / "more").mkdir()
    all_of_them = await planned(driver, tmp_path / "more", pod_group("g", min_count=3), *gang)

    assert [one.node for one in none.pods] == ["", "", ""]
    assert all(one.message for one in none.pods)
    assert all(one.node in "ab" and one.group == "default/g" for one in all_of_them.pods)


async def test_plan_counts_nodes_that_are_planned_with_the_pods(driver: Driver, tmp_path: Path) -> None:
    found = await planned(
        driver,
        tmp_path,
        node("new").build(),
        pod("p").scheduler("default-scheduler").request(cpu="1").build(),
    )

    assert found.pods[0].node == "new"


async def test_plan_at_an_earlier_record_sees_what_was_there(driver: Driver, tmp_path: Path) -> None:
    driver.put(node("a").capacity(cpu="4").build())
    earlier = len(driver.records)
    driver.delete(node("a").build())

    found = await planned(
        driver, tmp_path, pod("p").scheduler("default-scheduler").request(cpu="1").build(), seq=earlier
    )

    assert found.pods[0].node == "a"


async def test_member_says_what_its_group_lacks(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    member = pod("a").group("g").scheduler("default-scheduler").build()

    alone = await planned(driver, tmp_path, member)
    few = await planned(driver, tmp_path / "more", pod_group("g", min_count=3), member)

    assert alone.pods[0].message == "waits for its group default/g, which does not exist yet"
    assert few.pods[0].message.startswith("gated by GangScheduling: ")
    assert few.pods[0].group == "default/g"


async def test_invalid_object_is_refused_before_anything_is_planned(driver: Driver, tmp_path: Path) -> None:
    with pytest.raises(InvalidObjects, match="is invalid"):
        await planned(driver, tmp_path, pod("Not A Name").scheduler("default-scheduler").build())


async def test_log_without_a_scheduler_is_planned_with_the_default_one(tmp_path: Path) -> None:
    driver = Driver()
    driver.put(node("a").build())

    found = await planned(driver, tmp_path, pod("p").scheduler("default-scheduler").build())

    assert found.pods[0].node == "a"
