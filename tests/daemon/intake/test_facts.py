"""The fact service: admitted where it is sequenced, whole or not at all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from tidelog.api.errors import InvalidObjects, UsageError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod, PriorityClass
from tidelog.api.times import NANOS
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.intake.messages import (
    Answer,
    Apply,
    Delete,
    Refused,
    SetCondition,
    facts_of,
    read_answer,
    read_request,
    write_request,
)
from tidelog.eventlog.log import Log, memory_log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.records import Draft, ObjectDeleted, ObjectPut, Record, Tick
from tidelog.eventlog.store import Head
from tidelog.testing.builders import ZONE, node, pod, priority_class


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    """A log whose clock stands still."""
    async with await memory_log(clock=lambda: 1_000 * NANOS) as log:
        yield log


@pytest.fixture
async def service(log: Log) -> FactService:
    return await FactService.start(log, FeatureGates())


def actions(answer: Answer) -> list[tuple[str, str, int]]:
    return [(result.name, result.action, result.seq) for result in answer.results]


def web(name: str = "web-1", **labels: str) -> Pod:
    return pod(name).label(app="web", **labels).build()


def put(obj: Object) -> Draft:
    return Draft(body=ObjectPut(object=obj), author="other", key=object_key(obj))


async def test_what_is_applied_is_appended_as_one(service: FactService, log: Log) -> None:
    answer = await service.submit(Apply(objects=[node("a-1").build(), web()]))

    records = [record async for record in log.read()]
    assert actions(answer) == [("node/a-1", "created", 1), ("pod/web-1", "created", 2)]
    assert [(r.kind, r.key, r.author, r.at) for r in records] == [
        ("ObjectPut", "Node//a-1", "cluster", 1_000 * NANOS),
        ("ObjectPut", "Pod/default/web-1", "cluster", 1_000 * NANOS),
    ]


async def test_what_is_there_already_appends_nothing(service: FactService, log: Log) -> None:
    await service.submit(Apply(objects=[web()]))

    answer = await service.submit(Apply(objects=[web()]))

    assert actions(answer) == [("pod/web-1", "unchanged", 0)]
    assert log.head.seq == 1


async def test_the_same_object_twice_in_one_request_is_a_change_of_the_first(service: FactService) -> None:
    answer = await service.submit(Apply(objects=[web(), web(), web(tier="gold")]))

    assert actions(answer) == [
        ("pod/web-1", "created", 1),
        ("pod/web-1", "unchanged", 0),
        ("pod/web-1", "configured", 2),
    ]


async def test_refused_request_leaves_no_trace(service: FactService, log: Log) -> None:
    await service.submit(Apply(objects=[web()]))
    await service.catch_up()
    before = service.objects.digest()
    bad = pod("bad").priority_class("none").build()

    with pytest.raises(Refused) as refused:
        await service.submit(Apply(objects=[web(tier="gold"), priority_class("high", 1), bad, web("web-2")]))

    assert [refusal.subject for refusal in refused.value.refusals] == ['Pod "bad"']
    assert log.head.seq == 1
    assert service.objects.digest() == before
    cluster = service.objects.cluster
    assert cluster.get("PriorityClass", "", "high") is None
    assert cluster.get("Pod", "default", "web-2") is None
    found = cluster.get("Pod", "default", "web-1")
    assert found is not None
    assert found.metadata.labels == {"app": "web"}


async def test_every_error_of_every_object_is_reported(service: FactService) -> None:
    bad: list[Object] = [pod(name).spread(ZONE, max_skew=0).priority_class("none").build() for name in "ab"]

    with pytest.raises(Refused) as refused:
        await service.submit(Apply(objects=[*bad, web()], sources=["x.yaml", "y.yaml", "z.yaml"]))

    assert refused.value.of == 3
    assert [r.subject for r in refused.value.refusals] == ['x.yaml: Pod "a"', 'y.yaml: Pod "b"']
    assert all(
        {"spec.priorityClassName", "spec.topologySpreadConstraints[0].maxSkew"} <= {e.path for e in r.errors}
        for r in refused.value.refusals
    )


async def test_dry_run_answers_the_same_and_appends_nothing(service: FactService, log: Log) -> None:
    facts = Apply(objects=[web(), web("web-2")])

    tried = await service.submit(facts, dry_run=True)
    head = log.head.seq
    done = await service.submit(facts)

    assert head == 0
    assert tried.dry_run
    assert actions(tried) == actions(done)


async def test_facts_of_others_are_seen(service: FactService, log: Log) -> None:
    found = PriorityClass(metadata=priority_class("high", 1000).metadata, value=1000)
    await log.append([Draft(body=ObjectPut(object=found), author="cluster", key="PriorityClass//high")])

    answer = await service.submit(Apply(objects=[pod("web-1").priority_class("high").build()]))

    assert actions(answer) == [("pod/web-1", "created", 2)]


async def test_facts_are_admitted_on_the_newest_state(service: FactService, log: Log) -> None:
    """Both are asked for before either is sequenced; the second must see what the first did."""
    delete = Delete(keys=["Pod/default/web-1"])
    await service.submit(Apply(objects=[web()]))

    results = await asyncio.gather(service.submit(delete), service.submit(delete), return_exceptions=True)

    assert [type(result) for result in results] == [Answer, Refused]
    assert log.head.seq == 2


async def test_concurrent_appliers_agree_with_the_log(service: FactService, log: Log) -> None:
    """Two classes may not both be the default: of many that ask at once, one gets it."""
    from msgspec.structs import replace

    classes = [replace(priority_class(f"class-{n}", n), global_default=True) for n in range(1, 9)]

    results = await asyncio.gather(
        *(service.submit(Apply(objects=[found])) for found in classes), return_exceptions=True
    )

    assert sum(isinstance(result, Answer) for result in results) == 1
    assert sum(isinstance(result, Refused) for result in results) == 7
    assert log.head.seq == 1
    await service.catch_up()
    assert service.objects.digest() == (await load_objects(log)).digest()


async def test_service_follows_a_log_that_others_fill(service: FactService, log: Log) -> None:
    for _ in range(3):
        await log.append([Draft(body=Tick(), author="ticker")] * 2_000)

    answer = await service.submit(Apply(objects=[web()]))

    assert actions(answer) == [("pod/web-1", "created", 6_001)]
    assert answer.head == 6_000


async def test_requests_that_catch_up_while_another_is_admitted_in_slices_read_each_record_once() -> None:
    class SlowStore(MemoryStore):
        async def append(self, records: Sequence[Record], head: Head) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            await super().append(records, head)

    now = itertools.count(NANOS, NANOS)
    async with Log(
        SlowStore("slow"), clock=now.__next__
    ) as log:  # On this clock every slice is over at once.
        service = await FactService.start(log, FeatureGates())
        async with asyncio.TaskGroup() as tasks:
            for turn in range(60):
                if turn % 30 == 0:
                    tasks.create_task(log.append([put(web(f"other-{turn}-{i}")) for i in range(20)]))
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                tasks.create_task(service.submit(Apply(objects=[web(f"mine-{turn}")])))
                await asyncio.sleep(0)

        await service.catch_up()

        expected = await load_objects(log)
        assert service.objects.seq == expected.seq == log.head.seq
        assert service.objects.encode() == expected.encode()


async def test_event_loop_gets_its_turn_while_the_service_catches_up(service: FactService, log: Log) -> None:
    pods = [web(f"web-{i}") for i in range(2_000)]
    await log.append([Draft(body=ObjectPut(object=p), author="cluster", key=object_key(p)) for p in pods])
    catching_up = asyncio.create_task(service.catch_up())
    seen: set[int] = set()

    while not catching_up.done():
        await asyncio.sleep(0)
        seen.add(service.objects.seq)

    assert service.objects.seq == 2_000
    assert len(seen) > 10


async def test_generated_names_are_answered(service: FactService) -> None:
    from msgspec.structs import replace

    anonymous = replace(web(), metadata=replace(web().metadata, name="", generate_name="web-"))

    answer = await service.submit(Apply(objects=[anonymous, anonymous]))

    first, second = (result.name for result in answer.results)
    assert first.startswith("pod/web-")
    assert second.startswith("pod/web-")
    assert first != second


# --- delete, conditions ---------------------------------------------------------------------------------------------


async def test_pending_pod_is_deleted_at_once(service: FactService, log: Log) -> None:
    await service.submit(Apply(objects=[web()]))

    answer = await service.submit(Delete(keys=["Pod/default/web-1", "Pod/default/web-1"]))

    assert actions(answer) == [("pod/web-1", "deleted", 2)]
    assert (await log.record(2)).kind == "ObjectDeleted"


async def test_running_pod_terminates_in_its_grace_period(service: FactService) -> None:
    await service.submit(Apply(objects=[node("a-1").build(), pod("web-1").on("a-1").build()]))
    key = "Pod/default/web-1"

    asked = await service.submit(Delete(keys=[key], grace_period_seconds=60))
    longer = await service.submit(Delete(keys=[key], grace_period_seconds=90))
    shorter = await service.submit(Delete(keys=[key], grace_period_seconds=10))
    now = await service.submit(Delete(keys=[key], grace_period_seconds=0))

    assert [actions(answer) for answer in (asked, longer, shorter, now)] == [
        [("pod/web-1", "terminating", 3)],
        [("pod/web-1", "terminating", 0)],
        [("pod/web-1", "terminating", 4)],
        [("pod/web-1", "deleted", 5)],
    ]


async def test_deletion_is_whole_or_not_at_all(service: FactService, log: Log) -> None:
    await service.submit(Apply(objects=[web()]))
    keys = ["Pod/default/web-1", "Pod/default/web-9", "PriorityClass//system-node-critical"]

    with pytest.raises(Refused) as refused:
        await service.submit(Delete(keys=keys))

    assert [refusal.subject for refusal in refused.value.refusals] == [
        "pod/web-9",
        'PriorityClass "system-node-critical"',
    ]
    assert log.head.seq == 1


async def test_what_is_not_there_may_be_ignored(service: FactService, log: Log) -> None:
    answer = await service.submit(Delete(keys=["Pod/default/web-9"], ignore_not_found=True))

    assert actions(answer) == []
    assert log.head.seq == 0


async def test_condition_is_a_record_of_its_own(service: FactService, log: Log) -> None:
    await service.submit(Apply(objects=[web()]))
    facts = SetCondition(key="Pod/default/web-1", type="T", status="True", reason="R")

    set_ = await service.submit(facts)
    again = await service.submit(facts)

    assert actions(set_) == [("pod/web-1", "patched", 2)]
    assert actions(again) == [("pod/web-1", "unchanged", 0)]
    assert (await log.record(2)).kind == "PodConditionSet"
    await service.catch_up()
    found = service.objects.get("Pod/default/web-1")
    assert isinstance(found, Pod)
    assert [(c.type, c.status, c.reason) for c in found.status.conditions] == [("T", "True", "R")]


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        (SetCondition(key="Pod/default/web-9", type="T", status="True"), "metadata.name"),
        (SetCondition(key="Node//a-1", type="T", status="True"), "metadata.name"),
    ],
)
async def test_condition_of_no_pod_is_refused(service: FactService, facts: SetCondition, path: str) -> None:
    await service.submit(Apply(objects=[node("a-1").build()]))

    with pytest.raises(Refused) as refused:
        await service.submit(facts)

    assert [error.path for error in refused.value.refusals[0].errors] == [path]


# --- the wire -------------------------------------------------------------------------------------------------------

REQUESTS = [
    Apply(objects=[web(), node("a-1").build()], sources=["x.yaml", "x.yaml"]),
    Delete(keys=["Pod/default/web-1"], grace_period_seconds=5, ignore_not_found=True),
    SetCondition(key="Pod/default/web-1", type="T", status="True", reason="R", message="M"),
]


@pytest.mark.parametrize("facts", REQUESTS, ids=["apply", "delete", "patch-condition"])
def test_request_arrives_as_it_was_sent(facts: Apply | Delete | SetCondition) -> None:
    gates = FeatureGates(disruption_policy_in_priority_class=True)

    request = read_request(wire(write_request(facts, dry_run=True, gates=gates)))

    assert (request.dry_run, request.feature_gates) == (True, gates)
    assert _fields(facts_of(request)) == _fields(facts)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("words", "the request is invalid: request: Invalid value: Expected `object`, got `str`"),
        ({"version": 1}, "version: Unsupported value: 1: this tidelog speaks version 2"),
        ({"version": "1"}, "version: Invalid value: Expected `int`"),
        ({"version": 2}, "Object missing required field `facts`"),
        ({"version": 2, "facts": {"verb": "dance"}}, "facts.verb: Invalid value: Invalid value 'dance'"),
        ({"version": 2, "facts": {"verb": "delete", "keys": [], "cascade": 1}}, "unknown field `cascade`"),
        (
            {"version": 2, "facts": {"verb": "delete", "keys": ["Pdo/a/b"]}},
            "facts.keys[0]: Unsupported value",
        ),
        ({"version": 2, "facts": {"verb": "delete", "keys": ["Pod//b"]}}, "must be Kind/namespace/name"),
        ({"version": 2, "facts": {"verb": "delete", "keys": ["Node/a/b"]}}, "must be Kind//name"),
        ({"version": 2, "facts": {"verb": "delete", "keys": ["Pod/a/b/c"]}}, "must be Kind/namespace/name"),
        (
            {"version": 2, "facts": {"verb": "delete", "keys": [], "grace_period_seconds": -1}},
            "facts.grace_period_seconds: Invalid value: -1",
        ),
        ({"version": 2, "facts": {"verb": "apply", "objects": [b"a: ["]}}, "objects[0] is invalid: line 2"),
        (
            {"version": 2, "facts": {"verb": "apply", "objects": [b"[]"]}},
            "objects[0] is invalid: object: Invalid value: []",
        ),
        (
            {"version": 2, "facts": {"verb": "apply", "objects": [b'{"apiVersion":"v1","kind":"List"}']}},
            "facts.objects[0]: Invalid value: 0: must be one object",
        ),
        (
            {"version": 2, "facts": {"verb": "apply", "objects": [], "sources": ["x"]}},
            "facts.sources: Invalid value: 1: must have 0 items, one for each object",
        ),
        (
            {"version": 2, "facts": {"verb": "delete", "keys": ["Pod/a/b"] * 20_001}},
            "facts.keys: Invalid value: Expected `array` of length <= 20000",
        ),
    ],
)
async def test_nonsense_is_answered_with_its_place(service: FactService, message: object, error: str) -> None:
    with pytest.raises(InvalidObjects) as refused:
        await service.handle(wire(message))

    assert error in str(refused.value)


async def test_refusal_arrives_with_all_its_errors(service: FactService) -> None:
    bad = pod("bad").spread(ZONE, max_skew=0).priority_class("none").build()

    answer = await service.handle(_sent(Apply(objects=[bad, web()])))
    with pytest.raises(Refused) as arrived:
        read_answer(answer)
    with pytest.raises(Refused) as direct:
        await service.submit(Apply(objects=[bad, web()]))

    assert str(arrived.value) == str(direct.value)


async def test_other_gates_than_those_in_force_are_refused(service: FactService) -> None:
    request = _sent(Apply(objects=[web()]), FeatureGates(scheduler_queueing_hints=False))

    with pytest.raises(UsageError, match="leave --feature-gates out"):
        await service.handle(request)


def test_answer_of_another_version_is_not_guessed_at() -> None:
    with pytest.raises(Exception, match="use the same tidelog on both sides"):
        read_answer({"results": "many"})


def _fields(facts: Apply | Delete | SetCondition) -> dict[str, object]:
    """Lists and tuples are the same here."""
    found = msgspec.structs.asdict(facts)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def wire(message: object) -> msgspec.Raw:
    """What arrives of this message."""
    return msgspec.Raw(msgspec.msgpack.encode(message))


def _sent(facts: Apply, gates: FeatureGates | None = None) -> msgspec.Raw:
    return wire(write_request(facts, gates=gates))


async def test_deleted_record_carries_the_uid(service: FactService, log: Log) -> None:
    from tidelog.eventlog.records import decode_body

    await service.submit(Apply(objects=[web()]))
    await service.catch_up()
    created = service.objects.get("Pod/default/web-1")
    assert created is not None

    await service.submit(Delete(keys=["Pod/default/web-1"]))

    assert decode_body(await log.record(2)) == ObjectDeleted(uid=created.metadata.uid)
