"""Claims made from templates, devices made ready, and devices taken back: whole stories on a virtual clock."""

from __future__ import annotations

from typing import Any

from tidelog.api.objects import Pod, ResourceClaim
from tidelog.daemon.actors.claim_controller import ClaimController
from tidelog.daemon.actors.device_driver import DeviceDriver, DeviceDriverSettings
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing.sandbox import Sandbox

FABRIC = d.device("g0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])


def pod(name: str) -> b.PodBuilder:
    return b.pod(name).request(cpu="1").scheduler("default-scheduler")


def claims(sandbox: Sandbox) -> list[ResourceClaim]:
    objects = sandbox.core.cluster.objects
    return [obj for _, obj in sorted(objects.items()) if isinstance(obj, ResourceClaim)]


def node_of(sandbox: Sandbox, name: str) -> str:
    found = sandbox.core.cluster.objects.get(f"Pod/default/{name}")
    return found.spec.node_name if isinstance(found, Pod) else "gone"


async def cluster(sandbox: Sandbox, *devices: str | dict[str, Any]) -> None:
    await sandbox.apply(
        [
            b.node("n1").build(),
            d.device_class(),
            d.resource_slice("s1", devices, node="n1"),
            d.template("gpu"),
        ]
    )


async def test_pods_of_a_template_get_claims_of_their_own_and_give_the_devices_back() -> None:
    async with Sandbox(actors=[ClaimController(), NodeAgent()]) as sandbox:
        await cluster(sandbox, "g0")
        await sandbox.apply([pod(name).claim("mine", template="gpu").build() for name in ("a", "b")])
        await sandbox.advance(5)
        placed = {name: node_of(sandbox, name) for name in ("a", "b")}
        assert sorted(placed.values()) == ["", "n1"]
        assert [len(claim.metadata.owner_references) for claim in claims(sandbox)] == [1, 1]

        first, second = sorted(placed, key=lambda name: placed[name] == "")
        await sandbox.delete(f"Pod/default/{first}")
        await sandbox.advance(60)
        assert node_of(sandbox, second) == "n1"
        assert [d.devices_of(claim) for claim in claims(sandbox)] == [["n1/g0"]]


async def test_pod_waits_for_its_template() -> None:
    async with Sandbox(actors=[ClaimController()]) as sandbox:
        await cluster(sandbox, "g0")
        await sandbox.apply([pod("a").claim("mine", template="late").build()])
        assert node_of(sandbox, "a") == ""

        await sandbox.apply([d.template("late")])
        await sandbox.advance(1)
        assert node_of(sandbox, "a") == "n1"


async def test_claim_of_its_own_is_free_again_when_its_last_consumer_is_gone() -> None:
    async with Sandbox(actors=[ClaimController(), NodeAgent()]) as sandbox:
        await cluster(sandbox, "g0")
        await sandbox.apply([d.claim("c"), *(pod(name).claim("c", claim="c").build() for name in ("a", "b"))])
        await sandbox.advance(2)
        await sandbox.delete("Pod/default/a")
        await sandbox.advance(60)
        assert [[c.name for c in claim.status.reserved_for] for claim in claims(sandbox)] == [["b"]]

        await sandbox.restart()
        await sandbox.delete("Pod/default/b")
        await sandbox.advance(60)
        (claim,) = claims(sandbox)
        assert (claim.status.allocation, claim.metadata.finalizers) == (None, ())


async def test_pod_is_bound_when_the_driver_has_attached_the_device() -> None:
    async with Sandbox(actors=[DeviceDriver(DeviceDriverSettings(ready_seconds=20))]) as sandbox:
        await cluster(sandbox, FABRIC)
        await sandbox.apply([d.claim("c"), pod("a").claim("c", claim="c").build()])
        await sandbox.advance(10)
        assert (node_of(sandbox, "a"), d.devices_of(claims(sandbox)[0])) == ("", ["n1/g0"])

        await sandbox.advance(15)
        assert node_of(sandbox, "a") == "n1"


async def test_device_that_cannot_be_made_ready_is_given_back_and_tried_again() -> None:
    driver = DeviceDriver(DeviceDriverSettings(fails=(d.DRIVER,)))
    async with Sandbox(actors=[driver]) as sandbox:
        await cluster(sandbox, FABRIC)
        await sandbox.apply([d.claim("c"), pod("a").claim("c", claim="c").build()])
        await sandbox.advance(120)

        assert node_of(sandbox, "a") == ""


async def test_pod_waits_ten_minutes_for_a_driver_that_never_answers() -> None:
    driver = DeviceDriver(DeviceDriverSettings(silent=(d.DRIVER,)))
    async with Sandbox(actors=[driver]) as sandbox:
        await cluster(sandbox, FABRIC)
        await sandbox.apply([d.claim("c"), pod("a").claim("c", claim="c").build()])
        await sandbox.advance(minutes=9)
        before = sandbox.core.cluster.seq
        assert node_of(sandbox, "a") == ""

        await sandbox.advance(minutes=2)
        assert sandbox.core.cluster.seq > before
