"""Random histories in the default mode, groups with all their rules included, held to laws.

1. Every pending pod is in exactly one place, and every attempt has its pod.
2. After an event, whoever is left waiting in the pool is someone for whom no hint says Queue.
3. After a failed attempt, whoever waits in the pool is someone for whom no hint says Queue of what happened since its pop.
4. Nothing is kept for pods in flight when there are none.
5. Who is popped is who was first; among equals, who came first.
6. A queue that is dumped and loaded goes on as the one that was not.

`TIDELOG_QUEUE_HISTORIES` sets the number of long histories.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queue.toys import (
    NODE_ADD,
    NODE_LABEL,
    POD_DELETE,
    TARGET_LABEL,
    Bench,
    Gate,
    Toy,
    all_pods,
    members_of,
    node,
    on,
    uid,
)
from tests.thorough import cases
from tidelog.api.objects import Pod
from tidelog.api.times import NANOS
from tidelog.framework.events import TIME, ClusterEvent, Hint, Tick, WaitingPod, matches
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.queue.group_rules import QueuedGroupInfo
from tidelog.queue.scheduling_queue import QueueRejection
from tidelog.testing import builders as build

HISTORIES = cases(40, "TIDELOG_QUEUE_HISTORIES")
EVENTS = [NODE_ADD, NODE_LABEL, POD_DELETE]
REJECTORS = ["A", "B", "Deaf", "Timer"]
Happened = tuple[ClusterEvent, Any, Any]


def picky(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """Queue for objects whose name ends as the pod's does."""
    thing = old if new is None else new
    return Hint.QUEUE if thing.metadata.name[-1] == waiting.pod.metadata.name[-1] else Hint.SKIP


def labelled(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.QUEUE if "a" in new.metadata.labels.values() else Hint.SKIP


def overdue(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    deadline = waiting.first_rejected_at["Timer"] + 20 * NANOS
    return Hint.QUEUE if waiting.attempted_at < deadline <= new.at else Hint.SKIP


def new_bench() -> Bench:
    return Bench(
        Gate("Hold", on(NODE_LABEL)),
        Toy("A", on(NODE_ADD, picky), on(TARGET_LABEL, labelled)),
        Toy("B", on(NODE_LABEL), on(POD_DELETE, picky)),
        Toy("Deaf"),
        Toy("Timer", on(TIME, overdue), on(NODE_ADD, picky)),
    )


class Life:
    """A queue, a twin that is reloaded now and then, and what is known about both from outside."""

    def __init__(self) -> None:
        self.bench, self.twin = new_bench(), new_bench()
        self.pending: dict[str, build.PodBuilder] = {}
        self.flying: dict[str, list[Happened]] = {}
        self.cycling: dict[str, list[str]] = {}
        self.infos: dict[str, QueuedGroupInfo] = {}

    def both(self, call: Any) -> Any:
        """The same call on both queues, which have to answer alike."""
        answers = [call(bench) for bench in (self.bench, self.twin)]
        assert answers[0] == answers[1]
        return answers[0]

    def happened(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """What pods in flight miss."""
        for missed in self.flying.values():
            missed.append((event, old, new))

    # --- operations -----------------------------------------------------------------------------------------------------

    def add_or_update(self, rnd: Random) -> None:
        name = f"p{rnd.randrange(12)}"
        old = self.pending.get(name)
        if old is None:
            pod = build.pod(name).priority(rnd.choice([0, 0, 5]))
            if rnd.random() < 0.5:
                pod = pod.group(rnd.choice("gh"))
            if rnd.random() < 0.2:
                pod = pod.gate("Hold")
            self.both(lambda bench: bench.add(pod))
            # A namesake in flight is then the new pod's attempt, with nothing that happened before to its name.
            if uid(name) in self.flying:
                self.flying[uid(name)] = []
        else:
            pod = old.label(zone=rnd.choice("ab"))
            changes = [TARGET_LABEL] if pod.build().metadata.labels != old.build().metadata.labels else []
            self.both(lambda bench: bench.update(pod, *changes))
            if changes and uid(name) in self.flying:
                self.flying[uid(name)].append((TARGET_LABEL, old.build(), pod.build()))
        self.pending[name] = pod

    def delete(self, rnd: Random) -> None:
        if self.pending:
            name = rnd.choice(sorted(self.pending))
            pod = self.pending.pop(name).build()
            self.both(lambda bench: bench.queue.delete(pod, bench.now))

    def pop(self, rnd: Random) -> None:
        contents = self.bench.queue.contents()
        first = next(iter([*contents.active, *contents.backoff_rejected]), None)
        key = self.both(lambda bench: getattr(bench.pop(), "key", None))
        assert key == (first.key if first else None)
        if isinstance(first, QueuedGroup):
            self.cycling[first.key] = [pod.uid for pod in first.popped]
            self.flying.update({pod.uid: [] for pod in first.popped})
        elif first is not None:
            self.flying[first.uid] = []

    def fail(self, rnd: Random) -> None:
        choices = sorted(self.flying.keys() - {u for uids in self.cycling.values() for u in uids})
        if not choices:
            return
        name = rnd.choice(choices)
        unschedulable, pending = some_rejection(rnd)
        now = self.bench.now
        self.both(lambda bench: bench.queue.fail(name, unschedulable, pending, now=now))
        self.settled(name, self.flying.pop(name))

    def done_or_abort(self, rnd: Random) -> None:
        choices = sorted(self.flying.keys() - {u for uids in self.cycling.values() for u in uids})
        if not choices:
            return
        name = rnd.choice(choices)
        del self.flying[name]
        if rnd.random() < 0.6:
            self.both(lambda bench: bench.queue.done(name))
            self.pending.pop(name.removeprefix("default/"), None)
        else:
            self.both(lambda bench: bench.queue.abort(name, bench.now))

    def finish_group(self, rnd: Random) -> None:
        if not self.cycling:
            return
        key = rnd.choice(sorted(self.cycling))
        uids = self.cycling.pop(key)
        if rnd.random() < 0.2:
            self.both(lambda bench: bench.queue.abort_group(key, bench.now))
            for name in uids:
                del self.flying[name]
            return
        status = rnd.choice(["success", "unschedulable", "unschedulable", "error"])
        failed = {
            name: QueueRejection(*some_rejection(rnd))
            for name in uids
            if status != "success" or rnd.random() < 0.5
        }
        self.both(lambda bench: bench.finish_group(key, status, failed))
        missed = [happened for name in uids[:1] for happened in self.flying[name]]
        for name in failed:
            del self.flying[name]
        group = self.bench.queue.get_group(key)
        if group is not None and group.where == "unschedulable" and not group.is_gated:
            self.nobody_says_queue(group, missed)

    def event(self, rnd: Random) -> None:
        event = rnd.choice(EVENTS)
        thing: Any = (
            node(f"n{rnd.randrange(10)}")
            if event is not POD_DELETE
            else build.pod(f"x{rnd.randrange(10)}").build()
        )
        old, new = (thing, None) if event is POD_DELETE else (None, thing)
        self.both(lambda bench: bench.event(event, old, new))
        self.happened(event, old, new)
        self.nobody_is_left(event, old, new)

    def tick(self, rnd: Random) -> None:
        self.both(lambda bench: bench.tick())
        self.happened(TIME, None, Tick(self.bench.now))
        self.nobody_is_left(TIME, None, Tick(self.bench.now))

    def pass_time(self, rnd: Random) -> None:
        seconds = rnd.choice([0.5, 1, 3, 12, 120])
        self.both(lambda bench: bench.advance(seconds))

    def turn_gate(self, rnd: Random) -> None:
        closed = rnd.random() < 0.4
        for bench in (self.bench, self.twin):
            bench.plugins[0].closed = closed

    def change_group(self, rnd: Random) -> None:
        key = f"default/{rnd.choice('gh')}"
        if key in self.infos and rnd.random() < 0.2:
            del self.infos[key]
            self.both(lambda bench: bench.queue.delete_group(key))
            return
        self.infos[key] = info = QueuedGroupInfo(
            key=key,
            priority=rnd.choice([0, 5]),
            min_count=rnd.choice([0, 2, 4]),
            desired_count=rnd.choice([0, 3]),
            desired_count_wait=rnd.choice([0, 5 * NANOS]),
            placed=rnd.choice([0, 1]),
        )
        self.both(lambda bench: bench.queue.add_group(info, bench.now))

    def activate(self, rnd: Random) -> None:
        if self.pending:
            pod = self.pending[rnd.choice(sorted(self.pending))].build()
            self.both(lambda bench: bench.queue.activate([pod], bench.seq, bench.now))

    def reload_twin(self, rnd: Random) -> None:
        self.twin.reload()

    # --- laws -----------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        found = Counter(pod.uid for pod in all_pods(self.bench.queue))
        assert found == Counter({*map(uid, self.pending), *self.flying})
        assert len(self.bench.queue) == len(self.pending)
        if not self.flying:
            assert self.bench.queue.in_flight.timeline() == []
        assert self.bench.queue.dump_state() == self.twin.queue.dump_state()

    def settled(self, name: str, missed: list[Happened]) -> None:
        """The attempt of a single pod has failed."""
        pod = self.bench.queue.get(name)
        if pod is not None and not pod.group and pod.where == "unschedulable" and not pod.is_gated:
            self.nobody_says_queue(pod, missed)

    def nobody_is_left(self, event: ClusterEvent, old: Any, new: Any) -> None:
        for entity in self.bench.queue.contents().unschedulable:
            if not entity.is_gated:
                self.nobody_says_queue(entity, [(event, old, new)])

    def nobody_says_queue(self, entity: AnyEntity, missed: list[Happened]) -> None:
        """By asking every rejector of every pod of every event, one after the other."""
        for pod in members_of(entity):
            rejectors = {*pod.unschedulable_plugins, *pod.pending_plugins, *entity.unschedulable_plugins}
            for plugin in self.bench.plugins:
                if plugin.name not in rejectors:
                    continue
                for event, old, new in missed:
                    if event is TARGET_LABEL and not is_own(pod, new):
                        continue
                    answers = [r.hint(pod, old, new) for r in plugin.registrations if matches(r.event, event)]
                    assert Hint.QUEUE not in answers, (pod.key, plugin.name, event)


def is_own(pod: QueuedPod, new: Pod) -> bool:
    return pod.key == f"{new.metadata.namespace}/{new.metadata.name}"


def some_rejection(rnd: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    unschedulable = tuple(sorted(set(rnd.choices(REJECTORS, k=rnd.choice([0, 1, 1, 2])))))
    return unschedulable, (("A",) if rnd.random() < 0.15 else ())


OPERATIONS = {
    Life.add_or_update: 6,
    Life.delete: 1,
    Life.pop: 6,
    Life.fail: 4,
    Life.done_or_abort: 1,
    Life.finish_group: 3,
    Life.event: 4,
    Life.tick: 2,
    Life.pass_time: 3,
    Life.turn_gate: 1,
    Life.change_group: 2,
    Life.activate: 1,
    Life.reload_twin: 1,
}


def live(rnd: Random, length: int) -> None:
    life = Life()
    for operation in rnd.choices(list(OPERATIONS), list(OPERATIONS.values()), k=length):
        operation(life, rnd)
        life.check()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_long_lives_obey_the_laws(seed: int) -> None:
    live(Random(seed), 150)


@settings(max_examples=cases(20))
@given(rnd=st.randoms(use_true_random=False))
def test_short_lives_obey_the_laws(rnd: Random) -> None:
    live(rnd, 30)
