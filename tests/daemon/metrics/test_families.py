"""Counting is exact, a reading stays as it is, and the text is what Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidelog.daemon.metrics.families import (
    SECONDS,
    Description,
    Distribution,
    Gauge,
    Reading,
    Recorded,
    counter_family,
    exponential,
    families,
    histogram_family,
    number,
    text_lines,
)

BUCKETS = exponential(0.00001, 1.5, 20)
HOSTILE = 'a"b\\c\nd\x1b[2J\u202e\x7f\ud800'


def latency(*labels: str, buckets: tuple[float, ...] = BUCKETS) -> Recorded[Distribution]:
    return histogram_family(
        Description(
            name="x_seconds", kind="histogram", help="X.", labels=labels, buckets=buckets, unit=SECONDS
        )
    )


def parsed(*readings: Reading) -> list[Metric]:
    return list(text_string_to_metric_families("".join(text_lines(readings))))


def values(*readings: Reading) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for m in parsed(*readings) for s in m.samples}


def test_bounds_print_as_kube_scheduler_prints_them() -> None:
    assert [number(bound) for bound in BUCKETS[:4]] == [
        "1e-05",
        "1.5000000000000002e-05",
        "2.2500000000000005e-05",
        "3.375000000000001e-05",
    ]
    assert [number(bound) for bound in exponential(1, 2, 5)] == ["1", "2", "4", "8", "16"]
    assert number(exponential(0.001, 2, 15)[-1]) == "16.384"


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (3.0, "3"), (0.5, "0.5"), (1e-7, "1e-07"), (float("inf"), "+Inf"), (float("nan"), "NaN")],
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str) -> None:
    assert number(value) == text


def test_observation_on_a_bound_belongs_to_its_bucket() -> None:
    family = latency(buckets=(0.001, 0.002))
    child = family.labels()

    for nanoseconds in (0, 1_000_000, 1_000_001, 2_000_000, 2_000_001):
        child.observe(nanoseconds)

    assert child.read() == ([2, 2, 1], 6_000_002)


@given(st.lists(st.integers(0, 10**11)))
def test_counts_agree_with_comparing_seconds(nanoseconds: list[int]) -> None:
    family = latency()
    child = family.labels()

    for each in nanoseconds:
        child.observe(each)

    expected = [0] * (len(BUCKETS) + 1)
    for each in nanoseconds:
        expected[bisect_left(BUCKETS, each / 1e9)] += 1
    found = values(family.read())
    bounds = [*map(number, BUCKETS), "+Inf"]
    assert [found["x_seconds_bucket", (("le", bound),)] for bound in bounds] == list(accumulate(expected))
    assert found["x_seconds_count", ()] == len(nanoseconds)
    assert found["x_seconds_sum", ()] == sum(nanoseconds) / 1e9


def test_same_labels_give_the_same_child() -> None:
    family = latency("a", "b")

    assert family.labels("1", "2") is family.labels("1", "2")
    assert family.labels("1", "2") is not family.labels("2", "1")


@pytest.mark.parametrize("given_labels", [(), ("1",), ("1", "2", "3")])
def test_wrong_number_of_labels_is_our_mistake(given_labels: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="x_seconds"):
        latency("a", "b").labels(*given_labels)


def test_reading_stays_as_it_was() -> None:
    counter = counter_family(Description(name="x_total", kind="counter", help="X.", labels=("a",)))
    histogram = latency()
    counter.labels("1").inc()
    histogram.labels().observe(1)
    readings = [counter.read(), histogram.read()]
    before = values(*readings)

    counter.labels("1").inc(5)
    counter.labels("2").inc()
    histogram.labels().observe(1)

    assert values(*readings) == before
    assert values(counter.read())["x_total", (("a", "1"),)] == 6


def test_gauge_is_computed_when_it_is_read_and_comes_down_to_zero() -> None:
    sizes = {("active",): 3.0}
    gauge = Gauge(
        Description(name="x", kind="gauge", help="X.", labels=("queue",)),
        lambda: sizes,
        always=[("gated",)],
    )

    first = values(gauge.read())
    sizes = {("backoff",): 2.5}
    second = values(gauge.read())

    assert first == {("x", (("queue", "gated"),)): 0, ("x", (("queue", "active"),)): 3}
    assert second == {
        ("x", (("queue", "gated"),)): 0,
        ("x", (("queue", "active"),)): 0,
        ("x", (("queue", "backoff"),)): 2.5,
    }


def test_gauge_that_forgets_shows_only_what_there_is() -> None:
    sizes = {("a",): 1.0}
    description = Description(name="x", kind="gauge", help="X.", labels=("gate",))
    gauge = Gauge(description, lambda: sizes, forget=True)
    gauge.read()

    sizes = {("b",): 1.0}

    assert values(gauge.read()) == {("x", (("gate", "b"),)): 1}


def test_hostile_labels_arrive_as_printable_text() -> None:
    family = counter_family(Description(name="x_total", kind="counter", help="X.", labels=("a",)))
    family.labels(HOSTILE).inc()

    text = "".join(text_lines([family.read()]))

    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == 3
    ((_, labels),) = values(family.read())
    assert labels == (("a", r'a"b\c\nd\x1b[2J\u202e\x7f\ud800'),)


label_values = st.text(max_size=8)


@given(
    st.dictionaries(st.tuples(label_values, label_values), st.integers(0, 10**12), max_size=5),
    st.lists(st.tuples(label_values, st.integers(0, 10**10)), max_size=10),
    st.floats(-1e9, 1e9),
)
def test_text_says_what_prometheus_clients_own_writer_says(
    counts: dict[tuple[str, str], int], observations: list[tuple[str, int]], size: float
) -> None:
    counter = counter_family(Description(name="x_total", kind="counter", help="A \\ b", labels=("a", "b")))
    for labels, count in counts.items():
        counter.labels(*labels).inc(count)
    histogram = latency("a")
    for label, observed in observations:
        histogram.labels(label).observe(observed)
    gauge = Gauge(Description(name="y", kind="gauge", help="Y."), lambda: {(): size})
    readings = [counter.read(), histogram.read(), gauge.read()]

    class Theirs:
        def collect(self) -> list[Metric]:
            return list(families(readings))

    # Series whose labels look the same once they are made printable would be listed twice by both.
    theirs = list(text_string_to_metric_families(generate_latest(Theirs()).decode()))
    ours = parsed(*readings)

    def plain(metrics: list[Metric]) -> list[tuple[object, ...]]:
        return [
            (
                m.name,
                m.type,
                m.documentation,
                sorted((s.name, sorted(s.labels.items()), s.value) for s in m.samples),
            )
            for m in metrics
        ]

    assert plain(ours) == plain(theirs)
