"""The six rules, each told apart from those before it."""

from __future__ import annotations

from tidelog.framework.node_info import PodInfo
from tidelog.plugins.default_preemption.candidates import Candidate, by_importance, ranked, start_of
from tidelog.testing import builders as b

NOW = 2_000_000_000_000_000_000


def victim(priority: int, hour: int | None = None, name: str = "v", namespace: str = "default") -> PodInfo:
    made = b.pod(name, namespace).priority(priority)
    made = made if hour is None else made.started(f"2026-01-01T{hour:02}:00:00Z")
    return PodInfo(made.build())


def best(*candidates: Candidate) -> str:
    return ranked(candidates, NOW)[0].node


def candidate(node: str, *victims: PodInfo, violations: int = 0) -> Candidate:
    return Candidate(node, tuple(by_importance(victims, NOW)), violations)


def test_rule_1_fewest_violations() -> None:
    assert best(candidate("a", victim(1), violations=1), candidate("b", victim(9), victim(9))) == "b"


def test_rule_2_lowest_priority_of_the_first_victim() -> None:
    assert best(candidate("a", victim(5)), candidate("b", victim(4), victim(4), victim(4))) == "b"


def test_rule_3_smallest_sum_of_priorities() -> None:
    assert best(candidate("a", victim(5), victim(3)), candidate("b", victim(5), victim(2))) == "b"


def test_rule_3_counts_victims_of_negative_priority() -> None:
    assert best(candidate("a", victim(-5), victim(-9)), candidate("b", victim(-5))) == "b"


def test_rule_4_fewest_victims_follows_from_the_shift() -> None:
    assert best(candidate("a", victim(0), victim(0)), candidate("b", victim(0))) == "b"


def test_rule_5_latest_start_of_the_longest_running_of_the_highest_priority() -> None:
    early = candidate("a", victim(5, 1), victim(5, 9))
    late = candidate("b", victim(5, 2), victim(5, 3))

    assert best(early, late) == "b"


def test_rule_5_does_not_look_at_lower_priorities() -> None:
    assert best(candidate("a", victim(5, 3), victim(1, 9)), candidate("b", victim(5, 4), victim(1, 0))) == "b"


def test_pod_that_does_not_say_when_it_was_started_was_started_just_now() -> None:
    assert start_of(victim(0), NOW) == NOW
    assert best(candidate("a", victim(5, 3)), candidate("b", victim(5))) == "b"


def test_rule_6_first_in_the_order_of_the_search() -> None:
    assert [c.node for c in ranked([candidate(n, victim(1)) for n in "cab"], NOW)] == ["c", "a", "b"]


def test_importance_is_priority_then_earlier_start_then_name() -> None:
    pods = [
        victim(1, 1, "late"),
        victim(2, 9, "young"),
        victim(2, 1, "old"),
        victim(1, None, "web-10"),
        victim(1, None, "web-2"),
        victim(1, None, "web-2", "another"),
    ]

    ordered = [pod.key for pod in by_importance(pods, NOW)]

    assert ordered == [
        "default/old",
        "default/young",
        "default/late",
        "another/web-2",
        "default/web-2",
        "default/web-10",
    ]
