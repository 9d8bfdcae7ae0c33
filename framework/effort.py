"""The work of an attempt, counted, so that one that takes long can stop and let others work.

Who asks a plugin, and a plugin whose question may be dear, counts steps as it goes. When the attempt has had its turn that raises `Paused`: the attempt ends as if
it had never begun, and is made again. What was found until then is remembered by whoever found it, so that the next turn goes on from there;
and since a memory changes no answer, no decision depends on where the turns ended. Replays take no turns at all.
"""

from __future__ import annotations


class Paused(BaseException):
    """The attempt has had its turn. No failure: nobody but who asked for the attempt may catch it, and who passes it on keeps what it has found."""


KEPT_MAX = 16
"""For so many attempts at most is kept what they have found; some of them may never be made again."""


class Effort:
    """Of the attempt under way."""

    __slots__ = ("_about", "_kept", "left")

    def __init__(self) -> None:
        self.left: int | None = None
        """Steps of its turn, some two microseconds each; None: it is not to stop."""
        self._about = ""
        """The pod or group of the attempt."""
        self._kept: dict[str, list[object]] = {}
        """By whose attempt that was paused: things that its next turn goes on from, where nobody else keeps them."""

    def begin(self, about: str, steps: int | None) -> None:
        """The next attempt is about this pod or group, and may have so many steps in this turn."""
        self._about, self.left = about, steps

    def pause(self) -> None:
        """The turn is over. Others ask plugins between two of them, without a limit: `why`, for one."""
        self.left = None

    def end(self) -> None:
        """The attempt has its decision."""
        self.left = None
        if self._kept:
            self._kept.pop(self._about, None)

    def keep(self, found: object) -> None:
        """Have this alive until the attempt has its decision, if it takes turns: who remembers what somebody uses finds it in the next one."""
        if self.left is None:
            return
        if self._about not in self._kept and len(self._kept) >= KEPT_MAX:
            self._kept.pop(next(iter(self._kept)))
        self._kept.setdefault(self._about, []).append(found)

    def charge(self, steps: int) -> None:
        """Count them; who next asks to `spend` some pays for them. For work of which nothing is kept."""
        if self.left is not None:
            self.left -= steps

    def spend(self, steps: int) -> None:
        """Raises Paused when the turn is over. To be called where what was found is kept, so that the next turn comes further than this one."""
        if self.left is not None:
            self.left -= steps
            if self.left < 0:
                raise Paused
