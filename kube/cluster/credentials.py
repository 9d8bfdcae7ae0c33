"""Credentials for the API server, and how to reach it: from a kubeconfig file, or from the pod that we run in.

    kubeconfig   server, CA, and one of: token, token file, client certificate, user and password, a program that prints a token
    in-cluster   the service account's token and CA, and two variables of the environment

Read here, not with the official package: that brings 123 MB and half a second of imports for what is a hundred lines, and the plain cases
are all of it. Login helpers (`auth-provider`, gone from Kubernetes itself) are refused by name.

Tokens in files are read again when the server does not take one (401), and every minute; a program's are when they expire.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS, parse_time
from tidelog.daemon.process.clock import Clock
from tidelog.kube.cluster.port import ClusterError

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60
"""How old a token from a file may get. A bound token is replaced by the kubelet long before it ends."""
EXEC_SECONDS = 60.0


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: list[_Entry] = []
    users: list[_Entry] = []
    contexts: list[_Entry] = []
    current_context: str = ""


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, frozen=True):
    status: _ExecStatus = _ExecStatus()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and what to show it. Paths are absolute."""

    source: str
    """Where this was read, for messages."""
    server: str
    ca_data: bytes = b""
    ca_file: str = ""
    insecure: bool = False
    server_name: str = ""
    token: str = ""
    token_file: str = ""
    certificate: bytes = b""
    certificate_file: str = ""
    key: bytes = b""
    key_file: str = ""
    user: str = ""
    password: str = ""
    command: tuple[str, ...] = ()
    """The program that prints an ExecCredential, with its arguments."""
    command_env: dict[str, str] = {}
    command_version: str = ""


def read_access(source: str, context: str = "") -> Access:
    """The server that `--kubeconfig` names: a file, or `in-cluster`. Raises UsageError with what is wrong."""
    return _in_cluster() if source == IN_CLUSTER else _from_file(Path(source), context)


def _in_cluster() -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token = SERVICE_ACCOUNT / "token"
    if not host or not port or not token.exists():
        raise UsageError(
            "--kubeconfig in-cluster: this is no pod of a cluster "
            "(KUBERNETES_SERVICE_HOST and a service account's token are missing); name a kubeconfig file"
        )
    host = f"[{host}]" if ":" in host else host
    return Access(
        source=IN_CLUSTER,
        server=f"https://{host}:{port}",
        ca_file=str(SERVICE_ACCOUNT / "ca.crt"),
        token_file=str(token),
    )


def _from_file(path: Path, context: str) -> Access:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--kubeconfig {path}: cannot be read: {error.strerror or error}") from error
    try:
        file = msgspec.yaml.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"--kubeconfig {path}: this is no kubeconfig: {error}") from error
    name = context or file.current_context
    if not name and len(file.contexts) == 1:
        name = file.contexts[0].name
    if not name:
        raise UsageError(f"--kubeconfig {path}: there is no current-context; choose one with --context")
    found = _named(file.contexts, name, f"{path}: context").context
    cluster = _named(file.clusters, str(found.get("cluster", "")), f"{path}: cluster").cluster
    who = str(found.get("user", ""))
    user = _named(file.users, who, f"{path}: user").user if who else {}
    return _access(path, cluster, user)


def _named(entries: list[_Entry], name: str, what: str) -> _Entry:
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries) or "none"
    raise UsageError(f'--kubeconfig {what} "{name}" is not there (known: {known})')


def _access(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Access:
    def file(value: object) -> str:
        return str(path.parent.resolve() / str(value)) if value else ""

    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise UsageError(f'--kubeconfig {path}: server "{server}" is no http:// or https:// address')
    if "auth-provider" in user:
        raise UsageError(
            f"--kubeconfig {path}: auth-provider is not supported (Kubernetes has dropped it, too); use exec"
        )
    command = user.get("exec") or {}
    return Access(
        source=str(path),
        server=server,
        ca_data=_decoded(path, cluster, "certificate-authority-data"),
        ca_file=file(cluster.get("certificate-authority")),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name") or ""),
        token=str(user.get("token") or ""),
        token_file=file(user.get("tokenFile")),
        certificate=_decoded(path, user, "client-certificate-data"),
        certificate_file=file(user.get("client-certificate")),
        key=_decoded(path, user, "client-key-data"),
        key_file=file(user.get("client-key")),
        user=str(user.get("username") or ""),
        password=str(user.get("password") or ""),
        command=(str(command["command"]), *map(str, command.get("args") or ())) if command else (),
        command_env={str(e["name"]): str(e["value"]) for e in command.get("env") or ()},
        command_version=str(command.get("apiVersion") or "client.authentication.k8s.io/v1"),
    )


def _decoded(path: Path, found: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(str(found.get(name) or ""), validate=True)
    except binascii.Error as error:
        raise UsageError(f"--kubeconfig {path}: {name} is not base64: {error}") from error


class Credentials:
    """The headers that a request carries, kept fresh. One for each session."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self.access = access
        self._clock = clock
        self._token = access.token
        self._until = 0
        """The token has to be asked for again from then on."""
        self._certificate: tuple[bytes, bytes] = (access.certificate, access.key)

    async def headers(self) -> dict[str, str]:
        """The header that says who we are; empty where a certificate does."""
        access = self.access
        if (access.token_file or access.command) and self._clock.now() >= self._until:
            await self.renew()
        if self._token:
            return {"Authorization": f"Bearer {self._token}"}
        if access.user:
            pair = base64.b64encode(f"{access.user}:{access.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    async def renew(self) -> None:
        """Ask for the token again. Raises ClusterError if there is none to be had."""
        access = self.access
        if access.command:
            await self._run()
        elif access.token_file:
            try:
                self._token = Path(access.token_file).read_text(encoding="utf-8").strip()  # noqa: ASYNC240 # A small file, in memory.
            except OSError as error:
                raise ClusterError(f"{access.token_file}: {error.strerror or error}") from error
            self._until = self._clock.now() + REREAD_SECONDS * NANOS

    async def _run(self) -> None:
        access = self.access
        version = access.command_version
        told = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**os.environ, **access.command_env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(told).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                *access.command,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ClusterError(f"{access.command[0]} cannot be run: {error.strerror or error}") from error
        try:
            out, said = await asyncio.wait_for(process.communicate(), EXEC_SECONDS)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise ClusterError(
                f"{access.command[0]} gave no credentials within {EXEC_SECONDS:g} s"
            ) from error
        if process.returncode:
            last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise ClusterError(f"{access.command[0]} ended with {process.returncode}: {last}")
        try:
            status = msgspec.json.decode(out, type=_ExecCredential).status
            until = parse_time(status.expiration_timestamp) if status.expiration_timestamp else 0
        except (msgspec.MsgspecError, ValueError) as error:
            raise ClusterError(f"{access.command[0]} printed no ExecCredential: {error}") from error
        self._token = status.token
        self._certificate = (status.client_certificate_data.encode(), status.client_key_data.encode())
        # A little before the end: a request may be under way for some seconds.
        self._until = until - 10 * NANOS if until else self._clock.now() + 3600 * NANOS

    async def tls(self) -> ssl.SSLContext | None:
        """How to speak TLS to the server; None for plain HTTP."""
        access = self.access
        if not access.server.startswith("https:"):
            return None
        if access.command and self._clock.now() >= self._until:
            await self.renew()
        try:
            context = ssl.create_default_context(
                cafile=access.ca_file or None, cadata=access.ca_data.decode() or None
            )
            if access.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._add_certificate(context)
        except (OSError, ValueError) as error:
            raise ClusterError(f"{access.source}: certificates cannot be used: {error}") from error
        return context

    def _add_certificate(self, context: ssl.SSLContext) -> None:
        access = self.access
        if access.certificate_file:
            context.load_cert_chain(access.certificate_file, access.key_file or None)
            return
        certificate, key = self._certificate
        if not certificate:
            return
        # The standard library reads them from files only.
        with tempfile.TemporaryDirectory(prefix="tidelog-") as folder:
            chain = Path(folder, "chain.pem")
            chain.touch(mode=0o600)
            chain.write_bytes(certificate + b"\n" + key)
            context.load_cert_chain(chain)
