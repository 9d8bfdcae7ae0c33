"""The states in which a decision may have been made, the likeliest first.

A decision is judged just before the record in which it shows; if that does not explain it, with the bindings that follow put in one by one;
then on ever older states, each with the bindings that follow it. The order of bindings is not the order of decisions, so most of what is
found beyond the first state is found with pods assumed. Last, facts of other kinds count that show a moment later: a scheduler has watches of
its own, and what they bring is in order for each kind only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.api.objects import Pod
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.replay.shadow.world import BACK_TIME, ShadowStep, ShadowWorld
from tidelog.scheduler.cluster import wants_node
from tidelog.scheduler.groups.group import group_name

VIEWS_MAX = 400
"""So many states are tried for one decision, …"""
EARLY_MAX = 8
EARLY_VIEWS_MAX = 60
"""… and then so many with each of the first facts of other kinds that show after it."""

T = TypeVar("T")


class SearchView(NamedTuple):
    """A state."""

    seq: int
    """The last record that it holds."""
    at: int
    back: int
    """How many records that matter are undone in it."""
    ahead: int
    """How many pods are assumed in it whose bindings show later."""
    early: int = 0
    """How many facts of other kinds are in it that show later."""

    @property
    def text(self) -> str:
        """Empty for the state just before the record."""
        parts = []
        if self.back:
            parts.append(f"after record {self.seq}")
        if self.ahead:
            parts.append(f"{self.ahead} assumed")
        if self.early:
            parts.append(f"{self.early} later facts")
        return ", ".join(parts)


class Sought(NamedTuple):
    """The pod that the decision is about."""

    uids: frozenset[str]
    """Of the pods that were decided about: they are never assumed."""
    at: int
    is_over: Callable[[ShadowStep], bool]
    """Whether the decision cannot have been made before this record."""
    group: str = ""
    """The group whose members were decided about together, but one after the other."""


def first(world: ShadowWorld, sought: Sought, look: Callable[[SearchView], T | None]) -> T | None:
    """Return what `look` finds in the first state where it finds something. The world comes back to where it was."""
    found = _from_here(world, sought, look, VIEWS_MAX, 0)
    if found is not None:
        return found
    early = 0
    try:
        for entry in world.early_facts(sought.at):
            if early < EARLY_MAX and world.bring_forward(entry):
                early += 1
                found = _from_here(world, sought, look, EARLY_VIEWS_MAX, early)
                if found is not None:
                    return found
        return None
    finally:
        world.give_back()


def _from_here(
    world: ShadowWorld, sought: Sought, look: Callable[[SearchView], T | None], views_max: int, early: int
) -> T | None:
    """The state as it is, then with pods assumed, then ever older ones."""
    tried = back = 0
    assumes_more = True
    try:
        while tried < views_max:
            seq, at = world.seq, world.at if back else sought.at
            world.refresh()
            found = look(SearchView(seq, at, back, 0, early))
            tried += 1
            if found is None and assumes_more:
                for line in _lines(world, sought):
                    world.refresh()
                    for ahead, (pod, node) in enumerate(line, 1):
                        if tried < views_max and world.assume(pod, node):
                            found = look(SearchView(seq, at, back, ahead, early))
                            tried += 1
                        if found is not None:
                            return found
            if found is not None:
                return found
            world.release()
            step = _step_back(world, sought)
            if step is None:
                return None
            back += 1
            # One record less and its pod assumed again is the state before.
            bound = step.binds
            assumes_more = bound is None or (bool(sought.group) and group_name(bound) == sought.group)
        return None
    finally:
        world.release()
        world.forth()


def _step_back(world: ShadowWorld, sought: Sought) -> ShadowStep | None:
    """Undo records until one that matters; None when no older state can have been meant."""
    while True:
        step = world.back()
        if step is None or sought.at - step.entry.record.at > BACK_TIME or sought.is_over(step):
            return None
        if step.matters:
            return step


def _lines(world: ShadowWorld, sought: Sought) -> list[Sequence[tuple[PodInfo, str]]]:
    """In which orders pods may have been assumed: as their bindings show; the fellows of a group as they are tried."""
    following = world.following_bindings(sought.uids)
    if not sought.group:
        return [following]
    order = {pod_uid(pod): place for place, pod in enumerate(world.cluster.groups.members(sought.group))}
    fellows = sorted((one for one in following if one[0].uid in order), key=lambda one: order[one[0].uid])
    return [fellows, following] if fellows and fellows != following else [following]


def is_pending(pod: Pod | None) -> bool:
    """Whether the pod can have been decided about."""
    return pod is not None and wants_node(pod) and not pod.spec.scheduling_gates
