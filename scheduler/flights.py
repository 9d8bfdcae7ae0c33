"""The attempts that are in flight: decided, and not yet seen in the log.

An attempt takes off when it is adopted and has landed when the outcomes of all its pods have been consumed. As long as any is in flight the
cluster notes what could hurt it (`tidelog.scheduler.commit_check`), and what happened before the oldest one is forgotten here.

Outcomes come in the order of the attempts, but parts of one (of a group) may land apart. Each step costs a few looks at dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.scheduler.disturbances import Notes


class Flights:
    """The pods tried in each attempt in flight, and what the attempts have seen."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._pods: dict[int, dict[str, None]] = {}
        """Attempts in flight → the uids of their pods."""
        self._observed: dict[int, int] = {}
        """The same attempts, and perhaps older ones → the last record that was consumed when they were made."""
        self._held: dict[int, None] = {}
        """Attempts that may have landed, and that somebody wants to check once more."""

    def __len__(self) -> int:
        """How many attempts are in flight."""
        return len(self._pods)

    def attempt_of(self, uid: str) -> int:
        """The attempt in flight that is about this pod; 0 if none is."""
        return next((attempt for attempt, pods in self._pods.items() if uid in pods), 0)

    def take_off(self, attempt: int, uids: Iterable[str], observed: int) -> None:
        """The attempt is in flight from now on, and about these pods. It was made when record `observed` had been consumed."""
        self._notes.wanted = True
        self._pods[attempt] = dict.fromkeys(uids)
        self._observed[attempt] = observed

    def land(self, attempt: int, uids: Iterable[str]) -> bool:
        """These pods' parts of the attempt are over; returns whether they were the last."""
        flight = self._pods.get(attempt)
        if flight is None:
            return False
        for uid in uids:
            flight.pop(uid, None)
        if flight:
            return False
        del self._pods[attempt]
        return True

    def give_up(self, attempt: int) -> Iterable[str]:
        """The attempt was aborted; returns the uids of the pods that it was about."""
        return self._pods.pop(attempt, {})

    def hold(self, attempt: int) -> None:
        """Keep what happens from the attempt on, also when it has landed."""
        if attempt in self._observed:
            self._held[attempt] = None

    def let_go(self, attempt: int) -> None:
        """Nobody will ask about the attempt any more."""
        self._held.pop(attempt, None)
        self.drop_notes()  # There may be no record for long.

    def drop_notes(self) -> None:
        """Forget what happened before the oldest attempt in flight. Nearly always there is nothing to forget."""
        if not self._observed:
            return
        first = next(iter(self._observed), None)
        if first in self._pods or first in self._held:
            return  # It was the oldest before, and what had happened before it is forgotten.
        while first is not None and first not in self._pods and first not in self._held:
            del self._observed[first]
            first = next(iter(self._observed), None)
        if first is None:
            self._notes.close()
        else:
            self._notes.drop_until(self._observed[first])
