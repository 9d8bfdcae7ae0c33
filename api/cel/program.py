"""A compiled selector: from text to an answer about a device.

program = compile_selector('device.attributes["gpu.example.com"].model == "a100"')
program.matches(device_value("gpu.example.com", {...}, {...}, False))
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tidelog.api.cel.checker import check
from tidelog.api.cel.errors import CostExceeded, EvaluationError, InvalidExpression, TooComplex
from tidelog.api.cel.evaluator import compile_tree
from tidelog.api.cel.parser import parse
from tidelog.api.cel.values import EMPTY_MAP, CelMap, Closure

LENGTH_MAX = 10 << 10
COST_MAX = 1_000_000
"""The API server's limit (CELSelectorExpressionMaxCost); units differ a little (docs/differences.md). Up to a second of the processor."""
COST_OF_A_PAUSE = 50_000
"""A limit that nobody else waits for: some 50 ms of the processor. Arbitrary: the dearest of 1,852 recorded selectors costs 144."""


class Program:
    """An expression that compiled."""

    __slots__ = ("_closure", "_variables", "text")

    def __init__(self, text: str, closure: Closure, slots: int) -> None:
        self.text = text
        self._closure = closure
        self._variables = [None] * (slots - 1)

    def matches(self, device: CelMap, cost_max: int = COST_MAX) -> tuple[bool, int]:
        """The answer and what it cost. Raises EvaluationError, also for what is no answer and where the cost limit is reached."""
        env: list[Any] = [cost_max, *self._variables]
        env[1] = device
        try:
            answer = self._closure(env)
        except CostExceeded as exceeded:
            raise EvaluationError(str(exceeded)) from None
        if type(answer) is not bool:
            raise EvaluationError("CEL result could not be converted to bool")
        return answer, cost_max - env[0]


@lru_cache(maxsize=4096)
def compile_selector(text: str) -> Program:
    """Compile a selector of devices. Raises InvalidExpression."""
    if len(text) > LENGTH_MAX:
        raise TooComplex(f"may not be more than {LENGTH_MAX} characters")
    tree = parse(text)
    closure, slots = compile_tree(tree, check(tree))
    return Program(text, closure, slots)


def device_value(
    driver: str, attributes: dict[str, dict[str, Any]], capacity: dict[str, dict[str, Any]], shareable: bool
) -> CelMap:
    """The variable `device`: attributes and capacities by domain and name. A domain that the device lacks is an empty map."""
    fields = {
        "driver": driver,
        "allowMultipleAllocations": shareable,
        "attributes": _by_domain(attributes),
        "capacity": _by_domain(capacity),
    }
    return CelMap.of_strings(fields)


def _by_domain(values: dict[str, dict[str, Any]]) -> CelMap:
    inner = {domain: CelMap.of_strings(named) for domain, named in values.items()}
    return CelMap.of_strings(inner, EMPTY_MAP)


__all__ = ["EvaluationError", "InvalidExpression", "Program", "compile_selector", "device_value"]
