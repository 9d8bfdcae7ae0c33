"""Options about a live cluster in a configuration file: its section `tidelog.cluster`, and the limits of `clientConnection`.

Nothing here changes what is decided, so it is no part of `SchedulerConfiguration`, and no log has it.
"""

from __future__ import annotations

import msgspec

from tidelog.api.times import NANOS, format_duration, parse_duration
from tidelog.api.validation.field_errors import POSITIVE, ErrorList
from tidelog.configuration.file_v1 import ClusterSection, KubeSchedulerConfiguration, LeaseSection

PATH = "tidelog.cluster"
WRITE_SECONDS = 5.0
"""So long a write may take, and so much longer a Lease must be held than its holder writes."""
RETRY_JITTER = 1.2
"""A retry comes at most so many periods after the one before."""


class LeaseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; kube-scheduler's own by default."""

    namespace: str = "kube-system"
    name: str = "tidelog-scheduler"
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The section, and the values of its texts."""

    section: ClusterSection = ClusterSection()
    lease: LeaseOptions = LeaseOptions()
    resync_check: float = 300.0
    """Seconds."""
    qps: float = 0.0
    """Requests a second of each client (objects, events); 0: as many as there are."""
    burst: int = 1


def cluster_options(file: KubeSchedulerConfiguration, errors: ErrorList) -> ClusterOptions:
    """Read the options; mistakes go to `errors`."""
    section, client = file.tidelog.cluster, file.client_connection
    for name, value in (("unsettled", section.unsettled), ("concurrency", section.concurrency)):
        if value is not None and value < 1:
            errors.invalid(f"{PATH}.{name}", value, POSITIVE)
    qps = client.qps if client is not None and client.qps is not None else 0.0
    burst = client.burst if client is not None and client.burst is not None else 0
    if burst < 0:
        errors.invalid("clientConnection.burst", burst, "must not be negative")
    return ClusterOptions(
        section=section,
        lease=_lease(section.lease, errors),
        resync_check=_seconds(f"{PATH}.resyncCheck", section.resync_check, errors),
        # As kube-scheduler takes them: a negative rate is no limit, and without a burst one request follows the other.
        qps=max(qps, 0.0),
        burst=max(burst, 1),
    )


def _lease(section: LeaseSection, errors: ErrorList) -> LeaseOptions:
    path = f"{PATH}.lease"
    duration = _seconds(f"{path}.duration", section.duration, errors)
    deadline = _seconds(f"{path}.renewDeadline", section.renew_deadline, errors)
    retry = _seconds(f"{path}.retryPeriod", section.retry_period, errors)
    if duration < deadline + WRITE_SECONDS:
        room = format_duration(round(WRITE_SECONDS * NANOS))
        rule = f"must be at least renewDeadline ({section.renew_deadline}) and {room}, which a write may take"
        errors.invalid(f"{path}.duration", section.duration, rule)
    if deadline <= retry * RETRY_JITTER:
        rule = f"must be more than {RETRY_JITTER} times retryPeriod ({section.retry_period})"
        errors.invalid(f"{path}.renewDeadline", section.renew_deadline, rule)
    for name, value in (("namespace", section.namespace), ("name", section.name)):
        if not value or "/" in value:
            errors.invalid(f"{path}.{name}", value, "must be the name of an object")
    return LeaseOptions(
        namespace=section.namespace,
        name=section.name,
        duration=duration,
        renew_deadline=deadline,
        retry=retry,
    )


def _seconds(path: str, text: str, errors: ErrorList) -> float:
    try:
        value = parse_duration(text)
    except ValueError as error:
        errors.invalid(path, text, str(error))
        return 1.0
    if value < NANOS:
        errors.invalid(path, text, "must be at least 1s")
    return value / NANOS
