"""How long an entity backs off, to the second."""

from __future__ import annotations

import pytest

from tidelog.api.objects import Pod
from tidelog.api.times import NANOS
from tidelog.queue.backoff import BackoffPolicy, BackoffQueue
from tidelog.queue.entity import NO_EXPIRY, QueuedGroup, QueuedPod

MS = NANOS // 1000


def pod(
    timestamp_ms: int = 0, *, rejections: int = 0, errors: int = 0, rejector: str = "Fit", number: int = 1
) -> QueuedPod:
    return QueuedPod(
        key=f"default/p{number}",
        uid=f"p{number}",
        pod=Pod(),
        profile="",
        timestamp=timestamp_ms * MS,
        order=(number,),
        unschedulable_count=rejections,
        consecutive_errors=errors,
        unschedulable_plugins=(rejector,) if rejections else (),
    )


def policy(initial: float = 1, maximum: float = 10, *, windows: bool = True) -> BackoffPolicy:
    return BackoffPolicy(round(initial * NANOS), round(maximum * NANOS), windows=windows)


@pytest.mark.parametrize(
    ("initial", "maximum", "seconds"),
    [(1, 10, [1, 2, 4, 8, 10, 10]), (3, 10, [3, 6, 10, 10]), (3, 60, [3, 6, 12, 24, 48, 60])],
)
def test_backoff_doubles_up_to_the_maximum(initial: int, maximum: int, seconds: list[int]) -> None:
    found = [policy(initial, maximum).expiry(pod(rejections=n)) // NANOS for n in range(1, len(seconds) + 1)]

    assert found == seconds


def test_a_groups_maximum_grows_with_the_root_of_its_size() -> None:
    def group(count: int, size: int = 4) -> QueuedGroup:
        members = {str(i): pod(number=i) for i in range(size)}
        return QueuedGroup(key="g", timestamp=0, members=members, unschedulable_count=count, hints=True)

    assert [policy().expiry(group(n)) // NANOS for n in range(1, 8)] == [1, 2, 4, 8, 16, 20, 20]
    assert [policy().expiry(group(9, size)) // NANOS for size in (1, 2, 3, 5)] == [10, 14, 17, 22]


def test_errors_in_a_row_count_before_rejections() -> None:
    assert policy().expiry(pod(rejections=4, errors=1)) == 1 * NANOS
    assert policy().expiry(pod(rejections=4)) == 8 * NANOS


def test_nobody_backs_off_without_a_failure_or_with_maximum_zero() -> None:
    assert policy().expiry(pod()) == NO_EXPIRY
    assert not policy().is_backing_off(pod(), 0)
    assert not policy(maximum=0).is_backing_off(pod(rejections=3), 0)


def test_a_thousand_failures_are_as_many_as_a_hundred() -> None:
    assert policy().expiry(pod(rejections=1000)) == 10 * NANOS


@pytest.mark.parametrize(
    ("failed_ms", "now_ms", "is_backing_off"),
    [
        # 0.5 s + 1 s ends in the window of 1 s, which is over at 2 s.
        (500, 1000, True),
        (500, 1999, True),
        (500, 2000, False),
        # A whole second is its own window.
        (0, 1000, True),
        (0, 1999, True),
        (0, 2000, False),
        (999, 1999, True),
        (999, 2000, False),
    ],
)
def test_windows_are_whole_seconds(failed_ms: int, now_ms: int, is_backing_off: bool) -> None:
    assert policy().is_backing_off(pod(failed_ms, rejections=1), now_ms * MS) == is_backing_off


def test_without_windows_the_end_is_exact_and_still_belongs_to_the_backoff() -> None:
    exact = policy(windows=False)
    failed = pod(500, rejections=1)

    assert exact.is_backing_off(failed, 1500 * MS)
    assert not exact.is_backing_off(failed, 1500 * MS + 1)


@pytest.mark.parametrize("windows", [True, False])
def test_free_at_is_the_first_moment_that_is_free(windows: bool) -> None:
    rules = policy(windows=windows)
    failed = pod(500, rejections=1)

    free_at = rules.free_at(rules.expiry(failed))

    assert rules.is_backing_off(failed, free_at - 1)
    assert not rules.is_backing_off(failed, free_at)


def test_expiry_is_computed_once_per_failure() -> None:
    failed = pod(rejections=1)
    first = policy().expiry(failed)
    failed.unschedulable_count = 5

    assert policy().expiry(failed) == first

    failed.fail(("Fit",), (), 0)

    assert policy().expiry(failed) == 10 * NANOS


def test_in_one_window_the_order_decides_and_errors_are_never_popped_early() -> None:
    queue = BackoffQueue(policy(), group_errors_wait=True)
    low, high = pod(300, rejections=1, number=2), pod(900, rejections=1, number=1)
    error = pod(0, errors=1, number=3)
    for entity in (low, error, high):
        queue.put(entity)

    assert queue.rejected() == [high, low]
    assert queue.errors() == [error]
    assert [queue.pop_early() for _ in range(3)] == [high, low, None]


def test_expired_are_taken_out_and_the_next_deadline_is_told() -> None:
    queue = BackoffQueue(policy(), group_errors_wait=True)
    early, late = pod(0, rejections=1, number=1), pod(0, errors=3, number=2)
    queue.put(early)
    queue.put(late)
    assert queue.next_free_at() == 2 * NANOS

    expired = queue.pop_expired(2 * NANOS)

    assert expired == [early]
    assert queue.next_free_at() == 5 * NANOS
    assert len(queue) == 1

    queue.discard(late)

    assert queue.next_free_at() is None
