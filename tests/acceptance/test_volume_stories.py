"""The stories that Kubernetes' documentation tells of volumes, with the actors that stand in for its controllers, on the virtual clock.

Each log is verified at the end: every decision is computed again, and the restarted state is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.objects import (
    EphemeralVolume,
    PersistentVolumeClaimTemplate,
    Pod,
    Volume,
)
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import SELECTED_NODE
from tidelog.api.well_known import HOSTNAME, ZONE
from tidelog.daemon.actors.attach_controller import AttachController, AttachControllerSettings
from tidelog.daemon.actors.protocol import Actor
from tidelog.daemon.actors.volume_controller import VolumeController, VolumeControllerSettings
from tidelog.eventlog.records import AttemptError, Reserved, Scheduled, decode_body
from tidelog.testing import builders as b
from tidelog.testing import storage as s
from tidelog.testing.sandbox import Sandbox

DRIVER = s.PROVISIONER


def controllers(**settings: Any) -> list[Actor]:
    return [VolumeController(VolumeControllerSettings(**settings))]


def nodes(count: int = 3, cpu: str = "4") -> list[Any]:
    """n0 in zone a, n1 in zone b, and so on."""
    return [
        b.node(f"n{i}").label({ZONE: "abc"[i % 3], HOSTNAME: f"n{i}"}).capacity(cpu=cpu).build()
        for i in range(count)
    ]


def pod(name: str, *claims: str, cpu: str = "1", on: str = "") -> Pod:
    found = b.pod(name).request(cpu=cpu).label(app="db")
    for claim in claims:
        found = found.pvc(claim)
    built = found.build()
    return replace(built, spec=replace(built.spec, node_selector={HOSTNAME: on})) if on else built


def node_of(cluster: Sandbox, name: str) -> str:
    return cluster.pod(name).spec.node_name


def claim_of(cluster: Sandbox, name: str) -> PersistentVolumeClaim:
    found = cluster.core.objects[f"PersistentVolumeClaim/default/{name}"]
    assert isinstance(found, PersistentVolumeClaim)
    return found


def volumes(cluster: Sandbox) -> list[PersistentVolume]:
    return [obj for obj in cluster.core.objects.values() if isinstance(obj, PersistentVolume)]


async def kinds(cluster: Sandbox, key: str) -> Sequence[str]:
    return [r.kind async for r in cluster.records() if r.key == key and r.kind != "ObjectPut"]


async def test_stateful_set_gets_its_volumes_with_its_nodes_and_comes_back_to_them() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        await cluster.apply([*nodes(6), s.storage_class()])
        for i in range(3):
            await cluster.apply([s.claim(f"data-web-{i}"), pod(f"web-{i}", f"data-web-{i}")])
        assert [node_of(cluster, f"web-{i}") for i in range(3)] == ["", "", ""]

        await cluster.advance(seconds=2)

        places = [node_of(cluster, f"web-{i}") for i in range(3)]
        zones = [_zone(cluster, place) for place in places]
        assert all(places)
        assert await kinds(cluster, "Pod/default/web-0") == ["Reserved", "Scheduled"]
        for i in range(3):
            volume = next(
                v
                for v in volumes(cluster)
                if v.metadata.name == claim_of(cluster, f"data-web-{i}").spec.volume_name
            )
            assert volume.spec.node_affinity is not None
        # The pod is moved; its volume stays where it is, and so does its zone.
        await cluster.delete("Pod/default/web-1", grace_period_seconds=0)
        await cluster.apply(b.node(places[1]).label({ZONE: zones[1], HOSTNAME: places[1]}).cordon().build())
        await cluster.apply(pod("web-1", "data-web-1"))
        await cluster.advance(seconds=2)
        again = node_of(cluster, "web-1")
        assert again != places[1]
        assert _zone(cluster, again) == zones[1]
        await cluster.verify()


def _zone(cluster: Sandbox, node: str) -> str:
    return cluster.core.objects[f"Node//{node}"].metadata.labels[ZONE]


async def test_volumes_with_zone_labels_keep_their_pods_in_their_zones() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        bound = s.claim("db", storage_class="zonal", volume="pv-b")
        volume = s.volume("pv-b", storage_class="zonal", bound=bound, labels={ZONE: "b__c"})
        await cluster.apply([*nodes(3), s.storage_class("zonal"), volume, bound])

        await cluster.apply([pod("db", "db", cpu="3")])
        await cluster.apply([pod("more", "db", cpu="3")])
        await cluster.apply([pod("most", "db", cpu="3")])

        assert {node_of(cluster, "db"), node_of(cluster, "more")} == {"n1", "n2"}
        assert node_of(cluster, "most") == ""
        await cluster.verify()


async def test_volume_that_only_one_pod_may_use_is_handed_over() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        await cluster.apply([*nodes(2), s.storage_class(), s.claim("data", modes=["ReadWriteOncePod"])])
        await cluster.apply(pod("first", "data"))
        await cluster.advance(seconds=2)
        await cluster.apply(pod("second", "data"))
        await cluster.advance(seconds=30)
        assert node_of(cluster, "first")
        assert node_of(cluster, "second") == ""

        await cluster.delete("Pod/default/first", grace_period_seconds=0)
        await cluster.advance(seconds=15)

        assert node_of(cluster, "second")
        await cluster.verify()


async def test_node_attaches_only_so_many_volumes_and_takes_the_next_when_one_is_detached() -> None:
    attach = AttachController(AttachControllerSettings(limits={DRIVER: 2}, detach_seconds=5))
    async with Sandbox(actors=[*controllers(), attach]) as cluster:
        await cluster.apply([*nodes(1, cpu="16"), s.storage_class()])
        for i in range(3):
            await cluster.apply([s.claim(f"c{i}"), pod(f"p{i}", f"c{i}", cpu="100m")])
            await cluster.advance(seconds=3)
        assert [node_of(cluster, f"p{i}") for i in range(3)] == ["n0", "n0", ""]

        await cluster.delete("Pod/default/p0", grace_period_seconds=0)
        await cluster.advance(seconds=3)
        assert node_of(cluster, "p2") == ""  # The volume is still attached.
        await cluster.advance(seconds=30)

        assert node_of(cluster, "p2") == "n0"
        await cluster.verify()


def with_scratch(name: str) -> Pod:
    template = PersistentVolumeClaimTemplate(spec=s.claim("x").spec)
    volume = Volume(name="scratch", ephemeral=EphemeralVolume(volume_claim_template=template))
    built = pod(name)
    return replace(built, spec=replace(built.spec, volumes=(volume,)))


async def test_generic_ephemeral_volume_lives_and_dies_with_its_pod() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        await cluster.apply([*nodes(2), s.storage_class()])
        await cluster.apply(with_scratch("job"))
        await cluster.advance(seconds=15)

        assert node_of(cluster, "job")
        assert claim_of(cluster, "job-scratch").status.phase == "Bound"
        await cluster.delete("Pod/default/job", grace_period_seconds=0)
        await cluster.advance(seconds=5)
        assert volumes(cluster) == []
        assert "PersistentVolumeClaim/default/job-scratch" not in cluster.core.objects
        await cluster.verify()


async def test_static_volumes_are_bound_smallest_first_and_no_volume_twice() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        free = [s.volume(f"pv-{n}", f"{n}Gi", on={HOSTNAME: f"n{n % 3}"}) for n in (5, 1, 3)]
        await cluster.apply([*nodes(3), s.local_class(), *free])
        wanting = [s.claim(f"c{i}", "1Gi", "local") for i in range(4)]
        await cluster.apply([*wanting, *(pod(f"p{i}", f"c{i}") for i in range(4))])
        await cluster.advance(seconds=5)

        taken = [claim_of(cluster, f"c{i}").spec.volume_name for i in range(4)]
        assert sorted(filter(None, taken)) == ["pv-1", "pv-3", "pv-5"]
        assert taken.count("") == 1
        await cluster.verify()


async def test_nobody_answers_and_the_pod_is_tried_again_when_its_time_is_over() -> None:
    async with Sandbox() as cluster:
        await cluster.apply([*nodes(2), s.storage_class(), s.claim("data"), pod("web", "data")])
        await cluster.advance(minutes=9)
        assert await kinds(cluster, "Pod/default/web") == ["Reserved"]

        await cluster.advance(minutes=2)

        found = [decode_body(r) async for r in cluster.records() if r.key == "Pod/default/web"]
        assert any(
            isinstance(body, AttemptError) and "context deadline exceeded" in body.message for body in found
        )
        nodes_of_attempts = {body.node for body in found if isinstance(body, Reserved)}
        assert len(nodes_of_attempts) == 1  # The selected node stays selected.
        await cluster.verify()


async def test_provisioner_that_refuses_gives_the_choice_back() -> None:
    async with Sandbox(actors=controllers(refuses=("fast",))) as cluster:
        await cluster.apply([*nodes(2), s.storage_class(), s.claim("data"), pod("web", "data")])
        await cluster.advance(seconds=2)

        found = [decode_body(r) async for r in cluster.records() if r.key == "Pod/default/web"]
        (failed,) = [body for body in found if isinstance(body, AttemptError)]
        assert failed.message.endswith('binding volumes: provisioning failed for PVC "data"') or (
            failed.message.endswith('binding volumes: selectedNode annotation reset for PVC "data"')
        )
        assert SELECTED_NODE not in claim_of(cluster, "data").metadata.annotations
        await cluster.verify()


async def test_restart_between_the_writes_and_the_answers_forgets_nothing() -> None:
    async with Sandbox(actors=controllers(provision_seconds=30)) as cluster:
        await cluster.apply([*nodes(2), s.storage_class(), s.claim("data"), pod("web", "data")])
        await cluster.advance(seconds=5)
        place = next(
            body.node
            for body in [decode_body(r) async for r in cluster.records()]
            if isinstance(body, Reserved)
        )

        await cluster.restart(controllers(provision_seconds=30))
        assert node_of(cluster, "web") == ""
        await cluster.advance(seconds=40)

        assert node_of(cluster, "web") == place
        assert await kinds(cluster, "Pod/default/web") == ["Reserved", "Scheduled"]
        await cluster.verify()


async def test_claim_that_is_not_delayed_is_bound_before_its_pod_is_placed() -> None:
    async with Sandbox(actors=controllers()) as cluster:
        now = s.storage_class("now", mode="Immediate", zones=["c"])
        await cluster.apply([*nodes(3), now, s.claim("data", storage_class="now"), pod("web", "data")])
        assert node_of(cluster, "web") == ""
        await cluster.advance(seconds=15)

        assert node_of(cluster, "web") == "n2"  # Where the first topology that the class allows is.
        assert await kinds(cluster, "Pod/default/web") == ["Unschedulable", "Scheduled"]
        await cluster.verify()


@pytest.mark.parametrize("refuses", [(), ("fast",)])
async def test_gang_with_volumes_is_bound_whole_or_not_at_all(refuses: tuple[str, ...]) -> None:
    async with Sandbox(actors=controllers(refuses=refuses)) as cluster:
        members = [b.pod(f"m{i}").request(cpu="3").pvc(f"c{i}").group("gang").build() for i in range(2)]
        gang = b.pod_group("gang", min_count=3)
        plain = b.pod("m2").request(cpu="3").group("gang").build()
        await cluster.apply(
            [*nodes(3), s.storage_class(), gang, s.claim("c0"), s.claim("c1"), *members, plain]
        )
        assert [node_of(cluster, f"m{i}") for i in range(3)] == ["", "", ""]

        await cluster.advance(seconds=3)

        bound = [bool(node_of(cluster, f"m{i}")) for i in range(3)]
        assert bound == [not refuses] * 3
        ends = [r async for r in cluster.records() if isinstance(decode_body(r), Scheduled)]
        assert len({decode_body(r).attempt for r in ends}) == (0 if refuses else 1)  # type: ignore[union-attr]
        await cluster.verify()
