"""Claims of devices on a live cluster: allocated, made and given back at the server, and bound only when the server has seen it."""

from __future__ import annotations

from typing import Any

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_promises import assert_bound_once
from tidelog.kube.cluster.port import Answer, Request

DRIVER = "gpu.example.com"
ALLOCATED = {"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "gone", "device": "d"}]}}


def a_server(*, backs: str = "") -> MemoryServer:
    """A node with two devices, and a class of them."""
    server = MemoryServer()
    server.add_node("n0", "4", zone="z")
    more = {"extendedResourceName": backs} if backs else {}
    server.put("deviceclasses", "", "gpu", spec={"selectors": [], **more})
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "d0"}, {"name": "d1"}]
    server.put(
        "resourceslices", "", "s", spec={"driver": DRIVER, "nodeName": "n0", "pool": pool, "devices": devices}
    )
    return server


def add_claim(server: MemoryServer, name: str = "c", **status: Any) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    server.put("resourceclaims", "default", name, spec=spec, status=status)


def claims(server: MemoryServer) -> dict[str, Any]:
    return server.objects["resourceclaims"]


def devices_of(claim: Any) -> list[str]:
    return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


def order_of(server: MemoryServer, *parts: str) -> list[str]:
    """The writes whose path ends so, in order."""
    asked = [f"{r.method} {r.path.rpartition('/')[2]}" for r in server.requests if r.method != "GET"]
    return [one for one in asked if one in parts]


async def test_claim_is_allocated_and_reserved_before_its_pod_is_bound() -> None:
    server = a_server()
    add_claim(server)
    server.add_pod("web", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    async with LiveWorld(server) as world:
        await world.quiet()

        found = claims(server)["default/c"]
        assert devices_of(found) == ["d0"]
        assert [one["name"] for one in found["status"]["reservedFor"]] == ["web"]
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert order_of(server, "PATCH status", "POST binding")[-1] == "POST binding"
        assert server.bound() == {"default/web": "n0"}
        await assert_bound_once(world)
        await world.verify()


async def test_pod_is_not_bound_while_its_claims_write_is_not_seen() -> None:
    server = a_server()
    add_claim(server)
    async with LiveWorld(server) as world:
        server.hold("resourceclaims")
        server.add_pod("web", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
        await world.quiet()
        before = server.bound()

        server.let_go()
        await world.quiet()

        assert before == {}
        assert server.bound() == {"default/web": "n0"}
        assert len(world.core.promises) == 0
        await world.verify()


async def test_claim_of_extended_resources_is_made_at_the_server_with_what_it_has() -> None:
    server = a_server(backs="example.com/gpu")
    resources = {"requests": {"cpu": "100m", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    server.add_pod("web", containers=[{"name": "c", "image": "i", "resources": resources}])
    async with LiveWorld(server) as world:
        await world.quiet()
        await world.advance(1)

        ((key, made),) = claims(server).items()
        assert key.startswith("default/web-extended-resources-")
        assert made["metadata"]["uid"].startswith("uid-"), "the server's, not ours"
        assert made["metadata"]["ownerReferences"][0]["name"] == "web"
        assert devices_of(made) == ["d0"]
        assert [one["name"] for one in made["status"]["reservedFor"]] == ["web"]
        told = server.objects["pods"]["default/web"]["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == key.partition("/")[2]
        assert server.bound() == {"default/web": "n0"}
        assert len(world.core.promises) == 0
        assert f"ResourceClaim/{key}" in world.core.objects
        await world.verify()


async def test_claim_that_the_server_does_not_let_be_made_is_off_and_the_pod_is_not_bound() -> None:
    server = a_server(backs="example.com/gpu")
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}

    def refuse(request: Request) -> Answer | None:
        is_meant = request.method == "POST" and request.path.endswith("/resourceclaims")
        return (
            Answer(status=422, body=b'{"reason":"Invalid","message":"no","code":422}') if is_meant else None
        )

    server.refuse = refuse
    server.add_pod("web", containers=[{"name": "c", "image": "i", "resources": resources}])
    async with LiveWorld(server) as world:
        await world.quiet()

        assert server.bound() == {}
        assert claims(server) == {}
        assert not any(key.startswith("ResourceClaim/") for key in world.core.objects)
        assert "WriteFailed" in [record.kind for record in await world.records()]
        server.refuse = lambda request: None
        await world.advance(60)
        assert server.bound() == {"default/web": "n0"}
        await world.verify()


async def test_allocation_that_no_node_can_use_is_given_back_at_the_server() -> None:
    server = a_server()
    elsewhere = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "of", "operator": "In", "values": ["x"]}]}]
    }
    add_claim(server, allocation={**ALLOCATED, "nodeSelector": elsewhere})
    server.add_pod("web", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    async with LiveWorld(server) as world:
        await world.quiet()
        await world.advance(60)

        assert devices_of(claims(server)["default/c"]) == ["d0"]
        assert server.bound() == {"default/web": "n0"}
        await world.verify()
