"""A pod that needs what nobody here looks after is never placed, and is told what that is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.objects import ClaimVolume, EphemeralVolume, Pod, Volume
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.waits import waits_of
from tidelog.testing import builders as b
from tidelog.testing import storage as s


def pod(name: str = "web") -> b.PodBuilder:
    return b.pod(name).request(cpu="1").scheduler("default-scheduler")


def with_volume(**source: Any) -> Pod:
    built = pod().build()
    return replace(built, spec=replace(built.spec, volumes=(Volume(name="data", **source),)))


def test_profile_without_the_plugin_for_devices_does_not_place_pods_with_claims_in_ignorance() -> None:
    driver = Driver()
    driver.start(without("DynamicResources"))
    needy = pod().claim("gpu", claim="mine").build()
    driver.put(b.node("n1").build(), needy, pod("plain").build())

    driver.advance(seconds=400)

    waits = waits_of(driver.core, needy)
    assert driver.placements() == {"default/plain": "n1"}
    assert waits is not None
    assert waits.place == "gated"
    assert "UnsupportedNeeds: resource claim 'gpu' is not supported" in waits.gate


def test_volumes_that_need_no_node_of_their_own_stand_in_nobodys_way() -> None:
    driver = Driver()
    driver.start()

    driver.put(b.node("n1").build(), with_volume(csi={"driver": "x"}))
    driver.settle()

    assert driver.placements() == {"default/web": "n1"}


def without(*plugins: str) -> SchedulerConfiguration:
    disabled = {"multiPoint": {"disabled": [{"name": name} for name in plugins]}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": disabled}],
    }
    return resolve_configuration(document, Registry()).configuration


@pytest.mark.parametrize(
    ("needy", "told"),
    [
        (with_volume(persistent_volume_claim=ClaimVolume(claim_name="d")), "persistent volume claim 'data'"),
        (with_volume(ephemeral=EphemeralVolume()), "ephemeral volume 'data'"),
    ],
)
def test_profile_without_the_plugins_for_volumes_does_not_place_them_in_ignorance(
    needy: Pod, told: str
) -> None:
    driver = Driver()
    driver.start(without("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"))

    driver.put(b.node("n1").build(), needy)
    driver.settle()

    waits = waits_of(driver.core, needy)
    assert driver.placements() == {}
    assert waits is not None
    assert f"UnsupportedNeeds: {told} is not supported" in waits.gate


def test_claim_that_is_bound_keeps_no_pod_out() -> None:
    driver = Driver()
    driver.start()
    claim = s.claim("d", volume="v")

    driver.put(b.node("n1").build(), claim, s.volume("v", bound=claim), pod().pvc("d").build())
    driver.settle()

    assert driver.placements() == {"default/web": "n1"}
