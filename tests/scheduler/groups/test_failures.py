"""A plugin that fails in the midst of a group's attempt: nothing is left of it, the error is in the log, and the group is tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tidelog.api.objects import Object
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import AttemptError, decode_body
from tidelog.framework.interface import Code, CycleState, Placement, Plugin, Status, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

RACK = "topology.kubernetes.io/rack"
DOWN = Status(Code.ERROR, ("the plugin's server is down",))


class Quiet(Plugin):
    """Has nothing to say of any placement."""

    def assume(self, state: CycleState, group: Any, placement: Placement) -> Status | None:
        return None

    def revert(self, state: CycleState, group: Any, placement: Placement) -> Status | None:
        return None


class FailsToAssume(Quiet):
    name = "FailsToAssume"

    def assume(self, state: CycleState, group: Any, placement: Placement) -> Status | None:
        return DOWN


class FailsToRevert(Quiet):
    name = "FailsToRevert"

    def revert(self, state: CycleState, group: Any, placement: Placement) -> Status | None:
        return DOWN


class ChangesItsMind(Quiet):
    """Lets a placement be tried, and refuses it when it has been chosen."""

    name = "ChangesItsMind"

    def assume(self, state: CycleState, group: Any, placement: Placement) -> Status | None:
        key = f"{self.name}/{placement.name}"
        if state.read(key) is not None:
            return unschedulable("not any more")
        state.write(key, True)
        return None


class FailsToScorePlacements(Plugin):
    name = "FailsToScorePlacements"

    def score_placement(
        self, state: CycleState, group: Any, placement: Placement, assignment: Mapping[str, str]
    ) -> float:
        raise ValueError("no such rack")

    def normalize_placement_scores(self, scores: list[float]) -> list[float]:
        return scores


class FailsToScoreNodes(Plugin):
    """With that a member's own cycle fails."""

    name = "FailsToScoreNodes"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        return DOWN

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 0


def cluster() -> list[Object]:
    nodes = [
        b.node(f"{rack}{i}").label({RACK: rack}).capacity(cpu="4").build() for rack in "ab" for i in range(2)
    ]
    members = [
        b.pod(f"g-{i}").group("g").request(cpu="1").scheduler("default-scheduler").build() for i in range(3)
    ]
    return [*nodes, b.pod_group("g", min_count=3, level=RACK), *members]


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (FailsToAssume, "the plugin's server is down"),
        (FailsToRevert, "the plugin's server is down"),
        (ChangesItsMind, "not any more"),
        (FailsToScorePlacements, "no such rack"),
        (FailsToScoreNodes, "the plugin's server is down"),
    ],
)
def test_attempt_in_which_a_plugin_fails_is_an_error_and_places_nobody(
    plugin: type[Plugin], said: str
) -> None:
    registry = Registry()
    registry.register(plugin)
    driver = Driver(registry)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}],
        "tidelog": {"featureGates": {"TopologyAwareWorkloadScheduling": True}},
    }
    driver.start(resolve_configuration(document, registry).configuration)

    driver.put(*cluster())
    driver.settle()

    errors = [body for record in driver.records if isinstance(body := decode_body(record), AttemptError)]
    assert errors
    assert said in errors[0].message
    assert driver.placements() == {}
    assert driver.core.cluster.cache.pod_count == 0
    attempts = driver.core.attempts
    driver.advance(seconds=10)
    assert driver.core.attempts > attempts
