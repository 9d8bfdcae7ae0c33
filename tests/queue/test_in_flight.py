"""What is kept for pods in flight, for how long, and who is shown what."""

from __future__ import annotations

from typing import Any

from tests.queue.toys import NODE_ADD, NODE_LABEL, TARGET_LABEL, node
from tidelog.api.objects import Pod
from tidelog.framework.events import FORCE_ACTIVATE, TIME, WILDCARD, ClusterEvent, Tick
from tidelog.queue.entity import QueuedPod
from tidelog.queue.in_flight import Attempt, InFlight
from tidelog.testing import builders as build


def pod(name: str) -> QueuedPod:
    return QueuedPod(
        key=f"default/{name}", uid=name, pod=build.pod(name).uid(name).build(), profile="", timestamp=0
    )


class Flights:
    """In-flight tracking with few words."""

    def __init__(self, *, upstream: bool = False) -> None:
        self.flying = InFlight(upstream=upstream)
        self.seq = 0

    def begin(self, *names: str) -> None:
        for name in names:
            self.flying.begin(pod(name), 1, self.seq, 0)

    def happen(self, event: ClusterEvent, new: Any = None) -> None:
        self.seq += 1
        self.flying.record(self.seq, event, None, new)

    def missed(self, uid: str, *kinds: ClusterEvent) -> list[int]:
        """The seqs of what is shown to the pod if these kinds concern it."""
        return [e.seq for e in self.flying.missed_by(uid, lambda event: event in kinds)]

    def line(self) -> list[str | int]:
        return [m.pod.uid if isinstance(m, Attempt) else m.seq for m in self.flying.timeline()]


def named(name: str) -> Pod:
    return build.pod(name).uid(name).build()


def test_pod_is_shown_what_happened_since_its_pop() -> None:
    f = Flights()
    f.begin("a")
    f.happen(NODE_ADD)
    f.begin("b")
    f.happen(NODE_ADD)

    assert f.line() == ["a", 1, "b", 2]
    assert f.missed("a", NODE_ADD) == [1, 2]
    assert f.missed("b", NODE_ADD) == [2]


def test_pod_is_shown_only_the_kinds_that_concern_it_and_in_order() -> None:
    f = Flights()
    f.begin("a")
    for event in (NODE_ADD, NODE_LABEL, WILDCARD, NODE_ADD):
        f.happen(event)

    assert f.missed("a", NODE_ADD) == [1, 4]
    assert f.missed("a", NODE_ADD, WILDCARD) == [1, 3, 4]
    assert f.missed("a") == []


def test_update_and_activation_of_a_pod_are_its_own_business() -> None:
    f = Flights()
    f.begin("a", "b")
    f.happen(TARGET_LABEL, named("a"))
    f.happen(FORCE_ACTIVATE, named("b"))

    assert f.missed("a", TARGET_LABEL, FORCE_ACTIVATE) == [1]
    assert f.missed("b", TARGET_LABEL, FORCE_ACTIVATE) == [2]
    # What is its own is shown whatever it registered for; the hints decide.
    assert f.missed("a") == [1]


def test_upstream_shows_a_pods_update_to_all() -> None:
    f = Flights(upstream=True)
    f.begin("a", "b")
    f.happen(TARGET_LABEL, named("a"))
    f.happen(FORCE_ACTIVATE, named("a"))

    assert f.missed("b", TARGET_LABEL, FORCE_ACTIVATE) == [1]
    assert f.missed("a", TARGET_LABEL, FORCE_ACTIVATE) == [1, 2]


def test_events_are_freed_when_the_oldest_attempt_ends_and_not_before() -> None:
    f = Flights()
    f.begin("a")
    f.happen(NODE_ADD)
    f.begin("b")
    f.happen(NODE_LABEL)
    f.begin("c")

    f.flying.end("b")
    assert f.line() == ["a", 1, 2, "c"]

    f.flying.end("a")
    assert f.line() == ["c"]
    assert f.missed("c", NODE_ADD, NODE_LABEL) == []


def test_ending_twice_is_harmless() -> None:
    f = Flights()
    f.begin("a", "b")
    f.happen(NODE_ADD)

    assert f.flying.end("a") is not None
    assert f.flying.end("a") is None
    assert f.flying.end("never") is None

    assert f.line() == ["b", 1]


def test_nothing_is_kept_when_nothing_is_in_flight() -> None:
    f = Flights()
    for name in "abc":
        f.begin(name)
        f.happen(NODE_ADD)
        f.happen(TARGET_LABEL, named(name))
    assert f.flying.event_counts() == {"NodeAdd": 3, "TargetPodUpdatePodLabel": 3, "PodPopped": 3}

    for name in "bca":
        f.flying.end(name)

    assert f.line() == []
    assert f.flying.event_counts() == {"PodPopped": 0}
    assert f.flying._by_kind == {}
    assert f.flying._by_pod == {}


def test_of_ticks_in_a_row_only_the_last_is_kept() -> None:
    f = Flights()
    f.begin("a")
    for at in (1, 2, 3):
        f.happen(TIME, Tick(at))
    f.happen(NODE_ADD)
    f.happen(TIME, Tick(4))

    assert f.line() == ["a", 3, 4, 5]
    assert [e.new for e in f.flying.missed_by("a", lambda event: event == TIME)] == [Tick(3), Tick(4)]


def test_a_tick_before_a_pop_is_kept_for_the_older_attempt() -> None:
    f = Flights()
    f.begin("a")
    f.happen(TIME, Tick(1))
    f.begin("b")
    f.happen(TIME, Tick(2))

    assert f.line() == ["a", 1, "b", 2]
    assert f.missed("b", TIME) == [2]

    f.flying.end("b")
    f.happen(TIME, Tick(3))

    assert f.line() == ["a", 1, 3]


def test_positions_go_on_after_everything_was_freed() -> None:
    f = Flights()
    f.begin("a")
    f.happen(NODE_ADD)
    f.flying.end("a")
    f.begin("b")
    f.happen(NODE_LABEL)

    assert f.missed("b", NODE_ADD, NODE_LABEL) == [2]


def test_a_failed_attempt_costs_what_concerns_it_and_not_what_happened_to_others() -> None:
    f = Flights()
    names = [f"p{i}" for i in range(100)]
    f.begin(*names)
    for name in names:
        f.happen(TARGET_LABEL, named(name))
        f.happen(NODE_ADD, node(name))
    asked: list[ClusterEvent] = []

    found = f.flying.missed_by("p7", lambda event: bool(asked.append(event)))

    assert [e.new.metadata.name for e in found] == ["p7"]
    assert asked == [NODE_ADD]


def test_everything_since_the_pop_is_shown_however_much_it_is() -> None:
    f = Flights()
    f.begin("a")

    for _ in range(5_000):
        f.happen(NODE_LABEL, node("n"))

    assert f.missed("a", NODE_LABEL) == list(range(1, 5_001))
    assert f.line() == ["a", *range(1, 5_001)]
