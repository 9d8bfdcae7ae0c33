"""InterPodAffinity: filter, score and hooks by rule and against an independent model, and what wakes rejected pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.thorough import cases
from tests.worlds.domains import (
    HOST,
    NAMESPACES,
    RACK,
    ZONE,
    Cluster,
    apply,
    changes,
    clusters,
    feasible,
    hint,
    labels,
    matches,
    opened,
    pods,
    prepared,
    says_queue,
    scored,
    terms,
    verdicts,
    with_term,
)
from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    Object,
    Pod,
    PodAffinityTerm,
)
from tidelog.api.selectors import SelectorError
from tidelog.framework.affinity_terms import FEW
from tidelog.framework.events import Action, ClusterEvent, Hint, Resource
from tidelog.framework.interface import SKIP as SKIPPED
from tidelog.framework.interface import Code, CycleState, Depends
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.inter_pod_affinity.counts import (
    REASON_AFFINITY,
    REASON_ANTI_AFFINITY,
    REASON_EXISTING_ANTI_AFFINITY,
    TALLIES_MAX,
    Incoming,
)
from tidelog.plugins.inter_pod_affinity.plugin import InterPodAffinity, InterPodAffinityArgs
from tidelog.testing.builders import NodeBuilder, PodBuilder, namespace, node, pod

QUEUE, SKIP = Hint.QUEUE, Hint.SKIP
WEB, DB = pod("web").label(app="web"), pod("db").label(app="db")
BROKEN = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))
EVERYWHERE = LabelSelector()
TEAMS = [namespace("default"), namespace("red", {"team": "red"}), namespace("blue", {"team": "blue"})]

THREE_ZONES = [node(f"node-{zone}").label({ZONE: zone}).build() for zone in "abc"]


def reasons(incoming: PodBuilder, *objects: Object | PodBuilder | NodeBuilder) -> dict[str, str | None]:
    """The verdict on node-a, node-b and node-c, each in a zone of its own, with these objects."""
    cluster = Cluster(*THREE_ZONES, *TEAMS, *objects)
    found = verdicts(cluster.plugin(InterPodAffinity), cluster, incoming)
    return {name: found[name] for name in ("node-a", "node-b", "node-c")}


def allowed(incoming: PodBuilder, *objects: Object | PodBuilder | NodeBuilder) -> str:
    """The zones of `reasons` that the pod may go to."""
    return "".join(name[-1] for name, reason in reasons(incoming, *objects).items() if reason is None)


# --- required affinity ----------------------------------------------------------------------------------------------------------


def test_affinity_binds_to_the_domains_with_a_matching_pod() -> None:
    assert allowed(WEB.pod_affinity(ZONE, "app=db"), DB.on("node-b")) == "b"


def test_terminating_pods_count() -> None:
    assert allowed(WEB.pod_affinity(ZONE, "app=db"), DB.terminating().on("node-b")) == "b"
    assert allowed(WEB.pod_anti_affinity(ZONE, "app=db"), DB.terminating().on("node-b")) == "ac"


def test_the_reasons_and_codes_are_kube_schedulers() -> None:
    cluster = Cluster(*THREE_ZONES, DB.pod_anti_affinity(ZONE, "app=web").on("node-a"))
    plugin = cluster.plugin(InterPodAffinity)

    def status(incoming: PodBuilder) -> Any:
        state, info, _ = prepared(plugin, cluster, incoming)
        return plugin.filter(state, info, cluster.node("node-a"))

    near, apart, unwanted = (
        status(WEB.pod_affinity(ZONE, "app=none")),
        status(WEB.pod_anti_affinity(ZONE, "app=db")),
        status(WEB),
    )
    unresolvable, resolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE
    assert (near.code, near.reasons) == (unresolvable, ("node(s) didn't match pod affinity rules",))
    assert (apart.code, apart.reasons) == (resolvable, ("node(s) didn't match pod anti-affinity rules",))
    assert unwanted.code is resolvable
    assert unwanted.reasons == ("node(s) didn't satisfy existing pods anti-affinity rules",)


def test_one_reason_a_node_in_the_order_of_the_rules() -> None:
    against = DB.pod_anti_affinity(ZONE, "app=web").on("node-a")
    everything = WEB.pod_affinity(ZONE, "app=none").pod_anti_affinity(ZONE, "app=db")

    assert reasons(everything, against)["node-a"] == REASON_AFFINITY
    assert reasons(WEB.pod_anti_affinity(ZONE, "app=db"), against)["node-a"] == REASON_ANTI_AFFINITY
    assert reasons(WEB, against)["node-a"] == REASON_EXISTING_ANTI_AFFINITY


def test_all_terms_must_be_met_by_one_pod() -> None:
    both = WEB.pod_affinity(ZONE, "app=db").pod_affinity(ZONE, "tier=back")

    assert allowed(both, DB.on("node-a"), pod("p").label(tier="back").on("node-a")) == ""
    assert allowed(both, DB.label(tier="back").on("node-a")) == "a"


def test_the_pairs_may_come_from_different_pods() -> None:
    """Each pair needs a pod that meets all terms, but not the same pod for each."""
    wide = node("wide").label({ZONE: "b", RACK: "r1"})
    here, there = DB.named("here").on("node-b"), DB.named("there").on("racked")
    cluster = Cluster(
        node("node-b").label({ZONE: "b"}), node("racked").label({RACK: "r1"}), wide, here, there
    )
    incoming = WEB.pod_affinity(ZONE, "app=db").pod_affinity(RACK, "app=db")

    assert feasible(cluster.plugin(InterPodAffinity), cluster, incoming) == ["wide"]


def test_a_node_must_have_the_key_of_every_affinity_term() -> None:
    incoming = WEB.pod_affinity(ZONE, "app=web").pod_affinity(RACK, "app=web")

    assert reasons(incoming) == dict.fromkeys(("node-a", "node-b", "node-c"), REASON_AFFINITY)


def test_the_first_of_its_kind_may_go_anywhere_that_has_the_keys() -> None:
    own = WEB.pod_affinity(ZONE, "app=web")

    assert allowed(own) == "abc"
    assert allowed(own, WEB.named("w").on("node-c")) == "c"
    assert allowed(WEB.pod_affinity(ZONE, "app=db")) == ""
    assert allowed(own.pod_affinity(HOST, "app=db")) == ""


def test_the_first_of_its_kind_must_meet_its_own_terms_in_its_own_namespace() -> None:
    assert allowed(WEB.pod_affinity(ZONE, "app=web", namespaces=("red",))) == ""
    assert allowed(WEB.namespace("red").pod_affinity(ZONE, "app=web", namespaces=("red",))) == "abc"
    selected = {"namespace_selector": "team=red"}
    assert allowed(WEB.namespace("red").pod_affinity(ZONE, "app=web", **selected)) == "abc"
    assert allowed(WEB.namespace("blue").pod_affinity(ZONE, "app=web", **selected)) == ""


def test_a_peer_on_a_node_without_the_key_does_not_make_a_domain() -> None:
    own = WEB.pod_affinity(ZONE, "app=web")

    assert allowed(own, node("bare"), WEB.named("w").on("bare")) == "abc"


# --- required anti-affinity ------------------------------------------------------------------------------------------------------


def test_anti_affinity_keeps_away_from_the_domains_with_a_matching_pod() -> None:
    assert allowed(WEB.pod_anti_affinity(ZONE, "app=db"), DB.on("node-b")) == "ac"


def test_each_anti_affinity_term_is_judged_on_its_own() -> None:
    either = WEB.pod_anti_affinity(ZONE, "app=db").pod_anti_affinity(ZONE, "tier=back")

    assert allowed(either, DB.on("node-a"), pod("p").label(tier="back").on("node-b")) == "c"


def test_a_node_without_the_key_violates_no_anti_affinity() -> None:
    incoming = WEB.pod_anti_affinity(RACK, "app=db")
    racked = node("racked").label({RACK: "r1"})

    assert allowed(incoming, racked, DB.on("racked")) == "abc"


def test_anti_affinity_of_others_works_both_ways() -> None:
    against = DB.pod_anti_affinity(ZONE, "app=web").on("node-b")

    assert allowed(WEB, against) == "ac"
    assert allowed(DB, against) == "abc"


def test_anti_affinity_of_others_holds_in_their_namespaces() -> None:
    own = DB.pod_anti_affinity(ZONE, "app=web").on("node-b")

    assert allowed(WEB.namespace("red"), own) == "abc"
    named = DB.pod_anti_affinity(ZONE, "app=web", namespaces=("red",)).on("node-b")
    assert allowed(WEB.namespace("red"), named) == "ac"
    assert allowed(WEB, named) == "abc"


@pytest.mark.parametrize(
    ("selector", "of", "expected"),
    [
        ("team=red", "red", "ac"),
        ("team=red", "blue", "abc"),
        ("team!=red", "blue", "ac"),
        ("team!=red", "unknown", "ac"),
        ("team=red", "unknown", "abc"),
        (EVERYWHERE, "unknown", "ac"),
    ],
)
def test_a_term_of_another_pod_sees_the_labels_of_the_incoming_pods_namespace(
    selector: Any, of: str, expected: str
) -> None:
    """An unknown namespace has no labels."""
    against = DB.pod_anti_affinity(ZONE, "app=web", namespace_selector=selector).on("node-b")

    assert allowed(WEB.namespace(of), against) == expected


@pytest.mark.parametrize(
    ("selector", "of", "expected"),
    [
        ("team=red", "red", "ac"),
        ("team=red", "blue", "abc"),
        ("team!=red", "blue", "ac"),
        ("team!=red", "unknown", "abc"),
        (EVERYWHERE, "unknown", "ac"),
    ],
)
def test_a_term_of_the_incoming_pod_selects_only_namespaces_that_exist(
    selector: Any, of: str, expected: str
) -> None:
    incoming = WEB.pod_anti_affinity(ZONE, "app=db", namespace_selector=selector)

    assert allowed(incoming, DB.namespace(of).on("node-b")) == expected


def test_an_absent_selector_selects_no_pod_and_an_empty_one_all() -> None:
    assert allowed(WEB.pod_anti_affinity(ZONE, None), DB.on("node-b")) == "abc"
    assert allowed(WEB.pod_anti_affinity(ZONE, LabelSelector()), DB.on("node-b")) == "ac"


# --- skipping and errors ---------------------------------------------------------------------------------------------------------


def pre_filter(incoming: PodBuilder, *objects: Object | PodBuilder | NodeBuilder) -> Any:
    cluster = Cluster(*THREE_ZONES, *objects)
    plugin = cluster.plugin(InterPodAffinity)
    return plugin.pre_filter(CycleState(), PodInfo(incoming.build()), cluster.nodes).status


def of(incoming: PodBuilder) -> Incoming:
    cluster = Cluster(*THREE_ZONES, *TEAMS)
    return Incoming(PodInfo(incoming.build()), cluster.plugin(InterPodAffinity).handle.listers)


def test_many_terms_are_asked_once_about_pods_with_the_same_labels() -> None:
    choosy = WEB
    for n in range(3 * FEW):
        choosy = choosy.pod_anti_affinity(ZONE if n % 3 else RACK, f"app!=x{n}")
    incoming = of(choosy)
    mine = incoming.pod.terms.anti_affinity

    def tally(builder: PodBuilder) -> dict[str, int]:
        return dict(incoming.tally(mine, PodInfo(builder.build())))

    assert tally(pod("a").label(app="db")) == {RACK: FEW, ZONE: 2 * FEW}
    assert tally(pod("b").label(app="db")) == {RACK: FEW, ZONE: 2 * FEW}
    assert tally(pod("c").label(app="x0")) == {RACK: FEW - 1, ZONE: 2 * FEW}
    assert tally(pod("d").label(app="db").namespace("blue")) == {}
    assert len(incoming._tallies) == 3


def test_of_pods_that_all_have_labels_of_their_own_only_so_many_are_remembered() -> None:
    choosy = WEB
    for n in range(FEW + 1):
        choosy = choosy.pod_affinity(ZONE, f"team!=x{n}")
    incoming = of(choosy)

    for n in range(TALLIES_MAX + 2):
        other = PodInfo(pod("other").label(name=str(n)).build())
        assert incoming.meets_all(incoming.pod.terms.affinity, other)

    assert len(incoming._tallies) == TALLIES_MAX


def test_a_pod_is_skipped_when_nobody_requires_anything() -> None:
    against = DB.pod_anti_affinity(ZONE, "app=web").on("node-a")

    assert pre_filter(WEB, DB.on("node-a")) is SKIPPED
    assert pre_filter(WEB.prefer_pod_affinity(1, ZONE, "app=db"), DB.on("node-a")) is SKIPPED
    assert pre_filter(DB, against) is SKIPPED
    assert pre_filter(WEB, against) is None
    assert pre_filter(WEB.pod_anti_affinity(ZONE, "app=db")) is None


def test_a_nodes_missing_key_makes_anti_affinity_of_its_pods_void() -> None:
    assert pre_filter(WEB, DB.pod_anti_affinity(RACK, "app=web").on("node-a")) is SKIPPED


def test_a_pod_whose_terms_do_not_parse_is_rejected() -> None:
    status = pre_filter(WEB.prefer_pod_affinity(1, ZONE, BROKEN))

    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message.startswith("parsing pod: ")


def test_broken_terms_of_another_pod_are_void_and_its_others_are_not() -> None:
    broken = DB.pod_anti_affinity(ZONE, BROKEN).pod_anti_affinity(ZONE, "app=web").on("node-a")
    sound = DB.named("sound").pod_affinity(ZONE, BROKEN).pod_anti_affinity(ZONE, "app=web").on("node-b")

    assert allowed(WEB, broken) == "abc"
    assert allowed(WEB, sound) == "ac"


# --- hooks -----------------------------------------------------------------------------------------------------------------------


def test_removing_the_last_peer_lets_the_pod_start_anew() -> None:
    peer = WEB.on("node-c").build()
    cluster = Cluster(*THREE_ZONES, peer)
    plugin = cluster.plugin(InterPodAffinity)
    state, info, _ = prepared(plugin, cluster, WEB.named("new").pod_affinity(ZONE, "app=web"))
    assert plugin.filter(state, info, cluster.node("node-a")) is not None

    plugin.remove_pod(state, info, PodInfo(peer), cluster.node("node-c"))

    assert plugin.filter(state, info, cluster.node("node-a")) is None


def test_a_nominated_pod_against_the_incoming_one_is_noticed_only_if_somebody_else_requires_something() -> (
    None
):
    """The plugin skipped; nobody calls its hooks and its filter then (PLUGINS.md §5, "Nominated pods")."""
    cluster = Cluster(*THREE_ZONES)
    plugin = cluster.plugin(InterPodAffinity)
    state, info, asked = prepared(plugin, cluster, WEB)
    nominated = PodInfo(DB.pod_anti_affinity(ZONE, "app=web").build())

    assert not asked
    assert plugin.add_pod(state, info, nominated, cluster.nodes[0]) is None
    assert plugin.filter(state, info, cluster.nodes[0]) is None


@st.composite
def incoming_pods(draw: st.DrawFn, kinds: tuple[str, ...]) -> PodBuilder:
    """A pod of namespace n1 with up to three terms of these kinds."""
    built = pod("incoming", namespace=draw(st.sampled_from(["n1", "n1", "unknown"]))).label(draw(labels))
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3)):
        built = with_term(built, kind, draw(terms), draw(st.integers(1, 5)))
    return built


REQUIRED = ("pod_affinity", "pod_anti_affinity", "pod_anti_affinity")
PREFERRED = ("prefer_pod_affinity", "prefer_pod_anti_affinity", "pod_affinity")


def selects(term: PodAffinityTerm, owner: str, other: Pod, *, must_exist: bool) -> bool:
    """Whether the term of a pod in namespace `owner` is about the other pod."""
    there = other.metadata.namespace
    if not matches(term.label_selector, other.metadata.labels):
        return False
    if not term.namespaces and term.namespace_selector is None:
        return there == owner
    if there in term.namespaces or term.namespace_selector == LabelSelector():
        return True
    have = NAMESPACES.get(there)
    if have is None and must_exist:
        return False
    return matches(term.namespace_selector, have or {})


def required(incoming: Pod, kind: str) -> tuple[PodAffinityTerm, ...]:
    found = incoming.spec.affinity and getattr(incoming.spec.affinity, kind)
    return found.required if found else ()


def preferred(incoming: Pod, kind: str) -> list[tuple[int, PodAffinityTerm]]:
    found = incoming.spec.affinity and getattr(incoming.spec.affinity, kind)
    return [(t.weight, t.pod_affinity_term) for t in found.preferred] if found else []


def occupants(nodes: list[NodeInfo]) -> list[tuple[Pod, Mapping[str, str]]]:
    """Every pod with the labels of its node."""
    return [(p.pod, n.node.metadata.labels) for n in nodes for p in n.pods.values()]


def naive_verdicts(cluster: Cluster, incoming: Pod) -> dict[str, str | None]:
    """The filter, as its description reads, for each node from scratch."""
    owner = incoming.metadata.namespace
    near, apart = required(incoming, "pod_affinity"), required(incoming, "pod_anti_affinity")
    everybody = occupants(cluster.nodes)
    peers = [at for p, at in everybody if near and all(selects(t, owner, p, must_exist=True) for t in near)]
    somewhere = any(t.topology_key in at for at in peers for t in near)
    own = all(selects(t, owner, incoming, must_exist=True) for t in near)
    found: dict[str, str | None] = {}
    for info in cluster.nodes:
        here = info.node.metadata.labels

        def shared(key: str, at: Mapping[str, str], here: Mapping[str, str] = here) -> bool:
            return key in here and key in at and here[key] == at[key]

        keyed = all(t.topology_key in here for t in near)
        met = all(any(shared(t.topology_key, at) for at in peers) for t in near)
        if not keyed or not (met or (own and not somewhere)):
            found[info.name] = REASON_AFFINITY
        elif any(
            shared(t.topology_key, at) and selects(t, owner, p, must_exist=True)
            for t in apart
            for p, at in everybody
        ):
            found[info.name] = REASON_ANTI_AFFINITY
        elif any(
            shared(t.topology_key, at) and selects(t, p.metadata.namespace, incoming, must_exist=False)
            for p, at in everybody
            for t in required(p, "pod_anti_affinity")
        ):
            found[info.name] = REASON_EXISTING_ANTI_AFFINITY
        else:
            found[info.name] = None
    return found


@given(clusters(terms_max=2), incoming_pods(REQUIRED))
def test_the_filter_agrees_with_its_description(objects: list[Object], incoming: PodBuilder) -> None:
    cluster = Cluster(*objects)

    found = verdicts(cluster.plugin(InterPodAffinity), cluster, incoming)

    assert found == naive_verdicts(cluster, incoming.build())


@given(clusters(terms_max=2), incoming_pods(REQUIRED), st.data())
def test_hooks_keep_what_counting_anew_would_give(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject
) -> None:
    """Adding and removing pods in any order, on any nodes."""
    cluster = Cluster(*objects)
    plugin = cluster.plugin(InterPodAffinity)
    # A term that no node has the key for: the plugin does not skip, and nothing else changes.
    incoming = with_term(incoming, "pod_anti_affinity", PodAffinityTerm(topology_key="no-such-key"))
    state, info, asked = prepared(plugin, cluster, incoming)
    assert asked
    state = state.clone()
    here: list[Pod] = [o for o in objects if isinstance(o, Pod)]

    for i in range(data.draw(st.integers(1, 4))):
        if here and data.draw(st.booleans()):
            removed = here.pop(data.draw(st.integers(0, len(here) - 1)))
            plugin.remove_pod(state, info, PodInfo(removed), cluster.node(removed.spec.node_name))
            cluster.delete(removed)
        else:
            target = data.draw(st.sampled_from([n.name for n in cluster.nodes]))
            added = data.draw(pods(name=f"added{i}", terms_max=2)).on(target).build()
            plugin.add_pod(state, info, PodInfo(added), cluster.node(target))
            cluster.put(added)
            here.append(added)

    anew, _, _ = prepared(plugin, cluster, incoming)
    assert state.read("InterPodAffinity.filter") == anew.read("InterPodAffinity.filter")
    assert {n.name: plugin.filter(state, info, n) for n in cluster.nodes} == {
        n.name: plugin.filter(anew, info, n) for n in cluster.nodes
    }


@given(clusters(terms_max=2), incoming_pods(REQUIRED), st.data())
def test_hooks_are_inverses_and_a_clone_is_apart(
    objects: list[Object], incoming: PodBuilder, data: st.DataObject
) -> None:
    cluster = Cluster(*objects)
    plugin = cluster.plugin(InterPodAffinity)
    state, info, asked = prepared(plugin, cluster, incoming)
    if not asked:
        return
    before = state.read("InterPodAffinity.filter").clone()
    answers = [plugin.filter(state, info, n) for n in cluster.nodes]
    added = PodInfo(data.draw(pods(name="added", terms_max=2)).build())
    target = data.draw(st.sampled_from(cluster.nodes))

    trial = state.clone()
    plugin.add_pod(trial, info, added, target)
    assert state.read("InterPodAffinity.filter") == before

    for first, second in ((plugin.add_pod, plugin.remove_pod), (plugin.remove_pod, plugin.add_pod)):
        first(state, info, added, target)
        second(state, info, added, target)
    assert state.read("InterPodAffinity.filter") == before
    assert [plugin.filter(state, info, n) for n in cluster.nodes] == answers


# --- score -----------------------------------------------------------------------------------------------------------------------


def points(
    incoming: PodBuilder, *objects: Object | PodBuilder | NodeBuilder, **args: Any
) -> list[int] | None:
    """The scores of node-a, node-b and node-c, or None if the plugin skips."""
    cluster = Cluster(*THREE_ZONES, *TEAMS, *objects)
    among = ["node-a", "node-b", "node-c"]
    found = scored(cluster.plugin(InterPodAffinity, **args), cluster, incoming, among)
    return None if found is None else [found[name] for name in among]


def test_preferred_terms_pull_and_push() -> None:
    there = [DB.on("node-a"), DB.named("db2").on("node-b"), DB.named("db3").on("node-b")]

    assert points(WEB.prefer_pod_affinity(5, ZONE, "app=db"), *there) == [50, 100, 0]
    assert points(WEB.prefer_pod_anti_affinity(5, ZONE, "app=db"), *there) == [50, 0, 100]


def test_preferred_terms_of_others_work_both_ways() -> None:
    liking = DB.prefer_pod_affinity(10, ZONE, "app=web").on("node-a")
    loathing = DB.named("db2").prefer_pod_anti_affinity(10, ZONE, "app=web").on("node-b")

    assert points(WEB, liking, loathing) == [100, 0, 50]


def test_required_affinity_of_others_counts_with_its_weight() -> None:
    needing = DB.pod_affinity(ZONE, "app=web").on("node-a")
    liking = DB.named("db2").prefer_pod_affinity(4, ZONE, "app=web").on("node-b")

    assert points(WEB, needing, liking) == [25, 100, 0]
    assert points(WEB, needing, liking, hardPodAffinityWeight=100) == [100, 4, 0]
    assert points(WEB, needing, hardPodAffinityWeight=0) is None
    assert points(WEB, DB.pod_anti_affinity(ZONE, "app=web").on("node-a")) is None


def test_scores_are_truncated() -> None:
    there = [DB.on("node-a"), DB.named("db2").on("node-b"), DB.named("db3").on("node-b")]
    more = DB.named("db4").on("node-b")

    assert points(WEB.prefer_pod_affinity(1, ZONE, "app=db"), *there, more) == [33, 100, 0]


def test_weights_that_cancel_out_are_equal_scores_and_no_skip() -> None:
    both = WEB.prefer_pod_affinity(5, ZONE, "app=db").prefer_pod_anti_affinity(5, ZONE, "app=db")

    assert points(both, DB.on("node-a")) == [0, 0, 0]


@pytest.mark.parametrize(
    "there",
    [[], [DB.on("bare")], [WEB.named("w").on("node-a")], [DB.namespace("red").on("node-a")]],
    ids=["nobody", "on a node without the key", "no match", "in another namespace"],
)
def test_nothing_to_weigh_is_a_skip(there: list[PodBuilder]) -> None:
    assert points(WEB.prefer_pod_affinity(5, ZONE, "app=db"), node("bare"), *there) is None


def test_preferred_terms_of_others_can_be_ignored_for_pods_without_their_own() -> None:
    liking = DB.prefer_pod_affinity(10, ZONE, "app=web").on("node-a")
    args = {"ignorePreferredTermsOfExistingPods": True}

    assert points(WEB, liking, **args) is None
    assert points(WEB, liking) == [100, 0, 0]
    assert points(WEB.prefer_pod_affinity(1, ZONE, "app=none"), liking, **args) == [100, 0, 0]


def test_namespace_selectors_of_preferred_terms() -> None:
    red, blue = DB.namespace("red").on("node-a"), DB.namespace("blue").on("node-b")

    mine = WEB.prefer_pod_affinity(1, ZONE, "app=db", namespace_selector="team=red")
    assert points(mine, red, blue) == [100, 0, 0]
    theirs = red.prefer_pod_affinity(1, ZONE, "app=web", namespace_selector="team=blue")
    assert points(WEB.namespace("blue"), theirs) == [100, 0, 0]
    assert points(WEB, theirs) is None


def test_a_pod_whose_terms_do_not_parse_cannot_be_scored() -> None:
    cluster = Cluster(*THREE_ZONES)
    incoming = PodInfo(WEB.pod_affinity(ZONE, BROKEN).build())

    status = cluster.plugin(InterPodAffinity).pre_score(CycleState(), incoming, cluster.nodes)

    assert status.code is Code.ERROR


def naive_scores(cluster: Cluster, incoming: Pod) -> dict[str, int] | None:
    """The score, as its description reads, for each node from scratch."""
    owner = incoming.metadata.namespace
    raw: dict[str, int] = {}
    anything = False
    for info in cluster.nodes:
        here, total = info.node.metadata.labels, 0
        for other, at in occupants(cluster.nodes):
            weights = [(w, t, True) for w, t in preferred(incoming, "pod_affinity")]
            weights += [(-w, t, True) for w, t in preferred(incoming, "pod_anti_affinity")]
            weights += [(1, t, False) for t in required(other, "pod_affinity")]
            weights += [(w, t, False) for w, t in preferred(other, "pod_affinity")]
            weights += [(-w, t, False) for w, t in preferred(other, "pod_anti_affinity")]
            for weight, term, mine in weights:
                if mine:
                    about = selects(term, owner, other, must_exist=True)
                else:
                    about = selects(term, other.metadata.namespace, incoming, must_exist=False)
                if about and term.topology_key in at:
                    anything = True
                    if here.get(term.topology_key) == at[term.topology_key]:
                        total += weight
        raw[info.name] = total
    if not anything:
        return None
    lowest, highest = min(raw.values()), max(raw.values())
    if lowest == highest:
        return dict.fromkeys(raw, 0)
    return {name: int(100 * ((score - lowest) / (highest - lowest))) for name, score in raw.items()}


@given(clusters(terms_max=2), incoming_pods(PREFERRED))
def test_the_score_agrees_with_its_description(objects: list[Object], incoming: PodBuilder) -> None:
    cluster = Cluster(*objects)

    found = scored(cluster.plugin(InterPodAffinity), cluster, incoming)

    assert found == naive_scores(cluster, incoming.build())


# --- arguments and dependencies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "bad"), [(0, False), (100, False), (-1, True), (101, True)])
def test_the_hard_weight_is_a_percentage(weight: int, bad: bool) -> None:
    args = msgspec.convert({"hardPodAffinityWeight": weight}, InterPodAffinityArgs)

    found = InterPodAffinity.validate_args(args, "args", FeatureGates())

    assert [(e.path, e.kind, e.value) for e in found] == (
        [("args.hardPodAffinityWeight", "Invalid", weight)] if bad else []
    )


def test_declares_what_its_answers_depend_on() -> None:
    assert InterPodAffinity.filter_depends == Depends.NODE | Depends.DOMAINS
    assert InterPodAffinity.score_depends == Depends.NODE | Depends.DOMAINS


def unrelated(obj: Object) -> Object:
    """The object with other values in all that pod affinity says it does not read."""
    if isinstance(obj, Node):
        status = replace(obj.status, allocatable={"cpu": "0"}, capacity={})
        return replace(obj, status=status, spec=replace(obj.spec, unschedulable=True, taints=()))
    if isinstance(obj, Pod):
        main = obj.spec.containers[0]
        asking = replace(main, resources=replace(main.resources, requests={"cpu": "3"}))
        gone = replace(obj.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
        return replace(obj, metadata=gone, spec=replace(obj.spec, containers=(asking,), priority=9))
    return obj


@given(clusters(terms_max=2), incoming_pods((*REQUIRED, *PREFERRED)))
def test_nothing_else_changes_its_answers(objects: list[Object], incoming: PodBuilder) -> None:
    before, after = Cluster(*objects), Cluster(*map(unrelated, objects))
    plugin, again = before.plugin(InterPodAffinity), after.plugin(InterPodAffinity)

    assert verdicts(plugin, before, incoming) == verdicts(again, after, incoming)
    assert scored(plugin, before, incoming) == scored(again, after, incoming)


# --- hints -----------------------------------------------------------------------------------------------------------------------

ASSIGNED_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
ASSIGNED_LABEL = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
TARGET_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, Action.DELETE)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NAMESPACE_ADD = ClusterEvent(Resource.NAMESPACE, Action.ADD)
NAMESPACE_UPDATE = ClusterEvent(Resource.NAMESPACE, Action.UPDATE)
NAMESPACE_DELETE = ClusterEvent(Resource.NAMESPACE, Action.DELETE)

NEAR, APART = WEB.pod_affinity(ZONE, "app=db"), WEB.pod_anti_affinity(ZONE, "app=db")
Built = PodBuilder | NodeBuilder | Namespace | None


def said(waiting: PodBuilder, event: ClusterEvent, old: Built, new: Built, *, upstream: bool) -> Hint | None:
    plugin = Cluster(*TEAMS, upstream=upstream).plugin(InterPodAffinity)

    def built(obj: Built) -> Any:
        return obj.build() if isinstance(obj, PodBuilder | NodeBuilder) else obj

    return hint(plugin, waiting, event, built(old), built(new))


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize(
    ("waiting", "other", "comes", "goes"),
    [
        (NEAR, DB.on("n"), QUEUE, SKIP),
        (NEAR, DB.nominated("n"), QUEUE, SKIP),
        (NEAR, DB, SKIP, SKIP),
        (NEAR, DB.on("n").namespace("red"), SKIP, SKIP),
        (NEAR.pod_affinity(ZONE, "tier=back"), DB.on("n"), SKIP, SKIP),
        (APART, DB.on("n"), SKIP, QUEUE),
        (APART, DB, SKIP, SKIP),
        (APART.pod_anti_affinity(ZONE, "tier=back"), DB.on("n"), SKIP, QUEUE),
        (WEB, DB.pod_anti_affinity(ZONE, "app=web").on("n"), SKIP, QUEUE),
        (WEB, DB.pod_anti_affinity(ZONE, "app=other").on("n"), SKIP, SKIP),
    ],
)
def test_other_pods_that_come_and_go(
    waiting: PodBuilder, other: PodBuilder, comes: Hint, goes: Hint, upstream: bool
) -> None:
    assert said(waiting, ASSIGNED_ADD, None, other, upstream=upstream) is comes
    assert said(waiting, ASSIGNED_DELETE, other, None, upstream=upstream) is goes


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize(
    ("waiting", "before", "after", "expected"),
    [
        (NEAR, WEB, DB, QUEUE),
        (NEAR, DB, WEB, SKIP),
        (NEAR, DB, DB.label(tier="x"), SKIP),
        (APART, DB, WEB, QUEUE),
        (APART, WEB, DB, SKIP),
    ],
)
def test_other_pods_that_change_their_labels(
    waiting: PodBuilder, before: PodBuilder, after: PodBuilder, expected: Hint, upstream: bool
) -> None:
    old, new = before.named("p").on("n"), after.named("p").on("n")

    assert said(waiting, ASSIGNED_LABEL, old, new, upstream=upstream) is expected


@pytest.mark.parametrize("upstream", [True, False])
def test_own_labels_always_matter(upstream: bool) -> None:
    assert said(WEB, TARGET_LABEL, DB, WEB, upstream=upstream) is QUEUE


IN_A, IN_B = node("n").label({ZONE: "a"}), node("n").label({ZONE: "b"})


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize(
    ("waiting", "event", "old", "new", "expected"),
    [
        (NEAR, NODE_ADD, None, IN_A, QUEUE),
        (NEAR, NODE_ADD, None, node("n"), SKIP),
        (APART, NODE_ADD, None, IN_A, QUEUE),
        (APART, NODE_ADD, None, node("n"), QUEUE),
        (NEAR, NODE_LABEL, node("n"), IN_A, QUEUE),
        (NEAR, NODE_LABEL, IN_A, IN_B, QUEUE),
        (NEAR, NODE_LABEL, IN_A, IN_A.label(disk="ssd"), SKIP),
        (APART, NODE_LABEL, IN_A, node("n"), QUEUE),
        (APART, NODE_LABEL, IN_A, IN_B, QUEUE),
        (APART, NODE_LABEL, node("n"), IN_A, SKIP),
        (WEB, NODE_LABEL, node("n"), IN_A, SKIP),
    ],
)
def test_nodes_by_the_topology_keys_of_the_pods_own_terms(
    waiting: PodBuilder, event: ClusterEvent, old: Built, new: Built, expected: Hint, upstream: bool
) -> None:
    assert said(waiting, event, old, new, upstream=upstream) is expected


@pytest.mark.parametrize(("upstream", "expected"), [(True, SKIP), (False, QUEUE)])
@pytest.mark.parametrize(
    ("event", "old", "new"), [(NODE_ADD, None, IN_A), (NODE_LABEL, IN_A, IN_B), (NODE_LABEL, IN_A, node("n"))]
)
def test_nodes_that_leave_the_reach_of_others(
    event: ClusterEvent, old: Built, new: Built, upstream: bool, expected: Hint
) -> None:
    """Gap G1: a pod without terms of its own was rejected for the anti-affinity of others, whose keys no hint can know."""
    assert said(WEB, event, old, new, upstream=upstream) is expected


def test_a_node_that_is_deleted_takes_its_pods_out_of_the_count() -> None:
    assert said(WEB, NODE_DELETE, IN_A, None, upstream=False) is QUEUE
    assert said(WEB, NODE_DELETE, IN_A, None, upstream=True) is None


@pytest.mark.parametrize(
    ("selector", "of", "upstream", "expected"),
    [
        ("team=red", "red", True, SKIP),
        ("team=red", "red", False, QUEUE),
        ("team=red", "blue", False, SKIP),
        ("team=red", "unknown", False, SKIP),
        ("team!=red", "red", True, QUEUE),
        ("team!=red", "red", False, SKIP),
        ("team!=red", "unknown", False, SKIP),
        (EVERYWHERE, "unknown", True, QUEUE),
        (EVERYWHERE, "unknown", False, QUEUE),
    ],
)
def test_namespace_selectors_in_hints(selector: Any, of: str, upstream: bool, expected: Hint) -> None:
    """Gap G2: kube-scheduler asks a selector about no labels at all; we ask about those of the namespace."""
    scope = {"namespace_selector": selector}
    near, apart = WEB.pod_affinity(ZONE, "app=db", **scope), WEB.pod_anti_affinity(ZONE, "app=db", **scope)
    other = DB.namespace(of).on("n")

    assert said(near, ASSIGNED_ADD, None, other, upstream=upstream) is expected
    assert said(apart, ASSIGNED_DELETE, other, None, upstream=upstream) is expected


@pytest.mark.parametrize(
    ("selector", "of", "upstream", "expected"),
    [
        ("team=red", "red", True, SKIP),
        ("team=red", "red", False, QUEUE),
        ("team=red", "blue", False, SKIP),
        ("team!=red", "unknown", False, QUEUE),
    ],
)
def test_namespace_selectors_of_a_deleted_pod(selector: Any, of: str, upstream: bool, expected: Hint) -> None:
    against = DB.pod_anti_affinity(ZONE, "app=web", namespace_selector=selector).on("n")

    assert said(WEB.namespace(of), ASSIGNED_DELETE, against, None, upstream=upstream) is expected


@pytest.mark.parametrize(("upstream", "expected"), [(True, SKIP), (False, QUEUE)])
def test_the_last_peer_goes(upstream: bool, expected: Hint) -> None:
    """Gap G3: a pod with affinity to its own kind may start anew when the last of it is gone, or is another now."""
    waiting = WEB.named("waiting").pod_affinity(ZONE, "app=web")
    peer = WEB.on("n")

    assert said(waiting, ASSIGNED_DELETE, peer, None, upstream=upstream) is expected
    assert said(waiting, ASSIGNED_LABEL, peer, peer.label(app="other"), upstream=upstream) is expected
    assert said(NEAR, ASSIGNED_DELETE, DB.on("n"), None, upstream=upstream) is SKIP


@pytest.mark.parametrize(("upstream", "expected"), [(True, SKIP), (False, QUEUE)])
def test_a_pod_that_meets_fewer_anti_affinity_terms(upstream: bool, expected: Hint) -> None:
    """kube-scheduler waits until it meets none at all, though each term holds for its own domains."""
    waiting = WEB.pod_anti_affinity(ZONE, "app=db").pod_anti_affinity(HOST, "tier=back")
    old, new = DB.label(tier="back").on("n"), WEB.named("db").label(tier="back").on("n")

    assert said(waiting, ASSIGNED_LABEL, old, new, upstream=upstream) is expected


RED, BLUE = namespace("ns", {"team": "red"}), namespace("ns", {"team": "blue"})
SCOPE = {"namespace_selector": "team=red"}


@pytest.mark.parametrize(
    ("waiting", "event", "old", "new", "expected"),
    [
        (WEB.pod_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_UPDATE, BLUE, RED, QUEUE),
        (WEB.pod_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_UPDATE, RED, BLUE, SKIP),
        (WEB.pod_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_ADD, None, RED, QUEUE),
        (WEB.pod_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_ADD, None, BLUE, SKIP),
        (
            WEB.pod_affinity(ZONE, "app=db", **SCOPE).pod_affinity(ZONE, "app=db"),
            NAMESPACE_ADD,
            None,
            RED,
            SKIP,
        ),
        (
            WEB.namespace("red").pod_affinity(ZONE, "app=web", **SCOPE),
            NAMESPACE_UPDATE,
            RED,
            BLUE,
            QUEUE,
        ),
        (WEB.pod_anti_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_UPDATE, RED, BLUE, QUEUE),
        (WEB.pod_anti_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_UPDATE, BLUE, RED, SKIP),
        (WEB.pod_anti_affinity(ZONE, "app=db", **SCOPE), NAMESPACE_DELETE, RED, None, QUEUE),
        (WEB.pod_anti_affinity(ZONE, "app=db"), NAMESPACE_UPDATE, RED, BLUE, SKIP),
        (WEB, NAMESPACE_UPDATE, RED, BLUE, SKIP),
        (WEB.namespace("ns"), NAMESPACE_UPDATE, RED, BLUE, QUEUE),
        (WEB.namespace("ns"), NAMESPACE_UPDATE, RED, RED, SKIP),
        (WEB.namespace("ns"), NAMESPACE_DELETE, RED, None, QUEUE),
    ],
)
def test_namespaces_that_change(
    waiting: PodBuilder, event: ClusterEvent, old: Built, new: Built, expected: Hint
) -> None:
    """Gap G6: kube-scheduler has no such event."""
    assert said(waiting, event, old, new, upstream=False) is expected
    assert said(waiting, event, old, new, upstream=True) is None


@pytest.mark.parametrize("waiting", [WEB.pod_affinity(ZONE, BROKEN), WEB.pod_anti_affinity(ZONE, BROKEN)])
def test_a_selector_that_does_not_parse_raises_which_means_queue(waiting: PodBuilder) -> None:
    for event, old, new in ((ASSIGNED_ADD, None, DB.on("n")), (NODE_LABEL, IN_A, IN_B)):
        with pytest.raises(SelectorError):
            said(waiting, event, old, new, upstream=True)


@settings(max_examples=cases(150))
@given(clusters(terms_max=2), incoming_pods(REQUIRED), st.data())
def test_no_change_that_helps_is_slept_through(
    objects: list[Object], waiting: PodBuilder, data: st.DataObject
) -> None:
    before = Cluster(*objects)
    rejected = verdicts(before.plugin(InterPodAffinity), before, waiting)

    for _ in range(3):
        old, new = data.draw(changes(objects, terms_max=2))
        cluster = Cluster(*objects)
        plugin = cluster.plugin(InterPodAffinity)
        apply(cluster, old, new)
        if opened(rejected, verdicts(plugin, cluster, waiting)):
            assert says_queue(plugin, waiting.build(), old, new, upstream=False)
