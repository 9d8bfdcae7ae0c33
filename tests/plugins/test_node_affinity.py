"""NodeAffinity: selector, required and preferred terms, the profile's own affinity, and what wakes a rejected pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    NodeAffinity as Affinity,
)
from tidelog.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from tidelog.api.selectors import SelectorError
from tidelog.framework.events import Action, ClusterEvent, Hint, Resource
from tidelog.framework.interface import SKIP, Code, CycleState, Status, unresolvable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.node_affinity import NodeAffinity, NodeAffinityArgs, _Preferred
from tidelog.testing.builders import ZONE, NodeBuilder, PodBuilder, node, pod

REJECTED = unresolvable("node(s) didn't match Pod's node affinity/selector")
ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT = unresolvable("pod affinity terms conflict")
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
SSD = node("n").label(disk="ssd", zone="a")


def added(*terms: str) -> NodeAffinityArgs:
    """The arguments of a profile that adds an affinity with these required terms."""
    affinity = pod("x").node_affinity(*terms).build().spec.affinity
    assert affinity is not None
    return NodeAffinityArgs(added_affinity=affinity.node_affinity)


def with_required(builder: PodBuilder, *terms: NodeSelectorTerm) -> PodBuilder:
    """With terms that no text can say."""
    affinity = builder.node_affinity("x").build().spec.affinity
    assert affinity is not None
    required = Affinity(required=NodeSelector(node_selector_terms=terms))
    return replace(builder, spec=replace(builder.spec, affinity=replace(affinity, node_affinity=required)))


@pytest.mark.parametrize(
    ("wanting", "accepted"),
    [
        (pod("p").node_selector(disk="ssd"), True),
        (pod("p").node_selector(disk="ssd", zone="b"), False),
        (pod("p").node_affinity("disk=ssd"), True),
        (pod("p").node_affinity("disk=hdd"), False),
        (pod("p").node_affinity("disk=hdd", "zone=a"), True),
        (pod("p").node_affinity("disk=ssd,zone=b"), False),
        (pod("p").node_affinity("gpu!=yes"), True),
        (pod("p").node_affinity("!gpu"), True),
        (pod("p").node_affinity("gpu"), False),
        (pod("p").node_affinity("cores>3"), True),
        (pod("p").node_affinity("cores>4"), False),
        (pod("p").node_affinity("disk>4"), False),
        (pod("p").node_affinity("metadata.name=n"), True),
        (pod("p").node_affinity("metadata.name=n,disk=hdd"), False),
        (pod("p").node_selector(disk="hdd").node_affinity("zone=a"), False),
        (with_required(pod("p"), NodeSelectorTerm()), False),
        (with_required(pod("p")), False),
    ],
)
def test_selector_and_required_terms(bench: Any, wanting: PodBuilder, accepted: bool) -> None:
    found = bench(NodeAffinity).verdict(wanting, SSD.label(cores="4"))

    # A name that no node has leaves none to be asked, so it is the set of names that rejects.
    assert (found is None) is accepted
    assert found is None or found.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_rejection_says_why(bench: Any) -> None:
    assert bench(NodeAffinity).verdict(pod("p").node_selector(disk="hdd"), SSD) == REJECTED


def test_term_that_does_not_parse_matches_nothing_and_the_others_still_may(bench: Any) -> None:
    broken = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="disk", operator="Like"),))
    good = NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key="disk", operator="In", values=("ssd",)),)
    )
    affinity = bench(NodeAffinity)

    assert affinity.verdict(with_required(pod("p"), broken), SSD) == REJECTED
    assert affinity.verdict(with_required(pod("p"), broken, good), SSD) is None


def test_pod_without_wishes_is_not_asked(bench: Any) -> None:
    affinity = bench(NodeAffinity)

    assert affinity.pre_filter(pod("p"), SSD) == SKIP
    assert affinity.scores(pod("p"), SSD) == SKIP


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (("metadata.name=a",), frozenset("a")),
        (("metadata.name=a", "metadata.name=b,disk=ssd"), frozenset("ab")),
        (("metadata.name=a", "disk=ssd"), None),
        (("metadata.name!=a",), None),
        (("metadata.name=a,metadata.name=b",), CONFLICT),
        (("metadata.name=a,metadata.name=b", "metadata.name=c"), frozenset("c")),
    ],
)
def test_pinned_names_narrow_the_nodes_if_every_term_pins_one(bench: Any, terms: Any, expected: Any) -> None:
    assert bench(NodeAffinity).pre_filter(pod("p").node_affinity(*terms), SSD) == expected


def test_preferred_terms_add_up_and_are_scaled_to_the_best(bench: Any) -> None:
    wanting = pod("p").prefer_node(30, "disk=ssd").prefer_node(10, "zone=a").prefer_node(0, "zone=b")
    nodes = [SSD, node("half").label(disk="ssd"), node("zone").label(zone="a"), node("b").label(zone="b")]

    assert bench(NodeAffinity).scores(wanting, *nodes) == [100, 75, 25, 0]


def test_empty_preference_matches_nothing(bench: Any) -> None:
    assert bench(NodeAffinity).scores(pod("p").prefer_node(5, ""), SSD, node("m")) == [0, 0]


def test_preference_that_does_not_parse_is_an_error(bench: Any) -> None:
    affinity = pod("p").prefer_node(5, "a").build().spec.affinity
    assert affinity is not None
    broken = PreferredSchedulingTerm(
        weight=1,
        preference=NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="a", operator="Like"),)),
    )
    wanting = pod("p")
    wanting = replace(
        wanting,
        spec=replace(wanting.spec, affinity=replace(affinity, node_affinity=Affinity(preferred=(broken,)))),
    )

    found = bench(NodeAffinity).scores(wanting, SSD)

    assert isinstance(found, Status)
    assert found.code is Code.ERROR


# --- the profile's own affinity -------------------------------------------------------------------------------------------------


def test_added_affinity_applies_to_every_pod_and_comes_first(bench: Any) -> None:
    enforced = bench(NodeAffinity, added("zone=a"))

    assert enforced.verdict(pod("p"), SSD) is None
    assert enforced.verdict(pod("p"), node("m").label(zone="b")) == ENFORCED
    assert enforced.verdict(pod("p").node_selector(disk="hdd"), node("m").label(zone="b")) == ENFORCED
    assert enforced.verdict(pod("p").node_selector(disk="hdd"), SSD) == REJECTED


def test_added_preferences_count_beside_the_pods(bench: Any) -> None:
    affinity = pod("x").prefer_node(10, "zone=a").build().spec.affinity
    assert affinity is not None
    scorer = bench(NodeAffinity, NodeAffinityArgs(added_affinity=affinity.node_affinity))

    assert scorer.scores(pod("p"), SSD, node("m")) == [100, 0]
    assert scorer.scores(pod("p").prefer_node(10, "disk=hdd"), SSD, node("m").label(disk="hdd")) == [100, 100]


def test_arguments_with_a_broken_term_are_refused_with_their_path() -> None:
    required = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="a", operator="In"),)),
            NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="Gt"),)),
        )
    )
    args = NodeAffinityArgs(added_affinity=Affinity(required=required))

    errors = NodeAffinity.validate_args(args, "args", FeatureGates())

    terms = "args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    assert [error.path for error in errors] == [
        f"{terms}[0].matchExpressions[0]",
        f"{terms}[1].matchFields[0]",
    ]


def test_added_affinity_without_terms_is_refused() -> None:
    args = NodeAffinityArgs(added_affinity=Affinity(required=NodeSelector()))

    (error,) = NodeAffinity.validate_args(args, "args", FeatureGates())

    assert error.kind == "Required"


def test_arguments_read_as_the_file_spells_them() -> None:
    text = (
        '{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}'
    )

    args = msgspec.json.decode(text, type=NodeAffinityArgs)

    assert args.added_affinity == Affinity(required=NodeSelector(node_selector_terms=(NodeSelectorTerm(),)))


# --- hints ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "old", "new", "expected"),
    [
        (NODE_ADD, None, SSD, Hint.QUEUE),
        (NODE_ADD, None, node("n"), Hint.SKIP),
        (NODE_LABEL, node("n"), SSD, Hint.QUEUE),
        (NODE_LABEL, SSD.label(zone="b"), SSD, Hint.SKIP),
        (NODE_LABEL, SSD, node("n"), Hint.SKIP),
        (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), node("n"), SSD, None),
    ],
)
def test_only_a_node_that_begins_to_match_wakes(
    bench: Any, event: ClusterEvent, old: NodeBuilder, new: NodeBuilder, expected: Hint
) -> None:
    assert bench(NodeAffinity).hint(event, pod("p").node_selector(disk="ssd"), old, new) is expected


def test_node_that_begins_to_match_the_added_affinity_wakes(bench: Any) -> None:
    """Gap G4: kube-scheduler looks at the pod's own part only, which matched all along."""
    old, new = node("n").label(disk="ssd"), SSD
    wanting = pod("p").node_selector(disk="ssd")

    assert bench(NodeAffinity, added("zone=a")).hint(NODE_LABEL, wanting, old, new) is Hint.QUEUE
    assert (
        bench(NodeAffinity, added("zone=a"), upstream=True).hint(NODE_LABEL, wanting, old, new) is Hint.SKIP
    )


def test_node_outside_the_added_affinity_wakes_nobody(bench: Any) -> None:
    enforced = bench(NodeAffinity, added("zone=b"))

    assert enforced.hint(NODE_ADD, pod("p").node_selector(disk="ssd"), None, SSD) is Hint.SKIP


def test_hint_about_a_term_that_does_not_parse_is_an_error(bench: Any) -> None:
    """The queue takes an error for Queue."""
    broken = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="disk", operator="Like"),))

    with pytest.raises(SelectorError):
        bench(NodeAffinity).hint(NODE_ADD, with_required(pod("p"), broken), None, SSD)


# --- many preferred terms -------------------------------------------------------------------------------------------------


def test_nodes_that_agree_in_the_labels_that_many_terms_ask_for_are_scored_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []
    sum_of = _Preferred._sum

    def note(terms: _Preferred, node: NodeInfo) -> int:
        scored.append(node.name)
        return sum_of(terms, node)

    monkeypatch.setattr(_Preferred, "_sum", note)
    nodes = [
        NodeInfo(node(f"n{i}").label({ZONE: "abc"[i % 3], "disk": "ssd" if i % 2 else "hdd"}).build())
        for i in range(60)
    ]
    like = pod("web")
    for number, zone in enumerate("abcd"):
        like = like.prefer_node(10 + number, f"{ZONE}={zone}").prefer_node(1 + number, f"rack=r{number}")
    web, plugin, state = PodInfo(like.build()), bench(NodeAffinity).plugin, CycleState()

    assert plugin.pre_score(state, web, nodes) is None
    found = [plugin.score(state, web, one) for one in nodes]

    assert found == [10 + i % 3 for i in range(60)]
    assert scored == ["n0", "n1", "n2"]
