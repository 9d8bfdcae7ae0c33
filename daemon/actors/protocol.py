"""The protocol of actors: components beside the scheduler, as pure classes that see only the log.

    record ──► react ──► errands ──(when one is due)──► run ──► drafts ──► the log ──► the next record
                                                          └──► more errands

A real cluster has kubelets, an autoscaler, a disruption controller. Where there are none (the sandbox, the demo, a cluster that
exists only in a log), actors stand in for them. They learn everything from records and say everything with records; nobody
calls them, and they call nobody.

An actor has no clock, no randomness and no I/O: it is told what happened and what time it is. What is to be done later is an
`Errand`, which somebody keeps until it is due (`tidelog.daemon.actors.errands`); so the same class runs in the daemon, on a virtual
clock in the sandbox, and in a test that calls its three methods by hand.

Its memory may be lost at any record: the daemon restarts, and another one goes on. `begin` is told the objects as they are, and
must find in them all that is still to be done. What cannot be found there must be put into the log by the actor itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import Body, Draft, ObjectDeleted, ObjectPut, Record


class Errand(NamedTuple):
    """Something to be done when its time has come. One with the same `what` and `key` takes the place of an earlier one."""

    at: int
    """Nanoseconds; a time that has passed means at once."""
    what: str
    """The actor's own word for it."""
    key: str = ""
    """`Kind/namespace/name` of the object that it is about, or whatever tells errands of this `what` apart."""
    cause: int = 0
    """The record that gave rise to it: what is done about it carries this as its cause."""


class Objects(Protocol):
    """The objects of the cluster, as outcomes and facts have left them."""

    def get(self, key: str) -> Object | None:
        """The object of this `Kind/namespace/name`. Costs a look into a dictionary."""

    def opaque(self, key: str) -> str:
        """The object's fields that nothing here reads, as JSON (`tidelog.kube.opaque`). Only `run` is told them."""

    def of_kind(self, kind: str) -> Iterable[Object]:
        """All of a kind, by namespace and name. Costs a walk over all objects: not for every record."""


def put(obj: Object) -> Draft:
    """Record the object as it is from now on. Who says so is filled in (`tidelog.daemon.actors.errands`)."""
    return Draft(body=ObjectPut(object=obj), author="", key=object_key(obj))


def delete(obj: Object) -> Draft:
    """Record that the object is gone."""
    return Draft(body=ObjectDeleted(uid=obj.metadata.uid), author="", key=object_key(obj))


class Deeds(NamedTuple):
    """The result of an errand."""

    drafts: Sequence[Draft] = ()
    """Appended in one transaction, before anything else can happen to the objects that `run` looked at. `cause` and `author` may be
    left to the caller (0 and ""). An object that is new is admitted like one from outside: it gets its uid and its times."""
    errands: Sequence[Errand] = ()


NOTHING = Deeds()


class Actor(Protocol):
    """Implemented by each actor. The methods are called one at a time."""

    name: str
    """The author of its records."""

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        """Forget everything and look at the cluster as it is after record `seq`: what is still to be done?"""

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        """A record has been consumed, its own or anybody's; `objects` are as it left them. What is to be done about it, and when?"""

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        """The errand is due. `objects` are the newest there are: newer, perhaps, than the last record that `react` was told of.

        Much may have happened since the errand was taken: look again whether it still makes sense, and do nothing if not.
        If what came of it could not be written, because the disk was full, it is run again.
        """


@runtime_checkable
class Configured(Protocol):
    """An actor that simulates the scheduler, and so needs its configuration.

    The configuration is no object, and a scheduler that starts again with the same one records none.
    """

    def configured(self, configuration: SchedulerConfiguration) -> None:
        """It is in force. Called before `begin`, and before `react` is told of the record that loads another one."""
