"""How the example is tested: one behaviour by hand, the promises by the kit."""

from licence_seats import LABEL, NO_SEAT, SEATS, LicenceSeats

from tidelog.framework.interface import CycleState, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.testing.builders import node, pod
from tidelog.testing.plugin_kit import World, check_plugin


class Licences(World):
    """Nodes with seats, and pods that want some."""

    def node_labels(self, dice, name):
        return super().node_labels(dice, name) | {SEATS + "cad": str(dice.below(3))}

    def pod_labels(self, dice):
        licence = {LABEL: dice.pick(("cad", "cam"))} if dice.chance(60) else {}
        return super().pod_labels(dice) | licence


def test_last_seat_is_taken_once():
    seat = NodeInfo(node("n1").label({SEATS + "cad": "1"}).build())
    plugin, wanting = LicenceSeats(None, None), PodInfo(pod("b").label({LABEL: "cad"}).build())

    assert plugin.filter(CycleState(), wanting, seat) is None
    seat.add_pod(PodInfo(pod("a").label({LABEL: "cad"}).build()))
    assert plugin.filter(CycleState(), wanting, seat) == unschedulable(NO_SEAT)


def test_promises_are_kept():
    check_plugin(LicenceSeats, world=Licences())
