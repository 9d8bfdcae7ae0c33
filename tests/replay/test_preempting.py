"""Which of kube-scheduler's rules chose a preemption, told from the log."""

from collections.abc import Sequence

import pytest

from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.story import story
from tidelog.scheduler.core import Core
from tidelog.testing.builders import PodBuilder, node, pdb, pod


def low(name: str, on: str, priority: int = 0, cpu: str = "2", app: str = "low") -> PodBuilder:
    return pod(name).label(app=app).scheduler("default-scheduler").request(cpu=cpu).priority(priority).on(on)


def rule_for(victims: Sequence[PodBuilder], *others: object, nodes: int = 2) -> list[str]:
    """The notes on the nomination of a pod that fits nowhere without these victims going."""
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}").capacity(cpu="2", pods="10").build() for i in range(nodes)), *others)  # type: ignore[arg-type]
    driver.put(*(victim.build() for victim in victims))
    driver.put(pod("high").scheduler("default-scheduler").request(cpu="2").priority(100).build())
    driver.settle()
    entries = story(driver.records, Core(Registry()), "Pod/default/high").entries
    return [note for entry in entries if entry.what == "nominated" for note in entry.notes]


@pytest.mark.parametrize(
    ("victims", "others", "expected"),
    [
        (
            [low("a", "n0", 5), low("b", "n1", 7)],
            (),
            "this node and not n1, the next best: its most important victim has priority 5, that on n1 (default/b) 7",
        ),
        (
            [low("a", "n0"), low("b", "n1", cpu="1"), low("c", "n1", cpu="1")],
            (),
            "this node and not n1, the next best: 1 pod must go, on n1 it would be 2",
        ),
        (
            [low("a", "n0"), low("b", "n1", app="guarded")],
            (pdb("guard", {"app": "guarded"}, min_available=1),),
            "this node and not n1, the next best: it breaks 0 promises of disruption budgets, n1 would break 1",
        ),
    ],
    ids=["priority", "number", "budget"],
)
def test_rule_that_decided_is_told(
    victims: list[PodBuilder], others: tuple[object, ...], expected: str
) -> None:
    assert expected in rule_for(victims, *others)


def test_equals_are_told_as_equals() -> None:
    notes = rule_for([low("a", "n0"), low("b", "n1")])

    assert (
        len(
            [
                note
                for note in notes
                if note.endswith("it would do as little harm: among equals the order of the search decides")
            ]
        )
        == 1
    )


def test_one_node_that_would_do_needs_no_rule() -> None:
    assert rule_for([low("a", "n0")], nodes=1) == ["pod default/a has priority 0"]
