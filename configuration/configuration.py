"""The scheduler's configuration: from a KubeSchedulerConfiguration file to the resolved form that is in force, and back.

    read_configuration(text, registry) ──► Loaded(configuration, warnings)      or InvalidObjects with every mistake in the file
    build_profiles(configuration.profiles, registry, …) ──► the plugins         (tidelog.configuration.profiles)
    write_configuration(configuration) ──► a file that reads as the same configuration

`SchedulerConfiguration` has nothing implicit left: which plugin runs where is spelled out per extension point, and arguments
carry their defaults. It is what the log records, so that replaying an old log does not depend on today's defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.times import NANOS, format_duration, parse_duration
from tidelog.api.validation.field_errors import INT32_MAX, POSITIVE, ErrorList, in_range
from tidelog.configuration import strict
from tidelog.configuration.cluster import ClusterOptions, cluster_options
from tidelog.configuration.file_v1 import (
    API_VERSION,
    KIND,
    KubeSchedulerConfiguration,
    PluginConfig,
    PluginEntry,
    Plugins,
    PluginSet,
    ProfileSection,
)
from tidelog.configuration.profiles import (
    ALL,
    MULTI_POINT,
    WRITTEN_WITHOUT_WEIGHT,
    EnabledPlugin,
    ProfileSpec,
    expand,
)
from tidelog.framework.behaviours import all_behaviours
from tidelog.framework.interface import Plugin
from tidelog.plugins.registry import POINTS, REMOVED, UNSUPPORTED, WEIGHTED_POINTS, Registry, implements

DEFAULT_SCHEDULER_NAME = "default-scheduler"
_GROUP_POST_FILTER = "podGroupPostFilter"

WITHOUT_EFFECT: dict[str, str] = {
    "parallelism": "one attempt is evaluated at a time",
    "percentageOfNodesToScore": "every node is considered",
    "leaderElection": "who writes the log is the leader, by the lock beside it",
    "clientConnection": "there is no API server to connect to, and with --kubeconfig only its qps and burst count",
    "enableProfiling": "there is no profiling endpoint",
    "enableContentionProfiling": "there is no profiling endpoint",
    "delayCacheUntilActive": "a standby always follows the log",
}


class SchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration in force. Durations are nanoseconds."""

    profiles: tuple[ProfileSpec, ...]
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    compat: Literal["default", "upstream"] = "default"
    time_event_period: int = 30 * NANOS
    pod_max_in_unschedulable_pods_duration: int = 300 * NANOS
    fallback_only_if_rejected_by_spread: bool = False
    guard_starting_pods: bool = True
    partial_placement: Literal["auto", "always"] = "auto"
    desired_count_wait: int = 5 * NANOS
    max_feasible_placements: int = 0
    max_topology_constraints: int = 1
    feature_gates: FeatureGates = FeatureGates()
    behaviours: tuple[int, ...] = ()
    """Numbered changes of what is decided that are in force (`tidelog.framework.behaviours`); no file names them."""

    def behaves(self, number: int) -> bool:
        """Whether the change of behaviour of this number is in force."""
        return number in self.behaviours

    @property
    def upstream(self) -> bool:
        """Reproduce kube-scheduler, known defects included."""
        return self.compat == "upstream"

    def profile(self, scheduler_name: str) -> ProfileSpec | None:
        """The profile for the pods that name this scheduler."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), None)


class Loaded(NamedTuple):
    """A configuration, and what in its file will not do what the writer may expect."""

    configuration: SchedulerConfiguration
    warnings: tuple[str, ...]
    cluster: ClusterOptions = ClusterOptions()
    """The file's options about a live cluster. They decide nothing, so no log has it."""


# --- reading ------------------------------------------------------------------------------------------------------------


def default_configuration(
    registry: Registry, gates: Mapping[str, bool] | None = None
) -> SchedulerConfiguration:
    """The configuration in force without a file."""
    header = {"apiVersion": API_VERSION, "kind": KIND}
    return resolve_configuration(header, registry, gates=gates).configuration


def read_configuration(
    text: str | bytes,
    registry: Registry,
    *,
    source: str = "the configuration",
    gates: Mapping[str, bool] | None = None,
) -> Loaded:
    """Read a YAML or JSON file. `gates` overrides the file's feature gates, by name (`--feature-gates`).

    Raises InvalidObjects, named after `source`, with every mistake that was found.
    """
    data = strict.parse_document(text, source)
    return resolve_configuration(data, registry, source=source, gates=gates)


def resolve_configuration(
    data: Any,
    registry: Registry,
    *,
    source: str = "the configuration",
    gates: Mapping[str, bool] | None = None,
) -> Loaded:
    """As `read_configuration`, from plain data."""
    errors = ErrorList()
    if not isinstance(data, Mapping):
        errors.invalid("document", data, "must be an object")
        raise InvalidObjects(source, errors)
    file = strict.decode(KubeSchedulerConfiguration, _with_gates(data, gates or {}), "", errors)
    unreadable = [error.path for error in errors]
    upstream = file.tidelog.compat == "upstream"
    resolver = _Resolver(registry, file.tidelog.feature_gates, upstream=upstream)
    configuration = resolver.configuration(file)
    cluster = cluster_options(file, resolver.errors)
    # A value that could not be read was replaced by its default; what is then wrong with that is not the user's mistake.
    errors.extend(e for e in resolver.errors if not any(_is_below(e.path, path) for path in unreadable))
    if errors:
        raise InvalidObjects(source, errors)
    return Loaded(configuration, tuple(resolver.warnings), cluster)


def _with_gates(data: Mapping[str, Any], gates: Mapping[str, bool]) -> Mapping[str, Any]:
    section = data.get("tidelog") or {}
    if not gates or not isinstance(section, Mapping):
        return data
    own = section.get("featureGates") or {}
    merged = {**own, **gates} if isinstance(own, Mapping) else own
    return {**data, "tidelog": {**section, "featureGates": merged}}


def _is_below(path: str, ancestor: str) -> bool:
    return path.startswith(ancestor) and path[len(ancestor) : len(ancestor) + 1] in ("", ".", "[")


class _Resolver:
    """Applies defaults and rules to a file, and collects what is wrong with it."""

    def __init__(self, registry: Registry, gates: FeatureGates, *, upstream: bool) -> None:
        self.registry = registry
        self.gates = gates
        self.upstream = upstream
        self.errors = ErrorList()
        self.warnings: list[str] = []

    # --- the fields outside profiles -------------------------------------------------------------------------------

    def configuration(self, file: KubeSchedulerConfiguration) -> SchedulerConfiguration:
        self._header(file)
        self._numbers(file)
        self._without_effect(file)
        if file.extenders:
            rule = "extenders are not supported: write a plugin instead (docs/plugins.md)"
            self.errors.forbidden("extenders", rule)
        profiles = self._profiles(file.profiles or (ProfileSection(),))
        section = file.tidelog
        upstream = section.compat == "upstream"
        return SchedulerConfiguration(
            profiles=profiles,
            pod_initial_backoff_seconds=file.pod_initial_backoff_seconds,
            pod_max_backoff_seconds=file.pod_max_backoff_seconds,
            compat=section.compat,
            time_event_period=self._duration("timeEventPeriod", section.time_event_period, NANOS),
            pod_max_in_unschedulable_pods_duration=self._duration(
                "podMaxInUnschedulablePodsDuration", section.pod_max_in_unschedulable_pods_duration, 1
            ),
            fallback_only_if_rejected_by_spread=section.fallback_only_if_rejected_by_spread,
            guard_starting_pods=section.guard_starting_pods,
            partial_placement=section.partial_placement or ("always" if upstream else "auto"),
            desired_count_wait=self._duration("desiredCountWait", section.desired_count_wait, 0),
            max_feasible_placements=self._at_least(
                "maxFeasiblePlacements", section.max_feasible_placements, 0
            ),
            max_topology_constraints=self._at_least(
                "maxTopologyConstraints", section.max_topology_constraints, 1
            ),
            feature_gates=section.feature_gates,
            behaviours=all_behaviours(),
        )

    def _header(self, file: KubeSchedulerConfiguration) -> None:
        for path, value, wanted in (
            ("apiVersion", file.api_version, API_VERSION),
            ("kind", file.kind, KIND),
        ):
            if not value:
                self.errors.required(path, f'must be "{wanted}"')
            elif value != wanted:
                self.errors.not_supported(path, value, [wanted])

    def _numbers(self, file: KubeSchedulerConfiguration) -> None:
        if file.parallelism is not None and file.parallelism <= 0:
            self.errors.invalid("parallelism", file.parallelism, POSITIVE)
        self._percentage("percentageOfNodesToScore", file.percentage_of_nodes_to_score)
        initial, longest = file.pod_initial_backoff_seconds, file.pod_max_backoff_seconds
        if initial <= 0:
            self.errors.invalid("podInitialBackoffSeconds", initial, POSITIVE)
        if longest < initial:
            rule = f"must be greater than or equal to podInitialBackoffSeconds ({initial})"
            self.errors.invalid("podMaxBackoffSeconds", longest, rule)
        election = file.leader_election
        if election and election.leader_elect and election.resource_lock != "leases":
            self.errors.not_supported("leaderElection.resourceLock", election.resource_lock, ["leases"])

    def _percentage(self, path: str, value: int | None) -> None:
        if value is not None and not 0 <= value <= 100:
            self.errors.invalid(path, value, in_range(0, 100))

    def _without_effect(self, file: KubeSchedulerConfiguration) -> None:
        values = zip(file.__struct_encode_fields__, file.__struct_fields__, strict=True)
        for key, field in values:
            if key in WITHOUT_EFFECT and getattr(file, field) is not None:
                self.warnings.append(f"{key} has no effect: {WITHOUT_EFFECT[key]}")

    def _duration(self, key: str, text: str, at_least: int) -> int:
        path = f"tidelog.{key}"
        try:
            value = parse_duration(text)
        except ValueError as error:
            self.errors.invalid(path, text, str(error))
            return at_least
        if value < at_least:
            rule = f"must be at least {format_duration(at_least)}" if at_least > 1 else POSITIVE
            self.errors.invalid(path, text, rule if at_least else "must not be negative")
        return value

    def _at_least(self, key: str, value: int, least: int) -> int:
        if value < least:
            self.errors.invalid(f"tidelog.{key}", value, POSITIVE if least else "must not be negative")
        return value

    # --- profiles --------------------------------------------------------------------------------------------------

    def _profiles(self, sections: Sequence[ProfileSection]) -> tuple[ProfileSpec, ...]:
        profiles: list[ProfileSpec] = []
        for i, section in enumerate(sections):
            path = f"profiles[{i}]"
            name = section.scheduler_name or (DEFAULT_SCHEDULER_NAME if len(sections) == 1 else "")
            if not name:
                self.errors.required(f"{path}.schedulerName", "needed where there are several profiles")
            elif any(name == other.scheduler_name for other in profiles):
                self.errors.duplicate(f"{path}.schedulerName", name)
            profiles.append(self._profile(section, name, path))
        for i, profile in enumerate(profiles[1:], 1):
            if _queue_sort(profile) != _queue_sort(profiles[0]):
                rule = "all profiles share one queue, so they must sort it in the same way as profiles[0]"
                self.errors.invalid(f"profiles[{i}].plugins.queueSort", _queue_sort(profile)[0], rule)
        return tuple(profiles)

    def _profile(self, section: ProfileSection, name: str, path: str) -> ProfileSpec:
        self._percentage(f"{path}.percentageOfNodesToScore", section.percentage_of_nodes_to_score)
        if section.percentage_of_nodes_to_score is not None:
            why = WITHOUT_EFFECT["percentageOfNodesToScore"]
            self.warnings.append(f"{path}.percentageOfNodesToScore has no effect: {why}")
        plugins = self._plugins(section.plugins, f"{path}.plugins")
        points = expand(plugins, self.registry, self.gates, upstream=self.upstream)
        self._check_points(points, f"{path}.plugins")
        enabled = {entry.name for entries in points.values() for entry in entries}
        args = self._args(section.plugin_config, enabled, f"{path}.pluginConfig")
        return ProfileSpec(scheduler_name=name, points=points, args=args)

    def _check_points(self, points: Mapping[str, Sequence[EnabledPlugin]], path: str) -> None:
        sorts = points.get("queueSort", ())
        if len(sorts) != 1:
            names = [entry.name for entry in sorts]
            rule = "exactly one queueSort plugin must be enabled; disable the default one to use another"
            self.errors.invalid(f"{path}.queueSort", names, rule)
        if not points.get("bind"):
            self.errors.required(f"{path}.bind", "at least one bind plugin must be enabled")
        if self.upstream and len(points.get("placementGenerate", ())) > 1:
            self.errors.too_many(f"{path}.placementGenerate", len(points["placementGenerate"]), 1)

    # --- the plugins that a profile names -----------------------------------------------------------------------------

    def _plugins(self, plugins: Plugins, path: str) -> Plugins:
        """The same sets without what had to be refused or cannot take effect."""
        kept = {
            field: self._plugin_set(point, getattr(plugins, field), f"{path}.{point}")
            for point, field in zip(plugins.__struct_encode_fields__, plugins.__struct_fields__, strict=True)
        }
        return Plugins(**kept)

    def _plugin_set(self, point: str, given: PluginSet, path: str) -> PluginSet:
        enabled: dict[str, PluginEntry] = {}
        for i, entry in enumerate(given.enabled):
            where = f"{path}.enabled[{i}]"
            plugin = self._plugin(entry.name, f"{where}.name", wanted=True)
            if entry.name and entry.name in enabled:
                self.errors.duplicate(f"{where}.name", entry.name)
            self._weight(entry, plugin, point, f"{where}.weight")
            if plugin is not None and self._takes_part(plugin, point, f"{where}.name"):
                enabled[entry.name] = entry
        for i, entry in enumerate(given.disabled):
            if entry.name != ALL:
                self._plugin(entry.name, f"{path}.disabled[{i}].name", wanted=False)
        return PluginSet(enabled=tuple(enabled.values()), disabled=given.disabled)

    def _plugin(self, name: str, path: str, *, wanted: bool) -> type[Plugin] | None:
        """The class of this name. None if there is none; then that was said."""
        plugin = self.registry.get(name)
        if plugin is not None:
            return plugin
        if not name:
            self.errors.required(path)
        elif name in REMOVED:
            if wanted:
                self.errors.not_found(path, name, "the plugin was removed from Kubernetes")
        elif name in UNSUPPORTED:
            if wanted:
                self.warnings.append(f"{path}: {name} is left out: {UNSUPPORTED[name]}")
        else:
            self.errors.not_found(path, name, self._no_such_plugin(name))
        return None

    def _no_such_plugin(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.registry.names(), n=1)
        return "no such plugin" + (f', did you mean "{near[0]}"?' if near else "")

    def _takes_part(self, plugin: type[Plugin], point: str, path: str) -> bool:
        if point == _GROUP_POST_FILTER:
            self.warnings.append(f"{path}: {plugin.name} is left out: groups do not preempt")
            return False
        if point == MULTI_POINT or implements(plugin, point):
            return True
        self.errors.invalid(path, plugin.name, f"the plugin does not take part in {point}")
        return False

    def _weight(self, entry: PluginEntry, plugin: type[Plugin] | None, point: str, path: str) -> None:
        """Zero is refused where a weight counts: it would read like "off" but mean 1. Elsewhere kube-scheduler's own
        files are full of zeros. With the upper limit no sum of weighted scores can leave 64 bits."""
        weight = entry.weight
        if weight is None:
            return
        counts = plugin is not None and any(
            implements(plugin, weighted) for weighted in WEIGHTED_POINTS if point in (weighted, MULTI_POINT)
        )
        if entry.name in WRITTEN_WITHOUT_WEIGHT and point == MULTI_POINT:
            counts = False
        if weight < 0 or (weight == 0 and counts):
            self.errors.invalid(path, weight, f"{POSITIVE}; leave it out for 1, or disable the plugin")
        elif weight > INT32_MAX:
            self.errors.invalid(path, weight, in_range(1, INT32_MAX))

    # --- arguments -----------------------------------------------------------------------------------------------------

    def _args(
        self, configs: Sequence[PluginConfig], enabled: set[str], path: str
    ) -> dict[str, dict[str, Any]]:
        given: dict[str, dict[str, Any]] = {}
        for i, config in enumerate(configs):
            where = f"{path}[{i}]"
            plugin = self._plugin(config.name, f"{where}.name", wanted=True)
            if config.name and config.name in given:
                self.errors.duplicate(f"{where}.name", config.name)
            if plugin is None:
                continue
            given[config.name] = self._plugin_args(plugin, config.args, f"{where}.args")
            if config.name not in enabled:
                self.warnings.append(f"{where} has no effect: {config.name} is not enabled in this profile")
        return {
            plugin.name: given.get(plugin.name) or strict.to_plain(plugin.Args())
            for plugin in self.registry
            if plugin.Args is not None and plugin.name in enabled
        }

    def _plugin_args(self, plugin: type[Plugin], given: Mapping[str, Any], path: str) -> dict[str, Any]:
        for key, wanted in (("apiVersion", API_VERSION), ("kind", f"{plugin.name}Args")):
            if given.get(key) not in (None, wanted):
                self.errors.not_supported(f"{path}.{key}", given[key], [wanted])
        fields = {key: value for key, value in given.items() if key not in ("apiVersion", "kind")}
        if plugin.Args is None:
            if fields:
                self.errors.forbidden(path, f"{plugin.name} takes no arguments")
            return {}
        errors = ErrorList()
        args = strict.decode(plugin.Args, fields, path, errors)
        unreadable = [error.path for error in errors]
        broken = plugin.validate_args(args, path, self.gates)
        errors.extend(e for e in broken if not any(_is_below(e.path, path) for path in unreadable))
        self.errors.extend(errors)
        found: dict[str, Any] = strict.to_plain(args)
        return found


def _queue_sort(profile: ProfileSpec) -> tuple[list[str], list[dict[str, Any] | None]]:
    names = [entry.name for entry in profile.points.get("queueSort", ())]
    return names, [profile.args.get(name) for name in names]


# --- writing ------------------------------------------------------------------------------------------------------------


def write_configuration(configuration: SchedulerConfiguration) -> str:
    """A YAML file that reads as exactly this configuration, with everything spelled out (`--write-config-to`)."""
    return msgspec.yaml.encode(configuration_file(configuration)).decode()


def configuration_file(configuration: SchedulerConfiguration) -> dict[str, Any]:
    """The text of that file."""
    section = {
        "compat": configuration.compat,
        "timeEventPeriod": format_duration(configuration.time_event_period),
        "podMaxInUnschedulablePodsDuration": format_duration(
            configuration.pod_max_in_unschedulable_pods_duration
        ),
        "fallbackOnlyIfRejectedBySpread": configuration.fallback_only_if_rejected_by_spread,
        "guardStartingPods": configuration.guard_starting_pods,
        "partialPlacement": configuration.partial_placement,
        "desiredCountWait": format_duration(configuration.desired_count_wait),
        "maxFeasiblePlacements": configuration.max_feasible_placements,
        "maxTopologyConstraints": configuration.max_topology_constraints,
        "featureGates": msgspec.to_builtins(configuration.feature_gates),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "podInitialBackoffSeconds": configuration.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": configuration.pod_max_backoff_seconds,
        "profiles": [_profile_section(profile) for profile in configuration.profiles],
        "tidelog": section,
    }


def _profile_section(profile: ProfileSpec) -> dict[str, Any]:
    """Every point replaces the defaults, so that nothing but what is written takes part."""
    nothing_else = {"disabled": [{"name": ALL}]}
    points = {
        point: {"enabled": [_entry(e) for e in profile.points.get(point, ())], **nothing_else}
        for point in POINTS
    }
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": points,
        "pluginConfig": [
            {"name": name, "args": {"apiVersion": API_VERSION, "kind": f"{name}Args", **args}}
            for name, args in profile.args.items()
        ],
    }


def _entry(entry: EnabledPlugin) -> dict[str, Any]:
    return {"name": entry.name, "weight": entry.weight} if entry.weight else {"name": entry.name}
