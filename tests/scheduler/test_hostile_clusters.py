"""What thousands of terms of other pods cost an attempt, counted: terms compiled in it, and terms looked at.

The figures in seconds that follow from it are in `docs/limits.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tidelog.api import builders as b
from tidelog.plugins import affinity_terms
from tidelog.plugins.affinity_terms import AffinityTerm
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core

PODS, TERMS = 40, 32

Term = Callable[[b.PodBuilder, str], b.PodBuilder]

LISTS: dict[str, Term] = {
    "anti-affinity": lambda pod, app: pod.pod_anti_affinity(b.ZONE, f"team=x,app={app}"),
    "affinity": lambda pod, app: pod.pod_affinity(b.ZONE, f"app={app},team=x"),
    "preferred anti-affinity": lambda pod, app: pod.prefer_pod_anti_affinity(1, b.ZONE, f"app={app}"),
    "preferred affinity": lambda pod, app: pod.prefer_pod_affinity(1, b.ZONE, f"app in ({app})"),
}
"""Each makes a term that no other pod has."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many terms were compiled, and how often it was asked whether one selects a pod."""
    found: Counter[str] = Counter()
    monkeypatch.setattr(affinity_terms, "_cache", {})

    def count(name: str, method: str) -> None:
        original = getattr(AffinityTerm, method)

        def counting(*args: object) -> object:
            found[name] += 1
            return original(*args)

        monkeypatch.setattr(AffinityTerm, method, counting)

    count("compiled", "__init__")
    count("looked at", "selects")
    return found


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kind", LISTS)
def test_an_attempt_looks_only_at_the_terms_that_require_a_label_of_its_pod(
    kind: str, fast: bool, counted: Counter[str]
) -> None:
    driver = Driver()
    driver.core = Core(driver.registry, fast=fast)
    driver.start()
    driver.put(b.node("n1").label({b.ZONE: "a"}).build(), b.node("n2").label({b.ZONE: "b"}).build())
    for i in range(PODS):
        hostile = b.pod(f"hostile-{i}").on("n1")
        for j in range(TERMS):
            hostile = LISTS[kind](hostile, f"app-{i}-{j}")
        driver.put(hostile.build())
    compiled_before = counted["compiled"]
    stranger = b.pod("stranger").scheduler("default-scheduler").label(team="x", app="other")
    driver.put(stranger.build(), stranger.named("wanted").label(app="app-7-3").build())
    counted.clear()

    driver.settle()

    assert compiled_before == PODS * TERMS
    assert counted["compiled"] == 0
    # Of each hostile pod the term that stands for `team=x`, once for either pod and evaluation, and the one that is met.
    assert counted["looked at"] <= 2 * 2 * PODS + 2
    assert (
        driver.core.cluster.cache.node_of("default/wanted")
        == {
            "anti-affinity": "n2",
            "affinity": "n1",
            "preferred anti-affinity": "n2",
            "preferred affinity": "n1",
        }[kind]
    )
