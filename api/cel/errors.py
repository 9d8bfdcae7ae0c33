"""The errors of an expression: before it runs (`InvalidExpression`), or while it does (`EvaluationError`)."""

from __future__ import annotations


class InvalidExpression(ValueError):
    """It does not compile: no CEL, a type that does not fit, or something that is not supported, which it names."""

    def __init__(self, why: str, position: int | None = None) -> None:
        super().__init__(why if position is None else f"position {position}: {why}")
        self.why = why
        self.position = position
        """Counts from 1."""


class TooComplex(InvalidExpression):
    """It would compile, but is larger than anybody needs."""


class EvaluationError(Exception):
    """CEL's error value: `&&`, `||`, `all` and `exists` absorb it where the other side decides."""


class CostExceeded(Exception):
    """The evaluation was given up. Nothing absorbs this."""


def no_overload(function: str) -> EvaluationError:
    """The function exists, but not for values of these types."""
    return EvaluationError(f"no such overload: {function}")
