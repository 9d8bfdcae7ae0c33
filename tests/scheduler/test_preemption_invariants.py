"""The laws of preemption, on small random clusters with random preemptors, budgets and interleavings.

1. No eviction of a protected victim takes a disruption budget below its minimum.
2. Nothing is evicted unless the preemptor then fits.
3. No eviction is recorded without a nomination in the same transaction.
4. No pod is evicted twice.
5. Nobody is evicted for a pod that is not more important.
6. Nothing half done: when all is quiet, every nominated pod either waits for a victim or has its place.
7. The log verifies, and a scheduler recovered from it is in the same state.
8. Nobody sleeps through what helps him: the flush of those left over finds nobody who could have gone before.

They are judged on the log alone, with arithmetic of their own. More seeds: `make laws`, or `TIDELOG_PREEMPTION_SEEDS=20000 pytest …`.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.thorough import cases
from tests.worlds.objects import node
from tests.worlds.preemption import World, pending, running, transactions
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Node, Pod, PodDisruptionBudget, PodStatus, pod_condition
from tidelog.api.pod_status import with_pod_condition
from tidelog.api.quantity import parse_exact
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Body, Evicted, Nominated, Record
from tidelog.plugins.default_preemption.candidates import Pattern
from tidelog.plugins.default_preemption.dry_run import DryRun
from tidelog.plugins.default_preemption.memory import Memory
from tidelog.testing import builders as b

pytestmark = pytest.mark.no_cover  # Thousands of clusters; the tests of preemption cover it.

SEEDS = cases(250, "TIDELOG_PREEMPTION_SEEDS")
"""`make laws` tries more."""
BATCH = 250
"""Enough for each of the cases that are counted to come up."""
APPS = ("a", "b")
TIERS = ("x", "y")
THRESHOLDS = (None, 6, 9, 20)


def cores(obj: Pod | Node) -> int:
    """Millicores that a pod takes or a node has."""
    if isinstance(obj, Node):
        value = obj.status.allocatable["cpu"]
    else:
        value = obj.spec.containers[0].resources.requests["cpu"]
    above, below = parse_exact(value)
    return above * 1000 // below


# --- the random cluster -------------------------------------------------------------------------------------------------


class Sandbox:
    """A cluster, its disruption controller, and a die."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.made = 0
        self.stale: list[PodDisruptionBudget] = []
        """Statuses as the controller last computed them; useless once something it does not know of has ended."""
        nodes = [f"n{i}" for i in range(self.dice.randint(1, 4))]
        self.world.add(*(node(name, cpu=str(self.dice.randint(2, 5))) for name in nodes))
        for name in nodes:
            self._fill(name)
        for app in APPS[: self.dice.randint(0, 2)]:
            least = self.dice.randint(0, 3)
            self.world.put(b.pdb(app, f"app={app}", min_available=least))
        for name, selector in (("tier", "tier=x"), ("both", "app=a,tier=x"), ("all", "")):
            if self.dice.random() < 0.5:
                self.world.put(b.pdb(name, selector, min_available=self.dice.randint(0, 3)))
        self.control()

    def play(self) -> World:
        steps = (
            (self.preemptor, 6),
            (self.world.attempt, 8),
            (self.commit, 3),
            (self.end_of_victims, 3),
            (self.control, 2),
            (self.repeat_old_status, 2),
            (self.pass_time, 2),
            (self.disturb, 2),
            (self.race, 4),
            (self.turn_ready, 1),
            (self.relabel, 1),
            (self.kill, 1),
            (self.renew, 2),
        )
        for _ in range(self.dice.randint(8, 18)):
            (step,) = self.dice.choices([s for s, _ in steps], [weight for _, weight in steps])
            step()
        self.world.settle()
        self.world.commit()
        return self.world

    def _name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}-{self.made}"

    def _fill(self, on: str) -> None:
        found = self.world.core.objects[f"Node//{on}"]
        assert isinstance(found, Node)
        left = cores(found)
        while left >= 500 and self.dice.random() < 0.9:
            cpu = min(self.dice.choice((500, 1000, 1500, 2000)), left)
            left -= cpu
            labels = {"app": self.dice.choice(APPS), "tier": self.dice.choice(TIERS)}
            made = running(self._name("run"), on, f"{cpu}m", self.dice.randint(0, 6), **labels)
            threshold = self.dice.choice(THRESHOLDS)
            made = made if threshold is None else made.guarded_below(threshold)
            self.world.add(made.condition("Ready", self.dice.choice(("True", "True", "True", "False"))))

    def preemptor(self) -> None:
        cpu = self.dice.choice((500, 1000, 2000))
        made = pending(self._name("new"), f"{cpu}m", self.dice.randint(4, 10), app=self.dice.choice(APPS))
        threshold = self.dice.choice(THRESHOLDS)
        self.world.add(made if threshold is None else made.guarded_below(threshold))

    def commit(self) -> None:
        self.world.commit(self.dice.randint(1, 3))

    def end_of_victims(self) -> None:
        self.world.commit()
        self.world.finish_terminating()
        self.control()

    def pass_time(self) -> None:
        self.world.commit()
        self.world.advance(self.dice.choice((0.5, 2, 11)))

    def control(self) -> None:
        """The disruption controller looks at everything, and writes what it sees."""
        self.stale = []
        for obj in list(self.world.core.objects.values()):
            if isinstance(obj, PodDisruptionBudget):
                least = obj.spec.min_available
                assert isinstance(least, int)
                good = len(healthy(obj, self.world.core.objects.values()))
                allowed = max(good - least, 0)
                status = replace(
                    obj.status,
                    disruptions_allowed=allowed,
                    current_healthy=good,
                    desired_healthy=least,
                    disrupted_pods={},
                )
                self.stale.append(replace(obj, status=status))
        self.world.put(*self.stale)

    def repeat_old_status(self) -> None:
        """A write of the controller's arrives late: it knows nothing of the evictions since."""
        self.world.put(*self.stale)

    def disturb(self) -> None:
        """Somebody else ends a pod, and the budgets know at once."""
        pods = [p for p in self.world.core.objects.values() if isinstance(p, Pod)]
        if pods:
            self.world.delete(self.dice.choice(pods))
            self.control()

    def turn_ready(self) -> None:
        """A pod becomes Ready, or is not any more, and the budgets know at once."""
        pod = self._someone()
        if pod is not None:
            turned = Condition(type="Ready", status="False" if _is_ready(pod) else "True")
            self.world.put(with_pod_condition(pod, turned, self.world.now))
            self.control()

    def relabel(self) -> None:
        """A pod comes under other budgets, and they know at once."""
        pod = self._someone()
        if pod is not None:
            labels = {**pod.metadata.labels, "tier": self.dice.choice(TIERS)}
            self.world.put(replace(pod, metadata=replace(pod.metadata, labels=labels)))
            self.control()

    def renew(self) -> None:
        """A pod that waits is made anew under its name, whether a decision about it is on its way or not."""
        waiting = [p for p in self.world.core.objects.values() if isinstance(p, Pod) and not p.spec.node_name]
        if waiting:
            old = self.dice.choice(waiting)
            self.world.delete(old)
            self.world.put(
                replace(old, metadata=replace(old.metadata, uid=self._name("uid")), status=PodStatus())
            )

    def _someone(self) -> Pod | None:
        """A pod on a node."""
        pods = [p for p in self.world.core.objects.values() if isinstance(p, Pod) and p.spec.node_name]
        return self.dice.choice(pods) if pods else None

    def give_way(self) -> None:
        """The budgets ask for nothing any more."""
        for obj in list(self.world.core.objects.values()):
            if isinstance(obj, PodDisruptionBudget):
                self.world.put(replace(obj, spec=replace(obj.spec, min_available=0)))
        self.control()

    def kill(self) -> None:
        """The scheduler dies with what it has not committed, and another one takes over."""
        self.world.submitted.clear()
        self.world.restart()

    def race(self) -> None:
        """Between decision and commit somebody else spends what is left of a budget."""
        self.preemptor()
        self.world.attempt()
        budgets = [o for o in self.world.core.objects.values() if isinstance(o, PodDisruptionBudget)]
        for budget in budgets:
            good = healthy(budget, self.world.core.objects.values())
            for pod in self.dice.sample(good, min(budget.status.disruptions_allowed, len(good))):
                self.world.delete(pod)
        self.control()
        self.world.commit()


def healthy(budget: PodDisruptionBudget, objects: object) -> list[Pod]:
    """The pods that count for the budget."""
    return [
        obj
        for obj in objects  # type: ignore[attr-defined]
        if isinstance(obj, Pod)
        and _selects(budget, obj)
        and not obj.metadata.deletion_timestamp
        and _is_ready(obj)
    ]


# --- the judge ----------------------------------------------------------------------------------------------------------


class Judge:
    """Reads a log, and knows what was true before each transaction."""

    def __init__(self) -> None:
        self.table = ObjectTable()
        self.evicted: set[str] = set()
        self.counts: Counter[str] = Counter()

    def read(self, world: World) -> None:
        for group in transactions(world.records):
            self._judge(group)
            for record, _ in group:
                self.table.apply(record)
            self._judge_budgets(group)

    def _pods(self) -> list[Pod]:
        return [e.object for e in self.table.of_kind("Pod") if isinstance(e.object, Pod)]

    def _judge(self, group: list[tuple[Record, Body]]) -> None:
        evictions = [(record.key, body) for record, body in group if isinstance(body, Evicted)]
        nominations = [(r.key, body) for r, body in group if isinstance(body, Nominated) and body.node]
        for key, body in evictions:
            victim, preemptor = self.table.get(key), self.table.get(body.preemptor)
            assert isinstance(victim, Pod)
            assert isinstance(preemptor, Pod)
            assert victim.metadata.uid not in self.evicted, "law 4"
            self.evicted.add(victim.metadata.uid)
            assert (victim.spec.priority or 0) < (preemptor.spec.priority or 0), "law 5"
            threshold = victim.spec.allow_disruption_by_priority_greater_than_or_equal
            assert body.protected == (threshold is not None and (preemptor.spec.priority or 0) < threshold)
            assert any(k == body.preemptor and key in n.victims for k, n in nominations), "law 3"
            self.counts["protected" if body.protected else body.method] += 1
        for key, nomination in nominations:
            self._judge_fit(key, nomination)

    def _judge_fit(self, key: str, nomination: Nominated) -> None:
        preemptor, place = self.table.get(key), self.table.get(f"Node//{nomination.node}")
        assert isinstance(preemptor, Pod)
        assert isinstance(place, Node)
        staying = [
            pod
            for pod in self._pods()
            if pod.spec.node_name == nomination.node and object_key(pod) not in nomination.victims
        ]
        promised = [
            pod
            for pod in self._pods()
            if pod.status.nominated_node_name == nomination.node
            and object_key(pod) != key
            and (pod.spec.priority or 0) >= (preemptor.spec.priority or 0)
        ]
        assert sum(map(cores, [*staying, *promised, preemptor])) <= cores(place), "law 2"
        self.counts["nominated"] += 1

    def _judge_budgets(self, group: list[tuple[Record, Body]]) -> None:
        """After the evictions that had to keep to the budgets; the others may break what they like."""
        if not any(isinstance(body, Evicted) and body.protected for _, body in group):
            return
        gone = {r.key for r, body in group if isinstance(body, Evicted) and not body.protected}
        seen: set[str] = set()
        for entry in self.table.of_kind("PodDisruptionBudget"):
            budget = entry.object
            assert isinstance(budget, PodDisruptionBudget)
            hit = [key for key in self._protected(group) if _selects(budget, self.table.get(key))]
            if not hit:
                continue
            self.counts["under several"] += any(key in seen for key in hit)
            seen.update(hit)
            good = healthy(budget, self._pods())
            back = sum(
                _selects(budget, self.table.get(key)) and _is_ready(self.table.get(key)) for key in gone
            )
            least = budget.spec.min_available
            assert isinstance(least, int)
            assert len(good) + back >= least or not any(_is_ready(self.table.get(k)) for k in hit), "law 1"
            self.counts["kept"] += 1

    def _protected(self, group: list[tuple[Record, Body]]) -> list[str]:
        return [r.key for r, body in group if isinstance(body, Evicted) and body.protected]


def _selects(budget: PodDisruptionBudget, obj: object) -> bool:
    assert budget.spec.selector is not None
    wanted = budget.spec.selector.match_labels.items()
    return isinstance(obj, Pod) and wanted <= obj.metadata.labels.items()


def _is_ready(obj: object) -> bool:
    ready = pod_condition(obj, "Ready") if isinstance(obj, Pod) else None
    return ready is not None and ready.status == "True"


def judge_end(world: World) -> None:
    """Law 6: let everybody who goes be gone; then nobody is left with a promise and without a place."""
    for _ in range(50):
        world.advance(11)
        if not world.finish_terminating():
            break
    world.advance(400)
    for obj in world.core.objects.values():
        if isinstance(obj, Pod) and not obj.spec.node_name:
            assert not obj.status.nominated_node_name, f"law 6: {obj.metadata.name}"
    assert len(world.core.evictions) == 0


def judge_sleepers(sandbox: Sandbox) -> None:
    """Law 8: when all is quiet, time alone moves nobody."""
    world = sandbox.world
    while world.finish_terminating():
        sandbox.control()
        world.advance(12)
    world.advance(36)

    def places() -> dict[str, tuple[str, str]]:
        pods = ((key, obj) for key, obj in world.core.objects.items() if isinstance(obj, Pod))
        return {key: (pod.spec.node_name, pod.status.nominated_node_name) for key, pod in pods}

    before = places()
    world.advance(330)
    assert before == places(), "law 8"


def try_seed(seed: int) -> Counter[str]:
    judge = Judge()
    sandbox = Sandbox(seed)
    world = sandbox.play()
    if seed % 10 == 0:
        world.check()
    judge.read(world)
    if seed % 10 == 1:
        judge_end(world)
        judge_again = Judge()
        judge_again.read(world)
    if seed % 5 == 2:
        judge_sleepers(sandbox)
        sandbox.give_way()
        judge_sleepers(sandbox)
    return judge.counts


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_laws_of_preemption_hold(first: int) -> None:
    total: Counter[str] = Counter()
    for seed in range(first, min(first + BATCH, SEEDS)):
        try:
            total += try_seed(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error

    assert total["protected"] > 0
    assert total["kept"] > 0
    assert total["under several"] > 0
    assert total["delete"] > 0
    assert total["evict"] > 0


@pytest.mark.parametrize("budgets", [0, 2])
def test_what_earlier_dry_runs_have_shown_changes_no_decision(
    budgets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many alike preemptors the memory is used; forgetful, the scheduler writes the same log."""

    def play(seed: int) -> list[Record]:
        world, dice = World(), random.Random(seed)
        for i in range(8):
            size = str(dice.choice((2, 2, 3)))
            world.add(b.node(f"n{i}").label(half="ab"[i % 2]).capacity(cpu=size).build())
        for app in APPS[:budgets]:
            world.put(b.pdb(app, f"app={app}", allowed=dice.randint(0, 2)))
        for number in range(16):
            where, size = f"n{number % 8}", dice.choice(("700m", "700m", "500m"))
            made = running(f"run-{number}", where, size, dice.choice((0, 3)), app=dice.choice("abc"))
            if seed % 3 == 0 or (seed % 3 == 1 and dice.random() < 0.5):
                made = made.started(f"2026-01-01T00:00:{dice.randint(10, 12)}Z")
            world.add(made.guarded_below(9) if dice.random() < 0.3 else made)
        for number in range(10):
            made = pending(f"new-{number}", "1500m", dice.choice((5, 5, 6)))
            world.add(made.node_selector(half="a") if dice.random() < 0.2 else made)
            world.attempt()
            if budgets and dice.random() < 0.2:
                world.put(b.pdb("a", "app=a", allowed=dice.randint(0, 2)))
            if dice.random() < 0.6:
                world.commit()
            if dice.random() < 0.3:
                world.commit()
                world.finish_terminating()
        world.settle()
        world.commit()
        return world.records

    worlds = cases(30)
    tried = twins = 0
    try_on, on = DryRun.on, Pattern.on

    def counting(*args: Any) -> Any:
        nonlocal tried
        tried += 1
        return try_on(*args)

    def counting_twins(*args: Any) -> Any:
        nonlocal twins
        twins += 1
        return on(*args)

    monkeypatch.setattr(DryRun, "on", counting)
    monkeypatch.setattr(Pattern, "on", counting_twins)
    remembering = [play(seed) for seed in range(worlds)]
    needed, tried = tried, 0
    monkeypatch.setattr(Memory, "_answers", lambda *_: None)
    forgetful = [play(seed) for seed in range(worlds)]

    assert needed + worlds < tried
    assert budgets or twins > worlds // 4
    assert remembering == forgetful
