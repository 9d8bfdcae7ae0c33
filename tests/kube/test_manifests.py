"""The manifests of deploy/kubernetes ask for the rights that are used, and run what the command line takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog.cli.commands import run
from tidelog.kube.cluster.kinds import wanted_kinds

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"


def documents(folder: Path) -> list[dict[str, Any]]:
    """What the kustomization is made of, patches left out."""
    found = []
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = (folder / name).resolve()
        found += documents(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    return found


def rules(name: str) -> list[dict[str, Any]]:
    return [
        rule
        for document in documents(FOLDER / "scheduler")
        if document["kind"] in ("ClusterRole", "Role") and document["metadata"]["name"] == name
        for rule in document["rules"]
    ]


def allows(found: list[dict[str, Any]], group: str, resource: str, verb: str) -> bool:
    return any(
        group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        for rule in found
    )


def test_recorder_may_read_every_kind_and_write_nothing() -> None:
    found = rules("tidelog-recorder")

    for kind in wanted_kinds():
        for verb in ("get", "list", "watch"):
            assert allows(found, kind.group, kind.plural, verb), (kind.name, verb)
    assert {verb for rule in found for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("", "pods/binding", "create"),
        ("", "pods/eviction", "create"),
        ("", "pods/status", "patch"),
        ("", "pods", "delete"),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
        ("scheduling.k8s.io", "podgroups/status", "patch"),
        ("coordination.k8s.io", "leases", "update"),
    ],
)
def test_scheduler_may_do_what_it_does(group: str, resource: str, verb: str) -> None:
    assert allows(rules("tidelog-scheduler"), group, resource, verb)


@pytest.mark.parametrize("folder", ["recorder", "scheduler"])
def test_arguments_are_those_of_the_command_line(folder: str) -> None:
    (deployment,) = [d for d in documents(FOLDER / folder) if d["kind"] == "Deployment"]
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    kustomization = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())
    for patch in kustomization.get("patches", ()):
        for step in yaml.safe_load(patch["patch"]):
            if "/args/" in step["path"]:
                args[int(step["path"].rpartition("/")[2])] = step["value"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    run.configure(parser)

    parsed = parser.parse_args(args[1:])

    assert args[0] == "run"
    assert (parsed.kubeconfig, parsed.mode) == (
        "in-cluster",
        {"recorder": "record", "scheduler": "schedule"}[folder],
    )


def test_every_file_of_the_manifests_is_used() -> None:
    for folder in ("recorder", "scheduler"):
        listed = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())["resources"]
        files = {path.name for path in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert files == {name for name in listed if not name.startswith("..")}
