"""An observer hears of every step of a framework, and of steps within steps in between."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.framework.interface import CycleState
from tidelog.framework.steps import StepObserver, observe_steps, step


class Kitchen:
    """Two steps, one within the other."""

    def __init__(self, observer: StepObserver | None = None) -> None:
        if observer is not None:
            observe_steps(self, observer)

    @step("Bake")
    def bake(self, state: CycleState, *, burns: bool = False) -> str:
        return self.knead(state) + (" burnt" if burns else " baked")

    @step("Knead")
    def knead(self, state: CycleState) -> str:
        if not state.at:
            raise RuntimeError("no dough")
        return "dough"


class Heard(list[Any]):
    """Remembers what it is told."""

    def step_began(self, point: str) -> None:
        self.append(point)

    def step_ended(self, point: str, state: CycleState, result: Any) -> None:
        self.append((point, state.at, result))

    def step_failed(self) -> None:
        self.append("failed")


def test_step_within_a_step_is_told_in_between() -> None:
    heard = Heard()

    assert Kitchen(heard).bake(CycleState(7), burns=True) == "dough burnt"

    assert heard == ["Bake", "Knead", ("Knead", 7, "dough"), ("Bake", 7, "dough burnt")]


def test_step_that_raises_is_told_and_raises() -> None:
    heard = Heard()

    with pytest.raises(RuntimeError, match="no dough"):
        Kitchen(heard).bake(CycleState(0))

    assert heard == ["Bake", "Knead", "failed", "failed"]


def test_step_without_an_observer_is_its_method() -> None:
    assert Kitchen().bake(CycleState(1)) == "dough baked"
