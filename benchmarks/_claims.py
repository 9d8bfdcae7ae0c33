"""Workloads whose pods have claims: of volumes, and of devices. Part of `_workloads`.

The suite's own sizes. Every claim of a volume is bound before its pod comes, as the suite's volume controller does it. Claims that the suite has
made from templates are there by name, as the claim controller would have made them. Devices are one slice a node; a claim asks for one device,
unless the workload says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tidelog.api.objects import AwsElasticBlockStore, ClaimVolume, Object, Pod, PodResourceClaim, Volume
from tidelog.api.volumes import MIGRATED_PLUGINS
from tidelog.testing import devices as d
from tidelog.testing.storage import claim, csi_node, storage_class, volume

EBS = "ebs.csi.aws.com"
ATTACHED_MAX = 39
"""Volumes of a driver that a node attaches."""
CLAIMS_PER_NODE = 10
"""Devices of a node."""
BACKED = "example.com/gpu"


# --- volumes --------------------------------------------------------------------------------------------------------------


def mounting(pods: Sequence[Object], driver: str) -> Iterator[Object]:
    """The pods, each with a claim that is bound to a volume of its own. An empty driver: a volume of the old in-tree kind."""
    for one in pods:
        assert isinstance(one, Pod)
        meta = one.metadata
        name = f"pv-{meta.name}"
        bound = claim(f"claim-{meta.name}", "1Gi", "gp2", namespace=meta.namespace, volume=name)
        made = volume(name, "1Gi", "gp2", bound=bound, driver=driver)
        if not driver:
            disk = AwsElasticBlockStore(volume_id=f"vol-{name}")
            made = replace(made, spec=replace(made.spec, csi=None, aws_elastic_block_store=disk))
        mounted = Volume(name="vol", persistent_volume_claim=ClaimVolume(claim_name=bound.metadata.name))
        yield from (bound, made, replace(one, spec=replace(one.spec, volumes=(mounted,))))


def volumes_setup(nodes: Sequence[Object], *, limited: bool, migrated: bool = False) -> list[Object]:
    """The class, and what the nodes can attach; `migrated`: they leave volumes of the old kind to the driver."""
    found: list[Object] = [storage_class("gp2")]
    for node in nodes if limited else ():
        told = csi_node(node.metadata.name, {EBS: ATTACHED_MAX})
        if migrated:
            notes = {MIGRATED_PLUGINS: "kubernetes.io/aws-ebs"}
            told = replace(told, metadata=replace(told.metadata, annotations=notes))
        found.append(told)
    return found


# --- devices --------------------------------------------------------------------------------------------------------------


def devices_setup(nodes: Sequence[Object], each: int = CLAIMS_PER_NODE) -> list[Object]:
    """A class, and so many devices of each node."""
    listed = [d.device(f"device-{i:02}", attributes={"index": i}) for i in range(each)]
    slices = [
        d.resource_slice(f"slice-{node.metadata.name}", listed, node=node.metadata.name) for node in nodes
    ]
    return [d.device_class("gpu", f"device.driver == '{d.DRIVER}'"), *slices]


def claiming(pods: Sequence[Object], claims: int = 1, *selectors: str) -> Iterator[Object]:
    """The pods, each with so many claims of its own."""
    for one in pods:
        assert isinstance(one, Pod)
        meta = one.metadata
        names = [f"{meta.name}-{i}" for i in range(claims)]
        yield from (d.claim(n, d.request("r", "gpu", *selectors), namespace=meta.namespace) for n in names)
        named = tuple(PodResourceClaim(name=n, resource_claim_name=n) for n in names)
        yield replace(one, spec=replace(one.spec, resource_claims=named))


def backed_classes(count: int) -> list[Object]:
    """So many classes, each of which backs an extended resource of its own."""
    return [
        d.device_class(f"class-{i}", f"device.driver == '{d.DRIVER}'", extendedResourceName=f"{BACKED}-{i}")
        for i in range(count)
    ]
