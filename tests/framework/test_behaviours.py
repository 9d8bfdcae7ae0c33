"""Numbered changes of behaviour: a made-up one, under which a plugin decides the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worlds.histories import node, pod
from tidelog.api.errors import TidelogError
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.framework.behaviours import BEHAVIOURS, Behaviour, all_behaviours
from tidelog.framework.interface import CycleState, Plugin
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.state import encode_state, load_state

MADE_UP = 9001
BY_THE_LAST = Behaviour("by-the-last", "9.0.0", "ByName prefers the last node.")
HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


class ByName(Plugin):
    """The first node by name; since behaviour 9001 the last."""

    name = "ByName"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        place = ord(node.name[-1]) % 100
        return place if self.handle.behaves(MADE_UP) else 100 - place


REGISTRY = Registry([*IN_TREE, ByName])


@pytest.fixture
def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of tidelog that knows the behaviour."""
    monkeypatch.setitem(BEHAVIOURS, MADE_UP, BY_THE_LAST)


def configuration() -> SchedulerConfiguration:
    section = {"plugins": {"multiPoint": {"enabled": [{"name": "ByName", "weight": 1000}]}}}
    return resolve_configuration({**HEADER, "profiles": [section]}, REGISTRY).configuration


def a_log() -> Driver:
    driver = Driver(REGISTRY)
    driver.start(configuration())
    driver.put(node("a").build(), node("b").build(), node("c").build(), pod("p").build())
    driver.settle()
    return driver


def test_an_old_log_verifies_under_the_behaviour_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_log()

    monkeypatch.setitem(BEHAVIOURS, MADE_UP, BY_THE_LAST)

    assert old.placements() == {"default/p": "a"}
    assert verify(old.records, REGISTRY).first_difference is None


@pytest.mark.usefixtures("later_version")
def test_a_new_configuration_asks_for_every_behaviour_that_there_is() -> None:
    new = a_log()

    assert all_behaviours()[-1] == MADE_UP
    assert new.placements() == {"default/p": "c"}
    assert verify(new.records, REGISTRY).first_difference is None


@pytest.mark.usefixtures("later_version")
def test_a_restart_keeps_the_behaviours_of_the_configuration() -> None:
    core = recover(a_log().records, REGISTRY)

    loaded = load_state(encode_state(core), REGISTRY)

    assert loaded is not None
    assert loaded.configuration is not None
    assert loaded.configuration.behaves(MADE_UP)
    assert loaded.digest() == core.digest()


@pytest.mark.usefixtures("later_version")
def test_a_log_goes_on_under_its_old_behaviours_until_it_is_configured_anew() -> None:
    driver = Driver(REGISTRY)
    driver.start(replace(configuration(), behaviours=()))
    driver.put(node("a").build(), node("b").build(), pod("old").build())
    driver.settle()
    driver.configure(configuration())
    driver.put(pod("new").build())
    driver.settle()

    assert driver.placements() == {"default/old": "a", "default/new": "b"}


def test_page_lists_every_behaviour() -> None:
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()

    for number, made in BEHAVIOURS.items():
        assert f"| {number} | {made.name} | {made.since} | {made.what} |" in page


@pytest.mark.unreplayed("the log asks for a behaviour that is not known")
def test_a_behaviour_of_a_newer_version_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BEHAVIOURS, MADE_UP, BY_THE_LAST)
    records = a_log().records
    monkeypatch.delitem(BEHAVIOURS, MADE_UP)

    with pytest.raises(TidelogError, match="asks for behaviour 9001, which this tidelog does not know"):
        recover(records, REGISTRY)
    report = verify(records, REGISTRY)
    assert report.first_difference is not None
    assert "behaviour 9001" in report.first_difference.what
