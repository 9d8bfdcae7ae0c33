"""The API server as the rest of this folder sees it: requests that are answered, and streams of lines that end.

    send(request)    ──► Answer: whatever its HTTP status            raises NotSent, NoAnswer
    stream(request)  ──► Stream: its status, then lines as they come raises NotSent, NoAnswer

Three implementations: `session.Session` speaks HTTP, `tests/kube` has a server in memory and a player of recorded exchanges. What is
beyond bytes and statuses (a watch, an eviction's refusal) is the callers' part, so that each of them is tried on all three.

A request that may have been carried out although no answer came (`NoAnswer`) is told apart from one that certainly was not (`NotSent`):
after the first one only a read can tell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from tidelog.api.errors import TidelogError
from tidelog.api.wire import ApiStatus, read_status

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class ClusterError(TidelogError):
    """The cluster cannot be reached, or does not let us do what was asked for."""


class NotSent(ClusterError):
    """The connection could not be made: nothing of the request has reached the server."""


class NoAnswer(ClusterError):
    """The connection broke, or the time was over, before there was an answer. The request may have been carried out."""


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to the server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Any = None
    """Sent as JSON."""
    content_type: str = JSON
    seconds: float = 30.0
    """After so long there is no answer. Of a stream: after so long without a line."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The server's answer."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    """Seconds, where the server named them."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def told(self) -> ApiStatus:
        """The Status in the body. One that is no JSON counts by the HTTP status alone; never decide by the words."""
        return told(self.body, self.status)


def told(body: bytes | msgspec.Raw, status: int) -> ApiStatus:
    """A Status from what came with this HTTP status."""
    found = read_status(body)
    if found.code:
        return found
    return msgspec.structs.replace(
        found, code=status, message=found.message or bytes(body)[:256].decode("utf-8", "replace").strip()
    )


class Stream(Protocol):
    """An answer whose body is read as it comes."""

    status: int
    retry_after: float | None

    async def read(self) -> bytes:
        """The rest, all of it: of an answer that turned out not to be a stream."""

    def lines(self) -> AsyncIterator[list[bytes]]:
        """Whole lines, as many as have come, until the server ends it. Raises NoAnswer if the connection breaks."""


class ClusterPort(Protocol):
    """An API server."""

    name: str
    """Its name in messages."""

    async def send(self, request: Request) -> Answer:
        """Send it and wait for the answer, of whatever status."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send it, and read the answer while the block runs."""

    async def renew(self) -> None:
        """Read the credentials again: the server did not take them."""
