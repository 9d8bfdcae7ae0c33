"""The judge himself: what he must not take for a broken promise."""

from __future__ import annotations

from tests.simulation.judge import Judge
from tests.simulation.plugins import registry
from tests.worlds.groups import GATES
from tidelog.configuration.configuration import resolve_configuration
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

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
