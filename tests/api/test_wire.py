"""What an API server sends: lines of watches, pages of lists, objects with nulls, and what cannot be read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.kinds.registry import KINDS
from tidelog.api.objects import Node, Pod, PodDisruptionBudget
from tidelog.api.wire import (
    ApiStatus,
    StatusCause,
    Unreadable,
    read_change,
    read_line,
    read_meta,
    read_object,
    read_page,
    read_status,
    without_nulls,
)


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_a_line_has_its_type_and_the_object_as_it_came() -> None:
    line = read_line(b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"web","uid":"u"}}}\n')

    assert line.type == "ADDED"
    assert read_object("Pod", line.object) == Pod(metadata=Pod().metadata.__class__(name="web", uid="u"))


def test_a_bookmark_is_read_by_its_metadata_alone() -> None:
    line = read_line(
        raw(
            {
                "type": "BOOKMARK",
                "object": {
                    "kind": "Pod",
                    "metadata": {
                        "resourceVersion": "312",
                        "creationTimestamp": None,
                        "annotations": {"k8s.io/initial-events-end": "true"},
                    },
                    "spec": {"containers": None},
                    "status": {},
                },
            }
        )
    )
    meta = read_meta(line.object)

    assert (meta.resource_version, meta.ends_initial_events) == ("312", True)
    assert not read_meta(b'{"metadata":{"resourceVersion":"1","annotations":null}}').ends_initial_events


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"type":"MOVED","object":{}}', b'{"type":"ADDED"}', b"[" * 9999]
)
def test_a_line_of_another_shape_is_unreadable(line: bytes) -> None:
    with pytest.raises(Unreadable, match="a line of a watch cannot be read"):
        read_line(line)


@pytest.mark.parametrize("type", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])
def test_a_line_that_says_how_an_object_is_now_is_read_in_one_pass(type: str) -> None:
    obj = b'{"kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"unschedulable":true}}'
    found = read_change("Node", b'{"type":"%s","object":%s}' % (type.encode(), obj))

    assert found == (read_object("Node", obj) if type in ("ADDED", "MODIFIED") else None)


@pytest.mark.parametrize("metadata", [b"null", b'{"name":"n","labels":null}', b"7"])
def test_what_has_to_be_read_with_more_patience_is_left(metadata: bytes) -> None:
    assert read_change("Node", b'{"type":"ADDED","object":{"metadata":%s}}' % metadata) is None


def test_nulls_of_a_node_and_of_a_budget_are_read_as_absent() -> None:
    node = read_object(
        "Node",
        raw(
            {
                "metadata": {"name": "n", "creationTimestamp": None},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": None}]},
            }
        ),
    )
    budget = read_object(
        "PodDisruptionBudget",
        raw({"metadata": {"name": "b"}, "status": {"disruptedPods": {"web-1": None}, "conditions": None}}),
    )

    assert isinstance(node, Node)
    assert node.status.conditions[0].last_transition_time == ""
    assert isinstance(budget, PodDisruptionBudget)
    assert budget.status.disrupted_pods == {"web-1": ""}, "the pod is among the disrupted, whenever that was"


def test_what_is_wrong_with_an_object_is_told_without_its_values() -> None:
    with pytest.raises(Unreadable) as found:
        read_object("Pod", raw({"metadata": {"name": "canary"}, "spec": {"priority": "canary"}}))

    assert (
        str(found.value)
        == "an object of kind Pod cannot be read: Expected `int | null`, got `str` - at `$.spec.priority`"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_object_of_every_kind_is_read_with_each_of_its_fields_null(kind: Any) -> None:
    empty = kind.type()
    fields = dict.fromkeys(kind.type.__struct_encode_fields__)

    assert read_object(kind.name, raw(fields)) == empty


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_without_nulls_there_is_none(value: Any) -> None:
    found = without_nulls(value)

    assert value is None or b"null" not in msgspec.json.encode(found).replace(b'"null"', b"")
    assert without_nulls(found) == found


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_unreadable(data: bytes) -> None:
    for read in (read_line, read_page, read_meta, lambda d: read_object("Pod", d)):
        with contextlib.suppress(Unreadable):
            read(data)
    assert isinstance(read_status(data), ApiStatus)


def test_a_page_has_its_items_and_where_the_next_one_is() -> None:
    page = read_page(
        raw({"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [{"metadata": {"name": "a"}}]})
    )
    last = read_page(raw({"metadata": {"resourceVersion": "7"}, "items": None}))

    assert (page.resource_version, page.token, [read_meta(item).name for item in page.items]) == (
        "7",
        "t",
        ["a"],
    )
    assert (last.token, last.items) == ("", ())


def test_a_status_is_told_by_code_and_causes() -> None:
    status = read_status(
        raw(
            {
                "kind": "ApiStatus",
                "metadata": {},
                "status": "Failure",
                "code": 429,
                "reason": "TooManyRequests",
                "details": {
                    "causes": [{"reason": "DisruptionBudget", "message": None}],
                    "retryAfterSeconds": None,
                },
            }
        )
    )

    assert (status.code, status.details.causes) == (429, (StatusCause(reason="DisruptionBudget"),))
    assert read_status(b"Too many requests, please try again later.") == ApiStatus()
