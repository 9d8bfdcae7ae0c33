"""Measures what the plugins of a profile do, without the framework knowing.

The steps of a framework that a cycle strings together are wrapped where they are called; single plugins are heard through the framework's
own observer, in one attempt of ten, because at Filter it is called for each node. The framework stays free of clocks.

Costs about five microseconds an attempt, and in one of ten about half a microsecond for each call of a plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.daemon.metrics.catalogue import FrameworkMetrics
from tidelog.daemon.metrics.families import Count, Distribution
from tidelog.daemon.metrics.metrics import Metrics
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Status

SAMPLED_EACH = 10
"""Single plugins are measured in one attempt of so many, as kube-scheduler does."""

POINTS = {
    "schedule_pod": "Filter",
    "run_pre_filter": "PreFilter",
    "run_post_filter": "PostFilter",
    "run_pre_score": "PreScore",
    "score_nodes": "Score",
    "run_reserve": "Reserve",
    "run_unreserve": "Unreserve",
    "run_permit": "Permit",
    "run_pre_bind": "PreBind",
    "run_bind": "Bind",
    "run_post_bind": "PostBind",
}
"""A framework's method → the extension point that it runs. What runs within another counts for itself only: so what `schedule_pod` takes
beside PreFilter and scoring is Filter. Where the fast evaluation answers, all of its time is, and no plugin runs by itself."""


class PluginTimer:
    """A framework's observer: the time since the answer before is the plugin's, its share of the framework's own steps included."""

    def __init__(self, metrics: FrameworkMetrics, lap: Callable[[], int]) -> None:
        self._metrics = metrics
        self._lap = lap
        self._last = 0
        self._children: dict[tuple[str, str, str], Distribution] = {}

    def begin(self) -> None:
        """A step begins."""
        self._last = self._lap()

    def plugin_ran(self, point: str, plugin: str, status: Status | None) -> None:
        """A plugin has answered."""
        now = self._lap()
        key = plugin, point, "Success" if status is None else status.code.value
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._metrics.plugin_duration.labels(*key)
        child.observe(now - self._last)
        self._last = now


class FrameworkRecorder:
    """Measures one framework from its construction on."""

    def __init__(self, framework: Framework, metrics: Metrics, lap: Callable[[], int]) -> None:
        self._framework = framework
        self._metrics = metrics.framework
        self._preemption = metrics.preemption
        self._lap = lap
        self._timer = PluginTimer(metrics.framework, lap)
        self._attempts = 0
        self._within: list[int] = []
        """For each step under way, how long steps within it took."""
        self._evaluations: dict[tuple[str, str], Count] = {}
        for method, point in POINTS.items():
            setattr(framework, method, self._measured(getattr(framework, method), point))

    def _measured(self, step: Callable[..., Any], point: str) -> Callable[..., Any]:
        children: dict[str, Distribution] = {}

        def measured(*args: Any, **kwargs: Any) -> Any:
            if point == "Filter":
                self._begin_attempt()
            self._timer.begin()
            self._within.append(0)
            began = self._lap()
            try:
                result = step(*args, **kwargs)
            finally:
                took = self._lap() - began
                own = took - self._within.pop()
                if self._within:
                    self._within[-1] += took
            status = status_of(result)
            child = children.get(status)
            if child is None:
                child = self._metrics.extension_point_duration.labels(point, status, self._framework.name)
                children[status] = child
            child.observe(own)
            if point == "PostFilter":
                self._preemption.attempts.inc()
                self._preemption.evaluation_duration.labels("pod", status).observe(own)
            self._count_plugins(point, args)
            return result

        return measured

    def _begin_attempt(self) -> None:
        self._attempts += 1
        sampled = self._attempts % SAMPLED_EACH == 1
        self._framework.observer = self._timer if sampled else None

    def _count_plugins(self, point: str, args: tuple[Any, ...]) -> None:
        """Who had a say, by its tables at least: all plugins at PreFilter and PreScore, and after them those that did not say Skip."""
        framework = self._framework
        if point == "Filter":
            skipped = args[0].skip_filter
            self._count("PreFilter", [plugin.name for plugin in framework.pre_filter])
            self._count("Filter", [plugin.name for plugin in framework.filter if plugin.name not in skipped])
        elif point == "Score":
            skipped = args[0].skip_score
            self._count("PreScore", [plugin.name for plugin in framework.pre_score])
            self._count("Score", [plugin.name for plugin in framework.score if plugin.name not in skipped])

    def _count(self, point: str, plugins: list[str]) -> None:
        for plugin in plugins:
            child = self._evaluations.get((plugin, point))
            if child is None:
                child = self._metrics.plugin_evaluations.labels(plugin, point, self._framework.name)
                self._evaluations[plugin, point] = child
            child.value += 1


def status_of(result: Any) -> str:
    """What kube-scheduler's label says of what a step returned: a status itself, or something that has one, or that is one."""
    status = result if isinstance(result, Status) else getattr(result, "status", None)
    if isinstance(status, Status):
        return str(status.code.value)
    return "Unschedulable" if isinstance(result, FitError) else "Success"
