"""Which plugins exist: those of this package, and those that other packages bring through the entry-point group.

A registry is a plain table from name to class; making one does nothing else. Only `load_entry_points` looks at what is
installed, so the daemon calls it once at its start, before it reads its configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tidelog.api.entry_points import offered
from tidelog.api.errors import PluginError
from tidelog.api.kinds.registry import load_installed
from tidelog.api.kinds.registry import register as register_kind
from tidelog.framework.interface import Plugin
from tidelog.plugins.default_binder import DefaultBinder
from tidelog.plugins.default_preemption.plugin import DefaultPreemption
from tidelog.plugins.devices.wait_for_driver import WaitForDriver
from tidelog.plugins.dynamic_resources.plugin import DynamicResources
from tidelog.plugins.gang_scheduling import GangScheduling
from tidelog.plugins.image_locality import ImageLocality
from tidelog.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tidelog.plugins.node_affinity import NodeAffinity
from tidelog.plugins.node_name import NodeName
from tidelog.plugins.node_ports import NodePorts
from tidelog.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.plugins.node_unschedulable import NodeUnschedulable
from tidelog.plugins.placement.bin_packing import PlacementBinPacking
from tidelog.plugins.placement.pod_count import PlacementPodCountScorer, PodGroupPodsCount
from tidelog.plugins.placement.topology import TopologyPlacement, TopologyPlacementGenerator
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.plugins.scheduling_gates import SchedulingGates
from tidelog.plugins.taint_toleration import TaintToleration
from tidelog.plugins.volumes.binding import VolumeBinding
from tidelog.plugins.volumes.limits import NodeVolumeLimits
from tidelog.plugins.volumes.restrictions import VolumeRestrictions
from tidelog.plugins.volumes.zone import VolumeZone

ENTRY_POINT_GROUP = "tidelog.plugins"

IN_TREE: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    GangScheduling,
    TopologyPlacement,
    TopologyPlacementGenerator,
    PlacementPodCountScorer,
    PodGroupPodsCount,
    PlacementBinPacking,
    WaitForDriver,
)

POINTS: dict[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter",),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score",),
    "reserve": ("reserve", "unreserve"),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
    "placementGenerate": ("generate",),
    "placementState": ("assume", "revert"),
    "placementScore": ("score_placement",),
}
"""Each extension point as the configuration spells it → the methods with which a plugin takes part."""

WEIGHTED_POINTS = ("score", "placementScore")

UNSUPPORTED: dict[str, str] = {
    "NodeDeclaredFeatures": "nodes' declared features are not looked at",
    "DeferredPodScheduling": "resizing by preemption is not supported",
}
"""kube-scheduler's plugins that a configuration may name although we do not have them, with the reason. Registering a
plugin of such a name makes it an ordinary one."""

REMOVED = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Names that kube-scheduler refuses since it dropped the plugins."""


def implements(plugin: type[Plugin], point: str) -> bool:
    """Whether the class has every method of the extension point."""
    return all(callable(getattr(plugin, method, None)) for method in POINTS[point])


class Registry:
    """Plugin classes by name, in the order in which they were registered."""

    def __init__(self, plugins: Iterable[type[Plugin]] = IN_TREE) -> None:
        self._plugins: dict[str, type[Plugin]] = {}
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: Any, origin: str = "") -> None:
        """Make a plugin class known under its name. Raises PluginError, which names `origin`, if that cannot be."""
        name = getattr(plugin, "name", None)
        shown = (name or repr(plugin)) + (f" of {origin}" if origin else "")
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise PluginError(shown, "must be a class derived from tidelog.framework.interface.Plugin")
        if not isinstance(name, str) or not name:
            raise PluginError(shown, "needs a class attribute `name`")
        if name in self._plugins:
            taken = self._plugins[name]
            raise PluginError(
                shown, f"the name is taken by {taken.__module__}.{taken.__qualname__}; choose another"
            )
        if plugin.Args is not None and not _has_defaults(plugin.Args):
            raise PluginError(shown, f"every field of {plugin.Args.__qualname__} needs a default")
        if origin and not any(implements(plugin, point) for point in POINTS):
            raise PluginError(shown, "implements no extension point; check the names of its methods")
        for kind in plugin.kinds:
            register_kind(kind)
        self._plugins[name] = plugin

    def get(self, name: str) -> type[Plugin] | None:
        """The class of this name."""
        return self._plugins.get(name)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._plugins)

    def __iter__(self) -> Iterator[type[Plugin]]:
        return iter(self._plugins.values())


def _has_defaults(args: type[msgspec.Struct]) -> bool:
    return all(not field.required for field in msgspec.structs.fields(args))


def load_entry_points(registry: Registry) -> list[str]:
    """Register the plugins and kinds that installed packages offer; return the plugins' names. Imports those packages.

    Raises PluginError for the first that cannot be imported or registered.
    """
    load_installed()
    names = []
    for name, origin, plugin in offered(ENTRY_POINT_GROUP):
        registry.register(plugin, origin)
        if plugin.name != name:
            raise PluginError(f"{plugin.name} of {origin}", f"the entry point calls it {name}")
        names.append(name)
    return names


def installed_plugins() -> Registry:
    """The plugins of this package and those of installed packages."""
    registry = Registry()
    load_entry_points(registry)
    return registry
