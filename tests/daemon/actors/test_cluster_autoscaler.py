"""The cluster autoscaler on the virtual clock: what it buys, what it says, and what becomes of the pods."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.times import NANOS, format_time
from tidelog.cli.demo.spread import Stage, configuration
from tidelog.daemon.actors.catalogue import cast_of
from tidelog.daemon.actors.cluster_autoscaler import (
    DELIVER,
    ORDERED,
    ClusterAutoscaler,
    ClusterAutoscalerSettings,
)
from tidelog.daemon.actors.errands import KeyedObjects
from tidelog.daemon.actors.node_groups import NODE_GROUP, ZONE, NodeGroup, Stockout
from tidelog.daemon.actors.protocol import Errand
from tidelog.eventlog.records import PodConditionSet, Scheduled, decode_body
from tidelog.plugins.pod_topology_spread.fallback import NODE_PROVISIONING_IN_PROGRESS
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START
from tidelog.testing import builders as b

SMALL = {"cpu": "2", "memory": "8Gi", "pods": "110"}


def group(name: str = "general", *zones: str, **fields: Any) -> NodeGroup:
    return NodeGroup(name=name, zones=zones or ("a", "b"), **{"resources": SMALL, **fields})


def second(seconds: float) -> str:
    """A moment of the story, as the file of actors has it."""
    return format_time(START + round(seconds * NANOS))


class Story(Stage):
    """A stage with an autoscaler, and short questions."""

    def __init__(self, *groups: NodeGroup, timeout: str = "", **settings: Any) -> None:
        self.autoscaler = ClusterAutoscaler(ClusterAutoscalerSettings(node_groups=groups, **settings))
        super().__init__(configuration(timeout), [self.autoscaler])

    def node_of(self, pod: str) -> str:
        return self.driver.pod(pod).spec.node_name

    def said(self, pod: str) -> list[tuple[float, str, str]]:
        """What was said of the pod: second, status, reason."""
        found = []
        for record in self.driver.records:
            body = decode_body(record)
            if record.key == f"Pod/default/{pod}" and isinstance(body, PodConditionSet):
                second = (record.at - START) / NANOS
                found.append((second, body.condition.status, body.condition.reason))
        return found

    def bought(self) -> list[tuple[float, str]]:
        """The nodes that came: second and name."""
        author = self.autoscaler.name
        return [
            ((r.at - START) / NANOS, r.key.rpartition("/")[2])
            for r in self.driver.records
            if r.author == author and r.kind == "ObjectPut"
        ]

    def fallen_back(self, pod: str) -> list[int]:
        """The constraints that had fallen back when the pod was bound."""
        (body,) = [
            decode_body(r)
            for r in self.driver.records
            if r.kind == "Scheduled" and r.key == f"Pod/default/{pod}"
        ]
        assert isinstance(body, Scheduled)
        return [f.constraint for f in body.fallback]

    def assert_verifies(self) -> None:
        assert self.verify().first_difference is None


def node(name: str, zone: str, cpu: str = "4") -> b.NodeBuilder:
    return b.node(name).label({ZONE: zone}).capacity(cpu=cpu)


def plain(name: str, cpu: str = "1") -> b.PodBuilder:
    return b.pod(name).scheduler("default-scheduler").request(cpu=cpu)


def web(name: str, *criteria: str, cpu: str = "1", **constraint: Any) -> b.PodBuilder:
    return plain(name, cpu).label(app="web").spread(ZONE, "app=web", fallback=criteria, **constraint)


FALLS_BACK = "NodeProvisioningFailed"


# --- stories ------------------------------------------------------------------------------------------------------------


def test_zone_runs_out_and_the_pods_fall_back() -> None:
    story = Story(group(stockouts=(Stockout(zones=("b",)),)))
    story.put(node("a1", "a"), node("b1", "b", "1"), *(web(f"web-{i}", FALLS_BACK) for i in range(4)))

    story.play(60)

    last = [name for name in (f"web-{i}" for i in range(4)) if story.said(name)]
    assert [story.said(name) for name in last] == [[(10, "False", "OutOfStock")]]
    assert [(story.node_of(name), story.fallen_back(name)) for name in last] == [("a1", [0])]
    assert story.bought() == []
    story.assert_verifies()


def test_dead_autoscaler_leaves_it_to_the_timeout() -> None:
    story = Story(group(), timeout="2m", stopped=True)
    story.put(node("a1", "a"), node("b1", "b", "1"), *(web(f"web-{i}", FALLS_BACK) for i in range(4)))

    story.play(119)
    before = [story.node_of(f"web-{i}") for i in range(4)].count("")
    story.play(2)

    assert before == 1
    assert all(story.node_of(f"web-{i}") for i in range(4))
    assert [r.kind for r in story.driver.records].count("Tick") == 1
    assert story.bought() == []
    story.assert_verifies()


def test_min_domains_opens_a_third_zone() -> None:
    story = Story(group("general", "a", "b", "c", provisioning_seconds=90))
    story.put(node("a1", "a"), node("b1", "b"), *(web(f"web-{i}", min_domains=3) for i in range(3)))

    story.play(100)

    assert story.bought() == [(90, "general-c-1")]
    assert sorted(story.node_of(f"web-{i}") for i in range(3)) == ["a1", "b1", "general-c-1"]
    story.assert_verifies()


def test_min_domains_spreads_a_deployment_over_at_least_five_nodes() -> None:
    """KEP-3022, User Story: "I am using cluster autoscaler and I want to force spreading a deployment over at least 5 Nodes"."""
    story = Story(group("general", "a", provisioning_seconds=60))
    replica = plain("x", "100m").label(foo="bar").spread(b.HOSTNAME, "foo=bar", max_skew=2, min_domains=5)
    story.put(*(node(f"n{i}", "a") for i in range(3)), *(replica.named(f"web-{i}") for i in range(10)))

    story.play(50)
    before = [story.node_of(f"web-{i}") for i in range(10)]
    story.play(70)
    after = [story.node_of(f"web-{i}") for i in range(10)]

    assert before.count("") == 4
    assert [name for _, name in story.bought()] == ["general-a-1", "general-a-2"]
    counts = [after.count(name) for name in sorted(set(after))]
    assert (len(counts), sum(counts)) == (5, 10)
    assert max(counts) - min(counts) <= 2
    story.assert_verifies()


def test_node_that_is_ordered_keeps_the_constraint_hard() -> None:
    story = Story(group(provisioning_seconds=45), timeout="30s")
    story.put(node("a1", "a"), node("b1", "b", "1"), *(web(f"web-{i}", FALLS_BACK) for i in range(4)))

    story.play(100)

    (name,) = (name for name in (f"web-{i}" for i in range(4)) if story.said(name))
    assert story.said(name) == [(0, "True", "NodeOrdered")]
    assert (story.node_of(name), story.fallen_back(name)) == ("general-b-1", [])
    story.assert_verifies()


def test_pod_that_no_group_can_take_is_told_at_the_first_scan() -> None:
    """KEP-3990: "if a Pod has 64 cpu request, but no node group can satisfy 64 cpu requirement, the Pod would […] get
    `NodeProvisioningInProgress: false`.\""""
    story = Story(group())
    story.put(node("a1", "a"), plain("big", "64"))

    story.play(30)

    assert story.said("big") == [(0, "False", "NoNodeGroupHelps")]
    story.assert_verifies()


def test_refused_order_is_followed_by_another_group_or_by_false() -> None:
    """KEP-3990: "the first reconciliation selects the node group […] but the node group size increase request would be rejected […]
    because of the stockout. […] and the next reconciliation happens without taking the failed node group into account.\""""
    empty = group("big", "a", resources={**SMALL, "cpu": "64"}, stockouts=(Stockout(),))
    spare = group("spare", "a", resources={**SMALL, "cpu": "64"}, provisioning_seconds=20)
    helped, alone = Story(empty, spare), Story(empty)

    for story in (helped, alone):
        story.put(node("a1", "a"), plain("big", "60"))
        story.play(40)
        story.assert_verifies()

    assert (helped.said("big"), helped.node_of("big")) == ([(10, "True", "NodeOrdered")], "spare-a-1")
    assert alone.said("big") == [(10, "False", "OutOfStock")]


def test_group_is_tried_again_when_its_time_is_over() -> None:
    stockout = Stockout(end=second(100))
    story = Story(
        group("g", "a", stockouts=(stockout,), provisioning_seconds=30), stockout_backoff_seconds=120
    )
    story.put(node("a1", "a", "1"), plain("p", "2"))

    story.play(200)

    assert story.said("p") == [(10, "False", "OutOfStock"), (120, "True", "NodeOrdered")]
    assert story.node_of("p") == "g-a-1"
    story.assert_verifies()


def test_zone_that_runs_out_before_the_node_comes_turns_true_into_false() -> None:
    stockout = Stockout(start=second(20))
    story = Story(group("g", "b", stockouts=(stockout,), provisioning_seconds=60))
    story.put(node("a1", "a"), node("b1", "b", "1"), *(web(f"web-{i}", FALLS_BACK) for i in range(4)))

    story.play(100)

    (name,) = (name for name in (f"web-{i}" for i in range(4)) if story.said(name))
    assert story.said(name) == [(0, "True", "NodeOrdered"), (70, "False", "OutOfStock")]
    assert story.fallen_back(name) == [0]
    story.assert_verifies()


def test_pod_in_fallback_without_room_gets_any_node_and_stays_told_false() -> None:
    """True would make its constraint hard again, and the node useless."""
    story = Story(group("g", "a", "b", stockouts=(Stockout(zones=("b",)),), provisioning_seconds=30))
    story.put(node("a1", "a", "1"), node("b1", "b", "1"))
    story.put(*(web(f"web-{i}", FALLS_BACK) for i in range(4)))

    story.play(300)

    told = {f"web-{i}": [status for _, status, _ in story.said(f"web-{i}")] for i in range(4)}
    assert all(story.node_of(name) for name in told)
    assert [name for _, name in story.bought()] == ["g-a-1"]
    assert sum("False" in statuses for statuses in told.values()) >= 1
    story.assert_verifies()


# --- what is bought --------------------------------------------------------------------------------------------------------


def test_several_pods_share_a_node() -> None:
    story = Story(group("g", "a", provisioning_seconds=30))
    story.put(node("a1", "a", "1"), *(plain(f"p{i}") for i in range(5)))

    story.play(60)

    assert [name for _, name in story.bought()] == ["g-a-1", "g-a-2"]
    assert all(story.node_of(f"p{i}") for i in range(5))
    story.assert_verifies()


def test_maximum_is_kept() -> None:
    story = Story(group("g", "a", max=1, provisioning_seconds=30))
    story.put(node("a1", "a", "1"), *(plain(f"p{i}", "2") for i in range(3)))

    story.play(60)

    assert [name for _, name in story.bought()] == ["g-a-1"]
    reasons = sorted(story.said(f"p{i}")[-1][2] for i in range(3))
    assert reasons == ["NodeGroupsAtMaximum", "NodeGroupsAtMaximum", "NodeOrdered"]
    story.assert_verifies()


def test_minimum_is_filled_up_over_the_zones() -> None:
    story = Story(group("g", "a", "b", min=3, provisioning_seconds=30))

    story.play(60)

    assert [name for _, name in story.bought()] == ["g-a-1", "g-b-1", "g-a-2"]
    assert {obj.metadata.labels[NODE_GROUP] for k, obj in story.driver.core.objects.items()} == {"g"}


def test_pod_may_hope_for_a_node_that_fills_up_a_minimum() -> None:
    story = Story(group("g", "a", min=1, max=1, provisioning_seconds=30))
    story.put(node("a1", "a", "1"), plain("p", "2"))

    story.play(60)

    assert [name for _, name in story.bought()] == ["g-a-1"]
    assert [reason for _, _, reason in story.said("p")] == ["NodeOrdered"]
    assert story.node_of("p") == "g-a-1"
    story.assert_verifies()


def test_templates_taints_and_labels_count() -> None:
    tainted = group("gpu", "a", taints=(b.node("x").taint("gpu", "yes").taints), labels={"kind": "gpu"})
    ordinary = group("ordinary", "a", labels={"kind": "ordinary"})
    story = Story(tainted, ordinary)
    story.put(
        node("a1", "a", "1"), plain("p", "2"), plain("q", "2").tolerate("gpu").node_selector(kind="gpu")
    )

    story.play(100)

    assert (story.node_of("p"), story.node_of("q")) == ("ordinary-a-1", "gpu-a-1")
    story.assert_verifies()


def test_nominated_pod_is_left_alone() -> None:
    story = Story(group("g", "a"))
    victim = b.pod("victim").scheduler("default-scheduler").request(cpu="4").priority(-1).on("a1")
    story.put(node("a1", "a"), victim, plain("p", "4").priority(10))

    story.play(60)

    assert story.driver.pod("p").status.nominated_node_name == "a1"
    assert (story.said("p"), story.bought()) == ([], [])


def test_pod_that_fits_already_is_left_to_the_scheduler() -> None:
    story = Story(group("g", "a"), scan_seconds=10)
    story.put(node("a1", "a", "1"), plain("p", "2"))
    story.driver.now += 1 * NANOS
    story.driver.settle()
    story.put(node("a2", "a", "4"))

    story.play(30)

    assert (story.node_of("p"), story.bought()) == ("a2", [])


# --- restarts and stops ------------------------------------------------------------------------------------------------------


def test_orders_survive_the_loss_of_the_actors_memory() -> None:
    story = Story(group("g", "a", provisioning_seconds=60))
    story.put(node("a1", "a", "1"), plain("p", "2"))
    story.play(30)

    story.restart_actors()
    story.play(60)

    assert story.bought() == [(60, "g-a-1")]
    assert story.said("p") == [(0, "True", "NodeOrdered")]
    story.assert_verifies()


@pytest.mark.parametrize(
    "message",
    [
        "node general-a-1 of group general in zone a is expected at soon",
        "node general-a-1 of group none in zone a is expected at 2024-01-01T00:00:00Z",
        "node A_b of group general in zone a is expected at 2024-01-01T00:00:00Z",
        "node n1 of group general in zone not_one! is expected at 2024-01-01T00:00:00Z",
    ],
)
def test_condition_that_says_what_no_order_says_is_passed_over(message: str) -> None:
    waiting = b.pod("web").condition(NODE_PROVISIONING_IN_PROGRESS, "True", reason=ORDERED, message=message)
    autoscaler = ClusterAutoscaler(ClusterAutoscalerSettings(node_groups=(group(),)))

    autoscaler.begin(KeyedObjects({"Pod/default/web": waiting.build()}), 1, START)

    assert autoscaler.orders == ()


def test_delivery_that_could_not_be_written_is_made_again() -> None:
    """The disk was full: the runtime asks once more."""
    story = Story(group("g", "a", provisioning_seconds=60))
    story.put(node("a1", "a", "1"), plain("p", "2"))
    story.play(30)
    objects, due = KeyedObjects(story.driver.core.objects), START + 60 * NANOS

    lost = story.autoscaler.run(Errand(due, DELIVER, "g-a-1", 1), objects, due)
    story.play(60)

    assert [draft.key for draft in lost.drafts] == ["Node//g-a-1"]
    assert story.bought() == [(60, "g-a-1")]
    assert story.node_of("p") == "g-a-1"
    assert not story.autoscaler.orders
    story.assert_verifies()


def test_stopped_autoscaler_says_nothing_and_what_it_has_ordered_comes() -> None:
    story = Story(group("g", "a", provisioning_seconds=60))
    story.put(node("a1", "a", "1"), plain("p", "2"))
    story.play(30)
    story.autoscaler.stop()

    story.put(plain("q", "2"))
    story.play(60)
    bought, said = story.bought(), story.said("q")
    story.autoscaler.start()
    story.put(plain("r", "2"))
    story.play(90)

    assert bought == [(60, "g-a-1")]
    assert said == []
    assert len(story.bought()) == 3
    story.assert_verifies()


def test_nothing_is_said_twice() -> None:
    story = Story(group("g", "a", stockouts=(Stockout(),)))
    story.put(node("a1", "a", "1"), plain("p", "2"))

    story.play(3600)

    assert story.said("p") == [(10, "False", "OutOfStock")]


def test_two_runs_write_the_same_log() -> None:
    digests = set()
    for _ in range(2):
        story = Story(group("g", "a", "b", stockouts=(Stockout(zones=("b",)),)), timeout="1m")
        story.put(node("a1", "a"), node("b1", "b", "1"), *(web(f"web-{i}", FALLS_BACK) for i in range(8)))
        story.play(400)
        digests.add(story.driver.records[-1].digest)

    assert len(digests) == 1


# --- settings ------------------------------------------------------------------------------------------------------------------


def refused(settings: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidObjects) as caught:
        cast_of({"clusterAutoscaler": settings})
    return [error.path for error in caught.value.errors]


GROUPS = "clusterAutoscaler.nodeGroups"
GOOD = {"name": "g", "zones": ["a"]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": "Not A Name"}, "name"),
        ({"zones": []}, "zones"),
        ({"zones": ["a", "a"]}, "zones[1]"),
        ({"zones": ["A Zone"]}, "zones[0]"),
        ({"min": -1}, "min"),
        ({"name": "g" * 30, "zones": ["a", "z" * 28]}, "zones[1]"),
        ({"min": 3, "max": 2}, "max"),
        ({"max": 5001}, "max"),
        ({"resources": {"cpu": "g"}}, "resources[cpu]"),
        ({"provisioningSeconds": -1}, "provisioningSeconds"),
        ({"resources": {"cpu": "much"}}, "resources[cpu]"),
        ({"taints": [{"key": "k", "effect": "Sometimes"}]}, "taints[0].effect"),
        ({"labels": {ZONE: "a"}}, f"labels.{ZONE}"),
        ({"labels": {"team": None}}, "labels.team"),
        ({"resources": {"cpu": None}}, "resources.cpu"),
        ({"stockouts": [{"zones": ["c"]}]}, "stockouts[0].zones[0]"),
        ({"stockouts": [{"start": "soon"}]}, "stockouts[0].start"),
        ({"stockouts": [{"start": second(60), "end": second(60)}]}, "stockouts[0].end"),
    ],
)
def test_bad_group_is_refused_with_its_path(fields: dict[str, Any], path: str) -> None:
    assert refused({"nodeGroups": [{**GOOD, **fields}]}) == [f"{GROUPS}[0].{path}"]


def test_all_mistakes_are_told_at_once() -> None:
    groups = [GOOD, GOOD, {**GOOD, "name": "h", "color": "red"}]

    found = refused({"nodeGroups": groups, "scanSeconds": 0, "stockoutBackoffSeconds": 0.5})

    assert set(found) == {
        f"{GROUPS}[1].name",
        f"{GROUPS}[2].color",
        "clusterAutoscaler.scanSeconds",
        "clusterAutoscaler.stockoutBackoffSeconds",
    }


def test_good_settings_make_an_autoscaler() -> None:
    (actor,) = cast_of({"clusterAutoscaler": {"nodeGroups": [{**GOOD, "stockouts": [{}]}]}})(Registry())

    assert isinstance(actor, ClusterAutoscaler)
