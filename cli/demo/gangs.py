"""The demo's chapter on gangs (KEP-5732): two trainings of eight pods, and racks with different amounts of free room.

One goes whole into the tightest rack that takes it. The other finds no rack, waits whole, and the log says why, rack by rack, until a node
joins one of them. The log is one in memory, with a clock that is moved by hand; what is printed is read from it, and it is
verified at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.api.objects import Node, Pod, PodGroup, pod_condition
from tidelog.api.times import NANOS
from tidelog.api.well_known import RACK
from tidelog.configuration.configuration import SchedulerConfiguration, default_configuration
from tidelog.eventlog.records import (
    Body,
    PlacementChosen,
    Record,
    Unschedulable,
    decode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START, Driver
from tidelog.replay.verify import verify
from tidelog.testing import builders as b

Say = Callable[[str], None]

PODS = 8
FREE = {"r1": ("4", "4"), "r2": ("6", "6"), "r3": ("5", "5", "7"), "r4": ("2", "2", "2")}
"""Rack → free CPUs of each of its nodes."""


def tell(say: Say = print) -> None:
    """The chapter."""
    driver = Driver()
    driver.start(_configuration())
    driver.put(*_racks(), _gang("alpha"), _gang("beta"))
    say("")
    say(
        f"  Two trainings of {PODS} pods: alpha's need one CPU each, beta's two. Both ask for one rack ({RACK})."
    )
    say(f"  {_free_room()}. A node without the label has 64.")
    driver.put(*_pods("alpha", "1"))
    driver.settle()
    driver.put(*_pods("beta", "2"))
    driver.advance(seconds=20)
    _print_story(driver, 0, say)
    say("\n  Why does beta-0 wait?\n")
    for line in why_pending(driver, "beta"):
        say(f"    {line}")
    say("\n  A node joins rack r2:")
    seen = len(driver.records)
    driver.put(_node("r2-3", "r2", "6"))
    driver.advance(seconds=20)
    _print_story(driver, seen, say)
    report = verify(driver.records, driver.registry)
    assert report.is_identical, "the demo's log does not verify"
    say(
        f"\n  The log holds {len(driver.records)} records; made once more, all {report.outcomes} outcomes are the same, and at none "
        "of them is a part of a training bound."
    )


def _configuration() -> SchedulerConfiguration:
    gates = {"TopologyAwareWorkloadScheduling": True}
    return default_configuration(Registry(), gates)


def _racks() -> Iterator[Node]:
    for rack, nodes in FREE.items():
        for number, cpu in enumerate(nodes, 1):
            yield _node(f"{rack}-{number}", rack, cpu)
    yield b.node("bare").capacity(cpu="64").build()


def _node(name: str, rack: str, cpu: str) -> Node:
    return b.node(name).label({RACK: rack}).capacity(cpu=cpu).build()


def _free_room() -> str:
    return "Racks and what is free: " + ", ".join(
        f"{rack} {sum(map(int, nodes))} CPUs on {len(nodes)} nodes" for rack, nodes in FREE.items()
    )


def _gang(name: str) -> PodGroup:
    return b.pod_group(name, min_count=PODS, level=RACK)


def _pods(name: str, cpu: str) -> list[Pod]:
    return [
        b.pod(f"{name}-{i}").group(name).request(cpu=cpu).scheduler("default-scheduler").build()
        for i in range(PODS)
    ]


# --- reading the log ----------------------------------------------------------------------------------------------------


def why_pending(driver: Driver, group: str) -> Iterator[str]:
    """The explanation of the group's last rejection for each placement, and the messages of its pods."""
    key = f"PodGroup/default/{group}"
    bodies = [decode_body(record) for record in driver.records if record.key == key]
    found = [body for body in bodies if isinstance(body, Unschedulable) and not body.same_as]
    if found:
        yield from map(_rack, found[-1].explanation)
        condition = pod_condition(driver.pod(f"{group}-0"), "PodScheduled")
        if condition is not None:
            yield f"its status: {condition.reason}, as that of all {len(found[-1].members)}"


def _print_story(driver: Driver, seen: int, say: Say) -> None:
    say("")
    for record in driver.records[seen:]:
        for line in _lines(record, decode_body(record)):
            say(f"  {(record.at - START) / NANOS:6.1f} s  {line}")


def _lines(record: Record, body: Body) -> Iterator[str]:
    name = record.key.rpartition("/")[2]
    match body:
        case PlacementChosen():
            nodes = ", ".join(sorted(set(body.assignment.values())))
            yield f"{name} ─► {_rack(body.placement)}: all {len(body.assignment)} pods, on {nodes}"
            for placement, scores in sorted(body.scores.items()):
                points = ", ".join(f"{plugin} {score:.1f}" for plugin, score in scores.items())
                yield f"    {_rack(placement)}: {points}"
            yield from (f"    {_rack(line)}" for line in body.explanation if "score" not in line)
        case Unschedulable() if not body.same_as and body.members:
            yield f"{name} waits whole: none of its {len(body.members)} pods is bound"
        case _:
            return


def _rack(text: str) -> str:
    """Without the label's long key."""
    return text.removeprefix(f"{RACK}=")
