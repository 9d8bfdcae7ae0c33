"""Family `cel`: what one selector says of one device, or in which way it fails. cel-go's own wording is not compared."""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.api.cel.program import EvaluationError, InvalidExpression, compile_selector
from tidelog.api.device_selectors import value_of
from tidelog.api.objects import Device

Case = dict[str, Any]
Answer = dict[str, Any]


def answer(case: Case) -> Answer:
    """true, false, runtime error or compile error."""
    return {"outcome": outcome(case["expression"], case["driver"], msgspec.convert(case["device"], Device))}


def outcome(expression: str, driver: str, device: Device) -> str:
    """As the cases name it."""
    try:
        program = compile_selector(expression)
    except InvalidExpression:
        return "compile error"
    try:
        return str(program.matches(value_of(driver, device))[0]).lower()
    except EvaluationError:
        return "runtime error"


def differences(case: Case, found: Answer) -> list[str]:
    """The outcome alone."""
    wanted = case["expect"]["outcome"]
    text = case["expect"].get("text", "")[:100]
    return [] if wanted == found["outcome"] else [f"outcome: want {wanted} ({text}), got {found['outcome']}"]
