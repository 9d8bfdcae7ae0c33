"""ImageLocality: the golden vectors, the thresholds, and how names are read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Volume
from tidelog.framework.behaviours import ONE_IMAGE_SIZE
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.image_locality import ImageLocality, normalized_image, pod_images
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import NodeBuilder, PodBuilder, node, pod

MB = 1024 * 1024


def scores(incoming: PodBuilder, *nodes: NodeBuilder, upstream: bool = False) -> dict[str, int]:
    cache, snapshot = Cache(), Snapshot()
    for one in nodes:
        cache.put_node(one.build())
    snapshot.refresh(cache)
    plugin, state, info = (
        ImageLocality(
            None, FrameworkHandle(snapshot, Listers(), upstream=upstream, behaviours=(ONE_IMAGE_SIZE,))
        ),
        CycleState(),
        PodInfo(incoming.build()),
    )
    return {one.name: plugin.score(state, info, one) for one in snapshot.nodes}


def asking(*images: str) -> PodBuilder:
    builder = pod("p").image(images[0])
    for image in images[1:]:
        builder = builder.container(image=image)
    return builder


A, B, C = "a:latest", "b:latest", "c:latest"


def test_three_images_on_three_nodes() -> None:
    found = scores(
        asking("a", "b", "c"),
        node("two").image(B, 600 * MB).image(C, 900 * MB),
        node("all").image(A, 300 * MB).image(B, 600 * MB).image(C, 900 * MB),
        node("none"),
    )

    assert found == {"two": 32, "all": 36, "none": 0}


def test_two_images_on_two_nodes() -> None:
    assert scores(asking("a", "b"), node("has").image(A, 300 * MB), node("none"))["has"] == 6
    assert (
        scores(asking("a", "b"), node("x").image(A, 30 * MB).image(B, 40 * MB), node("y").image(A, 30 * MB))[
            "x"
        ]
        == 1
    )


def test_too_little_is_nothing_and_more_than_enough_is_enough() -> None:
    assert scores(asking("a"), node("n").image(A, 23 * MB)) == {"n": 0}
    assert scores(asking("a"), node("n").image(A, 5000 * MB)) == {"n": 100}


def test_an_image_counts_with_the_nodes_own_size_and_upstream_with_that_on_the_first_node() -> None:
    nodes = node("large").image(A, 900 * MB), node("small").image(A, 100 * MB), node("none")

    assert scores(asking("a"), *nodes) == {"large": 59, "small": 4, "none": 0}
    assert scores(asking("a"), *nodes, upstream=True) == {"large": 59, "small": 59, "none": 0}


def test_an_image_used_twice_counts_twice() -> None:
    once = scores(asking("a", "x"), node("n").image(A, 500 * MB))
    twice = scores(asking("a", "a"), node("n").image(A, 500 * MB))

    assert once == {"n": 100 * (500 - 23) // (2000 - 23)}
    assert twice == {"n": 100 * (1000 - 23) // (2000 - 23)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1.2", "nginx:1.2"),
        ("registry:5000/nginx", "registry:5000/nginx:latest"),
        ("registry:5000/nginx:1", "registry:5000/nginx:1"),
        ("nginx@sha256:abc", "nginx@sha256:abc"),
    ],
)
def test_a_name_without_a_tag_is_the_latest(name: str, expected: str) -> None:
    assert normalized_image(name) == expected


def test_init_containers_and_image_volumes_count() -> None:
    built = pod("p").image("a").init_container(image="b").build()
    volumes = (Volume(name="v", image={"reference": "c"}), Volume(name="w"))

    assert pod_images(replace(built, spec=replace(built.spec, volumes=volumes))) == [B, A, C]
