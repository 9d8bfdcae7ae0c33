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
    found = load_state(encode_state(core), registry())
    assert found is not None
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


def test_core_may_go_on_while_its_objects_are_encoded() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}") for i in range(500)))
    digest = driver.core.digest()

    capture = capture_state(driver.core)
    encoding = capture.encoding()
    for _ in encoding.work():
        driver.put(node("another", cpu="8"))
    found = load_state(encoding.blob(), Registry())

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
    assert load_state(msgspec.msgpack.encode((VERSION + 1, {}, [])), Registry()) is None


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


# --- what changed since -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_state_is_loaded_from_an_earlier_one_and_the_changes_since(seed: int) -> None:
    told = story(seed)
    told.quiet()
    capture = capture_state(told.driver.core)
    whole, changes = encode_state(told.driver.core), []
    for _ in range(4):
        for _ in range(10):
            told.step()
        told.quiet()
        changes.append(encode_state(told.driver.core, since=capture))
        capture = capture_state(told.driver.core)

    found = load_state(whole, registry(), changes)

    assert found is not None
    assert found.digest() == told.driver.core.digest()


def test_changes_that_do_not_follow_are_left_out() -> None:
    driver = Driver()
    driver.start()
    captures, blobs = [capture_state(driver.core)], [encode_state(driver.core)]
    digests = [driver.core.digest()]
    for i in range(3):
        driver.put(node(f"n{i}"))
        blobs.append(encode_state(driver.core, since=captures[-1]))
        captures.append(capture_state(driver.core))
        digests.append(driver.core.digest())

    found = load_state(blobs[0], Registry(), [blobs[1], blobs[3]])

    assert found is not None
    assert found.digest() == digests[1]


def test_changes_are_small_where_little_changed() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}") for i in range(300)))
    earlier = capture_state(driver.core)
    driver.delete(node("n7"))
    driver.put(node("n8", cpu="8"))

    whole, changes = encode_state(driver.core), encode_state(driver.core, since=earlier)

    assert len(changes) < len(whole) / 4


def test_object_that_was_deleted_between_two_captures_stays_deleted() -> None:
    driver = Driver()
    driver.start()
    budget = b.pdb("web", {"app": "web"}, min_available=1)
    driver.put(node("n1"), budget)
    first = capture_state(driver.core)
    whole = encode_state(driver.core)
    driver.delete(budget)

    found = load_state(whole, driver.registry, [encode_state(driver.core, first)])

    assert found is not None
    assert sorted(found.objects) == sorted(driver.core.objects)
    assert "PodDisruptionBudget/default/web" not in found.objects
    assert found.digest() == driver.core.digest()
