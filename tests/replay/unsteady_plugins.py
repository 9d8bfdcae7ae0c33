"""Plugins that break the one rule: their answers are not a function of what they are given. Each in another way.

As a script: verify a packed log, whose plugin is named, in this process with its own hash seed, and print the plugins that are blamed.
"""

from __future__ import annotations

import json
import random
import sys
import time

from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.framework.interface import CycleState, Depends, Plugin, Status, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.to_test import unpacked
from tidelog.replay.verify import verify


class ReadsTheClock(Plugin):
    """Prefers whatever the time of day says."""

    name = "ReadsTheClock"
    score_depends = Depends.CLUSTER

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return time.perf_counter_ns() // 100 % 101


class DrawsLots(Plugin):
    """Rejects nodes at random."""

    name = "DrawsLots"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("drew a blank") if random.random() < 0.5 else None


class IteratesASet(Plugin):
    """Takes the first element of a set for the smallest: true under some hash seeds."""

    name = "IteratesASet"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        chosen = next(iter({f"{pod.name}/{i}" for i in range(8)}))
        wanted = int(chosen.rpartition("/")[2]) % 4
        return None if node.name == f"n{wanted}" else unschedulable(f"the pod hashes to n{wanted}")


class RemembersAcrossAttempts(Plugin):
    """Keeps a count that no log knows of, and that a restart forgets."""

    name = "RemembersAcrossAttempts"
    score_depends = Depends.CLUSTER
    calls = 0

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        RemembersAcrossAttempts.calls += 1
        return RemembersAcrossAttempts.calls * 37 % 101


UNSTEADY: dict[str, type[Plugin]] = {
    plugin.name: plugin for plugin in (ReadsTheClock, DrawsLots, IteratesASet, RemembersAcrossAttempts)
}


def registry_with(name: str) -> Registry:
    """The plugins there are, and this one."""
    return Registry([*IN_TREE, UNSTEADY[name]])


def configuration_with(name: str) -> SchedulerConfiguration:
    """The default profile with this plugin in front of the scoring ones."""
    section = {"plugins": {"multiPoint": {"enabled": [{"name": name, "weight": 1000}]}}}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return resolve_configuration({**header, "profiles": [section]}, registry_with(name)).configuration


def _main() -> None:
    report = verify(unpacked(sys.stdin.read()), registry_with(sys.argv[1]))
    difference = report.first_difference
    print(json.dumps(None if difference is None else sorted(difference.plugins)))


if __name__ == "__main__":
    _main()
