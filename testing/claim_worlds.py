"""Random clusters with volumes and devices, for plugins that declare something about claims: `check_plugin(MyPlugin, world=ClaimsWorld())`.

Pods mount claims, bound or not, disks of the old kinds and ephemeral volumes, and claim devices by name or as an extended resource. A claim whose
fixed parts change is another one of the same name, as in a real cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    AwsElasticBlockStore,
    EphemeralVolume,
    GcePersistentDisk,
    LabelSelector,
    Node,
    Object,
    ObjectMeta,
    Pod,
    PodResourceClaim,
    ResourceClaim,
    Volume,
)
from tidelog.api.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import claim_uses
from tidelog.api.well_known import HOSTNAME, ZONE
from tidelog.testing import devices as d
from tidelog.testing import storage as s
from tidelog.testing.builders import pod
from tidelog.testing.plugin_worlds import SCHEDULER, Dice, Happening, World, WorldCluster

EXTENDED = "example.com/gpu"
_NAMESPACES = ("default", "other")
_CLAIMS = ("c0", "c1", "c2", "target-scratch")
_DEVICE_CLAIMS = ("r0", "r1", "r2")


class ClaimsWorld(World):
    """Override `volumes`, `claims_of_devices` and `others` for what your plugin reads."""

    def node_labels(self, dice: Dice, name: str) -> dict[str, str]:
        labels = super().node_labels(dice, name)
        return labels | ({ZONE: dice.pick(("a", "b"))} if dice.chance(85) else {})

    def node(self, dice: Dice, name: str) -> Node:
        made = super().node(dice, name)
        if not dice.chance(25):
            return made
        offered = {**made.status.allocatable, EXTENDED: str(dice.below(3))}
        return replace(made, status=replace(made.status, capacity=offered, allocatable=offered))

    # --- pods

    def pod(self, dice: Dice, name: str) -> Pod:
        made = pod(name, dice.pick((*_NAMESPACES, "default"))).uid(name).scheduler(SCHEDULER)
        made = made.label(self.pod_labels(dice))
        if dice.chance(25):
            made = made.request({EXTENDED: "1"})
        found = made.build()
        claims = tuple(self.claims_of_devices(dice))
        return replace(
            found, spec=replace(found.spec, volumes=tuple(self.volumes(dice)), resource_claims=claims)
        )

    def volumes(self, dice: Dice) -> Iterator[Volume]:
        """Volumes of a pod."""
        for number in range(dice.below(3)):
            name = f"v{number}"
            match dice.below(8):
                case 0:
                    disk = AwsElasticBlockStore(volume_id=dice.pick(("vol-1", "vol-2")))
                    yield Volume(name=name, aws_elastic_block_store=disk)
                case 1:
                    shared = GcePersistentDisk(pd_name="disk", read_only=dice.chance(50))
                    yield Volume(name=name, gce_persistent_disk=shared)
                case 2:
                    yield Volume(name="scratch", ephemeral=EphemeralVolume())
                case _:
                    yield pod("x").pvc(dice.pick(_CLAIMS[:3])).build().spec.volumes[0]

    def claims_of_devices(self, dice: Dice) -> Iterator[PodResourceClaim]:
        """Claims of devices of a pod."""
        if dice.chance(60):
            for name in sorted({dice.pick(_DEVICE_CLAIMS) for _ in range(1 + dice.below(2))}):
                yield PodResourceClaim(name=name, resource_claim_name=name)

    def resized(self, dice: Dice, old: Pod) -> Pod:
        """Extended resources stay: they cannot be resized."""
        found = super().resized(dice, old)
        main, *others = found.spec.containers
        kept = {
            name: amount
            for name, amount in old.spec.containers[0].resources.requests.items()
            if name == EXTENDED
        }
        resources = replace(main.resources, requests={**main.resources.requests, **kept})
        return replace(
            found, spec=replace(found.spec, containers=(replace(main, resources=resources), *others))
        )

    # --- what they claim

    def cluster(self, dice: Dice) -> WorldCluster:
        found = super().cluster(dice)
        return found.with_others(self.others(dice, list(found.node_objects)))

    def others(self, dice: Dice, nodes: Sequence[str]) -> list[Object]:
        """Claims, and what they can be had from."""
        return [*self._storage(dice, nodes), *self._devices(dice, nodes)]

    def _storage(self, dice: Dice, nodes: Sequence[str]) -> Iterator[Object]:
        yield s.storage_class("fast", zones=dice.pick(((), ("a",), ("a", "b"))))
        yield s.storage_class("now", mode="Immediate")
        yield s.local_class()
        if dice.chance(70):
            yield s.csi_driver(storage_capacity=dice.chance(50))
        for zone in ("a", "b"):
            if dice.chance(60):
                yield self._space(dice, zone)
        for name in (*nodes, "new"):
            if dice.chance(70):
                yield s.csi_node(name, {s.PROVISIONER: dice.below(3)})
        for namespace in _NAMESPACES:
            for name in _CLAIMS:
                if dice.chance(85):
                    yield from self._claim(dice, namespace, name, nodes)
        for number in range(3):
            yield s.volume(f"free{number}", f"{1 + dice.below(3)}Gi", on=self._reach(dice, nodes))

    def _claim(self, dice: Dice, namespace: str, name: str, nodes: Sequence[str]) -> Iterator[Object]:
        modes = dice.pick((("ReadWriteOnce",), ("ReadWriteOnce",), ("ReadWriteOncePod",)))
        of = dice.pick(("fast", "local", "local", "now"))
        volume = f"pv-{namespace}-{name}" if dice.chance(50) else ""
        # The target is the only pod that has an ephemeral volume of this name.
        owner = pod("target", namespace).uid("target").build() if name == "target-scratch" else None
        made = s.claim(
            name, f"{1 + dice.below(3)}Gi", of, namespace=namespace, modes=modes, volume=volume, owner=owner
        )
        yield made
        if volume and dice.chance(90):
            yield s.volume(
                volume, "3Gi", of, on=self._reach(dice, nodes), bound=made, labels=self._zone(dice)
            )

    def _space(self, dice: Dice, zone: str) -> CSIStorageCapacity:
        return CSIStorageCapacity(
            metadata=ObjectMeta(name=zone, namespace="default", uid=f"space-{zone}"),
            node_topology=LabelSelector(match_labels={ZONE: zone}),
            storage_class_name="fast",
            capacity=f"{2 + dice.below(4)}Gi",
        )

    def _reach(self, dice: Dice, nodes: Sequence[str]) -> dict[str, str]:
        return dice.pick(({}, {ZONE: "a"}, {ZONE: "b"}, {HOSTNAME: dice.pick(nodes)}))

    def _zone(self, dice: Dice) -> dict[str, str]:
        return {ZONE: dice.pick(("a", "b", "a__b"))} if dice.chance(40) else {}

    def _devices(self, dice: Dice, nodes: Sequence[str]) -> Iterator[Object]:
        named: dict[str, Any] = {"extendedResourceName": EXTENDED} if dice.chance(60) else {}
        if dice.chance(95):
            yield d.device_class("gpu", "device.attributes['gpu.example.com'].?big.orValue(true)", **named)
        pools = [name for name in (*nodes, "new") if dice.chance(80)]
        for name in pools:
            listed = [
                d.device(f"g{i}", attributes={"big": dice.chance(80)}) for i in range(1 + dice.below(2))
            ]
            yield d.resource_slice(name, listed, node=name)
        if dice.chance(40):
            pools.append("shared")
            zone = {"key": ZONE, "operator": "In", "values": [dice.pick(("a", "b"))]}
            somewhere = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
            where: dict[str, Any] = {"nodeSelector": somewhere} if dice.chance(50) else {}
            yield d.resource_slice("shared", ["g0"], **where)
        for namespace in _NAMESPACES:
            for name in _DEVICE_CLAIMS:
                if dice.chance(93):
                    yield self._device_claim(dice, namespace, name, pools)

    def _device_claim(self, dice: Dice, namespace: str, name: str, pools: Sequence[str]) -> ResourceClaim:
        asked = d.request(count=dice.pick((1, 1, 2)))
        if dice.chance(50):
            big = d.exact("gpu", "device.attributes['gpu.example.com'].big", count=1)
            asked = d.first_available("r", {"name": "big", **big}, {"name": "any", **d.exact("gpu")})
        status: dict[str, Any] = {}
        if pools and dice.chance(40):
            pool = dice.pick(pools)
            status = d.allocated("g0", pool=pool)
            if pool != "shared":
                here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pool]}]}]
                status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": here}
        made = d.claim(name, asked, namespace=namespace, status=status)
        return replace(made, metadata=replace(made.metadata, uid=f"{namespace}-{name}"))

    # --- what happens

    def step(self, dice: Dice, cluster: WorldCluster, target: Pod) -> Happening:
        if dice.chance(40):
            return super().step(dice, cluster, target)
        before = {object_key(obj): obj for obj in cluster.others}
        again = {object_key(obj): obj for obj in self.others(dice, list(cluster.node_objects))}
        used = set(_protected(cluster))
        changed = [
            key for key in {**before, **again} if before.get(key) != again.get(key) and key not in used
        ]
        if not changed:
            return super().step(dice, cluster, target)
        wanted = set(_wanted(target))
        mine = [key for key in changed if key in wanted]
        key = dice.pick(mine if mine and dice.chance(50) else changed)
        old, new = before.get(key), again.get(key)
        if old is not None and new is not None and _is_fixed(old) != _is_fixed(new):
            uid = f"{new.metadata.uid}-{dice.below(1000)}"
            new = replace(new, metadata=replace(new.metadata, uid=uid))
        after = cluster.with_object(new) if new is not None else cluster.without_object(_there(old))
        return Happening(after, target, old, new)


def _protected(cluster: WorldCluster) -> Iterator[str]:
    """Claims that pods on nodes mount, and the volumes of claims: nobody can take them away, nor change what they have."""
    for obj in cluster.others:
        if isinstance(obj, PersistentVolumeClaim) and obj.spec.volume_name:
            yield f"PersistentVolume//{obj.spec.volume_name}"
    for found in cluster.pods.values():
        namespace = found.metadata.namespace
        for use in claim_uses(found):
            yield f"PersistentVolumeClaim/{namespace}/{use.claim}"


def _wanted(target: Pod) -> Iterator[str]:
    """The claims of the pod that waits."""
    namespace = target.metadata.namespace
    yield from (f"PersistentVolumeClaim/{namespace}/{use.claim}" for use in claim_uses(target))
    yield from (f"ResourceClaim/{namespace}/{one.resource_claim_name}" for one in target.spec.resource_claims)


def _there(obj: Object | None) -> Object:
    assert obj is not None
    return obj


def _is_fixed(obj: Object) -> object:
    """All of the object that no update changes."""
    if isinstance(obj, PersistentVolumeClaim):
        return obj.spec.access_modes, obj.spec.storage_class_name, obj.spec.resources
    if isinstance(obj, PersistentVolume):
        return obj.spec.storage_class_name, obj.spec.node_affinity, obj.spec.capacity
    return obj.spec if isinstance(obj, ResourceClaim) else None
