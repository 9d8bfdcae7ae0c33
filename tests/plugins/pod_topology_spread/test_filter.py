"""Hard spread constraints: what is counted, and who is let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.worlds.domains import (
    HOST,
    RACK,
    ZONE,
    Cluster,
    clusters,
    feasible,
    keys,
    labels,
    matches,
    pods,
    prepared,
    selectors,
    verdicts,
)
from tidelog.api.features import FeatureGates
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement, Object, Pod, TopologySpreadConstraint
from tidelog.framework.interface import SKIP, Code, CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.pod_topology_spread.filter import REASON, REASON_MISSING_LABEL
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.testing.builders import PodBuilder, node, pod, service

WEB = pod("web").label(app="web")


def zones(**counts: int) -> list[Object]:
    """A node in each zone, with so many web pods on it."""
    found: list[Object] = [node(f"node-{zone}").label({ZONE: zone}).build() for zone in counts]
    for zone, count in counts.items():
        found.extend(WEB.named(f"{zone}{i}").on(f"node-{zone}").build() for i in range(count))
    return found


def spread_verdicts(objects: list[Object], incoming: PodBuilder, **options: Any) -> dict[str, str | None]:
    cluster = Cluster(*objects, **options)
    return verdicts(cluster.plugin(PodTopologySpread), cluster, incoming)


def allowed(objects: list[Object], incoming: PodBuilder, **options: Any) -> list[str]:
    """The nodes that the plugin lets the pod on."""
    found = spread_verdicts(objects, incoming, **options)
    return [name for name, reason in found.items() if reason is None]


# --- the rule -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "max_skew", "expected"),
    [
        ({"a": 0, "b": 0}, 1, ["node-a", "node-b"]),
        ({"a": 1, "b": 0}, 1, ["node-b"]),
        ({"a": 1, "b": 1}, 1, ["node-a", "node-b"]),
        ({"a": 2, "b": 0}, 2, ["node-b"]),
        ({"a": 2, "b": 1, "c": 0}, 2, ["node-b", "node-c"]),
        ({"a": 3, "b": 1, "c": 0}, 4, ["node-a", "node-b", "node-c"]),
    ],
)
def test_a_domain_may_exceed_the_smallest_by_max_skew(
    counts: dict[str, int], max_skew: int, expected: list[str]
) -> None:
    assert allowed(zones(**counts), WEB.spread(ZONE, max_skew=max_skew)) == expected


def test_a_crowded_domain_is_resolvable_and_a_missing_label_is_not() -> None:
    cluster = Cluster(*zones(a=1, b=0), node("bare"))
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, WEB.spread(ZONE))

    crowded = plugin.filter(state, info, cluster.node("node-a"))
    bare = plugin.filter(state, info, cluster.node("bare"))

    assert (crowded.code, crowded.reasons) == (Code.UNSCHEDULABLE, (REASON,))
    assert (bare.code, bare.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_MISSING_LABEL,))


def test_reasons_are_kube_schedulers() -> None:
    assert REASON == "node(s) didn't match pod topology spread constraints"
    assert REASON_MISSING_LABEL == (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    )


def test_constraints_are_checked_in_order_and_the_first_failure_decides() -> None:
    objects = [*zones(a=1, b=0), node("bare").label({ZONE: "a"}).build()]

    found = spread_verdicts(objects, WEB.spread(ZONE).spread(RACK))

    # Nodes without a rack do not count for the zones either, so no zone is known and none is crowded.
    assert found == dict.fromkeys(("node-a", "node-b", "bare"), REASON_MISSING_LABEL)
    with_racks = [*(_racked(o) for o in zones(a=1, b=0)), node("bare").label({ZONE: "a"}).build()]
    assert spread_verdicts(with_racks, WEB.spread(ZONE).spread(RACK))["bare"] == REASON


def _racked(obj: Object) -> Object:
    if isinstance(obj, Pod):
        return obj
    return replace(obj, metadata=replace(obj.metadata, labels={**obj.metadata.labels, RACK: "r1"}))


def test_a_pod_that_does_not_match_its_own_selector_does_not_add_to_the_skew() -> None:
    assert allowed(zones(a=1, b=0), WEB.spread(ZONE, "app=web")) == ["node-b"]
    assert allowed(zones(a=1, b=0), pod("other").spread(ZONE, "app=web")) == ["node-a", "node-b"]


def test_an_unlabelled_value_is_an_ordinary_domain() -> None:
    objects = [*zones(a=1), node("empty").label({ZONE: ""}).build()]

    assert allowed(objects, WEB.spread(ZONE)) == ["empty"]


# --- which pods count -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (WEB, ["node-b"]),
        (WEB.namespace("elsewhere"), ["node-a", "node-b"]),
        (WEB.terminating(), ["node-a", "node-b"]),
        (pod("web").label(app="db"), ["node-a", "node-b"]),
        (WEB.phase("Succeeded"), ["node-a", "node-b"]),
    ],
    ids=["same", "other namespace", "terminating", "other labels", "finished"],
)
def test_pods_of_the_namespace_that_stay_and_match_count(other: PodBuilder, expected: list[str]) -> None:
    objects = [*zones(a=0, b=0), other.named("other").on("node-a").build()]

    assert allowed(objects, WEB.spread(ZONE)) == expected


@pytest.mark.parametrize("selector", [None, LabelSelector()], ids=["null", "empty"])
def test_null_and_empty_selectors_count_nobody(selector: LabelSelector | None) -> None:
    assert allowed(zones(a=5, b=0), WEB.spread(ZONE, selector)) == ["node-a", "node-b"]


def test_the_empty_selector_matches_the_pod_itself_and_the_null_one_does_not() -> None:
    # With a domain missing the minimum is 0, and the pod itself is the only one that can count.
    options = {"max_skew": 0, "min_domains": 3}

    assert allowed(zones(a=0, b=0), WEB.spread(ZONE, LabelSelector(), **options)) == []
    assert allowed(zones(a=0, b=0), WEB.spread(ZONE, None, **options)) == ["node-a", "node-b"]


def _revisions() -> list[Object]:
    old = [WEB.label(rev="1").named(f"old{i}").on("node-a").build() for i in range(2)]
    return [*zones(a=0, b=0), *old, WEB.label(rev="2").named("new").on("node-b").build()]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [((), ["node-b"]), (("rev",), ["node-a"]), (("absent",), ["node-b"]), (("absent", "rev"), ["node-a"])],
)
def test_match_label_keys_narrow_to_the_pods_own_values(keys: tuple[str, ...], expected: list[str]) -> None:
    incoming = WEB.label(rev="2").spread(ZONE, "app=web", match_label_keys=keys)

    assert allowed(_revisions(), incoming) == expected


def test_match_label_keys_do_not_wake_a_null_selector() -> None:
    incoming = WEB.label(rev="2").spread(ZONE, None, match_label_keys=("rev",))

    assert allowed(_revisions(), incoming) == ["node-a", "node-b"]


# --- which nodes count ------------------------------------------------------------------------------------------------------


def test_a_node_must_have_the_keys_of_all_hard_constraints_to_count() -> None:
    objects = [
        node("a1").label({ZONE: "a", RACK: "r1"}).build(),
        node("b1").label({ZONE: "b"}).build(),
        node("c1").label({ZONE: "c", RACK: "r1"}).build(),
        WEB.named("w").on("c1").build(),
    ]

    # Without the rack constraint the empty zone b would keep the pod from zone c.
    assert allowed(objects, WEB.spread(ZONE)) == ["a1", "b1"]
    assert allowed(objects, WEB.spread(ZONE).spread(RACK, max_skew=9)) == ["a1"]
    only_c = [o for o in objects if o.metadata.name != "a1"]
    assert allowed(only_c, WEB.spread(ZONE).spread(RACK, max_skew=9)) == ["c1"]


def test_soft_constraints_do_not_decide_which_nodes_count() -> None:
    assert allowed(zones(a=1, b=0), WEB.spread(ZONE).spread(RACK, soft=True)) == ["node-b"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(None, ["node-a", "node-b"]), ("Honor", ["node-a", "node-b"]), ("Ignore", ["node-b", "node-c"])],
)
def test_node_affinity_policy(policy: str | None, expected: list[str]) -> None:
    """Honor, the default, leaves out nodes that the pod cannot run on; then they hold the empty domain no more."""
    objects = [o if isinstance(o, Pod) else _on_disk(o) for o in zones(a=1, b=1, c=0)]
    objects.append(WEB.named("more").on("node-a").build())
    incoming = WEB.node_selector(disk="ssd").spread(ZONE, max_skew=2, node_affinity_policy=policy)

    found = spread_verdicts(objects, incoming)

    assert [name for name in expected if found[name] is None] == expected
    assert (found["node-a"] is None) == ("node-a" in expected)


def _on_disk(obj: Object) -> Object:
    disk = "hdd" if obj.metadata.name == "node-c" else "ssd"
    return replace(obj, metadata=replace(obj.metadata, labels={**obj.metadata.labels, "disk": disk}))


@pytest.mark.parametrize(
    ("policy", "expected"), [(None, ["node-b"]), ("Ignore", ["node-b"]), ("Honor", ["node-a", "node-b"])]
)
def test_node_taints_policy(policy: str | None, expected: list[str]) -> None:
    """Ignore, the default, counts nodes with taints that the pod does not tolerate."""
    tainted = node("node-b").label({ZONE: "b"}).taint("dedicated", "db")
    objects = [*zones(a=1), tainted.build()]

    assert allowed(objects, WEB.spread(ZONE, node_taints_policy=policy)) == expected
    tolerating = WEB.tolerate("dedicated").spread(ZONE, node_taints_policy=policy)
    assert allowed(objects, tolerating) == ["node-b"]


def test_only_taints_that_keep_pods_off_count_as_taints() -> None:
    objects = [*zones(a=1), node("b").label({ZONE: "b"}).taint("old", effect="PreferNoSchedule").build()]

    assert allowed(objects, WEB.spread(ZONE, node_taints_policy="Honor")) == ["b"]


def test_policies_are_each_constraints_own() -> None:
    objects = [
        node("a").label({ZONE: "a", "disk": "ssd"}).build(),
        node("b").label({ZONE: "b", "disk": "hdd"}).build(),
        WEB.named("w").on("a").build(),
    ]
    ssd = WEB.node_selector(disk="ssd")

    lenient = ssd.spread(ZONE, max_skew=2).spread(HOST, node_affinity_policy="Ignore", max_skew=1)
    assert spread_verdicts(objects, lenient)["a"] == REASON
    strict = ssd.spread(ZONE).spread(HOST)
    assert spread_verdicts(objects, strict)["a"] is None


def test_a_domain_that_is_not_counted_holds_nobody() -> None:
    objects = [*zones(a=1, b=0), node("c").label({ZONE: "c", "disk": "ssd"}).build()]
    crowd = [WEB.named(f"x{i}").on("c").build() for i in range(3)]
    incoming = WEB.node_affinity("disk!=ssd").spread(ZONE)

    assert spread_verdicts([*objects, *crowd], incoming)["c"] is None


# --- minDomains (more in tests/kep/test_kep_3022.py) ---------------------------------------------------------------------------


@pytest.mark.parametrize(("min_domains", "expected"), [(None, 3), (3, 3), (4, 0), (5, 0)])
def test_with_domains_missing_the_minimum_is_zero(min_domains: int | None, expected: int) -> None:
    incoming = WEB.spread(ZONE, max_skew=2, min_domains=min_domains)

    assert len(allowed(zones(a=2, b=2, c=2), incoming)) == expected


# --- which constraints apply ----------------------------------------------------------------------------------------------------


def test_a_pod_without_hard_constraints_is_skipped() -> None:
    cluster = Cluster(*zones(a=1, b=0))
    plugin = cluster.plugin(PodTopologySpread)

    for incoming in (WEB, WEB.spread(ZONE, soft=True)):
        result = plugin.pre_filter(CycleState(), PodInfo(incoming.build()), cluster.nodes)
        assert result.status is SKIP


def test_a_selector_that_does_not_parse_is_an_error() -> None:
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))
    cluster = Cluster(*zones(a=1, b=0))
    plugin = cluster.plugin(PodTopologySpread)

    result = plugin.pre_filter(CycleState(), PodInfo(WEB.spread(ZONE, broken).build()), cluster.nodes)

    assert result.status is not None
    assert result.status.code is Code.ERROR


HARD_DEFAULT = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        (WEB, ["node-b"]),
        (WEB.spread(HOST, "app=nothing"), ["node-a", "node-b"]),
        (WEB.spread(HOST, "app=nothing", soft=True), ["node-a", "node-b"]),
        (pod("stranger"), ["node-a", "node-b"]),
    ],
    ids=["none of its own", "hard of its own", "soft of its own", "no kin"],
)
def test_listed_defaults_apply_to_pods_without_constraints_that_have_kin(
    incoming: PodBuilder, expected: list[str]
) -> None:
    cluster = Cluster(*zones(a=1, b=0), service("web", {"app": "web"}))
    plugin = cluster.plugin(PodTopologySpread, defaultingType="List", defaultConstraints=[HARD_DEFAULT])

    assert feasible(plugin, cluster, incoming) == expected


def test_kin_must_match_the_selectors_of_services_and_owner_alike() -> None:
    from tidelog.testing.builders import replica_set

    labelled = WEB.label(rev="2")
    objects = [
        *zones(a=1, b=0),
        service("web", {"app": "web"}),
        replica_set("web-2", "rev=2"),
        labelled.named("peer").on("node-b").build(),
    ]
    cluster = Cluster(*objects)
    plugin = cluster.plugin(PodTopologySpread, defaultingType="List", defaultConstraints=[HARD_DEFAULT])

    assert feasible(plugin, cluster, labelled.owner("ReplicaSet", "web-2")) == ["node-a"]
    assert feasible(plugin, cluster, labelled) == ["node-a", "node-b"]


def test_the_system_defaults_filter_nothing() -> None:
    cluster = Cluster(*zones(a=9, b=0), service("web", {"app": "web"}))

    assert feasible(cluster.plugin(PodTopologySpread), cluster, WEB) == ["node-a", "node-b"]


# --- hooks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("upstream", "expected"), [(True, None), (False, REASON)])
def test_removing_a_terminating_pod_frees_nothing_that_it_did_not_take(
    upstream: bool, expected: str | None
) -> None:
    """kube-scheduler lowers a count in which the pod never was."""
    leaving = WEB.named("leaving").terminating().on("node-a").build()
    cluster = Cluster(*zones(a=1, b=0), leaving, upstream=upstream)
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, WEB.spread(ZONE))

    plugin.remove_pod(state, info, PodInfo(leaving), cluster.node("node-a"))

    status = plugin.filter(state, info, cluster.node("node-a"))
    assert (status and status.message) == expected


@pytest.mark.parametrize(("upstream", "expected"), [(True, REASON), (False, None)])
def test_adding_a_pod_counts_for_an_empty_selector_only_upstream(
    upstream: bool, expected: str | None
) -> None:
    cluster = Cluster(*zones(a=0, b=0), upstream=upstream)
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, WEB.spread(ZONE, LabelSelector()))

    plugin.add_pod(state, info, PodInfo(WEB.named("nominated").build()), cluster.node("node-a"))

    status = plugin.filter(state, info, cluster.node("node-a"))
    assert (status and status.message) == expected


def test_hooks_without_state_do_nothing() -> None:
    cluster = Cluster(*zones(a=0))
    plugin = cluster.plugin(PodTopologySpread)
    state, info = CycleState(), PodInfo(WEB.build())

    assert plugin.add_pod(state, info, info, cluster.nodes[0]) is None
    assert plugin.filter(state, info, cluster.nodes[0]) is None


@st.composite
def constraints(draw: st.DrawFn, soft: bool = False) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        topology_key=draw(keys),
        max_skew=draw(st.sampled_from([1, 1, 1, 2, 3])),
        when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
        label_selector=draw(selectors),
        min_domains=None if soft else draw(st.sampled_from([None, 1, 2, 3, 4])),
        node_affinity_policy=draw(st.sampled_from([None, "Honor", "Ignore"])),
        node_taints_policy=draw(st.sampled_from([None, "Honor", "Ignore"])),
        match_label_keys=draw(st.sampled_from([(), (), ("rev",), ("rev", "absent")])),
    )


@st.composite
def incoming_pods(draw: st.DrawFn, soft: bool = False) -> PodBuilder:
    """A pod with one to three constraints of one kind."""
    built = pod("incoming", namespace="n1").label(draw(labels))
    if draw(st.integers(0, 2)) == 2:
        built = built.node_selector(disk=draw(st.sampled_from(["ssd", "hdd"])))
    if draw(st.booleans()):
        built = built.tolerate("dedicated")
    number = draw(st.sampled_from([1, 1, 1, 2, 2, 3]))
    own = draw(st.lists(constraints(soft), min_size=number, max_size=number))
    return built._spec(topology_spread_constraints=tuple(own))


def selector_of(constraint: TopologySpreadConstraint, have: Mapping[str, str]) -> LabelSelector | None:
    """The constraint's selector with the values of its matchLabelKeys."""
    selector = constraint.label_selector
    if selector is None:
        return None
    more = {key: have[key] for key in constraint.match_label_keys if key in have}
    requirements = tuple(LabelSelectorRequirement(key=k, operator="In", values=(v,)) for k, v in more.items())
    return replace(selector, match_expressions=(*selector.match_expressions, *requirements))


def node_counts(constraint: TopologySpreadConstraint, info: Any, incoming: Pod) -> bool:
    """Whether the constraint's policies include the node."""
    node_labels = info.node.metadata.labels
    if constraint.node_affinity_policy != "Ignore":
        if any(node_labels.get(k) != v for k, v in incoming.spec.node_selector.items()):
            return False
    if constraint.node_taints_policy == "Honor":
        tolerated = {toleration.key for toleration in incoming.spec.tolerations}
        for taint in info.node.spec.taints:
            if taint.effect in ("NoSchedule", "NoExecute") and taint.key not in tolerated:
                return False
    return True


def pods_counted(constraint: TopologySpreadConstraint, info: Any, incoming: Pod) -> int:
    selector = selector_of(constraint, incoming.metadata.labels)
    if selector == LabelSelector():
        return 0
    count = 0
    for other in info.pods.values():
        gone = bool(other.pod.metadata.deletion_timestamp)
        same = other.pod.metadata.namespace == incoming.metadata.namespace
        if same and not gone and matches(selector, other.pod.metadata.labels):
            count += 1
    return count


def naive_verdicts(cluster: Cluster, incoming: Pod) -> dict[str, str | None]:
    """The filter, as its description reads."""
    hard = [c for c in incoming.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    counts: list[dict[str, int]] = []
    for constraint in hard:
        domains: dict[str, int] = {}
        for info in cluster.nodes:
            has = info.node.metadata.labels
            if all(c.topology_key in has for c in hard) and node_counts(constraint, info, incoming):
                domain = has[constraint.topology_key]
                domains[domain] = domains.get(domain, 0) + pods_counted(constraint, info, incoming)
        counts.append(domains)
    found: dict[str, str | None] = {}
    for info in cluster.nodes:
        found[info.name] = None
        for constraint, domains in zip(hard, counts, strict=True):
            domain = info.node.metadata.labels.get(constraint.topology_key)
            if domain is None:
                found[info.name] = REASON_MISSING_LABEL
                break
            enough = len(domains) >= (constraint.min_domains or 1)
            minimum = min(domains.values()) if enough else 0
            itself = matches(selector_of(constraint, incoming.metadata.labels), incoming.metadata.labels)
            if domains.get(domain, 0) + itself - minimum > constraint.max_skew:
                found[info.name] = REASON
                break
    return found


@given(clusters(), incoming_pods())
def test_the_filter_agrees_with_its_description(objects: list[Object], incoming: PodBuilder) -> None:
    cluster = Cluster(*objects)

    found = verdicts(cluster.plugin(PodTopologySpread), cluster, incoming)

    assert found == naive_verdicts(cluster, incoming.build())


@given(clusters(), incoming_pods(), st.data())
def test_hooks_keep_what_counting_anew_would_give(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject
) -> None:
    """Adding and removing pods in any order, on any nodes."""
    cluster = Cluster(*objects)
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, incoming)
    state = state.clone()
    here: list[Pod] = [o for o in objects if isinstance(o, Pod)]

    for i in range(data.draw(st.integers(1, 4))):
        if here and data.draw(st.booleans()):
            removed = here.pop(data.draw(st.integers(0, len(here) - 1)))
            plugin.remove_pod(state, info, PodInfo(removed), cluster.node(removed.spec.node_name))
            cluster.delete(removed)
        else:
            target = data.draw(st.sampled_from([n.name for n in cluster.nodes]))
            added = data.draw(pods(name=f"added{i}")).on(target).build()
            plugin.add_pod(state, info, PodInfo(added), cluster.node(target))
            cluster.put(added)
            here.append(added)

    anew, _, _ = prepared(plugin, cluster, incoming)
    assert state.read("PodTopologySpread.filter") == anew.read("PodTopologySpread.filter")
    assert {n.name: plugin.filter(state, info, n) for n in cluster.nodes} == {
        n.name: plugin.filter(anew, info, n) for n in cluster.nodes
    }


@given(clusters(), incoming_pods(), st.data(), st.booleans())
def test_hooks_are_inverses(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject, upstream: bool
) -> None:
    cluster = Cluster(*objects, upstream=upstream)
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, incoming)
    before = state.read("PodTopologySpread.filter").clone()
    answers = [plugin.filter(state, info, n) for n in cluster.nodes]
    added = PodInfo(data.draw(pods(name="added")).build())
    target = data.draw(st.sampled_from(cluster.nodes))

    for first, second in ((plugin.add_pod, plugin.remove_pod), (plugin.remove_pod, plugin.add_pod)):
        first(state, info, added, target)
        second(state, info, added, target)

    assert state.read("PodTopologySpread.filter") == before
    assert [plugin.filter(state, info, n) for n in cluster.nodes] == answers


@given(clusters(), incoming_pods(), st.data())
def test_trying_on_a_clone_leaves_the_state_alone(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject
) -> None:
    cluster = Cluster(*objects)
    plugin = cluster.plugin(PodTopologySpread)
    state, info, _ = prepared(plugin, cluster, incoming)
    answers = [plugin.filter(state, info, n) for n in cluster.nodes]

    trial = state.clone()
    plugin.add_pod(trial, info, PodInfo(data.draw(pods()).build()), data.draw(st.sampled_from(cluster.nodes)))

    assert [plugin.filter(state, info, n) for n in cluster.nodes] == answers


def test_the_gate_of_min_domains_can_be_off() -> None:
    off = FeatureGates(min_domains_in_pod_topology_spread=False)
    incoming = WEB.spread(ZONE, min_domains=3)

    assert allowed(zones(a=1, b=1), incoming) == []
    assert allowed(zones(a=1, b=1), incoming, gates=off) == ["node-a", "node-b"]
