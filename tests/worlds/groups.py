"""What the tests of groups build their clusters of."""

from __future__ import annotations

from typing import Any

from tests.worlds.dra_test_plugin import DRATestPlugin
from tidelog.api.objects import (
    CelSelector,
    Device,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    Node,
    NodeSelector,
    ObjectMeta,
    Pod,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from tidelog.configuration.configuration import resolve_configuration
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b

RACK = "topology.kubernetes.io/rack"
BLOCK = "topology.kubernetes.io/block"
HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
GATES = {"TopologyAwareWorkloadScheduling": True, "WorkloadBasicPolicyDesiredCount": True}
DRIVER = "fabric.example.com"
FABRIC = f"{DRIVER}/fabric"


def started(*plugins: str, gates: dict[str, bool] | None = None, **section: Any) -> Driver:
    """A scheduler with these plugins beside the default ones."""
    registry = Registry()
    if DRATestPlugin.name in plugins:
        registry.register(DRATestPlugin)
    driver = Driver(registry)
    everywhere: dict[str, Any] = {"enabled": [{"name": name} for name in plugins]}
    if {"DRATestPlugin", "WaitForDriver"} & set(plugins):
        # They look after claims in DynamicResources' place.
        everywhere["disabled"] = [{"name": "DynamicResources"}]
    profiles = [{"plugins": {"multiPoint": everywhere}}]
    tidelog = {"featureGates": GATES if gates is None else gates, **section}
    file = {**HEADER, "profiles": profiles, "tidelog": tidelog}
    driver.start(resolve_configuration(file, registry).configuration)
    return driver


def the_claim(driver: Driver, name: str = "shared") -> ResourceClaim:
    """The claim as the log has it."""
    found = driver.core.objects[f"ResourceClaim/default/{name}"]
    assert isinstance(found, ResourceClaim)
    return found


def node(name: str, rack: str | None = None, cpu: str = "4", **labels: str) -> Node:
    """A node in a rack; further labels by name."""
    placed = {RACK: rack} if rack is not None else {}
    return b.node(name).label({**labels, **placed}).capacity(cpu=cpu).build()


def member(name: str, group: str = "train", cpu: str = "1", claim: str = "") -> Pod:
    """A pod of a PodGroup."""
    pod = b.pod(name).group(group).request(cpu=cpu).scheduler("default-scheduler")
    return (pod.claim(claim, claim=claim) if claim else pod).build()


def members(count: int, group: str = "train", cpu: str = "1", claim: str = "") -> list[Pod]:
    """`train-0`, `train-1`, …"""
    return [member(f"{group}-{i}", group, cpu, claim) for i in range(count)]


def worker(name: str, workload: str, group: str = "workers", replica: str = "", cpu: str = "1") -> Pod:
    """A pod of a Workload's group."""
    pod = b.pod(name).workload(workload, group, replica).request(cpu=cpu)
    return pod.scheduler("default-scheduler").build()


def nodes_of(driver: Driver, group: str = "train") -> list[str]:
    """Where the pods named after the group are."""
    return sorted(n for pod, n in driver.placements().items() if pod.startswith(f"default/{group}-"))


def devices(name: str, fabric: str, count: int, nodes: NodeSelector | None = None) -> ResourceSlice:
    """A pool of one slice: devices on one fabric, reached from these nodes (None: from all)."""
    found = tuple(
        Device(name=f"{name}-{i}", attributes={"fabric": DeviceAttribute(string=fabric)})
        for i in range(count)
    )
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=DRIVER,
            pool=ResourcePool(name=name, generation=1, resource_slice_count=1),
            node_selector=nodes,
            all_nodes=nodes is None or None,
            devices=found,
        ),
    )


def in_rack(rack: str) -> NodeSelector:
    """The nodes of a rack."""
    return NodeSelector(node_selector_terms=(b.node_term(f"{RACK} in ({rack})"),))


def device_class(expression: str = f'device.driver == "{DRIVER}"') -> DeviceClass:
    """The class `fabric`."""
    selectors = (DeviceSelector(cel=CelSelector(expression=expression)),)
    return DeviceClass(metadata=ObjectMeta(name="fabric"), spec=DeviceClassSpec(selectors=selectors))


def claim(name: str = "shared", count: int = 2, expression: str = "") -> ResourceClaim:
    """So many devices of one fabric."""
    selectors = (DeviceSelector(cel=CelSelector(expression=expression)),) if expression else ()
    exact = ExactDeviceRequest(device_class_name="fabric", count=count, selectors=selectors)
    wanted = DeviceClaim(
        requests=(DeviceRequest(name="links", exactly=exact),),
        constraints=(DeviceConstraint(match_attribute=FABRIC),),
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"), spec=ResourceClaimSpec(devices=wanted)
    )


def assert_replays(driver: Driver) -> None:
    """The log verifies, and a scheduler that comes back from it is in the same state."""
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None
    assert driver.core.digest() == report.digest
    assert driver.core.digest() == recover(driver.records, driver.registry).digest()
