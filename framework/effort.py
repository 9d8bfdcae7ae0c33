"""The work of an attempt, counted, so that one that takes long can stop and let others work.

Who asks a plugin, and a plugin whose question may be dear, counts steps as it goes. When the attempt has had its turn that raises `Paused`: the attempt ends as if
it had never begun, and is made again. What was found until then is remembered by whoever found it, so that the next turn goes on from there;
and since a memory changes no answer, no decision depends on where the turns ended. Replays take no turns at all.
"""

from __future__ import annotations


class Paused(BaseException):
    """The attempt has had its turn. No failure: nobody but who asked for the attempt may catch it, and who passes it on keeps what it has found."""


class Effort:
    """Of the attempt under way."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: int | None = None
        """Steps of its turn, some two microseconds each; None: it is not to stop."""

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
