"""KEP-3022, minDomains in Pod Topology Spread: each test holds one sentence of the proposal, quoted with its section."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates, parse_feature_gates
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import Object, Pod
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import SKIP, CycleState
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread, PodTopologySpreadArgs
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import HOSTNAME, ZONE, PodBuilder, node, pod, service

FOO = pod("p").label(foo="bar")
REASON = "node(s) didn't match pod topology spread constraints"
NOW = Stamp(seq=7, at=1_800_000_000_000_000_000)
OFF = FeatureGates(min_domains_in_pod_topology_spread=False)


class Cluster:
    """Nodes that pods can be placed on by nothing but topology spread."""

    def __init__(self, *objects: Object, gates: FeatureGates | None = None, **args: Any) -> None:
        self._cache, self._snapshot, listers = Cache(), Snapshot(), Listers()
        handle = FrameworkHandle(self._snapshot, listers, gates)
        self._plugin = PodTopologySpread(msgspec.convert(args, PodTopologySpreadArgs), handle)
        self._placed = 0
        for obj in objects:
            if isinstance(obj, Pod):
                self._cache.put_pod(PodInfo(obj))
            elif obj.metadata.namespace:
                listers.put(obj)
            else:
                self.add(obj)

    def add(self, joining: Any) -> None:
        """A node joins."""
        self._cache.put_node(joining)

    def allowed(self, incoming: PodBuilder) -> list[str]:
        """The nodes on which the pod may be scheduled."""
        return [name for name, reason in self.reasons(incoming).items() if reason is None]

    def reasons(self, incoming: PodBuilder) -> dict[str, str | None]:
        """Why not, for each node."""
        self._snapshot.refresh(self._cache)
        state, info = CycleState(), PodInfo(incoming.build())
        skips = self._plugin.pre_filter(state, info, self._snapshot.nodes).status is SKIP
        statuses = {
            n.name: None if skips else self._plugin.filter(state, info, n) for n in self._snapshot.nodes
        }
        return {name: status and status.message for name, status in statuses.items()}

    def scores(self, incoming: PodBuilder) -> list[int]:
        """Of all nodes, normalised."""
        self._snapshot.refresh(self._cache)
        state, info, nodes = CycleState(), PodInfo(incoming.build()), self._snapshot.nodes
        assert self._plugin.pre_score(state, info, nodes) is None
        raw = [self._plugin.score(state, info, n) for n in nodes]
        return self._plugin.normalize_scores(state, info, nodes, raw)

    def schedule(self, replica: PodBuilder, count: int) -> int:
        """Place so many replicas one after the other; how many found a node."""
        placed = 0
        for _ in range(count):
            nodes = self.allowed(replica)
            if nodes:
                self._placed += 1
                bound = replica.named(f"replica-{self._placed}").on(nodes[0]).build()
                self._cache.put_pod(PodInfo(bound))
                placed += 1
        return placed


def hosts(*counts: int) -> list[Object]:
    """A node for each count, with so many matching pods."""
    found: list[Object] = [node(f"node{i}").build() for i in range(len(counts))]
    found.extend(
        FOO.named(f"p{i}-{j}").on(f"node{i}").build() for i, count in enumerate(counts) for j in range(count)
    )
    return found


def zones(*counts: int) -> list[Object]:
    """A zone for each count, with one node."""
    found: list[Object] = [node(f"node{i}").label({ZONE: f"zone{i}"}).build() for i in range(len(counts))]
    found.extend(o for o in hosts(*counts) if isinstance(o, Pod))
    return found


# --- Summary --------------------------------------------------------------------------------------------------------------------


def test_min_domains_limits_the_minimum_number_of_domains() -> None:
    """Summary: "A new field `minDomains` is introduced to `PodSpec.TopologySpreadConstraint[*]` to limit the minimum number of
    topology domains."
    """
    cluster = Cluster(*hosts(1, 1))

    assert cluster.allowed(FOO.spread(HOSTNAME)) == ["node0", "node1"]
    assert cluster.allowed(FOO.spread(HOSTNAME, min_domains=3)) == []


@pytest.mark.parametrize("min_domains", [None, 1, 5])
def test_min_domains_is_nothing_to_a_soft_constraint(min_domains: int | None) -> None:
    """Summary: "`minDomains` can be used only when `whenUnsatisfiable=DoNotSchedule`."

    Non-Goals: "Users can use it as a best-efforts manner with `WhenUnsatisfiable=ScheduleAnyway`."

    Alternatives: "This `minDomains` in ScheduleAnyway is decided not to support".
    """
    cluster = Cluster(*hosts(2, 1, 0))
    soft = FOO.spread(HOSTNAME, soft=True, min_domains=min_domains)

    assert cluster.allowed(soft) == ["node0", "node1", "node2"]
    assert cluster.scores(soft) == Cluster(*hosts(2, 1, 0)).scores(FOO.spread(HOSTNAME, soft=True))


# --- Design Details ---------------------------------------------------------------------------------------------------------------


def test_the_global_minimum_is_taken_over_nodes_that_exist_and_match_the_node_affinity() -> None:
    """Design Details: "the global minimum is only calculated for the nodes that exist and match the node affinity. In other words,
    if a topology domain was scaled down to zero […], this topology domain is unknown to the scheduler, thus it's not
    considered in the global minimum calculations."
    """
    all_there, one_gone = zones(1, 1, 0), [o for o in zones(1, 1, 0) if o.metadata.name != "node2"]
    incoming = FOO.spread(ZONE)

    assert Cluster(*all_there).allowed(incoming) == ["node2"]
    assert Cluster(*one_gone).allowed(incoming) == ["node0", "node1"]
    elsewhere = incoming.node_affinity(f"{ZONE} in (zone0,zone1)")
    reasons = Cluster(*all_there).reasons(elsewhere)
    assert [reasons["node0"], reasons["node1"]] == [None, None]


def test_min_domains_helps_where_a_domain_was_scaled_down_to_zero() -> None:
    """Design Details: "The new `minDomains` field can help with this problem." """
    one_gone = [o for o in zones(1, 1, 0) if o.metadata.name != "node2"]

    assert Cluster(*one_gone).allowed(FOO.spread(ZONE, min_domains=3)) == []


@pytest.mark.parametrize(
    ("min_domains", "expected"),
    [(1, ["node2"]), (3, ["node2"]), (4, [])],
)
def test_with_fewer_domains_the_global_minimum_is_zero_otherwise_the_true_one(
    min_domains: int, expected: list[str]
) -> None:
    """Design Details: "When the number of domains with matching topology keys is less than `minDomains`, Pod Topology Spread treats
    "global minimum" as 0; otherwise, "global minimum" is equal to the minimum number of matching pods on a domain."
    """
    assert Cluster(*zones(3, 2, 1)).allowed(FOO.spread(ZONE, min_domains=min_domains)) == expected


@pytest.mark.parametrize(("counts", "expected"), [((0, 1, 2, 3), ["node0", "node1"]), ((2, 2, 3), [])])
def test_domains_with_max_skew_pods_or_more_get_none(counts: tuple[int, ...], expected: list[str]) -> None:
    """Design Details: "when the number of domains is less than `minDomains`, scheduler doesn't schedule a matching Pod to Nodes on the
    domains that have the same or more number of matching Pods as `maxSkew`."
    """
    incoming = FOO.spread(HOSTNAME, max_skew=2, min_domains=5)

    assert Cluster(*hosts(*counts)).allowed(incoming) == expected


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (1, 1), (3, 2, 1), ()])
def test_without_min_domains_it_is_as_if_it_were_one(counts: tuple[int, ...]) -> None:
    """Design Details: "`minDomains` is an optional parameter. If `minDomains` is nil, the constraint behaves as if MinDomains is
    equal to 1."
    """
    cluster = Cluster(*hosts(*counts))

    assert cluster.allowed(FOO.spread(HOSTNAME)) == cluster.allowed(FOO.spread(HOSTNAME, min_domains=1))


# --- API --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_domains", [1, 2, 3])
def test_with_domains_enough_the_value_has_no_effect(min_domains: int) -> None:
    """API: "when the number of eligible domains with matching topology keys equals or greater than minDomains, this value has no
    effect on scheduling."
    """
    cluster = Cluster(*hosts(2, 1, 1))

    assert cluster.allowed(FOO.spread(HOSTNAME, min_domains=min_domains)) == ["node1", "node2"]
    assert cluster.allowed(FOO.spread(HOSTNAME)) == ["node1", "node2"]


def test_domains_that_are_not_eligible_do_not_count_towards_min_domains() -> None:
    """API: "MinDomains indicates a minimum number of eligible domains." """
    tainted = node("tainted").taint("dedicated").build()
    cluster = Cluster(*hosts(1, 1), tainted, FOO.named("t").on("tainted").build())

    for policy, expected in (("Ignore", True), ("Honor", False)):
        incoming = FOO.spread(HOSTNAME, min_domains=3, node_taints_policy=policy)
        assert ("node0" in cluster.allowed(incoming)) is expected


def test_no_more_than_max_skew_pods_are_scheduled_to_the_domains_there_are() -> None:
    """API: "when the number of eligible domains is less than minDomains, scheduler won't schedule more than maxSkew Pods to those
    domains."
    """
    cluster = Cluster(*hosts(0, 0))

    assert cluster.schedule(FOO.spread(HOSTNAME, max_skew=3, min_domains=3), 20) == 2 * 3


@pytest.mark.parametrize(
    ("min_domains", "when", "broken"),
    [
        (1, "DoNotSchedule", []),
        (7, "DoNotSchedule", []),
        (0, "DoNotSchedule", ["must be greater than 0"]),
        (-1, "DoNotSchedule", ["must be greater than 0"]),
        (
            1,
            "ScheduleAnyway",
            ["can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"],
        ),
    ],
)
def test_valid_values_of_default_constraints(min_domains: int, when: str, broken: list[str]) -> None:
    """API: "Valid values are integers greater than 0. When value is not nil, WhenUnsatisfiable must be DoNotSchedule."

    Here for the constraints of the scheduler's own configuration; pods are checked when they are admitted.
    """
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": when, "minDomains": min_domains}
    args = msgspec.convert(
        {"defaultingType": "List", "defaultConstraints": [constraint]}, PodTopologySpreadArgs
    )

    found = PodTopologySpread.validate_args(args, "args", FeatureGates())

    assert [(e.path, e.rule) for e in found] == [
        ("args.defaultConstraints[0].minDomains", rule) for rule in broken
    ]


@pytest.mark.parametrize(
    ("min_domains", "soft", "broken"),
    [(1, False, 0), (0, False, 1), (-3, False, 1), (2, True, 1)],
)
def test_valid_values_of_pods(min_domains: int, soft: bool, broken: int) -> None:
    """API: "Valid values are integers greater than 0. When value is not nil, WhenUnsatisfiable must be DoNotSchedule." """
    incoming = FOO.spread(HOSTNAME, soft=soft, min_domains=min_domains).build()

    if not broken:
        admitted, _ = admit(incoming, None, ObjectTable(), FeatureGates(), NOW)
        assert admitted.spec.topology_spread_constraints[0].min_domains == min_domains
        return
    with pytest.raises(InvalidObjects) as refused:
        admit(incoming, None, ObjectTable(), FeatureGates(), NOW)
    paths = [error.path for error in refused.value.errors]
    assert paths == ["spec.topologySpreadConstraints[0].minDomains"] * broken


def test_the_example_of_three_zones_with_two_pods_each() -> None:
    """API: "in a 3-zone cluster, MaxSkew is set to 2, MinDomains is set to 5 and pods with the same labelSelector spread as 2/2/2 […]
    new pod with the same labelSelector cannot be scheduled, because computed skew will be 3(3 - 0) if new Pod is scheduled to
    any of the three zones, it will violate MaxSkew."
    """
    cluster = Cluster(*zones(2, 2, 2))

    assert cluster.reasons(FOO.spread(ZONE, max_skew=2, min_domains=5)) == {
        "node0": REASON,
        "node1": REASON,
        "node2": REASON,
    }
    assert cluster.allowed(FOO.spread(ZONE, max_skew=2)) == ["node0", "node1", "node2"]
    # 3 - 0 would not violate a maxSkew of 3.
    assert cluster.allowed(FOO.spread(ZONE, max_skew=3, min_domains=5)) == ["node0", "node1", "node2"]


# --- Implementation details ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("matching", [0, 1])
@pytest.mark.parametrize("existing", [0, 1, 2, 3])
@pytest.mark.parametrize("lowest", [0, 1, 2])
@pytest.mark.parametrize("min_domains", [2, 3])
def test_the_filtering_criterion(matching: int, existing: int, lowest: int, min_domains: int) -> None:
    """Implementation details: "('existing matching num' + 'if self-match (1 or 0)' - 'global min matching num') <= 'maxSkew'" […]
    "will treat `global min matching num` as 0 when the number of domains with matching topology keys is less than `minDomains`."
    """
    max_skew = 2
    incoming = FOO if matching else pod("stranger")
    cluster = Cluster(*hosts(existing, lowest))
    minimum = 0 if min_domains > 2 else min(existing, lowest)

    found = cluster.allowed(incoming.spread(HOSTNAME, "foo=bar", max_skew=max_skew, min_domains=min_domains))

    assert ("node0" in found) is (existing + matching - minimum <= max_skew)


# --- How user stories are addressed ---------------------------------------------------------------------------------------------------


REPLICA = FOO.spread(HOSTNAME, max_skew=2, min_domains=5)


def test_six_of_ten_replicas_are_placed_on_three_nodes_and_the_rest_waits_for_two_more() -> None:
    """How user stories are addressed: "6 Pods will be scheduled to that Nodes, and the rest 4 Pods can only be scheduled when 2 more
    Node join the cluster."
    """
    cluster = Cluster(*hosts(0, 0, 0))

    assert cluster.schedule(REPLICA, 10) == 6
    assert cluster.schedule(REPLICA, 4) == 0
    cluster.add(node("node3").build())
    cluster.add(node("node4").build())
    assert cluster.schedule(REPLICA, 4) == 4


def test_one_more_node_takes_no_more_than_max_skew_of_the_rest() -> None:
    """How user stories are addressed: "this deployment will be spread over at least 5 Nodes while protecting the constraints of
    `maxSkew`."
    """
    cluster = Cluster(*hosts(2, 2, 2))

    cluster.add(node("node3").build())
    assert cluster.schedule(REPLICA, 4) == 2
    cluster.add(node("node4").build())
    assert cluster.schedule(REPLICA, 2) == 2


# --- Feature Enablement and Rollback ------------------------------------------------------------------------------------------------


def test_the_gate_has_its_name_and_is_on() -> None:
    """Feature Enablement: "Feature gate name: `MinDomainsInPodTopologySpread`".

    Beta (v1.25): "This feature will be enabled by default as a Beta feature".
    """
    assert FeatureGates().min_domains_in_pod_topology_spread
    assert parse_feature_gates("MinDomainsInPodTopologySpread=false") == OFF


@pytest.mark.parametrize("counts", [(2, 1, 0), (1, 1), (0, 0, 0)])
def test_the_gate_changes_nothing_for_pods_without_the_field(counts: tuple[int, ...]) -> None:
    """Feature Enablement: "Does enabling the feature change any default behavior? No." """
    incoming = FOO.spread(HOSTNAME)

    assert Cluster(*hosts(*counts)).allowed(incoming) == Cluster(*hosts(*counts), gates=OFF).allowed(incoming)


def test_with_the_gate_off_a_stored_field_is_kept_and_ignored() -> None:
    """Rollout: "When this feature is disabled by the feature flag, the already created Pod's
    `pod.spec.topologySpreadConstraints.minDomains` field is preserved".
    """
    cluster = Cluster(*hosts(2, 2, 2), gates=OFF)

    assert cluster.allowed(REPLICA) == ["node0", "node1", "node2"]
    assert REPLICA.build().spec.topology_spread_constraints[0].min_domains == 5


def test_with_the_gate_off_a_new_pod_loses_the_field_and_a_stored_one_keeps_it() -> None:
    """Rollout: "the already created Pod's `pod.spec.topologySpreadConstraints.minDomains` field is preserved, but, the newly created
    Pod's `pod.spec.topologySpreadConstraints.minDomains` field is silently dropped."
    """
    cluster = ObjectTable()

    new, _ = admit(REPLICA.build(), None, cluster, OFF, NOW)
    stored, _ = admit(REPLICA.build(), None, cluster, FeatureGates(), NOW)
    again, _ = admit(REPLICA.label(foo="baz").build(), stored, cluster, OFF, NOW)

    assert new.spec.topology_spread_constraints[0].min_domains is None
    assert again.metadata.labels == {"foo": "baz"}
    assert again.spec.topology_spread_constraints[0].min_domains == 5


def test_with_the_gate_off_the_field_of_default_constraints_is_ignored_too() -> None:
    """Feature Enablement: "The feature can be disabled […] by restarting kube-apiserver and kube-scheduler with feature-gate off." """
    constraint = {
        "topologyKey": HOSTNAME,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
    }
    args = {"defaultingType": "List", "defaultConstraints": [constraint]}
    objects = [*hosts(1, 1), service("foo", {"foo": "bar"})]

    assert Cluster(*objects, **args).allowed(FOO) == []
    assert Cluster(*objects, gates=OFF, **args).allowed(FOO) == ["node0", "node1"]


def test_upgrade_downgrade_upgrade() -> None:
    """Rollout: "create three nodes and pods spread across nodes as 2/2/1", "create new Pod that has a TopologySpreadConstraints: maxSkew
    is 1, topologyKey is `kubernetes.io/hostname`, and minDomains is 4" […] "isn't scheduled because of `MinDomain`" […] "is
    scheduled because `MinDomain` is disabled" […] "isn't scheduled because of `MinDomain`."
    """
    incoming = FOO.spread(HOSTNAME, min_domains=4)
    on = FeatureGates()

    found = [Cluster(*hosts(2, 2, 1), gates=gates).allowed(incoming) for gates in (on, OFF, on)]

    assert found == [[], ["node2"], []]


# --- Monitoring Requirements --------------------------------------------------------------------------------------------------------


def test_a_pod_held_back_by_min_domains_is_told_the_reason() -> None:
    """Monitoring: "an event will be recorded with a detailed message describing the reason including the failed filters. (Pod Topology
    Spread plugin could be one of them.)"
    """
    assert Cluster(*hosts(2, 2)).reasons(REPLICA) == {"node0": REASON, "node1": REASON}
