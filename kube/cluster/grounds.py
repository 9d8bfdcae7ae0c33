"""The facts that decisions stand on which are not sent yet: looked at once more before a binding goes out.

Between the decision's record and its request the cluster goes on. The commit check keeps its notes for that time, and is asked again; the
bindings of a group are asked about together before the first of them is sent.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.api.objects import Node
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision, Relies


class _Ground(NamedTuple):
    attempt: int
    observed: int
    relies: tuple[Relies, ...]


class Grounds:
    """Of all bindings that are not sent."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._of_pod: dict[str, _Ground] = {}
        """Uid → what its binding stands on, until it is sent."""
        self._members: dict[int, list[str]] = {}
        """A group's attempt → the uids of its members whose bindings are not sent."""

    def decided(self, decision: Decision) -> None:
        """This decision is about to be in the log."""
        ground = _Ground(decision.attempt, decision.observed, decision.relies)
        placed = [relies for relies in decision.relies if relies.node]
        if not placed or all(relies.victims for relies in placed):
            return
        for relies in placed:
            self._of_pod[relies.pod_uid] = ground
        if len(placed) > 1:
            self._members[decision.attempt] = [relies.pod_uid for relies in placed]
        self._core.hold_notes(decision.attempt)

    def gone(self, uid: str, node: str) -> str:
        """Ask the commit check's question once more, with all that has come since: why the pod must not be bound to the node, or nothing."""
        ground = self._of_pod.get(uid)
        if ground is None:
            # Decided before a restart: nobody knows what it stood on, but the node should still take pods.
            found = self._core.objects.get(f"Node//{node}")
            if not isinstance(found, Node):
                return f"node {node} is gone"
            return f"node {node} was cordoned" if found.spec.unschedulable else ""
        as_group = uid in self._members.get(ground.attempt, ())
        for relies in ground.relies:
            if as_group or relies.pod_uid == uid:
                disturbed = self._core.disturbed(relies, ground.observed)
                if disturbed is not None:
                    return f"{disturbed.reason} (record {disturbed.seq})"
        # The group is on its way: from here on each of its members is looked at by itself.
        self._members.pop(ground.attempt, None)
        return ""

    def release(self, uid: str) -> None:
        """Its binding is sent, or not coming."""
        ground = self._of_pod.pop(uid, None)
        if ground is None:
            return
        members = self._members.get(ground.attempt)
        if members is not None:
            if uid in members:
                members.remove(uid)
            if members:
                return
            del self._members[ground.attempt]
        self._core.release_notes(ground.attempt)
