"""Who may ask, and what is too much."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import ssl
import stat
from typing import Any

import pytest

from tests.kube.conftest import Client, MakeClient
from tests.patience import PATIENCE, until
from tidelog.api.errors import TidelogError, UsageError
from tidelog.kube.serve.credentials import certificate, kept_token, read_tokens, write_kubeconfig
from tidelog.kube.serve.http import Limits
from tidelog.kube.serve.server import _Connection
from tidelog.testing.api_server import ApiSandbox

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}],
)
async def test_without_the_token_nothing_is_told(client: Client, headers: dict[str, str]) -> None:
    client.http.headers.popall("Authorization")

    for path in (PODS, "/api", "/apis", "/openapi/v3"):
        answer = await client.ask("GET", path, headers=headers)
        assert answer.status == 401
        assert answer.body["reason"] == "Unauthorized"


async def test_probes_need_no_token(client: Client) -> None:
    client.http.headers.popall("Authorization")

    assert (await client.get("/readyz")).body == b"ok"
    assert (await client.get("/version")).body["major"] == "1"


async def test_request_for_another_host_is_refused(client: Client) -> None:
    answer = await client.ask("GET", PODS, headers={"Host": "evil.example.com"})

    assert answer.status == 403


async def test_web_page_changes_nothing(client: Client) -> None:
    answer = await client.ask(
        "POST", PODS, {"metadata": {"name": "x"}}, headers={"Origin": "https://evil.example.com"}
    )

    assert answer.status == 403
    assert (await client.get(PODS)).body["items"] == []


async def test_plain_http_only_answers_questions_unless_somebody_chose_otherwise(serve: MakeClient) -> None:
    reading = await serve(insecure="read-only")
    writing = await serve(insecure="read-write")
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    assert (await reading.get(PODS)).status == 200
    assert (await reading.post(PODS, pod)).status == 403
    assert (await writing.post(PODS, pod)).status == 201


def test_plain_http_is_for_this_machine_only(tmp_path: Any) -> None:
    from tidelog.kube.serve.server import ApiServer, Settings

    settings = Settings(
        listen="0.0.0.0:0", kubeconfig=tmp_path / "k", tls=tmp_path / "t", insecure="read-only"
    )

    with pytest.raises(UsageError, match="not a loopback address"):
        ApiServer(None, None, None, settings)  # type: ignore[arg-type]


async def test_kubeconfig_and_key_are_their_owners_alone(client: Client) -> None:
    for path in (client.sandbox.kubeconfig, client.sandbox.folder / "tls"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_restart_keeps_token_and_certificate(client: Client) -> None:
    before = client.sandbox.kubeconfig.read_text()
    await client.sandbox.restart()

    assert client.sandbox.kubeconfig.read_text() == before
    assert (await client.get(PODS)).status == 200


async def test_kubeconfig_of_somebody_else_is_not_overwritten(tmp_path: Any) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")

    with pytest.raises(TidelogError, match="there is another kubeconfig"):
        write_kubeconfig(path, "https://127.0.0.1:1")
    assert path.read_text().startswith("apiVersion")


def test_token_of_a_file_that_others_can_read_is_not_used_again(tmp_path: Any) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, "https://127.0.0.1:1", "t" * 40)
    assert kept_token(path) == "t" * 40

    path.chmod(0o644)

    assert kept_token(path) != "t" * 40


def test_certificate_for_another_host_is_made_anew(tmp_path: Any) -> None:
    first = certificate(tmp_path / "tls", "127.0.0.1")
    again = certificate(tmp_path / "tls", "127.0.0.1")
    other = certificate(tmp_path / "tls", "10.0.0.1")

    assert first.certificate == again.certificate != other.certificate


@pytest.mark.parametrize("text", ["", "short,user\n", "x" * 20 + "\n", "\x00,a\n"])
def test_token_file_that_is_none(tmp_path: Any, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)

    with pytest.raises(TidelogError):
        read_tokens(path)


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "application/json", 400),
        (b"[]", "application/json", 400),
        (b"3", "application/json", 400),
        (b"", "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"a: 1\n---\nb: 2", "application/yaml", 400),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415),
        (b"x" * (4 << 20), "application/json", 413),
    ],
)
async def test_body_that_is_none(client: Client, data: bytes, kind: str, code: int) -> None:
    async with client.http.post(PODS, data=io.BytesIO(data), headers={"Content-Type": kind}) as reply:
        found = await reply.json()

    assert reply.status == code
    assert found["kind"] == "Status"


async def test_protobuf_is_refused_with_the_way_round(client: Client) -> None:
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with client.http.post(PODS, data=b"k8s\x00", headers=headers) as reply:
        found = await reply.json()

    assert found["reason"] == "UnsupportedMediaType"
    assert "protobuf is not read here: have the client send JSON" in found["message"]


async def test_yaml_is_taken(client: Client) -> None:
    text = "metadata: {name: web}\nspec: {containers: [{name: c, image: i}]}"

    async with client.http.post(PODS, data=text, headers={"Content-Type": "application/yaml"}) as reply:
        assert reply.status == 201


async def test_body_that_does_not_arrive_is_not_waited_for(serve: MakeClient) -> None:
    client = await serve(insecure="read-write", server_limits=Limits(body_seconds=0.1))
    host, _, port = client.sandbox.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST {PODS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{".encode()
    )

    line = await reader.readline()
    writer.close()

    assert b"408" in line


async def test_watches_are_limited(serve: MakeClient) -> None:
    client = await serve(server_limits=Limits(watches=1))

    async with client.http.get(PODS, params={"watch": "true"}):
        answer = await client.get(PODS, watch="true")

    assert answer.status == 429
    assert answer.headers["Retry-After"] == "1"


async def test_connections_are_limited(serve: MakeClient) -> None:
    client = await serve(insecure="read-only", server_limits=Limits(connections=2))
    host, _, port = client.sandbox.url.removeprefix("http://").rpartition(":")
    open_ones = [await asyncio.open_connection(host, int(port)) for _ in range(2)]

    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        refused = await reader.read()
    except ConnectionError:
        refused = b""
    for _, one in (*open_ones, (reader, writer)):
        one.close()

    assert refused == b""


async def test_read_write_paths_answer_every_method_with_a_status(client: Client) -> None:
    for method in ("OPTIONS", "TRACE", "PROPFIND"):
        async with client.http.request(method, PODS) as reply:
            text = await reply.text()
        assert reply.status in (400, 403, 405, 501), method
        assert reply.status != 405 or json.loads(text)["kind"] == "Status"


async def test_address_that_is_taken_is_told(client: Client) -> None:
    other = ApiSandbox()
    other._port = int(client.sandbox.url.rpartition(":")[2])

    with pytest.raises(TidelogError, match="cannot be served"):
        await other.__aenter__()
    await other.runtime.stop()
    await other.log.close()


async def test_view_that_fails_is_told_and_does_not_let_clients_wait(client: Client) -> None:
    failed = asyncio.Event()
    client.sandbox.server.on_failure = failed.set

    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    client.sandbox.server.view.on_record = fail
    await client.post(
        PODS, {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    await failed.wait()

    assert (await client.get(PODS)).status == 503
    assert (await client.get("/readyz")).status == 500
    assert str(client.sandbox.server.failure) == "boom"


@pytest.mark.parametrize("turns", range(4))
async def test_connection_that_is_made_while_the_server_ends_leads_to_the_next_one(
    client: Client, turns: int
) -> None:
    """In whichever turn of the event loop it ends: not to a server that answers 500 for ever, and not to silence."""
    sandbox = client.sandbox
    host, _, port = sandbox.url.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port))) as early:
        early.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await sandbox.restart()

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectionError):
                await _asked(early, sandbox)

    assert (await client.get(PODS)).status == 200


async def _asked(connection: socket.socket, sandbox: ApiSandbox) -> bytes:
    context = ssl._create_unverified_context()
    reader, writer = await asyncio.open_connection(sock=connection, ssl=context, server_hostname="tidelog")
    try:
        request = f"GET {PODS} HTTP/1.1\r\nHost: tidelog\r\nAuthorization: Bearer {sandbox.token}\r\n\r\n"
        writer.write(request.encode())
        found = await reader.read(100)
        if not found:
            raise ConnectionResetError
        return found
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_connection_whose_handshake_ends_just_when_the_server_does_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when its client takes no leave. In the very turn of the event loop in which the handshake is done, the server begins to end."""
    ended: list[_Connection] = []
    ending: list[asyncio.Task[None]] = []
    connection_made, connection_lost = _Connection.connection_made, _Connection.connection_lost

    def made(self: _Connection, transport: asyncio.BaseTransport) -> None:
        connection_made(self, transport)
        ending.append(asyncio.create_task(sandbox.restart()))

    def lost(self: _Connection, error: BaseException | None) -> None:
        connection_lost(self, error)
        ended.append(self)

    def connect(port: int) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(socket.create_connection(("127.0.0.1", port)))

    async with ApiSandbox() as sandbox:
        monkeypatch.setattr(_Connection, "connection_made", made)
        monkeypatch.setattr(_Connection, "connection_lost", lost)
        client = await asyncio.to_thread(connect, int(sandbox.url.rpartition(":")[2]))
        await until(lambda: bool(ending))
        await ending[0]

        assert len(ended) == 1
        client.close()
