"""Deliberate mistakes in the store of a log in a database. Each must be caught by a story (`test_database.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tidelog.eventlog.postgres import reading, statements, store
from tidelog.eventlog.postgres.session import ConnectionLost
from tidelog.eventlog.records import Record
from tidelog.eventlog.store import Head

Bug = Callable[[], AbstractContextManager[object]]


def append_without_the_lease() -> AbstractContextManager[object]:
    """An append does not look whether the lease is still ours."""
    return patch.object(statements, "_APPEND", statements._APPEND.replace(" WHERE term = $1", ""))


def append_wherever_the_head_is() -> AbstractContextManager[object]:
    """An append does not look whether the head is where it was left."""
    return patch.object(
        statements, "_APPEND", statements._APPEND.replace("head.seq = $6 AND head.digest = $7", "true")
    )


def acknowledge_what_nobody_answered() -> AbstractContextManager[object]:
    """A lost connection is taken for a commit."""
    right = store.PostgresStore._append

    async def wrong(self: store.PostgresStore, records: Sequence[Record], head: Head) -> None:
        call = self._writer.call

        async def optimistic(*args: Any) -> Any:
            try:
                return await call(*args)
            except ConnectionLost:
                return None

        with patch.object(self._writer, "call", optimistic):
            await right(self, records, head)

    return patch.object(store.PostgresStore, "_append", wrong)


def take_any_head_for_ours() -> AbstractContextManager[object]:
    """Whatever was found where the group should be is taken for the group."""

    async def wrong(self: store.PostgresStore, head: Head) -> bool:
        return True

    return patch.object(store.PostgresStore, "_is_committed", wrong)


def trust_the_head_before_the_standby_has_it() -> AbstractContextManager[object]:
    """A commit that is found in the head is acknowledged at once, although nobody waited for the standby."""

    async def wrong(self: store.PostgresStore, head: Head) -> None: ...

    return patch.object(store.PostgresStore, "_confirm", wrong)


def forget_what_was_known() -> AbstractContextManager[object]:
    """Nobody compares the log with what this machine knows of it."""

    async def wrong(*_: Any) -> None: ...

    return patch.object(reading, "compare", wrong)


def witness_before_the_commit() -> AbstractContextManager[object]:
    """The witness is told of a group that may never be committed."""
    right = store.PostgresStore._append

    async def wrong(self: store.PostgresStore, records: Sequence[Record], head: Head) -> None:
        self.witness.saw(head)
        await right(self, records, head)

    return patch.object(store.PostgresStore, "_append", wrong)


@contextmanager
def _both(one: AbstractContextManager[object], two: AbstractContextManager[object]) -> Iterator[None]:
    with one, two:
        yield


BUGS: dict[str, Bug] = {
    "append without the lease": append_without_the_lease,
    "append wherever the head is": append_wherever_the_head_is,
    "acknowledge what nobody answered": acknowledge_what_nobody_answered,
    "take any head for ours": take_any_head_for_ours,
    "trust the head before the standby has it": trust_the_head_before_the_standby_has_it,
    "forget what was known": forget_what_was_known,
    "witness before the commit": witness_before_the_commit,
}
