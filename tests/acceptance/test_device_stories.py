"""The stories that Kubernetes' documentation tells of devices: claims made from templates, drivers that make devices ready, and pods that end give them back.

Each runs on the virtual clock through a restart, and its log is verified at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tidelog.api.objects import Object, ResourceClaim
from tidelog.daemon.actors.claim_controller import ClaimController
from tidelog.daemon.actors.device_driver import DeviceDriver, DeviceDriverSettings
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.eventlog.records import Reserved, Scheduled
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing.sandbox import Sandbox

OWN = f'device.attributes["{d.DRIVER}"]'


@asynccontextmanager
async def cluster_of(*objects: Object, ready_seconds: float = 1) -> AsyncIterator[Sandbox]:
    """A cluster with everybody who answers for devices."""
    driver = DeviceDriver(DeviceDriverSettings(ready_seconds=ready_seconds))
    async with Sandbox(actors=[ClaimController(), driver, NodeAgent()]) as cluster:
        await cluster.apply([d.device_class(), *objects])
        yield cluster
        await cluster.verify()


def nodes(*names: str) -> list[Object]:
    return [b.node(name).build() for name in names]


def pods(template: str, *names: str) -> list[Object]:
    return [b.pod(name).request(cpu="1").claim("mine", template=template).build() for name in names]


def places(cluster: Sandbox, *names: str) -> list[str]:
    return [cluster.pod(name).spec.node_name for name in names]


def taken(cluster: Sandbox) -> dict[str, list[str]]:
    """The devices of each pod that has a claim: the claim's only owner."""
    return {
        owner.name: d.devices_of(obj)
        for _, obj in sorted(cluster.core.objects.items())
        if isinstance(obj, ResourceClaim)
        for owner in obj.metadata.owner_references
    }


async def end(cluster: Sandbox, names: Iterable[str]) -> None:
    for name in names:
        await cluster.delete(f"Pod/default/{name}")
    await cluster.advance(seconds=60)


async def test_gpu_is_made_ready_for_one_pod_and_handed_to_the_next() -> None:
    fabric = d.device("g0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    gpus = d.resource_slice("s1", [fabric], node="n1")
    async with cluster_of(*nodes("n1", "n2"), gpus, d.template("gpu"), ready_seconds=20) as cluster:
        await cluster.apply(pods("gpu", "first"))
        await cluster.advance(seconds=5)
        assert (places(cluster, "first"), taken(cluster)) == ([""], {"first": ["n1/g0"]})

        await cluster.apply(pods("gpu", "second"))
        await cluster.restart()
        await cluster.advance(seconds=30)
        assert places(cluster, "first", "second") == ["n1", ""]

        await end(cluster, ["first"])
        assert (places(cluster, "second"), taken(cluster)) == (["n1"], {"second": ["n1/g0"]})
        bodies = [r.kind async for r in cluster.records() if r.key == "Pod/default/second"]
        assert bodies.index(Reserved.__name__) < bodies.index(Scheduled.__name__)


async def test_gpu_and_network_card_share_a_pcie_root() -> None:
    """GPUs and cards are two drivers' devices; what they have in common is an attribute of Kubernetes' own."""
    root = "resource.kubernetes.io/pcieRoot"

    def on(name: str, number: int) -> dict[str, Any]:
        return d.device(name, attributes={root: f"pci0000:{number:02}"})

    machines = {"n1": ([0, 1], [2, 3]), "n2": ([0, 1], [1, 2])}
    slices = [
        d.resource_slice(f"{node}-{driver}", [on(f"{driver}{i}", i) for i in roots], node=node, driver=driver)
        for node, found in machines.items()
        for driver, roots in zip(("gpu", "nic"), found, strict=True)
    ]
    classes = [d.device_class(name, f'device.driver == "{name}"') for name in ("gpu", "nic")]
    pair = d.template(
        "pair", d.request("gpu", "gpu"), d.request("nic", "nic"), constraints=[{"matchAttribute": root}]
    )
    async with cluster_of(*nodes("n1", "n2"), *classes, *slices, pair) as cluster:
        await cluster.apply(pods("pair", "fast", "late"))
        await cluster.advance(seconds=5)

        (placed,) = (name for name in ("fast", "late") if places(cluster, name) == ["n2"])
        waiting = "late" if placed == "fast" else "fast"
        assert taken(cluster) == {placed: ["n2/gpu1", "n2/nic1"], waiting: []}
        await cluster.restart()
        await end(cluster, [placed])
        assert taken(cluster) == {waiting: ["n2/gpu1", "n2/nic1"]}


async def test_partitions_and_the_whole_of_a_gpu_exclude_each_other() -> None:
    def part(name: str, memory: str) -> dict[str, Any]:
        used = [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
        return d.device(name, consumesCounters=used, attributes={"profile": name.partition("-")[0]})

    parts = [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]
    memory = [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
    slices = (
        d.resource_slice("s1", parts, node="n1", count=2),
        d.resource_slice("s2", node="n1", count=2, sharedCounters=memory),
    )
    templates = [
        d.template(name, d.request("r", "gpu", f'{OWN}.profile == "{name}"')) for name in ("half", "whole")
    ]
    async with cluster_of(*nodes("n1"), *slices, *templates) as cluster:
        await cluster.apply(pods("half", "a", "b"))
        await cluster.advance(seconds=5)
        await cluster.apply(pods("whole", "big"))
        await cluster.advance(seconds=5)
        assert places(cluster, "a", "b", "big") == ["n1", "n1", ""]

        await end(cluster, ["a"])
        assert places(cluster, "big") == [""]
        await cluster.restart()
        await end(cluster, ["b"])
        assert (places(cluster, "big"), taken(cluster)) == (["n1"], {"big": ["n1/whole"]})


async def test_second_choice_is_taken_when_the_first_is_gone() -> None:
    def gpu(name: str, model: str) -> dict[str, Any]:
        return d.device(name, attributes={"model": model})

    wanted = d.first_available(
        "r",
        {"name": "large", **d.exact("gpu", f'{OWN}.model == "h100"')},
        {"name": "small", **d.exact("gpu", f'{OWN}.model == "t4"', count=2)},
    )
    slices = (
        d.resource_slice("s1", [gpu("g0", "t4"), gpu("g1", "t4")], node="n1"),
        d.resource_slice("s2", [gpu("g0", "h100")], node="n2"),
    )
    async with cluster_of(*nodes("n1", "n2"), *slices, d.template("any", wanted)) as cluster:
        for name in ("a", "b", "c"):
            await cluster.apply(pods("any", name))
            await cluster.advance(seconds=5)
        assert places(cluster, "a", "b", "c") == ["n2", "n1", ""]
        assert taken(cluster) == {"a": ["n2/g0"], "b": ["n1/g0", "n1/g1"], "c": []}

        await end(cluster, ["a"])
        assert taken(cluster)["c"] == ["n2/g0"]


async def test_administrator_looks_at_a_device_that_a_pod_has_and_takes_it_from_nobody() -> None:
    look = d.template("look", d.request(allocationMode="All", adminAccess=True))
    gpus = d.resource_slice("s1", ["g0", "g1"], node="n1")
    async with cluster_of(*nodes("n1", "n2"), gpus, d.template("gpu"), look) as cluster:
        await cluster.apply(pods("gpu", "work"))
        await cluster.advance(seconds=5)
        await cluster.apply(pods("look", "monitor"))
        await cluster.advance(seconds=5)
        assert taken(cluster) == {"work": ["n1/g0"], "monitor": ["n1/g0", "n1/g1"]}

        await cluster.apply(pods("gpu", "more"))
        await cluster.restart()
        await cluster.advance(seconds=5)
        assert (places(cluster, "more"), taken(cluster)["more"]) == (["n1"], ["n1/g1"])
