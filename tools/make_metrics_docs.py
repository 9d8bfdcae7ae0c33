"""Writes docs/metrics.md from the code: `python tools/make_metrics_docs.py`; with `--check` it only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog.daemon.metrics.families import Description, number
from tidelog.daemon.metrics.metrics import GATES_SHOWN, Metrics, Statistics
from tidelog.daemon.metrics.pod_resources import DESCRIPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

INTRODUCTION = """# Metrics

Made from the code by `tools/make_metrics_docs.py`; a test keeps it current.

`tidelog run --listen 127.0.0.1:10259` serves `/metrics`, and `/metrics/resources` for what each pod requests, in Prometheus' text
format. Names, labels and buckets of `scheduler_…` are kube-scheduler's, so its dashboards and alerts work; our own begin with
`tidelog_`. `deploy/` has a Grafana dashboard and alert rules for both.

Counters and histograms count from the start of the process; recovery from the log does not count. Gauges are computed from the
queues, the cache and the log for each scrape. Label values are escaped so that nothing in them acts on a terminal, and where users
name them their number is bounded.
"""

READING = """## How to read them

- `scheduler_schedule_attempts_total`: an attempt counts when its outcome is in the log. One that waits in Permit counts when the wait is
  over. One that the commit check took back does not count here, but in `tidelog_attempts_aborted_total`; its pod is tried again.
- `scheduler_pending_pods{{queue="gated"}}` and `{{queue="unschedulable"}}` are the two parts of the unschedulable pool: gated now, and tried
  in vain. Pods in flight are in no queue. `incomplete` and `pending` are pods of groups that are not complete, or under way.
- `scheduler_unschedulable_pods`: a pod counts once for each plugin that rejected it, from its return (or from being gated) until it is
  popped or deleted. A sum over plugins means nothing.
- `scheduler_queue_incoming_pods_total` counts pods, so a group adds its size, and counts moves back to the same place too;
  `scheduler_queue_incoming_entities_total` counts a group once, and only changes of place.
- `scheduler_inflight_events` must return to 0 when the scheduler is idle. If it does not, an attempt never ended:
  `tidelog_oldest_inflight_seconds` tells since when. Pods that wait in Permit are in flight, for up to 15 minutes.
- `scheduler_pod_scheduled_after_flush_total` should stay at 0: each count is a pod that no event woke although it could be placed.
  `tidelog_flush_would_have_been_needed_total` names the plugins whose hints to suspect, and `tidelog why POD` the events they let pass.
- `scheduler_plugin_execution_duration_seconds` is measured in one attempt of ten, `scheduler_framework_extension_point_duration_seconds` in all;
  for Filter it is the time of the whole loop over nodes. Where the fast evaluation chooses the node, all of that choice counts as Filter,
  and of its plugins each Filter is measured once in such an attempt: about the node that was chosen.
- `tidelog_gated_pods` counts by what keeps the pods out. It shows the {gates} gates with most pods and sums up the others under `(other)`.

Label values:

| label | values |
|---|---|
| `event` | resource and action (`NodeAdd`, `NodeUpdateNodeTaint`, `AssignedPodDelete`, `TargetPodUpdatePodLabel`, `Time`, …), and `ScheduleAttemptFailure`, `BackoffComplete`, `PopFromBackoffQ`, `ForceActivate`, `UnschedulableTimeout`, `PodPopped` |
| `extension_point` | `PreEnqueue`, `PreFilter`, `Filter`, `PreFilterExtensionAddPod`, `PreFilterExtensionRemovePod`, `PostFilter`, `PreScore`, `Score`, `ScoreExtensionNormalize`, `Reserve`, `Unreserve`, `Permit`, `PreBind`, `Bind`, `PostBind`, `PlacementGenerate`, `PlacementScore` |
| `status` | `Success`, `Error`, `Unschedulable`, `UnschedulableAndUnresolvable`, `Wait`, `Skip`, `Pending` |
| `hint` | `Queue`, `QueueSkip`, `Error` |
| `queue` | `active`, `backoff`, `unschedulable`, `gated`, and in `scheduler_pending_pods` `incomplete` and `pending` |
| `attempts` | `1` to `14`, `15+` |
"""

PROCESS = """## The process

`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds`
and `process_max_fds` come from prometheus-client and are there on Linux.
"""


def lines() -> Iterator[str]:
    """The page, in parts."""
    described = Metrics(Statistics).descriptions
    live = [d for d in described if not d.unused]
    yield INTRODUCTION
    yield "## kube-scheduler's\n"
    yield table(d for d in live if d.name.startswith("scheduler_"))
    yield "## Tidelog's own\n"
    yield table(d for d in live if d.name.startswith("tidelog_"))
    yield "## Per pod, on `/metrics/resources`\n"
    yield table(DESCRIPTIONS)
    yield PROCESS
    yield READING.format(gates=GATES_SHOWN)
    yield "## Always at zero\n"
    yield "kube-scheduler has these for features that have no counterpart here. They are announced and never counted.\n"
    yield table((d for d in described if d.unused), why=True)


def table(descriptions: Iterable[Description], why: bool = False) -> str:
    """One row a metric."""
    rows = ["| name | type | labels | buckets | meaning |", "|---|---|---|---|---|"]
    for d in descriptions:
        labels = ", ".join(f"`{label}`" for label in d.labels)
        meaning = f"{d.help} Zero because {d.unused}." if why else d.help
        rows.append(f"| `{d.name}` | {d.kind} | {labels} | {buckets(d)} | {meaning} |")
    return "\n".join(rows) + "\n"


def buckets(description: Description) -> str:
    """How many, and from where to where."""
    bounds = description.buckets
    return f"{len(bounds)}: {number(bounds[0])} … {bounds[-1]:.6g}" if bounds else ""


def page() -> str:
    """The whole page."""
    return "\n".join(lines())


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    if not PAGE.exists() or PAGE.read_text() != page():
        print("docs/metrics.md is not current: run `python tools/make_metrics_docs.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
