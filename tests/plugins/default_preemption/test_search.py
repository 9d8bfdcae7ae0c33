"""The search on sets of nodes, held to a search that tries one node after the other."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest

from tests.thorough import cases
from tidelog.framework.interface import Status, unresolvable, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import bits_of, nth_place, turned
from tidelog.plugins.default_preemption.candidates import Candidate, Pattern, Twin, ranked, worth
from tidelog.plugins.default_preemption.memory import Answers
from tidelog.plugins.default_preemption.search import Search
from tidelog.testing import builders as b

AT = 2_000_000_000_000_000_000


class Cluster(NamedTuple):
    """What would come out on each node, and of which this is remembered."""

    nodes: Sequence[NodeInfo]
    results: Sequence[Candidate | Status]
    lasting: Sequence[bool]
    """The result is one that can be remembered."""


class Remembering:
    """A memory that asks the cluster, and notes whom."""

    def __init__(self, cluster: Cluster, known: Sequence[int]) -> None:
        self.cluster = cluster
        self.answers = Answers()
        self.asked: list[int] = []
        self.blockers: dict[str, Sequence[object]] = {}
        self.ask(known, self)
        self.answers.settle(len(cluster.nodes))
        self.asked.clear()

    def ask(self, places: Iterable[int], _: object) -> dict[int, Candidate | Status]:
        passing = {}
        for place in places:
            self.asked.append(place)
            found = self.cluster.results[place]
            if not self.cluster.lasting[place]:
                passing[place] = found
            elif isinstance(found, Status):
                self.answers.learn((place,), found, (), False)
            else:
                started = bool(found.victims[0].pod.status.start_time)
                lasting = found if started else Pattern.of(found, list(found.victims))
                self.answers.learn((place,), lasting, (), started)
        return passing

    def found_at(self, place: int) -> Candidate | Twin | Status:
        found = self.answers[place]
        return Twin(self.cluster.nodes[place], 100, found) if isinstance(found, Pattern) else found


def drawn(dice: random.Random) -> Cluster:
    """Nodes with one or two victims each, or none that would do."""
    breaks, starts = dice.choice((0, 0, 0.3, 1)), dice.choice((0, 0, 0.5, 1))
    fails = dice.choice((0, 0.3, 0.8, 1))
    nodes, results = [], []
    for i in range(dice.randint(1, 40)):
        node = NodeInfo(b.node(f"n{i}").build())
        for number in range(dice.randint(1, 2)):
            made = b.pod(f"p{i}-{number}").priority(dice.choice((1, 1, 2)))
            node.add_pod(PodInfo(made.build()))
        if dice.random() < starts:
            victims = [
                PodInfo(b.pod(f"s{i}").priority(1).started(f"2026-01-01T00:00:0{dice.randrange(3)}Z").build())
            ]
        else:
            victims = sorted(node.pods.values(), key=lambda pod: (-pod.priority, pod.name))
        nodes.append(node)
        if dice.random() < fails:
            results.append(dice.choice((unschedulable("full"), unresolvable("never"))))
        else:
            violations = len(victims) if dice.random() < breaks else 0
            results.append(Candidate(node.name, tuple(victims), violations))
    lasting = [dice.random() < 0.7 and (isinstance(one, Status) or not one.violations) for one in results]
    return Cluster(nodes, results, lasting)


def one_by_one(
    cluster: Cluster, order: Sequence[int], wanted: int
) -> tuple[list[Candidate], dict[str, Status], list[int]]:
    """The candidates, those without violations first; who failed; who was tried."""
    keeping: list[Candidate] = []
    violating: list[Candidate] = []
    failed: dict[str, Status] = {}
    tried = []
    for place in order:
        tried.append(place)
        found = cluster.results[place]
        if isinstance(found, Status):
            failed[cluster.nodes[place].name] = found
            continue
        group = violating if found.violations else keeping
        if len(group) < wanted:
            group.append(found)
        if keeping and len(keeping) + len(violating) >= wanted:
            break
    return [*keeping, *violating], failed, tried


def essence(found: Candidate | Twin) -> tuple[object, ...]:
    return found.node, [pod.name for pod in found.victims], worth(found)


@pytest.mark.parametrize("seed", range(cases(60)))
def test_sets_of_nodes_tell_what_one_node_after_the_other_would(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        cluster = drawn(dice)
        size = len(cluster.nodes)
        places = [place for place in range(size) if dice.random() < 0.8]
        if not places:
            continue
        wanted, first = dice.randint(0, len(places)), dice.randrange(len(places))
        memory = Remembering(cluster, [place for place in range(size) if dice.random() < 0.4])
        known = [place for place in range(size) if memory.answers.known >> place & 1]

        among = bits_of(places, size)
        start = nth_place(among, first)
        search = Search(cluster.nodes, memory, memory, among, start, wanted, AT)  # type: ignore[arg-type]

        candidates, failed, tried = one_by_one(cluster, places[first:] + places[:first], wanted)
        assert [*map(essence, search.candidates)] == [*map(essence, candidates)]
        assert search.count == len(candidates)
        assert list(search.statuses.items()) == list(failed.items())
        assert sum(search.failures().values()) == len(failed)
        assert set(search.failures()) == set(failed.values())
        assert [*map(essence, search.best_first())] == [*map(essence, ranked(candidates, AT))]
        assert sorted(memory.asked) == sorted(place for place in tried if place not in known)


def test_nth_place_and_turned_count_as_a_list_does() -> None:
    dice = random.Random(1)
    for _ in range(200):
        size = dice.randint(1, 70)
        places = sorted(dice.sample(range(size), dice.randint(1, size)))
        bits, start = bits_of(places, size), dice.randrange(size)

        assert [nth_place(bits, n) for n in range(len(places))] == places
        seen = sorted((place - start) % size for place in places)
        assert turned(bits, start, size) == bits_of(seen, size)
