"""The steps of a framework that a cycle strings together, and the hook through which metrics hear of them.

A step is a method of `tidelog.framework.framework.Framework`, marked with the extension point that it runs. One that runs within another
(PreFilter within the choice of a node) is told in between. Without an observer a step costs nothing beside its body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.framework.interface import CycleState


class StepObserver(Protocol):
    """Is told when a step begins, and how it ends."""

    def step_began(self, point: str) -> None:
        """A step of this extension point begins, perhaps within another one."""

    def step_ended(self, point: str, state: CycleState, result: Any) -> None:
        """The step has this result; every step within it has ended before."""

    def step_failed(self) -> None:
        """The step raised."""


F = TypeVar("F", bound=Callable[..., Any])


def step(point: str) -> Callable[[F], F]:
    """Mark a method, whose first argument is the cycle's state, as the step that runs this extension point."""

    def marked(method: F) -> F:
        method.__dict__["step_of"] = point
        return method

    return marked


def observe_steps(owner: object, observer: StepObserver) -> None:
    """Tell the observer of every step of this object from now on."""
    for name, method in vars(type(owner)).items():
        point = getattr(method, "step_of", "")
        if point:
            setattr(owner, name, _observed(observer, point, method.__get__(owner)))


def _observed(observer: StepObserver, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(state: CycleState, *args: Any, **kwargs: Any) -> Any:
        observer.step_began(point)
        try:
            result = method(state, *args, **kwargs)
        except BaseException:
            observer.step_failed()
            raise
        observer.step_ended(point, state, result)
        return result

    return run
