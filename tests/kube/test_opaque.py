"""Fields that nothing here reads are put back as they were, whatever becomes of the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.objects import Condition, Pod
from tidelog.kube.opaque import dumped, left_over, read, with_left_over

MANIFEST: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "labels": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "blockOwnerDeletion": True}
        ],
    },
    "spec": {
        "containers": [
            {"name": "one", "env": [{"name": "A", "value": "b"}], "resources": {}},
            {"name": "two", "image": "i", "livenessProbe": {"httpGet": {"path": "/", "port": 80}}},
        ],
        "dnsPolicy": "ClusterFirst",
        "hostNetwork": False,
        "securityContext": {},
        "tolerations": [],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
    },
    "status": {"podIP": "1.2.3.4", "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "t"}]},
}


def shown(pod: Pod, rest: dict[str, Any]) -> dict[str, Any]:
    return with_left_over(msgspec.json.decode(msgspec.json.encode(pod)), rest, Pod)


def test_what_was_put_is_what_one_gets() -> None:
    rest = left_over(MANIFEST, Pod)

    assert shown(msgspec.convert(MANIFEST, Pod), rest) == MANIFEST


def test_nothing_is_left_over_of_what_the_struct_takes() -> None:
    assert left_over({"metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}, Pod) == {}


def test_kind_apiversion_and_nulls_are_not_left_over() -> None:
    assert left_over({"kind": "Pod", "apiVersion": "v1", "spec": {"dnsPolicy": None}}, Pod) == {}


def test_typed_fields_that_changed_meanwhile_win() -> None:
    pod = msgspec.convert(MANIFEST, Pod)
    changed = replace(pod, spec=replace(pod.spec, host_network=True))

    assert shown(changed, left_over(MANIFEST, Pod))["spec"]["hostNetwork"] is True


def test_items_find_theirs_by_name_when_the_list_has_changed() -> None:
    pod = msgspec.convert(MANIFEST, Pod)
    conditions = (Condition(type="PodScheduled", status="True"), *pod.status.conditions)
    changed = replace(
        pod,
        spec=replace(pod.spec, containers=pod.spec.containers[::-1]),
        status=replace(pod.status, conditions=conditions),
    )

    found = shown(changed, left_over(MANIFEST, Pod))

    assert [container["name"] for container in found["spec"]["containers"]] == ["two", "one"]
    assert found["spec"]["containers"][1]["env"] == [{"name": "A", "value": "b"}]
    assert found["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True", "lastProbeTime": "t"},
    ]


def test_text_is_read_back() -> None:
    rest = left_over(MANIFEST, Pod)

    assert read(dumped(rest)) == rest
    assert read("") == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab[]", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "containers", "containers[]", "name", "env", "x", "conditions"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status", "containers[]", "x"]), json_values),
    st.sampled_from([{}, MANIFEST]),
)
def test_any_left_over_merges_into_any_object(rest: dict[str, Any], manifest: dict[str, Any]) -> None:
    pod = msgspec.convert(manifest, Pod)

    shown(pod, left_over(rest, Pod))


@given(json_values)
def test_any_text_in_a_record_leaves_the_typed_fields_alone(rest: Any) -> None:
    typed = msgspec.json.decode(msgspec.json.encode(msgspec.convert(MANIFEST, Pod)))

    found = with_left_over(
        msgspec.json.decode(msgspec.json.encode(typed)), rest if isinstance(rest, dict) else {}, Pod
    )

    assert msgspec.convert(found, Pod) == msgspec.convert(typed, Pod)


@pytest.mark.parametrize(
    "rest", [{"spec": {"containers[]": 3}}, {"containers[]": {}}, {"spec": {"containers[]": {"0": 1}}}]
)
def test_left_over_that_fits_nowhere_is_passed_over(rest: dict[str, Any]) -> None:
    typed = {"spec": {"containers": [{"name": "one"}]}}

    assert with_left_over(typed, rest, Pod) == {"spec": {"containers": [{"name": "one"}]}}
