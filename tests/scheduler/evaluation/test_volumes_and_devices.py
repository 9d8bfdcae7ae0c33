"""The fast evaluation gives the plain one's answers for pods with volumes and devices: on random clusters, at every attempt."""

from __future__ import annotations

import random
from collections import Counter
from os import environ
from typing import Any

import pytest
from msgspec.structs import replace

from tests.scheduler.evaluation.test_fast import asked
from tidelog.api.objects import (
    AwsElasticBlockStore,
    LabelSelector,
    Node,
    Object,
    ObjectMeta,
    ResourceClaim,
    Volume,
)
from tidelog.api.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from tidelog.api.volumes import MIGRATED_PLUGINS
from tidelog.configuration.configuration import resolve_configuration
from tidelog.daemon.actors import volume_steps as steps
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing import storage as s

__all__ = ["asked"]

SEEDS = int(environ.get("TIDELOG_FAST_SEEDS", "24"))
STEPS = 40
ZONES = ("a", "b")
HOST = "kubernetes.io/hostname"
OTHER = "other.csi.example.com"
COUNTERS: dict[str, Any] = {"sharedCounters": [{"name": "set", "counters": {"slots": {"value": "2"}}}]}


class World:
    """Draws objects of storage and devices; the same seed draws the same ones."""

    def __init__(self, seed: int, compat: str = "default") -> None:
        self.random = random.Random(seed)
        self.driver = Driver()
        header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        file = {**header, "tidelog": {"compat": compat}}
        self.driver.start(resolve_configuration(file, self.driver.registry).configuration)
        self.nodes = [f"n{i}" for i in range(self.random.randint(2, 8))]
        self.number = 0
        self.driver.put(b.namespace("default"), *map(self.node, self.nodes))
        self.driver.put(s.local_class(), s.storage_class(), s.storage_class("zonal", zones=["a"]))
        self.driver.put(s.storage_class("counted", OTHER), s.csi_driver(OTHER, storage_capacity=True))
        self.driver.put(
            d.device_class(), d.device_class("big", "device.attributes['gpu.example.com'].size > 1")
        )
        self.driver.put(d.device_class("backing", extendedResourceName="example.com/gpu"))
        for name in self.nodes:
            self.driver.put(self.csi_node(name), self.slice_of(name))

    # --- what there is ------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Object:
        draw = self.random
        made = b.node(name).label({HOST: name}).capacity(cpu=draw.choice(["2", "4", "8"]), pods="8")
        if draw.random() < 0.8:
            made = made.label({b.ZONE: draw.choice(ZONES)})
        return made.build()

    def csi_node(self, name: str) -> Object:
        draw = self.random
        made = s.csi_node(name, {s.PROVISIONER: draw.choice([1, 2, 5]), OTHER: 3})
        if draw.random() < 0.3:
            notes = {MIGRATED_PLUGINS: "kubernetes.io/aws-ebs"}
            made = replace(made, metadata=replace(made.metadata, annotations=notes))
        return made

    def slice_of(self, name: str) -> Object:
        draw = self.random
        listed = [
            d.device(f"d{i}", attributes={"size": draw.randint(1, 2), "rail": draw.choice("xy")})
            for i in range(draw.randint(0, 3))
        ]
        return d.resource_slice(f"slice-{name}", listed, node=name, generation=1)

    def shared_slice(self) -> Object:
        draw = self.random
        number = draw.randint(0, 1)
        listed = [d.device(f"s{i}", attributes={"size": 2, "rail": "x"}) for i in range(draw.randint(1, 2))]
        if draw.random() < 0.5:
            term = {"matchExpressions": [{"key": b.ZONE, "operator": "In", "values": ["a"]}]}
            where: dict[str, Any] = {"nodeSelector": {"nodeSelectorTerms": [term]}}
        else:
            where = {"allNodes": True}
        return d.resource_slice(f"shared-{number}", listed, pool=f"shared-{number}", **where)

    def volume(self) -> Object:
        draw = self.random
        name = f"pv{draw.randint(0, 9)}"
        on = draw.choice([{HOST: draw.choice(self.nodes)}, {b.ZONE: draw.choice(ZONES)}, None])
        labels = {b.ZONE: draw.choice(ZONES)} if draw.random() < 0.3 else None
        size = draw.choice(["1Gi", "2Gi", "3Gi"])
        made = s.volume(name, size, draw.choice(["local", "fast"]), on=on, labels=labels)
        return self.of_old_kind(made) if draw.random() < 0.2 else made

    def of_old_kind(self, made: PersistentVolume) -> PersistentVolume:
        disk = AwsElasticBlockStore(volume_id=f"vol-{self.random.randint(0, 2)}")
        return replace(made, spec=replace(made.spec, csi=None, aws_elastic_block_store=disk))

    def bound_pair(self) -> list[Object]:
        """A claim that has its volume."""
        draw = self.random
        name = f"c{draw.randint(0, 9)}"
        modes = draw.choice([("ReadWriteOnce",), ("ReadWriteOncePod",)])
        claim = s.claim(name, volume=f"bound-{name}", modes=modes)
        on = draw.choice([{HOST: draw.choice(self.nodes)}, {b.ZONE: draw.choice(ZONES)}, None, None])
        labels = {b.ZONE: draw.choice(("a", "b", "a__b"))} if draw.random() < 0.2 else None
        made = s.volume(f"bound-{name}", on=on, bound=claim, labels=labels)
        if draw.random() < 0.2:
            assert made.spec.csi is not None
            shared = replace(made.spec.csi, volume_handle="shared")
            made = replace(made, spec=replace(made.spec, csi=shared))
        return [claim, self.of_old_kind(made) if draw.random() < 0.2 else made]

    def free_claim(self) -> Object:
        draw = self.random
        kind = draw.choice(["local", "fast", "zonal", "counted"])
        return s.claim(f"c{draw.randint(0, 9)}", draw.choice(["1Gi", "2Gi"]), kind)

    def capacity(self) -> Object:
        draw = self.random
        reached = draw.choice(
            [LabelSelector(match_labels={b.ZONE: draw.choice(ZONES)}), LabelSelector(), None]
        )
        return CSIStorageCapacity(
            metadata=ObjectMeta(namespace="kube-system", name=f"space{draw.randint(0, 2)}"),
            storage_class_name="counted",
            capacity=draw.choice(["1Gi", "10Gi"]),
            node_topology=reached,
        )

    def attachment(self) -> Object:
        draw = self.random
        source = VolumeAttachmentSource(persistent_volume_name=f"bound-c{draw.randint(0, 9)}")
        spec = VolumeAttachmentSpec(attacher=s.PROVISIONER, node_name=draw.choice(self.nodes), source=source)
        return VolumeAttachment(metadata=ObjectMeta(name=f"att{draw.randint(0, 3)}"), spec=spec)

    def device_claim(self) -> Object:
        draw = self.random
        count = draw.randint(1, 2)
        asked = [d.request("r", draw.choice(["gpu", "big"]), count=count)]
        more: dict[str, Any] = {}
        if draw.random() < 0.2:
            either = ({"name": "many", **d.exact("big", count=2)}, {"name": "few", **d.exact(count=1)})
            asked = [d.first_available("r", *either)]
        elif draw.random() < 0.3:
            more["constraints"] = [{"matchAttribute": f"{d.DRIVER}/rail"}]
        return d.claim(f"g{draw.randint(0, 9)}", *asked, **more)

    def pod(self) -> Object:
        draw = self.random
        self.number += 1
        made = b.pod(f"p{self.number}").scheduler("default-scheduler").label(app=draw.choice("xy"))
        made = made.request(cpu=draw.choice(["100m", "500m", "1"])).priority(draw.choice([0, 0, 0, 9]))
        if draw.random() < 0.6:
            for _ in range(draw.choice([1, 1, 2])):
                made = made.pvc(f"c{draw.randint(0, 9)}")
        if draw.random() < 0.1:
            made = made.request({"example.com/gpu": "1"})
        if draw.random() < 0.1:
            made = made.pod_anti_affinity(HOST, "app=x")
        built = made.build()
        if draw.random() < 0.15:
            disk = AwsElasticBlockStore(volume_id=f"vol-{draw.randint(0, 2)}")
            inline = Volume(name="disk", aws_elastic_block_store=disk)
            built = replace(built, spec=replace(built.spec, volumes=(*built.spec.volumes, inline)))
        if draw.random() < 0.5:
            named = b.pod("x").claim("g", f"g{draw.randint(0, 9)}").build().spec.resource_claims
            built = replace(built, spec=replace(built.spec, resource_claims=named))
        return built

    # --- what happens -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.happens()
        if self.random.random() < 0.2:
            self.driver.advance(self.random.choice([1, 15, 300]))
        self.driver.settle()

    def happens(self) -> None:
        """Something comes, changes or goes."""
        draw, driver = self.random, self.driver
        roll = draw.random()
        if roll < 0.4:
            driver.put(*(self.pod() for _ in range(draw.randint(1, 4))))
        elif roll < 0.5:
            driver.put(*self.bound_pair())
        elif roll < 0.6:
            driver.put(self.free_claim(), self.device_claim(), self.device_claim())
        elif roll < 0.7:
            self.bind_what_waits()
        elif roll < 0.85:
            made = draw.choice([self.volume, self.capacity, self.attachment, self.shared_slice])
            driver.put(made())
        elif roll < 0.93:
            name = draw.choice(self.nodes)
            driver.put(draw.choice([self.csi_node, self.slice_of, self.node])(name))
        else:
            self.remove_something()

    def bind_what_waits(self) -> None:
        """As the volume controller and a provisioner would."""
        objects = list(self.driver.core.objects.values())
        volumes = [v for v in objects if isinstance(v, PersistentVolume) and v.spec.claim_ref is not None]
        for claim in [c for c in objects if isinstance(c, PersistentVolumeClaim) and not c.spec.volume_name]:
            found = steps.best_volume([v for v in volumes if steps.satisfies(v, claim)], claim)
            if found is not None:
                self.driver.put(*steps.bound(found, claim))
            elif steps.SELECTED_NODE in claim.metadata.annotations:
                self.driver.put(*steps.provided(claim, s.storage_class()))

    def remove_something(self) -> None:
        kinds = ("Pod/", "PersistentVolume", "VolumeAttachment", "ResourceClaim/", "ResourceSlice", "CSINode")
        found = [o for key, o in self.driver.core.objects.items() if key.startswith(kinds)]
        if not found:
            return
        one = self.random.choice(found)
        if isinstance(one, ResourceClaim) and one.status.allocation is not None:
            self.driver.put(replace(one, status=type(one.status)()))
        else:
            self.driver.delete(one)


class Flights(World):
    """… with groups, with attempts in flight for a while, and with pods that need the room of others."""

    groups = 0

    def node(self, name: str) -> Object:
        made = super().node(name)
        assert isinstance(made, Node)
        labels = {**made.metadata.labels, b.RACK: self.random.choice("xy")}
        room = {**made.status.allocatable, "cpu": self.random.choice(["1", "2", "8"])}
        return replace(
            made,
            metadata=replace(made.metadata, labels=labels),
            status=replace(made.status, allocatable=room),
        )

    def group(self) -> None:
        """A gang or a basic group; its members share a claim of devices now and then."""
        draw, size = self.random, self.random.randint(1, 3)
        self.groups += 1
        name, shared = f"group{self.groups}", draw.choice(["", f"g{draw.randint(0, 9)}"])
        level = draw.choice([None, b.RACK, b.ZONE])
        self.driver.put(b.pod_group(name, min_count=draw.choice([None, size]), level=level, priority=0))
        for number in range(size):
            made = b.pod(f"{name}-{number}").group(name).request(cpu=draw.choice(["500m", "1"]))
            made = made.claim("g", claim=shared) if shared else made
            made = made.pvc(f"c{draw.randint(0, 9)}") if draw.random() < 0.5 else made
            self.driver.put(made.scheduler("default-scheduler").build())

    def step(self) -> None:
        draw, driver = self.random, self.driver
        if draw.random() < 0.2:
            self.group()
        else:
            self.happens()
        for _ in range(draw.choice([0, 0, 1, 1, 2, 4])):
            driver.attempt()
        if draw.random() < 0.5:
            driver.commit(draw.randint(1, 3))
        if draw.random() < 0.1:
            driver.commit()
            driver.advance(draw.choice([0, 1, 15, 300]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_fast_and_plain_evaluation_agree_on_volumes_and_devices(
    seed: int,
    asked: Counter[str],
) -> None:
    world = World(seed)

    for _ in range(STEPS):
        world.step()

    assert asked["fast"] > 0
    report = verify(world.driver.records, world.driver.registry)
    assert report.first_difference is None
    assert world.driver.core.digest() == recover(world.driver.records, world.driver.registry).digest()


@pytest.mark.parametrize("seed", range(1_000, 1_000 + SEEDS // 4))
def test_they_agree_in_upstream_mode(seed: int, asked: Counter[str]) -> None:
    world = World(seed, "upstream")

    for _ in range(STEPS):
        world.step()

    assert asked["fast"] > 0


@pytest.mark.parametrize("compat", ["default", "upstream"])
@pytest.mark.parametrize("seed", range(2_170, 2_170 + SEEDS))
def test_they_agree_beside_groups_and_attempts_in_flight(seed: int, compat: str, asked: Counter[str]) -> None:
    """After all of it plugins see the claims and volumes as the log has them."""
    world = Flights(seed, compat)

    for _ in range(STEPS):
        world.step()
    world.driver.commit()
    world.driver.settle()

    assert asked["fast"] > 0
    core, records = world.driver.core, world.driver.records
    for key, obj in core.objects.items():
        if key.startswith(("PersistentVolume", "ResourceClaim/")):
            assert core.cluster.listers.get(key) == obj
    assert verify(records, world.driver.registry).first_difference is None
    assert core.digest() == recover(records, world.driver.registry).digest()
