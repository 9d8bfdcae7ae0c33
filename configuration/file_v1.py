"""The file format `KubeSchedulerConfiguration` of kubescheduler.config.k8s.io/v1, with our `tidelog` section: shape only.

The meaning of the fields, their rules and defaults are in `tidelog.configuration.configuration`. A field that kube-scheduler has
and we have no use for is here all the same, because the files that people have contain it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tidelog.api.features import FeatureGates

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base: camelCase, everything optional. None means that the file says nothing."""


class PluginEntry(_File, frozen=True, kw_only=True):
    name: str = ""
    weight: int | None = None


class PluginSet(_File, frozen=True, kw_only=True):
    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()
    """`*` stands for all defaults."""


_EMPTY = PluginSet()


class Plugins(_File, frozen=True, kw_only=True):
    multi_point: PluginSet = _EMPTY
    """Enabled at every point that the plugin implements."""
    pre_enqueue: PluginSet = _EMPTY
    queue_sort: PluginSet = _EMPTY
    pre_filter: PluginSet = _EMPTY
    filter: PluginSet = _EMPTY
    post_filter: PluginSet = _EMPTY
    pre_score: PluginSet = _EMPTY
    score: PluginSet = _EMPTY
    reserve: PluginSet = _EMPTY
    permit: PluginSet = _EMPTY
    pre_bind: PluginSet = _EMPTY
    bind: PluginSet = _EMPTY
    post_bind: PluginSet = _EMPTY
    placement_generate: PluginSet = _EMPTY
    placement_state: PluginSet = _EMPTY
    """Ours, for KEP-5732."""
    placement_score: PluginSet = _EMPTY
    pod_group_post_filter: PluginSet = _EMPTY

    def at(self, point: str) -> PluginSet:
        """The set of an extension point, by the name it has in the file."""
        fields = dict(zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True))
        found: PluginSet = getattr(self, fields[point])
        return found


class PluginConfig(_File, frozen=True, kw_only=True):
    name: str = ""
    args: dict[str, Any] = {}


class ProfileSection(_File, frozen=True, kw_only=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class LeaderElection(_File, frozen=True, kw_only=True):
    leader_elect: bool | None = None
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(_File, frozen=True, kw_only=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float | None = None
    burst: int | None = None


class LeaseSection(_File, frozen=True, kw_only=True):
    namespace: str = "kube-system"
    name: str = "tidelog-scheduler"
    duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"


class ClusterSection(_File, frozen=True, kw_only=True):
    """A live cluster (docs/live.md). What the command line says counts before what is here."""

    mode: Literal["record", "shadow", "schedule"] | None = None
    lease: LeaseSection = LeaseSection()
    unsettled: int | None = None
    """So many bindings may be decided and not seen."""
    concurrency: int = 32
    """So many writes may be under way."""
    strict_binding: bool = False
    """A binding names the pod's resourceVersion: any change of the pod refuses it."""
    preemption: Literal["evict", "delete"] = "evict"
    redaction: Literal["standard", "images", "pseudonymous"] | None = None
    keep_annotations: tuple[str, ...] = ()
    events: Literal["all", "problems", "none"] | None = None
    annotate_explanation: bool = False
    """A rejection's explanation goes into an annotation of the pod."""
    resync_check: str = "5m"
    """How often it is asked whether the server was set back."""


class TidelogSection(_File, frozen=True, kw_only=True):
    """Our own options, which kube-scheduler does not have. Durations are written as Go does: `30s`, `1h30m`."""

    compat: Literal["default", "upstream"] = "default"
    """upstream: reproduce kube-scheduler, known defects included."""
    time_event_period: str = "30s"
    """How often a tick enters the log while some pod waits for time to pass."""
    pod_max_in_unschedulable_pods_duration: str = "5m"
    """After this long in the unschedulable pool a pod is tried again without any event."""
    fallback_only_if_rejected_by_spread: bool = False
    """KEP-3990: fall back only if topology spread was among the plugins that rejected the pod."""
    guard_starting_pods: bool = True
    """KEP-4664: a protected pod that is pending or starting costs its budgets as a Ready one does. False: as the eviction endpoint charges."""
    partial_placement: Literal["auto", "always"] | None = None
    """auto: a basic group with a topology level is placed whole or not at all. always: kube-scheduler's way."""
    desired_count_wait: str = "5s"
    """How long a basic group waits for its desired number of pods; 0s: not at all."""
    max_feasible_placements: int = 0
    """A group's search ends when so many placements can take all of it (KEP-5732); 0: it looks at all."""
    max_topology_constraints: int = 1
    """How many topology constraints a group may have; KEP-5732's first version allows one."""
    feature_gates: FeatureGates = FeatureGates()
    cluster: ClusterSection = ClusterSection()


class KubeSchedulerConfiguration(_File, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    parallelism: int | None = None
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[ProfileSection, ...] = ()
    extenders: tuple[dict[str, Any], ...] = ()
    leader_election: LeaderElection | None = None
    client_connection: ClientConnection | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    delay_cache_until_active: bool | None = None
    tidelog: TidelogSection = TidelogSection()
