"""Nodes keep their places when others come and go, and the first of a set is found all the same."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.thorough import cases
from tidelog.framework.effort import Paused
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import bits_of
from tidelog.framework.snapshot import Snapshot
from tidelog.replay.driver import Driver
from tidelog.scheduler.cache import Cache
from tidelog.scheduler.evaluation import node_places
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.evaluation.node_places import NodePlaces
from tidelog.testing import builders as b


class Cluster:
    """Nodes that come, go and move between zones at random."""

    def __init__(self, seed: int, zones: int) -> None:
        self.random = random.Random(seed)
        self.zones = [f"z{i}" for i in range(zones)]
        self.cache, self.snapshot = Cache(), Snapshot()
        self.names: list[str] = []

    def put(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)
        self.cache.put_node(b.node(name).label({b.ZONE: self.random.choice(self.zones)}).build())

    def step(self) -> None:
        roll = self.random.random()
        if roll < 0.5 or not self.names:
            self.put(f"n{self.random.randrange(1_000)}")
        elif roll < 0.8:
            self.put(self.random.choice(self.names))
        else:
            name = self.random.choice(self.names)
            self.names.remove(name)
            self.cache.remove_node(name)

    def refresh(self) -> list[str] | None:
        """Return the names of those that changed; None if that is not known."""
        seen = self.snapshot.generation
        self.snapshot.refresh(self.cache)
        return self.snapshot.changed_since(seen)


@pytest.mark.parametrize("zones", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", range(cases(6)))
def test_first_node_of_a_set_is_the_first_in_the_order_of_examination(seed: int, zones: int) -> None:
    cluster = Cluster(seed, zones)
    for _ in range(20):
        cluster.step()
    cluster.refresh()
    places = NodePlaces(cluster.snapshot)
    places.lay_out()

    for _ in range(60):
        for _ in range(cluster.random.randint(1, 3)):
            cluster.step()
        changed = cluster.refresh()
        if changed is None:
            places.lay_out()
        else:
            places.follow(changed)
        assert_same_order(cluster, places)


def assert_same_order(cluster: Cluster, places: NodePlaces) -> None:
    nodes, draw = cluster.snapshot.nodes, cluster.random
    assert places.all == bits_of([places.of(node.name) for node in nodes], len(places.nodes))
    for _ in range(5 if nodes else 0):
        some = draw.sample(nodes, draw.randint(1, len(nodes)))
        bits = bits_of([places.of(node.name) for node in some], len(places.nodes))
        start = draw.randrange(len(nodes))
        listed = sorted(cluster.snapshot.place_of(node.name) for node in some)
        first = next((place for place in listed if place >= start), listed[0])

        assert places.nodes[places.first(bits, start)] is nodes[first]
        assert places.in_order(bits) == [nodes[place] for place in listed]
        assert places.listed(bits) == bits_of(listed, len(nodes))


def test_gaps_and_detours_are_bounded() -> None:
    cluster = Cluster(0, 3)
    for i in range(50):
        cluster.put(f"n{i}")
    cluster.refresh()
    index = NodeIndex(cluster.snapshot)
    index.refresh()

    for i in range(500):
        cluster.put(f"m{i}")
        cluster.cache.remove_node(f"m{i - 1}")
        cluster.refresh()
        index.refresh()
        assert index.size <= 2 * cluster.snapshot.node_count + node_places.GAPS_SPARE + 2

    begun_anew = index.epoch
    cluster.put("last")
    cluster.refresh()
    index.refresh()
    for start in range(node_places.DETOURS_PER_NODE * 20):
        index.places.first(index.all, start % cluster.snapshot.node_count)
    cluster.put("last of all")
    cluster.refresh()
    index.refresh()

    assert 1 < begun_anew < 20
    assert index.epoch == begun_anew + 1


@pytest.mark.parametrize("change", ["comes", "goes", "moves"])
def test_only_the_node_that_comes_goes_or_moves_is_looked_at(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Counter[str]()
    state_of = NodeIndex._state

    def counted(self: NodeIndex, place: int, node: NodeInfo) -> object:
        looked[node.name] += 1
        return state_of(self, place, node)

    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").label({b.ZONE: f"z{i % 3}"}).build() for i in range(300)))
    pods = iter(b.pod(f"p{i}").scheduler("default-scheduler").request(cpu="100m").build() for i in range(9))
    driver.put(next(pods), next(pods))
    driver.settle()
    driver.put(next(pods))  # What the last attempt changed is seen by the next one.
    driver.settle()
    monkeypatch.setattr(NodeIndex, "_state", counted)

    if change == "comes":
        driver.put(b.node("new").label({b.ZONE: "z1"}).build())
    elif change == "goes":
        driver.delete(driver.core.objects["Node//n7"])
    else:
        driver.put(b.node("n7").label({b.ZONE: "z2"}).build())
    driver.put(next(pods))
    driver.settle()

    assert len(driver.placements()) == 4
    assert sum(looked.values()) <= 2  # That one, and the one that the last attempt changed.


def names_of(index: NodeIndex, nodes: int) -> frozenset[str]:
    return frozenset(node.name for node in index.in_order(nodes))


def contents(index: NodeIndex) -> object:
    """All that is known of the nodes, by their names."""
    return (
        [node.name for node in index.in_order(index.all)],
        Counter(
            (state.pods, state.use, names_of(index, state.bits))
            for state in index.states.values()
            if state.bits
        ),
        Counter(names_of(index, bits) for bits in index.by_traits.values()),
        {pods: names_of(index, bits) for pods, bits in index._by_pods.items()},
        {value: names_of(index, bits) for value, bits in index.topology(b.ZONE).bits.items()},
    )


@pytest.mark.parametrize("seed", range(cases(8)))
def test_what_takes_longer_than_a_turn_goes_on_in_the_next_one_whatever_changes_between(seed: int) -> None:
    cluster = Cluster(seed, 3)
    snapshot, index = cluster.snapshot, NodeIndex(cluster.snapshot)
    pauses = 0
    for _ in range(12):
        for _ in range(cluster.random.choice([1, 3, 40])):
            cluster.step()
        while True:
            snapshot.effort.left = cluster.random.choice([1, 4, 20])
            try:
                snapshot.refresh(cluster.cache)
                index.refresh()
                break
            except Paused:
                pauses += 1
                if cluster.random.random() < 0.2:
                    cluster.step()
        snapshot.effort.left = None
        fresh = Snapshot()
        fresh.refresh(cluster.cache)
        anew = NodeIndex(fresh)
        anew.refresh()

        assert [node.name for node in snapshot.nodes] == [node.name for node in fresh.nodes]
        assert contents(index) == contents(anew)
    assert pauses > 5
