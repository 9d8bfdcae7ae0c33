"""GangScheduling: a gang's pods stay out of the queue until enough of them are known.

By default the queue's own rule for groups does that, once for a group and not once for each pod, and names this plugin as the
one that holds the gang back. In `compat: upstream` the plugin's PreEnqueue does it, as in kube-scheduler.
"""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import Plugin, PreEnqueuePlugin, Status, unresolvable
from tidelog.plugins.placement.topology import spec_changed

WAITING = "waiting for minCount pods from a gang to appear in scheduling queue"


class GangScheduling(Plugin):
    """Gates the pods of incomplete gangs."""

    name = "GangScheduling"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if not self.handle.upstream:
            return None
        gang = self.handle.listers.gang_of(pod)
        if gang is None:
            return None
        needed, known = gang
        return None if known >= needed else unresolvable(WAITING)

    def events_to_register(self) -> list[EventRegistration]:
        """One more member, or other rules for the gang."""
        member = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
        return [
            EventRegistration(member, _same_gang),
            EventRegistration(ClusterEvent(Resource.POD_GROUP, Action.ADD | Action.UPDATE), spec_changed),
            EventRegistration(ClusterEvent(Resource.WORKLOAD, Action.ADD | Action.UPDATE), spec_changed),
        ]


def _same_gang(waiting: WaitingPod, old: Pod | None, new: Pod) -> Hint:
    mine, its = waiting.pod.spec, new.spec
    same = mine.scheduling_group == its.scheduling_group and mine.workload_ref == its.workload_ref
    return Hint.QUEUE if same and waiting.pod.metadata.namespace == new.metadata.namespace else Hint.SKIP


_gate: type[PreEnqueuePlugin] = GangScheduling
