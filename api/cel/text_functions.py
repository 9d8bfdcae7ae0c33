"""Functions of texts beyond the specification: cel-go's strings (version 2) and Kubernetes' `find` and `findAll`."""

from __future__ import annotations

from typing import Any

from tidelog.api.cel.declarations import Function, member, of
from tidelog.api.cel.errors import EvaluationError, no_overload
from tidelog.api.cel.patterns import pattern_of
from tidelog.api.cel.standard import double_text, to_string
from tidelog.api.cel.types import DYN, INT, STRING, list_of
from tidelog.api.cel.values import CelMap, Env, TypeValue, Uint, charge, size_of

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_TEXTS = list_of(STRING)
_LENGTH_MAX = 1 << 22
"""Arbitrary: no text grows longer than four million characters, whatever it costs."""


def _in_range(index: int, most: int) -> int:
    if 0 <= index <= most:
        return index
    raise EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    return text[_in_range(index, len(text)) :][:1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise EvaluationError(f"index out of range: {offset}")
    return min(offset, len(text)) if not part else text.find(part, offset)


def _last_index_of(text: str, part: str, *offset: int) -> int:
    if not offset:
        return len(text) if not part else text.rfind(part)
    start = offset[0]
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _lower(text: str) -> str:
    return "".join(c.lower() if c < "\x80" else c for c in text)


def _upper(text: str) -> str:
    return "".join(c.upper() if c < "\x80" else c for c in text)


def _replace(env: Env, text: Any, old: Any, new: Any, count: Any = -1) -> str:
    if not (type(text) is type(old) is type(new) is str) or type(count) is not int:
        raise no_overload("replace")
    if count == 0:
        return text
    found = len(text) + 1 if not old else text.count(old)
    found = found if count < 0 else min(found, count)
    grown = len(text) + found * max(0, len(new) - len(old))
    if grown > _LENGTH_MAX:
        raise EvaluationError("the text grows too long")
    charge(env, grown // 5)
    return text.replace(old, new, -1 if count < 0 else count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        parts = list(text)
        return (
            parts if count < 0 or len(parts) <= count else [*parts[: count - 1], "".join(parts[count - 1 :])]
        )
    return text.split(separator, -1 if count < 0 else count - 1)


def _substring(text: str, start: int, *end: int) -> str:
    if not end:
        return text[_in_range(start, len(text)) :]
    if start > end[0]:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end[0]}")
    return text[_in_range(start, len(text)) : _in_range(end[0], len(text))]


def _join(texts: list[Any], separator: str = "") -> str:
    if not all(type(text) is str for text in texts):
        raise no_overload("join")
    if sum(map(len, texts)) + len(separator) * len(texts) > _LENGTH_MAX:
        raise EvaluationError("the text grows too long")
    return separator.join(texts)


def _joined_cost(texts: list[Any], separator: str = "") -> int:
    return size_of(texts) + len(texts) * (1 + len(separator) // 10)


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(c, c) for c in text) + '"'


def _find(text: str, pattern: str) -> str:
    found = pattern_of(pattern).search(text)
    return "" if found is None else text[found[0] : found[1]]


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    return [text[start:end] for start, end in pattern_of(pattern).all(text, count)]


def _pattern_cost(text: str, pattern: str, count: int = 1) -> int:
    return pattern_of(pattern).cost(len(text))


def _all_cost(text: str, pattern: str, count: int = -1) -> int:
    # Each match is looked for anew; what a search read beyond its match is read again.
    cost = pattern_of(pattern).cost(len(text))
    return cost * (1 + len(text) // 4)


CLAUSES: dict[str, tuple[str, ...]] = {
    "s": (
        "bool",
        "bytes",
        "double",
        "duration",
        "int",
        "list",
        "map",
        "null",
        "string",
        "timestamp",
        "type",
        "uint",
    ),
    "d": ("int", "uint"),
    "b": ("bool", "int", "uint"),
    "o": ("int", "uint"),
    "x": ("bytes", "int", "string", "uint"),
    "X": ("bytes", "int", "string", "uint"),
}
"""Types that each clause of `format` can show. %f and %e are not supported: how they look depends on a locale."""


def clauses_of(template: str) -> list[str]:
    """The letters of a template's clauses."""
    found: list[str] = []
    position = template.find("%")
    while position >= 0:
        clause = template[position + 1 : position + 2]
        if clause != "%":
            found.append(clause)
        position = template.find("%", position + 2)
    return found


def _format(env: Env, template: Any, values: Any) -> str:
    if type(template) is not str or type(values) is not list:
        raise no_overload("format")
    if any(clause not in CLAUSES for clause in clauses_of(template)):
        raise EvaluationError("unrecognized or unsupported formatting clause")
    parts: list[str] = []
    position = used = 0
    while position < len(template):
        stop = template.find("%", position)
        if stop < 0:
            parts.append(template[position:])
            break
        parts.append(template[position:stop])
        clause = template[stop + 1 : stop + 2]
        position = stop + 2
        if clause == "%":
            parts.append("%")
            continue
        if used >= len(values):
            raise EvaluationError(f"index {used} out of range")
        parts.append(_clause(env, clause, values[used]))
        charge(env, 1 + len(parts[-1]) // 10)
        used += 1
    return "".join(parts)


def _clause(env: Env, clause: str, value: Any) -> str:
    kind = type(value)
    if clause == "s":
        return _shown(env, value, nested=False)
    whole = value.value if kind is Uint else value
    if clause == "d" and kind in (int, Uint):
        return str(whole)
    if clause == "b" and kind in (int, Uint, bool):
        return f"{int(whole):b}"
    if clause == "o" and kind in (int, Uint):
        return f"{whole:o}"
    if clause in ("x", "X"):
        if kind in (int, Uint):
            return format(whole, clause)
        if kind is str or kind is bytes:
            digits: str = (value.encode("utf-8", "replace") if kind is str else value).hex()
            return digits.upper() if clause == "X" else digits
    raise EvaluationError(f"formatting clause %{clause} is not supported for this value")


def _shown(env: Env, value: Any, nested: bool) -> str:
    charge(env, 1)
    kind = type(value)
    if kind is list:
        return "[" + ", ".join(_shown(env, item, True) for item in value) + "]"
    if kind is CelMap:
        pairs = ((_shown(env, key, True), _shown(env, item, True)) for key, item in value.entries.values())
        return "{" + ", ".join(f"{key}:{item}" for key, item in sorted(pairs)) + "}"
    if value is None:
        return "null"
    if kind is TypeValue:
        return str(value.name)
    if kind is float and nested:
        return f"{value:.6f}"
    text = double_text(value) if kind is float else to_string(value)
    return _quote(text) if nested and kind is str else text


FUNCTIONS: tuple[Function, ...] = (
    Function("charAt", (member((STRING, INT), STRING, _char_at),)),
    Function(
        "indexOf",
        (member((STRING, STRING), INT, _index_of), member((STRING, STRING, INT), INT, _index_of)),
    ),
    Function(
        "lastIndexOf",
        (member((STRING, STRING), INT, _last_index_of), member((STRING, STRING, INT), INT, _last_index_of)),
    ),
    Function("lowerAscii", (member((STRING,), STRING, _lower),)),
    Function("upperAscii", (member((STRING,), STRING, _upper),)),
    Function(
        "replace",
        (member((STRING, STRING, STRING), STRING), member((STRING, STRING, STRING, INT), STRING)),
        _replace,
        wants_env=True,
    ),
    Function(
        "split", (member((STRING, STRING), _TEXTS, _split), member((STRING, STRING, INT), _TEXTS, _split))
    ),
    Function(
        "substring",
        (member((STRING, INT), STRING, _substring), member((STRING, INT, INT), STRING, _substring)),
    ),
    Function("trim", (member((STRING,), STRING, lambda text: text.strip(_SPACE)),)),
    Function(
        "join",
        (
            member((_TEXTS,), STRING, _join, _joined_cost),
            member((_TEXTS, STRING), STRING, _join, _joined_cost),
        ),
    ),
    Function("strings.quote", (of((STRING,), STRING, _quote),)),
    Function("format", (member((STRING, list_of(DYN)), STRING),), _format, wants_env=True),
    Function("find", (member((STRING, STRING), STRING, _find, _pattern_cost),)),
    Function(
        "findAll",
        (
            member((STRING, STRING), _TEXTS, _find_all, _all_cost),
            member((STRING, STRING, INT), _TEXTS, _find_all, _all_cost),
        ),
    ),
)
