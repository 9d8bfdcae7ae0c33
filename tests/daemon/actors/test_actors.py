"""Actors: the file that casts them, the book of their errands, and the node agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.api.objects import Node, Object, Pod, pod_condition
from tidelog.api.times import NANOS, format_time
from tidelog.daemon.actors.catalogue import ACTORS, cast_of, read_actors
from tidelog.daemon.actors.errands import ErrandBook, KeyedObjects, TabledObjects
from tidelog.daemon.actors.node_agent import NodeAgent, NodeAgentSettings
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects
from tidelog.eventlog.records import Body, Draft, ObjectPut, Record, Tick
from tidelog.plugins.registry import Registry
from tidelog.testing.builders import node, pod
from tidelog.testing.pytest_plugin import MakeSandbox
from tidelog.testing.virtual_time import START

ZONE = "topology.kubernetes.io/zone"


def a_node(name: str = "n1", cpu: str = "4") -> Node:
    return node(name).capacity(cpu=cpu).build()


def a_pod(name: str = "web", cpu: str = "1", grace: int = 30) -> Pod:
    return pod(name).request(cpu=cpu).grace(grace).build()


# --- the book -------------------------------------------------------------------------------------------------------------


class Player:
    """Takes whatever errands it is given, and notes what it runs."""

    def __init__(self, name: str = "player") -> None:
        self.name = name
        self.next: list[Errand] = []
        self.ran: list[Errand] = []
        self.deeds = NOTHING

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        return self.take()

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        return self.take()

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        self.ran.append(errand)
        return self.deeds

    def take(self) -> Sequence[Errand]:
        taken, self.next = self.next, []
        return taken


NO_OBJECTS = KeyedObjects({})
TICK = Record(1, 0, "ticker", "Tick", "", 0, b"", b"")


def run_due(book: ErrandBook, now: int) -> list[Draft]:
    return [draft for entry in book.take_due(now) for draft in book.run(entry, NO_OBJECTS, now)]


def test_errands_come_when_they_are_due_and_equal_times_in_the_order_of_taking() -> None:
    first, second = Player("a"), Player("b")
    book = ErrandBook([first, second])
    first.next = [Errand(20, "late"), Errand(10, "one"), Errand(10, "two")]
    second.next = [Errand(10, "three")]
    book.consume(TICK, Tick(), NO_OBJECTS)

    before = book.take_due(9)
    due = [(entry.actor.name, entry.errand.what) for entry in book.take_due(10)]

    assert before == []
    assert due == [("a", "one"), ("a", "two"), ("b", "three")]
    assert book.next_at() == 20


def test_errand_of_the_same_name_takes_the_place_of_the_earlier_one() -> None:
    player = Player()
    book = ErrandBook([player])
    player.next = [Errand(10, "start", "Pod/a/b", cause=1), Errand(10, "start", "Pod/a/c", cause=2)]
    book.consume(TICK, Tick(), NO_OBJECTS)
    player.next = [Errand(30, "start", "Pod/a/b", cause=3)]
    book.consume(TICK, Tick(), NO_OBJECTS)

    assert [entry.errand.cause for entry in book.take_due(20)] == [2]
    assert [entry.errand.cause for entry in book.take_due(30)] == [3]
    assert book.next_at() is None


def test_beginning_forgets_what_was_taken() -> None:
    player = Player()
    book = ErrandBook([player])
    player.next = [Errand(10, "old")]
    book.consume(TICK, Tick(), NO_OBJECTS)

    player.next = [Errand(10, "new")]
    book.begin(NO_OBJECTS, 1, 0)

    assert [entry.errand.what for entry in book.take_due(10)] == ["new"]


def test_drafts_are_signed_and_carry_their_cause_and_errands_may_lead_to_others() -> None:
    player = Player("somebody")
    player.deeds = Deeds(
        [Draft(body=Tick(), author=""), Draft(body=Tick(), author="", cause=4)], [Errand(50, "next")]
    )
    book = ErrandBook([player])
    player.next = [Errand(10, "now", cause=7)]
    book.consume(TICK, Tick(), NO_OBJECTS)

    drafts = run_due(book, 10)

    assert [(draft.author, draft.cause) for draft in drafts] == [("somebody", 7), ("somebody", 4)]
    assert book.next_at() == 50


async def test_both_views_of_the_objects_show_the_same(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox()
    await cluster.apply([a_node("n2"), a_node("n1"), a_pod("b"), a_pod("a")])
    await cluster.runtime.facts.catch_up()

    keyed, tabled = KeyedObjects(cluster.core.objects), TabledObjects(cluster.runtime.facts.objects)

    for kind in ("Node", "Pod"):
        assert list(keyed.of_kind(kind)) == list(tabled.of_kind(kind))
    assert keyed.get("Pod/default/a") == tabled.get("Pod/default/a")
    assert keyed.get("Pod/default/none") is None
    assert [n.metadata.name for n in keyed.of_kind("Node")] == ["n1", "n2"]


# --- in the runtime ---------------------------------------------------------------------------------------------------------


class Builder:
    """Makes a node five seconds after there is a pod."""

    name = "builder"

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        return ()

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        if isinstance(body, ObjectPut) and record.key.startswith("Pod/"):
            return [Errand(record.at + 5 * NANOS, "build", cause=record.seq)]
        return ()

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        if objects.get("Node//built"):
            return NOTHING
        built: Object = node("built").capacity(cpu="4").build()
        return Deeds([Draft(body=ObjectPut(object=built), author="", key="Node//built")])


async def test_new_object_of_an_actor_is_admitted_like_one_from_outside(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[Builder()])
    await cluster.apply(a_pod())
    before = cluster.nodes()

    await cluster.advance(seconds=10)

    assert before == []
    built = cluster.node("built")
    assert built.metadata.uid
    assert built.metadata.creation_timestamp == format_time(START + 5 * NANOS)
    assert cluster.placements == {"default/web": "built"}
    (record,) = [r for r in [record async for record in cluster.records()] if r.author == "builder"]
    assert ([record async for record in cluster.records()])[record.cause - 1].key == "Pod/default/web"


# --- the node agent ---------------------------------------------------------------------------------------------------------


async def test_bound_pod_runs_after_a_moment(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent(NodeAgentSettings(start_seconds=3))])
    await cluster.apply([a_node(), a_pod()])

    await cluster.advance(seconds=2)
    before = cluster.pod("web").status
    await cluster.advance(seconds=1)
    after = cluster.pod("web")

    assert before.phase == "Pending"
    assert after.status.phase == "Running"
    assert after.status.start_time == format_time(START + 3 * NANOS)
    ready = pod_condition(after, "Ready")
    assert ready is not None
    assert ready.status == "True"


async def test_deleted_pod_goes_when_its_grace_period_is_over(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent()])
    await cluster.apply([a_node(), a_pod(grace=20)])
    await cluster.advance(seconds=5)

    await cluster.delete("Pod/default/web")
    await cluster.advance(seconds=19)
    before = cluster.pods()
    await cluster.advance(seconds=1)

    assert len(before) == 1
    assert cluster.pods() == []


async def test_speed_shortens_grace_periods(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent(NodeAgentSettings(speed=10))])
    await cluster.apply([a_node(), a_pod(grace=20)])
    await cluster.delete("Pod/default/web")

    await cluster.advance(seconds=2)

    assert cluster.pods() == []


async def test_preempted_pod_makes_room_after_its_grace_period(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent()])
    await cluster.apply([a_node(cpu="1"), a_pod("old", grace=10)])
    await cluster.advance(seconds=2)

    await cluster.apply(pod("new").request(cpu="1").uid("u-new").priority(100).build())
    await cluster.advance(seconds=15)

    assert [p.metadata.name for p in cluster.pods()] == ["new"]
    assert cluster.placements == {"default/new": "n1"}


@pytest.mark.parametrize("deleted", [False, True])
async def test_agent_goes_on_after_a_restart(tidelog_sandbox: MakeSandbox, deleted: bool) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent()])
    await cluster.apply([a_node(), a_pod(grace=10)])
    if deleted:
        await cluster.advance(seconds=2)
        await cluster.delete("Pod/default/web")

    await cluster.restart()
    await cluster.advance(seconds=15)

    assert [p.status.phase for p in cluster.pods()] == ([] if deleted else ["Running"])


async def test_pod_does_not_start_on_a_node_that_is_gone(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent()])
    await cluster.apply([a_node(), a_pod()])

    await cluster.delete("Node//n1")
    await cluster.advance(seconds=10)

    assert cluster.pod("web").status.phase == "Pending"


async def test_pod_that_was_deleted_and_made_again_starts_in_its_own_time(
    tidelog_sandbox: MakeSandbox,
) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent(NodeAgentSettings(start_seconds=10))])
    await cluster.apply([a_node(), a_pod()])
    await cluster.advance(seconds=6)

    await cluster.delete("Pod/default/web", grace_period_seconds=0)
    await cluster.apply(a_pod())
    await cluster.advance(seconds=6)
    before = cluster.pod("web").status.phase
    await cluster.advance(seconds=4)

    assert (before, cluster.pod("web").status.phase) == ("Pending", "Running")


# --- the file ---------------------------------------------------------------------------------------------------------------


def test_file_names_who_plays_and_how(tmp_path: Path) -> None:
    path = tmp_path / "actors.yaml"
    path.write_text("nodeAgent: {startSeconds: 2, speed: 3}\ndisruptionController:\n")

    actors = read_actors(path)(Registry())

    assert [actor.name for actor in actors] == ["node-agent", "disruption-controller"]


def test_every_actor_can_be_cast_with_its_defaults() -> None:
    actors = cast_of(dict.fromkeys(ACTORS))(Registry())

    assert len({actor.name for actor in actors}) == len(ACTORS)


def test_nobody_plays_without_a_file() -> None:
    assert read_actors(None)(Registry()) == ()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"nobody": {}}, "nobody"),
        ({"nodeAgent": {"startSeconds": -1}}, "nodeAgent.startSeconds"),
        ({"nodeAgent": {"startSeconds": "soon"}}, "nodeAgent.startSeconds"),
        ({"nodeAgent": {"speed": 0}}, "nodeAgent.speed"),
        ({"nodeAgent": {"sped": 1}}, "nodeAgent.sped"),
        ([], "document"),
        ({"clusterAutoscaler": {"scanSeconds": 0}}, "clusterAutoscaler.scanSeconds"),
    ],
)
def test_mistakes_are_named_with_their_path(data: object, path: str) -> None:
    with pytest.raises(InvalidObjects) as caught:
        cast_of(data)

    assert [error.path for error in caught.value.errors] == [path]


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TidelogError, match=r"none\.yaml: the actors cannot be read"):
        read_actors(tmp_path / "none.yaml")
