"""SchedulingGates: a pod with `spec.schedulingGates` stays out of the queues until the last of them is removed."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.objects import Pod
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import Plugin, PreEnqueuePlugin, Status, unresolvable

REASON = "waiting for scheduling gates: [{gates}]"


class SchedulingGates(Plugin):
    """Gates pods that name gates. Never looks at anything but the pod."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Lists the gates that are left, as a bracketed list separated by spaces."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        return unresolvable(REASON.format(gates=" ".join(gate.name for gate in gates)))

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Only the removal of the pod's own last gate; removing one of two raises no such event."""
        gates_gone = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return [EventRegistration(gates_gone, _gates_eliminated)]


def _gates_eliminated(waiting: WaitingPod, old: Pod | None, new: Pod | None) -> Hint:
    return Hint.QUEUE


_pre_enqueue: type[PreEnqueuePlugin] = SchedulingGates
