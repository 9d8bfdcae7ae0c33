"""Work that is done in steps, between which others have their turn: generators that yield between two steps, and return what they found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]

WORDS_PER_STEP = 20_000
"""So many are sorted at once, more or less; ten milliseconds."""

VALUES_PER_STEP = 20_000
"""So many are listed at once, if each is a list that has to be made; ten milliseconds."""


def whole_result(work: Steps[T]) -> T:
    """The result, all at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found


def listing(values: Iterable[T]) -> Steps[list[T]]:
    """A list of them, which must not change between two steps."""
    source = iter(values)
    found = list(islice(source, VALUES_PER_STEP))
    while some := list(islice(source, VALUES_PER_STEP)):
        yield
        found += some
    return found


def sorting(words: Iterable[str]) -> Steps[list[str]]:
    """The words, in order; they must not change between two steps."""
    some = yield from listing(words)
    if len(some) <= WORDS_PER_STEP:
        some.sort()
        return some
    # What is between two of these is sorted by itself.
    ends = sorted(some[:: WORDS_PER_STEP // 8])[8::8]
    parts: list[list[str]] = [[] for _ in range(len(ends) + 1)]
    for start in range(0, len(some), WORDS_PER_STEP):
        yield
        for word in some[start : start + WORDS_PER_STEP]:
            parts[bisect_right(ends, word)].append(word)
    found: list[str] = []
    for part in parts:
        yield
        part.sort()
        found += part
    return found
