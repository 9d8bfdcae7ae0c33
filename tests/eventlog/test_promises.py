"""Promises as a fold: what an outcome wants of the server shows over the object until a version of it does, or until it is off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod, PodGroup, pod_condition
from tidelog.api.pod_status import (
    POD_SCHEDULED,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    bound_to,
    nominated_to,
    rejected,
)
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.writes import Write
from tidelog.eventlog.promises import Promises
from tidelog.eventlog.records import (
    AttemptError,
    Body,
    ClusterAttached,
    Evicted,
    Nominated,
    ObjectDeleted,
    PlacementChosen,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    WriteFailed,
)
from tidelog.testing import builders as b

CLAIM = "PersistentVolumeClaim/default/data"


class Folded:
    """Promises, and the objects as the server last showed them."""

    def __init__(self, *objects: Object) -> None:
        self.promises = Promises()
        self.seq = 0
        self.objects = {object_key(obj): obj for obj in objects}
        self.attach("schedule")

    def attach(self, mode: Any) -> list[tuple[str, Object]]:
        return self.promises.attach(ClusterAttached(cluster="c", mode=mode, log_id="log"))

    def record(self, key: str, cause: int = 0) -> Record:
        self.seq += 1
        return Record(
            seq=self.seq, at=self.seq, author="scheduler", kind="", key=key, cause=cause, body=b"", digest=b""
        )

    def note(self, key: str, body: Body) -> int:
        record = self.record(key)
        self.promises.note(record, body, self.objects.get)
        return record.seq

    def seen(self, obj: Object) -> Any:
        self.objects[object_key(obj)] = obj
        return self.promises.seen(object_key(obj), obj)

    def effects(self, uid: str) -> list[str]:
        found = self.promises.get(uid)
        return [] if found is None else list(found.effects)

    def fail(self, effect: Any, uid: str, cause: int, *, sent: bool = True) -> Any:
        body = WriteFailed(effect=effect, uid=uid, sent=sent)
        return self.promises.broken(self.record("", cause), body, self.objects.get)

    def loaded(self) -> Promises:
        """As they come out of a snapshot."""
        found = Promises()
        found.load(msgspec.msgpack.decode(msgspec.msgpack.encode(self.promises.dump())))
        return found


def a_pod(name: str = "web", **changes: Any) -> Pod:
    made = b.pod(name).build()
    return replace(made, metadata=replace(made.metadata, uid=f"u-{name}", **changes))


def a_claim(**changes: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata=replace(a_pod("data").metadata, **changes))


@pytest.fixture
def folded() -> Iterator[Folded]:
    found = Folded(a_pod())
    yield found
    again = found.loaded()
    assert again.dump() | {"promises": len(again)} == found.promises.dump() | {"promises": len(again)}
    assert (len(again), again.binds) == (len(found.promises), found.promises.binds)


def test_binding_shows_over_every_version_until_one_has_a_node(folded: Folded) -> None:
    folded.note("Pod/default/web", Scheduled(attempt=1, observed=1, at=1, epoch=1, node="n1"))
    assert (folded.promises.binds, folded.promises.take_fresh(), folded.promises.take_fresh()) == (
        1,
        ["u-web"],
        [],
    )

    late = folded.seen(a_pod(labels={"a": "b"}))
    assert (late.spec.node_name, late.metadata.labels) == ("n1", {"a": "b"})
    assert folded.promises.base_of(late) == a_pod(labels={"a": "b"})

    bound = bound_to(a_pod(), "n1", 9)
    assert folded.seen(bound) is bound
    assert (len(folded.promises), folded.promises.binds, folded.promises.base_of(bound)) == (0, 0, bound)


@pytest.mark.parametrize("ends", ["deleted", "over", "being deleted"])
def test_binding_of_a_pod_that_goes_is_off(folded: Folded, ends: str) -> None:
    folded.note("Pod/default/web", Scheduled(attempt=1, observed=1, at=1, epoch=1, node="n1"))

    match ends:
        case "deleted":
            folded.note("Pod/default/web", ObjectDeleted())
        case "over":
            folded.seen(replace(a_pod(), status=replace(a_pod().status, phase="Failed")))
        case _:
            folded.seen(a_pod(deletion_timestamp="2026-01-01T00:00:00Z"))

    assert (len(folded.promises), folded.promises.binds) == (0, 0)


def test_rejection_and_nomination_are_void_once_the_pod_is_bound(folded: Folded) -> None:
    folded.note("Pod/default/web", Unschedulable(attempt=1, observed=1, at=1, epoch=1, message="no room"))
    folded.note("Pod/default/web", Nominated(attempt=1, observed=1, at=1, epoch=1, node="n1"))
    assert folded.effects("u-web") == ["status", "nominate"]

    folded.note("Pod/default/web", Scheduled(attempt=2, observed=1, at=1, epoch=1, node="n1"))

    assert folded.effects("u-web") == ["bind"]


def test_rejection_is_kept_by_the_version_that_tells_it(folded: Folded) -> None:
    folded.note(
        "Pod/default/web", AttemptError(attempt=1, observed=1, at=1, epoch=1, message="a plugin failed")
    )
    shown = folded.seen(a_pod())
    found = pod_condition(shown, POD_SCHEDULED)
    assert found is not None
    assert (found.reason, found.message) == (SCHEDULER_ERROR, "a plugin failed")

    folded.seen(rejected(a_pod(), "another", 3, reason=UNSCHEDULABLE))
    assert folded.effects("u-web") == ["status"]
    folded.seen(rejected(a_pod(), "a plugin failed", 3, reason=SCHEDULER_ERROR))
    assert folded.effects("u-web") == []


def test_what_the_server_shows_already_is_no_promise(folded: Folded) -> None:
    folded.objects["Pod/default/web"] = nominated_to(a_pod(), "n1")

    folded.note("Pod/default/web", Nominated(attempt=1, observed=1, at=1, epoch=1, node="n1"))
    folded.note(
        "Pod/default/web", Unschedulable(attempt=2, observed=1, at=1, epoch=1, message="as before", same_as=1)
    )

    assert len(folded.promises) == 0


def test_nomination_is_taken_from_those_that_it_is_cleared_of() -> None:
    folded = Folded(a_pod(), nominated_to(a_pod("other"), "n1"))

    folded.note(
        "Pod/default/web",
        Nominated(attempt=1, observed=1, at=1, epoch=1, node="n1", cleared=("Pod/default/other",)),
    )

    assert folded.seen(nominated_to(a_pod("other"), "n1")).status.nominated_node_name == ""
    assert folded.seen(a_pod()).status.nominated_node_name == "n1"


def evicted(node: str = "n1") -> Evicted:
    return Evicted(
        attempt=1, observed=1, at=1, epoch=1, preemptor="Pod/default/web", node=node, message="preempted"
    )


def test_eviction_shows_until_the_pod_is_on_its_way() -> None:
    victim = bound_to(a_pod("victim"), "n1", 1)
    folded = Folded(a_pod(), victim)

    folded.note("Pod/default/victim", evicted())

    shown = folded.seen(victim)
    assert any(found.type == "DisruptionTarget" for found in shown.status.conditions)
    folded.seen(replace(victim, metadata=replace(victim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))
    assert len(folded.promises) == 0


def test_eviction_of_who_goes_already_or_is_gone_is_no_promise() -> None:
    going = bound_to(a_pod("going", deletion_timestamp="2026-01-01T00:00:00Z"), "n1", 1)
    folded = Folded(a_pod(), going)

    folded.note("Pod/default/going", evicted())
    folded.note("Pod/default/nobody", evicted())

    assert len(folded.promises) == 0


def test_evicted_reservation_is_a_rejection_for_the_server() -> None:
    folded = Folded(a_pod(), a_pod("reserved"))

    folded.note("Pod/default/reserved", evicted())

    assert folded.effects("u-reserved") == ["status"]


def test_refused_eviction_takes_the_nomination_of_its_preemptor_back() -> None:
    victim = bound_to(a_pod("victim"), "n1", 1)
    folded = Folded(nominated_to(a_pod(), "n1"), victim)
    cause = folded.note("Pod/default/victim", evicted())

    broken = folded.fail("delete", "u-victim", cause)

    assert (broken.effect.name, broken.object, broken.cleared) == ("evict", victim, "Pod/default/web")
    assert folded.effects("u-web") == ["nominate"]
    assert folded.effects("u-victim") == []


@pytest.mark.parametrize("preemptor", ["bound", "nominated elsewhere"])
def test_refused_eviction_clears_nothing_that_is_not_for_its_room(preemptor: str) -> None:
    victim = bound_to(a_pod("victim"), "n1", 1)
    web = bound_to(a_pod(), "n2", 1) if preemptor == "bound" else nominated_to(a_pod(), "n2")
    folded = Folded(web, victim)
    cause = folded.note("Pod/default/victim", evicted())

    assert folded.fail("evict", "u-victim", cause).cleared == ""


def test_refusals_of_a_binding_are_counted_until_the_pod_is_bound(folded: Folded) -> None:
    counts = []
    for sent in (True, False, True):
        cause = folded.note("Pod/default/web", Scheduled(attempt=1, observed=1, at=1, epoch=1, node="n1"))
        counts.append(folded.fail("bind", "u-web", cause, sent=sent).refusals)
    assert counts == [1, 0, 2]
    assert folded.fail("bind", "u-web", cause) is None  # Of an older outcome.

    folded.seen(bound_to(a_pod(), "n9", 1))
    folded.objects["Pod/default/web"] = a_pod()
    cause = folded.note("Pod/default/web", Scheduled(attempt=2, observed=1, at=1, epoch=1, node="n1"))

    assert folded.fail("bind", "u-web", cause).refusals == 1


def test_gang_is_bound_by_one_outcome_but_for_those_that_wait() -> None:
    group = PodGroup(metadata=replace(a_pod("train").metadata, uid="u-train"))
    folded = Folded(group, a_pod("a"), a_pod("b"))
    chosen = PlacementChosen(
        attempt=1,
        observed=1,
        at=1,
        epoch=1,
        placement="p",
        assignment={"Pod/default/a": "n1", "Pod/default/b": "n2"},
        waiting=("Pod/default/b",),
    )

    folded.note("PodGroup/default/train", chosen)

    assert [folded.effects(uid) for uid in ("u-a", "u-b", "u-train")] == [["bind"], [], ["group"]]
    shown = folded.seen(group)
    assert [(found.type, found.status) for found in shown.status.conditions] == [
        ("PodGroupInitiallyScheduled", "True")
    ]
    folded.seen(shown)
    assert folded.effects("u-train") == []
    folded.note("PodGroup/default/train", chosen)  # The server shows it.
    assert folded.effects("u-train") == []


def test_rejected_gang_tells_its_members_and_itself() -> None:
    group = PodGroup(metadata=replace(a_pod("train").metadata, uid="u-train"))
    folded = Folded(group, a_pod("a"), a_pod("b"))

    members = ("Pod/default/a", "Pod/default/b")
    folded.note(
        "PodGroup/default/train",
        Unschedulable(attempt=1, observed=1, at=1, epoch=1, message="no room", members=members),
    )

    assert [folded.effects(uid) for uid in ("u-a", "u-b", "u-train")] == [["status"], ["status"], ["group"]]


def patch(annotation: str) -> Write:
    return Write(key=CLAIM, uid="u-data", patch={"metadata": {"annotations": {annotation: "x"}}})


def reserved(*writes: Write) -> Reserved:
    return Reserved(attempt=1, observed=1, at=1, epoch=1, node="n1", writes=writes)


def test_writes_of_one_object_become_one_that_two_pods_wait_for() -> None:
    folded = Folded(a_claim(), a_pod())
    folded.note("Pod/default/web", reserved(patch("one")))
    folded.note("Pod/default/other", reserved(patch("two")))

    shown = folded.seen(a_claim())
    assert shown.metadata.annotations == {"one": "x", "two": "x"}
    assert all(folded.promises.awaits_writes(f"Pod/default/{name}") for name in ("web", "other"))
    folded.seen(a_claim(annotations={"one": "x", "two": "x", "three": "y"}))

    assert not folded.promises.awaits_writes("Pod/default/web")
    assert len(folded.promises) == 0


def test_object_that_is_to_be_deleted_is_on_its_way_until_the_server_says_so() -> None:
    folded = Folded(a_claim())
    folded.note(
        "Pod/default/web", Unschedulable(attempt=1, observed=1, at=1, epoch=1, writes=(patch("one"),))
    )
    folded.note(
        "Pod/default/web",
        Unschedulable(attempt=2, observed=1, at=1, epoch=1, writes=(Write(key=CLAIM, verb="delete"),)),
    )

    shown = folded.seen(a_claim())
    assert shown.metadata.deletion_timestamp
    assert shown.metadata.annotations == {"one": "x"}
    going = a_claim(deletion_timestamp="2026-01-01T00:00:00Z")

    assert folded.seen(going) is going
    assert len(folded.promises) == 0


def created() -> Write:
    whole = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    return Write(key=CLAIM, verb="create", patch={**whole, "status": {"phase": "Bound"}})


def test_object_that_is_to_be_created_is_known_before_it_has_a_uid() -> None:
    folded = Folded(a_pod())
    folded.note("Pod/default/web", reserved(created()))
    folded.note("Pod/default/web", reserved(Write(key=CLAIM, patch={"metadata": {"labels": {"a": "b"}}})))
    (promise,) = folded.loaded()
    assert promise.effects["write"].write is not None
    assert promise.effects["write"].write.patch["metadata"]["labels"] == {"a": "b"}
    assert promise.effects["write"].pods == ("Pod/default/web",)

    # The server has made it, without its status, which has a URL of its own.
    shown = folded.seen(a_claim(uid="given"))
    assert (shown.status.phase, folded.effects("given")) == ("Bound", ["write"])
    folded.seen(shown)

    assert len(folded.promises) == 0


def test_object_that_need_not_be_created_any_more_is_forgotten() -> None:
    folded = Folded()
    folded.note("Pod/default/web", reserved(created()))

    folded.note(
        "Pod/default/web",
        Unschedulable(attempt=2, observed=1, at=1, epoch=1, writes=(Write(key=CLAIM, verb="delete"),)),
    )

    assert len(folded.promises) == 0
    assert folded.seen(a_claim(uid="anothers")).metadata.uid == "anothers"


def test_object_that_the_server_does_not_let_be_made_is_gone() -> None:
    folded = Folded(a_pod())
    cause = folded.note("Pod/default/web", reserved(created()))
    (promise,) = folded.promises

    broken = folded.fail("write", promise.uid, cause)

    assert broken.is_gone
    assert len(folded.promises) == 0


@pytest.mark.parametrize("mode", ["record", "shadow"])
def test_session_that_does_not_schedule_leaves_the_objects_to_the_server(folded: Folded, mode: str) -> None:
    folded.note("Pod/default/web", Scheduled(attempt=1, observed=1, at=1, epoch=1, node="n1"))

    assert folded.attach(mode) == [("Pod/default/web", a_pod())]
    assert (folded.promises.keeping, len(folded.promises), folded.promises.binds) == (False, 0, 0)


def test_next_session_that_schedules_sends_what_is_outstanding_again(folded: Folded) -> None:
    folded.note("Pod/default/web", Scheduled(attempt=1, observed=1, at=1, epoch=1, node="n1"))
    folded.promises.take_fresh()

    assert folded.attach("schedule") == []
    assert folded.promises.take_fresh() == ["u-web"]
    assert folded.loaded().take_fresh() == ["u-web"]
