"""What is written before a binding is a promise as the binding is: sent once, shown over the object until the server shows it, off if it fails."""

from __future__ import annotations

import json
from typing import Any

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_promises import assert_bound_once
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.volumes import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from tidelog.kube.cluster.port import MERGE, Answer, Request

CLASS = "fast"


def a_server(provisioner: str = "disk.example.com") -> MemoryServer:
    server = MemoryServer()
    server.add_node("n0", "4", zone="z")
    server.put(
        "storageclasses",
        "",
        CLASS,
        provisioner=provisioner,
        volumeBindingMode="WaitForFirstConsumer",
        reclaimPolicy="Delete",
    )
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    server.put("persistentvolumeclaims", "default", "data", spec=spec, status={"phase": "Pending"})
    return server


def add_pod(server: MemoryServer) -> None:
    server.add_pod("web", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def claim_of(server: MemoryServer) -> Any:
    return server.objects["persistentvolumeclaims"]["default/data"]


def add_volume(server: MemoryServer) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": CLASS,
        "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
        "persistentVolumeReclaimPolicy": "Delete",
    }
    server.put("persistentvolumes", "", "pv", spec=spec, status={"phase": "Available"})


def bind_claim(server: MemoryServer) -> None:
    """As the volume controller does."""
    server.put(
        "persistentvolumeclaims",
        "default",
        "data",
        metadata={"annotations": {BIND_COMPLETED: "yes"}},
        spec={"volumeName": "pv"},
        status={"phase": "Bound"},
    )


def is_write(request: Request) -> bool:
    return request.content_type == MERGE


async def test_node_is_selected_at_the_server_and_the_pod_bound_when_its_volume_is_there() -> None:
    server = a_server()
    add_pod(server)
    async with LiveWorld(server) as world:
        assert claim_of(server)["metadata"]["annotations"] == {SELECTED_NODE: "n0"}
        assert server.bound() == {}
        assert len(world.core.promises) == 0

        add_volume(server)
        bind_claim(server)
        await world.quiet()

        assert server.bound() == {"default/web": "n0"}
        await assert_bound_once(world)
        await world.verify()


async def test_volume_that_is_there_is_given_to_the_claim() -> None:
    server = a_server("kubernetes.io/no-provisioner")
    add_volume(server)
    add_pod(server)
    async with LiveWorld(server) as world:
        volume = server.objects["persistentvolumes"]["/pv"]
        assert volume["spec"]["claimRef"]["name"] == "data"
        assert volume["spec"]["claimRef"]["uid"] == claim_of(server)["metadata"]["uid"]
        assert volume["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}

        bind_claim(server)
        await world.quiet()

        assert server.bound() == {"default/web": "n0"}
        await world.verify()


async def test_promise_is_shown_over_versions_that_do_not_show_it_yet() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.hold("persistentvolumeclaims")
        add_pod(server)
        await world.quiet()

        claim = world.core.objects["PersistentVolumeClaim/default/data"]
        assert isinstance(claim, PersistentVolumeClaim)
        assert claim.metadata.annotations == {SELECTED_NODE: "n0"}
        assert len(world.core.promises) == 1
        server.let_go()
        await world.quiet()
        assert len(world.core.promises) == 0
        await world.verify()


async def test_write_that_comes_second_is_off_and_the_pod_is_tried_again() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.hold("persistentvolumeclaims")
        server.put("persistentvolumeclaims", "default", "data", metadata={"labels": {"somebody": "else"}})
        add_pod(server)
        await world.quiet()
        failed = [
            r.kind for r in await world.records() if r.kind in ("Reserved", "WriteFailed", "AttemptError")
        ]
        assert failed == ["Reserved", "WriteFailed", "AttemptError"]

        server.let_go()
        await world.advance(30)

        assert claim_of(server)["metadata"]["annotations"] == {SELECTED_NODE: "n0"}
        add_volume(server)
        bind_claim(server)
        await world.quiet()
        assert server.bound() == {"default/web": "n0"}
        await world.verify()


async def test_restart_sends_what_is_not_seen_again_and_no_more() -> None:
    server = a_server()
    add_pod(server)
    async with LiveWorld(server) as world:
        await world.restart()
        add_volume(server)
        bind_claim(server)
        await world.quiet()

        assert server.bound() == {"default/web": "n0"}
        await world.verify()


async def test_write_that_is_answered_well_and_never_seen_is_sent_again_and_given_up_with_a_reason() -> None:
    server = a_server()
    add_pod(server)
    answered: list[Request] = []
    carry_out = server.send

    async def undone(request: Request) -> Answer:
        """As behind a webhook that takes the change out again."""
        if not is_write(request):
            return await carry_out(request)
        answered.append(request)
        return Answer(status=200, body=json.dumps(claim_of(server)).encode())

    server.send = undone  # type: ignore[method-assign]
    async with LiveWorld(server) as world:
        sent = len(answered)
        await world.advance(45)
        again = len(answered)
        await world.advance(75)
        failed = [body for body in await world.bodies("WriteFailed") if body.effect == "write"]
        server.send = carry_out  # type: ignore[method-assign]
        await world.advance(180)

        assert (sent, again) == (1, 2)
        assert [(body.reason, body.sent, body.final) for body in failed[:1]] == [("NotSeen", True, True)]
        assert claim_of(server)["metadata"]["annotations"] == {SELECTED_NODE: "n0"}
        assert len(world.core.promises) == 0
        await world.verify()
