"""The disturbances since the oldest attempt in flight, in order, found quickly by what a decision relies on.

At each commit the notes that a decision did not see are held against it. Many attempts are in flight and thousands of records may come
meanwhile, so they are not gone through: there is an index for each way in which a note can hurt. Of those by which any note would do,
only the first is looked at, because the first conflict is the one that counts.

A note costs a few entries in dictionaries; a question costs the notes about the decision's own pod and victims, and a look at a handful of
lists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from tidelog.framework.interface import Depends
from tidelog.framework.results import ANY_DEVICE
from tidelog.scheduler.commit_check import Disturbance, looks_at_pods
from tidelog.scheduler.decision import Relies

ANY = 1 << 63
"""Later than any attempt."""
DROPPED_AT_ONCE = 1_000
"""Notes that nobody needs any more are dropped when there are so many, and more than the others. Arbitrary."""


class _Note(NamedTuple):
    seq: int
    place: int
    note: Disturbance


_SEQ = itemgetter(0)
_Notes = list[_Note]


class Notes:
    """In the order in which they were appended; their seqs never decrease. Nothing is noted while no attempt is in flight."""

    def __init__(self) -> None:
        self.wanted = False
        """Some attempt is in flight."""
        self.latest = 0
        """The seq of the last one; 0 if there is none."""
        self._all: _Notes = []
        self._places = 0
        self._index()

    def _index(self) -> None:
        self._by_key: dict[str, _Notes] = {}
        self._by_node: dict[str, _Notes] = {}
        """Those that take something from who chose the node, …"""
        self._staying: dict[str, _Notes] = {}
        """… and those of pods that were there before."""
        self._by_touch: dict[int, _Notes] = {}
        """By what else they change, as the value of the flags."""
        self._repelling: _Notes = []
        self._still_repelling: _Notes = []
        """Those of pods that stay."""
        self._forbidding: _Notes = []
        self._opening: _Notes = []
        for each in self._all:
            self._enter(each)

    def __len__(self) -> int:
        return len(self._all)

    def append(self, note: Disturbance) -> None:
        """Something happened."""
        if not self.wanted:
            return
        self.latest = note.seq
        self._places += 1
        entry = _Note(note.seq, self._places, note)
        self._all.append(entry)
        self._enter(entry)

    def _enter(self, entry: _Note) -> None:
        note = entry.note
        self._by_key.setdefault(note.key, []).append(entry)
        for device in sorted(note.devices | ANY_DEVICE) if note.devices else ():
            self._by_key.setdefault(device, []).append(entry)
        if note.forbids:
            # It is about a budget, and hurts in no other way.
            self._forbidding.append(entry)
            return
        if note.takes:
            (self._staying if note.stays else self._by_node).setdefault(note.node, []).append(entry)
        if note.touches is not Depends.POD:
            self._by_touch.setdefault(note.touches.value, []).append(entry)
        if note.repels:
            (self._still_repelling if note.stays else self._repelling).append(entry)
        if note.opens:
            self._opening.append(entry)

    def close(self) -> None:
        """No attempt is in flight any more."""
        self.wanted = False
        if self._all:
            self._all.clear()
            self._index()
            self.latest = 0

    def drop_until(self, seq: int) -> None:
        """No decision that is still to be committed was made before this record was consumed."""
        if len(self._all) < DROPPED_AT_ONCE:
            return
        count = bisect_right(self._all, seq, key=_SEQ)
        if count >= DROPPED_AT_ONCE and 2 * count >= len(self._all):
            del self._all[:count]
            self._index()

    def concerning(
        self, relies: Relies, observed: int, attempt: int = ANY, *, staying_hurts: bool = False
    ) -> list[Disturbance]:
        """The notes after record `observed` among which the first is that can hurt who relies on this since this `attempt`, in order.

        `staying_hurts`: as for `conflict`.
        """
        keys = (relies.pod_key, *relies.victims, *relies.reads)
        found: dict[int, Disturbance] = {}
        for key in keys:
            _keep(found, _after(self._by_key.get(key, ()), observed, attempt))
        if relies.budgets:
            _keep(found, _after(self._forbidding, observed, attempt))
        if relies.node:
            on = relies.on.value
            lists = [self._by_node.get(relies.node, []), self._repelling]
            if staying_hurts or looks_at_pods(relies):
                lists.append(self._staying.get(relies.node, []))
            if staying_hurts:
                lists.append(self._still_repelling)
            lists.extend(notes for touches, notes in self._by_touch.items() if touches & on)
            for notes in lists:
                if notes and notes[-1].seq > observed:
                    _keep(found, _first_of_others(notes, observed, attempt, keys))
        elif relies.found_none:
            _keep(found, _first_of_others(self._opening, observed, attempt, keys))
        return [found[place] for place in sorted(found)]


def _after(notes: Iterable[_Note], observed: int, attempt: int) -> Iterable[_Note]:
    if not isinstance(notes, list):
        return ()
    return (each for each in notes[bisect_right(notes, observed, key=_SEQ) :] if each.note.after < attempt)


def _first_of_others(notes: _Notes, observed: int, attempt: int, keys: tuple[str, ...]) -> Iterable[_Note]:
    """Leave out notes about the decision's own pods, which hurt in other ways, if at all, and those that hurt only attempts after this one."""
    for place in range(bisect_right(notes, observed, key=_SEQ), len(notes)):
        if notes[place].note.key not in keys and notes[place].note.after < attempt:
            return (notes[place],)
    return ()


def _keep(found: dict[int, Disturbance], notes: Iterable[_Note]) -> None:
    for entry in notes:
        found[entry.place] = entry.note
