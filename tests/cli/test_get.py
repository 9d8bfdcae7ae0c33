"""get: which objects, in which format, as of when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Tidelog
from tidelog.api.manifests.manifests import load
from tidelog.testing.builders import node, pdb, pod, priority_class

Manifest = Callable[..., Path]


@pytest.fixture
def shop(at_log: Tidelog, manifest: Manifest) -> Tidelog:
    """A log with two nodes, three pods in two namespaces, a class and a budget."""
    web = pod("web-1").label(app="web", tier="gold").request(cpu="500m", memory="1Gi").priority_class("high")
    objects = [
        node("a-1").capacity(cpu=8, memory="32Gi").label({"topology.kubernetes.io/zone": "a"}).build(),
        node("b-1").capacity(cpu=4, memory="16Gi").taint("dedicated", "gpu").build(),
        priority_class("high", 1000),
        pdb("web", "app=web", min_available=1),
        web.on("a-1").build(),
        web.named("web-2").label(tier="test").build(),
        pod("api-1").namespace("backend").label(app="api").build(),
    ]
    assert at_log("apply", "-f", manifest(*objects)).code == 0
    return at_log


def names(tidelog: Tidelog, *words: object) -> list[str]:
    return tidelog("get", *words, "-o", "name").lines


def test_pods_show_what_matters_to_a_scheduler(shop: Tidelog) -> None:
    lines = [line.split() for line in shop("get", "pods").lines]

    assert lines[0] == ["NAME", "STATUS", "NODE", "PRIORITY", "AGE"]
    assert [line[:-1] for line in lines[1:]] == [
        ["web-1", "Scheduled", "a-1", "1000"],
        ["web-2", "Pending", "<none>", "1000"],
    ]


def test_field_selector_is_that_of_an_api_server(shop: Tidelog) -> None:
    assert names(shop, "pods", "--field-selector", "spec.nodeName=a-1") == ["pod/web-1"]
    assert names(shop, "pods", "-A", "--field-selector=status.phase=Pending,spec.nodeName=") == [
        "pod/api-1",
        "pod/web-2",
    ]
    assert names(shop, "nodes", "--field-selector=metadata.name!=a-1") == ["node/b-1"]
    assert names(shop, "nodes,pods", "--field-selector=metadata.name=a-1") == ["node/a-1"]
    refused = shop("get", "nodes", "--field-selector=status.phase=Running")
    assert refused.code == 2
    assert "field label not supported: status.phase; of a Node it may name metadata.name" in refused.err


def test_nodes_show_what_is_taken_of_what_there_is(shop: Tidelog) -> None:
    lines = [line.split()[:-1] for line in shop("get", "nodes").lines]

    assert lines == [
        ["NAME", "STATUS", "ZONE", "CPU", "MEMORY", "PODS", "TAINTS"],
        ["a-1", "Unknown", "a", "0.5/8", "1Gi/32Gi", "1/110", "<none>"],
        ["b-1", "Unknown", "<none>", "0/4", "0/16Gi", "0/110", "dedicated=gpu:NoSchedule"],
    ]


def test_wide_shows_more(shop: Tidelog) -> None:
    heading, *_ = shop("get", "pods", "-o", "wide").lines

    assert heading.split("   ")[-1] != ""
    for column in ("CPU", "MEMORY", "NOMINATED NODE", "GROUP", "GATES", "LABELS"):
        assert column in heading


def test_all_namespaces_show_the_namespace(shop: Tidelog) -> None:
    lines = [line.split()[:2] for line in shop("get", "pods", "-A").lines]

    assert lines == [["NAMESPACE", "NAME"], ["backend", "api-1"], ["default", "web-1"], ["default", "web-2"]]


@pytest.mark.parametrize("kind", ["pod", "pods", "po", "Pod", "pods.v1."])
def test_kind_has_many_names(shop: Tidelog, kind: str) -> None:
    assert names(shop, kind) == ["pod/web-1", "pod/web-2"]


def test_several_kinds_are_tables_of_their_own(shop: Tidelog) -> None:
    ran = shop("get", "nodes,pods")

    tables = ran.out.split("\n\n")
    assert [table.splitlines()[1].split()[0] for table in tables] == ["node/a-1", "pod/web-1"]


def test_all_is_everything_that_was_told(shop: Tidelog) -> None:
    assert names(shop, "all") == [
        "pod/web-1",
        "pod/web-2",
        "node/a-1",
        "node/b-1",
        "priorityclass/high",
        "poddisruptionbudget/web",
    ]


def test_what_every_cluster_has_is_listed_by_its_kind(shop: Tidelog) -> None:
    assert names(shop, "pc") == [
        "priorityclass/high",
        "priorityclass/system-cluster-critical",
        "priorityclass/system-node-critical",
    ]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["pod/web-1", "pod/web-2"]),
        ("app=web,tier!=test", ["pod/web-1"]),
        ("tier in (test, silver)", ["pod/web-2"]),
        ("tier notin (test)", ["pod/web-1"]),
        ("!tier", []),
        ("", ["pod/web-1", "pod/web-2"]),
    ],
)
def test_selector(shop: Tidelog, selector: str, expected: list[str]) -> None:
    assert names(shop, "pods", "-l", selector) == expected


def test_named_objects(shop: Tidelog) -> None:
    assert names(shop, "pods", "web-2", "web-1") == ["pod/web-2", "pod/web-1"]
    assert names(shop, "pod/web-1", "node/b-1") == ["pod/web-1", "node/b-1"]
    assert names(shop, "pod", "api-1", "-n", "backend") == ["pod/api-1"]


def test_missing_objects_are_named(shop: Tidelog) -> None:
    ran = shop("get", "pods", "web-1", "web-8", "web-9")

    assert ran == (1, "", "tidelog: error: not found in namespace default: pod/web-8, pod/web-9\n")


def test_nothing_found_is_said_on_stderr(shop: Tidelog) -> None:
    assert shop("get", "svc") == (0, "", "nothing found in namespace default\n")
    assert shop("get", "deviceclasses") == (0, "", "nothing found\n")
    assert shop("get", "svc", "-A", "-o", "name") == (0, "", "nothing found\n")


def test_one_object_as_json_is_itself(shop: Tidelog) -> None:
    found = json.loads(shop("get", "pod", "web-1", "-o", "json").out)

    assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == ("v1", "Pod", "web-1")
    assert found["spec"]["nodeName"] == "a-1"


def test_several_objects_as_json_are_a_list(shop: Tidelog) -> None:
    found = json.loads(shop("get", "pods", "-o", "json").out)

    assert found["kind"] == "List"
    assert [item["metadata"]["name"] for item in found["items"]] == ["web-1", "web-2"]


def test_nothing_as_json_is_an_empty_list(shop: Tidelog) -> None:
    assert json.loads(shop("get", "svc", "-o", "json").out)["items"] == []


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_comes_out_goes_in_again(shop: Tidelog, tmp_path: Path, output: str) -> None:
    everything = shop("get", "all", "-A", "-o", output).out
    (tmp_path / "all.yaml").write_text(everything)

    ran = shop("apply", "-f", tmp_path / "all.yaml")

    assert len(load(everything)) == 7
    assert [line.split()[1] for line in ran.lines] == ["unchanged"] * 7


def test_get_at_a_record_shows_what_was_there(shop: Tidelog) -> None:
    shop("delete", "pod", "web-2")

    assert names(shop, "pods") == ["pod/web-1"]
    assert names(shop, "pods", "--at", "7") == ["pod/web-1", "pod/web-2"]
    assert names(shop, "pods", "--at", "5") == ["pod/web-1"]
    assert shop("get", "all", "--at", "0").err == "nothing found in namespace default\n"


def test_get_at_a_time_shows_what_was_there(shop: Tidelog) -> None:
    at = json.loads(shop("log", "tail", "-n", "1", "-o", "json").out)["at"]
    shop("delete", "pod", "web-2")

    assert names(shop, "pods", "--at", at) == ["pod/web-1", "pod/web-2"]
    before = shop("get", "pods", "--at", "2001-01-01T00:00:00Z").err.splitlines()
    assert "there was nothing before" in before[0]
    assert before[1:] == ["nothing found in namespace default"]
    assert names(shop, "pods", "--at", "2999-01-01T00:00:00Z") == ["pod/web-1"]


def test_ages_count_from_the_moment_that_was_asked_for(shop: Tidelog) -> None:
    now, later = (
        shop("get", "pods", "--no-headers", *at).lines[0].split()[-1]
        for at in (("--at", "7"), ("--at", "2999-01-01T00:00:00Z"))
    )

    assert now == "0s"
    assert later.endswith("y")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["pdos"], 2, 'there is no kind "pdos", did you mean "pods"?'),
        (["gadgets"], 2, 'there is no kind "gadgets"'),
        (["pods", "-l", "app="], 0, ""),
        (["pods", "-l", "app in web"], 2, "--selector: unable to parse selector at"),
        (["pods", "-l", "cores>4"], 2, "--selector: cores: labels of objects cannot be compared"),
        (["pods", "--at", "yesterday"], 2, "--at yesterday: must be the number of a record"),
        (["pods", "--at", "2026-13-01T00:00:00Z"], 2, "--at 2026-13-01T00:00:00Z: must be"),
        (["pods", "--at", "99"], 1, "there is no record 99: the log ends at 7"),
        (["pods", "--at", "-1"], 2, "--at"),
        (["pods", "web-1", "-A"], 2, "leave out -A, -l and --field-selector, or the names"),
        (["pods", "web-1", "-l", "app=web"], 2, "leave out -A, -l and --field-selector, or the names"),
    ],
)
def test_wrong_questions_are_answered_with_what_is_wrong(
    shop: Tidelog, words: list[str], code: int, error: str
) -> None:
    ran = shop("get", *words)

    assert ran.code == code
    assert error in ran.err
    assert ran.err.count("\n") == 1


def test_what_an_annotation_holds_does_not_reach_the_terminal(at_log: Tidelog, manifest: Manifest) -> None:
    hostile = "\x1b]0;owned\x07\u202e\x9b31m"
    described = pod("web-1").annotate({"note": hostile}).build()
    assert at_log("apply", "-f", manifest(described)).code == 0

    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        out = at_log("get", "pod", "web-1", "-o", output).out
        assert all(line.isprintable() for line in out.split("\n"))
        assert read(out)["metadata"]["annotations"]["note"] == hostile
    for words in (("get", "pods", "-o", "wide"), ("log", "show", "1"), ("log", "tail")):
        assert all(line.isprintable() for line in at_log(*words).out.split("\n"))
