"""Which of several equally good nodes gets a pod: even, and the same whoever else came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Object
from tidelog.configuration.configuration import default_configuration
from tidelog.framework.behaviours import TIES_FOLLOW_PODS, all_behaviours
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

NODES = 60


def placed(pods: Sequence[Object], *, follows_pods: bool = True, zones: int = 1) -> dict[str, str]:
    driver = Driver()
    behaviours = tuple(n for n in all_behaviours() if follows_pods or n != TIES_FOLLOW_PODS)
    driver.start(replace(default_configuration(driver.registry), behaviours=behaviours))
    driver.put(
        *(
            b.node(f"n{i}")
            .label({b.ZONE: f"z{i % zones}"})
            .capacity(cpu="4", memory="32Gi", pods="110")
            .build()
            for i in range(NODES)
        )
    )
    for pod in pods:
        driver.put(pod)
        driver.settle()
    return driver.placements()


def web(name: str, cpu: str = "100m") -> Object:
    return b.pod(name).scheduler("default-scheduler").request(cpu=cpu, memory="500Mi").build()


def stories() -> dict[str, tuple[list[Object], int]]:
    return {
        "replicas": ([web(f"web-{i}") for i in range(300)], 1),
        "two that alternate": (
            [web(f"{'ab'[i % 2]}-{i}", "100m" if i % 2 else "150m") for i in range(300)],
            1,
        ),
        "three zones": ([web(f"web-{i}") for i in range(300)], 3),
    }


def unevenness(found: dict[str, str]) -> float:
    shares = Counter(found.values())
    return max(shares.values()) / (len(found) / NODES)


@pytest.mark.parametrize("name", list(stories()))
def test_pods_are_spread_as_evenly_as_by_the_attempts_number(name: str) -> None:
    pods, zones = stories()[name]

    new, old = (unevenness(placed(pods, follows_pods=way, zones=zones)) for way in (True, False))

    assert new <= 1.1 * old


def test_pod_put_in_front_moves_few_others() -> None:
    pods = [web(f"web-{i}") for i in range(200)]

    with_it, without = placed([web("injected"), *pods]), placed(pods)

    moved = [name for name, node in without.items() if with_it[name] != node]
    assert len(moved) < 50
    old_with, old_without = (placed(p, follows_pods=False) for p in ([web("injected"), *pods], pods))
    assert len(moved) < sum(old_with[name] != node for name, node in old_without.items()) / 4
