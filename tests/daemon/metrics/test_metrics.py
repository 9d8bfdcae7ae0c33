"""Every metric of the specification is there under its name, and each says what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidelog.daemon.metrics.families import Description
from tidelog.daemon.metrics.metrics import GATES_SHOWN, NO_QUEUE, Metrics, Statistics
from tidelog.daemon.metrics.pod_resources import DESCRIPTIONS

# What kube-scheduler exposes: name without `scheduler_`, type, labels, buckets as start, factor, count.
KUBE_SCHEDULER = """
schedule_attempts_total counter result,profile
scheduling_attempt_duration_seconds histogram result,profile 0.001,2,15
scheduling_algorithm_duration_seconds histogram - 0.001,2,15
pod_scheduling_attempts histogram - 1,2,5
pod_scheduling_sli_duration_seconds histogram attempts 0.01,2,20
pod_scheduled_after_flush_total counter -
pending_pods gauge queue
queued_entities gauge queue,type
queue_incoming_pods_total counter queue,event
queue_incoming_entities_total counter queue,event,type
unschedulable_pods gauge plugin,profile
inflight_events gauge event
event_handling_duration_seconds histogram event 0.0001,2,12
queueing_hint_execution_duration_seconds histogram plugin,event,hint 0.00001,1.5,20
pre_queueing_hint_evaluations_total counter plugin,result
framework_extension_point_duration_seconds histogram extension_point,status,profile 0.0001,2,12
plugin_execution_duration_seconds histogram plugin,extension_point,status 0.00001,1.5,20
plugin_evaluation_total counter plugin,extension_point,profile
permit_wait_duration_seconds histogram result 0.001,2,15
goroutines gauge operation
cache_size gauge type
preemption_attempts_total counter -
preemption_victims histogram - 1,2,7
preemption_goroutines_duration_seconds histogram result 0.01,2,20
preemption_goroutines_execution_total counter result
batch_attempts_total counter profile,result
batch_cache_flushed_total counter profile,reason
batch_rescore_attempts_total counter profile
batch_rescore_duration_seconds histogram profile 0.00001,2,12
store_schedule_results_duration_seconds histogram profile 0.00001,2,12
get_node_hint_duration_seconds histogram hinted,profile 0.00001,2,12
podgroup_schedule_attempts_total counter result,profile
podgroup_scheduling_attempt_duration_seconds histogram result,profile 0.001,2,15
podgroup_scheduling_algorithm_duration_seconds histogram - 0.001,2,15
workload_preemption_attempts_total counter result
workload_preemption_victims histogram - 1,2,11
preemption_workload_disruptions histogram preemptor 1,2,11
preemption_evaluation_duration_seconds histogram preemptor,result 0.001,2,16
preemption_execution_duration_seconds histogram preemptor,result 0.001,2,16
preemption_pdb_violations_total counter preemptor
generated_placements_total counter profile
placement_evaluations_total counter result,profile
placement_evaluation_duration_seconds histogram result,profile 0.001,2,15
async_api_call_execution_total counter call_type,result
async_api_call_execution_duration_seconds histogram call_type,result 0.001,2,15
pending_async_api_calls gauge call_type
dra_bindingconditions_allocations_total counter profile,driver,status
dra_bindingconditions_wait_duration_seconds histogram profile,driver,status 0.1,2,14
volume_binder_cache_requests_total counter operation
volume_scheduling_stage_error_total counter operation
"""
OURS = """
requeue_total counter plugin,event,verdict
flush_would_have_been_needed_total counter plugin
gated_pods gauge gate
oldest_inflight_seconds gauge -
queue_wait_seconds histogram queue 0.001,2,20
preemption_outcomes_total counter outcome
evictions_total counter answer
attempts_aborted_total counter reason
log_appended_records_total counter kind
log_commit_duration_seconds histogram - 0.0001,2,15
log_commit_records histogram - 1,2,14
log_head_seq gauge -
log_bytes gauge -
leader_silent_seconds gauge -
lease_age_seconds gauge -
followers gauge -
epoch gauge -
ready gauge -
watch_events_total counter kind
watch_suppressed_total counter kind
watch_restarts_total counter kind
watch_relists_total counter kind,reason
watch_lag_seconds gauge kind
objects_unread gauge kind
api_requests_total counter verb,resource,code
api_seconds_total counter verb,resource
writes_failed_total counter effect,code,final
binding_confirm_seconds_total counter -
bindings_confirmed_total counter -
unsettled gauge effect
unsettled_oldest_seconds gauge -
leader gauge -
events_posted_total counter -
events_dropped_total counter -
late_bindings_total counter -
shadow_total counter verdict
"""
ROOT = Path(__file__).resolve().parents[3]
RESOURCE_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")


BUSY = Statistics(
    queue=replace(
        NO_QUEUE,
        pending_pods={"active": 3, "gated": 1},
        queued_entities={("active", "pod"): 2, ("active", "podgroup"): 1},
        unschedulable_pods={("NodeResourcesFit", "default-scheduler"): 4},
        gated_pods={"SchedulingGates": 1},
        inflight_events={"NodeAdd": 2, "PodPopped": 1},
    ),
    cache_size={"nodes": 5000, "pods": 20, "assumed_pods": 1},
    oldest_inflight_seconds=1.5,
    uncommitted_attempts=7,
    log_head_seq=123,
    log_bytes=4096,
    epoch=2,
    ready=True,
)


def rows(text: str, prefix: str) -> list[tuple[str, ...]]:
    return [(prefix + line.split()[0], *line.split()[1:]) for line in text.strip().splitlines()]


def described(description: Description) -> tuple[object, ...]:
    d = description
    return d.name, d.kind, d.labels, d.buckets


def expected(name: str, kind: str, labels: str, buckets: str = "") -> tuple[object, ...]:
    bounds: list[float] = []
    if buckets:
        start, factor, count = buckets.split(",")
        bounds = [float(start)]
        while len(bounds) < int(count):
            bounds.append(bounds[-1] * float(factor))
    return name, kind, () if labels == "-" else tuple(labels.split(",")), tuple(bounds)


def metrics(statistics: Statistics = BUSY) -> Metrics:
    return Metrics(lambda: statistics)


def parsed(of: Metrics) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(of.read().text())}


def series(family: Metric) -> dict[tuple[object, ...], float]:
    return {(s.name, *sorted(s.labels.items())): s.value for s in family.samples}


def sample(of: Metrics, name: str, **labels: str) -> float | None:
    """The value of one series, or None if it is not there."""
    for family in parsed(of).values():
        for each in family.samples:
            if each.name == name and each.labels == labels:
                return float(each.value)
    return None


@pytest.mark.parametrize("row", rows(KUBE_SCHEDULER, "scheduler_"), ids=lambda row: row[0])
def test_kube_schedulers_metric_is_there_with_its_type_labels_and_buckets(row: tuple[str, ...]) -> None:
    (found,) = [d for d in metrics().descriptions if d.name == row[0]]

    assert described(found) == expected(*row)


@pytest.mark.parametrize("row", rows(OURS, "tidelog_"), ids=lambda row: row[0])
def test_our_metric_is_there_with_its_type_labels_and_buckets(row: tuple[str, ...]) -> None:
    (found,) = [d for d in metrics().descriptions if d.name == row[0]]

    assert described(found) == expected(*row)


def test_there_are_no_others() -> None:
    listed = [row[0] for row in rows(KUBE_SCHEDULER, "scheduler_") + rows(OURS, "tidelog_")]

    assert sorted(d.name for d in metrics().descriptions) == sorted(listed)


def test_resource_metrics_have_kube_schedulers_names_and_labels() -> None:
    assert [described(d) for d in DESCRIPTIONS] == [
        ("kube_pod_resource_request", "gauge", RESOURCE_LABELS, ()),
        ("kube_pod_resource_limit", "gauge", RESOURCE_LABELS, ()),
    ]


def test_scrape_announces_every_metric_with_its_type() -> None:
    of = metrics()

    found = {name: family.type for name, family in parsed(of).items()}

    for d in of.descriptions:
        assert found[d.name.removesuffix("_total") if d.kind == "counter" else d.name] == d.kind


def test_scrape_has_no_created_series_and_tells_of_the_process() -> None:
    text = metrics().read().text()

    assert "_created" not in text
    assert "\nprocess_resident_memory_bytes " in text


def test_metrics_without_labels_start_at_zero_and_others_are_absent() -> None:
    of = metrics(Statistics())
    found = {name: family.samples for name, family in parsed(of).items()}

    started = ("scheduler_schedule_attempts_total", "scheduler_scheduling_attempt_duration_seconds")
    for d in of.descriptions:
        samples = found[d.name.removesuffix("_total") if d.kind == "counter" else d.name]
        assert all(each.value == 0 for each in samples), d.name
        if d.kind != "gauge" and d.name not in started:
            assert bool(samples) == (not d.labels), d.name


def test_attempts_of_each_profile_start_at_zero() -> None:
    of = Metrics(Statistics, ["a", "b"])

    found = {
        (each.labels["profile"], each.labels["result"]): each.value
        for each in parsed(of)["scheduler_schedule_attempts"].samples
    }

    assert found == dict.fromkeys(
        [(p, r) for p in "ab" for r in ("scheduled", "unschedulable", "error")], 0.0
    )


def test_global_registry_of_prometheus_client_is_not_touched() -> None:
    metrics().read().text()

    names = [family.name for family in REGISTRY.collect()]
    assert not [name for name in names if name.startswith(("scheduler_", "tidelog_", "kube_"))]


def test_metrics_can_be_registered_where_a_program_wants_them() -> None:
    registry = CollectorRegistry()
    of = metrics()
    registry.register(of)
    of.attempts.finished("default-scheduler", "scheduled", 1_000_000, 500_000)

    theirs = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}

    ours = parsed(of)
    assert len(theirs) == len(of.descriptions)
    assert {name: series(family) for name, family in theirs.items()} == {
        name: series(ours[name]) for name in theirs
    }


def test_two_daemons_in_one_process_count_apart() -> None:
    one, other = metrics(), metrics()

    one.preemption.attempts.inc()

    assert sample(one, "scheduler_preemption_attempts_total") == 1
    assert sample(other, "scheduler_preemption_attempts_total") == 0


def test_finished_attempt_is_counted_with_both_durations() -> None:
    of = metrics()

    of.attempts.finished("default-scheduler", "unschedulable", 3_000_000, 1_500_000)
    of.attempts.finished("other", "error", 1, 1)

    labels = {"result": "unschedulable", "profile": "default-scheduler"}
    assert sample(of, "scheduler_schedule_attempts_total", **labels) == 1
    assert sample(of, "scheduler_schedule_attempts_total", result="error", profile="other") == 1
    assert sample(of, "scheduler_scheduling_attempt_duration_seconds_sum", **labels) == 0.003
    assert sample(of, "scheduler_scheduling_attempt_duration_seconds_bucket", le="0.002", **labels) == 0
    assert sample(of, "scheduler_scheduling_attempt_duration_seconds_bucket", le="0.004", **labels) == 1
    assert sample(of, "scheduler_scheduling_algorithm_duration_seconds_count") == 2


@pytest.mark.parametrize(
    ("attempts", "label"), [(1, "1"), (2, "2"), (14, "14"), (15, "15+"), (16, "15+"), (400, "15+")]
)
def test_placed_pod_is_counted_under_its_number_of_attempts(attempts: int, label: str) -> None:
    of = metrics()

    of.attempts.placed(attempts, 2_000_000_000)
    of.attempts.placed(attempts, 2_000_000_000)

    assert sample(of, "scheduler_pod_scheduling_sli_duration_seconds_sum", attempts=label) == 4
    assert sample(of, "scheduler_pod_scheduling_attempts_sum") == 2 * attempts
    assert sample(of, "scheduler_pod_scheduled_after_flush_total") == 0


def test_pod_placed_after_a_flush_is_counted_apart() -> None:
    of = metrics()

    of.attempts.placed(2, 1, after_flush=True)

    assert sample(of, "scheduler_pod_scheduled_after_flush_total") == 1


def test_commit_counts_records_by_kind_and_its_size() -> None:
    of = metrics()

    of.log.committed({"Scheduled": 3, "ObjectPut": 1}, 2_000_000)
    of.log.committed({"Scheduled": 1}, 1_000_000)

    assert sample(of, "tidelog_log_appended_records_total", kind="Scheduled") == 4
    assert sample(of, "tidelog_log_appended_records_total", kind="ObjectPut") == 1
    assert sample(of, "tidelog_log_commit_records_sum") == 5
    assert sample(of, "tidelog_log_commit_records_bucket", le="1") == 1
    assert sample(of, "tidelog_log_commit_duration_seconds_sum") == 0.003


def test_gauges_show_what_the_structures_hold() -> None:
    of = metrics(BUSY)

    assert sample(of, "scheduler_pending_pods", queue="active") == 3
    assert sample(of, "scheduler_queued_entities", queue="active", type="podgroup") == 1
    assert (
        sample(of, "scheduler_unschedulable_pods", plugin="NodeResourcesFit", profile="default-scheduler")
        == 4
    )
    assert sample(of, "tidelog_gated_pods", gate="SchedulingGates") == 1
    assert sample(of, "scheduler_inflight_events", event="NodeAdd") == 2
    assert sample(of, "scheduler_inflight_events", event="PodPopped") == 1
    assert sample(of, "tidelog_oldest_inflight_seconds") == 1.5
    assert sample(of, "scheduler_goroutines", operation="binding") == 7
    assert sample(of, "scheduler_cache_size", type="nodes") == 5000
    assert sample(of, "tidelog_log_head_seq") == 123
    assert sample(of, "tidelog_log_bytes") == 4096
    assert sample(of, "tidelog_epoch") == 2
    assert sample(of, "tidelog_ready") == 1


def test_every_queue_is_shown_even_when_it_is_empty() -> None:
    of = metrics()

    assert {each.labels["queue"]: each.value for each in parsed(of)["scheduler_pending_pods"].samples} == {
        "active": 3,
        "backoff": 0,
        "unschedulable": 0,
        "gated": 1,
        "incomplete": 0,
        "pending": 0,
    }
    assert len(parsed(of)["scheduler_queued_entities"].samples) == 8


def test_users_gates_cannot_fill_the_page() -> None:
    gates = {f"gate-{i:05}": 5 if i >= 9_000 else 1 for i in range(10_000)}
    of = metrics(Statistics(queue=replace(NO_QUEUE, gated_pods=gates)))

    shown = {s.labels["gate"]: s.value for s in parsed(of)["tidelog_gated_pods"].samples}

    assert len(shown) == GATES_SHOWN + 1
    assert shown["gate-09000"] == 5
    assert sum(shown.values()) == 9_000 + 5 * 1_000
    assert shown["(other)"] == sum(shown.values()) - 5 * GATES_SHOWN


def test_later_counting_does_not_change_a_scrape() -> None:
    of = metrics()
    scrape = of.read()
    before = [line for line in scrape.text().splitlines() if "process_" not in line]

    of.attempts.finished("default-scheduler", "scheduled", 1, 1)
    of.queue.incoming_pods.labels("active", "NodeAdd").inc()

    assert [line for line in scrape.text().splitlines() if "process_" not in line] == before


def test_documentation_lists_every_metric_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_metrics_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    page = (ROOT / "docs" / "metrics.md").read_text()
    for d in (*metrics().descriptions, *DESCRIPTIONS):
        assert page.count(f"| `{d.name}` | {d.kind} | ") == 1
        assert not d.unused or f"Zero because {d.unused}." in page


def test_statistics_are_asked_for_once_a_scrape() -> None:
    asked: list[Statistics] = []

    def statistics() -> Statistics:
        asked.append(Statistics(epoch=len(asked) + 1))
        return asked[-1]

    of = Metrics(statistics)

    assert [sample(of, "tidelog_epoch"), sample(of, "tidelog_epoch")] == [1, 2]
    assert len(asked) == 2
