"""A preemption that is decided and never comes: between its decision and the record that calls it off, all that others do is in the log already.

A scheduler that comes back from that log has to stand, record by record, where the one stood that wrote it.
"""

from __future__ import annotations

from tests.worlds.objects import node
from tests.worlds.preemption import PluginWorld, World, pending, running
from tidelog.api.times import NANOS
from tidelog.eventlog.records import AttemptAborted
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo


class Hold(Plugin):
    """Lets pods labelled `hold` wait for five seconds, in vain."""

    name = "Hold"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 5) if "hold" in pod.labels else PermitResult()


def aborted(world: World) -> list[str]:
    return [name for name, _ in world.bodies(AttemptAborted)]


def test_pod_that_takes_the_name_of_a_preemptor_in_flight_does_not_wait_for_its_victims() -> None:
    world = World()
    world.add(node("n1"), running("low", "n1", cpu="3"), pending("high", cpu="3", priority=10))
    world.attempt()

    world.delete(world.pod("high"))
    world.add(pending("high", cpu="3", priority=10).uid("another"))
    world.commit()
    world.settle()

    assert aborted(world) == ["high"]
    assert (world.nominated("high"), world.evicted()) == ("n1", ["low"])
    world.check()


def test_successor_of_a_preemptor_in_flight_is_tried_beside_it() -> None:
    """Both preemptions are under way at once, for pods of one name."""
    world = World()
    world.add(node("n1"), node("n2"), running("low-1", "n1", cpu="3"), running("low-2", "n2", cpu="3"))
    world.add(pending("high", cpu="3", priority=10))
    world.attempt()
    world.delete(world.pod("high"))
    world.add(pending("high", cpu="3", priority=10).uid("another"))

    assert world.attempt() is not None
    world.commit()
    world.settle()

    assert len(world.evicted()) == 1
    assert world.nominated("high") != ""
    world.check()


def test_victim_that_waited_for_a_permit_waits_on_until_the_preemption_is_called_off() -> None:
    world = PluginWorld(Hold)
    world.add(node("n1"), pending("low", cpu="3", hold="yes"))
    world.settle()
    world.add(pending("high", cpu="3", priority=10))
    world.attempt()

    world.now += 6 * NANOS
    world.add(pending("small", cpu="1", priority=5))
    world.attempt()
    world.delete(world.pod("high"))
    world.commit()
    world.settle()

    # Its five seconds are over, but nothing is done about that before it is known that it stays.
    assert aborted(world)[0] == "high"
    assert world.evicted() == []
    world.check()
