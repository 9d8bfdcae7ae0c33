"""Pods labelled `licence: <product>` take one of the seats that a node's label `seats.example.com/<product>` promises."""

from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource
from tidelog.framework.interface import Depends, Plugin, unschedulable

LABEL, SEATS = "licence", "seats.example.com/"
NO_SEAT = "node(s) had no free licence seat"


class LicenceSeats(Plugin):
    name = "LicenceSeats"
    filter_depends = Depends.NODE | Depends.OCCUPANTS

    def filter(self, state, pod, node):
        product = pod.labels.get(LABEL)
        if product is None:
            return None
        taken = sum(other.labels.get(LABEL) == product for other in node.pods.values())
        seats = int(node.labels.get(SEATS + product, 0))
        return None if taken < seats else unschedulable(NO_SEAT)

    def events_to_register(self):
        pods = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_LABEL)
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        own_label = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
        return [
            EventRegistration(pods, seat_given_back),
            EventRegistration(nodes),
            EventRegistration(own_label),
        ]


def seat_given_back(waiting, old, new):
    product = waiting.pod.metadata.labels.get(LABEL)
    return Hint.QUEUE if old.metadata.labels.get(LABEL) == product else Hint.SKIP
