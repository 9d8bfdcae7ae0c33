"""What a configuration says about a live cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.configuration.cluster import ClusterOptions, LeaseOptions
from tidelog.configuration.configuration import resolve_configuration, write_configuration
from tidelog.plugins.registry import Registry

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def load(cluster: Any = None, **fields: Any) -> ClusterOptions:
    return resolve_configuration(
        HEADER | fields | {"tidelog": {"cluster": cluster or {}}}, Registry()
    ).cluster


def refused(**cluster: Any) -> dict[str, str]:
    with pytest.raises(InvalidObjects) as caught:
        load(cluster)
    return {error.path.removeprefix("tidelog.cluster."): str(error) for error in caught.value.errors}


def test_nothing_that_is_said_is_nothing_that_counts() -> None:
    assert load() == ClusterOptions()


def test_everything_can_be_said() -> None:
    found = load(
        {
            "mode": "schedule",
            "lease": {"namespace": "team", "name": "ours", "duration": "30s", "renewDeadline": "20s"},
            "unsettled": 64,
            "concurrency": 16,
            "strictBinding": True,
            "preemption": "delete",
            "redaction": "images",
            "keepAnnotations": ["example.com/team"],
            "events": "problems",
            "annotateExplanation": True,
            "resyncCheck": "1m",
        },
        clientConnection={"qps": 50, "burst": 100},
    )

    section = found.section
    assert (section.mode, section.unsettled, section.concurrency) == ("schedule", 64, 16)
    assert (section.strict_binding, section.preemption, section.redaction) == (True, "delete", "images")
    assert (section.keep_annotations, section.events) == (("example.com/team",), "problems")
    assert section.annotate_explanation
    assert found.lease == LeaseOptions(namespace="team", name="ours", duration=30, renew_deadline=20)
    assert (found.resync_check, found.qps, found.burst) == (60, 50, 100)


def test_client_connection_without_a_rate_limits_nothing() -> None:
    assert load(clientConnection={"kubeconfig": "x"}).qps == 0
    assert load(clientConnection={"qps": -1}).qps == 0


@pytest.mark.parametrize(
    ("cluster", "path", "rule"),
    [
        ({"mode": "both"}, "mode", "both"),
        ({"unsettled": 0}, "unsettled", "greater than zero"),
        ({"concurrency": -1}, "concurrency", "greater than zero"),
        ({"resyncCheck": "5"}, "resyncCheck", "5"),
        ({"resyncCheck": "1ms"}, "resyncCheck", "at least 1s"),
        ({"lease": {"duration": "12s"}}, "lease.duration", "renewDeadline (10s) and 5s"),
        ({"lease": {"renewDeadline": "2s"}}, "lease.renewDeadline", "1.2 times retryPeriod"),
        ({"lease": {"name": "a/b"}}, "lease.name", "name of an object"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(cluster: Any, path: str, rule: str) -> None:
    found = refused(**cluster)

    assert list(found) == [path]
    assert rule in found[path]


def test_no_log_and_no_written_file_has_it() -> None:
    said = resolve_configuration(HEADER | {"tidelog": {"cluster": {"unsettled": 7}}}, Registry())

    assert "unsettled" not in write_configuration(said.configuration)
    assert said.configuration == resolve_configuration(HEADER, Registry()).configuration
