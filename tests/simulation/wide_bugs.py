"""Deliberate bugs that only wide stories (`make_story(seed, wide=True)`) on the product's own store can show. As in `mutations.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.bug import Bug, Place, broken
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog import repair
from tidelog.eventlog.rebuild import Rebuild
from tidelog.eventlog.transfer import _Import
from tidelog.framework.events import Hint
from tidelog.framework.framework import Framework
from tidelog.plugins.dynamic_resources import binding
from tidelog.plugins.volumes import limits
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.outcomes import Outcomes
from tidelog.scheduler.permits import Permits


def _bug(*places: Place) -> Bug:
    return lambda: broken(*places)


# --- a log that is repaired or imported -----------------------------------------------------------------------------------


async def _yes(*_: Any) -> bool:
    return True


def _short(right: Any) -> Any:
    """A repair passes over the last good record."""

    def good(*of: Any) -> Iterator[Any]:
        found = [record for records in right(*of) for record in records]
        yield from [found[:-1]] if found[:-1] else []

    return good


def _silent(right: Any) -> Any:
    """Nobody is told what a repair has lost."""

    def add(self: Rebuild, records: Any) -> None:
        if records[0].kind != "LossAccepted":
            right(self, records)

    return add


def _without_snapshots(right: Any) -> Any:
    return lambda self, line: None


# --- claims ---------------------------------------------------------------------------------------------------------------


def _nothing(right: Any) -> Any:
    return lambda *_, **__: None


def _answered(right: Any) -> Any:
    """Whoever waits for volumes or devices is taken to have them."""
    return lambda self, permit, awaited, failure, seq: right(self, permit, (), failure, seq)


def _ready(right: Any) -> Any:
    """Whoever has devices takes them to be ready."""
    return lambda claim: None


def _never(right: Any) -> Any:
    return lambda *_: False


def _one_more(right: Any) -> Any:
    """A node attaches one volume more than it can."""
    return lambda csi_node: {driver: count + 1 for driver, count in right(csi_node).items()}


def _asleep(right: Any) -> Any:
    return lambda *_: Hint.SKIP


def _dump_without_promises(right: Any) -> Any:
    """A snapshot does not tell who waits for answers, as if all waited for permits."""

    def dump(self: Permits) -> Any:
        kept = dict(self._permits)
        self._permits = {uid: permit for uid, permit in kept.items() if not permit.is_reserved}
        try:
            return right(self)
        finally:
            self._permits = kept

    return dump


BUGS: dict[str, Bug] = {
    "take any log for the one that was followed": _bug((Standby, "_is_what_was_read", lambda _: _yes)),
    "repair one record too few": _bug((repair, "_good_records", _short)),
    "repair, and say nothing of the loss": _bug((Rebuild, "add", _silent)),
    "import without what the log begins with": _bug((_Import, "_take_snapshot", _without_snapshots)),
    "give nothing back of what was promised": _bug((Outcomes, "_give_back", _nothing)),
    "forget what was promised to those in flight": _bug((Cluster, "promise", _nothing)),
    "bind before the volumes are there": _bug((Permits, "judge", _answered)),
    "forget in snapshots who waits for his volumes": _bug((Permits, "dump", _dump_without_promises)),
    "bind before the devices are ready": _bug((binding, "unready", _ready)),
    "bind who was given devices before they are ready": _bug((Framework, "_still_awaits", _never)),
    "attach one volume too many": _bug((limits, "limits_of", _one_more)),
    "do not wake for more volumes": _bug((limits, "_when_limits_change", _asleep)),
}
