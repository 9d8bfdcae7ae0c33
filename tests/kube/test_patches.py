"""The three kinds of patches, as Kubernetes applies them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.writes import merged
from tidelog.kube.patches import PatchError, json_patched, strategically_merged

CONDITIONS = [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        # RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    assert merged(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"conditions": CONDITIONS}, {"conditions": [{"type": "B", "status": "3"}]}, {"conditions": [CONDITIONS[0], {"type": "B", "status": "3"}]}),
        ({"conditions": CONDITIONS}, {"conditions": [{"type": "C"}]}, {"conditions": [{"type": "C"}, *CONDITIONS]}),
        ({"conditions": CONDITIONS}, {"conditions": [{"$patch": "delete", "type": "A"}]}, {"conditions": CONDITIONS[1:]}),
        ({"conditions": CONDITIONS}, {"conditions": [{"$patch": "replace"}, {"type": "Z"}]}, {"conditions": [{"type": "Z"}]}),
        ({"conditions": CONDITIONS}, {"conditions": [{"$patch": "replace"}]}, {"conditions": []}),
        (
            {"conditions": CONDITIONS},
            {"conditions": [{"type": "B", "x": 1}], "$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]},
            {"conditions": [{"type": "B", "status": "2", "x": 1}, CONDITIONS[0]]},
        ),
        ({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}, {"containers": [{"name": "c", "ports": [{"containerPort": 1, "name": "p"}]}]}, {"containers": [{"name": "c", "ports": [{"containerPort": 1, "name": "p"}]}]}),
        ({"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 2}, {"port": 1}]}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        ({"conditions": CONDITIONS}, {"conditions": []}, {"conditions": CONDITIONS}),
    ],
)  # fmt: skip
def test_strategic_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    before = repr(target)

    assert strategically_merged(target, patch) == expected
    assert repr(target) == before


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"conditions": [{"status": "1", "x": 2}]}, "does not contain declared merge key: type"),
        ({"$patch": "explode"}, "unknown patch directive"),
        ([], "must be an object"),
    ],
)
def test_strategic_merge_patch_that_is_none(patch: Any, why: str) -> None:
    with pytest.raises(PatchError, match=why):
        strategically_merged({"conditions": CONDITIONS}, patch)


def test_json_patch() -> None:
    target = {"a": [1, 2], "b": {"c": 3}}

    found = json_patched(
        target,
        [
            {"op": "test", "path": "/b/c", "value": 3},
            {"op": "add", "path": "/a/-", "value": 4},
            {"op": "move", "from": "/b/c", "path": "/d"},
            {"op": "remove", "path": "/a/0"},
        ],
    )

    assert found == {"a": [2, 4], "b": {}, "d": 3}
    assert target == {"a": [1, 2], "b": {"c": 3}}


@pytest.mark.parametrize(
    "operations",
    [
        {},
        [3],
        [{"op": "remove", "path": "/x"}],
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "replace", "path": "", "value": 3}],
        [{"op": "explode", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add"}],
        [{"op": "test", "path": "/a", "value": 1}] * 10_001,
    ],
)
def test_json_patch_that_is_none(operations: Any) -> None:
    with pytest.raises(PatchError):
        json_patched({"a": 1}, operations)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$patch",
                    "$retainKeys",
                    "conditions",
                    "type",
                    "finalizers",
                    "$setElementOrder/conditions",
                    "a",
                ]
            ),
            inner | st.sampled_from(["delete", "replace", "merge"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["conditions", "finalizers", "a", "ports"]), anything), anything)
def test_any_patch_gives_an_object_or_says_why_not(target: dict[str, Any], patch: Any) -> None:
    for apply in (strategically_merged, json_patched):
        with contextlib.suppress(PatchError):
            assert isinstance(apply(target, patch), dict)
    merged(target, patch)
