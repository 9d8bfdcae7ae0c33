"""What is no error and is told all the same: misspelled fields, what a put takes away, kinds that concern no decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog

MISSPELLED = """\
apiVersion: v1
kind: Pod
metadata: {name: web, label: {app: web}}
spec:
  toleration: []
  containers:
  - {name: main, resources: {request: {cpu: 1}}, env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a, disk: ssd}}
spec: {unschedulable: true, taints: [{key: dedicated, value: batch, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", nvidia.com/gpu: "1", pods: "10"}}
"""
LESS = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: "4", pods: "10"}}
"""
EVERYTHING = (
    """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c}}
- {apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: d}}
- {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: e}}
---
"""
    + NODE
)
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "m.yaml"
        path.write_text(text)
        return path

    return to_file


def test_misspelled_fields_are_warned_of_with_the_known_ones(at_log: Tidelog, write: Write) -> None:
    ran = at_log("apply", "-f", write(MISSPELLED))

    assert ran.out == "pod/web created\n"
    warnings = [line.split('"web": ')[1] for line in ran.err.splitlines() if "warning" in line]
    assert warnings == [
        'metadata.label: unknown field; did you mean "labels"?; it is ignored',
        'spec.toleration: unknown field; did you mean "tolerations"?; it is ignored',
        'spec.containers[0].resources.request: unknown field; did you mean "requests"?; it is ignored',
    ]


@pytest.mark.parametrize("verb", ["apply", "plan"])
def test_strict_refuses_misspelled_fields(two_pods: Tidelog, write: Write, verb: str) -> None:
    ran = two_pods(verb, "-f", write(MISSPELLED), "--strict")

    assert ran.code == 1
    assert ran.err.count("Forbidden: unknown field") == 3
    assert two_pods("get", "pods", "-o", "name").lines == ["pod/web-1", "pod/web-2"]


@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "put"])
def test_what_a_put_takes_away_is_named(at_log: Tidelog, write: Write, options: list[str]) -> None:
    at_log("apply", "-f", write(NODE))

    ran = at_log("apply", "-f", write(LESS), *options)

    assert ran.err == (
        "tidelog: warning: node/n1: no longer there, since the manifest leaves it out: "
        "metadata.labels[disk], spec.unschedulable, spec.taints[dedicated=batch:NoSchedule], status.allocatable[nvidia.com/gpu]\n"
    )
    assert (at_log("get", "nodes", "-l", "disk=ssd", "-o", "name").out != "") == bool(options)


def test_put_that_takes_nothing_away_is_quiet(at_log: Tidelog, write: Write) -> None:
    at_log("apply", "-f", write(LESS))

    assert at_log("apply", "-f", write(NODE)).err == ""


def test_cluster_says_of_its_own_objects_what_is_there(at_log: Tidelog, write: Write) -> None:
    at_log("apply", "-f", write(NODE.replace("name: n1", "name: n1, uid: u-1")))

    assert at_log("apply", "-f", write(LESS.replace("name: n1", "name: n1, uid: u-1"))).err == ""


def test_kinds_that_concern_no_decision_are_left_out_and_counted(at_log: Tidelog, write: Write) -> None:
    ran = at_log("apply", "-f", write(EVERYTHING))

    assert ran.out == "node/n1 created\n"
    assert ran.err.splitlines()[0] == (
        "tidelog: left out, since they do not concern scheduling: 2 ConfigMap, 1 DaemonSet, 1 Rollout, 1 Service"
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "hint"),
    [
        ("v1", "ConfigMpa", 'did you mean "ConfigMap"?'),
        ("v1", "Pdo", 'did you mean "Pod"?'),
        ("app/v1", "DaemonSet", "apply the pods that they make"),
        ("resources.k8s.io/v1", "ResourceClaims", 'did you mean "ResourceClaim"?'),
        ("v1", "Binding", "the scheduler's own decision"),
        ("extensions/v1beta1", "Deployment", 'supported values: "apps/v1"'),
    ],
)
def test_misspelled_kinds_are_refused(
    at_log: Tidelog, write: Write, api_version: str, kind: str, hint: str
) -> None:
    ran = at_log(
        "apply", "-f", write(f"{NODE}---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    )

    assert ran.code == 1
    assert hint in ran.err
    assert ran.out == ""


def test_file_of_nothing_that_concerns_scheduling_is_an_error(at_log: Tidelog, write: Write) -> None:
    ran = at_log("apply", "-f", write("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n"))

    assert ran.code == 2
    assert "no objects that concern scheduling" in ran.err
