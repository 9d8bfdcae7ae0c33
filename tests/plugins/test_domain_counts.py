"""Counts that a copy can change without touching the original."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.plugins.domain_counts import DomainCounts, PairCounts

DOMAINS = ["a", "b", "c", "d"]
changes = st.lists(st.tuples(st.sampled_from(DOMAINS), st.sampled_from([-2, -1, 1, 2])), max_size=20)
counted = st.dictionaries(st.sampled_from(DOMAINS), st.integers(0, 3))


def test_an_empty_domain_is_a_domain() -> None:
    counts = DomainCounts({"a": 2, "b": 0})

    assert len(counts) == 2
    assert counts.minimum == 0


def test_without_domains_the_minimum_is_zero() -> None:
    assert DomainCounts({}).minimum == 0


def test_a_domain_that_was_not_counted_does_not_become_one() -> None:
    counts = DomainCounts({"a": 2})

    counts.add("elsewhere", 1)

    assert counts.as_dict() == {"a": 2}
    assert counts.get("elsewhere") == 0


@given(counted, changes)
def test_the_minimum_is_exact_after_changes_in_many_domains(
    start: dict[str, int], adds: list[tuple[str, int]]
) -> None:
    counts = DomainCounts(dict(start))
    expected = dict(start)

    for domain, by in adds:
        counts.add(domain, by)
        if domain in expected:
            expected[domain] += by
        assert counts.minimum == min(expected.values(), default=0)

    assert counts.as_dict() == expected


@given(counted, changes, changes)
def test_a_clone_changes_alone(
    start: dict[str, int], before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    original = DomainCounts(dict(start))
    for domain, by in before:
        original.add(domain, by)
    seen = (original.as_dict(), original.minimum)

    copy = original.clone()
    for domain, by in after:
        copy.add(domain, by)

    assert (original.as_dict(), original.minimum) == seen
    for domain, by in reversed(after):
        copy.add(domain, -by)
    assert copy == original
    assert copy.minimum == original.minimum


@given(changes, changes)
def test_pairs_know_which_keys_have_a_count(
    first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    counts = PairCounts({("zone", "a"): 1, ("zone", "b"): 2, ("host", "c"): 1})
    expected = {("zone", "a"): 1, ("zone", "b"): 2, ("host", "c"): 1}

    for value, by in first:
        counts.add(("zone", value), by)
        expected["zone", value] = expected.get(("zone", value), 0) + by
    counts = counts.clone()
    for value, by in second:
        counts.add(("host", value), by)
        expected["host", value] = expected.get(("host", value), 0) + by

    left = {pair: count for pair, count in expected.items() if count}
    assert set(counts.keys) == {key for key, _ in left}
    assert bool(counts) == bool(left)
    assert all(counts.get(pair) == count for pair, count in expected.items())
    assert counts == PairCounts(left)
