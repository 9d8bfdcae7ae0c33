"""Records: bodies, their codec, and the chain of digests."""

from __future__ import annotations

import hashlib
from typing import Any, assert_never

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.errors import LogError
from tidelog.api.kinds.registry import KINDS, object_key
from tidelog.api.objects import Condition, ObjectMeta, Pod, PodSpec
from tidelog.api.writes import Write
from tidelog.eventlog.records import (
    GENESIS,
    KIND_OF_BODY,
    RECORD_KINDS,
    AttemptAborted,
    AttemptError,
    Body,
    ChainBroken,
    ClusterAttached,
    ConfigurationLoaded,
    Cursor,
    Evicted,
    EvictionRefused,
    Fallback,
    KindGap,
    KindSynced,
    LeadershipChanged,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Redaction,
    Rejection,
    Reserved,
    Scheduled,
    SchedulerStarted,
    ShadowVerdict,
    Tick,
    Unschedulable,
    Waiting,
    Watched,
    WriteFailed,
    chain_digest,
    check_rows,
    decode_body,
    encode_body,
)
from tidelog.testing.builders import pod
from tidelog.testing.store_contract import make_records, rows

ATTEMPT: dict[str, Any] = {"attempt": 7, "observed": 40, "at": 1_700_000_000_000_000_000, "epoch": 2}
FALLBACK = Fallback(constraint=0, topology_key="zone", criteria=("NodeProvisioningFailed",), reason="timeout")
BODIES: tuple[Body, ...] = (
    ObjectPut(object=Pod(metadata=ObjectMeta(name="web", namespace="default", labels={"b": "1", "a": "2"}))),
    ObjectDeleted(uid="u"),
    PodConditionSet(condition=Condition(type="NodeProvisioningInProgress", status="True")),
    Tick(),
    ConfigurationLoaded(configuration={"profiles": [{"weight": 1.5}], "n": None}, source="config.yaml"),
    SchedulerStarted(epoch=3, holder="host/1"),
    LossAccepted(first=5, last=9, epoch=2, reason="torn"),
    ClusterAttached(
        cluster="6f1c",
        mode="record",
        log_id="l1",
        server="v1.36.0",
        identity="host_1",
        kinds={"Pod": Watched(path="/api/v1/pods", selector="status.phase!=Failed")},
        redaction=Redaction(digest="d"),
    ),
    KindSynced(kind="Pod", resource_version="12", how="relist", reason="expired", objects=3, removed=1),
    KindGap(kind="Pod", start="11", reason="wentBack"),
    Cursor(positions={"Pod": "13", "Node": "9"}),
    ObjectUnread(resource_version="14", uid="u", error="Expected `int`, got `str` - at `$.spec.priority`"),
    LeadershipChanged(holder="host_1", ours=True, transitions=2, resource_version="15"),
    WriteFailed(effect="bind", uid="u", code=409, reason="Conflict", message="m", final=True, by="n2"),
    ShadowVerdict(uid="u", verdict="gap", node="n1", gap=3, rank=2, feasible=4, best=("n2",)),
    Scheduled(**ATTEMPT, node="n1", feasible=3, fallback=(FALLBACK,)),
    Unschedulable(
        **ATTEMPT,
        message="0/1 nodes are available",
        plugins=("NodeResourcesFit",),
        rejections=(Rejection(plugin="NodeResourcesFit", reason="Insufficient cpu", nodes=1),),
        nodes=1,
    ),
    Waiting(**ATTEMPT, node="n1", plugins=("Gang",), deadline=5),
    Reserved(
        **ATTEMPT,
        node="n1",
        writes=(Write(key="PersistentVolume//v", patch={"spec": {"claimRef": {"name": "c"}}}),),
        plugins=("VolumeBinding",),
        deadline=5,
    ),
    AttemptAborted(**ATTEMPT, reason="the node is gone", conflict=41, node="n1"),
    AttemptError(**ATTEMPT, message="boom", plugin="P"),
    Nominated(**ATTEMPT, node="n1", victims=("Pod/default/low",)),
    Evicted(**ATTEMPT, preemptor="Pod/default/high", node="n1", budgets=("PodDisruptionBudget/default/b",)),
    EvictionRefused(**ATTEMPT, preemptor="Pod/default/high", node="n1", budget="b"),
    PlacementChosen(
        **ATTEMPT, placement="rack-1", nodes=("n1",), assignment={"Pod/default/a": "n1"}, score=2.5
    ),
)


@pytest.mark.parametrize(
    "pod",
    [
        pod("web").request(cpu="1").build(),
        pod("web").request(cpu=0xA473706563DE0002).build(),
        pod("web").request(cpu=0xDE00).label(spec="spec").annotate({"a": "\u07a4spec"}).build(),
        pod("web", "\u07a4spec").build(),
        replace(pod("web").build(), spec=PodSpec(overhead={"cpu": 0xA473706563DE0002})),
        pod("web")
        .scheduler("s")
        .on("n")
        .priority(1)
        .request(cpu="1")
        .tolerate("a")
        .node_selector(a="b")
        .spread("zone")
        .grace(1)
        .build(),
    ],
)
def test_a_pod_is_written_in_the_shortest_encoding(pod: Pod) -> None:
    body: Body = ObjectPut(object=pod)
    content = msgspec.msgpack.decode(msgspec.msgpack.encode(body))

    assert encode_body(body) == msgspec.msgpack.encode(content)


def record_of(body: Body, key: str = "Pod/default/web") -> Record:
    return Record(1, 0, "test", KIND_OF_BODY[type(body)], key, 0, encode_body(body), bytes(32))


def kind_by_match(body: Body) -> str:
    """The kind of a body, by a match that the type checker knows to be complete."""
    match body:
        case ObjectPut() | ObjectDeleted() | PodConditionSet() | Tick() | ConfigurationLoaded():
            return type(body).__name__
        case ClusterAttached() | KindSynced() | KindGap() | Cursor() | ObjectUnread():
            return type(body).__name__
        case LeadershipChanged() | WriteFailed() | ShadowVerdict():
            return type(body).__name__
        case SchedulerStarted() | LossAccepted() | Scheduled() | Unschedulable() | Waiting() | Reserved():
            return type(body).__name__
        case (
            AttemptAborted()
            | AttemptError()
            | Nominated()
            | Evicted()
            | EvictionRefused()
            | PlacementChosen()
        ):
            return type(body).__name__
        case _:
            assert_never(body)


def test_there_is_a_body_here_for_every_kind() -> None:
    assert tuple(kind_by_match(body) for body in BODIES) == RECORD_KINDS


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_body_comes_back_as_it_was(body: Body) -> None:
    assert decode_body(record_of(body)) == body


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_object_of_every_kind_comes_back_as_its_own_type(kind: Any) -> None:
    obj = kind.type(metadata=ObjectMeta(name="x", namespace="y"))
    body = decode_body(record_of(ObjectPut(object=obj), object_key(obj)))

    assert isinstance(body, ObjectPut)
    assert body.object == obj
    assert type(body.object) is kind.type


def test_body_of_a_newer_version_with_more_fields_is_read() -> None:
    body = msgspec.msgpack.encode({**ATTEMPT, "node": "n1", "invented": [1, 2]})

    assert decode_body(Record(1, 0, "s", "Scheduled", "k", 0, body, b"")) == Scheduled(**ATTEMPT, node="n1")


@pytest.mark.parametrize(
    ("kind", "key", "body"),
    [
        ("Invented", "Pod/a/b", b"\x80"),
        ("ObjectPut", "Invented/a/b", b"\x81\xa6object\x80"),
        ("Scheduled", "Pod/a/b", b"\x80"),
        ("Scheduled", "Pod/a/b", b"\xc1"),
        ("Tick", "", b"\x91" * 100_000),
    ],
)
def test_undecodable_body_names_the_record(kind: str, key: str, body: bytes) -> None:
    with pytest.raises(LogError, match=r"record 5 .*newer tidelog"):
        decode_body(Record(5, 0, "s", kind, key, 0, body, b""))


def test_digest_is_as_documented() -> None:
    """SHA-256 over the msgpack array of the fields, the previous digest last, spelled out by hand here."""
    array = b"\x98" + b"\x01" + b"\x05" + b"\xa7cluster" + b"\xa4Tick" + b"\xa0" + b"\x00" + b"\xc4\x01\x80"

    digest = chain_digest(GENESIS, 1, 5, "cluster", "Tick", "", 0, b"\x80")

    assert digest == hashlib.sha256(array + b"\xc4\x20" + bytes(32)).digest()


FIELDS = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.text(max_size=5),
    st.text(max_size=5),
    st.text(max_size=5),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=5),
)


@given(FIELDS, FIELDS)
def test_different_records_have_different_digests(one: Any, other: Any) -> None:
    same = chain_digest(GENESIS, *one) == chain_digest(GENESIS, *other)

    assert same == (one == other)


@given(FIELDS)
def test_digest_depends_on_the_one_before(fields: Any) -> None:
    assert chain_digest(GENESIS, *fields) != chain_digest(bytes([1]) * 32, *fields)


def test_checked_rows_become_records() -> None:
    records = make_records(5)

    assert check_rows(rows(records), 0, 0, GENESIS) == records
    assert check_rows(rows(records[2:]), 2, records[1].at, records[1].digest) == records[2:]
    assert check_rows([], 0, 0, GENESIS) == []


CHANGES = [
    (0, 9),
    (0, 2.0),
    (1, 1),
    (1, 2_000.0),
    (2, "clustes"),
    (2, b"cluster"),
    (3, "Tock"),
    (4, None),
    (5, 1),
    (6, b"\x81"),
    (6, "\x00"),
    (7, bytes(32)),
    (7, None),
    (4, 2**70),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_changed_row_breaks_the_chain_at_its_seq(field: int, value: object) -> None:
    changed: list[Any] = rows(make_records(3))
    changed[1] = (*changed[1][:field], value, *changed[1][field + 1 :])

    with pytest.raises(ChainBroken) as broken:
        check_rows(changed, 0, 0, GENESIS)

    assert broken.value.seq == 2


def test_missing_doubled_and_swapped_rows_break_the_chain() -> None:
    good = rows(make_records(4))
    for bad, seq in (
        ([good[0], good[2]], 2),
        ([good[0], good[0]], 2),
        ([good[0], good[2], good[1]], 2),
        (good[1:], 1),
    ):
        with pytest.raises(ChainBroken) as broken:
            check_rows(bad, 0, 0, GENESIS)
        assert broken.value.seq == seq


def test_time_that_goes_back_breaks_the_chain() -> None:
    records = make_records(1)
    digest = chain_digest(records[0].digest, 2, 1, "a", "Tick", "", 0, b"\x80")

    with pytest.raises(ChainBroken, match="older"):
        check_rows([(2, 1, "a", "Tick", "", 0, b"\x80", digest)], 1, records[0].at, records[0].digest)
