"""A random history of a queue: whatever may happen, played on the real queue and on the naive one at once.

Every choice is made by a `random.Random`, which may be a seeded one or hypothesis's, so the same operations serve long
seeded histories and short ones that shrink.
"""

from __future__ import annotations

import copy
from collections import Counter
from random import Random
from typing import Any

import msgspec

from tests.queue.naive import NaiveQueue
from tests.queue.traces import driver
from tidelog.queue.entity import QueuedGroup

Json = dict[str, Any]

PLUGINS = ["NodeFit", "Taints", "Claims", "Volumes", "Deaf"]
GATES = [None, {"kind": "label", "label": "hold"}, {"kind": "scheduling_gates"}, {"kind": "gang"}]
UPDATES = ["UpdateNodeLabel", "UpdateNodeTaint", "UpdateNodeAllocatable", "Update"]
POD_UPDATES = ["UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodToleration", "Update"]
KINDS = [
    *(("Node", action) for action in ("Add", "Delete", *UPDATES)),
    *(
        (pods, action)
        for pods in ("AssignedPod", "UnscheduledPod")
        for action in ("Add", "Delete", *POD_UPDATES)
    ),
    *(("PersistentVolumeClaim", action) for action in ("Add", "Update")),
    ("storage.k8s.io/CSINode", "Update"),
]
REGISTERED = [
    *KINDS,
    *(("TargetPod", action) for action in POD_UPDATES),
    ("TargetPod", "UpdatePodSchedulingGatesEliminated"),
    ("Pod", "Add"),
    ("Pod", "Update"),
    ("*", "Add"),
    ("*", "All"),
]
PASSING = [1, 5, 300, 700, 1000, 1000, 2500, 11_000, 301_000]
NAMES = [f"p{i}" for i in range(1, 8)]
GROUPS = ["g1", "g2"]


def some_labels(rnd: Random) -> Json:
    return {key: rnd.choice("abc") for key in ("zone", "tier", "hold") if rnd.random() < 0.6}


def some_hint(rnd: Random) -> Json:
    kind = rnd.choice(
        [
            "queue",
            "skip",
            "error",
            "same_pod",
            "same_group",
            "label",
            "label_or_error",
            "match_pod_label",
            "changed",
        ]
    )
    return {"kind": kind, "key": rnd.choice(["zone", "tier"]), "value": rnd.choice("abc")}


def some_registration(rnd: Random) -> Json:
    resource, action = rnd.choice(REGISTERED)
    more = [] if action == "All" else rnd.choice([[], ["Add"], ["Delete"]])
    return {"resource": resource, "actions": sorted({action, *more}), "hint": some_hint(rnd)}


def some_case(rnd: Random) -> Json:
    """A configuration and its plugins."""
    plugins: list[Json] = [
        {"name": name, "events": [some_registration(rnd) for _ in range(rnd.choice([1, 2, 3]))]}
        for name in PLUGINS[:-1]
    ]
    plugins.append({"name": PLUGINS[-1], "events": []})
    gate = rnd.choice(GATES)
    if gate is not None:
        plugins.append(
            {"name": "Gate", "events": [some_registration(rnd), some_registration(rnd)], "gate": gate}
        )
    initial, maximum = rnd.choice([(1000, 10_000), (1000, 3000), (3000, 60_000), (700, 2500)])
    return {
        "config": {
            "pop_from_backoffq": rnd.random() < 0.75,
            "initial_backoff_ms": initial,
            "max_backoff_ms": maximum,
            "max_in_unschedulable_ms": 300_000,
        },
        "plugins": plugins,
        "groups": rnd.random() < 0.5,
        "label_gate": gate is not None and gate["kind"] == "label",
    }


class History:
    """Both queues, and the operations with which they are driven."""

    def __init__(self, rnd: Random) -> None:
        self.case = some_case(rnd)
        self.naive = NaiveQueue(self.case)
        self.real = driver.Trace(self.case)
        self.now = self.uids = 0
        self.steps: list[Json] = []
        self.seen: Counter[str] = Counter()

    def play(self, op: str, passing: int, **arguments: Any) -> None:
        """One step on both queues, which must be in the same state afterwards."""
        self.now += passing
        step = {"t_ms": self.now, "op": op, **arguments}
        self.steps.append(step)
        # Each keeps what it is given, and neither may see what the other does with it.
        expected = self.naive.step(copy.deepcopy(step))
        actual = self.real.step(copy.deepcopy(step))
        assert expected == actual, step
        self.seen.update([op, *(pod["where"] for pod in actual["pods"].values())])

    @property
    def flying(self) -> list[str]:
        return list(self.naive.flying)

    # --- what may happen ----------------------------------------------------------------------------------------------

    def add_or_update(self, rnd: Random) -> None:
        name = rnd.choice(NAMES)
        old = self.naive.store.get(name)
        pod: Json = {
            "name": name,
            "priority": rnd.choice([0, 0, 10]),
            "labels": some_labels(rnd),
            "cpu": rnd.choice([100, 200]),
            "scheduling_gates": rnd.choice([[], [], ["x"], ["x", "y"]]),
            "tolerations": rnd.choice([0, 1]),
        }
        if old is None:
            self.uids += 1
            pod["uid"] = f"{name}-{self.uids}"
            if self.case["groups"] and rnd.random() < 0.7:
                pod["group"] = rnd.choice(GROUPS)
            self.play("add", rnd.choice(PASSING), pod=pod)
            return
        # Mostly one thing at a time, so that the changes of several kinds are the exception.
        for field in pod:
            if field != "name" and field in old and rnd.random() < 0.6:
                pod[field] = old[field]
        pod["uid"] = old["uid"]
        if "group" in old:
            pod["group"] = old["group"]
        self.play("update", rnd.choice(PASSING), pod=pod)

    def pop(self, rnd: Random) -> None:
        if self.naive.last_group is None:
            self.play("pop", rnd.choice(PASSING))

    def fail(self, rnd: Random) -> None:
        rejectors = {
            "unschedulable": sorted(set(rnd.choices(PLUGINS, k=rnd.choice([0, 1, 1, 2])))),
            "pending": rnd.choice([[], [], [], PLUGINS[:1], PLUGINS[1:3]]),
        }
        group = self.naive.last_group
        if group is None:
            if self.flying:
                self.play("fail", rnd.choice(PASSING), uid=rnd.choice(self.flying), **rejectors)
            return
        status = rnd.choice(["success", "unschedulable", "error"])
        pods: list[Json] = [
            {"uid": uid, "result": "scheduled"}
            if status == "success" and rnd.random() < 0.5
            else {"uid": uid, "result": "failed", **rejectors}
            for uid in group["popped"]
        ]
        self.play("group_result", rnd.choice(PASSING), group_name=group["name"], status=status, pods=pods)

    def done(self, rnd: Random) -> None:
        if self.naive.last_group is not None or not self.flying:
            return
        uid = rnd.choice(self.flying)
        pod = self.naive.flying[uid]["pod"]
        self.play("done", rnd.choice(PASSING), uid=uid)
        newest = self.naive.store.get(pod["name"])
        if newest is not None and newest["uid"] == uid and rnd.random() < 0.8:
            self.play("event", 1, resource="AssignedPod", actions=["Add"], new=newest)
            self.play("delete", 1, name=pod["name"], bound=True)

    def delete(self, rnd: Random) -> None:
        if self.naive.store:
            self.play("delete", rnd.choice(PASSING), name=rnd.choice(sorted(self.naive.store)))

    def event(self, rnd: Random) -> None:
        resource, action = rnd.choice([*KINDS, ("*", "All"), ("*", "All")])
        thing: Json = {"name": "thing"}
        if resource.endswith("Pod"):
            thing |= {"uid": "thing", "group": "g1"} if rnd.random() < 0.5 else {"uid": "thing"}
        objects: Json = {}
        if resource != "*" and action != "Delete":
            objects["new"] = {**thing, "labels": some_labels(rnd)}
        if resource != "*" and action != "Add":
            objects["old"] = {**thing, "labels": some_labels(rnd)}
        if rnd.random() < 0.2:
            objects["precheck"] = {"zone": "a"}
        self.play("event", rnd.choice(PASSING), resource=resource, actions=[action], **objects)

    def activate(self, rnd: Random) -> None:
        self.play("activate", rnd.choice(PASSING), names=sorted(set(rnd.choices(NAMES, k=2))))

    def flush_backoff(self, rnd: Random) -> None:
        self.play("flush_backoff", rnd.choice(PASSING))

    def flush_unschedulable(self, rnd: Random) -> None:
        self.play("flush_unschedulable", rnd.choice(PASSING))

    def turn_gate(self, rnd: Random) -> None:
        if self.case["label_gate"]:
            op = rnd.choice(["open_gate", "open_gate", "close_gate"])
            self.play(op, rnd.choice(PASSING), plugin="Gate", value=rnd.choice("abc"))

    def add_or_delete_group(self, rnd: Random) -> None:
        name = rnd.choice(GROUPS)
        if not self.case["groups"]:
            return
        if name not in self.naive.groups:
            # With several incomplete members kube-scheduler's order is not defined, so no trace has it.
            if sum(m["pod"]["group"] == name for m in self.naive.incomplete) < 2:
                group = {"name": name, "priority": rnd.choice([0, 10]), "min_count": rnd.choice([0, 2, 3])}
                self.play("add_group", rnd.choice(PASSING), group=group)
        elif self.naive.last_group is None and rnd.random() < 0.3:
            self.play("delete_group", rnd.choice(PASSING), group_name=name)

    # --- what must not be noticed ---------------------------------------------------------------------------------------

    def dump_and_load(self, _: Random) -> None:
        """A loaded queue takes the place of the one that was dumped."""
        dumped = self.real.queue.dump_state()
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(dumped))
        fresh = driver.Trace(self.case)
        fresh.queue.load_state(stored, lambda key: self.real.world.store[key.partition("/")[2]])
        assert fresh.queue.dump_state() == dumped

        for plugin in fresh.plugins:
            plugin.world = self.real.world
        fresh.world, fresh.seq, fresh.now = self.real.world, self.real.seq, self.real.now
        assert driver.state(fresh.queue) == driver.state(self.real.queue)
        self.real = fresh

    # --- what must always hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every pod is in one place, and no event is kept for nobody."""
        contents = self.real.queue.contents()
        entities = [
            *contents.active,
            *contents.backoff_rejected,
            *contents.backoff_errors,
            *contents.unschedulable,
        ]
        found = [
            pod
            for entity in entities
            for pod in (entity.members.values() if isinstance(entity, QueuedGroup) else (entity,))
        ]
        found += [*contents.pending_members, *contents.incomplete_members]
        found += [attempt.pod for attempt in contents.in_flight]
        pending = [
            pod["uid"]
            for pod in self.naive.store.values()
            if self.real.queue.get(f"default/{pod['name']}") is not None
        ]
        assert Counter(pod.uid for pod in found) == Counter({*pending, *self.flying})
        if not self.flying:
            assert self.real.queue.statistics().inflight_events == {"PodPopped": 0}

    def finish(self) -> None:
        """The same calls give the same state; and when every attempt is ended, nothing is kept."""
        again = driver.Trace(self.case)
        for step in self.steps:
            again.step(copy.deepcopy(step))
        assert again.queue.dump_state() == self.real.queue.dump_state()

        for uid in self.flying:
            self.real.queue.done(uid)
        assert self.real.queue.in_flight.timeline() == []


OPERATIONS = {
    History.add_or_update: 6,
    History.pop: 6,
    History.fail: 6,
    History.done: 1,
    History.delete: 1,
    History.event: 6,
    History.activate: 1,
    History.flush_backoff: 2,
    History.flush_unschedulable: 1,
    History.turn_gate: 2,
    History.add_or_delete_group: 1,
    History.dump_and_load: 1,
}
"""Each with how often it happens."""
