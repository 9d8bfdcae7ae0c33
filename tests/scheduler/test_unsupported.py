"""A pod that needs what nobody here looks after is never placed, and is told what that is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Pod, Volume
from tidelog.configuration.configuration import resolve_configuration
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Resource
from tidelog.framework.interface import CycleState, Plugin, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.waits import waits_of
from tidelog.testing import builders as b


def pod(name: str = "web") -> b.PodBuilder:
    return b.pod(name).request(cpu="1").scheduler("default-scheduler")


def with_volume(**source: Any) -> Pod:
    built = pod().build()
    return replace(built, spec=replace(built.spec, volumes=(Volume(name="data", **source),)))


@pytest.mark.parametrize(
    ("needy", "told"),
    [
        (with_volume(persistent_volume_claim={"claimName": "d"}), "persistent volume claim 'data'"),
        (with_volume(ephemeral={}), "ephemeral volume 'data'"),
        (pod().claim("gpu", claim="mine").build(), "resource claim 'gpu'"),
    ],
)
def test_pod_with_an_unsupported_need_is_never_placed_and_told_what_it_is(needy: Pod, told: str) -> None:
    driver = Driver()
    driver.start()
    driver.put(b.node("n1").build(), needy, pod("plain").build())

    driver.advance(seconds=400)

    waits = waits_of(driver.core, needy)
    assert driver.placements() == {"default/plain": "n1"}
    assert waits is not None
    assert waits.place == "gated"
    assert f"UnsupportedNeeds: {told} is not supported" in waits.gate


def test_volumes_that_need_no_node_of_their_own_stand_in_nobodys_way() -> None:
    driver = Driver()
    driver.start()

    driver.put(b.node("n1").build(), with_volume(csi={"driver": "x"}))
    driver.settle()

    assert driver.placements() == {"default/web": "n1"}


class LooksAfterVolumes(Plugin):
    """Asks to be told of volume claims, so it is trusted with them."""

    name = "LooksAfterVolumes"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None

    def events_to_register(self) -> list[EventRegistration]:
        return [EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD))]


def test_need_that_a_plugin_looks_after_stands_in_nobodys_way() -> None:
    registry = Registry()
    registry.register(LooksAfterVolumes)
    driver = Driver(registry)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": LooksAfterVolumes.name}]}}}],
    }
    driver.start(resolve_configuration(document, registry).configuration)

    driver.put(b.node("n1").build(), with_volume(persistent_volume_claim={"claimName": "d"}))
    driver.settle()

    assert driver.placements() == {"default/web": "n1"}
