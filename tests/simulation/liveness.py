"""Nobody is left waiting beside a node that would take him: the brute-force search at the end of every story.

When nothing has happened for a while, two searches that know nothing of queues and hints are made. One asks the judge's own rules, node by
node, for every pod that waits. The other recovers a scheduler from the log, one that evaluates plainly, wakes everybody at once, and lets
it decide: it also finds groups and preemptions. Whoever is found at two looks in a row, with ticks and backoffs between them, was forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.api.times import NANOS
from tidelog.eventlog.records import (
    ConfigurationLoaded,
    Draft,
    Nominated,
    PlacementChosen,
    Record,
    Scheduled,
    Waiting,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover
from tidelog.scheduler.core import Core

from .cluster import SeenCluster, SeenPod
from .plugins import SLOW
from .rules import misfit

REST_SECONDS = 47
"""Longer than from one tick to the next and the longest backoff together; two of them and the flush of the pool is still far away."""
LOOKS = 2
BACKOFFS = 60 * NANOS
"""Longer than any backoff."""


def stuck(records: Sequence[Record], registry: Registry, now: int, cluster: SeenCluster) -> list[str]:
    """Keys of the pods and groups that could be placed now. `cluster` is what the judge has made of the records."""
    found = dict.fromkeys(_by_rules(cluster))
    if any(pod.is_pending for pod in cluster.pods.values()):
        found.update(dict.fromkeys(_by_trial(records, registry, now)))
    return list(found)


def _by_rules(cluster: SeenCluster) -> list[str]:
    """Single pods for which some node is all right as their constraints are written."""
    return [pod.key for pod in cluster.pods.values() if _is_free(pod) and _fits_somewhere(cluster, pod)]


def _is_free(pod: SeenPod) -> bool:
    """Nothing but the lack of a node holds it."""
    held = pod.obj.spec.scheduling_gates or pod.group or SLOW in pod.labels or pod.reserved
    return pod.is_pending and not held


def _fits_somewhere(cluster: SeenCluster, pod: SeenPod) -> bool:
    return any(
        not misfit(cluster, pod, node) and not misfit(cluster, pod, node, promised=True)
        for node in cluster.nodes.values()
    )


def _by_trial(records: Sequence[Record], registry: Registry, now: int) -> list[str]:
    """Everybody whom a plain scheduler with this log would do something for, if it tried."""
    core = recover(records, registry, core=Core(registry, fast=False))
    driver = Driver(registry, now=now)
    driver.core, driver.records = core, [records[-1]]
    again = ConfigurationLoaded(configuration=msgspec.to_builtins(core.configuration))
    driver.append(Draft(body=again, author="liveness"))
    assert core.queue is not None
    core.queue.flush_backoff(now + BACKOFFS)
    found: list[str] = []
    while (decision := driver.attempt()) is not None:
        for key, body in decision.outcomes:
            helps = isinstance(body, Scheduled | Waiting | PlacementChosen) or (
                isinstance(body, Nominated) and bool(body.victims)
            )
            if helps:
                found.append(key)
        driver.commit()
    return found
