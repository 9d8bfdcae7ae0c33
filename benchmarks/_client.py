"""A client of the served API that costs little itself: `benchmarks/serve.py` measures the server, and both are on the same cores.

One connection, one request at a time; it knows of HTTP what the server's answers to it need.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit


class Way(NamedTuple):
    """The way to a server, as a kubeconfig of `tidelog serve` has it."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str

    @classmethod
    def of(cls, kubeconfig: str | Path) -> Self:
        """Read the kubeconfig."""
        data = json.loads(Path(kubeconfig).read_text())
        cluster, user = data["clusters"][0]["cluster"], data["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        parts = urlsplit(cluster["server"])
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port, ssl.create_default_context(cadata=authority), user["token"])


class LeanConnection:
    """One kept connection."""

    def __init__(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._head = f"Host: {way.host}:{way.port}\r\nAuthorization: Bearer {way.token}\r\n"
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, way: Way) -> LeanConnection:
        """Connect."""
        return cls(way, *await asyncio.open_connection(way.host, way.port, ssl=way.tls, limit=1 << 20))

    async def ask(self, method: str, path: str, body: bytes, kind: str = "application/json") -> int:
        """The status of the answer, which is read."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        _, _, rest = answer.lower().partition(b"content-length: ")
        await self._reader.readexactly(int(rest[: rest.index(b"\r")]))
        return int(answer[9:12])

    async def follow(self, path: str) -> None:
        """Read a watch for ever."""
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())
        while await self._reader.read(1 << 20):
            pass

    def close(self) -> None:
        """End it."""
        self._writer.transport.abort()
