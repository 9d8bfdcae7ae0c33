"""The demo's chapter on volumes: a StatefulSet whose volumes pin it to zones, with a volume controller to answer.

One scene on a log of its own, on a clock that is moved by hand; what is printed is read from that log, which is verified at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.api.objects import Pod
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.times import NANOS
from tidelog.api.volumes import claim_uses
from tidelog.api.well_known import ZONE
from tidelog.cli.demo.spread import Stage, configuration
from tidelog.daemon.actors.volume_controller import VolumeController, VolumeControllerSettings
from tidelog.eventlog.records import Body, ObjectPut, Record, Reserved, Scheduled, Unschedulable, decode_body
from tidelog.replay.driver import START
from tidelog.testing import builders as b
from tidelog.testing import storage as s

Say = Callable[[str], None]


def tell(say: Say = print) -> None:
    """The scene."""
    say("\nThe pods of a StatefulSet, spread over three zones, with a claim each\n")
    stage = _database(say)
    stage.prove(say)


def _database(say: Say) -> Stage:
    controller = VolumeController(VolumeControllerSettings(provision_seconds=2))
    stage = Stage(configuration(), [controller])
    stage.put(*(_node(f"{zone}1", zone) for zone in "abc"), s.storage_class("zonal"))
    for number in range(3):
        stage.put(s.claim(f"data-{number}", "10Gi", "zonal"), _database_pod(number))
        stage.play(5)
    say(
        "  A node is chosen first, and written into the claim; whoever makes volumes makes one there, and only then the pod is bound:\n"
    )
    told = _print(stage, say, 0)
    moved = next(pod for pod in ("db-0", "db-1", "db-2") if stage.driver.pod(pod).spec.node_name == "b1")
    say(
        "\n  Now the node in zone b is drained, and its pod made anew. There is room in a and c, but its volume is in b:\n"
    )
    stage.put(_node("b1", "b", closed=True))
    stage.driver.delete(stage.driver.pod(moved))
    stage.put(_database_pod(int(moved[-1])))
    stage.play(30)
    told = _print(stage, say, told)
    say("\n  Another node in that zone is all it takes:\n")
    stage.put(_node("b2", "b"))
    stage.play(30)
    _print(stage, say, told)
    say("")
    return stage


def _node(name: str, zone: str, closed: bool = False) -> b.NodeBuilder:
    node = b.node(name).label({ZONE: zone}).capacity({"cpu": "4", "memory": "16Gi", "pods": "110"})
    return node.cordon() if closed else node


def _database_pod(number: int) -> Pod:
    pod = b.pod(f"db-{number}").label(app="db").scheduler("default-scheduler").request(cpu="1")
    return pod.spread(ZONE, "app=db", soft=True).pvc(f"data-{number}").build()


# --- reading the log ----------------------------------------------------------------------------------------------------


def _print(stage: Stage, say: Say, told: int) -> int:
    """Tell the records after the first `told`; returns how many there are."""
    for record in stage.driver.records[told:]:
        for line in _lines(record, decode_body(record)):
            say(f"  {(record.at - START) / NANOS:6.1f} s  {line}")
    return len(stage.driver.records)


def _lines(record: Record, body: Body) -> Iterator[str]:
    name = record.key.rpartition("/")[2]
    match body:
        case Reserved():
            yield f"{name} ─► {body.node} is reserved; {', '.join(w.key.rpartition('/')[2] for w in body.writes)} is told the node"
        case Scheduled():
            yield f"{name} ─► {body.node}"
        case Unschedulable() if not body.same_as:
            yield f"{name} finds no node: {body.message.partition(' preemption:')[0]}"
        case ObjectPut(object=PersistentVolume() as volume) if record.author == "volume-controller":
            affinity = volume.spec.node_affinity
            terms = (
                () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
            )
            where = ", ".join(
                f"{r.key} {', '.join(r.values)}" for term in terms for r in term.match_expressions
            )
            yield f"{record.author}: a volume where {where}"
        case ObjectPut(object=PersistentVolumeClaim()) if record.author == "volume-controller":
            yield f"{record.author}: {name} is bound"
        case ObjectPut(object=Pod() as pod) if not pod.spec.node_name:
            yield f"{name} comes, with claim {', '.join(use.claim for use in claim_uses(pod))}"
        case _:
            return
