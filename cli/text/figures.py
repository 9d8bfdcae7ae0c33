"""Figures as text: names and numbers, what is nested indented, a list of equal rows as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.api.text import safe, table


def as_text(figures: Mapping[str, Any]) -> str:
    """All of it, for people."""
    return "\n".join(_lines(figures, ""))


def _lines(figures: Mapping[str, Any], indent: str) -> Iterator[str]:
    plain = [
        name for name, value in figures.items() if not isinstance(value, Mapping) and not _is_table(value)
    ]
    width = max(map(len, map(_words, plain)), default=0)
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield f"{indent}{_words(name)}:"
            yield from _lines(value, indent + "  ")
        elif _is_table(value):
            yield f"{indent}{_words(name)}:"
            columns = list(dict.fromkeys(key for row in value for key in row))
            rows = [[_shown(row[key]) if key in row else "" for key in columns] for row in value]
            text = table([_words(column).upper() for column in columns], rows)
            yield from (f"{indent}  {line}" for line in text.splitlines())
        else:
            yield f"{indent}{_words(name).ljust(width)}  {_shown(value)}"


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _words(name: object) -> str:
    return safe(name).replace("_", " ")


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return safe(value)
