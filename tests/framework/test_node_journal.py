"""A clone of a node with very many pods follows its origin instead of being made anew."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog.framework import node_info
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.testing import builders as b


def pod(number: int, draw: random.Random) -> PodInfo:
    made = b.pod(f"p{number}").request(cpu=f"{draw.randint(1, 9)}m")
    if draw.random() < 0.3:
        made = made.port(8000 + number % 7)
    if draw.random() < 0.3:
        made = made.label(app="web").pod_anti_affinity(b.ZONE, "app=web")
    return PodInfo(made.build())


def content(node: NodeInfo) -> dict[str, Any]:
    return {
        "pods": set(node.pods),
        "requested": node.requested,
        "non_zero": (node.non_zero_cpu, node.non_zero_memory),
        "ports": node.used_ports,
        "affinity": set(node.affinity_pods),
        "repelling": set(node.required_anti_affinity_pods),
        "generation": node.generation,
    }


@pytest.mark.parametrize("seed", range(20))
def test_clone_that_follows_is_as_one_made_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_info, "JOURNAL_FROM", 5)
    monkeypatch.setattr(node_info, "JOURNAL_MAX", 16)
    draw = random.Random(seed)
    origin = NodeInfo(b.node("n1").build(), [pod(i, draw) for i in range(6)])
    clones = [origin.clone(), origin.clone()]
    followed = 0

    for step in range(6, 300):
        if origin.pods and draw.random() < 0.5:
            origin.remove_pod(origin.pods[draw.choice(sorted(origin.pods))])
        else:
            origin.add_pod(pod(step, draw))
        origin.generation = step
        for i in (0, 1):
            if draw.random() < (0.5, 0.05)[i]:
                if clones[i].follow(origin):
                    followed += 1
                else:
                    clones[i] = origin.clone()
                assert content(clones[i]) == content(origin.clone())

    assert followed > 50


def test_clone_of_a_node_with_few_pods_cannot_follow() -> None:
    origin = NodeInfo(b.node("n1").build())
    clone = origin.clone()
    origin.add_pod(PodInfo(b.pod("web").build()))

    assert not clone.follow(origin)


def test_clone_does_not_follow_a_node_whose_object_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_info, "JOURNAL_FROM", 0)
    origin = NodeInfo(b.node("n1").build())
    clone = origin.clone()
    origin.set_node(b.node("n1").label(disk="ssd").build())

    assert not clone.follow(origin)
