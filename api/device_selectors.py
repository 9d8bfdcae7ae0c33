"""The part of CEL that selectors of devices mostly use.

    device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model in ["a100", "h100"]

There are string, integer and boolean literals, lists of them after `in`, the comparisons, `&&`, `||`, `!` and
parentheses, over `device.driver` and `device.attributes["domain"].name`. Everything else of CEL is refused with its
position, at admission, so that no selector is ever half understood.

As in CEL an attribute that a device lacks is an error, which `&&` and `||` absorb where the other side decides alone; a
selector that ends in an error does not match. An expression is parsed once into closures and cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from tidelog.api.objects import Device

LENGTH_MAX = 10 << 10
DEPTH_MAX = 32

Value = str | int | bool
Matcher = Callable[[str, Device], bool]
"""Given the driver and a device of it."""

_Operand = Callable[[str, Device], Value | None]
_Test = Callable[[str, Device], bool | None]
"""None is CEL's error."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<int>-?\d+\b)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[<>!()\[\],.])
      | (?P<end>$)
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class DeviceSelectorError(ValueError):
    """The expression is no CEL, or CEL that is not supported here; the position counts from 1."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"position {position}: {why}")
        self.position = position


@lru_cache(maxsize=4096)
def device_matcher(expression: str) -> Matcher:
    """The expression as a function. Raises DeviceSelectorError."""
    if len(expression) > LENGTH_MAX:
        raise DeviceSelectorError(LENGTH_MAX, f"may not be more than {LENGTH_MAX} characters")
    test = _Parser(expression).whole()
    return lambda driver, device: test(driver, device) is True


class _Parser:
    """Recursive descent; `depth` bounds the recursion."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.kind = ""
        self.token = ""
        self.start = 0
        self.depth = 0
        self.advance()

    def advance(self) -> None:
        found = _TOKEN.match(self.text, self.position)
        if found is None:
            skipped = len(self.text[self.position :]) - len(self.text[self.position :].lstrip())
            raise DeviceSelectorError(self.position + skipped + 1, "unexpected character")
        self.kind = found.lastgroup or ""
        self.token = found[self.kind]
        self.start = found.start(self.kind)
        self.position = found.end()

    def fail(self, why: str) -> DeviceSelectorError:
        return DeviceSelectorError(self.start + 1, why)

    def expect(self, sign: str) -> None:
        if self.token != sign or self.kind != "sign":
            raise self.fail(f"expected {sign}")
        self.advance()

    def takes(self, *signs: str) -> str:
        """The sign that comes next if it is one of these, consumed."""
        if self.kind != "sign" or self.token not in signs:
            return ""
        sign = self.token
        self.advance()
        return sign

    def whole(self) -> _Test:
        test = self.alternatives()
        if self.kind != "end":
            raise self.fail("expected an operator or the end")
        return test

    def alternatives(self) -> _Test:
        tests = [self.conditions()]
        while self.takes("||"):
            tests.append(self.conditions())
        return tests[0] if len(tests) == 1 else _joined(tests, True)

    def conditions(self) -> _Test:
        tests = [self.negation()]
        while self.takes("&&"):
            tests.append(self.negation())
        return tests[0] if len(tests) == 1 else _joined(tests, False)

    def negation(self) -> _Test:
        if not self.takes("!"):
            return self.comparison()
        with_depth = self.deeper(self.negation)
        return lambda driver, device: _negated(with_depth(driver, device))

    def deeper(self, rule: Callable[[], _Test]) -> _Test:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fail(f"must not be nested deeper than {DEPTH_MAX} levels")
        test = rule()
        self.depth -= 1
        return test

    def comparison(self) -> _Test:
        if self.takes("("):
            test = self.deeper(self.alternatives)
            self.expect(")")
            return test
        left = self.operand()
        sign = self.takes(*_COMPARISONS)
        if sign:
            return _compared(left, sign, self.operand())
        if self.kind == "name" and self.token == "in":
            self.advance()
            return _listed(left, self.literals())
        return lambda driver, device: _as_test(left(driver, device))

    def operand(self) -> _Operand:
        if self.kind == "name" and self.token == "device":
            self.advance()
            return self.field()
        value = self.literal()
        return lambda _driver, _device: value

    def field(self) -> _Operand:
        self.expect(".")
        if self.kind != "name" or self.token not in ("driver", "attributes"):
            raise self.fail("only device.driver and device.attributes are supported")
        field = self.token
        self.advance()
        if field == "driver":
            return lambda driver, _device: driver
        self.expect("[")
        if self.kind != "string":
            raise self.fail("expected the domain as a string")
        domain = self.literal()
        self.expect("]")
        self.expect(".")
        if self.kind != "name":
            raise self.fail("expected the name of an attribute")
        name = self.token
        self.advance()
        if self.token in ("(", "[", ".") and self.kind == "sign":
            raise self.fail("functions and fields of attributes are not supported")
        return lambda driver, device: attribute(driver, device, str(domain), name)

    def literal(self) -> Value:
        kind, token = self.kind, self.token
        if kind == "string":
            value: Value = re.sub(r"\\(.)", self.escape, token[1:-1], flags=re.DOTALL)
        elif kind == "int":
            if len(token) > 20:
                raise self.fail("integer is too long")
            value = int(token)
        elif token in ("true", "false"):
            value = token == "true"
        else:
            raise self.fail("expected device.driver, device.attributes, a string, an integer or a boolean")
        self.advance()
        return value

    def escape(self, found: re.Match[str]) -> str:
        character = _ESCAPES.get(found[1])
        if character is None:
            raise self.fail(f"escape \\{found[1]} is not supported")
        return character

    def literals(self) -> tuple[Value, ...]:
        self.expect("[")
        values: list[Value] = []
        while not self.takes("]"):
            if values:
                self.expect(",")
            values.append(self.literal())
        return tuple(values)


def attribute(driver: str, device: Device, domain: str, name: str) -> Value | None:
    """The value of a device's attribute; one without a domain belongs to the driver's. None if it is not there."""
    found = device.attributes.get(f"{domain}/{name}")
    if found is None and domain == driver:
        found = device.attributes.get(name)
    if found is None:
        return None
    values = (found.string, found.int_value, found.bool_value, found.version)
    return next((value for value in values if value is not None), None)


def _joined(tests: list[_Test], decisive: bool) -> _Test:
    """`||` if True is decisive, `&&` if False is: one decisive side is enough, whatever errors the others have."""

    def test(driver: str, device: Device) -> bool | None:
        result: bool | None = not decisive
        for one in tests:
            found = one(driver, device)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    return test


def _negated(result: bool | None) -> bool | None:
    return None if result is None else not result


def _as_test(value: Value | None) -> bool | None:
    return value if isinstance(value, bool) else None


def _equal(left: Value, right: Value) -> bool:
    return type(left) is type(right) and left == right


def _compared(left: _Operand, sign: str, right: _Operand) -> _Test:
    def test(driver: str, device: Device) -> bool | None:
        a, b = left(driver, device), right(driver, device)
        if a is None or b is None:
            return None
        if sign == "==":
            return _equal(a, b)
        return not _equal(a, b) if sign == "!=" else _ordered(a, sign, b)

    return test


def _ordered(a: Value, sign: str, b: Value) -> bool | None:
    """Two of a kind have an order; others are an error."""
    if isinstance(a, str) and isinstance(b, str):
        order = (a > b) - (a < b)
    elif isinstance(a, int) and type(a) is type(b):
        order = (a > b) - (a < int(b))
    else:
        return None
    if sign == "<":
        return order < 0
    if sign == "<=":
        return order <= 0
    return order > 0 if sign == ">" else order >= 0


def _listed(left: _Operand, values: tuple[Value, ...]) -> _Test:
    def test(driver: str, device: Device) -> bool | None:
        found = left(driver, device)
        return None if found is None else any(_equal(found, value) for value in values)

    return test
