"""How a function is declared: its overloads with static types, and what runs.

A call whose static types leave one overload runs that one, if the values are of its types; a call that leaves several is decided by
the values, first overload first. A function with `run_any` looks at its values itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tidelog.api.cel.types import Type

Run = Callable[..., Any]


class Overload(NamedTuple):
    """One signature. Of a member the first argument is what stands before the dot."""

    is_member: bool
    args: tuple[Type, ...]
    result: Type
    run: Run | None = None
    """Of the values; None if the function has a `run_any`, or if nothing can be called so."""
    cost: Callable[..., int] | None = None
    """Of the values; without one, a tenth of all characters and the number of all elements."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its type parameters."""
        return tuple(sorted({name for t in (*self.args, self.result) for name in _parameters(t)}))


def _parameters(t: Type) -> Iterable[str]:
    if t.kind == "param":
        yield t.name
    for param in t.params:
        yield from _parameters(param)


class Function(NamedTuple):
    """All that goes by one name."""

    name: str
    overloads: tuple[Overload, ...]
    run_any: Run | None = None
    is_guarded: bool = True
    """Whether the values' types are compared with the overload's before it runs."""
    wants_env: bool = False
    """Whether what runs is given the evaluation's budget first."""


def of(
    args: Sequence[Type], result: Type, run: Run | None = None, cost: Callable[..., int] | None = None
) -> Overload:
    """`function(args)`."""
    return Overload(False, tuple(args), result, run, cost)


def member(
    args: Sequence[Type], result: Type, run: Run | None = None, cost: Callable[..., int] | None = None
) -> Overload:
    """`args[0].function(args[1:])`."""
    return Overload(True, tuple(args), result, run, cost)
