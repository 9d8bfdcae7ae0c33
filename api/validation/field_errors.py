"""Collects the broken rules of one object, in the order in which they are met, worded as the API server words them.

A validator takes an `ErrorList` and a path and adds what it finds; it never raises, so that all errors of an object are
reported at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tidelog.api.errors import ErrorKind, FieldError

NOT_NEGATIVE = "must be greater than or equal to 0"
POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"
INT32_MAX = (1 << 31) - 1
ERRORS_MAX = 100
"""At most this many errors are reported for one object or text; nobody reads more."""


def in_range(low: int, high: int) -> str:
    """The rule of a number in a closed interval."""
    return f"must be between {low} and {high}, inclusive"


class ErrorList(list[FieldError]):
    """The errors found so far, or the first of them if there are very many."""

    def add(self, path: str, kind: ErrorKind, value: object = None, rule: str = "") -> None:
        """Add any error."""
        if len(self) < ERRORS_MAX:
            self.append(FieldError(path=path, kind=kind, value=value, rule=rule))

    def required(self, path: str, rule: str = "") -> None:
        """The value is missing."""
        self.add(path, "Required", None, rule)

    def invalid(self, path: str, value: object, rule: str) -> None:
        """The value breaks the rule."""
        self.add(path, "Invalid", value, rule)

    def invalid_each(self, path: str, value: object, rules: Iterable[str]) -> None:
        """The value breaks each of these rules."""
        for rule in rules:
            self.add(path, "Invalid", value, rule)

    def not_supported(self, path: str, value: object, supported: Iterable[str]) -> None:
        """The value is none of those that exist."""
        listed = ", ".join(f'"{one}"' for one in sorted(supported))
        self.add(path, "NotSupported", value, f"supported values: {listed}")

    def unique(self, path: str, value: Hashable, seen: set[Any]) -> bool:
        """Whether this is the first of its value; one that was seen is a duplicate."""
        if value in seen:
            self.duplicate(path, value)
            return False
        seen.add(value)
        return True

    def duplicate(self, path: str, value: object, rule: str = "") -> None:
        """The value is there already."""
        self.add(path, "Duplicate", value, rule)

    def forbidden(self, path: str, rule: str) -> None:
        """The field must not be set, or not be changed, here."""
        self.add(path, "Forbidden", None, rule)

    def too_many(self, path: str, count: int, limit: int) -> None:
        """The list is longer than it may be."""
        self.add(path, "TooMany", count, f"must have at most {limit} item{'s' if limit != 1 else ''}")

    def too_long(self, path: str, limit: int) -> None:
        """The text is longer than it may be."""
        self.add(path, "TooLong", None, f"may not be more than {limit} bytes")

    def not_found(self, path: str, value: object, rule: str = "") -> None:
        """The value names something that does not exist."""
        self.add(path, "NotFound", value, rule)
