"""Manifests in and out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.api.conftest import VALID, made
from tidelog.api.errors import InvalidObjects
from tidelog.api.kinds.registry import KIND_BY_NAME, KINDS
from tidelog.api.manifests import manifests
from tidelog.api.manifests.manifests import dump_json, dump_yaml, load, to_builtins
from tidelog.api.objects import LabelSelector, Object, ObjectMeta, Pod, PodDisruptionBudget
from tidelog.testing import builders as build


def names(objects: list[Object]) -> list[tuple[str, str, str]]:
    return [(type(obj).__name__, obj.metadata.namespace, obj.metadata.name) for obj in objects]


def complaints(data: bytes | str, **options: Any) -> list[str]:
    with pytest.raises(InvalidObjects) as caught:
        load(data, "f.yaml", **options)
    return [str(error) for error in caught.value.errors]


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        (json.dumps(POD), [("Pod", "default", "a")]),
        (json.dumps(POD) + json.dumps(NODE), [("Pod", "default", "a"), ("Node", "", "n")]),
        (yaml.safe_dump_all([POD, NODE]), [("Pod", "default", "a"), ("Node", "", "n")]),
        (
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD, NODE], "metadata": {}}),
            [("Pod", "default", "a"), ("Node", "", "n")],
        ),
        (
            json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "x"}}, POD]}),
            [("Pod", "default", "x"), ("Pod", "default", "a")],
        ),
        (
            json.dumps(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudgetList",
                    "items": [{"metadata": {"name": "b"}}],
                }
            ),
            [("PodDisruptionBudget", "default", "b")],
        ),
        (
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "List",
                    "items": [{"apiVersion": "v1", "kind": "List", "items": [POD]}],
                }
            ),
            [("Pod", "default", "a")],
        ),
        (json.dumps({"apiVersion": "v1", "kind": "List", "items": []}), []),
        (json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": None}), []),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: team}\n", [("Pod", "team", "a")]),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: n, namespace: team}\n", [("Node", "", "n")]),
    ],
)
def test_objects_come_in_the_order_of_the_text(data: str, expected: list[tuple[str, str, str]]) -> None:
    assert names(load(data)) == expected


def test_namespace_is_filled_in_where_there_is_none() -> None:
    data = (
        json.dumps(POD) + json.dumps({**POD, "metadata": {"name": "b", "namespace": "x"}}) + json.dumps(NODE)
    )

    found = load(data, namespace="team")

    assert names(found) == [("Pod", "team", "a"), ("Pod", "x", "b"), ("Node", "", "n")]


def test_null_means_absent() -> None:
    (pod,) = load(
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":null},"spec":{"containers":null}}'
    )

    assert pod == Pod(metadata=ObjectMeta(name="a", namespace="default"))


def test_unknown_fields_are_tolerated() -> None:
    (pod,) = load(json.dumps({**POD, "spec": {"shiny": {"new": [1]}, "nodeName": "n1"}, "extra": 1}))

    assert isinstance(pod, Pod)
    assert pod.spec.node_name == "n1"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("3", "object: Invalid value: 3: must be an object with apiVersion and kind"),
        ("[]", "object: Invalid value: []: must be an object with apiVersion and kind"),
        ("kind: Pod", "apiVersion: Required value"),
        ("apiVersion: v1", "kind: Required value"),
        ("{apiVersion: 1, kind: Pod}", "apiVersion: Invalid value: 1: must be a string"),
        ("{apiVersion: v1, kind: ''}", "kind: Required value"),
        ("{apiVersion: v2, kind: Pod}", 'apiVersion: Unsupported value: "v2": supported values: "v1"'),
        (
            "{apiVersion: policy/v2, kind: PodDisruptionBudget}",
            'apiVersion: Unsupported value: "policy/v2": supported values: "policy/v1", "policy/v1beta1"',
        ),
        (
            "{apiVersion: extensions/v1beta1, kind: ReplicaSet}",
            'apiVersion: Unsupported value: "extensions/v1beta1": supported values: "apps/v1", "apps/v1beta2"',
        ),
        (
            "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup}",
            'apiVersion: Unsupported value: "scheduling.x-k8s.io/v1alpha1"',
        ),
        (
            "{apiVersion: v1, kind: Pood}",
            'kind: Unsupported value: "Pood": did you mean "Pod"?; supported values: "CSIDriver", "CSINode"',
        ),
        ("{apiVersion: v1, kind: ConfigMap}", 'kind: Unsupported value: "ConfigMap": supported values:'),
        (
            "{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup}",
            'kind: Unsupported value: "CompositePodGroup": composite pod groups are not supported; use PodGroup or Workload',
        ),
        (
            "{apiVersion: apps/v1, kind: DaemonSet}",
            'kind: Unsupported value: "DaemonSet": controllers are not run here; apply the pods that they make',
        ),
        ("{apiVersion: v1, kind: List, items: 3}", "items: object: Invalid value: 3: must be an object"),
    ],
)
def test_document_that_is_no_object_of_ours_is_told(document: str, expected: str) -> None:
    (complaint,) = complaints(document)

    assert complaint.startswith(expected)


def test_each_error_names_its_document_and_object() -> None:
    data = (
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: 1}\n---\n"
        "{apiVersion: v1, kind: Node, metadata: {name: n}}\n---\n"
        "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: 5}}]}\n---\n"
        "{kind: Pod, metadata: {name: b}}\n"
    )

    assert complaints(data) == [
        'document 1 (Pod "a"): spec: Invalid value: 1: must be an object, not an integer',
        (
            "document 3, items[0] (Node): metadata.name: Invalid value: 5: must be a string, not an integer; "
            "in YAML, put it in quotes"
        ),
        'document 4 (Pod "b"): apiVersion: Required value',
    ]


def test_only_object_of_a_text_is_the_subject() -> None:
    with pytest.raises(InvalidObjects) as caught:
        load(json.dumps({**POD, "spec": []}), "f.yaml")

    assert (
        str(caught.value)
        == 'f.yaml: Pod "a" is invalid: spec: Invalid value: []: must be an object, not a list'
    )


def test_every_wrong_type_of_an_object_is_told() -> None:
    data = """
apiVersion: v1
kind: Pod
metadata:
  name: a
  labels: {on: on, version: 1.5, ok: "yes"}
  ownerReferences: {}
spec:
  priority: 3000000000
  hostNetwork: "true"
  nodeSelector: [x]
  containers:
  - name: main
    ports: [{containerPort: "80"}, {hostPort: 8.5}]
    resources: {requests: {cpu: true, memory: 1Gi}}
  - main
  tolerations: [null]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [x]}}
status:
  conditions: [{status: "True"}]
"""

    assert complaints(data) == [
        (
            "metadata.labels[on]: Invalid value: true: must be a string, not a boolean; in YAML, put it in quotes "
            "(on, off, yes and no are booleans there)"
        ),
        "metadata.labels[version]: Invalid value: 1.5: must be a string, not a number; in YAML, put it in quotes",
        "metadata.ownerReferences: Invalid value: {}: must be a list, not an object",
        (
            "spec.containers[0].resources.requests[cpu]: Invalid value: true: "
            "must be a string or an integer or a number, not a boolean"
        ),
        'spec.containers[0].ports[0].containerPort: Invalid value: "80": must be an integer, not a string',
        "spec.containers[0].ports[1].hostPort: Invalid value: 8.5: must be an integer, not a number",
        'spec.containers[1]: Invalid value: "main": must be an object, not a string',
        'spec.nodeSelector: Invalid value: ["x"]: must be an object, not a list',
        (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: "
            'Invalid value: ["x"]: must be an object, not a list'
        ),
        "spec.tolerations[0]: Invalid value: must be an object, not null",
        "spec.priority: Invalid value: 3000000000: must be between -2147483648 and 2147483647, inclusive",
        'spec.hostNetwork: Invalid value: "true": must be a boolean, not a string',
        "status.conditions[0].type: Required value",
    ]


def test_refusal_that_our_own_walk_does_not_find_is_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "wrong_types", lambda *_: [])

    assert complaints(json.dumps({**POD, "spec": 3})) == [
        "Pod: Invalid value: Expected `object`, got `int` - at `$.spec`"
    ]


def test_errors_are_counted_up_to_a_hundred() -> None:
    labels = {f"l{i}": i for i in range(500)}

    assert len(complaints(json.dumps({**POD, "metadata": {"name": "a", "labels": labels}}))) == 100
    assert len(complaints("{kind: Pod}\n---\n" * 300)) == 100


def test_control_characters_do_not_reach_the_terminal() -> None:
    with pytest.raises(InvalidObjects) as caught:
        load('{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\\u001b[31m","labels":{"\\u0007":1}}}', "f")

    assert str(caught.value).isprintable()


def test_unknown_kinds_can_be_left_out_of_a_dump_of_everything() -> None:
    data = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [{"apiVersion": "v1", "kind": "Secret"}, POD, {"apiVersion": "v9", "kind": "Node"}],
        }
    )

    assert names(load(data, unknown="skip")) == [("Pod", "default", "a")]
    assert complaints("{kind: Secret}", unknown="skip") == ["apiVersion: Required value"]


def test_object_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "OBJECT_BYTES_MAX", 1000)
    monkeypatch.setattr(manifests, "_SURELY_SMALL", 100)
    large = {**POD, "metadata": {"name": "a", "annotations": {"x": "y" * 1000}}}
    dropped = {**POD, "managedFields": "y" * 1000}

    assert names(load(json.dumps(dropped))) == [("Pod", "default", "a")]
    assert complaints(json.dumps(large)) == ["Pod: Too long: may not be more than 1000 bytes"]
    assert complaints(
        "x: &x " + "y" * 600 + "\napiVersion: v1\nkind: Pod\nmetadata: {annotations: {a: *x, b: *x}}"
    ) == ["Pod: Too long: may not be more than 1000 bytes"]


def test_old_budget_with_an_empty_selector_selects_nothing() -> None:
    text = "{apiVersion: policy/%s, kind: PodDisruptionBudget, metadata: {name: b}, spec: {selector: {}}}"

    (old,), (new,) = load(text % "v1beta1"), load(text % "v1")

    assert isinstance(old, PodDisruptionBudget)
    assert isinstance(new, PodDisruptionBudget)
    assert old.spec.selector is None
    assert new.spec.selector == LabelSelector()


def test_every_kind_is_read_in_every_version_it_names() -> None:
    for kind in KINDS:
        for version in (kind.version, *kind.other_versions):
            api_version = f"{kind.group}/{version}" if kind.group else version
            (found,) = load(
                json.dumps({"apiVersion": api_version, "kind": kind.name, "metadata": {"name": "x"}})
            )

            assert type(found) is kind.type
            assert to_builtins(found)["apiVersion"] == kind.api_version


# --- out ----------------------------------------------------------------------------------------------------------------

EVERY_KIND = [made(kind, {}) for kind in VALID]


def test_api_version_and_kind_come_first() -> None:
    assert to_builtins(build.pdb("b", "app=web")) == {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    assert list(to_builtins(build.node("n").build()))[:3] == ["apiVersion", "kind", "metadata"]


def test_one_object_is_written_as_itself_and_others_as_a_list() -> None:
    pod, node = build.pod("a").build(), build.node("n").build()

    assert json.loads(dump_json([pod]))["kind"] == "Pod"
    assert [item["kind"] for item in json.loads(dump_json([pod, node]))["items"]] == ["Pod", "Node"]
    assert json.loads(dump_json([])) == {"apiVersion": "v1", "kind": "List", "items": []}
    assert dump_yaml([pod]).startswith("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n")
    assert dump_yaml([pod, node]).count("---\n") == 2
    assert yaml.safe_load(dump_yaml([pod, node], wrap=True))["kind"] == "List"


@pytest.mark.parametrize("obj", EVERY_KIND, ids=lambda obj: type(obj).__name__)
def test_every_kind_is_written_and_read_back(obj: Object) -> None:
    assert load(dump_json([obj])) == [obj]
    assert load(dump_yaml([obj])) == [obj]


def test_many_objects_are_written_and_read_back() -> None:
    assert load(dump_json(EVERY_KIND)) == EVERY_KIND
    assert load(dump_yaml(EVERY_KIND)) == EVERY_KIND
    assert load(dump_yaml(EVERY_KIND, wrap=True)) == EVERY_KIND


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "on",
        "y",
        "no",
        "~",
        "null",
        "1e3",
        "012",
        "0x1f",
        "1:30",
        "1_0",
        ".5",
        "2024-01-01",
        "<<",
        "=",
        "- a",
        "a: b",
        "#",
        "",
        " ",
        "\t",
        "é\u2028",
        "\x85",
        "\x7f",
        "\ufeff",
    ]
)


@given(st.dictionaries(TEXTS, TEXTS, max_size=5))
def test_any_text_survives_both_notations(labels: dict[str, str]) -> None:
    obj = build.pod("a").annotate(labels).build()

    assert load(dump_json([obj])) == [obj]
    assert load(dump_yaml([obj])) == [obj]


def test_yaml_of_ours_is_read_alike_by_other_readers() -> None:
    pod = build.pod("a").annotate({"a": "on", "b": "1e3", "c": "012", "d": "1:30", "e": "2024-01-01"}).build()

    assert yaml.safe_load(dump_yaml([pod])) == to_builtins(pod)


def test_kinds_decode_from_what_the_log_stores() -> None:
    for obj in EVERY_KIND:
        kind = KIND_BY_NAME[type(obj).__name__]

        assert msgspec.msgpack.decode(msgspec.msgpack.encode(obj), type=kind.type) == obj
