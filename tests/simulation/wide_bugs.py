"""Deliberate bugs that only wide stories (`make_story(seed, wide=True)`) on the product's own store can show. As in `mutations.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.bug import Bug, Place, broken
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog import repair
from tidelog.eventlog.rebuild import Rebuild
from tidelog.eventlog.transfer import _Import


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


BUGS: dict[str, Bug] = {
    "take any log for the one that was followed": _bug((Standby, "_is_what_was_read", lambda _: _yes)),
    "repair one record too few": _bug((repair, "_good_records", _short)),
    "repair, and say nothing of the loss": _bug((Rebuild, "add", _silent)),
    "import without what the log begins with": _bug((_Import, "_take_snapshot", _without_snapshots)),
}
