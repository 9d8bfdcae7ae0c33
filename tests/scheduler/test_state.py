"""A core that was loaded from its bytes is the core that was captured: the same digest, and the same life from there on."""

from __future__ import annotations

import msgspec
import pytest

from tests.thorough import cases
from tests.worlds.objects import node
from tests.worlds.stories import Story, registry, story
from tidelog.api.errors import LogError
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import VERSION, capture_state, encode_state, load_state
from tidelog.testing import builders as b

STORIES = cases(12, "TIDELOG_STORIES")


def reloaded(core: Core) -> Core:
    """Without its objects in it, and with them."""
    found = load_state(capture_state(core).blob(), registry(), core.objects)
    with_objects = load_state(encode_state(core), registry())
    assert found is not None
    assert with_objects is not None
    assert found.digest() == with_objects.digest()
    return found


def twin(driver: Driver) -> Driver:
    other = Driver(driver.registry, now=driver.now)
    other.core = reloaded(driver.core)
    other.records = list(driver.records)
    return other


@pytest.mark.parametrize("seed", range(STORIES))
def test_loaded_core_has_the_digest_and_the_future_of_the_captured_one(seed: int) -> None:
    first = story(seed)
    for _ in range(25):
        first.step()
    first.quiet()

    second = Story(seed + 1, twin(first.driver))

    assert first.driver.core.digest() == second.driver.core.digest()
    first.random.seed(seed + 1)
    for _ in range(25):
        first.step()
        second.step()
    first.quiet()
    second.quiet()
    assert first.driver.records == second.driver.records
    assert first.driver.core.digest() == second.driver.core.digest()


def test_core_without_configuration_can_be_captured() -> None:
    driver = Driver()
    driver.put(node("n1"))

    assert driver.core.digest() == reloaded(driver.core).digest()


def test_zones_keep_their_order_when_the_first_node_of_one_is_gone() -> None:
    driver = Driver()
    driver.start()
    driver.put(node("n1", zone="b"), node("n2", zone="a"), node("n3", zone="b"), node("n4", zone="c"))
    driver.delete(node("n1", zone="b"))

    assert driver.core.cluster.cache.node_names() == reloaded(driver.core).cluster.cache.node_names()


def test_waiting_pod_whose_node_is_gone_is_captured_too() -> None:
    first = story(0)
    driver = first.driver
    driver.put(b.pod("slow").label(slow="yes").request(cpu="1").scheduler("default-scheduler").build())
    driver.settle()
    for name in ("n0", "n1"):
        driver.delete(node(name))

    other = twin(driver)

    assert driver.core.digest() == other.core.digest()
    driver.advance(seconds=30)
    other.advance(seconds=30)
    assert driver.records == other.records


def test_state_costs_what_is_pending_and_not_what_there_is() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}") for i in range(10)))
    before = len(capture_state(driver.core).blob())
    driver.put(*(b.pod(f"p{i}").on("n1").build() for i in range(300)))

    assert len(capture_state(driver.core).blob()) < before + 10


def test_core_may_go_on_while_its_state_is_encoded() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(b.pod(f"p{i}").scheduler("default-scheduler").build() for i in range(1_200)))
    digest, objects = driver.core.digest(), dict(driver.core.objects)

    work, steps = capture_state(driver.core).encoding(), 0
    try:
        while True:
            next(work)
            steps += 1
            driver.put(node(f"n{steps}", cpu="8"))
            driver.settle()
    except StopIteration as done:
        found = load_state(b"".join(done.value), Registry(), objects)

    assert steps == 2

    assert found is not None
    assert digest == found.digest()


def test_state_is_not_captured_while_an_attempt_is_in_flight() -> None:
    driver = Driver()
    driver.start()
    driver.put(node("n1"), b.pod("web").scheduler("default-scheduler").build())
    driver.attempt()

    with pytest.raises(AssertionError, match="no attempt is in flight"):
        capture_state(driver.core)


def test_state_of_another_version_is_passed_over() -> None:
    assert load_state(msgspec.msgpack.encode((VERSION + 1, {})), Registry()) is None


def test_what_had_changed_in_an_older_version_is_no_state_of_its_own() -> None:
    version, rest, chunks = msgspec.msgpack.decode(encode_state(story(0).driver.core))
    changes = msgspec.msgpack.encode((version, rest, chunks, rest["seq"] - 1, []))

    assert load_state(changes, registry()) is None


def test_bytes_that_are_no_state_are_refused() -> None:
    with pytest.raises(LogError, match="cannot be read"):
        load_state(b"\xc1", Registry())


def test_state_that_contradicts_itself_is_refused() -> None:
    driver = Driver(registry())
    driver.start()
    driver.put(b.pod("web").scheduler("default-scheduler").build())
    version, rest, _chunks = msgspec.msgpack.decode(encode_state(driver.core))
    without_objects = msgspec.msgpack.encode((version, rest, []))

    with pytest.raises(LogError, match="pod default/web is in the queue, but is not known"):
        load_state(without_objects, registry())
