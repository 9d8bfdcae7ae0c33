"""The daemon's HTTP endpoints: read-only, for scrapers, probes and people with curl.

    /metrics             all metrics, in Prometheus' text format
    /metrics/resources   what each pod requests and may use, likewise
    /livez, /healthz     is it alive?                            ?verbose shows each check, ?exclude=CHECK leaves one out,
    /readyz              does it do its work, or could it?       /readyz/CHECK asks for one
    /configz             the configuration in force, as JSON
    /statusz             what it is, since when, how far; for people
    /ui/                 the page that shows the log (`tidelog.page`), where the process has one

The threads of the server never touch the scheduler. They put a question to the event loop (`Sources`), which answers between
two of its steps with values that change no more, and they make the text from those. So a scrape costs the decision loop only
the answer, a fraction of a millisecond; and an event loop that does not answer in time is what /livez is there to tell.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Protocol, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from tidelog.api.errors import TidelogError, UsageError, quoted
from tidelog.api.objects import Pod
from tidelog.api.text import as_json, safe
from tidelog.daemon.http.server import HttpLimits, Response, Server
from tidelog.daemon.metrics.metrics import Scrape
from tidelog.daemon.metrics.pod_resources import pod_resource_lines
from tidelog.daemon.process.logs import fields

DEFAULT_LISTEN = "127.0.0.1:10259"
"""kube-scheduler's port, on the loopback interface."""
METRICS = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while others wait, instead of Python's 5 ms: neither does a scrape hold up the event loop
for longer, nor does an event loop that works in steps of a few milliseconds starve the scrape (measured: from seconds to
tens of milliseconds at worst). Arbitrary within a factor of two."""
STOP_SECONDS = 1.0
"""How long a stop waits for connections that were cut."""

T = TypeVar("T")
Checks = Mapping[str, str | None]
"""Check → what is wrong, or None if nothing is."""
Query = Mapping[str, Sequence[str]]

_log = logging.getLogger("tidelog.http")


class Sources(Protocol):
    """The source of the endpoints. Asked on the event loop's thread; answers at once, with values that change no more."""

    def metrics(self) -> Scrape:
        """The result of `Metrics.read()`."""

    def pods(self) -> Sequence[Pod]:
        """All pods, in a list of its own."""

    def live(self) -> Checks:
        """Checks whose failure calls for a restart of the process."""

    def ready(self) -> Checks:
        """Checks that must pass for the daemon to do its work."""

    def configuration(self) -> object:
        """The configuration in force: anything that JSON can show."""

    def flags(self) -> Mapping[str, str]:
        """The options of the command line, by name."""

    def status(self) -> Mapping[str, object]:
        """Facts for people, the most wanted first."""


class LoopSilent(Exception):
    """The event loop did not answer."""


class HttpServer:
    """The endpoints on one address: `async with HttpServer("127.0.0.1:10259", sources) as server:`.

    Entering takes the address (TidelogError if it cannot be had) and serves in threads of its own; leaving cuts all
    connections and waits for the threads. While it serves, the interpreter changes threads more often (SWITCH_SECONDS).
    """

    def __init__(
        self, listen: str, sources: Sources, limits: HttpLimits | None = None, site: Site | None = None
    ) -> None:
        parse_listen(listen)
        self._listen = listen
        self._limits = limits or HttpLimits()
        self.endpoints = Endpoints(sources, self._ask, site)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._server = bound_server(self._listen, self.endpoints.respond, self._limits)
        # Every 50 ms it looks whether to stop, and for connections that take too long.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="tidelog-http", daemon=True
        )
        self._thread.start()
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(min(self._switch_seconds, SWITCH_SECONDS))
        _log.info("serving HTTP", extra=fields(address=self.address))
        if not ipaddress.ip_address(self.host).is_loopback:
            _log.warning(
                "metrics and configuration can be read from outside", extra=fields(address=self.address)
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        # In a thread, because a request under way may wait for this event loop.
        await asyncio.to_thread(self._stop)
        sys.setswitchinterval(self._switch_seconds)

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.end_connections(STOP_SECONDS)
        self.endpoints.close()
        self._thread.join()

    @property
    def host(self) -> str:
        """The address it listens on, without the port."""
        return str(self._server.server_address[0]).partition("%")[0]

    @property
    def port(self) -> int:
        """The port it listens on; another than asked for if that was 0."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Where it listens, as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer of the event loop, from another thread. Raises LoopSilent, or what the question raises."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def answer() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question())
                except Exception as error:
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(answer)
        except RuntimeError:
            raise LoopSilent("the event loop has ended") from None
        done, _ = concurrent.futures.wait([future], self._limits.loop_seconds)
        if not done:
            future.cancel()
            raise LoopSilent(f"the event loop did not answer within {self._limits.loop_seconds:g} s")
        return future.result()


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:10259`, `localhost:0` or `[::1]:10259`. Raises UsageError."""
    host, _, port = listen.rpartition(":")
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    elif ":" in host or "[" in host:
        host = ""
    if not (host and host.isprintable() and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(
            f"cannot listen on {quoted(listen)}: write an address and a port from 0 to 65535, for example {DEFAULT_LISTEN} or [::1]:10259"
        )
    return host, int(port)


def bound_server(listen: str, respond: Callable[[str], Response], limits: HttpLimits) -> Server:
    """Return a server that has taken this address; raises TidelogError if it cannot be had."""
    host, port = parse_listen(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return Server(family, address, respond, limits)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TidelogError(
            f"cannot listen on {safe(host)} port {port}: {why}; give another address with --listen"
        ) from error


class Ask(Protocol):
    """Puts a question to the event loop and waits for the answer."""

    def __call__(self, question: Callable[[], T], /) -> T: ...


class Site(Protocol):
    """Something else that is served beside the endpoints."""

    def respond(self, path: str, query: Query) -> Response:
        """Answer GET for a path that begins with `/ui`. Called in a thread of the server."""

    def close(self) -> None:
        """Nobody will ask any more."""


class Endpoints:
    """From the target of a request to its answer. Runs in the threads of the server; keeps nothing."""

    def __init__(self, sources: Sources, ask: Ask, site: Site | None = None) -> None:
        self._sources = sources
        self._ask = ask
        self._site = site
        self._pages: dict[str, Callable[[], Response]] = {
            "/metrics": self._metrics,
            "/metrics/resources": self._resources,
            "/configz": self._configz,
            "/flagz": self._flagz,
            "/statusz": self._statusz,
        }
        self._checks = {"livez": sources.live, "healthz": sources.live, "readyz": sources.ready}

    @property
    def paths(self) -> list[str]:
        """Every path that is answered."""
        page = () if self._site is None else ("/ui/",)
        return [*self._pages, *(f"/{name}" for name in self._checks), *page]

    def close(self) -> None:
        """Nobody will ask any more."""
        if self._site is not None:
            self._site.close()

    def respond(self, target: str) -> Response:
        """The answer to GET. Whatever goes wrong is an answer too."""
        try:
            url = urlsplit(target)
            query = parse_qs(url.query, keep_blank_values=True)
        except ValueError:
            return Response("400 this is no URL\n", HTTPStatus.BAD_REQUEST)
        try:
            return self._respond(url.path, query)
        except LoopSilent as silent:
            return Response(f"503 {silent}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            _log.exception("cannot answer", extra=fields(path=url.path))
            return Response("500 internal error; the log has it\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _respond(self, path: str, query: Query) -> Response:
        if page := self._pages.get(path):
            return page()
        name, _, only = path[1:].partition("/")
        if self._site is not None and path[:1] == "/" and name == "ui":
            return self._site.respond(path, query)
        if path[:1] == "/" and name in self._checks:
            return self._health(name, only, query)
        return Response(f"404 there is {', '.join(self.paths)}\n", HTTPStatus.NOT_FOUND)

    def _metrics(self) -> Response:
        return Response(self._ask(self._sources.metrics).text(), type=METRICS)

    def _resources(self) -> Response:
        return Response(pod_resource_lines(self._ask(self._sources.pods)), type=METRICS)

    def _configz(self) -> Response:
        # kube-scheduler's key, so that what reads its page can read ours.
        return Response(
            as_json({"componentconfig": self._ask(self._sources.configuration)}) + "\n", type=JSON
        )

    def _flagz(self) -> Response:
        # In kube-scheduler's form.
        rows = [
            f"{safe(name)}={safe(value)}" for name, value in sorted(self._ask(self._sources.flags).items())
        ]
        return Response("\n".join(["tidelog flagz", "", *rows, ""]))

    def _statusz(self) -> Response:
        status = self._ask(self._sources.status)
        rows = [f"{safe(name)}: {safe(value)}" for name, value in status.items()]
        return Response("\n".join(["tidelog statusz", "", *rows, f"Paths: {' '.join(self.paths)}", ""]))

    def _health(self, name: str, only: str, query: Query) -> Response:
        """As kube-scheduler's: `ok`, or a line for each check if one failed or `?verbose` asks for them."""
        try:
            checks: dict[str, str | None] = {"ping": None, **self._ask(self._checks[name])}
        except LoopSilent as silent:
            checks = {"ping": str(silent)}
        if only and only not in checks:
            return Response(f"404 {name} has {safe(', '.join(checks))}\n", HTTPStatus.NOT_FOUND)
        excluded = query.get("exclude", ())
        asked = {k: v for k, v in checks.items() if k not in excluded and only in ("", k)}
        failed = any(problem is not None for problem in asked.values())
        if not failed and "verbose" not in query:
            return Response("ok")
        lines = [
            f"[+]{safe(check)} ok" if problem is None else f"[-]{safe(check)} failed: {safe(problem)}"
            for check, problem in asked.items()
        ]
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
        return Response("\n".join(lines) + "\n", status)
