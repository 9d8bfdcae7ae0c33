"""Profiles: which plugins take part where, in which order and with which weight; and the plugins themselves, made from that.

A file states differences to the defaults. `expand` turns the defaults and the file's sets into one plain list per extension
point, by kube-scheduler's rules:

- merging: a default that the file disables is dropped, one that it enables again is replaced in its place, everything else that
  it enables comes after. Only defaults can be disabled: what is in both of the file's lists stays enabled.
- a plugin enabled at `multiPoint` takes part at every point it implements, unless the point disables it (or `*`). At a point
  that names it as well, the point's entry counts: those come first, in the point's order, then the other ones of multiPoint,
  then the point's rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidelog.api.errors import PluginError
from tidelog.api.features import FeatureGates
from tidelog.configuration.file_v1 import PluginEntry, Plugins, PluginSet
from tidelog.framework.interface import Handle, Plugin
from tidelog.plugins.registry import POINTS, WEIGHTED_POINTS, Registry, implements

MULTI_POINT = "multiPoint"
ALL = "*"


class DefaultPlugin(NamedTuple):
    """A plugin of the default profile; one that the registry does not have is left out."""

    name: str
    weight: int | None = None
    gate: str = ""
    """The field of `FeatureGates` that must be on."""
    upstream_weight: int | None = None
    """In `compat: upstream`, where it differs."""


DEFAULT_PLUGINS: tuple[DefaultPlugin, ...] = (
    DefaultPlugin("SchedulingGates"),
    DefaultPlugin("PrioritySort"),
    DefaultPlugin("NodeName"),
    DefaultPlugin("NodeUnschedulable"),
    DefaultPlugin("TaintToleration", 3),
    DefaultPlugin("NodeAffinity", 2),
    DefaultPlugin("NodePorts"),
    DefaultPlugin("NodeResourcesFit", 1),
    DefaultPlugin("VolumeRestrictions"),
    DefaultPlugin("NodeVolumeLimits"),
    DefaultPlugin("VolumeBinding"),
    DefaultPlugin("VolumeZone"),
    DefaultPlugin("PodTopologySpread", 2),
    DefaultPlugin("InterPodAffinity", 2),
    DefaultPlugin("DynamicResources", 2),
    DefaultPlugin("DefaultPreemption"),
    DefaultPlugin("NodeResourcesBalancedAllocation", 1),
    DefaultPlugin("ImageLocality", 1),
    DefaultPlugin("DefaultBinder"),
    DefaultPlugin("GangScheduling"),
    DefaultPlugin("TopologyPlacement", gate="topology_aware_workload_scheduling"),
    DefaultPlugin("PlacementPodCountScorer", 2, upstream_weight=1),
    DefaultPlugin("PlacementBinPacking", 1),
)
"""All enabled at multiPoint. The order is that of filtering, and of whose reason is reported first."""


WRITTEN_WITHOUT_WEIGHT = ("VolumeBinding",)
"""kube-scheduler enables it with weight 0, writes that into its files, and counts 1."""


class EnabledPlugin(msgspec.Struct, frozen=True):
    """A plugin at an extension point."""

    name: str
    weight: int = 0
    """Counts at score and placementScore only; 0 elsewhere."""


class ProfileSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A profile with nothing left implicit; what the log records of it."""

    scheduler_name: str
    points: dict[str, tuple[EnabledPlugin, ...]]
    """Extension point, as the file spells it → its plugins in order. Points without plugins are left out."""
    args: dict[str, dict[str, Any]]
    """Plugin → its arguments, defaults written out; for every enabled plugin that has arguments."""

    def plugin_names(self) -> list[str]:
        """Every enabled plugin once, in the order of first appearance."""
        return list(dict.fromkeys(entry.name for entries in self.points.values() for entry in entries))


def default_plugins(registry: Registry, gates: FeatureGates, *, upstream: bool = False) -> list[PluginEntry]:
    """The default profile's plugins, as far as they exist and their gates are open."""
    return [
        PluginEntry(name=default.name, weight=(upstream and default.upstream_weight) or default.weight)
        for default in DEFAULT_PLUGINS
        if registry.get(default.name) is not None and (not default.gate or getattr(gates, default.gate))
    ]


def expand(
    plugins: Plugins, registry: Registry, gates: FeatureGates, *, upstream: bool = False
) -> dict[str, tuple[EnabledPlugin, ...]]:
    """The plugins of every extension point. Names that the registry does not know must have been dropped before."""
    everywhere = _merged(default_plugins(registry, gates, upstream=upstream), plugins.multi_point)
    points = {}
    for point in POINTS:
        taking_part = [
            entry
            for entry in everywhere
            if implements(plugin := _known(registry, entry.name), point)
            and not (upstream and point in plugin.ours_at)
        ]
        entries = _at_point(taking_part, plugins.at(point))
        if entries:
            weighted = point in WEIGHTED_POINTS
            points[point] = tuple(EnabledPlugin(e.name, (e.weight or 1) if weighted else 0) for e in entries)
    return points


def _merged(defaults: Iterable[PluginEntry], given: PluginSet) -> list[PluginEntry]:
    disabled = {entry.name for entry in given.disabled}
    enabled = {entry.name: entry for entry in given.enabled}
    merged = {
        default.name: enabled.get(default.name, default)
        for default in defaults
        if ALL not in disabled and default.name not in disabled
    }
    return [*merged.values(), *(entry for name, entry in enabled.items() if name not in merged)]


def _at_point(everywhere: Sequence[PluginEntry], given: PluginSet) -> list[PluginEntry]:
    """`everywhere` are those of multiPoint that take part at the point."""
    disabled = {entry.name for entry in given.disabled}
    named = {entry.name for entry in given.enabled}
    if ALL in disabled:
        return list(given.enabled)
    spread = [entry for entry in everywhere if entry.name not in disabled]
    spread_names = {entry.name for entry in spread}
    overriding = [entry for entry in given.enabled if entry.name in spread_names]
    rest = [entry for entry in given.enabled if entry.name not in spread_names]
    return [*overriding, *(entry for entry in spread if entry.name not in named), *rest]


def _known(registry: Registry, name: str) -> type[Plugin]:
    plugin = registry.get(name)
    assert plugin is not None, f"{name} was not dropped before expanding"
    return plugin


# --- making the plugins -------------------------------------------------------------------------------------------------


class Profile(NamedTuple):
    """A profile's plugins, each made once and shared by its extension points."""

    spec: ProfileSpec
    plugins: Mapping[str, Plugin]
    """By name."""
    points: Mapping[str, tuple[Plugin, ...]]
    """By extension point, in order."""

    @property
    def name(self) -> str:
        """The name that pods have in `spec.schedulerName`."""
        return self.spec.scheduler_name

    def weights(self, point: str) -> dict[str, int]:
        """The weights of the plugins of `score` or `placementScore`."""
        return {entry.name: entry.weight for entry in self.spec.points.get(point, ())}


HandleFactory = Callable[[ProfileSpec], Handle]


def build_profile(spec: ProfileSpec, registry: Registry, handle: Handle) -> Profile:
    """The plugins of one profile. Its names are registered: resolving the configuration made sure of that.

    Raises PluginError for one whose constructor fails.
    """
    plugins = {name: _make(name, spec, registry, handle) for name in spec.plugin_names()}
    points = {
        point: tuple(plugins[entry.name] for entry in entries) for point, entries in spec.points.items()
    }
    return Profile(spec, plugins, points)


def _make(name: str, spec: ProfileSpec, registry: Registry, handle: Handle) -> Plugin:
    plugin = _known(registry, name)
    args = None if plugin.Args is None else msgspec.convert(spec.args[name], plugin.Args)
    try:
        return plugin(args, handle)
    except Exception as error:
        raise PluginError(name, f"cannot be made: {type(error).__name__}: {error}") from error


def build_profiles(
    specs: Iterable[ProfileSpec], registry: Registry, handle_factory: HandleFactory
) -> dict[str, Profile]:
    """All profiles by scheduler name. A plugin enabled in two of them is made twice, with each one's arguments."""
    return {spec.scheduler_name: build_profile(spec, registry, handle_factory(spec)) for spec in specs}
