"""The one place through which facts enter the log, whoever asks.

    tidelog apply ──┐                                                         ┌─▶ refused, all errors of all objects
                    ├─▶ FactService.submit ─▶ Log.append ─▶ decide(moment) ───┤
    socket ─▶ handle┘       catches up           queues       admission       └─▶ one atomic batch of records

Facts are admitted at the moment of their sequencing, on the objects as the record before left them, so two appliers cannot
both pass on a state that the other has changed. A request enters whole or not at all; what changes nothing appends
nothing. Admission costs some twenty microseconds an object, during which the log appends nothing else; the event loop
gets its turn after each millisecond. What came over the socket is read before, beside the event loop if it is large.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from tidelog.api.admission import admit, admit_delete, set_condition
from tidelog.api.cluster import Stamp
from tidelog.api.conditions import Conditions
from tidelog.api.errors import FieldError, InvalidObjects, UsageError, printable
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Object, Pod
from tidelog.api.removals import removals
from tidelog.daemon.intake.messages import (
    Action,
    Answer,
    Apply,
    Delete,
    Facts,
    Refused,
    RefusedObject,
    Request,
    Result,
    SetCondition,
    facts_of,
    plain,
    read_request,
    short_name,
)
from tidelog.eventlog.log import AppendMoment, Drafts, Log
from tidelog.eventlog.objects import ObjectTable, load_objects
from tidelog.eventlog.records import Body, Draft, ObjectDeleted, ObjectPut, PodConditionSet, Record

REFUSALS_MAX = 100
"""At most this many objects of a refused request are reported; the rest is not looked at."""
REFUSED_ERRORS_MAX = 1_000
"""… or so many broken rules."""
WARNINGS_MAX = 1_000
"""At most this many warnings are reported for one request, …"""
WARNING_LENGTH_MAX = 1_000
"""… and so much of each: the answer must fit into a message."""
READ_HERE_BYTES = 64 * 2**10
"""Larger requests are read in a thread. Arbitrary: at most some milliseconds."""
RECORDS_PER_TURN = 100
"""Arbitrary; a few milliseconds."""
CLUSTER = "cluster"
"""The author of facts that came from outside."""


class FactService:
    """Admits facts and appends them. There is one per `Log`."""

    def __init__(self, log: Log, table: ObjectTable, gates: FeatureGates) -> None:
        """`table` is the service's own: nobody else may apply records to it."""
        self._log = log
        self._table = table
        self.gates = gates
        """The gates in force; loading another configuration sets them anew."""
        self.cluster = ""
        """The live cluster whose objects these are, by its address: it alone says what they are."""
        self._reading = asyncio.Lock()
        """One thread reads at a time: the event loop has to share the interpreter with it."""

    @classmethod
    async def start(cls, log: Log, gates: FeatureGates | None = None) -> FactService:
        """A service for a log that was just opened. Costs reading what came since the last snapshot.

        Without `gates` those are in force that the log's last scheduler had.
        """
        table = await load_objects(log)
        return cls(log, table, table.gates if gates is None else gates)

    @property
    def objects(self) -> ObjectTable:
        """The objects as far as the service has read the log; for reading only."""
        return self._table

    async def submit(
        self,
        facts: Facts,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Answer:
        """Append the facts, or with `dry_run` only say what would be appended; answered when they are durable.

        `progress` is told how many of the objects have been admitted, and of how many.

        Raises Refused, with every error of every object, and what `Log.append` raises.
        """
        if self.cluster:
            raise UsageError(
                f"the objects of this log are those of the cluster {self.cluster}, which would say otherwise at once; use kubectl"
            )
        await self.catch_up()
        decision = _Decision(self._table, self.gates, facts)

        def decide(moment: AppendMoment) -> Drafts:
            yield from self._consume_since(moment)
            with contextlib.closing(decision.make(moment)) as drafts:
                for number, draft in enumerate(drafts, start=1):
                    if progress is not None:
                        progress(number, decision.size)
                    yield None if dry_run else draft

        await self._log.append(decide, since=self._table.seq)
        return decision.answer(dry_run)

    async def act(self, decide: Callable[[ObjectTable, AppendMoment], Sequence[Draft]]) -> list[Record]:
        """Append what the callable makes of the objects as they are at the moment of sequencing: how actors get their say.

        New objects are admitted like those from outside, changes of existing ones are taken as they are. Raises InvalidObjects,
        and what `Log.append` raises; then nothing was appended.
        """
        await self.catch_up()

        def make(moment: AppendMoment) -> Drafts:
            yield from self._consume_since(moment)
            for seq, draft in enumerate(decide(self._table, moment), start=moment.seq + 1):
                yield self._admitted(draft, seq, moment.at)

        return await self._log.append(make, since=self._table.seq)

    async def write(self, decide: Callable[[ObjectTable, AppendMoment], Sequence[Draft]]) -> list[Record]:
        """As `act`, for callers who admit by themselves: the drafts are appended as they are. What `decide` raises is raised here."""
        await self.catch_up()

        def make(moment: AppendMoment) -> Drafts:
            yield from self._consume_since(moment)
            yield from decide(self._table, moment)

        return await self._log.append(make, since=self._table.seq)

    def _admitted(self, draft: Draft, seq: int, at: int) -> Draft:
        body = draft.body
        if not isinstance(body, ObjectPut) or self._table.get(draft.key) is not None:
            return draft
        obj, _ = admit(body.object, None, self._table.cluster, self.gates, Stamp(seq=seq, at=at))
        return replace(draft, body=replace(body, object=obj), key=object_key(obj))

    def follow(self, record: Record, body: Body) -> None:
        """Take a durable record into account, unless a request has been further: what a scheduler that consumes the same log tells."""
        if record.seq > self._table.seq:
            self._table.apply(record, body)

    async def catch_up(self) -> None:
        """Read what others appended, so that little is left to do at the moment of sequencing. The event loop gets its turn."""
        if self._table.seq >= self._log.head.seq:
            return
        async for batch in self._log.read_batches(self._table.seq + 1):
            for count, record in enumerate(batch, start=1):
                if count % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
                # A request that was sequenced meanwhile may have gone further already.
                if record.seq == self._table.seq + 1:
                    self._table.apply(record, self._log.body_of(record))

    def _consume_since(self, moment: AppendMoment) -> Iterator[None]:
        # These may not be durable yet. Should they never be, the log stops, and this service with it.
        for record in moment.since(self._table.seq):
            # While the loop had its turn, another request may have caught up with what is durable.
            if record.seq > self._table.seq:
                self._table.apply(record, self._log.body_of(record))
            yield None

    async def handle(self, message: Raw) -> Any:
        """Answer a request that came over the socket: what `tidelog.eventlog.socket.serve` takes as its handler.

        Raises only TidelogError on account of what is in it.
        """
        request = read_request(message)
        if request.feature_gates is not None and request.feature_gates != self.gates:
            raise UsageError(
                "the process that writes this log has other feature gates in force; leave --feature-gates out"
            )
        try:
            answer = await self.submit(await self._read(request, len(message)), dry_run=request.dry_run)
        except Refused as error:
            answer = Answer(refusals=tuple(map(plain, error.refusals)), of=error.of)
        return msgspec.to_builtins(answer)

    async def _read(self, request: Request, size: int) -> Facts:
        if size <= READ_HERE_BYTES:
            return facts_of(request)
        async with self._reading:
            return await asyncio.to_thread(facts_of, request)


class _Decision:
    """Turns one request into drafts at the moment of its sequencing."""

    def __init__(self, table: ObjectTable, gates: FeatureGates, facts: Facts) -> None:
        self._table = table
        self._gates = gates
        self._facts = facts
        self._drafted = 0
        """How many drafts were made."""
        self._results: list[Result] = []
        self._warned = 0
        self._refusals: list[RefusedObject] = []
        self._errors = 0
        """How many broken rules there are in them."""
        self._head = 0

    @property
    def size(self) -> int:
        """About so many objects."""
        match self._facts:
            case Apply():
                return len(self._facts.objects)
            case Delete():
                return len(self._facts.keys)
            case SetCondition():
                return 1
            case _:
                assert_never(self._facts)

    def answer(self, dry_run: bool) -> Answer:
        """The answer, once the drafts are in the log."""
        return Answer(head=self._head, dry_run=dry_run, results=tuple(self._results))

    def make(self, moment: AppendMoment) -> Drafts:
        """The drafts as they are made, None for what becomes none; raises Refused in the end, or when much is refused."""
        self._head = moment.seq
        facts = self._facts
        match facts:
            case Apply():
                work = self._apply(facts, moment)
            case Delete():
                work = self._delete(facts, moment)
            case SetCondition():
                work = self._set_condition(facts, moment)
            case _:
                assert_never(facts)
        with contextlib.closing(work):
            for draft in work:
                if len(self._refusals) >= REFUSALS_MAX or self._errors >= REFUSED_ERRORS_MAX:
                    break
                yield draft
        if self._refusals:
            raise Refused(self._refusals, self.size)

    def _apply(self, facts: Apply, moment: AppendMoment) -> Drafts:
        """Each object is admitted on what the ones before it make of the cluster, which is undone afterwards: what is
        appended reaches the table as records, what is refused or only tried never does."""
        cluster = self._table.cluster
        undo: list[tuple[Object, Object | None]] = []
        try:
            for index, obj in enumerate(facts.objects):
                meta = obj.metadata
                old = cluster.get(_kind_name(obj), meta.namespace, meta.name) if meta.name else None
                try:
                    admitted, warnings = admit(obj, old, cluster, self._gates, self._stamp(moment))
                except InvalidObjects as error:
                    source = facts.sources[index] if facts.sources else ""
                    self._refuse(f"{source}: {error.subject}" if source else error.subject, error.errors)
                    yield None
                    continue
                key = object_key(admitted)
                if admitted is old:
                    self._result(key, "unchanged")
                    yield None
                    continue
                if old is not None and not obj.metadata.uid and (lost := removals(old, admitted)):
                    # One that brings a uid is a recording: its cluster says what is there.
                    warnings = (*warnings, f"no longer there, since the manifest leaves it out: {lost}")
                cluster.put(admitted)
                undo.append((admitted, old))
                yield self._draft(key, ObjectPut(object=admitted))
                self._result(key, "created" if old is None else "configured", moment, warnings)
        finally:
            for new, old in reversed(undo):
                if old is not None:
                    cluster.put(old)
                else:
                    cluster.delete(_kind_name(new), new.metadata.namespace, new.metadata.name)

    def _delete(self, facts: Delete, moment: AppendMoment) -> Drafts:
        for key in dict.fromkeys(facts.keys):
            yield self._deletion(key, facts, moment)

    def _deletion(self, key: str, facts: Delete, moment: AppendMoment) -> Draft | None:
        old = self._find(key)
        if old is None:
            if not facts.ignore_not_found:
                self._refuse_missing(key)
            return None
        try:
            remaining = admit_delete(old, facts.grace_period_seconds, self._stamp(moment))
        except InvalidObjects as error:
            self._refuse(error.subject, error.errors)
            return None
        if remaining is old:
            self._result(key, "terminating")
            return None
        if remaining is None:
            draft = self._draft(key, ObjectDeleted(uid=old.metadata.uid))
            self._result(key, "deleted", moment)
        else:
            draft = self._draft(key, ObjectPut(object=remaining))
            self._result(key, "terminating", moment)
        return draft

    def _set_condition(self, facts: SetCondition, moment: AppendMoment) -> Drafts:
        key = facts.key
        pod = self._find(key)
        if not isinstance(pod, Pod):
            self._refuse_missing(key)
            return
        try:
            changed = set_condition(pod, facts.type, facts.status, facts.reason, facts.message, moment.at)
        except InvalidObjects as error:
            self._refuse(error.subject, error.errors)
            return
        if changed is pod:
            self._result(key, "unchanged")
            return
        condition = _of_type(changed.status.conditions, facts.type)
        yield self._draft(key, PodConditionSet(condition=condition))
        self._result(key, "patched", moment)

    def _find(self, key: str) -> Object | None:
        kind, namespace, name = key.split("/")
        found: Object | None = self._table.cluster.get(kind, namespace, name)
        return found

    def _stamp(self, moment: AppendMoment) -> Stamp:
        """Where the next draft will stand."""
        return Stamp(seq=moment.seq + self._drafted + 1, at=moment.at)

    def _draft(self, key: str, body: ObjectPut[Object] | ObjectDeleted | PodConditionSet) -> Draft:
        self._drafted += 1
        return Draft(body=body, author=CLUSTER, key=key)

    def _result(
        self, key: str, action: Action, moment: AppendMoment | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        """`moment` is given where a draft was made for it."""
        seq = 0 if moment is None else moment.seq + self._drafted
        said: tuple[str, ...] = ()
        if warnings:
            most = WARNINGS_MAX - self._warned
            said = tuple(printable(text, WARNING_LENGTH_MAX) for text in warnings[:most])
            self._warned += len(said)
        self._results.append(Result(key=key, action=action, seq=seq, warnings=said))

    def _refuse(self, subject: str, errors: Sequence[FieldError]) -> None:
        self._refusals.append(RefusedObject(subject=subject, errors=tuple(errors)))
        self._errors += len(errors)

    def _refuse_missing(self, key: str) -> None:
        kind, namespace, name = key.split("/")
        where = f"in namespace {namespace}" if namespace else "in the cluster"
        error = FieldError(
            path="metadata.name", kind="NotFound", value=name, rule=f"there is no such {kind} {where}"
        )
        self._refuse(short_name(key), [error])


def _kind_name(obj: Object) -> str:
    return type(obj).__name__


def _of_type(conditions: Conditions, type: str) -> Condition:
    return next(condition for condition in conditions if condition.type == type)
