"""HTTP for the API, on aiohttp: who may ask, what is too much, and watches that go on.

Everything that a client can overdo has a limit (`Limits`). Requests come with the right token or are refused, apart from the probes; over plain HTTP,
which carries no tokens, only reading is allowed unless somebody chose otherwise. The Host of a request must be an address or name of this server,
and a request that a web page in a browser makes (it has an Origin) may change nothing: so a page that somebody visits cannot reach the log through
the browser.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web

from tidelog.api.errors import LogFull, TidelogError
from tidelog.daemon.process.logs import fields
from tidelog.kube import status
from tidelog.kube.paths import parse_path
from tidelog.kube.serve import asking, discovery
from tidelog.kube.serve.api import PATCHES, Answer, Api, Asked, json_of, refused
from tidelog.kube.serve.memory import MemoryView
from tidelog.kube.serve.openapi import OPENAPI_V2, OPENAPI_V2_TYPE, openapi_index, openapi_of
from tidelog.kube.serve.shelf import Shelf, Watcher
from tidelog.kube.serve.view import Expired, LogView
from tidelog.kube.serve.writes import APPLY_PATCH
from tidelog.kube.status import ApiError

_log = logging.getLogger("tidelog.kube")

OPEN_PATHS = frozenset(("livez", "readyz", "healthz", "version"))
"""Paths open without a token."""
YAML = ("application/yaml", "application/x-yaml", "text/yaml", APPLY_PATCH)
UNKNOWN_FORMAT = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
NO_PROTOBUF = (
    f"{UNKNOWN_FORMAT}; protobuf is not read here: have the client send JSON (contentType: application/json), "
    "or pipe `kubectl create ... --dry-run=client -o yaml` into `kubectl create -f -`"
)
BOOKMARK_SECONDS = 60.0
BOOKMARK_BEFORE_END = 2.0
GATHER_SECONDS = 0.01
"""After something was sent on a watch, what happens within this time goes together: each sending costs as much as fifty events."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All arbitrary; a cluster's clients need a part of it."""

    body_bytes: int = 3 << 20
    """Of a request: what the real server takes."""
    body_seconds: float = 30.0
    """For a body to arrive."""
    connections: int = 2_000
    watches: int = 1_000
    writes_at_once: int = 256
    """So many writes are under way; more wait."""
    idle_seconds: float = 75.0
    watch_seconds: float = 3600.0
    """A watch that names no time ends after about this."""
    depth: int = 100
    """Levels of a body."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of each user."""

    tokens: Mapping[str, str] = {}
    """Token → user; empty: nobody needs one."""
    hosts: frozenset[str] = frozenset()
    """Names and addresses under which this server is asked; empty: any."""
    read_only: bool = False


class Handler:
    """Answers HTTP requests. `handle` is what aiohttp calls."""

    def __init__(self, api: Api, access: Access, limits: Limits, version: str) -> None:
        self._api = api
        self._access = access
        self._limits = limits
        self._version = version
        self._writing = asyncio.Semaphore(limits.writes_at_once)
        self._watches = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer, whatever comes."""
        try:
            parts = [unquote(part) for part in request.rel_url.raw_path.split("/") if part]
            self._admit(request, parts)
            answer = await self._answer(request, parts)
            return answer if isinstance(answer, web.StreamResponse) else _response(answer)
        except ApiError as error:
            return _refusal(error)
        except LogFull as error:
            return _refusal(ApiError(507, "InsufficientStorage", str(error)))
        except TidelogError as error:
            # Of a server that ends, the client asks the one that comes after it.
            ended = self._api.view.is_ended
            return _refusal(status.unavailable(str(error)) if ended else status.internal(str(error)))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except (RecursionError, MemoryError) as error:
            return _refusal(status.bad_request(f"the request cannot be handled: {type(error).__name__}"))
        except Exception:
            _log.exception("a request failed", extra=fields(method=request.method, path=request.path))
            return _refusal(status.internal("the request failed; the process's log lines say why"))

    # --- who may ------------------------------------------------------------------------------------------------------------

    def _admit(self, request: web.BaseRequest, parts: list[str]) -> None:
        access = self._access
        if access.hosts and _host_of(request.headers.get("Host", "")) not in access.hosts:
            raise status.forbidden("the Host of the request is no name of this server")
        writes = request.method not in ("GET", "HEAD", "OPTIONS")
        if request.headers.get("Origin") is not None and writes:
            raise status.forbidden("requests of web pages change nothing here")
        if parts and parts[0] in OPEN_PATHS and not writes:
            return
        if access.tokens and not self._is_known(request):
            raise status.unauthorized()
        is_question = any(part.startswith("selfsubject") for part in parts[-1:])
        if access.read_only and writes and not is_question:
            raise status.forbidden(
                "this server only answers questions; start it with --insecure-http read-write, or with HTTPS"
            )

    def _is_known(self, request: web.BaseRequest) -> bool:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode(errors="replace")
            found = False
            for known in self._access.tokens:
                found |= hmac.compare_digest(known.encode(), given)
            return found
        transport = request.transport
        return transport is not None and bool(transport.get_extra_info("peercert"))

    # --- what ---------------------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest, parts: list[str]) -> Answer | web.StreamResponse:
        path = parse_path(parts)
        if path is None:
            return self._plain(request, parts)
        review = next((r for r in discovery.REVIEWS if tuple(path[:3]) == r[:3]), None)
        if review is not None:
            if request.method != "POST":
                raise status.method_not_allowed()
            # kubectl asks in an encoding that is not served; its question has no content.
            is_json = request.headers.get("Content-Type", "").startswith("application/json")
            body = await self._body(request) if is_json else None
            return self._api.review(
                review[3], review[0], review[1], body, may_write=not self._access.read_only
            )
        resource = self._api.resource_of(path)
        query = {name: request.rel_url.query[name] for name in request.rel_url.query}
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        method = "GET" if request.method == "HEAD" else request.method
        body = None if method == "GET" else await self._body(request)
        asked = Asked(method, path, resource, query, request.headers.get("Accept", ""), content_type, body)
        if asked.is_watch:
            return await self._watch(request, asked)
        if method == "GET":
            return await self._api.answer(asked)
        async with self._writing:
            # Once begun it is carried out, also if the client goes away: it may be in the log already.
            return await asyncio.shield(self._api.answer(asked))

    def _plain(self, request: web.BaseRequest, parts: list[str]) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        aggregated = discovery.wants_aggregated(request.headers.get("Accept", ""))
        match parts:
            case []:
                paths = [
                    "/api",
                    "/api/v1",
                    "/apis",
                    "/healthz",
                    "/livez",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
                return json_of({"paths": paths})
            case ["livez" | "readyz" | "healthz", *_]:
                if self._api.view.is_ended or self._api.view.log.failure is not None:
                    return Answer(b"the log cannot be written\n", 500, type="text/plain; charset=utf-8")
                return Answer(b"ok", type="text/plain; charset=utf-8")
            case ["version"]:
                return json_of(discovery.version_info(self._version))
            case ["api"] | ["apis"] if aggregated:
                body = json_of(discovery.aggregated(aggregated, core=parts == ["api"]))
                kind = f"application/json;g={discovery.AGGREGATED};v={aggregated};as=APIGroupDiscoveryList"
                return body._replace(type=kind)
            case ["api"]:
                return json_of(discovery.api_versions())
            case ["apis"]:
                return json_of(discovery.api_groups())
            case ["api", version]:
                found = discovery.resource_list("", version)
            case ["apis", group]:
                found = discovery.api_group(group)
            case ["apis", group, version]:
                found = discovery.resource_list(group, version)
            case ["openapi", "v2"]:
                return Answer(OPENAPI_V2, type=OPENAPI_V2_TYPE)
            case ["openapi", "v3"]:
                return json_of(openapi_index())
            case ["openapi", "v3", *rest]:
                text = openapi_of(rest)
                if text is None:
                    raise status.no_such_resource()
                return Answer(text)
            case _:
                found = None
        if found is None:
            raise status.no_such_resource()
        return json_of(found)

    async def _body(self, request: web.BaseRequest) -> Any:
        """The decoded body; None without one. Raises ApiError."""
        limit = self._limits.body_bytes
        if (request.content_length or 0) > limit:
            raise status.too_large(limit)
        if not request.can_read_body:
            return None
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                data = await request.read()
        except TimeoutError:
            raise ApiError(408, "Timeout", "the body of the request did not arrive in time") from None
        except web.HTTPRequestEntityTooLarge:
            raise status.too_large(limit) from None
        except aiohttp.ClientPayloadError as error:
            raise status.bad_request(f"the body of the request cannot be read: {error}") from None
        if not data:
            return None
        if kind in YAML:
            found = _yaml(data)
        elif kind in ("", "application/json", *PATCHES):
            try:
                found = msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise status.bad_request(f"the body of the request is no JSON: {error}") from None
        else:
            raise status.unsupported_media_type(NO_PROTOBUF if "protobuf" in kind else UNKNOWN_FORMAT)
        # A body that opens fewer brackets than there may be levels is not looked through.
        if kind in YAML or data.count(b"{") + data.count(b"[") > self._limits.depth:
            _check_depth(found, self._limits.depth)
        return found

    # --- watches --------------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.BaseRequest, asked: Asked) -> web.StreamResponse:
        if self._watches >= self._limits.watches:
            raise ApiError(429, "TooManyRequests", "there are too many watches", retry_after=1)
        self._watches += 1
        try:
            return await _Watch(self._api, self._limits, request, asked).run()
        finally:
            self._watches -= 1


class _Watch:
    """One watch, from its first line to its end."""

    def __init__(self, api: Api, limits: Limits, request: web.BaseRequest, asked: Asked) -> None:
        query = asked.query
        if query.get("at"):
            raise status.bad_request("at names a moment, and a watch goes on: watch from a resourceVersion")
        self._api = api
        self._asked = asked
        self._request = request
        self._source: LogView | MemoryView = api.source(asked.resource)
        self._shelf: Shelf = self._source.shelves[asked.resource.kind]
        self._selected = asking.selection(asked.resource, asked.path.namespace, query)
        self._bookmarks = asking.flag(query, "allowWatchBookmarks")
        seconds = asking.number(query, "timeoutSeconds")
        self._seconds = float(seconds) if seconds else limits.watch_seconds * (0.5 + random.random() / 2)
        self._start = asking.revision_of(query)
        self._initial = self._initial_wanted(query)
        form, form_key = api.watch_form(asked)
        self._watcher = Watcher(self._selected.matches, form, form_key, self._selected.one_value)
        self._watcher.on_cut = self._abort
        self._is_waiting_for_client = False

    def _initial_wanted(self, query: Mapping[str, str]) -> bool:
        given, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
        if given is None:
            if match:
                raise asking.invalid_options(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            return False
        if match != "NotOlderThan":
            raise asking.invalid_options(
                "resourceVersionMatch",
                'sendInitialEvents requires setting resourceVersionMatch to "NotOlderThan"',
            )
        return given in asking.TRUE

    def _abort(self) -> None:
        """The client takes too little: end it without a word, as the real server does, even while something is being sent."""
        _log.info("a watch was cut off: it takes too little", extra=fields(path=self._request.path))
        if self._is_waiting_for_client and (transport := self._request.transport) is not None:
            transport.abort()

    async def run(self) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/json",
                "Cache-Control": "no-cache, private",
                "Server": "tidelog",
            }
        )
        response.enable_chunked_encoding()
        # Before the first byte is sent, so that what is wrong can still be said with a code.
        if self._start != 0:
            await self._source.caught_up()
        end = asyncio.get_running_loop().time() + self._seconds
        try:
            await response.prepare(self._request)
            try:
                async with asyncio.timeout_at(end):
                    await self._begin(response)
            except TimeoutError:
                return response
            except Expired as error:
                await self._send(response, self._gone(error))
                return response
            except TidelogError as error:
                await self._send(response, _error_line(status.internal(str(error))))
                return response
            await self._go_on(response, end)
        except ConnectionError:
            pass  # The client is gone.
        finally:
            self._shelf.discard(self._watcher)
        return response

    def _gone(self, error: Expired) -> bytes:
        message = f"too old resource version: {error.revision} ({error.oldest})"
        return _error_line(status.expired(message))

    async def _send(self, response: web.StreamResponse, data: bytes) -> None:
        self._is_waiting_for_client = True
        try:
            await response.write(data)
        finally:
            self._is_waiting_for_client = False

    async def _begin(self, response: web.StreamResponse) -> None:
        """Send what is there or what was missed, and be told of everything from then on."""
        source, shelf, watcher, start = self._source, self._shelf, self._watcher, self._start
        if self._initial or not start:
            if start and start > source.revision:
                await self._until(start)
            shown = source.listed(shelf.kind)
            shelf.add(watcher)
            if self._initial or "sendInitialEvents" not in self._asked.query:
                await self._send_items(response, shown.items)
            if self._initial and self._bookmarks:
                await self._send(
                    response, self._api.bookmark(self._asked.resource, shown.revision, ends_initial=True)
                )
            return
        if start > source.revision:
            await self._until(start)
        while start < shelf.since:
            if isinstance(source, MemoryView):
                raise Expired(start, source.oldest)
            reached = source.revision
            lines: list[bytes] = []
            async for change in source.changes_after(shelf.kind, start):
                if change.revision <= reached and (line := change.line(watcher)) is not None:
                    lines.append(line)
                    if len(lines) >= 256:
                        await self._send(response, b"".join(lines))
                        lines.clear()
            if lines:
                await self._send(response, b"".join(lines))
            start = reached
        shelf.replay(watcher, start)
        shelf.add(watcher)

    async def _until(self, revision: int) -> None:
        """The revision is in the future, perhaps of a log that there is no more: say nothing until it comes."""
        while self._source.revision < revision and not self._watcher.is_cut:  # noqa: ASYNC110 # Nothing is late then.
            await asyncio.sleep(0.5)

    async def _send_items(self, response: web.StreamResponse, items: Any) -> None:
        matches, form = self._selected.matches, self._watcher.form
        lines: list[bytes] = []
        for item in items:
            if matches is None or matches(item):
                lines.append(form("ADDED", item, item.revision))
                if len(lines) >= 256:
                    await self._send(response, b"".join(lines))
                    lines.clear()
        if lines:
            await self._send(response, b"".join(lines))

    async def _go_on(self, response: web.StreamResponse, end: float) -> None:
        watcher, loop = self._watcher, asyncio.get_running_loop()
        bookmark_at = min(loop.time() + BOOKMARK_SECONDS, max(end - BOOKMARK_BEFORE_END, loop.time()))
        while not watcher.is_cut:
            data = watcher.take()
            now = loop.time()
            if self._bookmarks and now >= bookmark_at:
                data += self._api.bookmark(self._asked.resource, self._source.revision)
                bookmark_at = (
                    now + BOOKMARK_SECONDS
                    if now + BOOKMARK_SECONDS < end - BOOKMARK_BEFORE_END
                    else (end - BOOKMARK_BEFORE_END if now < end - BOOKMARK_BEFORE_END - 0.1 else end + 1.0)
                )
            if data:
                await self._send(response, data)
                await asyncio.sleep(GATHER_SECONDS)
                continue
            if now >= end:
                return
            await watcher.wait(max(min(end, bookmark_at if self._bookmarks else end) - now, 0.001))


# --- helpers ------------------------------------------------------------------------------------------------------------------


def _response(answer: Answer, headers: Mapping[str, str] | None = None) -> web.Response:
    found = web.Response(body=answer.body, status=answer.code, headers=headers)
    found.headers["Content-Type"] = answer.type
    found.headers["Cache-Control"] = "no-cache, private"
    found.headers["Server"] = "tidelog"
    for warning in answer.warnings[:50]:
        found.headers.add("Warning", f'299 - "{_quoted(warning)}"')
    return found


def _error_line(error: ApiError) -> bytes:
    """The last line of a watch that cannot go on."""
    return msgspec.json.encode({"type": "ERROR", "object": error.status}) + b"\n"


def _refusal(error: ApiError) -> web.Response:
    wait = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return _response(refused(error), wait)


def _quoted(text: str) -> str:
    shown = "".join(char if " " <= char <= "~" else "?" for char in text[:1000])
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _host_of(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if header.count(":") == 1 else header.lower()


def _yaml(data: bytes) -> Any:
    from tidelog.api.errors import InvalidObjects
    from tidelog.api.manifests.documents import read_documents

    try:
        documents = read_documents(data, "the body of the request")
    except InvalidObjects as error:
        raise status.bad_request(str(error)) from None
    if len(documents) != 1:
        raise status.bad_request("the body of the request must be one document")
    return documents[0].value


def _check_depth(value: Any, limit: int) -> None:
    """Raises ApiError if it is nested deeper than that. JSON as a whole was read, so it is finite."""
    level = [value]
    for _ in range(limit):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise status.bad_request(f"the body of the request is nested more than {limit} levels deep")
