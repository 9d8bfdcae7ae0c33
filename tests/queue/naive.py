"""A second scheduling queue, written to be obviously right and nothing else: plain lists, scanned from end to end.

It follows the description of the conformance traces rule by rule, works on the traces' own JSON, and shares no code with
`tidelog.queue`. It also runs the recorded traces (`test_naive.py`), so that it can be trusted where there is no recording.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

Json = dict[str, Any]

ACTIONS = {
    "Add": 1,
    "Delete": 2,
    "UpdateNodeAllocatable": 4,
    "UpdateNodeLabel": 8,
    "UpdateNodeTaint": 16,
    "UpdateNodeCondition": 32,
    "UpdateNodeAnnotation": 64,
    "UpdateNodeDeclaredFeature": 128,
    "UpdateNodePreemptionPolicy": 256,
    "UpdatePodLabel": 512,
    "UpdatePodScaleDown": 1024,
    "UpdatePodScaleUp": 2048,
    "UpdatePodToleration": 4096,
    "UpdatePodSchedulingGatesEliminated": 8192,
    "UpdatePodGeneratedResourceClaim": 16384,
    "Update": 32764,
    "All": 32767,
}
PODS = ("AssignedPod", "UnscheduledPod", "TargetPod")
SKIP, AFTER_BACKOFF, IMMEDIATELY = 0, 1, 2


def bits(actions: list[str]) -> int:
    return sum(ACTIONS[a] for a in actions)


def is_wildcard(resource: str, action: int) -> bool:
    return resource == "*" and action == ACTIONS["All"]


def matches(registered: tuple[str, int], event: tuple[str, int]) -> bool:
    (want, wanted), (resource, action) = registered, event
    if is_wildcard(want, wanted):
        return True
    same = want in ("*", resource) or (want == "Pod" and resource in PODS)
    return same and bool(wanted & action) and action <= wanted


def labels(thing: Json | None) -> Json:
    return (thing or {}).get("labels") or {}


def hint_says_queue(hint: Json, pod: Json, old: Json | None, new: Json | None) -> bool:
    """A hint that fails counts as Queue."""
    thing, key = new or old, hint.get("key")
    match hint["kind"]:
        case "queue" | "error":
            return True
        case "skip":
            return False
        case "label":
            return bool(labels(thing).get(key) == hint["value"])
        case "label_or_error":
            return key not in labels(thing) or labels(thing)[key] == hint["value"]
        case "match_pod_label":
            return key in labels(thing) and key in labels(pod) and labels(thing)[key] == labels(pod)[key]
        case "changed":
            return bool(labels(old).get(key) != labels(new).get(key))
        case "same_pod":
            return new is not None and new.get("uid") == pod["uid"]
        case "same_group":
            return bool(new and new.get("group")) and (new or {}).get("group") == pod.get("group")
    raise AssertionError(hint)


def record(pod: Json, now: int) -> Json:
    return {
        "type": "pod",
        "pod": pod,
        "timestamp": now,
        "attempts": 0,
        "unschedulable_count": 0,
        "consecutive_errors": 0,
        "U": [],
        "P": [],
        "gate": "",
        "expiry": None,
        "flushed": 0,
    }


class NaiveQueue:
    """One trace's queue and the world around it."""

    def __init__(self, case: Json) -> None:
        config = case["config"]
        self.windows: bool = config["pop_from_backoffq"]
        self.initial, self.maximum = config["initial_backoff_ms"], config["max_backoff_ms"]
        self.max_stay = config["max_in_unschedulable_ms"]
        self.plugins = case["plugins"]
        self.now = 0
        self.store: dict[str, Json] = {}
        self.open: list[tuple[str, str]] = []
        self.groups: dict[str, Json] = {}
        self.bound: list[tuple[str, str]] = []
        self.active: list[Json] = []
        self.backoff: list[tuple[Json, str]] = []
        self.pool: list[Json] = []
        self.flying: dict[str, Json] = {}
        self.events: list[Json] = []
        self.incomplete: list[Json] = []
        self.pending: list[Json] = []
        self.last_group: Json | None = None
        self.cycle = 0
        self.shown: Json = {}

    def step(self, step: Json) -> Json:
        self.now, self.shown = step["t_ms"], {}
        getattr(self, "do_" + step["op"])(step)
        return {**self.shown, **self.state()}

    # --- plugins ------------------------------------------------------------------------------------------------------

    def matching(self, event: tuple[str, int], plugin: str | None = None) -> list[tuple[str, Json]]:
        return [
            (p["name"], e["hint"])
            for p in self.plugins
            if plugin in (None, p["name"])
            for e in p["events"]
            if matches((e["resource"], bits(e["actions"])), event)
        ]

    def closed_gate(self, rec: Json) -> str:
        for plugin in self.plugins:
            gate, pod = plugin.get("gate"), rec["pod"]
            if not gate:
                continue
            if gate["kind"] == "label":
                value = labels(pod).get(gate["label"])
                closed = value is not None and (plugin["name"], value) not in self.open
            elif gate["kind"] == "scheduling_gates":
                closed = bool(pod.get("scheduling_gates"))
            else:
                group = pod.get("group")
                known = sum(p.get("group") == group for p in self.store.values())
                known += sum(g == group for g, _ in self.bound)
                closed = bool(group) and known < self.groups.get(group, {}).get("min_count", 0)
            if closed:
                return str(plugin["name"])
        return ""

    def run_gates(self, entity: Json) -> bool:
        if entity["type"] == "group":
            gates = [m["gate"] for m in self.ordered(entity) if self.run_gates(m)]
            entity["gate"] = gates[0] if gates else ""
            return bool(gates)
        entity["gate"] = self.closed_gate(entity)
        if entity["gate"] and entity["gate"] not in entity["U"]:
            entity["U"] = [*entity["U"], entity["gate"]]
        return bool(entity["gate"])

    # --- order and backoff --------------------------------------------------------------------------------------------

    def priority(self, entity: Json) -> int:
        source = self.groups[entity["name"]] if entity["type"] == "group" else entity["pod"]
        return int(source.get("priority", 0))

    def order(self, entity: Json) -> tuple[int, int]:
        return (-self.priority(entity), entity["timestamp"])

    def ordered(self, group: Json) -> list[Json]:
        return sorted(
            group["members"],
            key=lambda m: (-m["pod"].get("priority", 0), -m["attempts"], m["timestamp"], m["pod"]["name"]),
        )

    def cut(self, time: int) -> int:
        return time // 1000 * 1000 if self.windows else time

    def expiry(self, entity: Json) -> int | None:
        count = entity["consecutive_errors"] or entity["unschedulable_count"]
        if entity["expiry"] is None and count:
            maximum = self.maximum
            if entity["type"] == "group" and len(entity["members"]) > 1:
                maximum = maximum * sqrt(len(entity["members"]))
            entity["expiry"] = self.cut(
                int(entity["timestamp"] + min(self.initial * 2 ** (count - 1), maximum))
            )
        found: int | None = entity["expiry"]
        return found

    def is_backing_off(self, entity: Json) -> bool:
        expiry = self.expiry(entity)
        return expiry is not None and expiry >= self.cut(self.now)

    # --- moves --------------------------------------------------------------------------------------------------------

    def to_active(self, entity: Json, *, from_backoff: bool = False) -> bool:
        if not (from_backoff and self.windows) and self.run_gates(entity):
            self.pool.append(entity)
            return False
        self.active.append(entity)
        return True

    def requeue(self, entity: Json, strategy: int) -> None:
        if strategy == SKIP:
            self.pool.append(entity)
        elif strategy == AFTER_BACKOFF and self.is_backing_off(entity):
            if self.windows and self.run_gates(entity):
                self.pool.append(entity)
            else:
                rejected = entity["type"] == "pod" and (entity["U"] or entity["P"])
                self.backoff.append((entity, "unschedulable" if rejected else "error"))
        else:
            self.to_active(entity)

    def strategy(self, entity: Json, event: Json) -> int:
        if entity["type"] == "group":
            return max(self.strategy(m, event) for m in entity["members"])
        if not entity["U"] and not entity["P"]:
            return AFTER_BACKOFF
        kind = event["kind"]
        if is_wildcard(*kind):
            new = event.get("new")
            return SKIP if new is not None and new["uid"] != entity["pod"]["uid"] else AFTER_BACKOFF
        found = SKIP
        for plugin, hint in self.matching(kind):
            if plugin in entity["U"] + entity["P"] and hint_says_queue(
                hint, entity["pod"], event.get("old"), event.get("new")
            ):
                found = max(found, IMMEDIATELY if plugin in entity["P"] else AFTER_BACKOFF)
        return found

    def where(self, entity: Json) -> str:
        if any(e is entity for e in self.active):
            return "active"
        if any(e is entity for e, _ in self.backoff):
            return "backoff"
        if any(e is entity for e in self.pool):
            return "unschedulable"
        return ""

    def take_out(self, entity: Json) -> str:
        was = self.where(entity)
        self.active = [e for e in self.active if e is not entity]
        self.backoff = [(e, q) for e, q in self.backoff if e is not entity]
        self.pool = [e for e in self.pool if e is not entity]
        return was

    def entities(self) -> list[Json]:
        return [*self.active, *(e for e, _ in self.backoff), *self.pool]

    def queued_pod(self, uid: str) -> Json | None:
        return next((e for e in self.entities() if e["type"] == "pod" and e["pod"]["uid"] == uid), None)

    def queued_group(self, name: str) -> Json | None:
        return next((e for e in self.entities() if e["type"] == "group" and e["name"] == name), None)

    def in_flight(self, uid: str) -> bool:
        return any(e.get("uid") == uid for e in self.events if e["is"] == "pod")

    def end_attempt(self, uid: str) -> None:
        self.events = [e for e in self.events if not (e["is"] == "pod" and e["uid"] == uid)]
        while self.events and self.events[0]["is"] == "event":
            self.events.pop(0)

    # --- operations on pods -------------------------------------------------------------------------------------------

    def do_add(self, step: Json) -> None:
        pod = step["pod"]
        self.store[pod["name"]] = pod
        self.add(pod)

    def add(self, pod: Json) -> None:
        rec = record(pod, self.now)
        if pod.get("group"):
            self.place(rec)
        else:
            self.to_active(rec)

    def do_pop(self, step: Json) -> None:
        if self.active:
            entity = min(self.active, key=self.order)
        else:
            early = [e for e, q in self.backoff if q == "unschedulable"] if self.windows else []
            if not early:
                self.shown = {"would_block": True}
                return
            entity = min(early, key=lambda e: (self.expiry(e), self.order(e)))
        self.take_out(entity)
        self.cycle += 1
        self.last_group = None
        entity["attempts"] += 1
        popped = [entity]
        if entity["type"] == "group":
            popped = self.ordered(entity)
            for member in popped:
                member["attempts"] += 1
            self.last_group = {**entity, "popped": [m["pod"]["uid"] for m in popped]}
            self.shown = {
                "popped": "group:" + entity["name"],
                "popped_pods": [m["pod"]["uid"] for m in popped],
            }
        else:
            self.shown = {"popped": entity["pod"]["uid"]}
        for rec in popped:
            self.flying[rec["pod"]["uid"]] = rec
            self.events.append({"is": "pod", "uid": rec["pod"]["uid"]})

    def do_fail(self, step: Json) -> None:
        self.fail(step["uid"], step.get("unschedulable") or [], step.get("pending") or [])

    def fail(self, uid: str, unschedulable: list[str], pending: list[str]) -> None:
        rec = self.flying[uid]
        newest = self.store.get(rec["pod"]["name"])
        if newest is None or newest["uid"] != uid:
            self.end_attempt(uid)
            del self.flying[uid]
            return
        rec["pod"], rec["U"], rec["P"], rec["gate"] = newest, list(unschedulable), list(pending), ""
        if unschedulable or pending:
            rec["unschedulable_count"] += 1
            rec["consecutive_errors"] = 0
        else:
            rec["consecutive_errors"] += 1
        rec["timestamp"], rec["expiry"], rec["flushed"] = self.now, None, 0
        del self.flying[uid]
        if newest.get("group"):
            self.end_attempt(uid)
            self.place(rec)
            return
        strategy = AFTER_BACKOFF
        if unschedulable or pending:
            start = next(i for i, e in enumerate(self.events) if e["is"] == "pod" and e["uid"] == uid)
            later = [e for e in self.events[start:] if e["is"] == "event"]
            strategy = max((self.strategy(rec, e) for e in later), default=SKIP)
        self.requeue(rec, strategy)
        self.end_attempt(uid)

    def do_done(self, step: Json) -> None:
        if self.in_flight(step["uid"]):
            self.end_attempt(step["uid"])
            del self.flying[step["uid"]]

    def do_event(self, step: Json) -> None:
        kind = (step["resource"], bits(step["actions"]))
        wildcard = is_wildcard(*kind)
        if not wildcard and not self.matching(kind):
            return
        name = step["resource"] + "/" + step["actions"][0]
        event = {"is": "event", "kind": kind, "name": name, "old": step.get("old"), "new": step.get("new")}
        wanted = step.get("precheck") or {}
        for entity in list(self.pool):
            pods = [m["pod"] for m in entity.get("members", [entity])]
            if not any(all(labels(p).get(k) == v for k, v in wanted.items()) for p in pods):
                continue
            if entity["gate"] and not wildcard and not self.matching(kind, entity["gate"]):
                continue
            self.wake(entity, event)
        if self.flying:
            self.events.append(event)

    def wake(self, entity: Json, event: Json) -> None:
        strategy = self.strategy(entity, event)
        if strategy != SKIP:
            self.take_out(entity)
            self.requeue(entity, strategy)

    def do_update(self, step: Json) -> None:
        new = step["pod"]
        old = self.store[new["name"]]
        self.store[new["name"]] = new
        uid = new["uid"]
        events = [
            {
                "is": "event",
                "kind": ("TargetPod", ACTIONS[a]),
                "name": "TargetPod/" + a,
                "old": old,
                "new": new,
            }
            for a in kinds_of_change(old, new)
        ]
        if self.in_flight(uid):
            self.events.extend(events)
            return
        entity = self.queued_pod(uid)
        if new.get("group"):
            entity = self.queued_group(new["group"])
            members = [*self.incomplete, *self.pending, *(entity["members"] if entity else [])]
            mine = [m for m in members if m["pod"]["uid"] == uid]
            if not mine:
                self.add(new)
                return
            mine[0]["pod"] = new
            if entity is None or mine[0] not in entity["members"]:
                return
        elif entity is None:
            self.add(new)
            return
        else:
            entity["pod"] = new
        for event in events:
            if self.where(entity) != "unschedulable":
                break
            self.wake(entity, event)

    def do_delete(self, step: Json) -> None:
        pod = self.store.get(step["name"])
        if pod is None:
            return
        if step.get("bound") and pod.get("group"):
            self.bound.append((pod["group"], pod["uid"]))
        if pod.get("group"):
            self.delete_member(pod)
        elif (entity := self.queued_pod(pod["uid"])) is not None:
            self.take_out(entity)
        del self.store[step["name"]]

    def do_activate(self, step: Json) -> None:
        for pod in [self.store[n] for n in step["names"] if n in self.store]:
            group = pod.get("group")
            if group and group not in self.groups:
                continue
            entity = self.queued_group(group) if group else self.queued_pod(pod["uid"])
            if entity is not None and self.where(entity) in ("unschedulable", "backoff"):
                was = self.take_out(entity)
                if self.to_active(entity, from_backoff=was == "backoff"):
                    continue
            if self.in_flight(pod["uid"]):
                everything = ("*", ACTIONS["All"])
                self.events.append({"is": "event", "kind": everything, "name": "ForceActivate", "new": pod})

    def do_flush_backoff(self, step: Json) -> None:
        for entity in [e for e, _ in self.backoff if not self.is_backing_off(e)]:
            self.take_out(entity)
            self.to_active(entity, from_backoff=True)

    def do_flush_unschedulable(self, step: Json) -> None:
        late = [e for e in self.pool if self.now - max(e["timestamp"], e["flushed"]) > self.max_stay]
        event = {"is": "event", "kind": ("*", ACTIONS["All"]), "name": "UnschedulableTimeout"}
        for entity in late:
            entity["flushed"] = self.now
            self.wake(entity, event)
        if late and self.flying:
            self.events.append(event)

    def do_open_gate(self, step: Json) -> None:
        self.open.append((step["plugin"], step["value"]))

    def do_close_gate(self, step: Json) -> None:
        self.open = [g for g in self.open if g != (step["plugin"], step["value"])]

    # --- groups -------------------------------------------------------------------------------------------------------

    def place(self, rec: Json) -> None:
        name = rec["pod"]["group"]
        group = self.queued_group(name)
        if name not in self.groups:
            self.incomplete.append(rec)
        elif group is not None:
            was = self.take_out(group)
            group["members"].append(rec)
            self.put_back(group, was)
        elif self.last_group is not None and self.last_group["name"] == name:
            self.pending.append(rec)
        else:
            fresh = record({}, rec["timestamp"])
            self.to_active({**fresh, "type": "group", "name": name, "members": [rec]})

    def put_back(self, group: Json, was: str) -> None:
        if was == "active":
            self.to_active(group)
        elif was == "backoff":
            self.requeue(group, AFTER_BACKOFF)
        else:
            self.pool.append(group)

    def do_add_group(self, step: Json) -> None:
        name = step["group"]["name"]
        self.groups[name] = step["group"]
        mine = [m for m in self.incomplete if m["pod"]["group"] == name]
        self.incomplete = [m for m in self.incomplete if m["pod"]["group"] != name]
        for rec in mine:
            self.place(rec)

    def do_delete_group(self, step: Json) -> None:
        group = self.queued_group(step["group_name"])
        del self.groups[step["group_name"]]
        if group is not None:
            self.take_out(group)
            self.incomplete.extend(group["members"])

    def delete_member(self, pod: Json) -> None:
        group = self.queued_group(pod["group"])
        if pod["group"] not in self.groups:
            self.incomplete = [m for m in self.incomplete if m["pod"]["uid"] != pod["uid"]]
        elif group is not None:
            was = self.take_out(group)
            group["members"] = [m for m in group["members"] if m["pod"]["uid"] != pod["uid"]]
            if group["members"]:
                self.put_back(group, was)
        else:
            self.pending = [m for m in self.pending if m["pod"]["uid"] != pod["uid"]]

    def do_group_result(self, step: Json) -> None:
        group, name = self.last_group, step["group_name"]
        assert group is not None
        assert group["name"] == name
        for pod in step["pods"]:
            if pod["result"] == "failed":
                self.fail(pod["uid"], pod.get("unschedulable") or [], pod.get("pending") or [])
        self.last_group = None
        popped = group.pop("popped")
        group["members"] = [m for m in self.pending if m["pod"]["group"] == name]
        self.pending = [m for m in self.pending if m["pod"]["group"] != name]
        if not group["members"]:
            return
        group["expiry"], group["flushed"], group["gate"] = None, 0, ""
        if step["status"] == "success":
            group["unschedulable_count"] = group["consecutive_errors"] = 0
            if not any(m["pod"]["uid"] in popped for m in group["members"]):
                group["timestamp"] = self.now
            self.to_active(group)
            return
        if step["status"] == "unschedulable":
            group["unschedulable_count"] += 1
            group["consecutive_errors"] = 0
        else:
            group["consecutive_errors"] += 1
        group["timestamp"] = self.now
        self.requeue(group, AFTER_BACKOFF)

    # --- what is shown --------------------------------------------------------------------------------------------------

    def state(self) -> Json:
        def name(entity: Json) -> str:
            return "group:" + entity["name"] if entity["type"] == "group" else str(entity["pod"]["uid"])

        def backing_off(queue: str) -> list[Json]:
            return sorted(
                (e for e, q in self.backoff if q == queue), key=lambda e: (self.expiry(e), self.order(e))
            )

        groups = [e for e in self.entities() if e["type"] == "group"]
        placed = [(m, self.where(g)) for g in groups for m in g["members"]]
        placed += [(e, self.where(e)) for e in self.entities() if e["type"] == "pod"]
        placed += [(m, "in_flight") for m in self.flying.values()]
        placed += [(m, "incomplete_member") for m in self.incomplete]
        placed += [(m, "pending_member") for m in self.pending]
        found: Json = {
            "active": [name(e) for e in sorted(self.active, key=self.order)],
            "backoff": [
                {"uid": name(e), "expiry_ms": self.expiry(e), "queue": queue}
                for queue in ("unschedulable", "error")
                for e in backing_off(queue)
            ],
            "unschedulable": sorted(name(e) for e in self.pool),
            "gated": sorted(name(e) for e in self.pool if e["gate"]),
            "in_flight": [e["uid"] for e in self.events if e["is"] == "pod"],
            "in_flight_events": sum(e["is"] == "event" for e in self.events),
            "event_list": [
                "pod:" + e["uid"] if e["is"] == "pod" else "event:" + e["name"] for e in self.events
            ],
            "scheduling_cycle": self.cycle,
            "pods": {m["pod"]["uid"]: {"where": where, **self.shown_record(m)} for m, where in placed},
        }
        if groups:
            found["groups"] = {
                g["name"]: {
                    "where": self.where(g),
                    "members": [m["pod"]["uid"] for m in self.ordered(g)],
                    **self.shown_record(g),
                }
                for g in groups
            }
        if self.pending:
            found["pending_members"] = sorted(m["pod"]["uid"] for m in self.pending)
        if self.incomplete:
            found["incomplete_members"] = sorted(m["pod"]["uid"] for m in self.incomplete)
        return found

    def shown_record(self, entity: Json) -> Json:
        found = {
            "timestamp_ms": entity["timestamp"],
            "attempts": entity["attempts"],
            "unschedulable_count": entity["unschedulable_count"],
            "consecutive_errors": entity["consecutive_errors"],
        }
        optional = {
            "unschedulable_plugins": sorted(entity["U"]),
            "pending_plugins": sorted(entity["P"]),
            "gating_plugin": entity["gate"],
        }
        return {**found, **{k: v for k, v in optional.items() if v}}


def kinds_of_change(old: Json, new: Json) -> list[str]:
    found = []
    if labels(old) != labels(new):
        found.append("UpdatePodLabel")
    if new.get("cpu", 0) < old.get("cpu", 0):
        found.append("UpdatePodScaleDown")
    if new.get("cpu", 0) > old.get("cpu", 0):
        found.append("UpdatePodScaleUp")
    if old.get("scheduling_gates") and not new.get("scheduling_gates"):
        found.append("UpdatePodSchedulingGatesEliminated")
    if old.get("tolerations", 0) != new.get("tolerations", 0):
        found.append("UpdatePodToleration")
    return found or ["Update"]
