"""The content of the log: records, the closed table of their kinds, and the chain of digests that binds them together.

A *record* is one line of the log. A *fact* is something that came from outside, an *outcome* something that the
scheduler decided; each kind has one immutable struct as its body. This is the only module of the log that the
scheduler's core knows, and it is pure.

`Record.body` is stored as the msgpack of the body's struct: keys as Kubernetes spells them, defaults left out, so
that a field added with a default leaves every older record valid, byte for byte. A field removed or renamed does not:
that takes a new kind. A record costs about 60 bytes beside its key and body.

The digest of a record is SHA-256 over the msgpack array [seq, at, author, kind, key, cause, body, digest of the record
before], in its shortest encoding; the first record is chained to `GENESIS`. msgpack carries the type and length of every
element, so no two different records have the same bytes to hash. (SHA-256 was measured against BLAKE2 and SHA-1 at the
usual 100 to 1,000 bytes: none is faster where the processor has SHA instructions, and none is safer.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from typing import Any, Generic, Literal, TypeVar, cast, get_args

import msgspec

from tidelog.api.errors import LogError
from tidelog.api.kinds.registry import known_kind
from tidelog.api.objects import AllocationResult, Condition, Object, Pod
from tidelog.api.writes import Write

FORMAT = 1
"""Version of the log's format. A log of a newer one is refused; older ones stay readable."""

GENESIS = bytes(32)
"""The digest before the first record."""

NO_OPAQUE = "{}"
"""Stands for: the object has no field that nothing here reads."""

BODY_BYTES_MAX = 32 * 2**20
"""A larger body is refused: no object comes near, and it keeps a group of appends in memory."""

RecordKind = Literal[
    "ObjectPut",
    "ObjectDeleted",
    "PodConditionSet",
    "Tick",
    "ConfigurationLoaded",
    "SchedulerStarted",
    "LossAccepted",
    "ClusterAttached",
    "KindSynced",
    "KindGap",
    "Cursor",
    "ObjectUnread",
    "LeadershipChanged",
    "WriteFailed",
    "ShadowVerdict",
    "Scheduled",
    "Unschedulable",
    "Waiting",
    "Reserved",
    "AttemptAborted",
    "AttemptError",
    "Nominated",
    "Evicted",
    "EvictionRefused",
    "PlacementChosen",
]
RECORD_KINDS: tuple[RecordKind, ...] = get_args(RecordKind)


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of the log. Whoever holds a `Record` may rely on its digest having been checked."""

    seq: int
    """1, 2, 3, … without gaps."""
    at: int
    """Nanoseconds since 1970; never less than in the record before."""
    author: str
    """`cluster`, `scheduler`, or the name of an actor."""
    kind: str
    key: str
    """`Kind/namespace/name` of the object that it is about; empty where it is about none."""
    cause: int
    """The seq that it answers; 0 if none."""
    body: bytes
    digest: bytes


Row = tuple[int, int, str, str, str, int, bytes, bytes]
"""The fields of a `Record` as a store returned them: nothing about them has been checked."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record to be appended; the log gives it seq, time and digest."""

    body: Body
    author: str
    key: str = ""
    cause: int = 0


# --- facts ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Something that came from outside."""


class ObjectPut(Fact, Generic[T], frozen=True, kw_only=True):
    """The whole object as it is from now on. The record's key is the object's."""

    object: T
    opaque: str = ""
    """The fields that nothing here reads, as JSON (`tidelog.kube.opaque`). Empty: they stay as they were; `{}`: there are none."""


class ObjectDeleted(Fact, frozen=True, kw_only=True):
    """The object of the record's key is gone."""

    uid: str = ""
    resource_version: str = ""
    """Of its deletion, where an API server told of it; also of a pod that only left the view, because it has finished."""


class PodConditionSet(Fact, frozen=True, kw_only=True):
    """One condition of the pod's status, as a cluster autoscaler sends it; takes the place of the one of its type."""

    condition: Condition


class Tick(Fact, frozen=True, kw_only=True):
    """Time went by. The record's `at` says it all."""


class ConfigurationLoaded(Fact, frozen=True, kw_only=True):
    """The configuration in force from now on, complete, in the shape of its file."""

    configuration: dict[str, Any]
    source: str = ""


class SchedulerStarted(Fact, frozen=True, kw_only=True):
    """A scheduler took the log. From here on outcomes of an older epoch are refused."""

    epoch: int
    holder: str


class LossAccepted(Fact, frozen=True, kw_only=True):
    """`tidelog log repair` dropped records: those from `first` on were lost, up to `last` where that is known."""

    first: int
    last: int = 0
    epoch: int = 0
    """The newest epoch that was known, whose start may be among the lost: it is not given out again."""
    reason: str = ""


# --- facts about a live cluster ---------------------------------------------------------------------------------------


class Watched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Where a kind is listed and watched."""

    path: str
    selector: str = ""
    """A field selector; what it leaves out is not in the log."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The fields taken out of each object before it was stored."""

    level: str = "standard"
    digest: str = ""
    """Of the rules: those of two sessions are the same if this is."""


class ClusterAttached(Fact, frozen=True, kw_only=True):
    """A session with an API server begins: from here on its objects are the facts."""

    cluster: str
    """The uid of its namespace kube-system, which is the cluster's identity."""
    mode: Literal["record", "shadow", "schedule"]
    log_id: str
    """Drawn once for each log; decisions carry it."""
    server: str = ""
    """Its version, as it says itself."""
    identity: str = ""
    """The process that reads and writes, as a Lease would name it."""
    kinds: dict[str, Watched] = {}
    redaction: Redaction = Redaction()


class KindSynced(Fact, frozen=True, kw_only=True):
    """From here on the log's objects of the kind are the server's as of `resource_version`, and follow its watch."""

    kind: str
    resource_version: str
    how: Literal["initial", "relist", "resume"] = "initial"
    reason: str = ""
    objects: int = 0
    """How many there are."""
    added: int = 0
    changed: int = 0
    removed: int = 0


class KindGap(Fact, frozen=True, kw_only=True):
    """From here to the kind's next `KindSynced` its events are not in the cluster's order, and some are missing."""

    kind: str
    start: str = msgspec.field(default="", name="from")
    """The last resourceVersion that was seen."""
    reason: str = ""
    """`expired`, `wentBack`, `undecodable` or `diverged`."""


class Cursor(Fact, frozen=True, kw_only=True):
    """How far the watches have come where no object's record says it: the next session goes on from there."""

    positions: dict[str, str]
    """Kind → resourceVersion."""


class ObjectUnread(Fact, frozen=True, kw_only=True):
    """The server has a version of the record's object that this version of tidelog cannot read; the last one that it could read counts on."""

    resource_version: str = ""
    uid: str = ""
    error: str = ""


class LeadershipChanged(Fact, frozen=True, kw_only=True):
    """The Lease has another holder."""

    holder: str = ""
    """Empty: it was released."""
    ours: bool = msgspec.field(default=False, name="self")
    transitions: int = 0
    resource_version: str = ""


class WriteFailed(Fact, frozen=True, kw_only=True):
    """The effect that the outcome `cause` wants did not come about at the API server, and will not be tried again."""

    effect: Literal["bind", "status", "nominate", "evict", "delete", "group", "claim", "write"]
    uid: str = ""
    code: int = 0
    """The HTTP status; 0: there was no answer, or nothing was sent."""
    reason: str = ""
    message: str = ""
    """At most 256 characters."""
    causes: tuple[str, ...] = ()
    budget: str = ""
    """Key of the disruption budget that refused."""
    final: bool = False
    """Trying it again cannot help."""
    by: str = ""
    """The node that the pod has already."""
    sent: bool = True


# --- findings -----------------------------------------------------------------------------------------------------------


class ShadowVerdict(Fact, frozen=True, kw_only=True):
    """The verdict, by our rules, on another scheduler's decision about the record's pod, which shows in the record `cause`.

    It can be computed again from the records before it, and changes nothing.
    """

    uid: str
    verdict: str
    node: str = ""
    gap: int = 0
    """How many points the node is below the best."""
    rank: int = 0
    """The node's place among the feasible ones, from 1; 0 if it is none of them."""
    feasible: int = 0
    best: tuple[str, ...] = ()
    """The best nodes, at most eight."""
    reason: str = ""
    view: str = ""
    """The state that it was judged in, if not the one just before the record."""


# --- outcomes -------------------------------------------------------------------------------------------------------


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Something that the scheduler decided; replay pairs it with its attempt by the first two fields."""

    attempt: int
    """The number of the pop, counted from 1 within the log."""
    observed: int
    """The seq up to which the core had consumed the log at the pop."""
    at: int
    """The time that the attempt was given, in nanoseconds."""
    epoch: int
    """The `SchedulerStarted` under which it was decided."""


class Fallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A spread constraint that was only preferred in this attempt, and why (KEP-3990)."""

    constraint: int
    """Its index in the pod's topologySpreadConstraints."""
    topology_key: str
    criteria: tuple[str, ...]
    reason: str = ""
    rejected_before: bool = False
    """PodTopologySpread had rejected the pod in an earlier attempt. Else the fallback may not be what it needed."""
    is_default: bool = False
    """The index is one in the plugin's defaultConstraints: the pod has no constraints of its own."""


class Rejection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """One reason of one plugin, and on how many nodes."""

    plugin: str
    reason: str
    nodes: int = 0


class Scheduled(Outcome, frozen=True, kw_only=True):
    """The pod of the record's key is bound to `node`."""

    node: str
    score: int = 0
    feasible: int = 0
    """How many nodes would have done."""
    group: str = ""
    """Key of the pod group with which it was placed."""
    fallback: tuple[Fallback, ...] = ()
    claims: dict[str, AllocationResult] = {}
    """Claim key → the devices that it got."""


class Unschedulable(Outcome, frozen=True, kw_only=True):
    """The attempt found no place. The record's key is a pod's or a pod group's."""

    message: str = ""
    plugins: tuple[str, ...] = ()
    """The plugins that rejected it: events that they registered wake it."""
    pending: tuple[str, ...] = ()
    """Those of the plugins that wait for something to finish: the pod skips its backoff."""
    rejections: tuple[Rejection, ...] = ()
    nodes: int = 0
    """How many nodes there were."""
    blocked_by: tuple[str, ...] = ()
    """Keys of the disruption budgets that kept it from preempting (KEP-4664): a change of one of them wakes it."""
    group: str = ""
    fallback: tuple[Fallback, ...] = ()
    explanation: tuple[str, ...] = ()
    """Explanation beyond kube-scheduler's message: a line for every spread constraint that can fall back, or placement."""
    members: tuple[str, ...] = ()
    """Keys of the pods that were rejected together, if the record's key is a group's."""
    writes: tuple[Write, ...] = ()
    """Writes that let a later attempt find a place: done by this record, as those of `Reserved`."""
    same_as: int = 0
    """Seq of an earlier outcome of the same pod with the same content; then all of the above is left out."""


class Waiting(Outcome, frozen=True, kw_only=True):
    """Resources on `node` are reserved, and plugins wait to permit the binding, until `deadline` at most."""

    node: str
    plugins: tuple[str, ...] = ()
    deadline: int = 0
    group: str = ""
    fallback: tuple[Fallback, ...] = ()


class Reserved(Outcome, frozen=True, kw_only=True):
    """The pod has its place on `node`, and what is written for it counts from here on; it is bound when that has been answered.

    Until then it is assumed there. Nothing but its end, another's preemption, or `deadline` takes its place from it.
    """

    node: str
    writes: tuple[Write, ...] = ()
    """In the order in which they are made."""
    plugins: tuple[str, ...] = ()
    """The plugins that had them written, and wait for the answers."""
    deadline: int = 0
    score: int = 0
    feasible: int = 0
    group: str = ""
    fallback: tuple[Fallback, ...] = ()


class AttemptAborted(Outcome, frozen=True, kw_only=True):
    """A record that arrived after `observed` took away what the decision relied on (DESIGN rule 4)."""

    reason: str
    conflict: int = 0
    """Seq of that record."""
    node: str = ""
    """Where the pod was to go."""
    nominated: str = ""
    """Where room was to be made for it, by the end of `victims`."""
    victims: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    """Pods that lose their nomination to that node."""
    assignment: dict[str, str] = {}
    """Where the pods of a group were to go: pod key → node."""
    claims: dict[str, AllocationResult] = {}
    """Claim key → the devices that it was to get."""
    writes: tuple[Write, ...] = ()
    """Writes for its pods, which are off."""


class AttemptError(Outcome, frozen=True, kw_only=True):
    """A plugin failed."""

    message: str
    plugin: str = ""
    members: tuple[str, ...] = ()
    """Keys of the pods that were tried together, if the record's key is a group's."""


class Nominated(Outcome, frozen=True, kw_only=True):
    """The pod of the record's key is to get the room on `node` that `victims` leave; an empty node clears it."""

    node: str = ""
    victims: tuple[str, ...] = ()
    """Keys of the pods that have to go, the most important first; those included that are going already."""
    cleared: tuple[str, ...] = ()
    """Keys of pods of lower priority that lose their nomination to the node."""
    spared: tuple[str, ...] = ()
    """Keys of pods of lower priority on the node that can stay."""
    violations: int = 0
    """How many victims break a disruption budget."""
    candidates: int = 0
    """How many nodes would have done."""
    fallback: tuple[Fallback, ...] = ()


class Evicted(Outcome, frozen=True, kw_only=True):
    """The pod of the record's key is asked to go, to make room for `preemptor`."""

    preemptor: str
    node: str
    method: Literal["evict", "delete"] = "evict"
    protected: bool = False
    """No disruption budget of the pod may be broken for this preemptor (KEP-4664)."""
    budgets: tuple[str, ...] = ()
    """Keys of the disruption budgets that the eviction was charged to; none was where the victim waited, on no node yet, and only lost its place."""
    message: str = ""


class EvictionRefused(Outcome, frozen=True, kw_only=True):
    """The eviction of the pod of the record's key was answered with 429 (KEP-4664)."""

    preemptor: str
    node: str
    budget: str = ""
    message: str = ""


class PlacementChosen(Outcome, frozen=True, kw_only=True):
    """The part of the cluster that the pod group of the record's key is placed in.

    All pods of `assignment` that do not wait are bound by this one record, so that nobody ever sees a part of them bound. The pods'
    own outcomes follow in the same transaction.
    """

    placement: str
    """Its name; empty for the whole cluster."""
    nodes: tuple[str, ...] = ()
    assignment: dict[str, str] = {}
    """Pod key → node, in the order of the members."""
    waiting: tuple[str, ...] = ()
    """Keys of those that have their place and are not bound yet."""
    score: float = 0.0
    scores: dict[str, dict[str, float]] = {}
    """Placement → scoring plugin → score in 0..100; empty if only one competed."""
    candidates: int = 0
    """How many placements were feasible."""
    evaluated: int = 0
    """How many were looked at."""
    explanation: tuple[str, ...] = ()
    """A line for each of the others: why it cannot take the group, or how good it would have been."""
    claims: dict[str, AllocationResult] = {}
    """Claim key → the devices that it gets, which the whole group shares."""


Body = (
    ObjectPut[Object]
    | ObjectDeleted
    | PodConditionSet
    | Tick
    | ConfigurationLoaded
    | SchedulerStarted
    | LossAccepted
    | ClusterAttached
    | KindSynced
    | KindGap
    | Cursor
    | ObjectUnread
    | LeadershipChanged
    | WriteFailed
    | ShadowVerdict
    | Scheduled
    | Unschedulable
    | Waiting
    | Reserved
    | AttemptAborted
    | AttemptError
    | Nominated
    | Evicted
    | EvictionRefused
    | PlacementChosen
)
"""Every body there is; a `match` over it that ends in `assert_never` is complete."""


# --- the codec ------------------------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_PLAIN: tuple[type[Body], ...] = (
    ObjectDeleted,
    PodConditionSet,
    Tick,
    ConfigurationLoaded,
    SchedulerStarted,
    LossAccepted,
    ClusterAttached,
    KindSynced,
    KindGap,
    Cursor,
    ObjectUnread,
    LeadershipChanged,
    WriteFailed,
    ShadowVerdict,
    Scheduled,
    Unschedulable,
    Waiting,
    Reserved,
    AttemptAborted,
    AttemptError,
    Nominated,
    Evicted,
    EvictionRefused,
    PlacementChosen,
)
KIND_OF_BODY: dict[type[Body], RecordKind] = {
    cast("type[Body]", ObjectPut): "ObjectPut",
    **{body: cast("RecordKind", body.__name__) for body in _PLAIN},
}
assert tuple(KIND_OF_BODY.values()) == RECORD_KINDS, "the two tables of kinds differ"

OUTCOME_KINDS = frozenset(kind for body, kind in KIND_OF_BODY.items() if issubclass(body, Outcome))

_decode_plain = msgspec.msgpack.Decoder().decode
_WIDE_MAP = b"\xde\x00"
"""How a map with a longer header than it needs begins; so may other things, which do not change."""
_SPEC = b"\xa4spec"
_DECODE = {body.__name__: msgspec.msgpack.Decoder(body).decode for body in _PLAIN}


@cache
def _put_decoder(kind: str) -> Callable[[bytes], Body]:
    """Made when the first object of a kind is met. Raises KeyError for a kind that nobody declared."""
    known = known_kind(kind)
    if known is None:
        raise KeyError(kind)
    return msgspec.msgpack.Decoder(ObjectPut[known.type]).decode  # type: ignore[name-defined]


def make_decoders(*kinds: str) -> None:
    """Make ready to decode objects of these kinds. For pods that takes three milliseconds, which the first of them need not wait for."""
    for kind in kinds:
        _put_decoder(kind)


def encode_body(body: Body) -> bytes:
    """The bytes that are stored for this body: those that its content has in msgpack's shortest encoding.

    A struct that leaves defaults out and may have more than 15 fields is written with a longer header than its content
    needs. Without it the content alone, as an export has it, tells the bytes and with them the digest.
    """
    data = _encode(body)
    before, found, after = data.partition(_WIDE_MAP)
    if not found:
        return data
    if isinstance(body, ObjectPut) and isinstance(body.object, Pod) and body.object.spec.containers:
        # One of them is its spec's. If that is all, it can be shortened: to write every pod once more costs twice as much.
        if after[0] < 16 and before.endswith(_SPEC) and _WIDE_MAP not in after:
            return b"%b%c%b" % (before, 0x80 | after[0], after[1:])
    return _encode(_decode_plain(data))


def decode_body(record: Record) -> Body:
    """The record's body as its struct. Costs half a microsecond for an outcome, more for a rich object."""
    try:
        if record.kind == "ObjectPut":
            return _put_decoder(record.key.partition("/")[0])(record.body)
        return _DECODE[record.kind](record.body)
    except KeyError:
        what = f"record {record.seq} is of an unknown kind, {record.kind} {record.key}"
    except (msgspec.MsgspecError, RecursionError) as error:
        what = f"record {record.seq} ({record.kind} {record.key}) has a body of another shape: {error}"
    raise LogError(
        f"{what}: a newer tidelog wrote it, or one with a package that is missing here; use that one, or a newer one"
    )


def decode_outcome(record: Record) -> Outcome | None:
    """Return the outcome that the record holds, if it holds one."""
    if record.kind not in OUTCOME_KINDS:
        return None
    body = decode_body(record)
    assert isinstance(body, Outcome)
    return body


# --- the chain ------------------------------------------------------------------------------------------------------


class ChainBroken(Exception):
    """A row that is not what was chained. The log turns it into `LogDamaged`, which knows the file and the range."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(seq, reason)
        self.seq = seq
        self.reason = reason


def chain_digest(
    previous: bytes, seq: int, at: int, author: str, kind: str, key: str, cause: int, body: bytes
) -> bytes:
    """The digest of a record that follows the one with the digest `previous`."""
    return sha256(_encode((seq, at, author, kind, key, cause, body, previous))).digest()


def check_rows(rows: Iterable[Row], seq: int, at: int, digest: bytes) -> list[Record]:
    """The records of these rows, which must continue the chain after record `seq`; raises `ChainBroken`.

    Changed types are noticed too: msgpack spells 1 and 1.0, "a" and b"a" differently. Costs about a microsecond a row.
    """
    records = []
    for row in rows:
        seq += 1
        try:
            found = sha256(_encode((*row[:7], digest))).digest()
        except (ValueError, TypeError, OverflowError) as error:
            raise ChainBroken(seq, f"record {seq} is unreadable: {error}") from None
        if row[0] != seq:
            raise ChainBroken(seq, f"record {seq} is missing, {row[0]} stands in its place")
        if found != row[7]:
            raise ChainBroken(seq, f"the digest of record {seq} does not match its content")
        if row[1] < at:
            raise ChainBroken(seq, f"record {seq} is older than the one before it")
        digest = found
        at = row[1]
        records.append(Record(*row))
    return records
