"""Selectors as the API server's evaluator answers them, recorded; what is refused, and how; nothing that a stranger writes hangs or crashes."""

from __future__ import annotations

import contextlib
import gzip
import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.cel.program import (
    COST_MAX,
    EvaluationError,
    InvalidExpression,
    compile_selector,
    device_value,
)
from tidelog.api.device_selectors import value_of
from tidelog.api.objects import Device

DRIVER = "gpu.example.com"
DEVICE = msgspec.convert(
    {
        "name": "gpu-0",
        "attributes": {"model": {"string": "a100"}, "cores": {"int": 8}, "version": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "40Gi"}},
    },
    Device,
)
OWN = f'device.attributes["{DRIVER}"]'


def outcome(expression: str, driver: str = DRIVER, device: Device = DEVICE) -> str:
    try:
        program = compile_selector(expression)
    except InvalidExpression:
        return "compile error"
    try:
        return str(program.matches(value_of(driver, device))[0]).lower()
    except EvaluationError:
        return "runtime error"


def test_random_expressions_have_the_recorded_outcomes() -> None:
    """Made by a generator, answered by the DRA package of kubernetes master, August 2026."""
    different = []
    with gzip.open(Path(__file__).parent / "data" / "random.jsonl.gz", "rt") as lines:
        for line in lines:
            case = json.loads(line)
            found = outcome(case["expression"], case["driver"], msgspec.convert(case["device"], Device))
            if found != case["outcome"]:
                different.append((case["expression"], case["outcome"], found))

    assert different == []


@pytest.mark.parametrize(
    ("expression", "position", "why"),
    [
        ("", 1, "the expression ends too early"),
        ("device.name == 'x'", 7, "undefined field 'name'"),
        ("device.driver = 'x'", 15, "unexpected character"),
        ("true true", 6, "expected an operator or the end"),
        ("(true", 6, "expected )"),
        ("x", 1, "undeclared reference to 'x'"),
        ("google.protobuf.Int64Value{value: 1} == 1", 27, "messages are not supported"),
        ("dyn([1, 'a']) == '%d %s'.format([1, 'a'])", 9, "expected type 'int' but found 'string'"),
        ("'x'.matches('[')", 4, "missing closing ]"),
        (r"'x'.matches('\\p{Greek}')", 4, "'Greek' is unknown or not supported"),
        ("3 in [1, '3']", 10, "expected type 'int' but found 'string'"),
        ("int('x') == 1", 1, "type conversion error"),
        ("(" * 60 + "true", 51, "must not be nested deeper than 50 levels"),
        ("+".join(["1"] * 200) + " == 1", 300, "must not be nested deeper than 150 levels"),
    ],
)
def test_what_is_not_understood_is_refused_by_name_and_position(
    expression: str, position: int, why: str
) -> None:
    with pytest.raises(InvalidExpression) as caught:
        compile_selector(expression)

    assert why in str(caught.value)
    assert caught.value.position == position


def test_selector_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidExpression, match="may not be more than 10240 characters"):
        compile_selector("'" + "a" * 10_240 + "' == ''")


def test_version_is_no_text_and_no_other_quantity_is_less() -> None:
    assert outcome(f'{OWN}.version == "1.2.3"') == "runtime error"
    assert outcome(f'{OWN}.version == semver("1.2.3")') == "true"
    assert outcome('device.capacity["gpu.example.com"].memory < quantity("50Gi")') == "compile error"


def test_domain_that_the_device_lacks_is_empty_but_not_in_the_map() -> None:
    assert outcome('has(device.attributes["nowhere.example.com"].x)') == "false"
    assert outcome('"nowhere.example.com" in device.attributes') == "false"
    assert outcome('device.attributes["nowhere.example.com"].x == 1') == "runtime error"


def test_device_with_a_version_that_is_none_fails_every_selector() -> None:
    device = msgspec.convert({"name": "x", "attributes": {"v": {"version": "one"}}}, Device)

    with pytest.raises(EvaluationError, match="attribute v: parse semantic version"):
        value_of(DRIVER, device)


def test_variable_that_fails_harms_only_who_reads_it() -> None:
    assert outcome(f"cel.bind(x, {OWN}.nope, true)") == "true"
    assert outcome(f"cel.bind(x, {OWN}.nope, x == 1)") == "runtime error"
    assert outcome(f"cel.bind(x, {OWN}.nope, x == 1 || true)") == "true"


def doubling(start: str, step: str, end: str, times: int = 40) -> str:
    """cel.bind(a1, start, cel.bind(a2, step(a1), … end(an)))."""
    names = [f"a{i}" for i in range(times)]
    text = end.replace("$", names[-1])
    for before, name in reversed(list(pairwise(names))):
        text = f"cel.bind({name}, {step.replace('$', before)}, {text})"
    return f"cel.bind(a0, {start}, {text})"


@pytest.mark.no_cover  # Steps by the hundred thousand: tracing makes minutes of seconds.
@pytest.mark.parametrize(
    "expression",
    [
        doubling('"aaaaaaaaaa"', "$ + $", "$ == ''"),
        doubling("[1]", "$ + $", "$.size() == 1"),
        doubling("[1]", "[$, $]", "$ == []"),
        doubling("[1]", "[$, $]", "$ == $"),
        doubling('"ab"', '$.replace("", "abcdefgh")', "$ == ''", 20),
        doubling("{1: 1}", "{1: $}", "$ == $"),
        doubling("optional.of(1)", "optional.of([$, $])", "$ == $"),
        "lists.range(100000).all(x, lists.range(100000).all(y, x != y + 200000))",
        ".".join(["lists.range(60)", *["map(x, lists.range(60)).flatten()"] * 12, "size() == 1"]),
        "optional.of(1)" + ".optMap(x, x)" * 100 + ".hasValue()",
        "[[1]]" + ".map(x, x)" * 100 + " == []",
        "'" + "a" * 5000 + "'.matches('" + "(a*)*" * 100 + "b')",
        "'" + "a" * 3000 + "'.matches('(a|a)*(a|a)*(a|a)*b')",
        "'" + "a" * 3000 + "'.findAll('a*?b|.').size() == 3",
        "'x'.matches('((a{900}){900}){900}')",
        "-" * 5000 + "1 == 1",
        "!" * 5000 + "true",
        "[" * 5000,
        "true" + " && true" * 1200,
        "{" + "1: " * 300,
        "1" + "0" * 5000 + " == 1",
        "'" + "\\\\" * 4000,
        '"' * 9999,
    ],
)
def test_selector_that_explodes_is_given_up(expression: str) -> None:
    """Whatever the answer is: it comes, and costs no more than the limit (counted in steps; the suite would notice minutes)."""
    assert outcome(expression) in ("true", "false", "runtime error", "compile error")


def test_cost_is_counted_and_limited() -> None:
    device = device_value(DRIVER, {}, {}, False)

    _, small = compile_selector("lists.range(10).all(x, x < 10)").matches(device)
    _, large = compile_selector("lists.range(100).all(x, x < 100)").matches(device)

    assert 0 < small * 5 < large < COST_MAX
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        compile_selector("lists.range(99999).all(x, lists.range(99).all(y, true))").matches(device)


PIECES = st.sampled_from(
    [
        "device", ".attributes", '["gpu.example.com"]', ".driver", ".?x", "[?0]", ".orValue(", "cel.bind(x, ", "x", "1", "2.5", "3u",
        '"s"', "b'b'", "r'\\d'", "null", "true", "[", "]", "{", "}", "(", ")", ",", ":", "?", "&&", "||", "!", "-", "+", "==", "<",
        " in ", ".all(x, ", ".map(x, ", ".exists(i, v, ", ".matches(", ".size()", "quantity(", "semver(", "optional.of(", "type(",
        ".sortBy(x, ", ".transformMap(k, v, ", "duration(", "has(", " ", "// c\n", "'''m'''", "`a-b`", ".",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_has_an_outcome_and_a_position_inside(text: str) -> None:
    try:
        program = compile_selector(text)
    except InvalidExpression as refusal:
        position = refusal.position
    else:
        position = None
        with contextlib.suppress(EvaluationError):
            program.matches(value_of(DRIVER, DEVICE))

    assert position is None or 0 <= position <= len(text) + 1
