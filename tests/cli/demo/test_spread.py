"""The demo's chapter on spread: what it tells is what happened."""

from __future__ import annotations

from tidelog.cli.demo.spread import tell


def test_three_scenes_are_told_and_verified() -> None:
    lines: list[str] = []

    tell(lines.append)

    text = "\n".join(lines)
    for expected in (
        "cluster-autoscaler: web-4 NodeProvisioningInProgress False (OutOfStock)",
        "topology.kubernetes.io/zone only preferred: NodeProvisioningFailed since 2023-11-14T22:13:30Z",
        "  120.0 s  tick: it is 2023-11-14T22:15:20Z",
        "NodeProvisioningFailed since 2023-11-14T22:15:20Z: no NodeProvisioningInProgress condition for 2m0s",
        "   90.0 s  cluster-autoscaler: node general-c-1 is there",
        "   90.0 s  web-3 ─► general-c-1",
    ):
        assert expected in text
    assert text.count("decisions are the same") == 3


def test_story_is_the_same_each_time() -> None:
    first: list[str] = []
    second: list[str] = []

    tell(first.append)
    tell(second.append)

    assert first == second
