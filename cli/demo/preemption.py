"""The demo's chapter on preemption that keeps its promises (KEP-4664), with a disruption controller and node agents to talk to.

Three brokers, of which three have to be there, and a rollout that is more important than they are: twice the same, with a priority below
the brokers' threshold and with one that reaches it. Then a fourth broker, which is more than the budget asks for. Each scene has a log of its own
in memory, and a clock that is moved by hand. What is printed is read from that log, which is verified at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Pod, PodDisruptionBudget
from tidelog.api.times import NANOS
from tidelog.cli.demo.spread import Stage
from tidelog.configuration.configuration import SchedulerConfiguration, default_configuration
from tidelog.daemon.actors.disruption_controller import DisruptionController
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.eventlog.records import (
    Body,
    Evicted,
    EvictionRefused,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    Record,
    Scheduled,
    Unschedulable,
    decode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import START
from tidelog.testing import builders as b

Say = Callable[[str], None]

THRESHOLD = 1000


def tell(say: Say = print) -> None:
    """The three scenes."""
    scenes: tuple[tuple[str, int, int], ...] = (
        (f"A rollout of priority 500, below the brokers' threshold of {THRESHOLD}", 3, 500),
        (f"The same rollout, with priority {THRESHOLD}", 3, THRESHOLD),
        ("Priority 500 again, and a fourth broker that the budget can spare", 4, 500),
    )
    say("")
    say(
        "  A node each for the brokers, and a PodDisruptionBudget that wants three of them. Their priority class says"
    )
    say(
        f"  allowDisruptionByPriorityGreaterThanOrEqual: {THRESHOLD}. Then comes a pod that needs a whole node."
    )
    for title, brokers, priority in scenes:
        say(f"\n{title}\n")
        stage = scene(brokers, priority)
        _print_story(stage, say)
        stage.prove(say)


def scene(brokers: int, priority: int) -> Stage:
    """Play the scene with so many brokers and a rollout of this priority."""
    stage = Stage(_configuration(), [DisruptionController(), NodeAgent()])
    stage.put(*(b.node(f"n{i}").capacity(cpu="2") for i in range(1, brokers + 1)))
    stage.put(*(_broker(i) for i in range(1, brokers + 1)), b.pdb("brokers", "app=broker", min_available=3))
    stage.play(10)
    stage.put(b.pod("rollout").request(cpu="2").priority(priority).scheduler("default-scheduler"))
    stage.play(60)
    return stage


def _configuration() -> SchedulerConfiguration:
    gates = FeatureGates(disruption_policy_in_priority_class=True)
    return replace(default_configuration(Registry()), feature_gates=gates)


def _broker(number: int) -> b.PodBuilder:
    made = b.pod(f"broker-{number}").label(app="broker").request(cpu="2").priority(100)
    return made.guarded_below(THRESHOLD).scheduler("default-scheduler")


# --- reading the log ----------------------------------------------------------------------------------------------------


def _print_story(stage: Stage, say: Say) -> None:
    for record in stage.driver.records:
        line = _line(record, decode_body(record))
        if line:
            say(f"  {(record.at - START) / NANOS:6.1f} s  {line}")
    placed = [key.partition("/")[2] for key in stage.driver.placements()]
    say(f"\n  At the end there run: {', '.join(sorted(placed))}.")


def _line(record: Record, body: Body) -> str:
    name = record.key.rpartition("/")[2]
    match body:
        case Scheduled():
            return f"{name} ─► {body.node}"
        case Unschedulable() if not body.same_as:
            return f"{name} finds no node: {body.message}"
        case Nominated() if body.node:
            return f"{name} is to get the room on {body.node}"
        case Evicted():
            how = "evicted" if body.method == "evict" else "deleted"
            return f"{name} is {how}, to make room for {body.preemptor.rpartition('/')[2]}"
        case EvictionRefused():
            return body.message
        case ObjectPut() if isinstance(body.object, PodDisruptionBudget) and record.author != "cluster":
            status = body.object.status
            return (
                f"{record.author}: {status.current_healthy} healthy of {status.desired_healthy} wanted, "
                f"{status.disruptions_allowed} may be disrupted"
            )
        case ObjectDeleted() if record.key.startswith("Pod/"):
            return f"{record.author}: {name} has ended"
        case ObjectPut() if isinstance(body.object, Pod) and record.author == "cluster" and name == "rollout":
            return f"{name} comes, with priority {body.object.spec.priority}"
        case _:
            return ""
