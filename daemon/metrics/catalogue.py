"""The counters and histograms of the daemon, grouped by who writes to them.

Names, labels and buckets of `scheduler_…` are kube-scheduler's, so that existing dashboards and alerts work; `tidelog_…` are
our own. What belongs to a feature that tidelog does not have is declared with the reason (`unused`) and stays at zero. The
gauges are in `tidelog.daemon.metrics.metrics`.

All writing happens on the event loop's thread. Where it happens for each attempt, keep the child
(`metrics.framework.extension_point_duration.labels("Filter", "Success", profile)`) and write to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.daemon.metrics.families import (
    SECONDS,
    Count,
    Description,
    Distribution,
    Family,
    Recorded,
    counter_family,
    exponential,
    histogram_family,
)

RESULTS = ("scheduled", "unschedulable", "error")
"""How an attempt counts. One that waits counts when its wait is over, an aborted one in tidelog_attempts_aborted_total only."""
ATTEMPTS_MAX = 15
"""Pods that took this many attempts or more share the label `15+`."""

ATTEMPT_BUCKETS = exponential(0.001, 2, 15)
SLI_BUCKETS = exponential(0.01, 2, 20)
EVENT_BUCKETS = exponential(0.0001, 2, 12)
PLUGIN_BUCKETS = exponential(0.00001, 1.5, 20)
BATCH_BUCKETS = exponential(0.00001, 2, 12)
GROUP_VICTIM_BUCKETS = exponential(1, 2, 11)
PREEMPTION_BUCKETS = exponential(0.001, 2, 16)
BINDING_CONDITION_BUCKETS = exponential(0.1, 2, 14)
QUEUE_WAIT_BUCKETS = exponential(0.001, 2, 20)
"""1 ms to almost 9 minutes: the five-minute flush is inside."""
COMMIT_BUCKETS = exponential(0.0001, 2, 15)
COMMIT_RECORD_BUCKETS = exponential(1, 2, 14)


class Catalogue:
    """Makes families and keeps them in order."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def counter(self, name: str, help: str, *labels: str, unused: str = "") -> Recorded[Count]:
        """A new family of counters."""
        d = Description(name=name, kind="counter", help=help, labels=labels, unused=unused)
        family = counter_family(d)
        self._keep(family)
        return family

    def histogram(
        self,
        name: str,
        help: str,
        buckets: tuple[float, ...],
        *labels: str,
        unit: int = SECONDS,
        unused: str = "",
    ) -> Recorded[Distribution]:
        """A new family of histograms, of durations unless the unit says otherwise."""
        d = Description(
            name=name, kind="histogram", help=help, labels=labels, buckets=buckets, unit=unit, unused=unused
        )
        family = histogram_family(d)
        self._keep(family)
        return family

    def _keep(self, family: Recorded[Count] | Recorded[Distribution]) -> None:
        self.families.append(family)
        if not family.description.labels:
            family.labels()  # A metric without labels is shown from the start, at zero.


class AttemptMetrics:
    """Metrics of attempts whose outcome is in the log."""

    def __init__(self, new: Catalogue, profiles: Iterable[str]) -> None:
        self.attempts = new.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule a pod, by result: `unschedulable` is a pod that fits nowhere, `error` a failure of the scheduler.",
            "result",
            "profile",
        )
        self.duration = new.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time from a pod's pop until its outcome was in the log.",
            ATTEMPT_BUCKETS,
            "result",
            "profile",
        )
        self.algorithm_duration = new.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time the decision took, without the commit.",
            ATTEMPT_BUCKETS,
        ).labels()
        self.attempts_needed = new.histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a pod needed until it was placed.",
            exponential(1, 2, 5),
            unit=1,
        ).labels()
        self.sli_duration = new.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's first entry into the active queue until its binding was in the log, by number of attempts.",
            SLI_BUCKETS,
            "attempts",
        )
        self.after_flush = new.counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods placed right after the flush of leftovers woke them: no event did, so a hint may be missing.",
        ).labels()
        self.permit_wait_duration = new.histogram(
            "scheduler_permit_wait_duration_seconds",
            "Time pods waited with their resources reserved because a Permit plugin said so, by result.",
            ATTEMPT_BUCKETS,
            "result",
        )
        self.aborted = new.counter(
            "tidelog_attempts_aborted_total",
            "Decisions that the commit check took back because newer records took away what they relied on, by reason.",
            "reason",
        )
        self._by_result: dict[tuple[str, str], tuple[Count, Distribution]] = {}
        self._sli: dict[int, Distribution] = {}
        for profile in profiles:
            for result in RESULTS:
                self._start(result, profile)

    def _start(self, result: str, profile: str) -> tuple[Count, Distribution]:
        children = self.attempts.labels(result, profile), self.duration.labels(result, profile)
        self._by_result[result, profile] = children
        return children

    def finished(self, profile: str, result: str, duration: int, algorithm: int) -> None:
        """An attempt's outcome is in the log. Both durations in nanoseconds; `result` is one of RESULTS."""
        children = self._by_result.get((result, profile)) or self._start(result, profile)
        children[0].value += 1
        children[1].observe(duration)
        self.algorithm_duration.observe(algorithm)

    def placed(self, attempts: int, waited: int, after_flush: bool = False) -> None:
        """A pod's binding is in the log after `attempts` attempts, `waited` nanoseconds after its first entry."""
        self.attempts_needed.observe(attempts)
        (self._sli.get(attempts) or self._sli_after(attempts)).observe(waited)
        if after_flush:
            self.after_flush.value += 1

    def _sli_after(self, attempts: int) -> Distribution:
        if attempts >= ATTEMPTS_MAX:
            return self.sli_duration.labels(f"{ATTEMPTS_MAX}+")
        return self._sli.setdefault(attempts, self.sli_duration.labels(str(attempts)))


class FrameworkMetrics:
    """Metrics of the run of a profile's plugins.

    Extension points are recorded for every attempt, single plugins for one attempt in ten.
    """

    def __init__(self, new: Catalogue) -> None:
        self.extension_point_duration = new.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time all plugins of one extension point took for one pod; for Filter, over all nodes.",
            EVENT_BUCKETS,
            "extension_point",
            "status",
            "profile",
        )
        self.plugin_duration = new.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Time one plugin took at one extension point, measured in one attempt of ten.",
            PLUGIN_BUCKETS,
            "plugin",
            "extension_point",
            "status",
        )
        self.plugin_evaluations = new.counter(
            "scheduler_plugin_evaluation_total",
            "Attempts in which a plugin had a say, for PreFilter, Filter, PreScore and Score.",
            "plugin",
            "extension_point",
            "profile",
        )


class QueueMetrics:
    """Metrics of pods entering queues and of events waking them."""

    def __init__(self, new: Catalogue) -> None:
        self.incoming_pods = new.counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by queue and event; a group counts its pods, and a return to the same place counts.",
            "queue",
            "event",
        )
        self.incoming_entities = new.counter(
            "scheduler_queue_incoming_entities_total",
            "Pods and pod groups that changed to a queue, by queue, event and type.",
            "queue",
            "event",
            "type",
        )
        self.event_handling_duration = new.histogram(
            "scheduler_event_handling_duration_seconds",
            "Time the queue took to handle one cluster event.",
            EVENT_BUCKETS,
            "event",
        )
        self.hint_duration = new.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time one QueueingHint took, by its answer.",
            PLUGIN_BUCKETS,
            "plugin",
            "event",
            "hint",
        )
        self.pre_hint_evaluations = new.counter(
            "scheduler_pre_queueing_hint_evaluations_total",
            "Evaluations of functions that name the pods an event concerns.",
            "plugin",
            "result",
            unused="the queue's own indexes name the pods that an event concerns",
        )
        self.requeues = new.counter(
            "tidelog_requeue_total",
            "Verdicts on waiting pods by the plugin that gave them and the event: Immediately, AfterBackoff or Skip.",
            "plugin",
            "event",
            "verdict",
        )
        self.flush_needed = new.counter(
            "tidelog_flush_would_have_been_needed_total",
            "Pods placed right after the flush of leftovers, for each plugin that had rejected them: suspects for a missing hint.",
            "plugin",
        )
        self.wait = new.histogram(
            "tidelog_queue_wait_seconds",
            "Time an entity spent in a queue, recorded when it leaves.",
            QUEUE_WAIT_BUCKETS,
            "queue",
        )


class PreemptionMetrics:
    """Metrics of preemption, for a pod or a group."""

    def __init__(self, new: Catalogue) -> None:
        no_goroutines = "a nomination and its evictions are one transaction; nothing runs beside the attempt"
        no_groups = "groups do not preempt yet"
        self.attempts = new.counter(
            "scheduler_preemption_attempts_total", "Attempts that looked for room by preemption."
        ).labels()
        self.victims = new.histogram(
            "scheduler_preemption_victims",
            "Victims of one preemption by a single pod.",
            exponential(1, 2, 7),
            unit=1,
        ).labels()
        self.goroutine_duration = new.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time of asynchronous preemption.",
            SLI_BUCKETS,
            "result",
            unused=no_goroutines,
        )
        self.goroutine_executions = new.counter(
            "scheduler_preemption_goroutines_execution_total",
            "Runs of asynchronous preemption.",
            "result",
            unused=no_goroutines,
        )
        self.evaluation_duration = new.histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Time it took to choose victims, by what preempts.",
            PREEMPTION_BUCKETS,
            "preemptor",
            "result",
        )
        self.execution_duration = new.histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Time from the choice of victims until nomination and evictions were in the log.",
            PREEMPTION_BUCKETS,
            "preemptor",
            "result",
        )
        self.budget_violations = new.counter(
            "scheduler_preemption_pdb_violations_total",
            "Victims that were chosen although a PodDisruptionBudget did not allow it.",
            "preemptor",
        )
        self.outcomes = new.counter(
            "tidelog_preemption_outcomes_total",
            "What attempts to make room came to, once durable: nominated, blocked by protected budgets, refused by the eviction endpoint "
            "on every candidate, no_candidate or not_eligible.",
            "outcome",
        )
        self.evictions = new.counter(
            "tidelog_evictions_total",
            "Evictions for preemptors by what became of the request: granted, refused (429), or deleted without one or after it was refused.",
            "answer",
        )
        self.disruptions = new.histogram(
            "scheduler_preemption_workload_disruptions",
            "Workloads that one preemption disrupted.",
            GROUP_VICTIM_BUCKETS,
            "preemptor",
            unit=1,
        )
        self.group_attempts = new.counter(
            "scheduler_workload_preemption_attempts_total",
            "Preemption attempts by pod groups.",
            "result",
            unused=no_groups,
        )
        self.group_victims = new.histogram(
            "scheduler_workload_preemption_victims",
            "Victims of one preemption by a pod group.",
            GROUP_VICTIM_BUCKETS,
            unit=1,
            unused=no_groups,
        ).labels()


class GroupMetrics:
    """Metrics of attempts of pod groups and of the placements considered."""

    def __init__(self, new: Catalogue) -> None:
        self.attempts = new.counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Attempts to schedule a pod group: scheduled, unschedulable, waiting_on_preemption or error.",
            "result",
            "profile",
        )
        self.duration = new.histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Time from a group's pop until its outcome was in the log.",
            ATTEMPT_BUCKETS,
            "result",
            "profile",
        )
        self.algorithm_duration = new.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time the decision on a group took, without the commit.",
            ATTEMPT_BUCKETS,
        ).labels()
        self.placements = new.counter(
            "scheduler_generated_placements_total", "Candidate placements generated for groups.", "profile"
        )
        self.placement_evaluations = new.counter(
            "scheduler_placement_evaluations_total",
            "Candidate placements evaluated: feasible or infeasible.",
            "result",
            "profile",
        )
        self.placement_duration = new.histogram(
            "scheduler_placement_evaluation_duration_seconds",
            "Time the evaluation of one placement took.",
            ATTEMPT_BUCKETS,
            "result",
            "profile",
        )


class LogMetrics:
    """Metrics of group commits."""

    def __init__(self, new: Catalogue) -> None:
        self.records = new.counter(
            "tidelog_log_appended_records_total", "Records that this process made durable, by kind.", "kind"
        )
        self.commit_duration = new.histogram(
            "tidelog_log_commit_duration_seconds",
            "Time of one group commit, until it was on disk and the head file said so.",
            COMMIT_BUCKETS,
        ).labels()
        self.commit_records = new.histogram(
            "tidelog_log_commit_records", "Records in one group commit.", COMMIT_RECORD_BUCKETS, unit=1
        ).labels()

    def committed(self, kinds: Mapping[str, int], duration: int) -> None:
        """One group commit is durable: how many records of each kind, and nanoseconds."""
        for kind, count in kinds.items():
            self.records.labels(kind).value += count
        self.commit_records.observe(sum(kinds.values()))
        self.commit_duration.observe(duration)


def add_unused(new: Catalogue) -> None:
    """kube-scheduler's counters and histograms of features that have no counterpart here."""
    no_calls = "a binding is a record; there are no API calls"
    call = ("call_type", "result")
    new.counter(
        "scheduler_async_api_call_execution_total",
        "API calls made by the asynchronous dispatcher.",
        *call,
        unused=no_calls,
    )
    new.histogram(
        "scheduler_async_api_call_execution_duration_seconds",
        "Time of such an API call.",
        ATTEMPT_BUCKETS,
        *call,
        unused=no_calls,
    )
    no_batches = "pods of equal shape share tables, which need no hint and no rescore"
    new.counter(
        "scheduler_batch_attempts_total",
        "Attempts to reuse the previous pod's result.",
        "profile",
        "result",
        unused=no_batches,
    )
    new.counter(
        "scheduler_batch_cache_flushed_total",
        "Times the reusable result was dropped.",
        "profile",
        "reason",
        unused=no_batches,
    )
    new.counter(
        "scheduler_batch_rescore_attempts_total",
        "Attempts to rescore the last used node.",
        "profile",
        unused=no_batches,
    )
    for name, meaning, labels in (
        ("batch_rescore", "Time of such a rescore.", ("profile",)),
        ("store_schedule_results", "Time to keep a result for reuse.", ("profile",)),
        ("get_node_hint", "Time to find a reusable result.", ("hinted", "profile")),
    ):
        new.histogram(
            f"scheduler_{name}_duration_seconds", meaning, BATCH_BUCKETS, *labels, unused=no_batches
        )
    no_devices = "what waits for binding conditions is not told apart from what waits for other answers"
    driver = ("profile", "driver", "status")
    new.counter(
        "scheduler_dra_bindingconditions_allocations_total",
        "Allocations of devices with binding conditions.",
        *driver,
        unused=no_devices,
    )
    new.histogram(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Time waited for binding conditions.",
        BINDING_CONDITION_BUCKETS,
        *driver,
        unused=no_devices,
    )
    no_volumes = "VolumeBinding keeps no cache of its own; its errors are counted as those of any plugin"
    new.counter(
        "scheduler_volume_binder_cache_requests_total",
        "Requests to the volume binder's cache.",
        "operation",
        unused=no_volumes,
    )
    new.counter(
        "scheduler_volume_scheduling_stage_error_total",
        "Errors of the volume binder.",
        "operation",
        unused=no_volumes,
    )
