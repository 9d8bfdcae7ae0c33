"""A pytest plugin: clusters on virtual time, whose logs are verified by replay when the test is over.

    async def test_pod_runs_in_zone_b(tidelog_cluster):
        await tidelog_cluster.apply(…)
        await tidelog_cluster.advance(minutes=5)
        …

    async def test_with_a_configuration_of_our_own(tidelog_sandbox):
        cluster = await tidelog_sandbox("scheduler.yaml", actors=[NodeAgent()])
        …

pytest finds it by itself where tidelog is installed; without pytest-asyncio the fixtures are not there. docs/testing.md has whole tests.
Nothing of tidelog is imported until a test asks for one of the fixtures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.sandbox import Sandbox

MakeSandbox = Callable[..., Awaitable["Sandbox"]]


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


# Whoever has tidelog and pytest, but not pytest-asyncio, must be able to run other tests.
with suppress(ImportError):
    import pytest_asyncio

    tidelog_sandbox = pytest_asyncio.fixture(sandboxes, name="tidelog_sandbox")
    tidelog_cluster = pytest_asyncio.fixture(cluster, name="tidelog_cluster")
