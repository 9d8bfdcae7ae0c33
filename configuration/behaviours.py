"""Numbered changes of what is decided, so that old logs still verify under the behaviour that made them.

A later version that would decide an old log differently gives the change a number here and asks for it where the two part ways:

    if self.handle.behaves(3):      # in a plugin; `configuration.behaves(3)` in the core
        …the new way
    else:
        …the old way

The numbers in force are part of the configuration that the log records: a new configuration gets all that there are, an old one keeps those
that it was recorded with, through restarts and replays. A number that this version does not know was given by a newer one, and is refused.
A number is never given out again, and its old way stays as long as logs of that age are to verify.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.api.errors import TidelogError

BEHAVIOURS: dict[int, str] = {}
"""Number → what changed. Empty before the first release: there are no old logs yet."""


def all_behaviours() -> tuple[int, ...]:
    """What a configuration that is made today asks for."""
    return tuple(sorted(BEHAVIOURS))


def check_behaviours(numbers: Iterable[int]) -> None:
    """Raises TidelogError for a number that this version does not know."""
    unknown = sorted(number for number in numbers if number not in BEHAVIOURS)
    if unknown:
        raise TidelogError(
            f"the log's configuration asks for behaviour {', '.join(map(str, unknown))}, which this tidelog does not know: "
            "a newer one wrote it; use that one, or a newer one"
        )
