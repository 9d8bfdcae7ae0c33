"""Each operator and function of selectors, by what it gives, and by the operands that it refuses."""

from __future__ import annotations

import pytest

from tests.api.cel.test_selectors import outcome

TRUE = [
    "1 + 2 == 3 && 1u + 2u == 3u && 0.5 + 0.5 == 1.0",
    '"a" + "b" == "ab" && b"a" + b"b" == b"ab" && [1] + [2] == [1, 2]',
    'duration("1s") + duration("1s") == duration("2s")',
    'timestamp("2024-01-01T00:00:00Z") + duration("1h") == timestamp("2024-01-01T01:00:00Z")',
    'duration("1h") + timestamp("2024-01-01T00:00:00Z") == timestamp("2024-01-01T01:00:00Z")',
    "5 - 7 == -2 && 7u - 5u == 2u && 1.5 - 0.5 == 1.0",
    'timestamp("2024-01-01T01:00:00Z") - timestamp("2024-01-01T00:00:00Z") == duration("3600s")',
    'timestamp("2024-01-01T01:00:00Z") - duration("1h") == timestamp("2024-01-01T00:00:00Z")',
    "3 * 4 == 12 && 3u * 4u == 12u && 0.5 * 4.0 == 2.0",
    "-7 / 2 == -3 && 7u / 2u == 3u && 1.0 / 4.0 == 0.25 && 1.0 / 0.0 > 1e300",
    "-7 % 2 == -1 && 7 % -2 == 1 && 7u % 4u == 3u",
    "-(1) == -1 && -(0.5) == -0.5",
    "!false && !(1 == 2)",
    '[1, 2, 3][1] == 2 && [1, 2][dyn(0u)] == 1 && [1, 2][dyn(1.0)] == 2 && {"a": 1}["a"] == 1',
    '2 in [1, 2] && "a" in {"a": 1} && !(3 in [1, 2])',
    'size("äb") == 2 && size(b"abc") == 3 && size([1]) == 1 && size({"a": 1, "b": 2}) == 2',
    '1 < 2 && 1 <= 1 && 2u > 1u && 2.0 >= 2.0 && "a" < "b" && b"a" < b"b" && false < true',
    'duration("1s") < duration("2s") && timestamp("2024-01-01T00:00:00Z") < timestamp("2025-01-01T00:00:00Z")',
    "1 < 2u && 1.5 > 1 && 1u < 1.5",
    '"gpu-a100".matches("^gpu-[a-z][0-9]+$") && !"x".matches("y")',
    '"gpu".contains("p") && "gpu".startsWith("g") && "gpu".endsWith("u")',
    'int("7") == 7 && int(7.9) == 7 && int(7u) == 7 && int(timestamp("1970-01-01T00:00:05Z")) == 5',
    'uint("7") == 7u && uint(7) == 7u && uint(7.9) == 7u',
    'double("1.5") == 1.5 && double(2) == 2.0 && double(2u) == 2.0',
    'string(1) == "1" && string(1u) == "1" && string(true) == "true" && string(b"a") == "a" && string(1.5) == "1.5"',
    'bool("true") && !bool("f") && bytes("a") == b"a"',
    'string(duration("90s")) == "90s" && string(timestamp("2024-01-01T00:00:00Z")) == "2024-01-01T00:00:00Z"',
    'type(1) == int && type("a") == string && type([1]) == list && type({"a": 1}) == map && type(null) == null_type',
    "[1, 2].all(x, x > 0) && [1, 2].exists(x, x > 1) && [1, 2].exists_one(x, x == 2)",
    "[1, 2].map(x, x * 2) == [2, 4] && [1, 2, 3].filter(x, x % 2 == 1) == [1, 3]",
    '"tacocat".charAt(3) == "o" && "tacocat".indexOf("ac") == 1 && "tacocat".indexOf("a", 3) == 5',
    '"tacocat".lastIndexOf("ac") == 1 && "tacocat".lastIndexOf("at") == 5 && "tacocat".lastIndexOf("a", 3) == 1',
    '"TacoCat".lowerAscii() == "tacocat" && "TacoCat".upperAscii() == "TACOCAT"',
    '"a-b-c".replace("-", "+") == "a+b+c" && "a-b-c".replace("-", "+", 1) == "a+b-c"',
    '"a,b,c".split(",") == ["a", "b", "c"] && "a,b,c".split(",", 2) == ["a", "b,c"] && "abc".split("") == ["a", "b", "c"]',
    '"tacocat".substring(4) == "cat" && "tacocat".substring(0, 4) == "taco" && "  a ".trim() == "a"',
    '["a", "b"].join() == "ab" && ["a", "b"].join("-") == "a-b"',
    '"x: %s, %d, %%".format([dyn("a"), 3]) == "x: a, 3, %"',
    '"%b %o %x %X".format([dyn(5), 8, 255, "ab"]) == "101 10 ff 6162"',
    '"%d %s %s".format([1, "a", [1, "b"]]) == "1 a [1, \\"b\\"]"',
    'url("https://a/b c?k=1&k=2&x+y=%20#z").getQuery() == {"k": ["1", "2"], "x y": [" #z"]}',
    'url("https://a/?k=%2&;&j").getQuery() == {"j": [""]} && url("https://a/b?").getQuery() == {}',
    'url("https://a/b c").getEscapedPath() == "/b%20c" && url("/b%2Fc d").getEscapedPath() == "/b/c%20d"',
    'url("//a/b").getHost() == "" && url("//a/b").getEscapedPath() == "//a/b" && url("/a#b").getEscapedPath() == "/a%23b"',
    'url("https://u:p@a:8/").getHost() == "a:8" && isURL("*") && !isURL("a/b") && !isURL("https://a b/") && !isURL("")',
    'format.uri().validate("/a?b").hasValue() == false && format.uri().validate("x").hasValue()',
    'format.byte().validate("aGVsbG8=") == optional.none() && format.byte().validate("a") == optional.of(["invalid base64"])',
    'format.date().validate("2024-02-29") == optional.none() && format.date().validate("2023-02-29").hasValue()',
    'format.date().validate("2021-13-01").hasValue() && format.named("date").value().validate("2021-1-01").hasValue()',
    'format.datetime().validate("2021-01-01T23:59:59.5Z") == optional.none()',
    'format.datetime().validate("2021-01-01T24:00:00Z").hasValue() && format.datetime().validate("2021-01-01").hasValue()',
    'optional.ofNonZeroValue(timestamp("0001-01-01T00:00:00Z")) == optional.none()',
    'string(duration("12345678.123456789s")) == "12345678.12345679s" && string(duration("-1.5s")) == "-1.5s"',
    '"%b %d %x".format([dyn(true), 3u, b"ab"]) == "1 3 6162"',
    '"%s %s %s".format([dyn([dyn(1), "a"]), {"k": 1.5}, null]) == "[1, \\"a\\"] {\\"k\\":1.500000} null"',
    '"%s".format([int]) == "int" && "%s".format([duration("5s")]) == "5s"',
    '"abc 123".find("[0-9]+") == "123" && "1 2 3".findAll("[0-9]") == ["1", "2", "3"] && "1 2 3".findAll("[0-9]", 2) == ["1", "2"]',
]

FAILS = [
    "9223372036854775807 + 1 == 0",
    "0u - 1u == 0u",
    "9223372036854775807 * 2 == 0",
    "1 / 0 == 1",
    "1 % 0 == 1",
    "-(-9223372036854775807 - 1) == 0",
    'timestamp("9999-12-31T23:59:59Z") + duration("24h") == timestamp("2024-01-01T00:00:00Z")',
    "[1][1] == 1",
    "[1][-1] == 1",
    '{"a": 1}["b"] == 1',
    '"abc".charAt(4) == ""',
    '"abc".indexOf("a", -1) == 0',
    '"abc".lastIndexOf("a", -1) == 0',
    '"abc".substring(4) == ""',
    '"abc".substring(2, 1) == ""',
    "dyn(1) + dyn(1u) == 2",
    'dyn("a") - dyn("b") == 0',
    'dyn("a") * dyn(2) == 0',
    'dyn("a") / dyn(2) == 0',
    "dyn(1.0) % dyn(2.0) == 0.0",
    '-dyn("a") == 0',
    '!dyn("a")',
    "dyn(1) in dyn(2)",
    "size(dyn(1)) == 1",
    'dyn(1) < dyn("a")',
    'dyn(1).contains("a")',
    '[dyn(1)].join() == ""',
]

AT_ONCE = [
    'int("x") == 1',
    "int(1e300) == 1",
    "uint(-1) == 1u",
    "uint(-1.0) == 1u",
    'double("x") == 1.0',
    'bool("yes")',
    'duration("soon") == duration("1s")',
    'timestamp("yesterday") == timestamp("2024-01-01T00:00:00Z")',
    '"%s".format([]) == ""',
    '"%d".format(["a"]) == ""',
    '"%o".format([true]) == ""',
    '"a".matches(dyn("["))',
]
"""Of constants: refused when the selector is read."""


@pytest.mark.parametrize("expression", TRUE)
def test_function_gives(expression: str) -> None:
    assert outcome(expression) == "true"


@pytest.mark.parametrize("expression", FAILS)
def test_operand_is_refused_when_it_is_there(expression: str) -> None:
    assert outcome(expression) == "runtime error"


@pytest.mark.parametrize("expression", AT_ONCE)
def test_constant_is_refused_at_once(expression: str) -> None:
    assert outcome(expression) == "compile error"
