"""A deliberate bug: code of the product that is replaced by broken code, and the count of how often the broken code ran.

    with broken((Adoption, "_assume", lambda right: nothing)) as ran:
        simulate(make_story(seed))
    assert ran.times

A replacement that is never called shows nothing: the code has moved from under it. Therefore each bug counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch


class Ran:
    """How often broken code ran."""

    times = 0


Bug = Callable[[], AbstractContextManager[Ran]]


Place = tuple[Any, str, Callable[[Any], Any]]
"""Who has it, its name, and what makes what is broken of what is right: a function, a property, or a plain value of a class."""


@contextmanager
def broken(*places: Place) -> Iterator[Ran]:
    """The code is broken there while the block runs."""
    ran = Ran()
    with ExitStack() as stack:
        for owner, name, make in places:
            stack.enter_context(patch.object(owner, name, _counted(make(getattr(owner, name)), ran)))
        yield ran


def _counted(what: Any, ran: Ran) -> Any:
    if isinstance(what, property):
        return property(_counted(what.fget, ran))
    if not callable(what):
        return property(_counted(lambda _: what, ran))

    @wraps(what)
    def counted(*args: Any, **named: Any) -> Any:
        ran.times += 1
        return what(*args, **named)

    return counted
