"""The demo's chapter on gangs tells what happens, and no more."""

from __future__ import annotations

from tidelog.cli.demo.gangs import tell


def test_one_training_takes_the_tightest_rack_and_the_other_waits_whole_until_a_node_joins() -> None:
    said: list[str] = []

    tell(said.append)

    text = "\n".join(said)
    assert "alpha ─► r1: all 8 pods, on r1-1, r1-2" in text
    assert "beta waits whole: none of its 8 pods is bound" in text
    assert "beta ─► r2: all 8 pods, on r2-1, r2-2, r2-3" in text
    assert "outcomes are the same" in text


def test_the_training_that_waits_is_told_every_racks_reason() -> None:
    said: list[str] = []

    tell(said.append)

    start = said.index("\n  Why does beta-0 wait?\n") + 1
    assert [line.strip() for line in said[start : start + 4]] == [
        "r1: aggregate cpu: 0 free, 16000 needed (millicores)",
        "r2: aggregate cpu: 12000 free, 16000 needed (millicores)",
        "r3: 7/8 pods fit, 8 needed, default/beta-7: 0/3 nodes are available: 3 Insufficient cpu.",
        "r4: aggregate cpu: 6000 free, 16000 needed (millicores)",
    ]
