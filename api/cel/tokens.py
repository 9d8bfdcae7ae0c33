"""An expression as tokens: the longest that fits at each place, as CEL's grammar wants.

The pattern is ours and fixed; only the text is a stranger's. No part of it can be matched in two ways, so it is linear.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tidelog.api.cel.errors import InvalidExpression
from tidelog.api.cel.values import INT_MAX, UINT_MAX, Uint

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TOKEN = re.compile(
    rf"""(?:[\t\x20\r\n\f]+|//[^\n]*)
    | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    | (?P<uint>0x[0-9a-fA-F]+[uU]|\d+[uU])
    | (?P<int>0x[0-9a-fA-F]+|\d+)
    | (?P<string>[bB]?(?:
          [rR]\"{{3}}(?s:.)*?\"{{3}} | [rR]'{{3}}(?s:.)*?'{{3}}
        | [rR]\"(?!\"\")[^\"\n\r]*\" | [rR]'(?!'')[^'\n\r]*'
        | \"{{3}}(?:[^\\\"]|\"(?!\"\")|{_ESCAPE})*?\"{{3}} | '{{3}}(?:[^\\']|'(?!'')|{_ESCAPE})*?'{{3}}
        | \"(?!\"\")(?:[^\\\"\n\r]|{_ESCAPE})*\" | '(?!'')(?:[^\\'\n\r]|{_ESCAPE})*'
        | \"\" | ''))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>`[A-Za-z0-9_.\-/\x20]+`)
    | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:()\[\]{{}},.])
    """,
    re.VERBOSE | re.ASCII,
)
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


class Token(NamedTuple):
    """`kind` is name, quoted, sign, literal or end; `value` is the value of a literal."""

    kind: str
    text: str
    at: int
    value: Any = None


def tokens(text: str) -> list[Token]:
    """All tokens, and one for the end."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidExpression("unexpected character", position + 1)
        kind = match.lastgroup
        if kind is not None:
            found.append(_token(kind, match[0], position + 1))
        position = match.end()
    found.append(Token("end", "", len(text) + 1))
    return found


def _token(kind: str, text: str, at: int) -> Token:
    if kind in ("sign", "name"):
        if text in ("true", "false"):
            return Token("literal", text, at, text == "true")
        return Token("literal", text, at, None) if text == "null" else Token(kind, text, at)
    if kind == "quoted":
        return Token(kind, text[1:-1], at)
    if kind == "string":
        return Token("literal", text, at, _string(text, at))
    if kind == "float":
        return Token("float", text, at)
    if kind == "int":
        return Token("int", text, at)
    return Token("literal", text, at, Uint(_whole(text[:-1], UINT_MAX, "uint", at)))


def _whole(text: str, most: int, kind: str, at: int) -> int:
    if len(text) > 40:
        text = text.lstrip("0") if not text.startswith("0x") else "0x" + text[2:].lstrip("0")
    value = int(text or "0", 16 if text.startswith("0x") else 10) if len(text) <= 40 else most + 1
    if value > most:
        raise InvalidExpression(f"invalid {kind} literal", at)
    return value


def signed_literal(token: Token, negative: bool) -> int | float:
    """The value of a number, with the sign that belongs to it."""
    if token.kind == "int":
        value = _whole(token.text, INT_MAX + negative, "int", token.at)
        return -value if negative else value
    number = float(token.text)
    if number in (float("inf"), float("-inf")):
        raise InvalidExpression("invalid double literal", token.at)
    return -number if negative else number


def _string(text: str, at: int) -> str | bytes:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_bytes = text[0] in "bB"
    text = text[1:] if is_bytes else text
    is_raw = text[0] in "rR"
    text = text[1:] if is_raw else text
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    body = text[width:-width]
    if is_raw or "\\" not in body:
        return body.encode("utf-8", "replace") if is_bytes else body
    return _unescaped(body, is_bytes, at)


def _unescaped(body: str, is_bytes: bool, at: int) -> str | bytes:
    parts: list[str | bytes] = []
    position = 0
    while position < len(body):
        stop = body.find("\\", position)
        if stop != position:
            parts.append(body[position : len(body) if stop < 0 else stop])
            position = len(body) if stop < 0 else stop
            continue
        letter = body[position + 1]
        if letter in _DIGITS:
            end = position + 2 + _DIGITS[letter]
            parts.append(_character(int(body[position + 2 : end], 16), letter, is_bytes, at))
        elif letter in "0123":
            end = position + 4
            parts.append(_character(int(body[position + 1 : end], 8), "x", is_bytes, at))
        else:
            end = position + 2
            parts.append(_SIMPLE.get(letter, letter))
        position = end
    if not is_bytes:
        return "".join(part for part in parts if isinstance(part, str))
    return b"".join(part if isinstance(part, bytes) else part.encode("utf-8", "replace") for part in parts)


def _character(code: int, letter: str, is_bytes: bool, at: int) -> str | bytes:
    if is_bytes:
        if letter in "uU":
            raise InvalidExpression("bytes have no unicode escapes", at)
        return bytes([code])
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise InvalidExpression("invalid unicode code point", at)
    return chr(code)
