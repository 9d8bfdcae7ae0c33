"""Served sandboxes for the tests of `tidelog.kube.serve`, and a real API server for those that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from tests.kube.real_world import DAEMONS
from tests.kube.server import RealServer, need
from tidelog.testing.api_server import ApiSandbox


class Reply(NamedTuple):
    """A status and a body."""

    status: int
    body: Any
    headers: Any


class Client:
    """Asks one server."""

    def __init__(self, sandbox: ApiSandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        headers = more.pop("headers", {})
        kind = more.pop("type", "")
        if kind:
            headers = {**headers, "Content-Type": kind}
        if body is not None and kind:
            import json

            more["data"] = json.dumps(body)
        elif body is not None:
            more["json"] = body
        async with self.http.request(
            method, path, headers=headers, params=more.pop("query", None), **more
        ) as reply:
            text = await reply.read()
            is_json = reply.headers.get("Content-Type", "").startswith("application/json")
            import json

            return Reply(reply.status, json.loads(text) if is_json and text else text, reply.headers)

    async def get(self, path: str, **query: str) -> Reply:
        return await self.ask("GET", path, query=query)

    async def post(self, path: str, body: Any, **query: str) -> Reply:
        return await self.ask("POST", path, body, query=query)

    async def put(self, path: str, body: Any, **query: str) -> Reply:
        return await self.ask("PUT", path, body, query=query)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Reply:
        types = {
            "json": "application/json-patch+json",
            "merge": "application/merge-patch+json",
            "strategic": "application/strategic-merge-patch+json",
        }
        return await self.ask("PATCH", path, body, type=types.get(kind, kind), query=query)

    async def delete(self, path: str, body: Any = None, **query: str) -> Reply:
        return await self.ask("DELETE", path, body, query=query)


MakeClient = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[MakeClient]:
    """Makes served sandboxes with a client each."""
    async with AsyncExitStack() as stack:

        async def make(config: Any = None, **settings: Any) -> Client:
            sandbox = await stack.enter_async_context(ApiSandbox(config, **settings))
            return Client(sandbox, await stack.enter_async_context(sandbox.session()))

        yield make


@pytest_asyncio.fixture
async def client(serve: MakeClient) -> Client:
    """A served sandbox with nothing in it."""
    return await serve()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A real API server, if one is named."""
    need()
    found = RealServer(tmp_path_factory.mktemp("server"))
    try:
        found.start()
        yield found
    finally:
        while DAEMONS:
            DAEMONS.pop().end()
        found.stop()
