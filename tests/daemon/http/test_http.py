"""The endpoints answer what the event loop says, and no client can do them harm. Real sockets on the loopback interface."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import inspect
import ipaddress
import json
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE, wait_until
from tidelog.api.errors import TidelogError, UsageError
from tidelog.api.objects import Pod
from tidelog.daemon.http.endpoints import (
    DEFAULT_LISTEN,
    SWITCH_SECONDS,
    Checks,
    Endpoints,
    HttpServer,
    Sources,
    parse_listen,
)
from tidelog.daemon.http.server import HttpLimits
from tidelog.daemon.metrics.metrics import Metrics, Scrape, Statistics
from tidelog.testing.builders import pod

HOSTILE = "a\x1b[2J\nb\u202e"
PATIENT = HttpLimits(
    connections=200, request_seconds=PATIENCE, answer_seconds=PATIENCE, loop_seconds=PATIENCE
)
"""None is reached, but the one that a test is about."""


class Scheduler:
    """What the endpoints ask, and who asked."""

    def __init__(self) -> None:
        self.all_metrics = Metrics(Statistics)
        self.all_pods: Sequence[Pod] = [pod("web-1").request(cpu="250m").build()]
        self.problems: dict[str, str | None] = {"log": None, "lease": None}
        self.status_rows: dict[str, object] = {"Version": "0.1.0", "Head": 12}
        self.asked_in: list[str] = []

    def metrics(self) -> Scrape:
        self.asked_in.append(threading.current_thread().name)
        return self.all_metrics.read()

    def pods(self) -> Sequence[Pod]:
        return self.all_pods

    def live(self) -> Checks:
        return {"log": None}

    def ready(self) -> Checks:
        return self.problems

    def configuration(self) -> object:
        return {"profiles": [{"schedulerName": "default-scheduler"}]}

    def flags(self) -> Mapping[str, str]:
        return {"log": "/var/x\x1b.db", "config": ""}

    def status(self) -> Mapping[str, object]:
        return self.status_rows


class Reply(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: str


def fetch(server: HttpServer, path: str, method: str = "GET", body: bytes | None = None) -> Reply:
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read().decode())


async def get(server: HttpServer, path: str, method: str = "GET", body: bytes | None = None) -> Reply:
    return await asyncio.to_thread(fetch, server, path, method, body)


def exchange(server: HttpServer, request: bytes) -> bytes:
    """Everything that comes back for these bytes."""
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        return receive(connection)


def receive(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
async def server(scheduler: Scheduler) -> AsyncIterator[HttpServer]:
    async with HttpServer("127.0.0.1:0", scheduler, PATIENT) as server:
        yield server


# --- what is answered ----------------------------------------------------------------------------------------------------


async def test_metrics_can_be_read_by_prometheus(server: HttpServer, scheduler: Scheduler) -> None:
    scheduler.all_metrics.attempts.finished("default-scheduler", "scheduled", 1_000_000, 500_000)

    reply = await get(server, "/metrics")

    families = {f.name: f for f in text_string_to_metric_families(reply.body)}
    found = {s.labels["result"]: s.value for s in families["scheduler_schedule_attempts"].samples}
    assert found == {"scheduled": 1, "unschedulable": 0, "error": 0}
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_questions_are_answered_on_the_event_loops_thread(
    server: HttpServer, scheduler: Scheduler
) -> None:
    await get(server, "/metrics")

    assert scheduler.asked_in == [threading.current_thread().name]


async def test_pod_resources_come_in_pieces_that_make_one_page(
    server: HttpServer, scheduler: Scheduler
) -> None:
    scheduler.all_pods = [pod(f"web-{i}").request(cpu="250m").build() for i in range(200)]

    reply = await get(server, "/metrics/resources")

    (requests, limits) = text_string_to_metric_families(reply.body)
    assert reply.headers["Transfer-Encoding"] == "chunked"
    assert [s.labels["pod"] for s in requests.samples] == [f"web-{i}" for i in range(200)]
    assert limits.samples == []


async def test_client_of_http_1_0_gets_the_pieces_as_they_are(server: HttpServer) -> None:
    received = await asyncio.to_thread(exchange, server, b"GET /metrics/resources HTTP/1.0\r\n\r\n")

    head, _, body = received.decode().partition("\r\n\r\n")
    assert "Transfer-Encoding" not in head
    assert [f.name for f in text_string_to_metric_families(body)] == [
        "kube_pod_resource_request",
        "kube_pod_resource_limit",
    ]


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz", "/readyz/log", "/livez/ping"])
async def test_healthy_daemon_says_ok(server: HttpServer, path: str) -> None:
    reply = await get(server, path)

    assert (reply.status, reply.body) == (200, "ok")


async def test_verbose_shows_every_check(server: HttpServer) -> None:
    reply = await get(server, "/readyz?verbose")

    assert (reply.status, reply.body) == (200, "[+]ping ok\n[+]log ok\n[+]lease ok\nreadyz check passed\n")


async def test_failed_check_is_named_with_its_reason(server: HttpServer, scheduler: Scheduler) -> None:
    scheduler.problems["log"] = "the disk is full"

    ready, live = await get(server, "/readyz"), await get(server, "/livez")

    assert ready.status == 503
    assert ready.body == "[+]ping ok\n[-]log failed: the disk is full\n[+]lease ok\nreadyz check failed\n"
    assert (live.status, live.body) == (200, "ok")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/readyz?exclude=log", 200), ("/readyz/lease", 200), ("/readyz/log", 503), ("/readyz?exclude=x", 503)],
)
async def test_checks_can_be_left_out_or_asked_one_by_one(
    server: HttpServer, scheduler: Scheduler, path: str, status: int
) -> None:
    scheduler.problems["log"] = "the disk is full"

    assert (await get(server, path)).status == status


async def test_unknown_check_is_answered_with_those_there_are(server: HttpServer) -> None:
    reply = await get(server, "/readyz/nope")

    assert (reply.status, reply.body) == (404, "404 readyz has ping, log, lease\n")


async def test_configuration_is_shown_under_kube_schedulers_key(server: HttpServer) -> None:
    reply = await get(server, "/configz")

    assert reply.headers["Content-Type"] == "application/json"
    assert json.loads(reply.body) == {
        "componentconfig": {"profiles": [{"schedulerName": "default-scheduler"}]}
    }


async def test_flags_are_told_as_they_were_given(server: HttpServer) -> None:
    reply = await get(server, "/flagz")

    assert reply.body == "tidelog flagz\n\nconfig=\nlog=/var/x\\x1b.db\n"


async def test_status_is_for_people(server: HttpServer) -> None:
    reply = await get(server, "/statusz")

    assert reply.body == (
        "tidelog statusz\n\nVersion: 0.1.0\nHead: 12\n"
        "Paths: /metrics /metrics/resources /configz /flagz /statusz /livez /healthz /readyz\n"
    )


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics/x", "/nope", "/debug/pprof"])
async def test_unknown_path_is_answered_with_those_there_are(server: HttpServer, path: str) -> None:
    reply = await get(server, path)

    assert reply.status == 404
    assert "/metrics" in reply.body


async def test_nothing_that_a_terminal_acts_on_reaches_the_output(
    server: HttpServer, scheduler: Scheduler
) -> None:
    scheduler.problems = {HOSTILE: HOSTILE}
    scheduler.status_rows = {HOSTILE: HOSTILE}
    scheduler.all_pods = [pod(HOSTILE).request(cpu=1).build()]
    scheduler.all_metrics.queue.incoming_pods.labels(HOSTILE, HOSTILE).inc()

    for path in ("/readyz", "/readyz/nope", "/statusz", "/metrics", "/metrics/resources", "/%1b%5b2J"):
        reply = await get(server, path)
        assert all(line.isprintable() for line in reply.body.split("\n")), path


# --- read-only -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_other_methods_than_get_and_head_are_refused(server: HttpServer, method: str) -> None:
    reply = await get(server, "/metrics", method, b"x" * 50_000)

    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/metrics", "/metrics/resources", "/livez", "/nope"])
async def test_head_has_the_head_of_get_and_no_body(server: HttpServer, path: str) -> None:
    full, head = await get(server, path), await get(server, path, "HEAD")

    assert head.status == full.status
    assert head.headers["Content-Type"] == full.headers["Content-Type"]
    assert head.body == ""


# --- when the event loop is in trouble -----------------------------------------------------------------------------------


async def test_event_loop_that_does_not_answer_is_not_alive(scheduler: Scheduler) -> None:
    async with HttpServer("127.0.0.1:0", scheduler, replace(PATIENT, loop_seconds=0.05)) as server:
        replies: list[Reply] = []
        client = threading.Thread(
            target=lambda: replies.extend(fetch(server, path) for path in ("/livez", "/metrics"))
        )
        client.start()
        client.join()  # This blocks the event loop until both replies are there.

    live, metrics = replies
    assert live.status == 503
    assert live.body == ("[-]ping failed: the event loop did not answer within 0.05 s\nlivez check failed\n")
    assert (metrics.status, metrics.body) == (503, "503 the event loop did not answer within 0.05 s\n")


async def test_failure_behind_an_endpoint_is_reported_and_harms_nothing(
    server: HttpServer, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.status_rows = None  # type: ignore[assignment]

    reply = await get(server, "/statusz")

    assert (reply.status, reply.body) == (500, "500 internal error; the log has it\n")
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == ["cannot answer"]
    assert (await get(server, "/livez")).status == 200


async def test_failure_on_the_event_loop_is_reported_and_the_loop_goes_on(
    server: HttpServer, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.all_metrics = None  # type: ignore[assignment]

    reply = await get(server, "/metrics")

    assert reply.status == 500
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert (await get(server, "/livez")).status == 200


async def test_failure_in_the_middle_of_an_answer_cannot_be_mistaken_for_its_end(
    server: HttpServer, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.all_pods = [pod("web-1").build(), None]  # type: ignore[list-item]

    with pytest.raises(http.client.IncompleteRead):
        await get(server, "/metrics/resources")

    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == ["an answer ended early"]


async def test_scrape_does_not_hold_up_the_event_loop(server: HttpServer, scheduler: Scheduler) -> None:
    """While the text of 20,000 pods is made and sent, the loop goes round all the time."""
    scheduler.all_pods = [pod(f"web-{i}").request(cpu="250m").build() for i in range(20_000)]
    request = asyncio.create_task(get(server, "/metrics/resources"))
    rounds = 0

    while not request.done():
        await asyncio.sleep(0)
        rounds += 1

    assert (await request).body.count("\n") == 20_000 + 4
    assert rounds > 100


# --- clients that misbehave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /livez HTTP/9.9\r\n\r\n", 505),
        (b"GET /livez HTTP/x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /livez HTTP/1.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
        (b"GET /\x1b[2J HTTP/1.1\r\n\r\n", 404),
    ],
)
async def test_malformed_request_gets_an_error_and_harms_nothing(
    server: HttpServer, request_bytes: bytes, status: int
) -> None:
    received = await asyncio.to_thread(exchange, server, request_bytes)

    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split()[:2] == [b"HTTP/1.1", str(status).encode()]
    assert all(line.isprintable() for line in body.decode().split("\n"))
    assert (await get(server, "/livez")).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:10259", 200),
        (b"127.0.0.1", 200),
        (b"[::1]:10259", 200),
        (b"evil.example", 421),
        (b"127.0.0.1.evil.example", 421),
        (b"localhost.evil.example:10259", 421),
        (b"10.0.0.1", 421),
        (b"\xff", 421),
    ],
)
async def test_behind_loopback_only_names_of_this_machine_are_answered(
    server: HttpServer, host: bytes, status: int
) -> None:
    request = b"GET /configz HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"

    received = await asyncio.to_thread(exchange, server, request)

    assert received.split()[:2] == [b"HTTP/1.1", str(status).encode()]
    assert (b"componentconfig" in received) == (status == 200)


async def test_one_connection_serves_one_request(server: HttpServer) -> None:
    received = await asyncio.to_thread(exchange, server, b"GET /livez HTTP/1.1\r\n\r\n" * 3)

    assert received.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in received


@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
async def test_silent_client_is_cut_off(scheduler: Scheduler, sent: bytes) -> None:
    async with HttpServer("127.0.0.1:0", scheduler, replace(PATIENT, request_seconds=0.2)) as server:
        received = await asyncio.to_thread(exchange, server, sent)

    assert b"200" not in received


async def test_client_that_dribbles_is_cut_off_however_often_it_sends(scheduler: Scheduler) -> None:
    def dribble(server: HttpServer) -> None:
        """One byte after the other, each well within the time limit, until the connection ends."""
        with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
            wait_until(lambda: connection.sendall(b"G") is not None, pause=0.02)

    async with HttpServer("127.0.0.1:0", scheduler, replace(PATIENT, request_seconds=0.3)) as server:
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(dribble, server)


async def test_client_that_does_not_take_its_answer_is_cut_off(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidelog.http")
    scheduler.all_pods = [pod(f"web-{i}").request(cpu="250m").build() for i in range(50_000)]

    def stare(server: HttpServer) -> int:
        """How much of the answer arrives when nobody reads for longer than the answer may take."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((server.host, server.port))
            connection.sendall(b"GET /metrics/resources HTTP/1.1\r\n\r\n")
            wait_until(lambda: "a connection ended early" in caplog.messages)
            try:
                return len(receive(connection))
            except ConnectionError:
                return 0

    async with HttpServer("127.0.0.1:0", scheduler, replace(PATIENT, answer_seconds=0.3)) as server:
        arrived = await asyncio.to_thread(stare, server)

    assert arrived < 50_000 * 100


def connections(server: HttpServer) -> list[threading.Thread]:
    """The threads that serve connections."""
    return [t for t in threading.enumerate() if "process_request_thread" in t.name]


async def test_probe_gets_through_a_crowd_that_never_ends_its_requests(scheduler: Scheduler) -> None:
    def crowd(server: HttpServer) -> tuple[list[int], int]:
        slow = [socket.create_connection((server.host, server.port), timeout=PATIENCE) for _ in range(4)]
        try:
            for connection in slow:
                connection.sendall(b"GET /livez HT")
            wait_until(lambda: len(connections(server)) == 4)
            probes = [fetch(server, "/livez").status for _ in range(10)]
            for connection in slow:
                connection.settimeout(0.2)
            cut = sum(1 for connection in slow if _is_over(connection))
        finally:
            for connection in slow:
                connection.close()
        wait_until(lambda: not connections(server))
        return probes, cut

    async with HttpServer("127.0.0.1:0", scheduler, replace(PATIENT, connections=4)) as server:
        probes, cut = await asyncio.to_thread(crowd, server)

    assert probes == [200] * 10
    assert 1 <= cut <= 4


async def test_probe_gets_through_a_crowd_that_does_not_take_its_answers(scheduler: Scheduler) -> None:
    scheduler.all_pods = [pod(f"web-{i}").request(cpu="250m").build() for i in range(50_000)]

    def crowd(server: HttpServer) -> None:
        def gets_through() -> bool:
            try:
                return fetch(server, "/livez").status == 200
            except ConnectionError:
                return False  # It was turned away: nobody had been there for long enough.

        staring = [socket.socket() for _ in range(4)]
        try:
            for connection in staring:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect((server.host, server.port))
                connection.sendall(b"GET /metrics/resources HTTP/1.1\r\n\r\n")
            wait_until(lambda: len(server._server._answered) == 4)
            for _ in range(10):
                wait_until(gets_through)
        finally:
            for connection in staring:
                connection.close()

    limits = replace(PATIENT, connections=4, crowded_seconds=0.05)
    async with HttpServer("127.0.0.1:0", scheduler, limits) as server:
        await asyncio.to_thread(crowd, server)


def _is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def test_many_clients_at_once_are_all_answered(server: HttpServer) -> None:
    replies = await asyncio.gather(*(get(server, "/livez") for _ in range(100)))

    assert [reply.body for reply in replies] == ["ok"] * 100


# --- start and stop ------------------------------------------------------------------------------------------------------


async def test_stopping_ends_open_connections_and_leaves_no_thread(scheduler: Scheduler) -> None:
    before = set(threading.enumerate())
    async with HttpServer("127.0.0.1:0", scheduler, PATIENT) as server:
        silent = await asyncio.to_thread(socket.create_connection, (server.host, server.port))
        await asyncio.to_thread(wait_until, lambda: len(connections(server)) == 1)

    with closing(silent):
        assert await asyncio.to_thread(receive, silent) == b""
    await asyncio.to_thread(
        wait_until,
        lambda: not [t for t in set(threading.enumerate()) - before if not t.name.startswith("asyncio")],
    )


async def test_interpreter_changes_threads_often_only_while_serving(scheduler: Scheduler) -> None:
    before = sys.getswitchinterval()
    async with HttpServer("127.0.0.1:0", scheduler):
        while_serving = sys.getswitchinterval()

    assert while_serving == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == before


async def test_address_is_free_again_at_once(scheduler: Scheduler) -> None:
    async with HttpServer("127.0.0.1:0", scheduler) as first:
        await get(first, "/livez")

    async with HttpServer(first.address, scheduler) as second:
        assert (await get(second, "/livez")).status == 200


async def test_taken_port_is_one_line_that_says_what_to_do(scheduler: Scheduler) -> None:
    async with HttpServer("127.0.0.1:0", scheduler) as server:
        with pytest.raises(TidelogError) as caught:
            async with HttpServer(server.address, scheduler):
                raise AssertionError

    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1 port {server.port}: Address already in use; give another address with --listen"
    )


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "[2001:db8::1]:0", "no-such-host.invalid:0", "a..b:0"])
async def test_address_that_is_not_ours_is_one_line(scheduler: Scheduler, listen: str) -> None:
    with pytest.raises(TidelogError, match=r"^cannot listen on [^\n]+; give another address with --listen$"):
        async with HttpServer(listen, scheduler):
            raise AssertionError


async def test_ipv6_is_served_too(scheduler: Scheduler) -> None:
    try:
        async with HttpServer("[::1]:0", scheduler) as server:
            assert server.address == f"[::1]:{server.port}"
            assert (await get(server, "/livez")).body == "ok"
    except TidelogError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


async def test_listening_to_the_world_is_warned_of(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    async with HttpServer("127.0.0.1:0", scheduler):
        pass
    assert [r for r in caplog.records if r.levelno == logging.WARNING] == []

    async with HttpServer("0.0.0.0:0", scheduler):
        pass

    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.getMessage() == "metrics and configuration can be read from outside"


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:10259", ("127.0.0.1", 10259)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_address_is_host_and_port(listen: str, address: tuple[str, int]) -> None:
    assert parse_listen(listen) == address


@pytest.mark.parametrize(
    "listen",
    [
        "",
        ":",
        ":10259",
        "10259",
        "localhost",
        "localhost:",
        "::1:80",
        "[::1]",
        "[::1",
        "[]:1",
        "a:65536",
        "a:-1",
        "a:１",
        "a:1x",
        "a\x00b:1",
        "a\n:1",
        "[::1]x:1",
        "http://a:1",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(listen: str) -> None:
    with pytest.raises(UsageError, match=r"^cannot listen on [^\n\x00]+127\.0\.0\.1:10259") as caught:
        parse_listen(listen)

    assert caught.value.exit_code == 2


@given(st.text(max_size=60))
def test_no_target_breaks_the_endpoints(target: str) -> None:
    endpoints = Endpoints(Scheduler(), lambda question: question())

    answer = endpoints.respond(target)

    assert answer.status in (200, 400, 404)
    body = answer.body if isinstance(answer.body, str) else "".join(answer.body)
    assert all(line.isprintable() for line in body.split("\n"))


@given(st.text("abcdefghijklmnopqrstuvwxyz/?=&%[]:@#", max_size=30))
def test_no_health_target_breaks_the_endpoints(rest: str) -> None:
    endpoints = Endpoints(Scheduler(), lambda question: question())

    assert endpoints.respond(f"/readyz{rest}").status in (200, 400, 404)


def test_event_loop_that_has_ended_is_reported_as_such(scheduler: Scheduler) -> None:
    async def serve() -> HttpServer:
        async with HttpServer("127.0.0.1:0", scheduler) as server:
            return server

    server = asyncio.run(serve())

    answer = server.endpoints.respond("/statusz")
    assert (answer.status, answer.body) == (503, "503 the event loop has ended\n")


def test_run_listens_on_the_loopback_interface_unless_told_otherwise() -> None:
    from tidelog.cli.commands import run

    parser = argparse.ArgumentParser()
    run.configure(parser)

    host, _ = parse_listen(parser.parse_args([]).listen)
    assert host == parse_listen(DEFAULT_LISTEN)[0]
    assert ipaddress.ip_address(host).is_loopback


def test_nothing_that_is_answered_can_change_anything() -> None:
    """The endpoints know their sources by seven questions, none of which takes an argument."""
    asked = [name for name in vars(Sources) if not name.startswith("_")]

    assert asked == ["metrics", "pods", "live", "ready", "configuration", "flags", "status"]
    assert all(list(inspect.signature(getattr(Sources, name)).parameters) == ["self"] for name in asked)
