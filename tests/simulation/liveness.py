"""Nobody is left waiting beside a node that would take him: the brute-force search at the end of every story.

When nothing has happened for a while, two searches that know nothing of queues and hints are made. One asks the judge's own rules, node by
node, for every pod that waits. The other recovers a scheduler from the log, one that evaluates plainly, wakes everybody at once, and lets
it decide: it also finds groups and preemptions. Whoever is found at two looks in a row, with ticks and backoffs between them, was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tests.simulation.judge import Judge
from tests.simulation.plugins import SLOW, SlowPermit
from tests.simulation.promises import awaits_somebody
from tests.simulation.rules import fits
from tidelog.api.times import NANOS
from tidelog.eventlog.records import (
    Body,
    ConfigurationLoaded,
    Draft,
    Nominated,
    PlacementChosen,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import AnyEntity, QueuedGroup
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover
from tidelog.scheduler.core import Core
from tidelog.scheduler.groups.group import record_key

REST_SECONDS = 47
"""Longer than from one tick to the next and the longest backoff together; two of them and the flush of the pool is still far away."""
LOOKS = 2
FLUSH_SECONDS = 330
"""Longer than anybody waits for an event: not everything that lets preemption help somebody wakes him, as in kube-scheduler."""
BACKOFFS = 60 * NANOS
"""Longer than any backoff."""


class _PlainCore(Core):
    """Asks every plugin about every node."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry, fast=False)


class Follower:
    """A plain scheduler that follows a log from one search to the next: folding all of it each time would cost as much as the rest of a story."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._core = _PlainCore(registry)

    def follow(self, records: Sequence[Record]) -> Core:
        """The state that these records imply, of which nothing is in flight; nobody else may change it."""
        return recover(records[self._core.seq :], self._registry, core=self._core)

    def copy(self, records: Sequence[Record]) -> Core:
        """The same, for somebody who goes on from it."""
        core = self.follow(records)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(core.dump_without_objects()))
        return _PlainCore.load(self._registry, state, dict(core.objects))


def stuck(records: Sequence[Record], follower: Follower, now: int, judge: Judge) -> dict[str, bool]:
    """Keys of the pods and groups that could be placed now, and whether by preemption only. `judge` has seen all the records."""
    pods = judge.cluster.pods

    def awaits(key: str) -> bool:
        return key in pods and awaits_somebody(judge.cluster, pods[key])

    found = {key: False for key in _by_rules(judge, now) if not awaits(key)}
    if any(pod.is_pending for pod in pods.values()):
        for outcomes in _by_trial(records, follower.copy(records), now):
            # A group is tried in vain as long as one of its members awaits somebody.
            gives_back = any(isinstance(body, Unschedulable) for _, body in outcomes)
            if not (gives_back or any(awaits(key) for key, _ in outcomes)):
                preempts = all(isinstance(body, Nominated) for _, body in outcomes)
                found.update({key: found.get(key, True) and preempts for key, _ in outcomes})
    return found


def asleep(records: Sequence[Record], follower: Follower, now: int, core: Core) -> list[str]:
    """Keys of the pods and groups that wait for an event and could be placed now. `core` is at rest.

    Whom only preemption could help is left to the end: not everything that lets it help wakes those who were rejected before.
    Who also waits for time is left out, because that comes in ticks, and who waits for his victims' end, which will wake him.
    """
    assert core.queue is not None
    waiting = [e for e in core.queue.contents().unschedulable if not e.is_gated and not _waits_for_more(e)]
    keys = {record_key(e.key) if isinstance(e, QueuedGroup) else f"Pod/{e.key}" for e in waiting}
    # Whoever comes after one whose backoff has not ended, or who makes room, or gives back devices, may only follow him.
    found: list[str] = []
    for (key, body), *_ in _by_trial(records, follower.copy(records), now) if keys else ():
        if key not in keys or isinstance(body, Nominated | Unschedulable):
            break
        found.append(key)
    return found


def _waits_for_more(entity: AnyEntity) -> bool:
    members = entity.members.values() if isinstance(entity, QueuedGroup) else (entity,)
    return any(
        member.pod.status.nominated_node_name
        or SLOW in member.pod.metadata.labels
        or any(c.fallback_criteria for c in member.pod.spec.topology_spread_constraints)
        for member in members
    )


def _by_rules(judge: Judge, now: int) -> Iterator[str]:
    """Single pods for which some node is all right, with the constraints fallen back that may."""
    cluster = judge.cluster
    for pod in cluster.pods.values():
        if pod.is_left_alone:
            fallen = judge.may_fall_back(pod, now)
            if any(fits(cluster, pod, node, fallen) for node in cluster.nodes.values()):
                yield pod.key


def _by_trial(records: Sequence[Record], core: Core, now: int) -> Iterator[list[tuple[str, Body]]]:
    """What a plain scheduler with this log would do for somebody, if it tried everybody; (key, outcome), an attempt at a time."""
    driver = Driver(now=now, core=core, digest=records[-1].digest)
    again = ConfigurationLoaded(configuration=msgspec.to_builtins(core.configuration))
    driver.append(Draft(body=again, author="liveness"))
    assert core.queue is not None
    core.queue.flush_backoff(now + BACKOFFS)
    while (decision := driver.attempt()) is not None:
        found = [(key, body) for key, body in decision.outcomes if _helps(body)]
        if found:
            yield found
        driver.commit()


def _helps(body: Body) -> bool:
    """Who would only wait for the slow permit, once more in vain, has not been forgotten: time will wake him."""
    match body:
        case Scheduled() | PlacementChosen() | Reserved():
            return True
        case Waiting():
            return SlowPermit.name not in body.plugins
        case Nominated():
            return bool(body.victims)
        case Unschedulable():
            return bool(body.writes)
    return False
