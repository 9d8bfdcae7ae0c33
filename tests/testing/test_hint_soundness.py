"""The soundness check finds the hint that sleeps, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.queue.toys import NODE_ADD, NODE_LABEL, POD_DELETE, Bench, Toy, node, on, uid
from tidelog.api.objects import Pod
from tidelog.framework.events import Action, ClusterEvent, Hint, HintFn, Resource, WaitingPod
from tidelog.queue.group_rules import QueuedGroupInfo
from tidelog.queue.scheduling_queue import QueueRejection
from tidelog.testing import builders as build
from tidelog.testing.hint_soundness import HintAnswer, HintSoundness, Sleeper, left_asleep

NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


class SmallCluster:
    """Nodes with a label and a number of places; a pod fits where its label and a free place are."""

    def __init__(self, zone_hint: HintFn, room_hint: HintFn) -> None:
        self.zones: dict[str, str] = {}
        self.room: dict[str, int] = {}
        self.occupants: dict[str, str] = {}
        zone = Toy("Zone", on(NODE_ADD, zone_hint), on(NODE_LABEL, zone_hint))
        room = Toy("Room", on(NODE_ADD, None), on(POD_DELETE, room_hint))
        self.bench = Bench(zone, room)

    def rejectors(self, pod: Pod) -> tuple[str, ...]:
        """Who rejects the pod on some node; nobody if one fits."""
        wanted = pod.spec.node_selector["zone"]
        found = set()
        for name, zone in self.zones.items():
            if zone != wanted:
                found.add("Zone")
            elif list(self.occupants.values()).count(name) >= self.room[name]:
                found.add("Room")
            else:
                return ()
        return tuple(sorted(found)) or ("Zone",)

    def fits(self, pod: Pod) -> bool:
        return self.rejectors(pod) == ()

    def try_all(self) -> None:
        """Until nothing may be tried any more."""
        while (popped := self.bench.pop()) is not None:
            pod = popped.pod  # type: ignore[union-attr]
            if (rejectors := self.rejectors(pod)) != ():
                self.bench.reject(pod.metadata.name, *rejectors)
                continue
            wanted = pod.spec.node_selector["zone"]
            for name, zone in self.zones.items():
                if zone == wanted and list(self.occupants.values()).count(name) < self.room[name]:
                    self.occupants[pod.metadata.name] = name
                    break
            self.bench.queue.done(uid(pod.metadata.name))

    def apply(self, change: tuple[str, str, str]) -> None:
        """One random change, and what the queue hears of it."""
        kind, name, zone = change
        if kind == "node" and name not in self.zones:
            self.zones[name], self.room[name] = zone, 2
            self.bench.event(NODE_ADD, None, node(name, zone=zone))
        elif kind == "node":
            old, self.zones[name] = self.zones[name], zone
            self.bench.event(NODE_LABEL, node(name, zone=old), node(name, zone=zone))
        elif name in self.occupants:
            on_node = self.occupants.pop(name)
            self.bench.event(POD_DELETE, build.pod(name).on(on_node).build(), None)

    def changes(self, rnd: Random, count: int) -> Iterator[tuple[str, str, str]]:
        for number in range(count):
            if rnd.random() < 0.3:
                pod = build.pod(f"p{number}").node_selector(zone=rnd.choice("abc"))
                self.bench.add(pod)
            self.try_all()
            self.bench.wait(60)
            if rnd.random() < 0.5 or not self.occupants:
                yield ("node", f"n{rnd.randrange(3)}", rnd.choice("abc"))
            else:
                yield ("leave", rnd.choice(sorted(self.occupants)), "")


def zone_matches(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    wanted = waiting.pod.spec.node_selector["zone"]
    return Hint.QUEUE if new.metadata.labels["zone"] == wanted else Hint.SKIP


def only_new_nodes(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """Wrong: a node that exists can come into the zone by its label."""
    return zone_matches(waiting, old, new) if old is None else Hint.SKIP


def always(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.QUEUE


def never(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.SKIP


def sleepers(cluster: SmallCluster, steps: int = 300) -> list[Sleeper]:
    check = HintSoundness(cluster.bench.queue, apply=cluster.apply, fits=cluster.fits)
    return [sleeper for change in cluster.changes(Random(3), steps) for sleeper in check.step(change)]


def test_sound_hints_leave_nobody_asleep() -> None:
    assert sleepers(SmallCluster(zone_matches, always)) == []


@pytest.mark.parametrize(("zone_hint", "room_hint"), [(only_new_nodes, always), (zone_matches, never)])
def test_a_hint_that_sleeps_is_found(zone_hint: HintFn, room_hint: HintFn) -> None:
    found = sleepers(SmallCluster(zone_hint, room_hint))

    assert found != []


def test_the_report_names_the_pod_its_rejectors_and_what_the_hints_said() -> None:
    cluster = SmallCluster(only_new_nodes, always)
    cluster.apply(("node", "n0", "b"))
    cluster.bench.add(build.pod("p").node_selector(zone="a"))
    cluster.try_all()
    check = HintSoundness(cluster.bench.queue, apply=cluster.apply, fits=cluster.fits)

    found = check.step(("node", "n0", "a"))

    assert found == [
        Sleeper("default/p", ("Zone",), (HintAnswer("Zone", "NodeUpdateNodeLabel", "QueueSkip"),))
    ]
    assert str(found[0]) == (
        "pod default/p, rejected by Zone, fits and was left asleep (Zone of NodeUpdateNodeLabel: QueueSkip)"
    )


def test_a_missing_registration_is_reported_as_such() -> None:
    bench = Bench(Toy("Deaf"))
    bench.add_and_reject("p", "Deaf")

    found = HintSoundness(bench.queue, apply=lambda _: bench.node_added(), fits=lambda _: True).step(None)

    assert str(found[0]).endswith("(no hint was asked)")


def test_events_during_an_attempt_are_checked_too() -> None:
    def during_attempt(hint: HintFn) -> list[Sleeper]:
        bench = Bench(Toy("Fit", on(NODE_ADD, hint)))
        bench.add("p")
        bench.pop()

        def apply(_: None) -> None:
            bench.node_added()
            bench.reject("p", "Fit")

        return HintSoundness(bench.queue, apply=apply, fits=lambda _: True).step(None)

    assert during_attempt(always) == []
    assert [s.pod for s in during_attempt(never)] == ["default/p"]


def test_gated_pods_may_sleep_and_members_of_groups_may_not() -> None:
    bench = Bench(Toy("Deaf"))
    bench.queue.add_group(QueuedGroupInfo(key="default/g"), bench.now)
    bench.queue.add_group(QueuedGroupInfo(key="default/short", min_count=2), bench.now)
    bench.add(build.pod("gated").group("short"), build.pod("a").group("g"), build.pod("b").group("g"))
    bench.pop()
    why = {uid("a"): QueueRejection(("Deaf",)), uid("b"): QueueRejection(("Deaf",))}
    bench.finish_group("default/g", "unschedulable", why)

    found = left_asleep(bench.queue, lambda pod: pod.metadata.name != "b")

    assert [pod.key for pod in found] == ["default/a"]
