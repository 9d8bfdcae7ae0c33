"""Field selectors."""

from __future__ import annotations

import pytest

from tidelog.kube.selectors import FieldSelectorError, field_matcher, parse_field_selector, value_in

POD = {
    "metadata": {"name": "a,b"},
    "spec": {"nodeName": "n1", "hostNetwork": True},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("status.phase=Running,spec.nodeName=n2", False),
        (r"metadata.name=a\,b", True),
        ("spec.hostNetwork=true", True),
        ("status.nominatedNodeName=", True),
        (" spec.nodeName = n1 ", True),
    ],
)
def test_selector_matches(text: str, expected: bool) -> None:
    match = field_matcher(parse_field_selector(text, "Pod"), value_in)

    assert match is not None
    assert match(POD) is expected


def test_empty_selector_asks_for_nothing() -> None:
    assert field_matcher(parse_field_selector("", "Pod"), value_in) is None


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("spec.foo=1", "Pod", "field label not supported: spec.foo"),
        ("spec.nodeName=n1", "Node", "field label not supported"),
        ("spec.nodeName", "Pod", "invalid selector"),
        ("=x", "Pod", "invalid selector"),
        ("x" * 5000, "Pod", "at most 4096"),
    ],
)
def test_selector_that_is_none(text: str, kind: str, why: str) -> None:
    with pytest.raises(FieldSelectorError, match=why):
        parse_field_selector(text, kind)
