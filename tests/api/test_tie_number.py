"""The number by which ties are broken for a pod."""

from __future__ import annotations

from collections import Counter

import pytest

from tidelog.api.tie_number import MARK, STARTS, TIE, tie_of, tie_of_name
from tidelog.testing import builders as b


def test_number_is_that_of_namespace_and_name() -> None:
    assert tie_of(b.pod("web").build()) == tie_of(b.pod("web").label(app="x").build())
    assert tie_of(b.pod("web").build()) == tie_of_name("default", "web")
    assert tie_of_name("default", "web") != tie_of_name("other", "web")


def test_numbers_of_replicas_are_spread_over_all_there_are() -> None:
    found = Counter(tie_of_name("default", f"web-{i}") * 16 // STARTS for i in range(1600))

    assert len(found) == 16
    assert max(found.values()) < 150


def test_annotation_tells_another_number() -> None:
    assert tie_of(b.pod("x0017").annotate({TIE: "813"}).build()) == 813


@pytest.mark.parametrize("text", ["", "-1", "8e2", "12345", "٣"])
def test_annotation_that_is_no_number_is_ignored(text: str) -> None:
    assert tie_of(b.pod("web").annotate({TIE: text}).build()) == tie_of_name("default", "web")


def test_pods_to_come_have_numbers_of_their_own() -> None:
    like = b.pod("web").annotate({TIE: "5"}).build()
    found = {tie_of(b.pod(f"web{MARK}{i}").annotate({TIE: "5"}).build()) for i in range(1, 40)}

    assert len(found) == 39
    assert tie_of(like) not in found
