"""`examples/volumes`: a database of three pods whose volumes keep each of them in its zone."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tidelog.api.manifests.manifests import load
from tidelog.api.objects import Node, Pod
from tidelog.api.well_known import ZONE
from tidelog.daemon.actors.catalogue import read_actors
from tidelog.plugins.registry import Registry
from tidelog.testing.sandbox import Sandbox

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "volumes"


def zone_of(cluster: Sandbox, name: str) -> str:
    node = cluster.core.objects[f"Node//{cluster.pod(name).spec.node_name}"]
    return node.metadata.labels[ZONE]


async def test_database_comes_back_to_the_zones_where_its_volumes_are() -> None:
    names = ("db-0", "db-1", "db-2")
    async with Sandbox(
        actors=read_actors(EXAMPLES.parent / "actors" / "volumes.yaml")(Registry())
    ) as cluster:
        for file in ("1-cluster.yaml", "2-database.yaml"):
            await cluster.apply(load((EXAMPLES / file).read_text(), file))
        await cluster.advance(seconds=10)
        zones = {name: zone_of(cluster, name) for name in names}
        assert sorted(zones.values()) == ["a", "b", "c"]

        await cluster.delete(cluster.pod("db-0"))
        another = {"name": "other", "labels": {ZONE: zones["db-0"]}}
        await cluster.apply(
            [replace(node, metadata=replace(node.metadata, **another)) for node in nodes(cluster)[:1]]
        )
        again = [obj for obj in load((EXAMPLES / "2-database.yaml").read_text(), "2") if isinstance(obj, Pod)]
        await cluster.apply([pod for pod in again if pod.metadata.name == "db-0"])
        await cluster.advance(seconds=10)

        assert zone_of(cluster, "db-0") == zones["db-0"]


def nodes(cluster: Sandbox) -> list[Node]:
    return [obj for obj in cluster.core.objects.values() if isinstance(obj, Node)]
