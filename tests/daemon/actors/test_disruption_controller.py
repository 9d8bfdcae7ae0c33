"""The disruption controller: the arithmetic of budgets, and when it is done again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import IntOrString, Pod, PodDisruptionBudget, SelectorSpec
from tidelog.api.times import NANOS, format_time
from tidelog.configuration.configuration import default_configuration
from tidelog.daemon.actors.disruption_controller import DisruptionController, disruption_status
from tidelog.daemon.actors.errands import ErrandBook, KeyedObjects
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.eventlog.records import Draft, decode_body
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START, Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.preemption import EXPIRY
from tidelog.testing import builders as b
from tidelog.testing.sandbox import Sandbox


def replica(number: int, ready: bool = True, owner: str = "") -> b.PodBuilder:
    made = b.pod(f"web-{number}").label(app="web").request(cpu="1").on("n1")
    made = made.owner("ReplicaSet", owner) if owner else made
    return made.condition("Ready", "True" if ready else "False")


def status(
    pods: list[Pod],
    replicas: Mapping[str, int] | None = None,
    *,
    min_available: IntOrString | None = None,
    max_unavailable: IntOrString | None = None,
    at: int = START,
    **given: object,
) -> tuple[int, int, int, int]:
    """(expected, healthy, desired, allowed); without `replicas` the controller of all pods wants as many as there are."""
    replicas = {"ReplicaSet/default/web": len(pods)} if replicas is None else replicas
    budget = b.pdb("web", "app=web", min_available=min_available, max_unavailable=max_unavailable, **given)
    found = disruption_status(budget, pods, replicas, at)
    return found.expected_pods, found.current_healthy, found.desired_healthy, found.disruptions_allowed


# --- arithmetic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_available", "expected"),
    [
        (3, (4, 4, 3, 1)),
        (4, (4, 4, 4, 0)),
        (6, (4, 4, 6, 0)),
        (0, (4, 4, 0, 4)),
        ("50%", (4, 4, 2, 2)),
        ("60%", (4, 4, 3, 1)),
    ],
)
def test_min_available_is_a_number_or_a_percentage_rounded_up(
    min_available: IntOrString, expected: tuple[int, ...]
) -> None:
    pods = [replica(i, owner="web").build() for i in range(4)]

    assert status(pods, min_available=min_available) == expected


@pytest.mark.parametrize(
    ("max_unavailable", "expected"),
    [(1, (5, 5, 4, 1)), (0, (5, 5, 5, 0)), (9, (5, 5, 0, 5)), ("30%", (5, 5, 3, 2)), ("100%", (5, 5, 0, 5))],
)
def test_max_unavailable_is_a_number_or_a_percentage_rounded_up(
    max_unavailable: IntOrString, expected: tuple[int, ...]
) -> None:
    pods = [replica(i, owner="web").build() for i in range(5)]

    assert status(pods, max_unavailable=max_unavailable) == expected


def test_only_ready_pods_that_stay_are_healthy() -> None:
    pods = [
        replica(0).build(),
        replica(1, ready=False).build(),
        replica(2).terminating().build(),
        b.pod("web-3").label(app="web").build(),
    ]

    assert status(pods, min_available=1) == (4, 1, 1, 0)


def test_finished_pods_are_not_expected() -> None:
    done = replica(0).build()
    done = replace(done, status=replace(done.status, phase="Succeeded"))

    assert status([done, replica(1).build()], min_available=1) == (1, 1, 1, 0)
    assert status([done, replica(1, owner="web").build()], max_unavailable=1) == (2, 1, 1, 0)


def test_expected_pods_are_those_that_their_controllers_want() -> None:
    pods = [replica(i, owner="web").build() for i in range(3)]

    assert status(pods, {"ReplicaSet/default/web": 5}, max_unavailable=1) == (5, 3, 4, 0)
    assert status(pods, {"ReplicaSet/default/web": 5}, min_available="50%") == (5, 3, 3, 0)


@pytest.mark.parametrize(
    "limit", [{"max_unavailable": 1}, {"max_unavailable": "50%"}, {"min_available": "50%"}], ids=str
)
@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ("", "it has no owner"),
        ("other", "the log does not tell how many replicas ReplicaSet/default/other has"),
    ],
)
def test_budget_allows_nothing_and_says_why_where_nobody_knows_how_many_pods_there_should_be(
    limit: dict[str, IntOrString], owner: str, why: str
) -> None:
    budget = b.pdb("web", "app=web", **limit)
    pods = [*(replica(i, owner="web").build() for i in range(2, 6)), replica(1, owner=owner).build()]

    found = disruption_status(budget, pods, {"ReplicaSet/default/web": 4}, START)

    assert (found.disruptions_allowed, found.current_healthy) == (0, 5)
    assert (found.expected_pods, found.desired_healthy) == (0, 0)
    (condition,) = found.conditions
    assert (condition.type, condition.status, condition.reason) == (
        "DisruptionAllowed",
        "False",
        "SyncFailed",
    )
    assert condition.message == (
        f'found no controllers for pod "web-1": {why}; only minAvailable as a number can do without'
    )


def test_min_available_as_a_number_does_without_owners() -> None:
    assert status([replica(i).build() for i in range(4)], {}, min_available=3) == (4, 4, 3, 1)


def test_budget_that_asks_for_nothing_allows_nothing() -> None:
    assert status([replica(0).build()]) == (0, 1, 0, 0)
    assert status([], min_available=0) == (0, 0, 0, 0)


def test_evicted_pod_is_not_healthy_until_its_eviction_expires() -> None:
    pods = [replica(i).build() for i in range(4)]
    evicted = {"web-0": format_time(START)}

    before = status(pods, min_available=2, disrupted_pods=evicted, at=START + EXPIRY - 1)
    after = status(pods, min_available=2, disrupted_pods=evicted, at=START + EXPIRY)

    assert (before, after) == ((4, 3, 2, 1), (4, 4, 2, 2))


def test_name_of_an_evicted_pod_stays_until_the_pod_is_gone() -> None:
    budget = b.pdb("web", "app=web", min_available=1, disrupted_pods={"web-0": format_time(START)})

    going = disruption_status(budget, [replica(0).terminating().build()], {}, START + 2 * EXPIRY)
    gone = disruption_status(budget, [replica(1).build()], {}, START)
    again = disruption_status(budget, [replica(0).created(START + NANOS).build()], {}, START + NANOS)

    assert [list(s.disrupted_pods) for s in (going, gone, again)] == [["web-0"], [], []]


def test_status_is_of_the_generation_that_it_was_computed_for() -> None:
    budget = b.pdb("web", "app=web", min_available=1)
    budget = replace(budget, metadata=replace(budget.metadata, generation=4))

    found = disruption_status(budget, [replica(0).build(), replica(1).build()], {}, START)

    assert found.observed_generation == 4
    assert [(c.type, c.status, c.reason) for c in found.conditions] == [
        ("DisruptionAllowed", "True", "SufficientPods")
    ]


# --- on a log -----------------------------------------------------------------------------------------------------------


class Cluster(Driver):
    """A Driver with a disruption controller that is told of every record."""

    def __init__(self, gates: FeatureGates | None = None) -> None:
        self.book = ErrandBook([DisruptionController()])
        super().__init__()
        self.start(replace(default_configuration(Registry()), feature_gates=gates or FeatureGates()))
        self.book.begin(KeyedObjects(self.core.objects), self.core.seq, self.now)

    def append(self, *drafts: Draft) -> None:
        before = len(self.records)
        super().append(*drafts)
        for record in self.records[before:]:
            self.book.consume(record, decode_body(record), KeyedObjects(self.core.objects))

    def control(self) -> int:
        """Let it do what is due; the number of records it wrote."""
        written = 0
        while (due := self.book.next_at()) is not None and due <= self.now:
            for entry in self.book.take_due(self.now):
                drafts = self.book.run(entry, KeyedObjects(self.core.objects), self.now)
                written += len(drafts)
                self.append(*drafts)
        return written

    def allowed(self) -> int:
        found = self.core.objects["PodDisruptionBudget/default/web"]
        assert isinstance(found, PodDisruptionBudget)
        return found.status.disruptions_allowed


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster(FeatureGates(disruption_policy_in_priority_class=True))
    found.put(b.node("n1").capacity(cpu="4").build(), b.pdb("web", "app=web", min_available=3))
    found.put(*(replica(i).guarded_below(1000).build() for i in range(4)))
    found.control()
    return found


def test_status_follows_the_pods(cluster: Cluster) -> None:
    assert cluster.allowed() == 1

    cluster.put(replica(0, ready=False).build())
    cluster.control()
    unready = cluster.allowed()
    cluster.put(replica(0).build(), replica(4).build())
    cluster.control()

    assert (unready, cluster.allowed()) == (0, 2)


def test_nothing_is_written_when_nothing_changes(cluster: Cluster) -> None:
    cluster.put(replica(0).annotate({"seen": "yes"}).guarded_below(1000).build())
    cluster.put(b.pod("stranger", "elsewhere").label(app="web").build())

    assert cluster.control() == 0


def test_eviction_is_counted_once_and_given_back_when_a_new_pod_is_ready(cluster: Cluster) -> None:
    cluster.put(b.pod("high").request(cpu="1").priority(500).scheduler("default-scheduler").build())
    cluster.settle()
    charged = cluster.allowed()
    cluster.control()
    (victim,) = [
        o for o in cluster.core.objects.values() if isinstance(o, Pod) and o.metadata.deletion_timestamp
    ]
    seen = cluster.allowed()

    cluster.delete(victim)
    cluster.control()
    gone = cluster.allowed()
    cluster.put(replica(9).guarded_below(1000).build())
    cluster.control()

    assert (charged, seen, gone, cluster.allowed()) == (0, 0, 0, 1)
    report = verify(cluster.records, Registry())
    assert report.first_difference is None
    assert report.digest == recover(cluster.records, Registry()).digest()


def test_controller_that_starts_later_brings_everything_up_to_date() -> None:
    cluster = Cluster()
    cluster.book = ErrandBook([])
    cluster.put(b.pdb("web", "app=web", min_available=1), *(replica(i).build() for i in range(3)))

    cluster.book = ErrandBook([DisruptionController()])
    cluster.book.begin(KeyedObjects(cluster.core.objects), cluster.core.seq, cluster.now)
    cluster.control()

    assert cluster.allowed() == 2


def test_size_of_a_controller_counts_and_its_change_is_noticed() -> None:
    cluster = Cluster()
    owner = b.replica_set("web", "app=web")
    cluster.put(b.pdb("web", "app=web", max_unavailable="50%"))
    cluster.put(*(replica(i, owner="web").build() for i in range(4)))
    sizes = []
    for size in (4, 6, 8):
        cluster.put(replace(owner, spec=SelectorSpec(selector=owner.spec.selector, replicas=size)))
        cluster.control()
        sizes.append(cluster.allowed())

    assert sizes == [2, 1, 0]


def test_eviction_that_does_not_happen_is_given_up_when_its_time_has_come(cluster: Cluster) -> None:
    found = cluster.core.objects["PodDisruptionBudget/default/web"]
    assert isinstance(found, PodDisruptionBudget)
    evicted = replace(found.status, disrupted_pods={"web-0": format_time(cluster.now)})
    cluster.put(replace(found, status=evicted))
    cluster.control()
    before = cluster.allowed()

    cluster.now += EXPIRY
    cluster.control()

    assert (before, cluster.allowed()) == (0, 1)


def test_deleted_budget_is_left_alone(cluster: Cluster) -> None:
    cluster.put(replica(5).build())
    cluster.delete(b.pdb("web", "app=web"))

    assert cluster.control() == 0


async def test_whole_preemption_in_the_daemon_keeps_the_budget() -> None:
    """The real runtime, with a disruption controller and a node agent beside it."""
    gates = FeatureGates(disruption_policy_in_priority_class=True)
    configuration = replace(default_configuration(Registry()), feature_gates=gates)
    async with Sandbox(configuration, actors=[DisruptionController(), NodeAgent()]) as sandbox:
        await sandbox.apply([b.node(f"n{i}").capacity(cpu="1").build() for i in range(4)])
        await sandbox.apply(
            [b.pdb("web", "app=web", min_available=3), b.priority_class("web", 100, guarded_below=1000)]
        )
        web = b.pod("web").label(app="web").request(cpu="1").priority_class("web")
        await sandbox.apply([web.named(f"web-{i}").build() for i in range(4)])
        await sandbox.advance(seconds=5)
        await sandbox.apply([b.priority_class("batch", 500), b.priority_class("urgent", 1000)])

        await sandbox.apply(
            [b.pod(f"batch-{i}").request(cpu="1").priority_class("batch").build() for i in range(2)]
        )
        await sandbox.advance(seconds=60)
        running = list(sandbox.placements)
        await sandbox.apply([b.pod("urgent").request(cpu="1").priority_class("urgent").build()])
        await sandbox.advance(seconds=60)

        assert sum("web" in name for name in running) == 3
        assert sum("batch" in name for name in running) == 1
        assert "default/urgent" in sandbox.placements
        await sandbox.verify()


@pytest.mark.parametrize("owner", ["", "nobody-knows-it"])
@pytest.mark.parametrize(
    "limit", [{"max_unavailable": 1}, {"max_unavailable": "25%"}, {"min_available": "75%"}], ids=str
)
async def test_guarded_pods_of_unknown_scale_do_not_go_one_after_the_other(
    limit: dict[str, IntOrString], owner: str
) -> None:
    gates = FeatureGates(disruption_policy_in_priority_class=True)
    configuration = replace(default_configuration(Registry()), feature_gates=gates)
    async with Sandbox(configuration, actors=[DisruptionController(), NodeAgent()]) as sandbox:
        await sandbox.apply([b.node(f"n{i}").capacity(cpu="1").build() for i in range(4)])
        await sandbox.apply([b.pdb("web", "app=web", **limit), b.priority_class("batch", 500)])
        await sandbox.apply([b.priority_class("web", 100, guarded_below=1000)])
        web = b.pod("web").label(app="web").request(cpu="1").priority_class("web")
        web = web.owner("ReplicaSet", owner) if owner else web
        await sandbox.apply([web.named(f"web-{i}").build() for i in range(4)])
        await sandbox.advance(seconds=5)

        for i in range(4):
            await sandbox.apply([b.pod(f"batch-{i}").request(cpu="1").priority_class("batch").build()])
            await sandbox.advance(minutes=1)

        assert sorted(sandbox.placements) == [f"default/web-{i}" for i in range(4)]
        await sandbox.verify()
