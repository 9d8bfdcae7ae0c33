"""How a profile's sets and the defaults become one list per extension point, and the plugins themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.api.errors import PluginError
from tidelog.api.features import FeatureGates
from tidelog.configuration import profiles
from tidelog.configuration.file_v1 import PluginEntry, Plugins, PluginSet
from tidelog.configuration.profiles import (
    DefaultPlugin,
    EnabledPlugin,
    ProfileSpec,
    build_profiles,
    default_plugins,
    expand,
)
from tidelog.framework.interface import Plugin, PluginArgs
from tidelog.plugins.registry import Registry


def a_plugin(name: str, *methods: str, **attributes: Any) -> type[Plugin]:
    return type(
        name, (Plugin,), {"name": name, **{method: lambda *_: None for method in methods}, **attributes}
    )


class WithArgs(Plugin):
    class Args(PluginArgs, frozen=True, kw_only=True):
        size: int = 1

    name = "WithArgs"

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


REGISTRY = Registry(
    [
        a_plugin("A", "filter", "score"),
        a_plugin("B", "filter", "score"),
        a_plugin("C", "filter"),
        a_plugin("Extra", "filter", "score"),
        a_plugin("Scorer", "score"),
        WithArgs,
    ]
)
OFF, ON = FeatureGates(), FeatureGates(topology_aware_workload_scheduling=True)


@pytest.fixture(autouse=True)
def small_default_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = (
        DefaultPlugin("A", 3),
        DefaultPlugin("B", 2),
        DefaultPlugin("Absent", 9),
        DefaultPlugin("C", gate="topology_aware_workload_scheduling"),
    )
    monkeypatch.setattr(profiles, "DEFAULT_PLUGINS", defaults)


def names(text: str) -> tuple[PluginEntry, ...]:
    """`A B:5`: entries with or without a weight."""
    entries = []
    for word in text.split():
        name, _, weight = word.partition(":")
        entries.append(PluginEntry(name=name, weight=int(weight) if weight else None))
    return tuple(entries)


def a_set(enabled: str = "", disabled: str = "") -> PluginSet:
    return PluginSet(enabled=names(enabled), disabled=names(disabled))


def point(of: str, gates: FeatureGates = ON, **sets: PluginSet) -> str:
    """The expanded point, written like the input."""
    found = expand(Plugins(**sets), REGISTRY, gates).get(of, ())
    return " ".join(f"{entry.name}:{entry.weight}" if entry.weight else entry.name for entry in found)


# --- multiPoint -----------------------------------------------------------------------------------------------------------------


def test_defaults_take_part_wherever_they_can() -> None:
    assert point("filter") == "A B C"
    assert point("score") == "A:3 B:2"
    assert point("bind") == ""


def test_default_needs_its_gate_and_its_class() -> None:
    assert point("filter", OFF) == "A B"
    assert [entry.name for entry in default_plugins(REGISTRY, OFF)] == ["A", "B"]


@pytest.mark.parametrize(
    ("multi_point", "expected"),
    [
        (a_set(disabled="A"), "B C"),
        (a_set(disabled="*"), ""),
        (a_set("Extra"), "A B C Extra"),
        (a_set("Extra", "*"), "Extra"),
        (a_set("B:7"), "A B C"),
        (a_set("A", "A"), "B C A"),
        (a_set("B A", "*"), "B A"),
        (a_set("Extra A:9"), "A B C Extra"),
    ],
)
def test_merging_with_the_defaults(multi_point: PluginSet, expected: str) -> None:
    """Disabled defaults go, configured ones keep their place, others come after; the file's own stay whatever it disables."""
    assert point("filter", multi_point=multi_point) == expected


def test_default_that_is_configured_again_takes_the_new_weight() -> None:
    assert point("score", multi_point=a_set("B:7")) == "A:3 B:7"
    assert point("score", multi_point=a_set("B")) == "A:3 B:1"


# --- single points --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (a_set("Scorer"), "A:3 B:2 Scorer:1"),
        (a_set("Scorer:4"), "A:3 B:2 Scorer:4"),
        (a_set("B:5"), "B:5 A:3"),
        (a_set("Scorer B:5"), "B:5 A:3 Scorer:1"),
        (a_set("B A"), "B:1 A:1"),
        (a_set(disabled="A"), "B:2"),
        (a_set(disabled="*"), ""),
        (a_set("Scorer:4 A", "*"), "Scorer:4 A:1"),
        (a_set("A:9", "A"), "B:2 A:9"),
    ],
)
def test_expanding_multi_point_into_a_point(given: PluginSet, expected: str) -> None:
    """First the point's own entries of multiPoint plugins, in its order; then multiPoint's rest; then the point's rest."""
    assert point("score", score=given) == expected


def test_point_of_its_own_leaves_the_others_alone() -> None:
    assert point("filter", score=a_set(disabled="*")) == "A B C"


def test_weights_count_where_scores_are() -> None:
    assert point("filter", filter=a_set("Extra:5")) == "A B C Extra"


# --- making plugins -------------------------------------------------------------------------------------------------------------


def test_plugin_is_made_once_per_profile_with_that_profiles_arguments_and_handle() -> None:
    def spec(name: str, size: int) -> ProfileSpec:
        points = {
            "filter": (EnabledPlugin("A"), EnabledPlugin("WithArgs")),
            "score": (EnabledPlugin("A", 3), EnabledPlugin("Scorer", 1)),
        }
        return ProfileSpec(scheduler_name=name, points=points, args={"WithArgs": {"size": size}})

    built = build_profiles([spec("one", 1), spec("two", 2)], REGISTRY, lambda profile: profile)  # type: ignore[arg-type, return-value]

    one, two = built["one"], built["two"]
    assert list(one.plugins) == ["A", "WithArgs", "Scorer"]
    assert one.points["filter"][0] is one.points["score"][0]
    assert one.points["filter"][0] is not two.points["filter"][0]
    assert [built[name].plugins["WithArgs"].args.size for name in ("one", "two")] == [1, 2]
    assert one.plugins["A"].args is None
    assert two.plugins["A"].handle.scheduler_name == "two"
    assert one.weights("score") == {"A": 3, "Scorer": 1}
    assert one.name == "one"


def test_plugin_that_cannot_be_made_is_named() -> None:
    class Broken(WithArgs):
        def __init__(self, args: Any, handle: Any) -> None:
            raise ValueError("nothing works")

    spec = ProfileSpec(
        scheduler_name="s", points={"filter": (EnabledPlugin("WithArgs"),)}, args={"WithArgs": {}}
    )

    with pytest.raises(PluginError, match="plugin WithArgs: cannot be made: ValueError: nothing works"):
        build_profiles([spec], Registry([Broken]), lambda _spec: None)  # type: ignore[arg-type, return-value]


def test_profile_survives_the_log() -> None:
    spec = ProfileSpec(
        scheduler_name="s", points={"score": (EnabledPlugin("A", 3),)}, args={"WithArgs": {"size": 2}}
    )

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=ProfileSpec) == spec
