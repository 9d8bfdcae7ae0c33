"""Who is asked about an event, and what the answers do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.toys import (
    NODE_ADD,
    NODE_LABEL,
    TARGET_LABEL,
    Bench,
    Listener,
    Toy,
    broken,
    for_me,
    no,
    node,
    on,
    toy,
    yes,
)
from tidelog.api.errors import InvalidObjects, PluginError
from tidelog.framework.events import (
    FORCE_ACTIVATE,
    TIME,
    WILDCARD,
    Action,
    ClusterEvent,
    EventRegistration,
    Resource,
    Tick,
)
from tidelog.framework.interface import Plugin, Status
from tidelog.queue.entity import QueuedGroup, QueuedPod, Strategy
from tidelog.queue.hints import HintMap, registrations_of
from tidelog.queue.in_flight import InFlightEvent
from tidelog.testing import builders as build


def waiting(
    *unschedulable: str, pending: tuple[str, ...] = (), name: str = "p", profile: str = ""
) -> QueuedPod:
    pod = build.pod(name).build()
    return QueuedPod(
        key=f"default/{name}",
        uid=f"default/{name}",
        pod=pod,
        profile=profile,
        timestamp=0,
        unschedulable_plugins=unschedulable,
        pending_plugins=pending,
    )


def hint_map(*plugins: Any, **options: Any) -> HintMap:
    return HintMap({"": plugins}, **options)


class Silent(Plugin):
    """A plugin that can reject and declares nothing."""

    name = "Silent"

    def filter(self, state: object, pod: object, node: object) -> Status | None:
        return None


class Scorer(Plugin):
    """A plugin that cannot reject and declares nothing."""

    name = "Scorer"

    def score(self, state: object, pod: object, node: object) -> int:
        return 0


# --- what is registered -------------------------------------------------------------------------------------------------


def test_plugin_that_declares_nothing_hears_of_pods_nodes_volumes_and_devices() -> None:
    hints = hint_map(Silent(None, None))  # type: ignore[arg-type]

    interested = {r for r in Resource if hints.interested(ClusterEvent(r, Action.ADD))}

    assert interested == {
        Resource.ASSIGNED_POD,
        Resource.UNSCHEDULED_POD,
        Resource.TARGET_POD,
        Resource.NODE,
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.STORAGE_CLASS,
        Resource.RESOURCE_CLAIM,
        Resource.DEVICE_CLASS,
        Resource.POD_GROUP,
    }


def test_plugin_that_cannot_reject_and_declares_nothing_hears_nothing() -> None:
    assert registrations_of([Scorer(None, None)]) == {"Scorer": ()}  # type: ignore[arg-type]


def test_plugin_that_declares_an_empty_list_hears_nothing() -> None:
    assert hint_map(Toy("Deaf")).interested(NODE_ADD) == ()


def test_time_without_a_hint_is_refused_by_name() -> None:
    plugins: Any = [toy("Fine", TIME, no), Toy("Hasty", on(NODE_ADD), on(TIME, None))]

    with pytest.raises(InvalidObjects) as refused:
        hint_map(*plugins)

    assert str(refused.value) == (
        "the list of plugins is invalid: plugins[Hasty].eventsToRegister[1]: Required value: "
        "a registration for Time needs a hint"
    )


def test_plugin_that_fails_to_register_is_named() -> None:
    class Failing(Toy):
        def events_to_register(self) -> list[EventRegistration]:
            raise ValueError("no events today")

    with pytest.raises(
        PluginError, match="plugin A: cannot say what may wake its pods: ValueError: no events today"
    ):
        registrations_of([Failing("A")])  # type: ignore[list-item]


def test_time_is_heard_only_by_who_registered_for_it() -> None:
    everything = Toy("All", on(WILDCARD))
    hints = hint_map(everything, Silent(None, None), toy("Timer", TIME))  # type: ignore[arg-type]

    assert hints.interested(TIME) == (("", "Timer"),)


def test_event_is_matched_in_every_profile() -> None:
    hints = HintMap({"a": [toy("X", NODE_ADD)], "b": [toy("Y", NODE_ADD), toy("Z", NODE_LABEL)]})  # type: ignore[list-item]

    assert hints.interested(NODE_ADD) == (("a", "X"), ("b", "Y"))


@pytest.mark.parametrize(
    ("registered", "event", "is_heard"),
    [
        ((Resource.NODE, Action.UPDATE), (Resource.NODE, Action.UPDATE_NODE_LABEL), True),
        ((Resource.NODE, Action.UPDATE_NODE_LABEL), (Resource.NODE, Action.UPDATE), False),
        ((Resource.NODE, Action.ADD | Action.DELETE), (Resource.NODE, Action.DELETE), True),
        ((Resource.POD, Action.ADD), (Resource.UNSCHEDULED_POD, Action.ADD), True),
        ((Resource.ASSIGNED_POD, Action.ADD), (Resource.UNSCHEDULED_POD, Action.ADD), False),
        ((Resource.WILDCARD, Action.ADD), (Resource.NODE, Action.ADD), True),
        ((Resource.WILDCARD, Action.ALL), (Resource.CSI_NODE, Action.UPDATE), True),
    ],
)
def test_sub_actions_and_wildcards_match(
    registered: tuple[Resource, Action], event: tuple[Resource, Action], is_heard: bool
) -> None:
    hints = hint_map(toy("P", ClusterEvent(*registered)))

    assert bool(hints.interested(ClusterEvent(*event))) == is_heard


# --- verdicts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugins", "pod", "expected"),
    [
        ([toy("A", NODE_ADD, yes)], waiting("A"), Strategy.AFTER_BACKOFF),
        ([toy("A", NODE_ADD, no)], waiting("A"), Strategy.SKIP),
        ([toy("A", NODE_ADD, None)], waiting("A"), Strategy.AFTER_BACKOFF),
        ([toy("A", NODE_ADD, broken)], waiting("A"), Strategy.AFTER_BACKOFF),
        # Who did not reject the pod is not asked; who registered for something else is silent.
        ([toy("A", NODE_ADD, yes), toy("B", NODE_LABEL)], waiting("B"), Strategy.SKIP),
        # One Queue is enough.
        ([toy("A", NODE_ADD, no), toy("B", NODE_ADD, yes)], waiting("A", "B"), Strategy.AFTER_BACKOFF),
        # Two registrations of a plugin, one of which says yes.
        ([Toy("A", on(NODE_ADD, no), on(WILDCARD, yes))], waiting("A"), Strategy.AFTER_BACKOFF),
        # Only a pending plugin's own Queue skips the backoff.
        ([toy("A", NODE_ADD, yes)], waiting(pending=("A",)), Strategy.IMMEDIATELY),
        ([toy("A", NODE_ADD, yes)], waiting("A", pending=("A",)), Strategy.IMMEDIATELY),
        (
            [toy("A", NODE_ADD, yes), toy("B", NODE_ADD, no)],
            waiting("A", pending=("B",)),
            Strategy.AFTER_BACKOFF,
        ),
        (
            [toy("A", NODE_ADD, yes), toy("B", NODE_ADD, yes)],
            waiting("A", pending=("B",)),
            Strategy.IMMEDIATELY,
        ),
        ([toy("A", NODE_ADD, broken)], waiting(pending=("A",)), Strategy.IMMEDIATELY),
        # An error blamed nobody; a profile that is not there has no hints to ask.
        ([toy("A", NODE_ADD, no)], waiting(), Strategy.AFTER_BACKOFF),
        ([toy("A", NODE_ADD, no)], waiting("A", profile="gone"), Strategy.AFTER_BACKOFF),
    ],
)
def test_verdict_for_one_event(plugins: list[Any], pod: QueuedPod, expected: Strategy) -> None:
    assert hint_map(*plugins).strategy(pod, NODE_ADD, None, node("n")) == expected


def test_wildcard_leads_through_the_backoff_even_for_pending_plugins() -> None:
    hints = hint_map(toy("A", NODE_ADD))

    assert hints.strategy(waiting(pending=("A",)), WILDCARD, None, None) == Strategy.AFTER_BACKOFF


def test_any_resource_with_one_action_is_not_the_wildcard() -> None:
    something_gone = ClusterEvent(Resource.WILDCARD, Action.DELETE)
    bench = Bench(toy("A", NODE_LABEL), toy("B", something_gone, no))
    bench.add_and_reject("a", "A")
    bench.add_and_reject("b", "B")

    bench.event(something_gone, node("n"), None)

    assert [bench.where("a"), bench.where("b")] == ["unschedulable", "unschedulable"]


def test_activation_of_another_pod_wakes_nobody() -> None:
    hints = hint_map(toy("A", NODE_ADD))
    other, own = build.pod("other").build(), build.pod("p").build()

    assert hints.strategy(waiting("A"), FORCE_ACTIVATE, None, other) == Strategy.SKIP
    assert hints.strategy(waiting("A"), FORCE_ACTIVATE, None, own) == Strategy.AFTER_BACKOFF
    assert hints.strategy(waiting("A"), WILDCARD, None, node("n")) == Strategy.SKIP


def test_update_of_another_pod_is_not_the_waiting_pods_business_unless_upstream() -> None:
    plugin, other = toy("A", TARGET_LABEL), build.pod("other").build()

    assert hint_map(plugin).strategy(waiting("A"), TARGET_LABEL, other, other) == Strategy.SKIP
    upstream = hint_map(plugin, upstream=True)
    assert upstream.strategy(waiting("A"), TARGET_LABEL, other, other) == Strategy.AFTER_BACKOFF


def test_with_the_gate_off_every_registered_event_counts_as_queue() -> None:
    calls: list[str] = []

    def hint(waiting: Any, old: Any, new: Any) -> Any:
        calls.append("asked")
        return no(waiting, old, new)

    hints = hint_map(toy("A", NODE_ADD, hint), toy("B", NODE_LABEL), ask_hints=False)

    assert hints.strategy(waiting("A"), NODE_ADD, None, node("n")) == Strategy.AFTER_BACKOFF
    assert hints.strategy(waiting("B"), NODE_ADD, None, node("n")) == Strategy.SKIP
    assert calls == []


def test_a_hint_sees_the_waiting_pod_and_the_changed_object() -> None:
    hints = hint_map(toy("A", NODE_ADD, for_me))

    assert hints.strategy(waiting("A", name="p"), NODE_ADD, None, node("p")) == Strategy.AFTER_BACKOFF
    assert hints.strategy(waiting("A", name="p"), NODE_ADD, None, node("q")) == Strategy.SKIP


def test_an_answer_that_is_no_hint_counts_as_a_failed_one() -> None:
    listener = Listener()
    hints = hint_map(toy("A", NODE_ADD, lambda *_: None))  # type: ignore[arg-type, return-value]
    hints.observer = listener

    assert hints.strategy(waiting("A"), NODE_ADD, None, node("n")) == Strategy.AFTER_BACKOFF
    assert listener.answers == [("p", "A", "NodeAdd", "Error")]


def test_observer_hears_every_answer() -> None:
    listener = Listener()
    bench = Bench(
        toy("A", NODE_ADD, no), toy("B", NODE_ADD, broken), toy("C", NODE_ADD, yes), observer=listener
    )
    bench.add_and_reject("p", "A", "B")

    bench.node_added()

    assert listener.answers == [("p", "A", "NodeAdd", "QueueSkip"), ("p", "B", "NodeAdd", "Error")]
    assert listener.entries == [
        ("default/p", "active", "UnscheduledPodAdd"),
        ("default/p", "unschedulable", "ScheduleAttemptFailure"),
        ("default/p", "active", "NodeAdd"),
    ]


def test_registrations_are_matched_once_per_kind_of_event(monkeypatch: pytest.MonkeyPatch) -> None:
    hints = hint_map(toy("A", NODE_ADD, no))
    calls: list[ClusterEvent] = []
    real = HintMap._matching
    monkeypatch.setattr(
        HintMap, "_matching", lambda self, regs, event: calls.append(event) or real(self, regs, event)
    )

    for _ in range(5):
        hints.interested(NODE_ADD)
        hints.strategy(waiting("A"), NODE_ADD, None, node("n"))

    assert calls == [NODE_ADD, NODE_ADD]


def test_tick_carries_the_time_and_what_the_queue_knows_of_the_pod() -> None:
    seen: list[tuple[int, int, int]] = []

    def hint(waiting: Any, old: Any, new: Any) -> Any:
        assert isinstance(new, Tick)
        seen.append((waiting.first_rejected_at["Timer"], waiting.attempted_at, new.at))
        return no(waiting, old, new)

    bench = Bench(Toy("Timer", EventRegistration(TIME, hint)))
    bench.add_and_reject("p", "Timer")
    rejected_at = bench.now - 60_000_000_000

    bench.tick()

    assert seen == [(rejected_at, rejected_at, bench.now)]


# --- when a tick is worth while -----------------------------------------------------------------------------------------------


class Deadlines(Toy):
    """Waits for Time, and for nodes, and knows when which pod's time comes; anything else is its bug."""

    def __init__(self, name: str = "Timer", **due: int | None) -> None:
        super().__init__(name, on(NODE_ADD), EventRegistration(TIME, no))
        self.due = due

    def time_due(self, waiting: Any) -> int | None:
        return self.due[waiting.pod.metadata.name]


def group_of_waiting(*members: QueuedPod) -> QueuedGroup:
    return QueuedGroup(key="default/g", timestamp=0, hints=True, members={pod.key: pod for pod in members})


def test_time_is_due_as_soon_as_one_of_the_rejectors_says() -> None:
    hints = hint_map(Deadlines("A", p=20, q=None), Deadlines("B", p=10, q=None), toy("C", NODE_ADD))

    dues = [hints.time_due(waiting(*plugins)) for plugins in (("A",), ("A", "B"), ("C",), ())]

    assert dues == [20, 10, None, None]
    assert hints.time_due(waiting("A", "B", name="q")) is None


def test_time_is_due_for_a_group_as_soon_as_for_one_of_its_members() -> None:
    hints = hint_map(Deadlines(p=20, q=10))

    due = hints.time_due(group_of_waiting(waiting("Timer"), waiting("Timer", name="q")))

    assert due == 10


def test_plugin_of_one_profile_is_not_asked_about_members_of_another() -> None:
    hints = HintMap({"": [Deadlines(p=20)], "other": [Deadlines(q=10)]})  # type: ignore[list-item]

    due = hints.time_due(group_of_waiting(waiting("Timer"), waiting("Timer", name="q", profile="other")))

    assert due == 10


def test_every_tick_is_worth_while_for_a_plugin_that_does_not_tell_or_fails_to() -> None:
    hints = hint_map(Deadlines("Broken"), Toy("Silent", EventRegistration(TIME, no)))

    assert [hints.time_due(waiting("Broken")), hints.time_due(waiting("Silent"))] == [0, 0]


def test_the_first_tick_worth_while_is_when_the_first_deadline_of_the_pool_is_due() -> None:
    bench = Bench(Deadlines(late=900, early=700, never=None))
    for name in ("late", "early", "never"):
        bench.add_and_reject(name, "Timer")

    due = bench.queue.next_time_due()
    bench.queue.delete(build.pod("early").build(), bench.now)

    assert (due, bench.queue.next_time_due()) == (700, 900)


def test_judging_ends_with_the_best_answer_that_the_group_can_get() -> None:
    heard = Listener()
    hints = hint_map(toy("A", NODE_ADD), toy("B", NODE_ADD))
    hints.observer = heard
    group = group_of_waiting(waiting("A"), waiting("A", name="q"), waiting("B", name="r"))

    assert hints.strategy(group, NODE_ADD, None, node("n")) is Strategy.AFTER_BACKOFF
    assert [answer[0] for answer in heard.answers] == ["p"]

    group.members["default/r"].pending_plugins = ("B",)
    assert hints.strategy(group, NODE_ADD, None, node("n")) is Strategy.IMMEDIATELY
    assert [answer[0] for answer in heard.answers] == ["p", "p", "q", "r"]


def test_events_after_one_that_settles_the_matter_are_not_judged() -> None:
    heard = Listener()
    hints = hint_map(toy("A", NODE_ADD))
    hints.observer = heard
    events = [InFlightEvent(number, number, NODE_ADD, None, node("n")) for number in (1, 2)]

    best = [hints.best_strategy(pod, events) for pod in (waiting("A"), waiting(pending=("A",), name="q"))]

    assert best == [Strategy.AFTER_BACKOFF, Strategy.IMMEDIATELY]
    assert [answer[0] for answer in heard.answers] == ["p", "q"]
