"""Pods that are changed while they wait, with their node reserved: what they count as, and who is woken by it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.configuration.configuration import resolve_configuration
from tidelog.daemon.actors import volume_steps as steps
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b
from tidelog.testing import storage as s


def pod(name: str) -> b.PodBuilder:
    """Two of them must not be on one node."""
    return (
        b.pod(name).scheduler("default-scheduler").label(app="web").pod_anti_affinity(b.HOSTNAME, "app=web")
    )


def relabelled(driver: Driver, name: str) -> None:
    found = driver.pod(name)
    driver.put(replace(found, metadata=replace(found.metadata, labels={"app": "other"})))


@pytest.fixture(params=["default", "upstream"])
def driver(request: pytest.FixtureRequest) -> Driver:
    """One node: `first` waits there for its volume, `second` cannot go beside it, and `first` is another one since."""
    driver = Driver()
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = {**header, "tidelog": {"compat": request.param}}
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(b.namespace("default"), b.node("n").build(), s.storage_class(), s.claim("data"))
    driver.put(pod("first").pvc("data").build())
    driver.settle()
    driver.put(
        b.pod("second").scheduler("default-scheduler").pod_anti_affinity(b.HOSTNAME, "app=web").build()
    )
    driver.settle()
    assert [*driver.kinds()][-3:] == ["Reserved", "ObjectPut", "Unschedulable"]
    relabelled(driver, "first")
    driver.settle()
    return driver


def answer(driver: Driver) -> None:
    """The volume is there."""
    claim = driver.core.objects["PersistentVolumeClaim/default/data"]
    driver.put(*steps.provided(claim, s.storage_class()))  # type: ignore[arg-type]
    driver.settle()


def seen(core: Core) -> dict[str, str]:
    """The labels of `first` as plugins see them."""
    known = core.cluster.cache.pod("default/first")
    assert known is not None
    return dict(known.labels)


def reloaded(driver: Driver) -> Core:
    """A scheduler that comes back from a snapshot."""
    core = driver.core
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(core.dump_without_objects()))
    return Core.load(driver.registry, state, dict(core.objects))


def is_upstream(driver: Driver) -> bool:
    assert driver.core.configuration is not None
    return driver.core.configuration.upstream


def test_it_counts_as_what_it_was_until_it_is_bound(driver: Driver) -> None:
    waiting = seen(driver.core)

    answer(driver)

    assert (waiting, seen(driver.core)) == ({"app": "web"}, {"app": "other"})
    assert driver.placements()["default/first"] == "n"
    # kube-scheduler has it wait for the next flush.
    assert ("default/second" in driver.placements()) is not is_upstream(driver)
    driver.advance(seconds=400)
    assert driver.placements()["default/second"] == "n"
    assert verify(driver.records, driver.registry).first_difference is None


def test_snapshot_knows_what_it_was(driver: Driver) -> None:
    back = reloaded(driver)

    assert seen(back) == seen(driver.core) == {"app": "web"}
    assert back.digest() == driver.core.digest() == recover(driver.records, driver.registry).digest()
    answer(driver)
    assert seen(reloaded(driver)) == seen(recover(driver.records, driver.registry)) == {"app": "other"}


def test_who_could_not_go_beside_what_it_was_is_woken_when_it_goes(driver: Driver) -> None:
    driver.delete(driver.pod("first"))
    driver.settle()

    assert driver.placements() == {"default/second": "n"}
    assert verify(driver.records, driver.registry).first_difference is None
