"""Measures what the plugins of a profile do: an observer of its framework, which stays free of clocks.

Every step is measured; single plugins in one attempt of ten, because Filter calls them for each node. A step that runs within another counts
for itself only: what the choice of a node takes beside PreFilter and scoring is Filter. Where the fast evaluation answers, all of its time
is, and in one attempt of ten each filter is asked about the chosen node, to be measured.

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
from tidelog.framework.interface import CycleState, Status

SAMPLED_EACH = 10
"""Single plugins are measured in one attempt of so many, as kube-scheduler does."""


class PluginTimer:
    """A framework's observer: the time since the answer before is the plugin's, its share of the framework's own steps included."""

    def __init__(self, metrics: FrameworkMetrics, lap: Callable[[], int]) -> None:
        self._metrics = metrics
        self._lap = lap
        self._last = 0
        self._children: dict[tuple[str, str, str], Distribution] = {}

    def begin(self) -> None:
        """A step begins, or what nobody measures has ended."""
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
        self._under_way: list[tuple[int, int]] = []
        """For each step under way: when it began, and how long steps within it took."""
        self._durations: dict[tuple[str, str], Distribution] = {}
        self._evaluations: dict[tuple[str, str], Count] = {}
        framework.observe_steps(self)

    def step_began(self, point: str) -> None:
        """A step of this extension point begins, perhaps within another one."""
        if point == "Filter":
            self._begin_attempt()
        self._timer.begin()
        self._under_way.append((self._lap(), 0))

    def step_failed(self) -> None:
        """The step raised: its time counts for the step around it only."""
        self._end()

    def step_ended(self, point: str, state: CycleState, result: Any) -> None:
        """Measure the step, and count the plugins that it is about."""
        own = self._end()
        status = status_of(result)
        child = self._durations.get((point, status))
        if child is None:
            child = self._metrics.extension_point_duration.labels(point, status, self._framework.name)
            self._durations[point, status] = child
        child.observe(own)
        if point == "PostFilter":
            self._preemption.attempts.inc()
            self._preemption.evaluation_duration.labels("pod", status).observe(own)
        self._count_plugins(point, state)

    def _end(self) -> int:
        """Take the step that is under way off; returns the time that is its own."""
        began, within = self._under_way.pop()
        took = self._lap() - began
        if self._under_way:
            around, others = self._under_way[-1]
            self._under_way[-1] = around, others + took
        return took - within

    def _begin_attempt(self) -> None:
        self._attempts += 1
        sampled = self._attempts % SAMPLED_EACH == 1
        self._framework.observer = self._timer if sampled else None

    def _count_plugins(self, point: str, state: CycleState) -> None:
        """Count the plugins that had a say, by their tables at least: all at PreFilter and PreScore, and after them those that did not skip."""
        framework = self._framework
        if point == "Filter":
            skipped = state.skip_filter
            self._count("PreFilter", [plugin.name for plugin in framework.pre_filter])
            self._count("Filter", [plugin.name for plugin in framework.filter if plugin.name not in skipped])
        elif point == "Score":
            skipped = state.skip_score
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
    """Return kube-scheduler's label for the result of a step: a status itself, or something that has one, or that is one."""
    status = result if isinstance(result, Status) else getattr(result, "status", None)
    if isinstance(status, Status):
        return str(status.code.value)
    return "Unschedulable" if isinstance(result, FitError) else "Success"
