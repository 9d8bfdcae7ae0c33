"""A plugin for simulated stories that makes pods wait with their resources reserved, so that there are waits for a crash to fall into."""

from __future__ import annotations

from typing import Any

from tidelog.framework.events import TIME, Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry

SLOW = "slow"
"""The label of the pods that it is about."""
MINUTE = 60_000_000_000
_LABELLED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)


class SlowPermit(Plugin):
    """Lets pods labelled `slow` wait for seven seconds in even minutes, in vain; in odd minutes it lets them pass."""

    name = "SlowPermit"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        if SLOW in pod.labels and state.at // MINUTE % 2 == 0:
            return PermitResult(Status(Code.WAIT), 7)
        return PermitResult()

    def events_to_register(self) -> list[EventRegistration]:
        """Time and the label are all that it looks at."""
        return [EventRegistration(TIME, _always), EventRegistration(_LABELLED, _always)]


def _always(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.QUEUE


def registry() -> Registry:
    """The plugins of every simulated scheduler."""
    return Registry((*IN_TREE, SlowPermit))
