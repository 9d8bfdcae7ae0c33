"""Every plugin of this package keeps its promises (`tidelog.testing.plugin_kit`).

More trials: `TIDELOG_KIT_TRIALS=5000 pytest tests/testing/test_plugin_kit_in_tree.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.thorough import cases
from tidelog.api.objects import Pod
from tidelog.plugins.node_affinity import NodeAffinityArgs
from tidelog.plugins.registry import IN_TREE, Registry, implements
from tidelog.testing.builders import pod
from tidelog.testing.plugin_kit import BrokenPromise, Dice, World, check_plugin

TRIALS = cases(100, "TIDELOG_KIT_TRIALS")

QUIET = {"PrioritySort", "DefaultBinder"}
"""Promise nothing that could be tried on a cluster."""


class NamesNodes(World):
    """Pods that name a node, which waiting pods do not; so nothing ever happens to them."""

    def target(self, dice: Dice) -> Pod:
        made = super().target(dice)
        return replace(made, spec=replace(made.spec, node_name=dice.pick(("n0", "n1", "new"))))

    def changed_target(self, dice: Dice, old: Pod) -> Pod:
        return old


WORLDS: dict[str, World] = {"NodeName": NamesNodes()}


OF_GROUPS = ("placementGenerate", "placementState", "placementScore")
ELSEWHERE = {
    "DefaultPreemption", "DynamicResources", "GangScheduling", "NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions",
    "VolumeZone", "WaitForDriver",
}  # fmt: skip
"""What they promise depends on the core's decisions, on groups, or on claims and volumes: those of preemption and groups are tested in tests/scheduler,
the others in worlds that have claims (`test_claim_worlds.py`)."""


@pytest.mark.parametrize(
    "name",
    [p.name for p in IN_TREE if p.name not in ELSEWHERE and not any(implements(p, o) for o in OF_GROUPS)],
)
def test_plugin_keeps_its_promises(name: str) -> None:
    plugin = Registry().get(name)
    assert plugin is not None

    met = check_plugin(plugin, world=WORLDS.get(name), trials=TRIALS)

    filters = implements(plugin, "filter") or implements(plugin, "preFilter")
    wanted = {"hints": filters or implements(plugin, "preEnqueue"), "hooks": filters}
    wanted["scores"] = implements(plugin, "score")
    assert {check for check, is_wanted in wanted.items() if is_wanted} <= set(met)
    assert bool(met) is (name not in QUIET)


def added_affinity() -> Any:
    affinity = pod("x").node_affinity("zone in (a,b)").build().spec.affinity
    assert affinity is not None
    return NodeAffinityArgs(added_affinity=affinity.node_affinity)


def test_added_affinity_keeps_the_promises() -> None:
    """Gap G4 of kube-scheduler's hints, repaired."""
    plugin = Registry().get("NodeAffinity")
    assert plugin is not None

    assert check_plugin(plugin, added_affinity(), trials=TRIALS)["hints"] > 0


@pytest.mark.parametrize(
    ("name", "args"),
    [("NodeAffinity", added_affinity()), ("InterPodAffinity", None), ("PodTopologySpread", None)],
)
def test_kit_finds_the_gaps_of_kube_schedulers_hints(name: str, args: Any) -> None:
    """G1 to G5 and more are kept in upstream mode; a kit that did not find them would not be worth much."""
    plugin = Registry().get(name)
    assert plugin is not None

    with pytest.raises(BrokenPromise, match="no hint says Queue"):
        check_plugin(plugin, args, upstream=True, trials=3000)
