"""A scheduler inside your own program: the daemon without its process.

    async with Scheduler.open("cluster.db", "scheduler.yaml") as scheduler:
        await scheduler.apply([node("n1").build(), pod("web").build()])
        await scheduler.settled()
        print(scheduler.placements)
        explanation = await scheduler.why("web")

It writes the log exactly as `tidelog run` does: it holds the lock, takes requests of `tidelog apply` over the socket, and what it decided
can be verified afterwards. `tidelog.testing.sandbox` is the same on a log in memory and a clock that tests move.

`pods()` and its like show what the scheduler has consumed, which may be a commit ahead of the disk; after `settled()` it is durable.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidelog.api.errors import TidelogError
from tidelog.api.kinds.registry import KIND_OF_TYPE, object_key
from tidelog.api.objects import Node, Object, Pod
from tidelog.configuration.configuration import (
    Loaded,
    SchedulerConfiguration,
    default_configuration,
    read_configuration,
    resolve_configuration,
)
from tidelog.configuration.strict import TEXT_BYTES_MAX
from tidelog.daemon.actors.protocol import Actor
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.intake.messages import Answer, Apply, Delete, SetCondition
from tidelog.daemon.process.clock import Clock, SystemClock
from tidelog.daemon.process.recovery import recovered_state
from tidelog.daemon.process.runtime import Limits, Runtime, Watcher
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.records import Record, make_decoders
from tidelog.eventlog.socket import serve
from tidelog.plugins.registry import Registry, installed_plugins
from tidelog.replay.states import State, last_kept

if TYPE_CHECKING:
    from tidelog.replay.why import Why

O = TypeVar("O", bound=Object)  # noqa: E741

Configuration = str | os.PathLike[str] | Mapping[str, object] | SchedulerConfiguration | None
"""A file, what would be in a file, a resolved configuration, or None for the default one."""


def load_configuration(
    given: Configuration, registry: Registry, gates: Mapping[str, bool] | None = None
) -> Loaded:
    """The configuration that was given. Raises InvalidObjects with all that is wrong in it, or TidelogError if there is no such file."""
    if given is None:
        return Loaded(default_configuration(registry, gates), ())
    if isinstance(given, SchedulerConfiguration):
        return Loaded(given, ())
    if isinstance(given, Mapping):
        return resolve_configuration(given, registry, gates=gates)
    path = Path(given)
    try:
        with path.open("rb") as file:
            text = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise TidelogError(f"{path}: the configuration cannot be read: {error.strerror or error}") from error
    return read_configuration(text, registry, source=str(path), gates=gates)


class Scheduler:
    """A running scheduler. Made by `open`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | os.PathLike[str],
        config: Configuration = None,
        *,
        registry: Registry | None = None,
        gates: Mapping[str, bool] | None = None,
        actors: Sequence[Actor] = (),
        limits: Limits | None = None,
        watcher: Watcher | None = None,
        clock: Clock | None = None,
    ) -> AsyncIterator[Scheduler]:
        """Open the log at `path`, or make a new one, and schedule until the block is left.

        Raises what is wrong with the configuration or the log, `LogLocked` among it; then nothing was changed. What goes wrong later is
        raised by `settled`, `apply`, and on leaving.
        """
        registry = registry or installed_plugins()
        configuration = load_configuration(config, registry, gates).configuration
        clock = clock or SystemClock()
        async with AsyncExitStack() as stack:
            log = await stack.enter_async_context(
                open_log(path, what="a program that uses tidelog", clock=clock.now)
            )
            runtime = await assembled(
                log,
                registry,
                configuration,
                clock,
                source=str(config) if isinstance(config, str | os.PathLike) else "",
                actors=actors,
                limits=limits,
                watcher=watcher,
            )
            await stack.enter_async_context(runtime)
            await stack.enter_async_context(serve(log, runtime.facts.handle))
            yield cls(runtime)

    # --- telling it -----------------------------------------------------------------------------------------------------

    async def apply(self, objects: Object | Iterable[Object], *, dry_run: bool = False) -> Answer:
        """Put objects into the log, all or none; returns when they are durable. Raises Refused with every broken rule."""
        given = [objects] if isinstance(objects, Object) else list(objects)
        return await self.runtime.facts.submit(Apply(objects=given), dry_run=dry_run)

    async def delete(
        self, objects: Object | str | Iterable[Object | str], *, grace_period_seconds: int | None = None
    ) -> Answer:
        """Delete objects, which may be named by `Kind/namespace/name`. A pod on a node only begins to terminate, unless the grace is 0."""
        given = [objects] if isinstance(objects, Object | str) else list(objects)
        keys = [one if isinstance(one, str) else key_of(one) for one in given]
        return await self.runtime.facts.submit(Delete(keys=keys, grace_period_seconds=grace_period_seconds))

    async def set_condition(
        self, pod: Pod | str, type: str, status: str, reason: str = "", message: str = ""
    ) -> Answer:
        """Set a condition of a pod's status, as a controller would."""
        key = pod if isinstance(pod, str) else key_of(pod)
        return await self.runtime.facts.submit(
            SetCondition(key=key, type=type, status=status, reason=reason, message=message)
        )

    async def configure(self, config: Configuration) -> None:
        """Put another configuration in force; returns when it is."""
        registry = self.runtime.core.registry
        await self.runtime.configure(load_configuration(config, registry).configuration)

    async def settled(self) -> None:
        """Return when everything put is consumed, everything decided is durable, and nothing is left to do until time goes by."""
        await self.runtime.settled()

    # --- asking it ------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Object | None:
        """The object of this `Kind/namespace/name`."""
        return self.runtime.core.objects.get(key)

    def pods(self, namespace: str | None = None) -> list[Pod]:
        """All pods, or those of a namespace, in the order of their creation."""
        return [pod for pod in self._all(Pod) if namespace in (None, pod.metadata.namespace)]

    def nodes(self) -> list[Node]:
        """All nodes, in the order of their creation."""
        return self._all(Node)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """The pod of this name; KeyError if there is none."""
        found = self.runtime.core.objects[f"Pod/{namespace}/{name}"]
        assert isinstance(found, Pod)
        return found

    def node(self, name: str) -> Node:
        """The node of this name; KeyError if there is none."""
        found = self.runtime.core.objects[f"Node//{name}"]
        assert isinstance(found, Node)
        return found

    @property
    def placements(self) -> dict[str, str]:
        """`namespace/name` → node of every pod that has one."""
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": pod.spec.node_name
            for pod in self.pods()
            if pod.spec.node_name
        }

    async def records(self, first: int = 0, last: int | None = None) -> AsyncIterator[Record]:
        """The durable records from `first` (by default the oldest kept) to `last` (by default the newest)."""
        async for record in self.runtime.log.read(first, last):
            yield record

    async def why(self, pod: Pod | str, *, seq: int | None = None) -> Why:
        """Explain why a pod is where it is, as it was after record `seq` (by default the newest durable one): `tidelog why`."""
        from tidelog.replay.history import History

        return await History(self.runtime.log, self.runtime.core.registry).why(pod, seq=seq)

    def _all(self, kind: type[O]) -> list[O]:
        return [obj for obj in self.runtime.core.objects.values() if isinstance(obj, kind)]


def key_of(obj: Object) -> str:
    """The record key of an object; one of a namespace that names none is in `default`."""
    meta = obj.metadata
    kind = KIND_OF_TYPE[type(obj)]
    if kind.namespaced and not meta.namespace:
        return f"{kind.name}/default/{meta.name}"
    return object_key(obj)


async def assembled(
    log: Log,
    registry: Registry,
    configuration: SchedulerConfiguration,
    clock: Clock,
    *,
    source: str = "",
    holder: str = "tidelog",
    actors: Sequence[Actor] = (),
    limits: Limits | None = None,
    watcher: Watcher | None = None,
    state: State | None = None,
) -> Runtime:
    """A runtime that stands at the end of the log, ready to be entered. `state`: one whose core has consumed the log, if there is one."""
    make_decoders("Pod", "Node")
    core, table, whole = state or await recovered_state(log, registry)
    if table is None:
        table = await load_objects(log)
    facts = FactService(log, table, configuration.feature_gates)
    await facts.catch_up()
    table.bring_into_order(core.objects)
    return Runtime(
        log,
        core,
        facts,
        clock,
        configuration=configuration,
        source=source,
        holder=holder,
        actors=actors,
        limits=limits,
        watcher=watcher,
        kept=await last_kept(log),
        whole=whole,
    )
