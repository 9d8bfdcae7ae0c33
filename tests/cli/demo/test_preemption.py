"""The demo's chapter on preemption: what it tells is what happened."""

from __future__ import annotations

from tidelog.cli.demo.preemption import tell


def told() -> str:
    lines: list[str] = []
    tell(lines.append)
    return "\n".join(lines)


def test_three_scenes_are_told_and_verified() -> None:
    below, reached, spare = told().split("\n\nA rollout")[1].split("decisions are the same.")[:3]

    assert "protected by PDB default/brokers (allowed 0, needs priority >= 1000, preemptor has 500)" in below
    assert "there run: broker-1, broker-2, broker-3." in below
    assert "refused by PDB default/brokers (429); deleting it" in reached
    assert "rollout ─►" in reached
    assert "is evicted, to make room for rollout" in spare
    assert "disruption-controller: 3 healthy of 3 wanted, 0 may be disrupted" in spare


def test_story_is_the_same_each_time() -> None:
    assert told() == told()
