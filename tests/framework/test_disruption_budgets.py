"""What disruption budgets allow, and whom they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.objects import LabelSelector, LabelSelectorRequirement, PodDisruptionBudget
from tidelog.framework.disruption_budgets import (
    Allowances,
    EvictionsFromBudgets,
    has_paid,
    is_protected,
    is_ready,
    nobody,
    selects,
)
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import Refusal
from tidelog.testing import builders as b

WEB = "PodDisruptionBudget/default/web"


class Port:
    """What is under way, given by hand."""

    def __init__(self, charged: Mapping[str, Sequence[str]], evicted: Sequence[str]) -> None:
        self._charged, self._evicted = charged, evicted

    def charged(self, budget: str, at: int) -> Sequence[str]:
        return self._charged.get(budget, ())

    def is_evicted(self, uid: str) -> bool:
        return uid in self._evicted


def allowances(
    *budgets: PodDisruptionBudget,
    charged: Mapping[str, Sequence[str]] | None = None,
    evicted: Sequence[str] = (),
    upstream: bool = False,
    guards_start: Callable[[PodInfo], bool] = nobody,
) -> Allowances:
    listers = Listers()
    for budget in budgets:
        listers.put(budget)
    port: Any = Port(charged or {}, evicted)
    return Allowances(listers, port, 0, upstream=upstream, guards_start=guards_start)


def info(name: str, ready: bool = True, **labels: str) -> PodInfo:
    made = b.pod(name).uid(name).label(labels).condition("Ready", "True" if ready else "False")
    return PodInfo(made.on("n1").build())


def budget(
    name: str = "web", allowed: int = 0, selector: Any = "app=web", **status: Any
) -> PodDisruptionBudget:
    return b.pdb(name, selector, allowed=allowed, **status)


# --- whom a budget is about -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "labels", "here", "upstream"),
    [
        ("app=web", {"app": "web"}, True, True),
        ("app=web", {"app": "db"}, False, False),
        ("app=web", {}, False, False),
        ("", {"app": "web"}, True, False),
        ("", {}, True, False),
        ("!app", {}, True, False),
        (None, {"app": "web"}, False, False),
    ],
)
def test_empty_selector_selects_all_and_an_absent_one_nothing(
    selector: Any, labels: dict[str, str], here: bool, upstream: bool
) -> None:
    found = budget(selector=selector)

    assert selects(found, info("p", **labels)) is here
    assert selects(found, info("p", **labels), upstream=True) is upstream


def test_selector_that_does_not_parse_selects_nothing() -> None:
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))

    assert not selects(budget(selector=broken), info("p", app="web"))


def test_budget_is_about_its_own_namespace() -> None:
    elsewhere = b.pdb("web", "app=web", namespace="elsewhere")

    assert allowances(elsewhere).selecting(info("p", app="web")) == ()
    assert allowances(budget()).selecting(info("p", app="web")) == (budget(),)


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("", True),
        ("2026-01-01T00:00:00Z", True),
        ("2026-01-01T00:00:05Z", True),
        ("2026-01-01T00:00:06Z", False),
    ],
)
def test_pod_made_after_the_charge_has_not_paid(created: str, expected: bool) -> None:
    charged = budget(disrupted_pods={"p": "2026-01-01T00:00:05Z"})
    made = b.pod("p").created(created).build() if created else b.pod("p").build()

    assert has_paid(charged, made) is expected
    assert not has_paid(budget(), made)


def test_pod_without_the_condition_is_not_ready() -> None:
    assert is_ready(info("p").pod)
    assert not is_ready(info("p", ready=False).pod)
    assert not is_ready(b.pod("p").build())


# --- what an eviction costs -----------------------------------------------------------------------------------------------


def test_healthy_pod_costs_one_of_every_budget_that_selects_it() -> None:
    found = allowances(budget("b"), budget("a", selector=""), budget("c", selector="app=db"))

    assert [x.metadata.name for x in found.costs(info("p", app="web"))] == ["a", "b"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pod_that_does_not_run_costs_nothing(phase: str) -> None:
    made = info("p", app="web").pod
    made = replace(made, status=replace(made.status, phase=phase))

    assert allowances(budget()).costs(PodInfo(made)) == ()


def test_pod_that_is_going_costs_nothing() -> None:
    going = PodInfo(b.pod("p").label(app="web").condition("Ready").terminating().build())

    assert allowances(budget()).costs(going) == ()
    assert allowances(budget(), evicted=["p"]).costs(info("p", app="web")) == ()


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "is_free"),
    [
        (None, 3, 3, True),
        (None, 2, 3, False),
        (None, 0, 0, False),
        ("AlwaysAllow", 0, 3, True),
        ("IfHealthyBudget", 2, 3, False),
    ],
)
def test_unready_pod_is_free_by_policy_or_while_the_others_are_enough(
    policy: str | None, healthy: int, desired: int, is_free: bool
) -> None:
    made = budget(current_healthy=healthy, desired_healthy=desired)
    made = replace(made, spec=replace(made.spec, unhealthy_pod_eviction_policy=policy))

    assert (allowances(made).costs(info("p", ready=False, app="web")) == ()) is is_free
    assert allowances(made).costs(info("p", app="web")) == (made,)


@pytest.mark.parametrize(
    ("phase", "policy", "is_free"),
    [
        ("Pending", None, False),
        ("Running", None, False),
        ("Running", "IfHealthyBudget", False),
        ("Pending", "AlwaysAllow", True),
        ("Running", "AlwaysAllow", True),
        ("Succeeded", None, True),
    ],
)
def test_guarded_pod_costs_before_it_is_ready_but_of_a_budget_that_always_lets_it_go(
    phase: str, policy: str | None, is_free: bool
) -> None:
    enough = budget(current_healthy=3, desired_healthy=3)
    enough = replace(enough, spec=replace(enough.spec, unhealthy_pod_eviction_policy=policy))
    made = info("p", ready=False, app="web").pod
    made = replace(made, status=replace(made.status, phase=phase))

    found = allowances(enough, guards_start=lambda pod: pod.name == "p")

    assert (found.costs(PodInfo(made)) == ()) is is_free
    assert allowances(enough).costs(PodInfo(made)) == ()


@pytest.mark.parametrize(("threshold", "expected"), [(None, False), (5, False), (6, True)])
def test_pod_is_protected_below_its_threshold(threshold: int | None, expected: bool) -> None:
    made = b.pod("p")
    made = made if threshold is None else made.guarded_below(threshold)

    assert is_protected(PodInfo(made.build()), 5) is expected


def test_status_of_another_generation_allows_nothing() -> None:
    old = budget(allowed=5, observed_generation=1)
    old = replace(old, metadata=replace(old.metadata, generation=2))

    assert allowances(old).left(old) == 0
    assert allowances(old, upstream=True).left(old) == 5


def test_evictions_that_the_status_does_not_know_of_are_charged() -> None:
    known = budget(allowed=3, disrupted_pods={"a": "2026-01-01T00:00:00Z"})
    charged = {WEB: ["a", "b"]}

    assert allowances(known, charged=charged).left(known) == 2
    assert allowances(known, charged=charged, upstream=True).left(known) == 3


def test_first_budget_that_forbids_is_named() -> None:
    found = allowances(budget("a", allowed=1), budget("b"), budget("c"))

    forbidding = found.forbidding(info("p", app="web"))

    assert forbidding is not None
    assert forbidding.metadata.name == "b"
    assert allowances(budget(allowed=1)).forbidding(info("p", app="web")) is None


# --- spending -------------------------------------------------------------------------------------------------------------


def test_evictions_are_granted_together_or_not_at_all() -> None:
    found = allowances(budget(allowed=1))
    first, second = info("p1", app="web"), info("p2", app="web")

    refused = EvictionsFromBudgets().evict([first, second], found)
    granted = EvictionsFromBudgets().evict([second], found)
    again = EvictionsFromBudgets().evict([first], found)

    assert (refused, granted, again) == (Refusal(second, WEB), None, Refusal(first, WEB))


def test_pod_under_two_budgets_spends_both_or_none() -> None:
    found, both = allowances(budget("a", allowed=1), budget("b", allowed=0)), info("p", app="web")

    refused = found.spend([both])

    assert refused == Refusal(both, "PodDisruptionBudget/default/b")
    assert found.left(budget("a", allowed=1)) == 1


def test_pod_that_goes_anyway_is_charged_below_zero() -> None:
    found = allowances(budget())

    keys = found.charge(info("p", app="web"))

    assert (keys, found.left(budget())) == ((WEB,), -1)


# --- the preference -------------------------------------------------------------------------------------------------------


def test_budget_pays_for_the_most_important_first() -> None:
    victims = [info(f"p{i}", app="web") for i in range(3)]

    assert allowances(budget(allowed=2)).violating(victims) == {"p2"}


def test_walk_ends_at_the_first_exhausted_budget() -> None:
    """`both` violates `a` and so does not charge `b`, which can pay for `only`."""
    budgets = budget("a", allowed=0, selector="x"), budget("b", allowed=1, selector="y")
    both, only = info("both", x="1", y="1"), info("only", y="1")

    assert allowances(*budgets).violating([both, only]) == {"both"}


def test_protected_victims_are_paid_for_first_and_violate_nothing() -> None:
    victims = [info("plain", app="web"), info("guarded", app="web")]

    assert allowances(budget(allowed=1)).violating(victims, ["guarded"]) == {"plain"}


def test_terminating_victim_charges_a_budget_in_kube_scheduler_only() -> None:
    going = PodInfo(b.pod("going").uid("going").label(app="web").terminating().build())
    victims = [going, info("p", app="web")]

    assert allowances(budget(allowed=1)).violating(victims) == frozenset()
    assert allowances(budget(allowed=1), upstream=True).violating(victims) == {"p"}


def test_pod_that_has_paid_neither_charges_nor_violates() -> None:
    paid = budget(allowed=0, disrupted_pods={"p": "2026-01-01T00:00:00Z"})

    for upstream in (False, True):
        assert allowances(paid, upstream=upstream).violating([info("p", app="web")]) == frozenset()
