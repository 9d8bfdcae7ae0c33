"""Builds what a configuration asks for: the plugins of each profile, the frameworks that run them, and the queue.

    configuration ──► registry ──► profiles ──► a framework each ─┐
                                       └──────► one queue ────────┴──► in force from the record on that says so

All profiles share the cluster, the queue, and the evictions that are under way. When another configuration comes into force the pods keep
their places and counters, and the plugins are made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidelog.api.errors import PluginError
from tidelog.api.objects import Pod
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.configuration.profiles import Profile, build_profiles
from tidelog.framework.behaviours import GROUP_ERRORS_WAIT, check_behaviours
from tidelog.framework.events import WILDCARD
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import QueueSortPlugin
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import pod_key
from tidelog.queue.scheduling_queue import QueueConfig, SchedulingQueue
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.evaluation.fast import FastEvaluation
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.groups.group import group_name
from tidelog.scheduler.preemption import Evictions, Preemption
from tidelog.scheduler.unsupported import UnsupportedNeeds


class Assembly:
    """The configuration that is in force, and the frameworks by profile. The queue is the cluster's."""

    def __init__(self, registry: Registry, cluster: Cluster, evictions: Evictions, *, fast: bool) -> None:
        """`fast=False`: the frameworks ask every plugin about every node."""
        self.configuration: SchedulerConfiguration | None = None
        self.frameworks: dict[str, Framework] = {}
        self._registry = registry
        self._cluster = cluster
        self._evictions = evictions
        self._fast = fast

    def check(self, configuration: SchedulerConfiguration) -> None:
        """Raise what putting this configuration to work would raise: once it is a record, it is too late.

        The plugins are made for a cluster of their own, and nothing here changes.
        """
        Assembly(self._registry, Cluster(), Evictions(), fast=self._fast)._install(configuration)

    def configure(self, configuration: SchedulerConfiguration) -> None:
        """Another configuration is in force from this record on. The pods keep their places and counters."""
        cluster, before = self._cluster, self.configuration
        queue = self._install(configuration)
        schedulers = cluster.rules.schedulers
        if before is not None:
            for pod in list(cluster.pending_pods()):
                if pod.spec.scheduler_name not in schedulers:
                    cluster.queue.delete(pod, cluster.at)
            queue.load_state(cluster.queue.dump_state(), self._pod_named)
        cluster.queue = queue
        cluster.update_groups(cluster.groups.names())
        for pod in cluster.pending_pods():
            if pod.spec.scheduler_name in schedulers and queue.get(pod_key(pod)) is None:
                queue.add(pod, cluster.at)
        # What rejected a pod under the old rules says nothing about the new ones.
        queue.on_event(WILDCARD, None, None, cluster.seq, cluster.at)

    def restore(self, configuration: SchedulerConfiguration, queue_state: Mapping[str, Any]) -> None:
        """The configuration was in force when a state was dumped, and this was in the queue."""
        queue = self._install(configuration)
        queue.load_state(queue_state, self._pod_named)
        self._cluster.queue = queue

    def _install(self, configuration: SchedulerConfiguration) -> SchedulingQueue:
        """Build what the configuration asks for; the new queue is still empty."""
        cluster = self._cluster
        for name in (name for profile in configuration.profiles for name in profile.plugin_names()):
            if self._registry.get(name) is None:
                raise PluginError(
                    name, f"record {cluster.seq} puts it to work, and there is no such plugin; install it"
                )
        check_behaviours(configuration.behaviours)
        self.configuration = configuration
        cluster.configure(configuration)
        handles = {p.scheduler_name: self._handle(configuration) for p in configuration.profiles}
        profiles = build_profiles(configuration.profiles, self._registry, lambda p: handles[p.scheduler_name])
        queue = _make_queue(configuration, profiles)
        index = NodeIndex(cluster.snapshot)  # One for all profiles, which see the same nodes.
        self.frameworks = {
            name: Framework(
                name,
                profile.points,
                handles[name],
                weights=profile.weights("score"),
                placement_weights=profile.weights("placementScore"),
                nominated=queue.nominator,
                fast=partial(FastEvaluation, index=index) if self._fast else None,
            )
            for name, profile in profiles.items()
        }
        for name, framework in self.frameworks.items():
            handles[name].preemption = Preemption(framework, self._evictions)
        return queue

    def _handle(self, configuration: SchedulerConfiguration) -> FrameworkHandle:
        """Plugins of all profiles see the same cluster."""
        return FrameworkHandle(
            self._cluster.snapshot,
            self._cluster.listers,
            configuration.feature_gates,
            upstream=configuration.upstream,
            fallback_only_if_rejected_by_spread=configuration.fallback_only_if_rejected_by_spread,
            guard_starting_pods=configuration.guard_starting_pods,
            behaviours=configuration.behaviours,
        )

    def _pod_named(self, name: str) -> Pod:
        pod = self._cluster.pod(f"Pod/{name}")
        assert pod is not None, f"pod {name} is in the queue, but is not known"
        return pod


def _make_queue(configuration: SchedulerConfiguration, profiles: Mapping[str, Profile]) -> SchedulingQueue:
    (sort,) = next(iter(profiles.values())).points["queueSort"]
    assert isinstance(sort, QueueSortPlugin)
    return SchedulingQueue(
        {
            name: [*profile.plugins.values(), UnsupportedNeeds(profile.plugins.values())]
            for name, profile in profiles.items()
        },
        sort,
        QueueConfig(
            initial_backoff=configuration.pod_initial_backoff_seconds * NANOS,
            max_backoff=configuration.pod_max_backoff_seconds * NANOS,
            max_in_unschedulable=configuration.pod_max_in_unschedulable_pods_duration,
            queueing_hints=configuration.feature_gates.scheduler_queueing_hints,
            upstream=configuration.upstream,
            group_errors_wait=configuration.behaves(GROUP_ERRORS_WAIT),
        ),
        group_of=group_name,
    )
