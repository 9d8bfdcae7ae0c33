"""Every kind of record has its words."""

from __future__ import annotations

import pytest

from tidelog.api.objects import Condition
from tidelog.cli.text.records import in_a_few_words, in_full, line, rendered
from tidelog.eventlog import records
from tidelog.eventlog.records import RECORD_KINDS, Body, Record, encode_body
from tidelog.testing.builders import pod

MADE = {"attempt": 1, "observed": 2, "at": 3, "epoch": 1}
BODIES: list[tuple[Body, str]] = [
    (records.ObjectPut(object=pod("web-1").build()), ""),
    (records.ObjectDeleted(uid="u"), ""),
    (records.PodConditionSet(condition=Condition(type="T", status="True", reason="R")), "T=True (R)"),
    (records.PodConditionSet(condition=Condition(type="T", status="True")), "T=True"),
    (records.Tick(), ""),
    (records.ConfigurationLoaded(configuration={}, source="x.yaml"), "from x.yaml"),
    (records.ConfigurationLoaded(configuration={}), ""),
    (records.SchedulerStarted(epoch=3, holder="process 1"), "epoch 3, process 1"),
    (records.LossAccepted(first=5, last=7, epoch=1, reason="cut"), "records from 5 to 7 are lost: cut"),
    (records.LossAccepted(first=5, epoch=1, reason="cut"), "records from 5 on are lost: cut"),
    (
        records.ClusterAttached(cluster="6f1c", mode="record", log_id="l", server="v1.36.0"),
        "to cluster 6f1c (v1.36.0), to record",
    ),
    (
        records.KindSynced(kind="Pod", resource_version="12", how="relist", objects=3, added=1, removed=2),
        "Pod at 12 (relist): 3 objects, 1 added, 0 changed, 2 removed",
    ),
    (records.KindGap(kind="Pod", start="11", reason="expired"), "Pod from 11: expired"),
    (records.KindGap(kind="Pod"), "Pod from the start"),
    (records.Cursor(positions={"Pod": "13", "Node": "9"}), "Pod at 13, Node at 9"),
    (records.ObjectUnread(resource_version="14", error="Expected `int`"), "version 14: Expected `int`"),
    (records.LeadershipChanged(holder="h", ours=True), "to h, this scheduler"),
    (records.LeadershipChanged(), "to nobody"),
    (records.WriteFailed(effect="bind", code=409, reason="Conflict"), "bind: 409 Conflict"),
    (records.WriteFailed(effect="evict", message="no answer"), "evict: no answer"),
    (records.ShadowVerdict(uid="u", verdict="gap", node="a-1", reason="3 below"), "gap a-1 3 below"),
    (records.Scheduled(node="a-1", **MADE), "on a-1"),
    (
        records.Scheduled(
            node="a-1", fallback=(records.Fallback(constraint=0, topology_key="z", criteria=()),), **MADE
        ),
        "on a-1, with a spread constraint only preferred",
    ),
    (records.Unschedulable(message="0/3 nodes are available\nmore", **MADE), "0/3 nodes are available"),
    (records.Unschedulable(same_as=4, **MADE), "as record 4 says"),
    (
        records.Waiting(node="a-1", plugins=("P", "Q"), deadline=5_000_000_000, **MADE),
        "for P, Q, on a-1, 5s at most",
    ),
    (
        records.Reserved(node="a-1", plugins=("VolumeBinding",), deadline=5_000_000_000, **MADE),
        "on a-1, until 0 writes for VolumeBinding are answered, 5s at most",
    ),
    (records.AttemptAborted(reason="the node is gone", conflict=9, **MADE), "the node is gone (record 9)"),
    (records.AttemptAborted(reason="the node is gone", **MADE), "the node is gone"),
    (records.AttemptError(message="broke", plugin="P", **MADE), "P: broke"),
    (records.AttemptError(message="broke", **MADE), "broke"),
    (records.Nominated(**MADE), "to no node any more"),
    (records.Nominated(node="a-1", **MADE), "to a-1"),
    (records.Nominated(node="a-1", victims=("x", "y"), **MADE), "to a-1, for which x, y must go"),
    (records.Evicted(preemptor="p", node="a-1", **MADE), "from a-1, for p"),
    (records.EvictionRefused(preemptor="p", node="a-1", budget="b", **MADE), "from a-1, for p: b"),
    (
        records.PlacementChosen(placement="rack=1", assignment={"p": "a-1"}, candidates=4, **MADE),
        "rack=1, 1 pods, of 4 placements",
    ),
]


def record(body: Body, kind: str, key: str = "Pod/default/web-1") -> Record:
    return Record(7, 1_700_000_000_123_456_789, "cluster", kind, key, 5, encode_body(body), b"\x00" * 32)


@pytest.mark.parametrize(("body", "words"), BODIES)
def test_record_in_a_few_words(body: Body, words: str) -> None:
    assert in_a_few_words(body, at=0) == words


def test_every_kind_is_among_them() -> None:
    assert {type(body).__name__ for body, _ in BODIES} == set(RECORD_KINDS)


@pytest.mark.parametrize(("body", "words"), BODIES)
def test_record_in_full_holds_its_body(body: Body, words: str) -> None:
    found = in_full(record(body, type(body).__name__))

    assert (found["seq"], found["cause"], found["at"]) == (7, 5, "2023-11-14T22:13:20.123456789Z")
    assert "unreadable" not in found["body"]


def test_long_messages_are_shortened() -> None:
    words = in_a_few_words(records.AttemptError(message="x" * 500, **MADE), at=0)

    assert len(words) == 120
    assert words.endswith("…")


def test_line_has_number_time_author_kind_key_and_words() -> None:
    text = line(record(records.Scheduled(node="a-1", **MADE), "Scheduled"))

    assert text == "      7  2023-11-14T22:13:20Z  cluster    Scheduled            Pod/default/web-1  on a-1"


def test_record_of_a_newer_tidelog_is_shown_as_far_as_it_goes() -> None:
    newer = record(records.Tick(), "Earthquake")

    assert line(newer).endswith("Earthquake           Pod/default/web-1  (of a newer tidelog)")
    assert "unknown kind" in in_full(newer)["body"]["unreadable"]


def test_record_cannot_steer_the_terminal() -> None:
    hostile = record(
        records.AttemptError(message="\x1b[2J\u202e", **MADE), "AttemptError", key="Pod/x/\x1b[31m"
    )

    for output in ("table", "json", "yaml"):
        assert all(part.isprintable() for part in rendered(hostile, output).split("\n"))
