"""apply, delete, patch-condition: what they say and what they change."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Tidelog
from tidelog.api.manifests.manifests import as_list
from tidelog.api.text import as_json
from tidelog.eventlog.log import open_log
from tidelog.eventlog.records import ConfigurationLoaded, Draft
from tidelog.testing.builders import ZONE, node, pod, priority_class

Manifest = Callable[..., Path]


def stdin_is(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


async def scheduler_ran(path: Path, gates: dict[str, bool]) -> None:
    """What a scheduler with these gates leaves in a log."""
    async with open_log(path) as log:
        body = ConfigurationLoaded(configuration={"featureGates": gates})
        await log.append([Draft(body=body, author="scheduler")])


def test_new_log_is_made_and_said(at_log: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    ran = at_log("apply", "-f", manifest(pod("web-1").build()))

    assert ran == (0, "pod/web-1 created\n", f"tidelog: new log {tmp_path / 'cluster.db'}\n")


def test_apply_again_changes_nothing(two_pods: Tidelog, tmp_path: Path) -> None:
    ran = two_pods("apply", "-f", tmp_path / "objects.yaml")

    assert ran == (0, "pod/web-1 unchanged\npod/web-2 unchanged\n", "")
    assert two_pods("log", "verify").out == "2 records, chain ok, head ok\n"


def test_changed_object_is_configured(two_pods: Tidelog, manifest: Manifest) -> None:
    changed = pod("web-1").label(app="web", tier="gold").request(cpu="500m").build()

    assert two_pods("apply", "-f", manifest(changed)).out == "pod/web-1 configured\n"
    assert two_pods("get", "pods", "-l", "tier=gold", "-o", "name").lines == ["pod/web-1"]


def test_later_objects_may_rely_on_earlier_ones(at_log: Tidelog, manifest: Manifest) -> None:
    objects = manifest(priority_class("high", 1000), pod("web-1").priority_class("high").build())

    ran = at_log("apply", "-f", objects)

    assert ran.lines == ["priorityclass/high created", "pod/web-1 created"]
    assert at_log("get", "pods").lines[1].split()[:4] == ["web-1", "Pending", "<none>", "1000"]


def test_one_bad_object_keeps_all_out(two_pods: Tidelog, manifest: Manifest) -> None:
    good, bad = pod("good").build(), pod("bad").spread(ZONE, max_skew=0).priority_class("none").build()

    ran = two_pods("apply", "-f", manifest(good, bad))

    assert ran.code == 1
    assert ran.out == ""
    subject, *errors = ran.err.splitlines()
    assert subject.endswith('objects.yaml: Pod "bad": refused, nothing was changed:')
    assert [error.split(":")[0].strip() for error in errors] == [
        "spec.priorityClassName",
        "spec.topologySpreadConstraints[0].maxSkew",
        "spec.topologySpreadConstraints[0].labelSelector",
    ][: len(errors)]
    assert len(errors) >= 2
    assert two_pods("log", "verify").out == "2 records, chain ok, head ok\n"


def test_errors_of_all_objects_are_listed_with_their_object(two_pods: Tidelog, manifest: Manifest) -> None:
    bad = [pod(name).spread(ZONE, max_skew=0).build() for name in ("a", "b")]

    ran = two_pods("apply", "-f", manifest(*bad, pod("c").build()))

    first, *errors = ran.err.splitlines()
    assert first == "tidelog: error: 2 of 3 refused, nothing was changed:"
    assert [error.split('Pod "')[1][0] for error in errors] == ["a", "b"]


def test_errors_of_all_files_are_listed(at_log: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod")
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "c.yaml").write_text("apiVersion: v1\nkind: Pdo\n")

    ran = at_log("apply", "-f", tmp_path / "a.yaml", "-f", tmp_path / "b.yaml", "-f", tmp_path / "c.yaml")

    assert ran.code == 1
    for part in (
        "a.yaml: Pod: apiVersion: Required value",
        "b.yaml: line 2, column 1",
        'c.yaml: Pdo: kind: Unsupported value: "Pdo"',
    ):
        assert part in ran.err
    assert 'did you mean "Pod"' in ran.err


def test_directory_is_applied_by_file_name(at_log: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    (folder / "below").mkdir(parents=True)
    manifest(pod("second").build(), name="manifests/2.yml")
    manifest(pod("first").build(), name="manifests/1.yaml")
    (folder / "3.json").write_text(as_json(as_list([pod("third").build()])))
    (folder / "notes.txt").write_text("not a manifest: [")
    manifest(pod("fourth").build(), name="manifests/below/4.yaml")

    flat = at_log("apply", "-f", folder)
    deep = at_log("apply", "-f", folder, "-R")

    assert flat.lines == ["pod/first created", "pod/second created", "pod/third created"]
    assert deep.lines[-1] == "pod/fourth created"


def test_stdin_is_a_manifest(at_log: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_is(monkeypatch, as_json(as_list([node("a-1").build(), pod("web-1").build()])).encode())

    assert at_log("apply", "-f", "-").lines == ["node/a-1 created", "pod/web-1 created"]


def test_namespace_is_for_objects_that_name_none(at_log: Tidelog, manifest: Manifest) -> None:
    objects = manifest(
        pod("web-1").namespace("").build(), pod("web-2").namespace("shop").build(), node("a-1").build()
    )

    assert at_log("apply", "-f", objects, "-n", "test").code == 0
    assert at_log("get", "pods", "-A", "--no-headers").lines[0].split()[:2] == ["shop", "web-2"]
    assert at_log("get", "pods", "-n", "test", "-o", "name").lines == ["pod/web-1"]


def test_dry_run_says_what_would_happen_and_does_not(two_pods: Tidelog, manifest: Manifest) -> None:
    objects = manifest(pod("web-1").label(app="web").request(cpu="500m").build(), pod("web-3").build())

    ran = two_pods("apply", "-f", objects, "--dry-run")

    assert ran.lines == ["pod/web-1 unchanged (dry run)", "pod/web-3 created (dry run)"]
    assert two_pods("log", "verify").out == "2 records, chain ok, head ok\n"


def test_dry_run_makes_no_log(at_log: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    ran = at_log("apply", "-f", manifest(pod("web-1").build()), "--dry-run")

    assert ran == (0, "pod/web-1 created (dry run)\n", "")
    assert list(tmp_path.glob("cluster.db*")) == []


def test_refused_objects_make_no_log(at_log: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    assert at_log("apply", "-f", manifest(pod("web-1").priority_class("none").build())).code == 1
    assert list(tmp_path.glob("cluster.db*")) == []


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_result_as_data(
    two_pods: Tidelog, manifest: Manifest, output: str, read: Callable[[str], object]
) -> None:
    ran = two_pods("apply", "-f", manifest(pod("web-3").build()), "-o", output)

    assert read(ran.out) == {
        "head": 2,
        "results": [{"key": "Pod/default/web-3", "action": "created", "seq": 3}],
    }


def test_warnings_are_on_stderr(at_log: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "pdb.yaml").write_text(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1}\n"
    )

    ran = at_log("apply", "-f", tmp_path / "pdb.yaml")

    assert ran.out == "poddisruptionbudget/web created\n"
    assert "tidelog: warning: poddisruptionbudget/web: " in ran.err


def test_gates_decide_what_is_admitted(at_log: Tidelog, manifest: Manifest) -> None:
    objects = manifest(
        pod("web-1").label(app="web").spread(ZONE, fallback=("PreemptionFailed",)).build(),
    )

    refused = at_log("apply", "-f", objects)
    admitted = at_log("--feature-gates", "PodTopologySpreadFallbackMode=true", "apply", "-f", objects)

    assert refused.code == 1
    assert "spec.topologySpreadConstraints[0].fallbackCriteria" in refused.err
    assert admitted.out == "pod/web-1 created\n"


@pytest.mark.unreplayed("the records are made by hand: a configuration of gates only")
def test_gates_of_the_last_scheduler_hold_unless_others_are_given(
    at_log: Tidelog, manifest: Manifest, tmp_path: Path
) -> None:
    asyncio.run(scheduler_ran(tmp_path / "cluster.db", {"PodTopologySpreadFallbackMode": True}))
    objects = manifest(
        pod("web-1").label(app="web").spread(ZONE, fallback=("PreemptionFailed",)).build(),
    )

    refused = at_log("--feature-gates", "PodTopologySpreadFallbackMode=false", "apply", "-f", objects)
    admitted = at_log("apply", "-f", objects)

    assert refused.code == 1
    assert admitted == (0, "pod/web-1 created\n", "")


def test_unknown_gate_is_refused(two_pods: Tidelog, tmp_path: Path) -> None:
    ran = two_pods("apply", "-f", tmp_path / "objects.yaml", "--feature-gates", "PodSpread=true")

    assert ran.code == 1
    assert "PodSpread" in ran.err


# --- delete ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["pod", "web-1", "web-2"], ["po/web-1", "pods/web-2"]])
def test_delete_by_name(two_pods: Tidelog, words: list[str]) -> None:
    assert two_pods("delete", *words).lines == ["pod/web-1 deleted", "pod/web-2 deleted"]
    assert two_pods("get", "pods").err == "nothing found in namespace default\n"


def test_delete_by_manifest(two_pods: Tidelog, tmp_path: Path) -> None:
    ran = two_pods("delete", "-f", tmp_path / "objects.yaml")

    assert ran.lines == ["pod/web-1 deleted", "pod/web-2 deleted"]


def test_delete_of_what_is_not_there_deletes_nothing(two_pods: Tidelog) -> None:
    ran = two_pods("delete", "pod", "web-1", "web-9")

    assert ran.code == 1
    assert ran.err == (
        "tidelog: error: pod/web-9: refused, nothing was changed: "
        'metadata.name: Not found: "web-9": there is no such Pod in namespace default\n'
    )
    assert two_pods("get", "pods", "-o", "name").lines == ["pod/web-1", "pod/web-2"]


def test_delete_may_ignore_what_is_not_there(two_pods: Tidelog) -> None:
    ran = two_pods("delete", "pod", "web-1", "web-9", "--ignore-not-found")

    assert ran == (0, "pod/web-1 deleted\n", "")


def test_running_pod_terminates_first(at_log: Tidelog, manifest: Manifest) -> None:
    at_log("apply", "-f", manifest(node("a-1").build(), pod("web-1").on("a-1").build()))

    asked = at_log("delete", "pod", "web-1", "--grace-period", "20")
    again = at_log("delete", "pod", "web-1", "--grace-period", "30")
    status = at_log("get", "pods", "--no-headers").out.split()[1]
    forced = at_log("delete", "pod", "web-1", "--force", "--grace-period", "0")

    assert asked.out == again.out == "pod/web-1 terminating\n"
    assert status == "Terminating"
    assert forced.out == "pod/web-1 deleted\n"
    assert at_log("log", "verify").out == "4 records, chain ok, head ok\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "delete what?"),
        (["pod"], "delete which of the pods?"),
        (["pod", "web-1", "-f", "x.yaml"], "not both"),
        (["pod", "web-1", "--grace-period", "0"], "say --force as well"),
        (["pod", "web-1", "--grace-period", "-1"], "not below 0"),
        (["pod", "web-1", "--grace-period", "5", "--force"], "--force takes pods away at once"),
        (["pdo", "web-1"], 'there is no kind "pdo", did you mean "po"?'),
        (["pod/web-1", "web-2"], "name the kind once"),
        (["pod/"], "'' is no name of an object"),
        (["pod", "a/b"], "name the kind once"),
        ([","], "',' names no kind"),
    ],
)
def test_delete_of_nothing_clear_is_wrong_usage(two_pods: Tidelog, words: list[str], error: str) -> None:
    ran = two_pods("delete", *words)

    assert ran.code == 2
    assert error in ran.err


def test_system_objects_cannot_be_deleted(two_pods: Tidelog) -> None:
    ran = two_pods("delete", "pc", "system-node-critical")

    assert ran.code == 1
    assert "this is a system priority class and cannot be deleted" in ran.err


# --- patch-condition ------------------------------------------------------------------------------------------------


def test_condition_is_set_once(two_pods: Tidelog) -> None:
    words = ("patch-condition", "pod", "web-1", "--type", "NodeProvisioningInProgress", "--status", "True")

    assert two_pods(*words).out == "pod/web-1 patched\n"
    assert two_pods(*words).out == "pod/web-1 unchanged\n"
    conditions = json.loads(two_pods("get", "pod", "web-1", "-o", "json").out)["status"]["conditions"]
    assert [(c["type"], c["status"]) for c in conditions] == [("NodeProvisioningInProgress", "True")]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["pod", "web-9", "--type", "T", "--status", "True"], 1, "there is no such Pod in namespace default"),
        (["pod", "web-1", "--type", "T", "--status", "Maybe"], 1, "Maybe"),
        (["node", "a-1", "--type", "T", "--status", "True"], 2, "name one pod"),
        (["pod", "web-1", "web-2", "--type", "T", "--status", "True"], 2, "name one pod"),
        (["pod", "--type", "T", "--status", "True"], 2, "name one pod"),
        (["pod", "web-1", "--status", "True"], 2, "--type"),
    ],
)
def test_wrong_condition_is_refused(two_pods: Tidelog, words: list[str], code: int, error: str) -> None:
    ran = two_pods("patch-condition", *words)

    assert ran.code == code
    assert error in ran.err
    assert two_pods("log", "verify").out == "2 records, chain ok, head ok\n"


@pytest.mark.parametrize(
    "words", [["delete", "pod", "x"], ["patch-condition", "pod", "x", "--type", "T", "--status", "True"]]
)
def test_only_apply_makes_a_log(at_log: Tidelog, tmp_path: Path, words: list[str]) -> None:
    ran = at_log(*words)

    assert ran.code == 1
    assert "there is no such log" in ran.err
    assert list(tmp_path.iterdir()) == []
