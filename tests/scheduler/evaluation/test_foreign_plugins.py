"""The foreign plugins keep their promises, so that the fast evaluation may rely on these; and there is one for each declaration and offer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import pytest
from msgspec.structs import replace

from tests.scheduler.evaluation import foreign_plugins as foreign
from tests.scheduler.evaluation.foreign_offers import BeyondZone, ByStorage, CountingZone, FollowingZone
from tests.thorough import cases
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Pod
from tidelog.framework import offers
from tidelog.framework.interface import Depends, Plugin
from tidelog.plugins.registry import implements
from tidelog.testing import builders as b
from tidelog.testing.claim_worlds import ClaimsWorld
from tidelog.testing.plugin_kit import Dice, StandardHandle, World, WorldCluster, check_plugin

TRIALS = cases(30, "TIDELOG_KIT_TRIALS")


class Crowded(World):
    """Few nodes with many pods; pods and nodes have what the foreign plugins read."""

    def node_labels(self, dice: Dice, name: str) -> dict[str, str]:
        labels = super().node_labels(dice, name)
        return labels | ({b.ZONE: labels["zone"]} if "zone" in labels else {})

    def pod_labels(self, dice: Dice) -> dict[str, str]:
        return super().pod_labels(dice) | {"app": dice.pick(("web", "db", "cache"))}

    def pod(self, dice: Dice, name: str) -> Pod:
        made = super().pod(dice, name)
        return replace(made, spec=replace(made.spec, priority=dice.pick((0, 10))))

    def changed_target(self, dice: Dice, old: Pod) -> Pod:
        return self._relabelled(dice, old) if dice.chance(70) else super().changed_target(dice, old)

    def cluster(self, dice: Dice) -> WorldCluster:
        found = super().cluster(dice)
        nodes = list(found.node_objects)
        for number in range(dice.below(16)):
            found = found.with_object(self.occupant(dice, f"more{number}", dice.pick(nodes)))
        return found


class CrowdedClaims(ClaimsWorld):
    """The same pods where there is storage."""

    def pod_labels(self, dice: Dice) -> dict[str, str]:
        return super().pod_labels(dice) | {"app": dice.pick(("web", "db", "cache"))}


def world_of(plugin: type[Plugin]) -> World:
    return CrowdedClaims() if issubclass(plugin, ByStorage) else Crowded()


@pytest.mark.parametrize("plugin", foreign.ALL, ids=lambda plugin: plugin.name)
def test_foreign_plugin_keeps_its_promises(plugin: type[Plugin]) -> None:
    met = check_plugin(plugin, world=world_of(plugin), trials=TRIALS)

    filters = implements(plugin, "filter") or implements(plugin, "preFilter")
    scores = implements(plugin, "score")
    filters_anyhow, scores_anyhow = (
        Depends.CLUSTER in depends for depends in (plugin.filter_depends, plugin.score_depends)
    )
    wanted = {
        "shape": True,
        "hints": filters,
        "hooks": filters,
        "scores": scores,
        "filter dependencies": filters and not filters_anyhow,
        "score dependencies": scores and not scores_anyhow,
    }
    assert {check for check, is_wanted in wanted.items() if is_wanted} <= set(met)


def test_there_is_a_foreign_plugin_for_each_declaration() -> None:
    declared = {
        depends
        for plugin in foreign.DECLARING
        for point, depends in (("filter", plugin.filter_depends), ("score", plugin.score_depends))
        if implements(plugin, point)
    }

    assert declared >= {
        Depends.POD,
        Depends.STATE,
        Depends.LOAD,
        Depends.TRAITS,
        Depends.LABELS,
        Depends.PODS,
        Depends.NODE,
        Depends.OCCUPANTS,
        Depends.NODE | Depends.OCCUPANTS,
        Depends.DOMAINS,
        Depends.ALL_NODES,
        Depends.STORAGE | Depends.OCCUPANTS,
        Depends.CLUSTER,
    }
    assert reduce(or_, declared) == reduce(or_, Depends)


HANDLE = StandardHandle(WorldCluster(), FeatureGates(), upstream=False)
OFFERS = (
    "SignsPods",
    "ConcernsPods",
    "SignsAttempts",
    "LooksBeyond",
    "CountsDomains",
    "UseScores",
    "UseRooms",
    "RoomsTogether",
    "ScoresTogether",
    "SumsUp",
)


def test_there_is_a_foreign_plugin_for_each_offer_and_none_that_only_declares_makes_one() -> None:
    made = {plugin: plugin(None, HANDLE) for plugin in foreign.ALL}

    def offered(plugins: Sequence[type[Plugin]]) -> set[str]:
        return {
            name for name in OFFERS if any(isinstance(made[one], getattr(offers, name)) for one in plugins)
        }

    assert offered(foreign.ALL) == set(OFFERS)
    assert offered(foreign.DECLARING) == {"SignsPods"}


def test_ways_to_count_a_zone_differ_in_what_they_offer_alone() -> None:
    for plugin in (BeyondZone, CountingZone, FollowingZone):
        assert issubclass(plugin, foreign.ByZone)
        assert plugin.filter is foreign.ByZone.filter
        assert plugin.score is foreign.ByZone.score
