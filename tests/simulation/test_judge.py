"""The judge himself: what he must not take for a broken promise."""

from __future__ import annotations

from tests.simulation.judge import Judge
from tests.simulation.liveness import Follower, asleep
from tests.simulation.plugins import registry
from tests.worlds.groups import GATES
from tidelog.configuration.configuration import resolve_configuration
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import devices as d

FALLBACK = {"PodTopologySpreadFallbackMode": True, "MinDomainsInPodTopologySpread": True}


def test_constraint_that_has_not_fallen_back_leaves_nodes_out_of_another() -> None:
    """Nodes without its key do not count for the host's balance; with it fallen back they would, and the member's place would be none."""
    driver = Driver(registry())
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = {**header, "tidelog": {"featureGates": {**GATES, **FALLBACK}}}
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(b.namespace("default"), b.node("zoneless").cordon().build())
    for zone in "ab":
        driver.put(b.node(zone).label({b.ZONE: zone}).build())
        driver.put(b.pod(f"on-{zone}").uid(f"on-{zone}").label(app="web").on(zone).build())
    member = b.pod("member").uid("member").label(app="web").group("gang").scheduler("default-scheduler")
    member = member.spread(b.HOSTNAME, "app=web").spread(b.ZONE, "app=web", fallback=("PreemptionFailed",))
    driver.put(b.pod_group("gang", min_count=1), member.build())
    driver.settle()
    judge = Judge()

    for record in driver.records:
        judge.consume(record)

    assert driver.placements()["default/member"] in ("a", "b")
    assert judge.counts["PlacementChosen"] == 1


def test_who_can_be_placed_when_another_has_given_his_devices_up_is_not_asleep() -> None:
    """The other one is to be tried: he has a device on a node that is too small for him, and gives it up then."""
    driver = Driver(registry())
    driver.start()
    driver.put(
        b.namespace("default"), d.device_class(), b.node("n").capacity(cpu="1").build(), b.node("m").build()
    )
    driver.put(d.resource_slice("n", ["gpu"], node="n"), d.claim("wanted"))
    had = d.allocated("gpu", pool="n")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    had["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    had["reservedFor"] = [{"resource": "pods", "name": "other", "uid": "other"}]
    driver.put(d.claim("had", status=had))
    waiting = b.pod("waiting").uid("waiting").priority(1).request(cpu="500m").claim("gpu", claim="wanted")
    other = b.pod("other").uid("other").request(cpu="2").claim("gpu", claim="had")
    driver.put(*(pod.scheduler("default-scheduler").build() for pod in (waiting, other)))

    driver.attempt()
    driver.commit()

    assert [entity.key for entity in driver.core.queue.contents().unschedulable] == ["default/waiting"]
    assert asleep(driver.records, Follower(driver.registry), driver.now, driver.core) == []
