"""Opening and closing logs, readers and histories, all in one way.

async with open_log(path) as log: …        closed when the block is left
log = await open_log(path)                 to be closed by hand: `await log.close()`
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar


class Closing:
    """An async context manager that closes itself."""

    async def close(self) -> None:
        """Let go of everything. Closing again does nothing."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


C = TypeVar("C", bound=Closing)


class Opening(Generic[C]):
    """Something that is being opened: to be awaited, or entered."""

    def __init__(self, opening: Coroutine[Any, Any, C]) -> None:
        self._opening = opening
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._opening.__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._opening
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()


P = ParamSpec("P")


def opens(make: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """Decorate a coroutine function that opens something."""

    @wraps(make)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[C]:
        return Opening(make(*args, **kwargs))

    return opening
