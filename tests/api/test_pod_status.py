"""What the scheduler's decisions do to pods: each change is made once for the two who fold the log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.api import pod_status
from tidelog.api.objects import Pod
from tidelog.api.pod_status import bound_to, rejected
from tidelog.api.times import NANOS
from tidelog.daemon.process.runtime import Limits
from tidelog.testing.builders import pod

WEB = pod("web").build()


def test_second_one_who_asks_gets_the_same_object() -> None:
    first = bound_to(WEB, "n1", 5)

    assert bound_to(WEB, "n1", 5) is first
    assert bound_to(WEB, "n1", 5) == first


def test_another_change_of_the_same_pod_is_another_one() -> None:
    bound_to(WEB, "n1", 5)

    assert bound_to(WEB, "n2", 5).spec.node_name == "n2"
    assert rejected(WEB, "no room", 5).status.conditions[0].message == "no room"
    assert (
        rejected(WEB, "no room", 5, reason="SchedulerError").status.conditions[0].reason == "SchedulerError"
    )


def test_equal_pods_are_changed_each_for_itself() -> None:
    again = pod("web").build()
    first = bound_to(WEB, "n1", 5)

    found = bound_to(again, "n1", 5)

    assert found == first
    assert found is not first
    assert found.metadata is again.metadata


def test_what_nobody_asks_for_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_status, "SHARED", 2)
    calls: list[str] = []

    @pod_status._shared
    def seen(pod: Pod) -> Pod:
        calls.append(pod.metadata.name)
        return replace(pod)

    a, b, c = (pod(name).build() for name in "abc")
    for one in (a, b, c, a):
        seen(one)

    assert calls == ["a", "b", "c", "a"]


def test_second_one_may_be_as_far_behind_as_the_table_for_admission() -> None:
    """Else half of the pods would be made twice, and kept twice, while it catches up."""
    earlier = [bound_to(pod(f"old-{i}").build(), "n1", 5) for i in range(pod_status.SHARED + 1)]
    pods = [pod(f"web-{i}").build() for i in range(8 * Limits().uncommitted)]

    first = [bound_to(one, "n1", 5) for one in pods]

    assert earlier
    assert all(bound_to(one, "n1", 5) is known for one, known in zip(pods, first, strict=True))


def test_pods_that_are_placed_together_share_their_condition() -> None:
    first, second = (bound_to(pod(name).build(), "n1", 5) for name in ("a", "b"))

    assert first.status.conditions is second.status.conditions
    assert bound_to(pod("c").build(), "n1", 2 * NANOS).status.conditions != first.status.conditions
