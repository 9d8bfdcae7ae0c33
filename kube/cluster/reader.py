"""One kind of objects, from the API server into the log: list, watch, resume, and list again where that is not enough.

    position known ─► watch from there ────────────────────────────┐ end of stream: again from the last version seen
    none ───────────► streaming list, then the same stream goes on ┤
                      (or pages and a watch, on an older server)    └ 410, or a server that was set back: list again

- A list is told as the difference to what the log has, and ends with `KindSynced`. Where a gap is found, `KindGap` comes first.
- Events whose stored part is the same append nothing (`view.KindView`); a `Cursor` now and then says how far the watch has come.
- A watch from a version that the server has not reached is served in silence. So after each connection, and every few minutes, the reader
  asks for the server's version; if that is lower, the server was set back, and everything is listed anew.
- 401 and 403 come for seconds after an API server has started: they are waited out and told, not believed.

What it does between two reads of the socket is short: split, decode, compare, queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Literal

import msgspec

from tidelog.api.errors import printable
from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import Object
from tidelog.api.times import NANOS
from tidelog.api.wire import Meta, Page, Unreadable, read_change, read_line, read_meta, read_page
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.attachment import is_newer
from tidelog.eventlog.records import Draft, KindGap, KindSynced, Watched
from tidelog.kube.cluster.codec import Codec
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.port import ClusterError, ClusterPort, Request, Stream, told
from tidelog.kube.cluster.view import AUTHOR, KindView, Unread
from tidelog.kube.cluster.waiting import Backoff, pause

PAGE = 500
IDLE_SECONDS = 90.0
"""A watch without a line for so long is broken: bookmarks come every minute or so."""
CHECK_SECONDS = 300.0
DECODED_PER_TURN = 100
"""So many objects are decoded before other tasks get their turn: about a millisecond."""
SHORT_MAX = 3
"""So many watches in a row may end within a second before the next one waits."""
PERIOD_SECONDS = (300, 600)
"""How long a watch may last: the server ends it somewhere between."""

GapReason = Literal["expired", "wentBack", "undecodable", "diverged"]
_log = logging.getLogger("tidelog.cluster")


class Gap(Exception):
    """Raised where the watch cannot be continued."""

    def __init__(self, reason: GapReason) -> None:
        super().__init__(reason)
        self.reason = reason


class _Retry(Exception):
    """Try again, after so many seconds or as the backoff says."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Counts(msgspec.Struct):
    """Counts of a reader's work, for metrics."""

    events: int = 0
    restarts: int = 0
    relists: dict[str, int] = {}
    unread: int = 0


class KindReader:
    """Keeps the log's objects of one kind as the server's. `run` never ends by itself, unless the kind is not served."""

    def __init__(
        self,
        kind: Kind,
        watched: Watched,
        port: ClusterPort,
        inbox: Inbox,
        clock: Clock,
        codec: Codec,
        view: KindView,
        *,
        position: str = "",
        random: Random | None = None,
        server: ServerTraits | None = None,
        changed: Callable[[], None] = lambda: None,
        consumed: Callable[[], Awaitable[None]] | None = None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """`consumed`: returns when the scheduler has consumed what is durable now. `position`: where the log's last session was; empty if the kind has to be listed."""
        self.kind = kind
        self.view = view
        self.position = position
        self.counts = Counts()
        self.synced = False
        """The log agrees with the server, up to `position`."""
        self.trouble = ""
        """Why the server could not be read the last time it was tried; empty if it could."""
        self.heard_at = clock.now()
        """When the server last said something."""
        self._watched = watched
        self._port = port
        self._inbox = inbox
        self._clock = clock
        self._codec = codec
        self._random = random or Random()
        self._server = server or ServerTraits()
        self._changed = changed
        self._consumed = consumed
        self._check_seconds = check_seconds
        self._backoff = Backoff(0.8, 30.0, self._random)
        self._how: Literal["initial", "relist", "resume"] = "resume" if position else "initial"
        self._reason = ""
        self._from_scratch = False
        """The server was set back: what was seen of it does not count."""
        self._relist = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # --- from outside -------------------------------------------------------------------------------------------------

    def list_again(self) -> None:
        """List as soon as possible, whatever is known: `synced` is False until that has been done."""
        self.synced = False
        self._relist.set()
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled."""
        short = 0
        while True:
            began = self._clock.now()
            try:
                self._reading = asyncio.create_task(self._read())
                await self._reading
                if self._clock.now() - began >= NANOS:
                    self._backoff.forget()
                    short = 0
                elif (short := short + 1) > SHORT_MAX:
                    await pause(self._clock, self._backoff.next())
            except Gap as gap:
                await self._open_gap(gap.reason)
            except _NotServed:
                return
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._relist.is_set() or (task is not None and task.cancelling()):
                    raise
            except _Retry as error:
                self._troubled(str(error))
                await pause(self._clock, self._backoff.next() if error.seconds is None else error.seconds)
            except ClusterError as error:
                self._troubled(str(error))
                await pause(self._clock, self._backoff.next())

    # --- one connection -----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        if self._relist.is_set():
            self._relist.clear()
            self.position, self._how, self._reason = "", "relist", "asked for"
        if not self.position and not self._server.streams_lists:
            await self._list_by_pages()
        listing = not self.position
        async with self._port.stream(self._watch_request(listing)) as stream:
            if stream.status != 200:
                await self._refused(stream, listing)
                return
            self.counts.restarts += 1
            self._heard()
            self.trouble = ""
            lines = self._lines(stream)
            if listing:
                await self._list_from(lines)
            elif not self.synced:
                await self._synced(
                    KindSynced(kind=self.kind.name, resource_version=self.position, how="resume")
                )
            else:
                await self._check_version()
            await self._follow(lines)

    def _watch_request(self, listing: bool) -> Request:
        seconds = self._random.randint(*PERIOD_SECONDS)
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if listing:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
            # As of now, which is never older than what was seen: unless the server was set back, and then it must not be waited for.
            query["resourceVersion"] = ""
        else:
            query["resourceVersion"] = self.position
        return Request(
            method="GET", path=self._watched.path, query=self._selected(query), seconds=IDLE_SECONDS
        )

    def _selected(self, query: dict[str, str]) -> dict[str, str]:
        return {**query, "fieldSelector": self._watched.selector} if self._watched.selector else query

    async def _refused(self, stream: Stream, listing: bool) -> None:
        status = told(await stream.read(), stream.status)
        if listing and status.code in (400, 422):
            # Without WatchList: lists by pages, from now on for every kind.
            self._server.streams_lists = False
            return
        await self._raise(stream.status, status.code, status.message, stream.retry_after)

    async def _raise(self, http: int, code: int, message: str, retry_after: float | None) -> None:
        if code == 410:
            raise Gap("expired")
        if http == 401:
            await self._port.renew()
            # With new credentials at once, but only once.
            raise _Retry(
                f"{self.kind.plural}: 401 {message}",
                0.0 if self._backoff.next() and self._backoff.failures == 1 else None,
            )
        if http == 404:
            _log.warning("a kind is not served any more", extra=fields(kind=self.kind.name))
            self.trouble = "not served"
            raise _NotServed
        if http == 429:
            raise _Retry(f"{self.kind.plural}: 429 {message}", retry_after or 1.0)
        raise _Retry(f"{self.kind.plural}: {http} {message}", retry_after if http == 504 else None)

    async def _lines(self, stream: Stream) -> AsyncIterator[bytes]:
        """Each event, with a turn for other tasks now and then."""
        count = 0
        async for lines in stream.lines():
            self._heard()
            for line in lines:
                if not line.strip():
                    continue
                yield line
                count += 1
                if count % DECODED_PER_TURN == 0:
                    await asyncio.sleep(0)

    # --- listing ------------------------------------------------------------------------------------------------------

    async def _list_from(self, lines: AsyncIterator[bytes]) -> None:
        """The initial events of a streaming list, up to the bookmark that ends them."""
        listed: dict[str, Object | Unread] = {}
        # Where nothing is known each object has to be read anyway; otherwise most are as before, and their metadata tell that.
        at_once = not len(self.view)
        async for text in lines:
            if at_once and (found := read_change(self.kind.name, text)) is not None:
                self.counts.events += 1
                listed[self._codec.key(self.kind, found.metadata)] = self._codec.stored(found, None)
                continue
            event, raw = _event(text)
            if event == "ERROR":
                await self._error(raw)
            head = _head(raw)
            if event == "BOOKMARK":
                if head.ends_initial_events:
                    await self._listed(listed, head.resource_version)
                    return
                continue
            self.counts.events += 1
            key = self._key(head)
            if event == "DELETED":
                listed.pop(key, None)
            else:
                listed[key] = self._object(raw, head)
        raise _Retry(f"{self.kind.plural}: the stream ended before the list did")

    async def _list_by_pages(self) -> None:
        listed: dict[str, Object | Unread] = {}
        query, version = {"limit": str(PAGE)}, ""
        while True:
            answer = await self._port.send(
                Request(method="GET", path=self._watched.path, query=self._selected(query))
            )
            if not answer.ok:
                status = answer.told()
                if status.code == 410:
                    raise _Retry(f"{self.kind.plural}: the list was too slow, it begins anew")
                await self._raise(answer.status, status.code, status.message, answer.retry_after)
            self._heard()
            page = self._page(answer.body)
            version = version or page.resource_version
            for count, raw in enumerate(page.items, start=1):
                head = _head(raw)
                listed[self._key(head)] = self._object(raw, head)
                if count % DECODED_PER_TURN == 0:
                    await asyncio.sleep(0)
            if not page.token:
                break
            query = {"limit": str(PAGE), "continue": page.token}
        await self._listed(listed, version)

    async def _listed(self, listed: dict[str, Object | Unread], version: str) -> None:
        found = self.view.diff(listed, version)
        await self._inbox.put(found.drafts)
        self.position = version
        await self._synced(
            KindSynced(
                kind=self.kind.name,
                resource_version=version,
                how=self._how,
                reason=self._reason,
                objects=len(listed),
                added=found.added,
                changed=found.changed,
                removed=found.removed,
            )
        )

    async def _synced(self, body: KindSynced) -> None:
        await self._inbox.put([Draft(body=body, author=AUTHOR)])
        self._how, self._reason = "relist", ""
        await self._inbox.flushed()
        if self._consumed is not None:
            # What is durable is not known yet to who decides.
            await self._consumed()
        self.synced = True
        self.trouble = ""
        self._backoff.forget()
        self._changed()

    async def _open_gap(self, reason: GapReason) -> None:
        if self.position:
            body = KindGap(kind=self.kind.name, start=self.position, reason=reason)
            await self._inbox.put([Draft(body=body, author=AUTHOR)])
        _log.info("listing again", extra=fields(kind=self.kind.name, since=self.position, reason=reason))
        self.counts.relists[reason] = self.counts.relists.get(reason, 0) + 1
        if reason in ("wentBack", "diverged"):
            # What is decided now would rest on what is not so. After other gaps the log is only behind, as it always is a little.
            self.synced = False
        self.position, self._how, self._reason = "", "relist", reason
        self._changed()

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _follow(self, lines: AsyncIterator[bytes]) -> None:
        checked_at = self._clock.now()
        async for text in lines:
            drafts = self._change(text)
            if drafts is None:
                drafts = await self._other(text)
            if drafts:
                await self._inbox.put(drafts)
            if self.heard_at - checked_at > self._check_seconds * NANOS:
                checked_at = self.heard_at
                await self._check_version()

    def _change(self, line: bytes) -> list[Draft] | None:
        """Drafts for the log by a line that says how an object is now; None if this has to be looked at more closely."""
        found = read_change(self.kind.name, line)
        if found is None:
            return None
        meta = found.metadata
        if not is_newer(meta.resource_version, self.position):
            return []
        self.counts.events += 1
        self.position = meta.resource_version
        known = self.view.get(self._codec.key(self.kind, meta), meta.uid)
        return self.view.put(self._codec.stored(found, known))

    async def _other(self, line: bytes) -> list[Draft]:
        """The same of any line."""
        event, raw = _event(line)
        if event == "ERROR":
            await self._error(raw)
        head = _head(raw)
        version = head.resource_version
        if event == "BOOKMARK" or not is_newer(version, self.position):
            self._move(version)
            return []
        self.counts.events += 1
        self._move(version)
        if event == "DELETED":
            return self.view.leave(self._key(head), head.uid, version)
        found = self._object(raw, head)
        return self.view.unread(found) if isinstance(found, Unread) else self.view.put(found)

    def _move(self, version: str) -> None:
        if is_newer(version, self.position):
            self.position = version

    async def _check_version(self) -> None:
        """Raises Gap if the server is not as far as what was seen of it."""
        answer = await self._port.send(
            Request(method="GET", path=self._watched.path, query=self._selected({"limit": "1"}))
        )
        if answer.ok:
            version = self._page(answer.body).resource_version
            if version and is_newer(self.position, version):
                raise Gap("wentBack")

    async def _error(self, raw: msgspec.Raw) -> None:
        status = told(raw, 500)
        await self._raise(status.code, status.code, status.message, None)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _key(self, head: Meta) -> str:
        return self._codec.key(self.kind, head)

    def _object(self, raw: msgspec.Raw, head: Meta) -> Object | Unread:
        key, version = self._key(head), head.resource_version
        known = self.view.get(key, head.uid)
        if known is not None and version and known.metadata.resource_version == version:
            return known
        try:
            return self._codec.read(self.kind, raw, known)
        except Unreadable as error:
            self.counts.unread += 1
            _log.warning("an object cannot be read", extra=fields(key=key, error=str(error)))
            return Unread(key, head.uid, version, printable(error.why, 256))

    def _page(self, body: bytes) -> Page:
        try:
            return read_page(body)
        except Unreadable as error:
            raise _Retry(f"{self.kind.plural}: {error}") from error

    # --- telling ------------------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        self.heard_at = self._clock.now()

    def _troubled(self, why: str) -> None:
        if why != self.trouble:
            _log.warning("the cluster cannot be read", extra=fields(kind=self.kind.name, error=why))
        self.trouble = why
        self._changed()


class ServerTraits:
    """Facts that the readers have found out about the server."""

    def __init__(self) -> None:
        self.streams_lists = True
        """It sends a list as the beginning of a watch."""


class _NotServed(Exception):
    """The kind is gone from the server."""


def _event(line: bytes) -> tuple[str, msgspec.Raw]:
    try:
        found = read_line(line)
    except Unreadable as error:
        raise Gap("undecodable") from error
    return found.type, found.object


def _head(raw: msgspec.Raw) -> Meta:
    try:
        return read_meta(raw)
    except Unreadable as error:
        raise Gap("undecodable") from error
