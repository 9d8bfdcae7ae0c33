"""A pytest plugin: clusters on virtual time, whose logs are verified by replay when the test is over.

    async def test_pod_runs_in_zone_b(tidelog_cluster):
        await tidelog_cluster.apply(…)
        await tidelog_cluster.advance(minutes=5)
        …

    async def test_with_a_configuration_of_our_own(tidelog_sandbox):
        cluster = await tidelog_sandbox("scheduler.yaml", actors=[NodeAgent()])
        …

    def test_controller_of_ours(tidelog_api_server):          # a Kubernetes API, for any client
        pods = CoreV1Api(tidelog_api_server.client()).list_pod_for_all_namespaces()
        …

pytest finds it by itself where tidelog is installed; without pytest-asyncio those for tests that await are not there. docs/testing.md has whole tests.
Nothing of tidelog is imported until a test asks for one of the fixtures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.api_server import ApiServerThread
    from tidelog.testing.sandbox import Sandbox

MakeSandbox = Callable[..., Awaitable["Sandbox"]]
MakeApiServer = Callable[..., "ApiServerThread"]


async def sandboxes() -> AsyncIterator[MakeSandbox]:
    """Makes clusters: `await tidelog_sandbox(config, registry=…, actors=…)`, with the arguments of `Sandbox`."""
    from tidelog.testing.sandbox import Sandbox

    made: list[Sandbox] = []
    async with AsyncExitStack() as stack:

        async def make(config: Any = None, **settings: Any) -> Sandbox:
            sandbox = await stack.enter_async_context(Sandbox(config, **settings))
            made.append(sandbox)
            return sandbox

        yield make
        for sandbox in made:
            await sandbox.verify()


async def cluster(tidelog_sandbox: MakeSandbox) -> Sandbox:
    """A cluster with the default configuration, and nothing in it."""
    return await tidelog_sandbox()


@pytest.fixture
def tidelog_api_servers() -> Iterator[MakeApiServer]:
    """Makes API servers: `tidelog_api_servers(config, actors=…, clock=SystemClock())`, with the arguments of `Sandbox`."""
    from tidelog.testing.api_server import ApiServerThread

    made: list[ApiServerThread] = []
    with ExitStack() as stack:

        def make(config: Any = None, **settings: Any) -> ApiServerThread:
            server = stack.enter_context(ApiServerThread(config, **settings))
            made.append(server)
            return server

        yield make
        for server in made:
            server.verify()


@pytest.fixture
def tidelog_api_server(tidelog_api_servers: MakeApiServer) -> ApiServerThread:
    """A Kubernetes API server with a scheduler, and nothing in it, on a virtual clock: address, kubeconfig, client."""
    return tidelog_api_servers()


# Whoever has tidelog and pytest, but not pytest-asyncio, must be able to run other tests.
with suppress(ImportError):
    import pytest_asyncio

    tidelog_sandbox = pytest_asyncio.fixture(sandboxes, name="tidelog_sandbox")
    tidelog_cluster = pytest_asyncio.fixture(cluster, name="tidelog_cluster")
