"""Where would these pods go now? The same core, the objects put into it, and nothing written.

The state is the log's at a moment, without attempts in flight. The objects are admitted as `apply` would admit them, all or none, and then
attempts are made until there is nothing left to decide at that moment. Pods that wait there already take their turns as they would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tidelog.api.admission import Stamp, admit
from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    AttemptError,
    Evicted,
    EvictionRefused,
    Nominated,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.framework.results import NodeScores
from tidelog.replay.advice import Help, advise
from tidelog.replay.driver import Driver
from tidelog.replay.examine import examine
from tidelog.replay.kept import kept_room
from tidelog.replay.waits import waits_of
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision

ATTEMPTS_MAX = 100_000


class PlannedPod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The plan for one pod."""

    pod: str
    """`namespace/name`."""
    node: str = ""
    """Where it would be placed; empty: it stays pending."""
    feasible: int = 0
    """How many nodes would do."""
    tied: int = 0
    """How many of them are equally good: among these the choice says nothing about the pod."""
    waits_for: tuple[str, ...] = ()
    """Plugins whose permit it would wait for, its place reserved."""
    group: str = ""
    nominated: str = ""
    """The node on which room would be made for it."""
    preempts: tuple[str, ...] = ()
    """Pods that would have to go."""
    refused: tuple[str, ...] = ()
    """Pods that would have to go but are protected, with the budget."""
    message: str = ""
    """Why it would stay pending."""
    help: tuple[Help, ...] = ()
    kept: str = ""
    """Where room is kept from it for nominated pods."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plans for all pods, in the order in which they were given."""

    seq: int
    """The record after which this holds."""
    at: int
    pods: tuple[PlannedPod, ...]
    warnings: tuple[str, ...] = ()
    """The warnings of admission about the objects."""


def plan(core: Core, table: ObjectTable, objects: Sequence[Object], now: int) -> Plan:
    """Plan these objects. `core` and `table` stand at the same record, and are used up. Raises what refuses an object."""
    seq = core.seq
    driver = Driver(core=core, now=max(now, core.at))
    put, warnings = admitted(table, objects, driver.now)
    if core.configuration is None:
        driver.start()
    driver.put(*put)
    run = _Planning(driver)
    run.settle()
    pods = tuple(run.told(object_key(obj)) for obj in put if isinstance(obj, Pod))
    return Plan(seq=seq, at=driver.now, pods=pods, warnings=warnings)


def admitted(table: ObjectTable, objects: Sequence[Object], now: int) -> tuple[list[Object], tuple[str, ...]]:
    """The objects as they would be stored; each sees those before it. Uses up the table's cluster. Raises what refuses an object."""
    found: list[Object] = []
    warnings: list[str] = []
    errors: list[InvalidObjects] = []
    for obj in objects:
        stamp = Stamp(seq=table.seq + 1, at=now)
        try:
            stored, said = admit(obj, table.get(object_key(obj)), table.cluster, table.gates, stamp)
        except InvalidObjects as error:
            errors.append(error)
            continue
        warnings += said
        table.cluster.put(stored)
        found.append(stored)
    if errors:
        raise errors[0]
    return found, tuple(warnings)


class _Planning:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.core = driver.core
        self.now = driver.now
        self.found: dict[str, PlannedPod] = {}

    def settle(self) -> None:
        """Decide until there is nothing to decide now."""
        for _ in range(ATTEMPTS_MAX):
            decision = self.driver.attempt()
            if decision is None:
                return
            self._note(decision)
            self.driver.commit()
        raise TidelogError(
            f"there is still something to decide after {ATTEMPTS_MAX:,} attempts: plan fewer pods"
        )

    def told(self, key: str) -> PlannedPod:
        """Return what became of the pod."""
        found = self.found.get(key)
        if found is not None:
            return found
        name = key.partition("/")[2]
        pod = self.core.cluster.pod(key)
        if pod is not None and pod.spec.node_name:
            return PlannedPod(pod=name, node=pod.spec.node_name, message="it has its node already")
        waits = None if pod is None else waits_of(self.core, pod)
        if waits is None:
            return PlannedPod(pod=name, message="no profile of this scheduler would try it")
        if waits.gate:
            return PlannedPod(pod=name, group=waits.group, message=f"gated by {waits.gate}")
        if waits.place == "incomplete member":
            return PlannedPod(
                pod=name, message=f"waits for its group {waits.group}, which does not exist yet"
            )
        return PlannedPod(pod=name, group=waits.group, message=f"not tried at that moment: {waits.place}")

    def _note(self, decision: Decision) -> None:
        for key, body in decision.outcomes:
            if isinstance(body, Scheduled | Waiting):
                self._placed(key, body, decision)
            elif isinstance(body, Unschedulable | AttemptError):
                for each in body.members or (key,):
                    self._pending(each, body, decision)
            elif isinstance(body, Nominated):
                found = self._of(key)
                found.nominated, found.preempts = body.node, tuple(_name(victim) for victim in body.victims)
            elif isinstance(body, EvictionRefused):
                found = self._of(body.preemptor)
                found.refused = (*found.refused, f"{_name(key)} ({_name(body.budget) or body.message})")
            elif isinstance(body, Evicted):
                found = self._of(body.preemptor)
                found.preempts = tuple(dict.fromkeys((*found.preempts, _name(key))))

    def _of(self, key: str) -> PlannedPod:
        return self.found.setdefault(key, PlannedPod(pod=_name(key)))

    def _placed(self, key: str, body: Scheduled | Waiting, decision: Decision) -> None:
        waits_for = body.plugins if isinstance(body, Waiting) else ()
        group = "" if decision.key == key else _name(decision.key)
        feasible = body.feasible if isinstance(body, Scheduled) else 0
        tied = self._tied(key, body.node) if feasible > 1 and not group else 0
        self.found[key] = PlannedPod(
            pod=_name(key), node=body.node, feasible=feasible, tied=tied, waits_for=waits_for, group=group
        )

    def _tied(self, key: str, node: str) -> int:
        """How many nodes have as many points as this one, in the state in which it was chosen."""
        pod = self.core.cluster.pod(key)
        assert pod is not None
        scores = examine(self.core, pod, self.now, refresh=False).scores()
        if not isinstance(scores, NodeScores):
            return 0
        points = {info.name: total for info, total in zip(scores.nodes, scores.totals, strict=True)}
        return sum(total == points.get(node) for total in points.values())

    def _pending(self, key: str, body: Unschedulable | AttemptError, decision: Decision) -> None:
        pod = self.core.cluster.pod(key)
        if isinstance(body, Unschedulable):
            body = self.core.in_full(key, body)
        help_: Iterable[Help] = ()
        kept = ""
        if pod is not None and decision.key == key and isinstance(body, Unschedulable):
            seen = examine(self.core, pod, self.now, refresh=False)
            help_, kept = advise(seen), kept_room(seen)
        group = "" if decision.key == key else _name(decision.key)
        self.found[key] = PlannedPod(
            pod=_name(key), message=body.message, group=group, help=tuple(help_), kept=kept
        )


def _name(key: str) -> str:
    return key.partition("/")[2]
