"""PodTopologySpread as a whole: its arguments, what it depends on, and what wakes the pods that it rejected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.plugins.pod_topology_spread.test_filter import HARD_DEFAULT, WEB, incoming_pods, zones
from tests.thorough import cases
from tests.worlds.domains import (
    HOST,
    RACK,
    ZONE,
    Cluster,
    apply,
    changes,
    clusters,
    feasible,
    hint,
    labels,
    opened,
    prepared,
    says_queue,
    scored,
    verdicts,
)
from tidelog.api.features import FeatureGates
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement, Node, Object, Pod
from tidelog.api.selectors import SelectorError
from tidelog.framework.events import Action, ClusterEvent, Hint, Resource
from tidelog.framework.interface import Depends
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread, PodTopologySpreadArgs
from tidelog.testing.builders import NodeBuilder, PodBuilder, node, pod, service

QUEUE, SKIP = Hint.QUEUE, Hint.SKIP

# --- arguments ----------------------------------------------------------------------------------------------------------------


def errors(**args: Any) -> list[tuple[str, str]]:
    """(path, kind) of every broken rule."""
    decoded = msgspec.convert(args, PodTopologySpreadArgs)
    found = PodTopologySpread.validate_args(decoded, "args", FeatureGates())
    return [(error.path, error.kind) for error in found]


def listed(*constraints: dict[str, Any]) -> dict[str, Any]:
    return {"defaultingType": "List", "defaultConstraints": list(constraints)}


def changed(**fields: Any) -> dict[str, Any]:
    """A default constraint that is fine but for these fields."""
    return {**HARD_DEFAULT, **fields}


def test_good_arguments_break_no_rule() -> None:
    soft = changed(whenUnsatisfiable="ScheduleAnyway")

    assert errors() == []
    assert errors(**listed()) == []
    assert errors(**listed(HARD_DEFAULT, soft, changed(topologyKey=HOST, minDomains=2))) == []


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (changed(maxSkew=0), ("maxSkew", "Invalid")),
        (changed(topologyKey=""), ("topologyKey", "Required")),
        (changed(topologyKey="no key"), ("topologyKey", "Invalid")),
        (changed(whenUnsatisfiable=""), ("whenUnsatisfiable", "Required")),
        (changed(whenUnsatisfiable="Never"), ("whenUnsatisfiable", "NotSupported")),
        (changed(labelSelector={}), ("labelSelector", "Forbidden")),
        (changed(minDomains=0), ("minDomains", "Invalid")),
        (changed(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), ("minDomains", "Invalid")),
        (changed(nodeAffinityPolicy="Maybe"), ("nodeAffinityPolicy", "NotSupported")),
        (changed(nodeTaintsPolicy="Maybe"), ("nodeTaintsPolicy", "NotSupported")),
        (changed(matchLabelKeys=["rev"]), ("matchLabelKeys", "Forbidden")),
    ],
)
def test_a_bad_default_constraint_is_refused_with_its_path(
    constraint: dict[str, Any], expected: tuple[str, str]
) -> None:
    field, kind = expected

    assert errors(**listed(changed(topologyKey=RACK), constraint)) == [
        (f"args.defaultConstraints[1].{field}", kind)
    ]


def test_default_constraints_need_defaulting_type_list() -> None:
    assert errors(defaultConstraints=[HARD_DEFAULT]) == [("args.defaultConstraints", "Forbidden")]


def test_the_same_key_cannot_be_hard_twice() -> None:
    assert errors(**listed(HARD_DEFAULT, changed(maxSkew=3))) == [("args.defaultConstraints[1]", "Duplicate")]


def test_every_mistake_is_reported_at_once() -> None:
    assert len(errors(**listed(changed(maxSkew=-1, topologyKey="", whenUnsatisfiable="x")))) == 3


# --- dependencies -------------------------------------------------------------------------------------------------------------


def test_declares_what_its_answers_depend_on() -> None:
    assert PodTopologySpread.filter_depends == Depends.NODE | Depends.DOMAINS
    assert PodTopologySpread.score_depends == Depends.NODE | Depends.DOMAINS


def unrelated(obj: Object) -> Object:
    """The object with other values in all that topology spread says it does not read."""
    if isinstance(obj, Node):
        status = replace(obj.status, allocatable={"cpu": "0"}, capacity={})
        return replace(obj, status=status, spec=replace(obj.spec, unschedulable=True))
    if isinstance(obj, Pod):
        main = obj.spec.containers[0]
        asking = replace(main, resources=replace(main.resources, requests={"cpu": "3"}))
        spec = replace(obj.spec, containers=(asking,), priority=9, topology_spread_constraints=())
        return replace(obj, spec=spec)
    return obj


@given(clusters(), incoming_pods(), incoming_pods(soft=True))
def test_nothing_else_changes_its_answers(objects: list[Object], hard: PodBuilder, soft: PodBuilder) -> None:
    before, after = Cluster(*objects), Cluster(*map(unrelated, objects))
    plugin, again = before.plugin(PodTopologySpread), after.plugin(PodTopologySpread)

    assert verdicts(plugin, before, hard) == verdicts(again, after, hard)
    assert scored(plugin, before, soft) == scored(again, after, soft)


# --- hints --------------------------------------------------------------------------------------------------------------------

ASSIGNED_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
ASSIGNED_LABEL = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
ASSIGNED_TERMINATING = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_TERMINATING)
TARGET_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
TARGET_TOLERATION = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, Action.DELETE)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

Built = PodBuilder | NodeBuilder | None


def said(
    waiting: PodBuilder, event: ClusterEvent, old: Built, new: Built, *, upstream: bool = False, **args: Any
) -> Hint | None:
    cluster = Cluster(service("web", {"app": "web"}), upstream=upstream)
    plugin = cluster.plugin(PodTopologySpread, **args)
    return hint(plugin, waiting, event, old and old.build(), new and new.build())


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (WEB.on("n"), QUEUE),
        (WEB.nominated("n"), QUEUE),
        (WEB, SKIP),
        (WEB.on("n").namespace("elsewhere"), SKIP),
        (pod("db").label(app="db").on("n"), SKIP),
    ],
    ids=["bound", "nominated", "neither", "other namespace", "no match"],
)
def test_other_pods_that_come_and_go(other: PodBuilder, expected: Hint, upstream: bool) -> None:
    waiting = WEB.named("waiting").spread(ZONE)

    assert said(waiting, ASSIGNED_ADD, None, other, upstream=upstream) is expected
    assert said(waiting, ASSIGNED_DELETE, other, None, upstream=upstream) is expected


def test_one_matching_constraint_of_several_is_enough() -> None:
    waiting = WEB.spread(ZONE, "app=db").spread(HOST, "app=web")

    assert said(waiting, ASSIGNED_ADD, None, WEB.on("n")) is QUEUE


def test_a_pod_without_hard_constraints_is_not_woken_by_pods() -> None:
    assert said(WEB.spread(ZONE, soft=True), ASSIGNED_ADD, None, WEB.on("n")) is SKIP


@pytest.mark.parametrize(
    ("before", "after", "expected"), [("web", "db", QUEUE), ("db", "web", QUEUE), ("db", "other", SKIP)]
)
def test_other_pods_that_change_their_labels(before: str, after: str, expected: Hint) -> None:
    old, new = pod("p").label(app=before).on("n"), pod("p").label(app=after).on("n")

    assert said(WEB.spread(ZONE), ASSIGNED_LABEL, old, new) is expected


def test_a_pod_whose_deletion_begins_wakes_by_default_and_is_no_event_upstream() -> None:
    staying, going = WEB.on("n"), WEB.on("n").terminating()

    assert said(WEB.spread(ZONE), ASSIGNED_TERMINATING, staying, going) is QUEUE
    assert said(WEB.spread(ZONE), ASSIGNED_TERMINATING, staying, going, upstream=True) is None
    # An update of any other kind is not registered.
    plain = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)
    assert said(WEB.spread(ZONE), plain, staying, staying) is None


def test_the_end_of_a_deletion_wakes_as_well() -> None:
    """A pod that was only nominated is heard of at its end only."""
    assert said(WEB.spread(ZONE), ASSIGNED_DELETE, WEB.nominated("n").terminating(), None) is QUEUE


@pytest.mark.parametrize(("policy", "expected"), [("Honor", QUEUE), ("Ignore", SKIP), (None, SKIP)])
def test_own_tolerations_matter_where_taints_do(policy: str | None, expected: Hint) -> None:
    old = WEB.spread(ZONE, node_taints_policy=policy)
    new = old.tolerate("dedicated")

    assert said(new, TARGET_TOLERATION, old, new) is expected


def test_one_constraint_that_honors_taints_is_enough() -> None:
    old = WEB.spread(ZONE).spread(HOST, node_taints_policy="Honor")
    new = old.tolerate("dedicated")

    assert said(new, TARGET_TOLERATION, old, new) is QUEUE


def test_own_labels_matter_when_a_selector_matches_otherwise() -> None:
    old, new = (
        pod("p").label(app="db").spread(ZONE, "app=web"),
        pod("p").label(app="web").spread(ZONE, "app=web"),
    )

    assert said(new, TARGET_LABEL, old, new) is QUEUE
    assert said(old, TARGET_LABEL, old.label(tier="x"), old) is SKIP


@pytest.mark.parametrize(("upstream", "expected"), [(True, SKIP), (False, QUEUE)])
def test_own_labels_among_match_label_keys_change_whom_to_count(upstream: bool, expected: Hint) -> None:
    """Both versions match the new selector, which counts every revision now."""
    new = WEB.spread(ZONE, "app=web", match_label_keys=("rev",))
    old = new.label(rev="1")

    assert said(new, TARGET_LABEL, old, new, upstream=upstream) is expected


KEYS = node("n").label({ZONE: "a", RACK: "r1"})
BOTH = WEB.spread(ZONE).spread(RACK)


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize(
    ("event", "old", "new", "expected"),
    [
        (NODE_ADD, None, KEYS, QUEUE),
        (NODE_ADD, None, node("n").label({ZONE: "a"}), SKIP),
        (NODE_DELETE, KEYS, None, QUEUE),
        (NODE_DELETE, node("n").label({ZONE: "a"}), None, SKIP),
        (NODE_LABEL, node("n").label({ZONE: "a"}), KEYS, QUEUE),
        (NODE_LABEL, KEYS, node("n").label({ZONE: "a"}), QUEUE),
        (NODE_LABEL, KEYS, KEYS.label({RACK: "r2"}), QUEUE),
        (NODE_LABEL, KEYS, KEYS.label(disk="ssd"), SKIP),
        (NODE_LABEL, node("n"), node("n").label({ZONE: "a"}), SKIP),
        (NODE_TAINT, KEYS, KEYS.taint("x"), QUEUE),
        (NODE_TAINT, node("n"), node("n").taint("x"), SKIP),
    ],
)
def test_nodes_matter_when_they_have_all_keys(
    event: ClusterEvent, old: Built, new: Built, expected: Hint, upstream: bool
) -> None:
    assert said(BOTH, event, old, new, upstream=upstream) is expected


@pytest.mark.parametrize(("upstream", "expected"), [(True, SKIP), (False, QUEUE)])
def test_a_node_that_moves_out_of_the_node_selector_takes_its_domain_along(
    upstream: bool, expected: Hint
) -> None:
    """Gap G5: the topology labels are the same, the set of domains is not."""
    waiting = WEB.node_selector(disk="ssd").spread(ZONE)
    old, new = node("n").label({ZONE: "a", "disk": "ssd"}), node("n").label({ZONE: "a", "disk": "hdd"})

    assert said(waiting, NODE_LABEL, old, new, upstream=upstream) is expected
    ignoring = WEB.node_selector(disk="ssd").spread(ZONE, node_affinity_policy="Ignore")
    assert said(ignoring, NODE_LABEL, old, new, upstream=upstream) is SKIP


def test_hints_go_by_the_default_constraints_of_a_pod_without_its_own() -> None:
    args = {"defaultingType": "List", "defaultConstraints": [HARD_DEFAULT]}

    assert said(WEB, ASSIGNED_DELETE, WEB.on("n"), None, **args) is QUEUE
    assert said(WEB, ASSIGNED_DELETE, WEB.on("n"), None) is SKIP
    assert said(pod("stranger"), ASSIGNED_DELETE, pod("p").on("n"), None, **args) is SKIP


def test_a_selector_that_does_not_parse_raises_which_means_queue() -> None:
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))

    with pytest.raises(SelectorError):
        said(WEB.spread(ZONE, broken), NODE_ADD, None, KEYS)


@settings(max_examples=cases(120))
@given(clusters(), incoming_pods(), st.data())
def test_no_change_that_helps_is_slept_through(
    objects: list[Object], waiting: PodBuilder, data: st.DataObject
) -> None:
    before = Cluster(*objects)
    rejected = verdicts(before.plugin(PodTopologySpread), before, waiting)

    for _ in range(3):
        old, new = data.draw(changes(objects))
        cluster = Cluster(*objects)
        plugin = cluster.plugin(PodTopologySpread)
        apply(cluster, old, new)
        if opened(rejected, verdicts(plugin, cluster, waiting)):
            assert says_queue(plugin, waiting.build(), old, new, upstream=False)


@settings(max_examples=cases(120))
@given(clusters(), incoming_pods(), labels, st.booleans())
def test_no_change_of_its_own_that_helps_is_slept_through(
    objects: list[Object], waiting: PodBuilder, relabelled: dict[str, str], tolerates: bool
) -> None:
    cluster = Cluster(*objects)
    plugin = cluster.plugin(PodTopologySpread)
    old = waiting.build()
    new = replace(old, metadata=replace(old.metadata, labels=relabelled))
    if tolerates:
        more = pod("p").tolerate("spot").build().spec.tolerations
        new = replace(new, spec=replace(new.spec, tolerations=(*new.spec.tolerations, *more)))

    if opened(verdicts(plugin, cluster, old), verdicts(plugin, cluster, new)):
        assert says_queue(plugin, new, old, new, upstream=False)


# --- the decision ----------------------------------------------------------------------------------------------------------------


def test_whoever_asks_first_decides_for_the_whole_attempt() -> None:
    """Score goes by what PreFilter decided, though the owners have changed since."""
    cluster = Cluster(*zones(a=1, b=0), service("web", {"app": "web"}))
    args = {"topologyKey": ZONE, "maxSkew": 1}
    hard = {**args, "whenUnsatisfiable": "DoNotSchedule"}
    soft = {**args, "whenUnsatisfiable": "ScheduleAnyway"}
    plugin = cluster.plugin(PodTopologySpread, defaultingType="List", defaultConstraints=[hard, soft])

    assert feasible(plugin, cluster, WEB) == ["node-b"]
    state, info, _ = prepared(plugin, cluster, WEB)
    cluster.delete(service("web", {"app": "web"}))
    assert plugin.pre_score(state, info, cluster.nodes) is None
    assert feasible(plugin, cluster, WEB) == ["node-a", "node-b"]
