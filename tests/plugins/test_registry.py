"""Which plugins exist, how out-of-tree ones are found, and that ours are kube-scheduler's: points, events, depends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tidelog.api.errors import PluginError
from tidelog.api.features import FeatureGates
from tidelog.framework.events import ACTION_BY_NAME, Action
from tidelog.framework.interface import Plugin, PluginArgs, Status
from tidelog.plugins.registry import IN_TREE, POINTS, UNSUPPORTED, Registry, implements, load_entry_points
from tidelog.testing.plugin_kit import Subject

REFERENCE = Path(__file__).parent.parent / "conformance" / "reference"
PROFILE = json.loads((REFERENCE / "default-profile.json").read_text())
EVENTS = json.loads((REFERENCE / "plugin-events.json").read_text())
BY_NAME = {plugin.name: plugin for plugin in IN_TREE}


class Quiet(Plugin):
    name = "Quiet"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Idle(Plugin):
    name = "Idle"


class Demanding(Quiet):
    class Args(PluginArgs, frozen=True, kw_only=True):
        size: int

    name = "Demanding"


# --- ours beside kube-scheduler's -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", PROFILE["extensionPoints"])
def test_plugins_take_part_where_kube_schedulers_do(point: str) -> None:
    theirs = {name for name in PROFILE["extensionPoints"][point] if name in BY_NAME}
    ours = {name for name, plugin in BY_NAME.items() if implements(plugin, point)}

    assert theirs - ours == set()
    more = {"GangScheduling", "WaitForDriver"}
    if point.startswith("placement"):
        more.add("DynamicResources")  # KEP-5732 asks it of the beta.
    assert ours - theirs <= more, "not in kube-scheduler's default profile"


def test_every_default_plugin_of_kube_scheduler_is_here_or_known_to_be_missing() -> None:
    theirs = {name for names in PROFILE["extensionPoints"].values() for name in names}

    assert theirs - set(BY_NAME) <= set(UNSUPPORTED)
    assert not set(BY_NAME) & set(UNSUPPORTED)


SINGLE = [action for action in Action if action < Action.UPDATE_POD_CONDITION]
"""kube-scheduler's actions; ours beyond them are part of the general Update here too, and of nothing else."""


def by_action(registrations: Iterable[tuple[str, Action]]) -> set[tuple[str, Action]]:
    """(resource, single action) pairs. Whether a function judges them is not compared: one that always says Queue may be
    left out, and what the others say is compared case by case in tests/conformance."""
    return {
        (resource, single)
        for resource, action in registrations
        for single in SINGLE
        if single & action and resource not in NOT_WATCHED
    }


NOT_WATCHED = ("resource.k8s.io/DeviceClass",)
"""Device classes cannot stand in for extended resources here, so none helps a pod that NodeResourcesFit rejected."""


@pytest.mark.parametrize("name", [name for name in EVENTS["registered"] if name in BY_NAME])
def test_registered_events_are_kube_schedulers(name: str) -> None:
    plugin = Subject(BY_NAME[name], None, FeatureGates(), upstream=True).plugin

    ours = [(str(r.event.resource), r.event.action) for r in plugin.events_to_register() or ()]

    theirs = [
        (entry["resource"], ACTION_BY_NAME[action])
        for entry in EVENTS["registered"][name]
        for action in entry["actions"]
    ]
    assert by_action(ours) == by_action(theirs)
    beyond = [action for _, action in ours if action >= Action.UPDATE_POD_CONDITION]
    assert all(action & Action.UPDATE == Action.UPDATE for action in beyond)


@pytest.mark.parametrize("name", [name for name in EVENTS["noEnqueueExtensions"] if name in BY_NAME])
def test_plugins_that_never_reject_register_nothing(name: str) -> None:
    plugin = Subject(BY_NAME[name], None, FeatureGates(), upstream=True).plugin

    assert not plugin.events_to_register()


# --- the registry ---------------------------------------------------------------------------------------------------------------


def test_registry_holds_the_plugins_of_this_package() -> None:
    registry = Registry()

    assert list(registry) == list(IN_TREE)
    assert registry.names() == sorted(BY_NAME)
    assert registry.get("NodeName") is BY_NAME["NodeName"]
    assert registry.get("Nobody") is None


def test_second_plugin_of_a_name_is_refused() -> None:
    class Another(Quiet):
        name = "NodeName"

    with pytest.raises(
        PluginError, match=r"NodeName of pkg 1: the name is taken by tidelog\.plugins\.node_name"
    ):
        Registry().register(Another, "pkg 1")


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (object, "must be a class derived from"),
        (Quiet(None, None), "must be a class derived from"),  # type: ignore[arg-type]
        (type("Nameless", (Quiet,), {"name": ""}), "needs a class attribute `name`"),
        (Idle, "implements no extension point"),
        (Demanding, r"every field of Demanding\.Args needs a default"),
    ],
)
def test_what_is_no_plugin_is_refused(plugin: Any, why: str) -> None:
    with pytest.raises(PluginError, match=why):
        Registry().register(plugin, "pkg 1")


def test_point_needs_all_of_its_methods() -> None:
    half = type("Half", (Plugin,), {"name": "Half", "reserve": lambda *_: None})

    assert not implements(half, "reserve")
    assert [point for point in POINTS if implements(Quiet, point)] == ["filter"]


# --- out-of-tree plugins ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package that offers an entry point, into a folder that only this test sees."""

    def install(entry: str, source: str) -> None:
        (tmp_path / "offered_plugins.py").write_text(source)
        info = tmp_path / "offered-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[tidelog.plugins]\n{entry}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "offered_plugins", raising=False)

    return install


GOOD = """
from tidelog.framework.interface import Plugin

class Offered(Plugin):
    name = "Offered"

    def filter(self, state, pod, node):
        return None
"""


def test_entry_points_are_registered(installed: Callable[[str, str], None]) -> None:
    installed("Offered = offered_plugins:Offered", GOOD)
    registry = Registry()

    assert load_entry_points(registry) == ["Offered"]
    assert registry.get("Offered").__name__ == "Offered"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("entry", "source", "message"),
    [
        (
            "Offered = offered_plugins:Gone",
            GOOD,
            r"Offered of offered 1\.2 .*cannot be imported: AttributeError",
        ),
        ("Offered = offered_plugins:Offered", "import nowhere", "cannot be imported: ModuleNotFoundError"),
        ("Other = offered_plugins:Offered", GOOD, "the entry point calls it Other"),
        (
            "Offered = offered_plugins:Offered",
            GOOD.replace('"Offered"', '"NodeName"'),
            "the name is taken by",
        ),
    ],
)
def test_entry_point_that_cannot_be_used_is_named(
    installed: Callable[[str, str], None], entry: str, source: str, message: str
) -> None:
    installed(entry, source)

    with pytest.raises(PluginError, match=message):
        load_entry_points(Registry())
