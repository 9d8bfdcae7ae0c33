"""ImageLocality: the golden vectors, the thresholds, and how names are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Volume
from tidelog.framework.behaviours import ONE_IMAGE_SIZE
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.image_locality import ImageDomains, ImageLocality, normalized_image, pod_images
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.scheduler.cache import Cache
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.fast import FastEvaluation
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


# --- counted ahead --------------------------------------------------------------------------------------------------------


class Calls:
    """Places that were looked at anew, and how often the nodes with an image were counted and a size was summed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.followed: list[int] = []
        self.counted = self.summed = 0
        follow, domains, total = ImageDomains.follow, ImageLocality.domains, ImageLocality.total

        def noted(found: ImageDomains, place: int, one: NodeInfo) -> None:
            self.followed.append(place)
            follow(found, place, one)

        def counted(plugin: ImageLocality, *arguments: Any) -> ImageDomains:
            self.counted += 1
            return domains(plugin, *arguments)

        def summed(plugin: ImageLocality, held: Any) -> int:
            self.summed += 1
            return total(plugin, held)

        monkeypatch.setattr(ImageDomains, "follow", noted)
        monkeypatch.setattr(ImageLocality, "domains", counted)
        monkeypatch.setattr(ImageLocality, "total", summed)


@pytest.mark.parametrize(
    ("change", "holdings"),
    [
        (lambda made: made.image("b:1", 700 * MB), 3),
        (lambda made: made.image("a:1", 800 * MB), 3),
        (lambda made: made.image("elsewhere:1", 700 * MB), 2),
    ],
    ids=["image that none had", "image that some have, of another size", "image of no pod"],
)
def test_changed_images_of_a_node_cost_a_look_at_that_node_and_a_sum_for_each_set_of_images(
    change: Callable[[NodeBuilder], NodeBuilder], holdings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All holders count for less, or more, from then on; nobody has to look at them."""
    driver, plain = Driver(), Driver()
    plain.core = Core(plain.registry, fast=False)
    like = pod("web").scheduler("default-scheduler").image("a:1").container(image="b:1").request(cpu="10m")
    for one in (driver, plain):
        one.start()
        one.put(*(node(f"none{i}").build() for i in range(30)))
        one.put(*(node(f"a{i}").image("a:1", 900 * MB).build() for i in range(10)))
        one.put(*(node(f"c{i}").image("b:1", 500 * MB).build() for i in range(4)))
        one.put(*(like.named(f"web-{i}").build() for i in range(5)))
        one.settle()
    last = driver.placements()["default/web-4"]
    calls = Calls(monkeypatch)

    driver.put(change(node("none7")).build())
    driver.put(like.named("after").build())
    driver.settle()

    (framework,) = driver.core.frameworks.values()
    assert isinstance(framework, Framework)
    assert isinstance(framework.fast, FastEvaluation)
    place_of = framework.fast._index.place_of
    assert (calls.counted, calls.summed) == (0, holdings)
    # The last pod's node has changed, too.
    assert set(calls.followed) == {place_of("none7"), place_of(last)}
    plain.put(change(node("none7")).build())
    plain.put(like.named("after").build())
    plain.settle()
    assert driver.placements() == plain.placements()
    assert verify(driver.records, driver.registry).first_difference is None
