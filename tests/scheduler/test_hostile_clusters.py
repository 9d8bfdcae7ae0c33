"""What hostile pods cost an attempt, their own and others' terms and constraints, as far as it can be counted.

The figures in seconds that follow from it are in `docs/limits.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tidelog.framework import affinity_terms
from tidelog.framework.affinity_terms import AffinityTerm
from tidelog.plugins.pod_topology_spread import domains as spread_domains
from tidelog.plugins.pod_topology_spread.domains import SpreadDomains
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b

PODS, TERMS = 12, 32

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


def test_nodes_that_many_soft_constraints_tell_apart_are_ordered_as_without_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where hardly two nodes are alike they are scored one by one."""
    by_node: list[int] = []
    original = SpreadDomains._raw_nodes

    def raw_nodes(self: SpreadDomains, scored: int, weights: Iterable[tuple[float, int]]) -> object:
        by_node.append(scored)
        return original(self, scored, weights)

    monkeypatch.setattr(spread_domains, "GROUPS_MAX", 8)
    monkeypatch.setattr(SpreadDomains, "_raw_nodes", raw_nodes)
    chosen = []
    for fast in (True, False):
        driver = Driver()
        driver.core = Core(driver.registry, fast=fast)
        driver.start()
        for i in range(24):
            labels = {f"k{j}": f"v{i * (j + 1) % (j + 3)}" for j in range(6)}
            driver.put(b.node(f"n{i}").label(labels if i % 8 else {"k0": "v0"}).build())
        spreading = b.pod("spreading").scheduler("default-scheduler").label(app="web")
        for j in range(6):
            spreading = spreading.spread(f"k{j}", "app=web", max_skew=1 + j % 2, soft=True)
        for i in range(20):
            driver.put(spreading.named(f"p{i}").build())
            driver.settle()
        chosen.append([driver.core.cluster.cache.node_of(f"default/p{i}") for i in range(20)])

    assert by_node
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) > 10
