"""Dumps: what is in them, that they can be stored, and that nothing but the calls decides about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.queue.toys import NODE_ADD, Bench, Gate, Listener, node, toy, uid
from tidelog.api.errors import InternalError
from tidelog.api.objects import Pod
from tidelog.framework.events import ACTION_BY_NAME, TIME, WILDCARD, Action, ClusterEvent, Resource, Tick
from tidelog.queue.entity import QueuedPod
from tidelog.queue.state import dump_object, load_object
from tidelog.testing import builders as build


def busy_bench() -> Bench:
    """Something in every place."""
    bench = Bench(Gate("Hold"), toy("A", NODE_ADD), toy("Timer", TIME))
    bench.add("asleep", "backing", "error", "deleted", "flying")
    bench.pop_all()
    bench.reject("asleep", "A", "Timer")
    bench.node_added()
    bench.event(NODE_ADD, None, node("n2", zone="a"))
    bench.tick()
    bench.event(WILDCARD)
    bench.reject("backing", "A", pending=["Timer"])
    bench.reject("error")
    bench.queue.delete(build.pod("deleted").build(), bench.now)
    bench.add(build.pod("active").priority(3).nominated("n1"), build.pod("gated").gate("Hold"))
    return bench


def pods_of(bench: Bench) -> dict[str, Pod]:
    contents = bench.queue.contents()
    entities = [
        *contents.active,
        *contents.backoff_rejected,
        *contents.backoff_errors,
        *contents.unschedulable,
    ]
    pods = {e.key: e.pod for e in entities if hasattr(e, "pod")}
    return pods | {attempt.pod.key: attempt.pod.pod for attempt in contents.in_flight}


def test_dump_survives_msgpack_and_json() -> None:
    dumped = busy_bench().queue.dump_state()

    stored = msgspec.msgpack.encode(dumped)
    plain = msgspec.msgpack.decode(stored)
    assert msgspec.msgpack.encode(plain) == stored
    assert msgspec.json.decode(msgspec.json.encode(dumped)) == plain


class Counting(dict[str, QueuedPod]):
    """Counts how many pods are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.looked_at += 1
            yield key

    def __getitem__(self, key: str) -> QueuedPod:
        self.looked_at += 1
        return super().__getitem__(key)


def test_no_step_of_a_dump_looks_at_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue.state.ROWS_PER_STEP", "api.steps.VALUES_PER_STEP", "api.steps.WORDS_PER_STEP"):
        monkeypatch.setattr(f"tidelog.{name}", 10)
    bench = Bench()
    bench.add(*(f"p{number}" for number in range(100)))
    whole = bench.queue.dump_state()
    bench.queue._pods = pods = Counting(bench.queue._pods)

    work, most = bench.queue.dumping_state(), 0
    try:
        while True:
            before = pods.looked_at
            next(work)
            most = max(most, pods.looked_at - before)
    except StopIteration as done:
        dumped = done.value

    assert pods.looked_at == 200, "once to be sorted, once to be read"
    assert most <= 20
    assert dumped == whole


def test_loaded_queue_is_in_the_same_state_and_goes_on_alike() -> None:
    original, loaded = busy_bench(), busy_bench()
    stored = msgspec.msgpack.encode(original.queue.dump_state())
    loaded.queue = loaded.new_queue()
    loaded.queue.load_state(msgspec.msgpack.decode(stored), pods_of(original).__getitem__)
    assert loaded.queue.dump_state() == original.queue.dump_state()

    for bench in (original, loaded):
        bench.node_added()
        bench.reject("flying", "A")
        bench.queue.done(uid("deleted"))
        bench.advance(3)
        bench.plugins[0].closed = False
        bench.advance(301)

    assert loaded.queue.dump_state() == original.queue.dump_state()
    assert loaded.queue.statistics() == original.queue.statistics()
    assert loaded.queue.nominator.node_of(build.pod("active").build()) == "n1"
    assert loaded.pop_all() == original.pop_all()


def test_loaded_queue_shares_nothing_with_the_dump() -> None:
    bench = busy_bench()
    dumped = bench.queue.dump_state()
    before = msgspec.msgpack.encode(dumped)
    pods = pods_of(bench)
    bench.queue = bench.new_queue()
    bench.queue.load_state(dumped, pods.__getitem__)

    bench.node_added()
    bench.reject("flying", "A", pending=["Other"])
    bench.advance(400)
    for name in bench.pop_all():
        bench.reject(name, "Timer", "Another")

    assert msgspec.msgpack.encode(dumped) == before


def test_pods_are_named_and_not_copied_unless_only_the_queue_still_has_them() -> None:
    dumped = busy_bench().queue.dump_state()

    assert [row[0] for row in dumped["pods"]["rows"]] == [
        "default/active",
        "default/asleep",
        "default/backing",
        "default/error",
        "default/flying",
        "default/gated",
    ]
    assert [load_object(pod).metadata.name for pod in dumped["gone_objects"]] == ["deleted"]


def test_loading_into_a_used_queue_is_our_mistake() -> None:
    bench = busy_bench()

    with pytest.raises(AssertionError, match="new queue"):
        bench.queue.load_state(bench.queue.dump_state(), pods_of(bench).__getitem__)


@pytest.mark.parametrize(
    "value", [None, Tick(7), node("n", zone="a"), build.pod("p").request(cpu="1").tolerate("k").build()]
)
def test_objects_of_events_are_stored_with_their_type(value: object) -> None:
    assert load_object(msgspec.json.decode(msgspec.json.encode(dump_object(value)))) == value


def test_object_of_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(InternalError, match="an event about a Listener cannot be put into a snapshot"):
        dump_object(Listener())


@pytest.mark.parametrize(
    "action", [*ACTION_BY_NAME.values(), Action.ADD | Action.DELETE, Action.ADD | Action.UPDATE_POD_LABEL]
)
def test_actions_are_stored_by_name(action: Action) -> None:
    bench = Bench(toy("A", WILDCARD))
    bench.add("p")
    bench.pop()
    event = ClusterEvent(Resource.NODE, action)
    bench.event(event, None, node("n"))
    kept = bench.queue.dump_state()["events"][0]

    bench.reload()

    assert all(isinstance(name, str) for name in kept[2])
    assert bench.queue.in_flight.timeline()[1].event == event  # type: ignore[union-attr]


def test_state_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib, random, msgspec\n"
        "from tests.queue.test_default_mode import Life, OPERATIONS\n"
        "rnd = random.Random(11)\n"
        "life = Life()\n"
        "for operation in rnd.choices(list(OPERATIONS), list(OPERATIONS.values()), k=300):\n"
        "    operation(life, rnd)\n"
        "dumped = msgspec.json.encode(life.bench.queue.dump_state(), order='deterministic')\n"
        "print(hashlib.sha256(dumped).hexdigest(), len(life.pending) > 3)\n"
    )
    root = Path(__file__).resolve().parent.parent.parent

    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }

    assert len(answers) == 1
    assert answers.pop().endswith("True\n")


def test_observing_changes_nothing() -> None:
    watched = busy_bench()
    watched.queue.observe(Listener())
    unwatched = busy_bench()
    for bench in (watched, unwatched):
        bench.node_added()
        bench.advance(400)
        bench.pop_all()

    assert watched.queue.dump_state() == unwatched.queue.dump_state()


def test_what_happens_after_the_dump_is_not_in_it() -> None:
    bench = busy_bench()
    dumped = bench.queue.dump_state()
    before = json.dumps(dumped)

    bench.reject("flying", "A", "Timer")
    bench.queue.mark_fallback(build.pod("asleep").build(), "n1", (0,))

    assert json.dumps(dumped) == before


def test_fallback_and_budgets_of_a_pod_are_loaded_as_they_were() -> None:
    bench = busy_bench()
    bench.queue.fail(uid("flying"), ["A"], now=bench.now, blocked_by=("PodDisruptionBudget/default/b",))
    bench.queue.mark_fallback(build.pod("asleep").build(), "n1", (0, 2))

    bench.reload()

    asleep = bench.get("asleep")
    assert (asleep.fallback_node, asleep.fallback_constraints) == ("n1", (0, 2))
    assert bench.get("flying").blocked_by == ("PodDisruptionBudget/default/b",)
