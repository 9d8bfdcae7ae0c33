"""The steps of a framework that a cycle strings together, and the hook through which metrics hear of them.

A step is a method of `tidelog.framework.framework.Framework`, marked with the extension point that it runs. One that runs within another
(PreFilter within the choice of a node) is told in between. Without an observer a step costs a tenth of a microsecond more than its body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.framework.interface import CycleState


class StepObserver(Protocol):
    """Is told when a step begins, and how it ends."""

    def step_began(self, point: str) -> None:
        """A step of this extension point begins, perhaps within another one."""
        ...

    def step_ended(self, point: str, state: CycleState, result: Any) -> None:
        """The step has this result; every step within it has ended before."""
        ...

    def step_failed(self) -> None:
        """The step raised."""
        ...


class HasSteps(Protocol):
    """An object whose methods are steps."""

    step_observer: StepObserver | None


S = TypeVar("S", bound=HasSteps)
T = TypeVar("T")
P = ParamSpec("P")


def step(
    point: str,
) -> Callable[
    [Callable[Concatenate[S, CycleState, P], T]],
    Callable[Concatenate[S, CycleState, P], T],
]:
    """Mark a method as the step that runs this extension point."""

    def marked(
        method: Callable[Concatenate[S, CycleState, P], T],
    ) -> Callable[Concatenate[S, CycleState, P], T]:
        @functools.wraps(method)
        def run(self: S, state: CycleState, /, *args: P.args, **kwargs: P.kwargs) -> T:
            observer = self.step_observer
            if observer is None:
                return method(self, state, *args, **kwargs)
            observer.step_began(point)
            try:
                result = method(self, state, *args, **kwargs)
            except BaseException:
                observer.step_failed()
                raise
            observer.step_ended(point, state, result)
            return result

        return run

    return marked
