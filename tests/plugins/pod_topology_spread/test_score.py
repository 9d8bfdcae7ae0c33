"""Soft spread constraints: golden vectors, the rules of the score, and an independent model of it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.plugins.pod_topology_spread.test_filter import incoming_pods, node_counts, pods_counted
from tests.worlds.domains import HOST, RACK, ZONE, Cluster, clusters, scored
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement, Object, Pod
from tidelog.framework.interface import Code, CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.testing.builders import PodBuilder, node, pod, replica_set, service

WEB = pod("web").label(app="web")


def hosts(*counts: int, zone_of: dict[int, str] | None = None) -> list[Object]:
    """Nodes n0, n1, … with so many web pods on them."""
    found: list[Object] = []
    for i, count in enumerate(counts):
        built = node(f"n{i}")
        if zone_of and i in zone_of:
            built = built.label({ZONE: zone_of[i]})
        found.append(built.build())
        found.extend(WEB.named(f"w{i}-{j}").on(f"n{i}").build() for j in range(count))
    return found


def scores(
    objects: list[Object], incoming: PodBuilder, among: list[str] | None = None, **args: Any
) -> dict[str, int] | None:
    cluster = Cluster(*objects)
    return scored(cluster.plugin(PodTopologySpread, **args), cluster, incoming, among)


@pytest.mark.parametrize(
    ("counts", "max_skew", "expected"),
    [
        ((2, 1, 0, 3), 1, [20, 60, 100, 0]),
        ((2, 1, 0, 3), 2, [33, 66, 100, 16]),
        ((1, 1), 1, [100, 100]),
        ((0, 0), 1, [100, 100]),
    ],
)
def test_golden_vectors_over_host_names(counts: tuple[int, ...], max_skew: int, expected: list[int]) -> None:
    found = scores(hosts(*counts), WEB.spread(HOST, soft=True, max_skew=max_skew))

    assert found is not None
    assert list(found.values()) == expected


def test_a_pod_without_soft_constraints_is_not_scored() -> None:
    assert scores(hosts(1, 0), WEB.spread(HOST)) is None


def test_feasible_nodes_without_a_key_get_nothing_even_where_all_others_are_empty() -> None:
    objects = [*hosts(0, 1, zone_of={0: "a", 1: "b"}), node("bare").build()]

    assert scores(objects, WEB.spread(ZONE, soft=True)) == {"n0": 100, "n1": 0, "bare": 0}
    assert scores(objects, WEB.spread(ZONE, "app=none", soft=True)) == {"n0": 100, "n1": 100, "bare": 0}


def test_only_nodes_with_all_keys_count() -> None:
    """The pods on `zoned` are in zone a as well, but it has no rack."""
    objects: list[Object] = [
        node("n0").label({ZONE: "a", RACK: "r1"}).build(),
        node("n1").label({ZONE: "b", RACK: "r1"}).build(),
        node("zoned").label({ZONE: "a"}).build(),
        WEB.named("w").on("n1").build(),
        *(WEB.named(f"z{i}").on("zoned").build() for i in range(5)),
    ]
    zone = WEB.spread(ZONE, soft=True)

    assert scores(objects, zone, among=["n0", "n1"]) == {"n0": 14, "n1": 100}
    both = scores(objects, zone.spread(RACK, soft=True), among=["n0", "n1"])
    assert both == {"n0": 100, "n1": 50}


def test_ignored_nodes_do_not_add_to_the_number_of_host_names() -> None:
    """2 · ln(2 + 2) rounds to 3, 2 · ln(8 + 2) would to 5."""
    bare = [
        replace(built, metadata=replace(built.metadata, labels={}))
        for built in (node(f"bare{i}").build() for i in range(6))
    ]

    found = scores([*hosts(1, 2), *bare], WEB.spread(HOST, soft=True))

    assert found is not None
    assert (found["n0"], found["n1"]) == (100, 33)


def test_pods_on_nodes_that_are_not_feasible_count_in_their_domain() -> None:
    objects = hosts(0, 3, 1, zone_of={0: "a", 1: "a", 2: "b"})

    found = scores(objects, WEB.spread(ZONE, soft=True), among=["n0", "n2"])

    assert found is not None
    assert found["n0"] < found["n2"]


def test_host_names_count_only_the_pods_of_the_node_itself() -> None:
    """Two nodes may say the same host name; for other keys they would share their domain."""
    objects = [*hosts(0, 2), node("twin").label({HOST: "n1"}).build()]

    assert scores(objects, WEB.spread(HOST, soft=True)) == {"n0": 100, "n1": 0, "twin": 100}


def test_host_names_count_without_the_inclusion_policies() -> None:
    objects = [*hosts(0, 2), node("tainted").taint("dedicated").build(), WEB.named("t").on("tainted").build()]

    found = scores(objects, WEB.spread(HOST, soft=True, node_taints_policy="Honor"))

    assert found == {"n0": 100, "n1": 0, "tainted": 33}


@pytest.mark.parametrize(("policy", "expected"), [(None, 25), ("Honor", 100)])
def test_other_keys_count_only_nodes_that_the_policies_include(policy: str | None, expected: int) -> None:
    tainted = node("tainted").label({ZONE: "a"}).taint("dedicated").build()
    crowd = [WEB.named(f"t{i}").on("tainted").build() for i in range(3)]
    objects = [*hosts(0, 1, zone_of={0: "a", 1: "b"}), tainted, *crowd]

    found = scores(objects, WEB.spread(ZONE, soft=True, node_taints_policy=policy), among=["n0", "n1"])

    assert found is not None
    assert found["n0"] == expected


def test_min_domains_and_terminating_pods_do_not_score() -> None:
    leaving = [WEB.named(f"l{i}").terminating().on("n0").build() for i in range(4)]

    found = scores([*hosts(0, 1), *leaving], WEB.spread(HOST, soft=True, min_domains=5))

    assert found == {"n0": 100, "n1": 0}


def test_an_empty_selector_counts_nobody() -> None:
    assert scores(hosts(0, 3), WEB.spread(HOST, LabelSelector(), soft=True)) == {"n0": 100, "n1": 100}


def test_a_selector_that_does_not_parse_is_an_error() -> None:
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))
    cluster = Cluster(*hosts(0, 1))
    incoming = PodInfo(WEB.spread(HOST, broken, soft=True).build())

    status = cluster.plugin(PodTopologySpread).pre_score(CycleState(), incoming, cluster.nodes)

    assert status.code is Code.ERROR


# --- defaults ---------------------------------------------------------------------------------------------------------------


def test_system_defaults_spread_pods_of_a_service_over_hosts_and_zones() -> None:
    objects = [*hosts(3, 0, 0, zone_of={0: "a", 1: "a", 2: "b"}), service("web", {"app": "web"})]

    found = scores(objects, WEB)

    assert found is not None
    assert found["n0"] < found["n1"] < found["n2"] == 100


def test_system_defaults_score_nodes_without_a_zone_by_their_host_name() -> None:
    objects = [*hosts(0, 4), service("web", {"app": "web"})]

    found = scores(objects, WEB)

    assert found is not None
    assert found["n1"] < found["n0"] == 100


def test_listed_defaults_leave_nodes_without_the_key_at_zero() -> None:
    objects = [*hosts(0, 4, zone_of={1: "a"}), service("web", {"app": "web"})]
    soft = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}

    found = scores(objects, WEB, defaultingType="List", defaultConstraints=[soft])

    assert found is not None
    assert found["n0"] == 0


def test_an_empty_list_of_defaults_scores_nothing() -> None:
    objects = [*hosts(0, 4), service("web", {"app": "web"})]

    assert scores(objects, WEB, defaultingType="List") is None


@pytest.mark.parametrize(
    "incoming",
    [WEB, WEB.owner("ReplicaSet", "gone"), WEB.owner("DaemonSet", "web"), WEB.namespace("elsewhere")],
    ids=["nobody's", "of a controller that is gone", "of another kind of controller", "of another namespace"],
)
def test_defaults_do_not_apply_to_pods_without_kin(incoming: PodBuilder) -> None:
    assert scores([*hosts(0, 4), service("db", {"app": "db"})], incoming) is None


def test_defaults_apply_to_pods_of_a_replica_set() -> None:
    objects = [*hosts(0, 4), replica_set("web", "app=web")]

    found = scores(objects, WEB.owner("ReplicaSet", "web"))

    assert found is not None
    assert found["n1"] < found["n0"]


# --- against an independent model -----------------------------------------------------------------------------------------------


def naive_scores(cluster: Cluster, incoming: Pod, among: list[str]) -> dict[str, int] | None:
    """The score, as its description reads; the last division exactly."""
    soft = [c for c in incoming.spec.topology_spread_constraints if c.when_unsatisfiable == "ScheduleAnyway"]
    if not soft:
        return None
    complete = [n for n in cluster.nodes if all(c.topology_key in n.node.metadata.labels for c in soft)]
    kept = [n for n in complete if n.name in among]
    raw: dict[str, int] = {}
    for info in kept:
        total = 0.0
        for c in soft:
            value = info.node.metadata.labels[c.topology_key]
            if c.topology_key == HOST:
                size, count = len(kept), pods_counted(c, info, incoming)
            else:
                size = len({n.node.metadata.labels[c.topology_key] for n in kept})
                count = 0
                for other in complete:
                    same = other.node.metadata.labels[c.topology_key] == value
                    if same and node_counts(c, other, incoming):
                        count += pods_counted(c, other, incoming)
            total += count * math.log(size + 2) + (c.max_skew - 1)
        raw[info.name] = math.floor(total + 0.5)
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    found = dict.fromkeys(among, 0)
    for name, score in raw.items():
        found[name] = int(Fraction(100 * (highest + lowest - score), highest)) if highest else 100
    return found


@given(clusters(), incoming_pods(soft=True), st.data())
def test_the_score_agrees_with_its_description(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject
) -> None:
    cluster = Cluster(*objects)
    names = [n.name for n in cluster.nodes]
    among = [name for name in names if data.draw(st.booleans())] or names

    found = scored(cluster.plugin(PodTopologySpread), cluster, incoming, among)

    assert found == naive_scores(cluster, incoming.build(), among)


def test_two_soft_constraints_on_one_key_both_count() -> None:
    objects = hosts(2, 1, 0, zone_of={0: "a", 1: "b", 2: "c"})
    once = WEB.spread(ZONE, soft=True)

    found = scores(objects, once.spread(ZONE, "app=none", soft=True, max_skew=9))

    assert found is not None
    assert scores(objects, once) == {"n0": 0, "n1": 33, "n2": 100}
    # The second adds eight to every node, and so flattens the differences of the first.
    assert found == {"n0": 72, "n1": 81, "n2": 100}


def test_constraints_over_racks_and_zones_weigh_by_the_number_of_domains() -> None:
    objects: list[Object] = [
        node(f"n{i}").label({ZONE: "ab"[i % 2], RACK: f"r{i}"}).build() for i in range(6)
    ]
    objects.append(WEB.named("w").on("n0").build())

    found = scores(objects, WEB.spread(ZONE, soft=True).spread(RACK, soft=True))

    # ln(2+2) for the zone, ln(6+2) for the rack: 3 in all for n0, 1 for its zone, 0 elsewhere.
    assert found == {"n0": 0, "n1": 100, "n2": 66, "n3": 100, "n4": 66, "n5": 100}
