"""What happens in a simulated story, as plain data: a list of steps can be printed, shortened and told again.

A step says what is done, never how it ends: the same list drives the sandbox (`telling.py`, which passes over the faults) and the simulated
machine (`machine.py`). No step depends on what the ones before it led to, so any of them can be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Object, Pod, Toleration

Role = Literal["leader", "standby"]
"""Which process a fault is for: the one that writes the log at that moment, or the other one. Nothing happens where there is none."""

Tampering = Literal["copied", "moved", "replaced", "restored", "overwritten", "cut", "linked"]
"""`copied`: a backup is made, nothing else. `moved`, which is as good as removed; `replaced` by the same in other files; `restored`: the backup's files
are moved in their place; `overwritten` with the backup's content; cut; given another name besides."""

Damage = Literal["record", "byte", "head"]
"""Where the log is damaged: in a record's digest, anywhere in the database, in the head file."""


class Step(msgspec.Struct, tag=True, tag_field="step", frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happens."""


# --- what clients do ------------------------------------------------------------------------------------------------------


class Request(Step, frozen=True, kw_only=True):
    """Somebody asks for something. It may be refused."""

    settle: bool = True
    """The next step waits until it is answered and the scheduler has nothing more to do. Else it comes at once, in the middle of things."""


class Apply(Request, frozen=True, kw_only=True):
    """Put these objects, all in one request. The same step again is a request that was sent twice."""

    objects: tuple[Object, ...]


class Delete(Request, frozen=True, kw_only=True):
    """Delete the objects of these keys (`Kind/namespace/name`), in one request; refused if one of them is not there."""

    keys: tuple[str, ...]
    grace_period_seconds: int | None = None


class SetCondition(Request, frozen=True, kw_only=True):
    """One condition of a pod's status, as a cluster autoscaler sends it."""

    key: str
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Edit(Request, frozen=True, kw_only=True):
    """Read a pod, change it, put it (`edited`). Nothing, if it is not there."""

    key: str
    labels: Mapping[str, str] = {}
    """Added; an empty value removes."""
    ungate: bool = False
    phase: str = ""
    node: str = ""
    """Somebody else binds it there."""
    tolerate: str = ""
    """The key of a taint."""
    stale: bool = False
    """Put back without what has happened to it since it was created: the update of a client that has read long ago."""


class Manifest(Request, frozen=True, kw_only=True):
    """Apply these bytes as a manifest file. They may be no manifest at all."""

    data: bytes


class Configure(Request, frozen=True, kw_only=True):
    """Load another configuration, in the shape of its file."""

    configuration: dict[str, Any]


# --- time -----------------------------------------------------------------------------------------------------------------


class Advance(Step, frozen=True, kw_only=True):
    """Time goes by."""

    seconds: float


class ClockJump(Step, frozen=True, kw_only=True):
    """The machine's clock is set forwards or backwards."""

    seconds: float


# --- faults: what happens to processes and machine ------------------------------------------------------------------------


class Fault(Step, frozen=True, kw_only=True):
    """Something breaks. Every fault but a crash ends by itself, at the latest with the story."""


class Kill(Fault, frozen=True, kw_only=True):
    """The process is gone at this instant; what it has written to files stays. It comes back after so many seconds (None: at `Restart`)."""

    process: Role = "leader"
    back_after: float | None = None


class PowerLoss(Fault, frozen=True, kw_only=True):
    """All processes are gone; of what was written and not synced, as much is left as the seed says. They come back after so many seconds."""

    back_after: float = 1.0


class Stop(Fault, frozen=True, kw_only=True):
    """All daemons are told to end, and do. They come back at `Restart`."""


class Restart(Fault, frozen=True, kw_only=True):
    """Processes that are gone are started again."""


class Pause(Fault, frozen=True, kw_only=True):
    """The process does nothing for so long, and then goes on as if nothing had happened."""

    process: Role = "leader"
    seconds: float = 10.0


class StealLock(Fault, frozen=True, kw_only=True):
    """The leader is paused, its lock is taken from it, the standby takes over, and then the old leader goes on."""

    seconds: float = 10.0


class Compact(Step, frozen=True, kw_only=True):
    """Somebody calls `tidelog log compact`. Refused while a daemon holds the log."""

    keep: int = 0
    """So many of the newest records stay."""
    robs_for: float = 0.0
    """Whoever holds the log is paused for so many seconds, and its lock is taken from it, where somebody stands by to go on."""
    settle: bool = True
    """The next step waits until it has ended."""


class Repair(Fault, frozen=True, kw_only=True):
    """Whoever writes dies, a byte of the log's files is another one afterwards, and somebody calls `tidelog log repair --accept-loss`."""

    damage: Damage = "record"
    place: float = 0.5
    """How far on in the log, or in the file."""
    follows: bool = False
    """A standby is paused meanwhile, and follows what has come of it. Else it dies, too."""


class Reimport(Fault, frozen=True, kw_only=True):
    """Whoever writes dies, and what `tidelog log export` says of the log is imported in its place."""

    follows: bool = False
    """As for a repair."""


class Tamper(Fault, frozen=True, kw_only=True):
    """Something is done to the log's files while somebody leads it. After so many seconds the operator puts back what was there, unless somebody leads what stands
    there then."""

    way: Tampering
    files: tuple[str, ...] = ("", "-wal", ".head")
    """Their endings."""
    place: float = 0.0
    """Where a file is cut, as a share of it."""
    seconds: float = 10.0

    @property
    def is_whole_backup(self) -> bool:
        """What stands there then is the log as it was."""
        return self.way in ("restored", "overwritten") and {"", "-wal", ".head"} <= set(self.files)


class DiskFull(Fault, frozen=True, kw_only=True):
    """No write finds room, for so long."""

    seconds: float = 5.0


class FailWrites(Fault, frozen=True, kw_only=True):
    """The next so many writes fail."""

    count: int = 1


class FailSync(Fault, frozen=True, kw_only=True):
    """The next fsync fails, and what was to be synced is gone."""


class CrashAt(Fault, frozen=True, kw_only=True):
    """Power loss before or after the n-th next operation of the disk of this name (`write`, `sync`, `rename`, …; "" is any)."""

    kills: bool = False
    """Power stays; only the process whose operation it is is gone, and a daemon comes back after so many seconds."""

    operation: str = ""
    nth: int = 1
    before: bool = True
    back_after: float = 1.0


AnyStep = (
    Apply
    | Delete
    | SetCondition
    | Edit
    | Manifest
    | Configure
    | Advance
    | ClockJump
    | Kill
    | PowerLoss
    | Stop
    | Restart
    | Compact
    | Pause
    | StealLock
    | Repair
    | Reimport
    | Tamper
    | DiskFull
    | FailWrites
    | FailSync
    | CrashAt
)


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, its configuration, and what happens. At its end all faults stop, everything restarts, and the cluster comes to rest."""

    seed: int
    configuration: dict[str, Any]
    """A KubeSchedulerConfiguration, in the shape of its file."""
    actors: dict[str, Any]
    """Who plays, in the shape of the file for `--actors`."""
    steps: tuple[AnyStep, ...]


def edited(pod: Pod, edit: Edit) -> Pod:
    """The pod as the client puts it back."""
    labels = {key: value for key, value in {**pod.metadata.labels, **edit.labels}.items() if value}
    metadata = replace(pod.metadata, labels=labels)
    spec = replace(pod.spec, node_name=edit.node or pod.spec.node_name)
    if edit.ungate:
        spec = replace(spec, scheduling_gates=())
    if edit.tolerate:
        spec = replace(
            spec, tolerations=(*spec.tolerations, Toleration(key=edit.tolerate, operator="Exists"))
        )
    status = replace(pod.status, phase=edit.phase) if edit.phase else pod.status
    if edit.stale:
        spec, status = replace(spec, node_name=""), type(status)()
    return replace(pod, metadata=metadata, spec=spec, status=status)
