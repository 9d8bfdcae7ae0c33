"""The plugins for volumes and devices keep their promises in worlds that have some, and a plugin that breaks one about claims is found.

More trials: `TIDELOG_KIT_TRIALS=5000 pytest tests/testing/test_claim_worlds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.thorough import cases
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Resource
from tidelog.framework.interface import CycleState, Depends, Plugin, Status, unresolvable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry
from tidelog.testing.claim_worlds import ClaimsWorld
from tidelog.testing.plugin_kit import BrokenPromise, check_plugin

TRIALS = cases(200, "TIDELOG_KIT_TRIALS")
SCORING = 600
"""VolumeBinding scores few nodes: only pods whose claims wait, where space is counted or volumes are free."""


@pytest.mark.parametrize("name", ["DynamicResources", "NodeVolumeLimits", "VolumeRestrictions", "VolumeZone"])
def test_plugin_for_claims_keeps_its_promises(name: str) -> None:
    plugin = Registry().get(name)
    assert plugin is not None

    met = check_plugin(plugin, world=ClaimsWorld(), trials=TRIALS)

    assert {"hints", "hooks", "filter dependencies", "preparation", "shape"} <= set(met)


def test_volume_binding_keeps_its_promises() -> None:
    plugin = Registry().get("VolumeBinding")
    assert plugin is not None

    assert "score dependencies" in check_plugin(plugin, world=ClaimsWorld(), trials=max(TRIALS, SCORING))


class _OwnClaims(Plugin):
    """Rejects pods whose first claim has no volume yet."""

    name = "OwnClaims"
    filter_depends = Depends.STORAGE

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        for volume in pod.pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                found = self.handle.listers.storage.claim(
                    pod.namespace, volume.persistent_volume_claim.claim_name
                )
                return None if found is not None and found.spec.volume_name else unresolvable("no volume")
        return None

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        changed = Action.ADD | Action.UPDATE
        events = [(Resource.PERSISTENT_VOLUME_CLAIM, changed), (Resource.NODE, Action.ADD)]
        own = ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE)
        return [EventRegistration(ClusterEvent(*event)) for event in events] + [EventRegistration(own)]


class _DeafToClaims(_OwnClaims):
    name = "DeafToClaims"

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        return [EventRegistration(ClusterEvent(Resource.NODE, Action.ADD))]


class _KeepsAnswers(_OwnClaims):
    name = "KeepsAnswers"
    filter_depends = Depends.TRAITS


class _SignsTooLittle(_OwnClaims):
    """Signs its attempts, and not all that they depend on."""

    name = "SignsTooLittle"
    signed_depends: ClassVar[Depends] = Depends.STORAGE

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        return len(pod.pod.spec.volumes)


def test_foreign_plugin_that_tells_the_truth_about_claims_passes() -> None:
    assert check_plugin(_OwnClaims, world=ClaimsWorld(), trials=TRIALS)["filter dependencies"] > 0


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (_DeafToClaims, "no hint says Queue"),
        (_KeepsAnswers, "something else changed what it says"),
        (_SignsTooLittle, "something else changed what it says"),
    ],
)
def test_broken_promise_about_claims_is_found(plugin: type[Plugin], problem: str) -> None:
    with pytest.raises(BrokenPromise, match=problem):
        check_plugin(plugin, world=ClaimsWorld(), trials=TRIALS)
