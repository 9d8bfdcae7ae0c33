"""List-watch loops of Python's client libraries through a day of churn: cut connections, restarts, forced 410s, and nothing missed or told twice.

The loop is the one that each library's users write: list, watch from the list's revision, again from the last one that was seen, and list anew after
410 Gone. What it has seen is held against the server: each version of an object at most once and in order, and in the end the same objects.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import pytest
import yaml

from tests.kube.server import VARIABLES, binary
from tests.patience import PATIENCE
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.daemon.process.runtime import Limits
from tidelog.testing.api_server import ApiSandbox, ApiServerThread
from tidelog.testing.builders import node, pod

HOURS = 24
INCIDENTS = 4
"""In an hour: a cut, a restart, a compaction, and that it goes by."""
CHANGES = 25
"""Between two incidents."""

Event = tuple[str, dict[str, Any]]


class Gone(Exception):
    """The revision was compacted."""


class Loop:
    """A list-watch loop, as a controller has one."""

    def __init__(
        self,
        lister: Callable[[], tuple[list[dict[str, Any]], str]],
        watcher: Callable[[str], Iterator[Event]],
        close: Callable[[], object],
    ) -> None:
        """`close`: let go of the library's connections."""
        self._list = lister
        self._watch = watcher
        self._close = close
        self.objects: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.problems: list[str] = []
        self.relists = self.resumes = 0
        self.revision = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def end(self) -> None:
        """Wait for the thread's end: at its next event, or when it is cut off, since some libraries' watches never end by themselves."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._relist()
                while not self._stop.is_set():
                    self._follow()
                    self.resumes += 1
            except Gone:
                continue
            except Exception:
                # The server is away for a moment; a library's own errors are of many kinds.
                self._stop.wait(0.02)

    def _relist(self) -> None:
        items, revision = self._list()
        self.relists += 1
        self.objects = {item["metadata"]["name"]: item for item in items}
        for item in items:
            self._note(item, listed=True)
        self.revision = int(revision)

    def _follow(self) -> None:
        try:
            for kind, obj in self._watch(str(self.revision)):
                revision = int(obj["metadata"]["resourceVersion"])
                if revision <= self.revision:
                    self.problems.append(f"{kind} {revision} after {self.revision}")
                self._note(obj)
                known = obj["metadata"]["name"] in self.objects
                if (kind == "ADDED") == known:
                    self.problems.append(
                        f"{kind} of {obj['metadata']['name']}, which was {'there' if known else 'not there'}"
                    )
                if kind == "DELETED":
                    self.objects.pop(obj["metadata"]["name"], None)
                else:
                    self.objects[obj["metadata"]["name"]] = obj
                self.revision = revision
                if self._stop.is_set():
                    return
        except Gone:
            raise
        except Exception:
            if self._stop.wait(0.02):
                return

    def _note(self, obj: dict[str, Any], *, listed: bool = False) -> None:
        uid, revision = obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"])
        before = self.versions.get(uid, 0)
        if revision < before or (revision == before and not listed):
            self.problems.append(f"{obj['metadata']['name']} at {revision} after {before}")
        self.versions[uid] = max(revision, before)


ALONE = bool(os.environ.get("TIDELOG_CLIENT_LOOPS"))
"""Set by `make client-loops`. While the server restarts, its port may be taken by a test beside this one, so these are not for many at once."""
TIMEOUT = (5, 30)
"""Seconds to connect and between two answers: without it the library waits for ever for a server that went in the middle of a handshake."""


def official(api: ApiServerThread) -> Loop:
    from kubernetes import watch
    from kubernetes.client import ApiException, CoreV1Api

    core = CoreV1Api(api.client())
    plain = core.api_client.sanitize_for_serialization

    def lister() -> tuple[list[dict[str, Any]], str]:
        found = core.list_pod_for_all_namespaces(limit=20, _request_timeout=TIMEOUT)
        items, revision = list(found.items), found.metadata.resource_version
        while found.metadata._continue:
            try:
                found = core.list_pod_for_all_namespaces(
                    limit=20, _continue=found.metadata._continue, _request_timeout=TIMEOUT
                )
            except ApiException as error:
                raise (Gone() if error.status == 410 else error) from None
            items += found.items
        return [plain(item) for item in items], revision

    def watcher(revision: str) -> Iterator[Event]:
        try:
            stream = watch.Watch().stream(
                core.list_pod_for_all_namespaces,
                resource_version=revision,
                timeout_seconds=2,
                allow_watch_bookmarks=True,
                _request_timeout=TIMEOUT,
            )
            for event in stream:
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["raw_object"]
        except ApiException as error:
            raise (Gone() if error.status == 410 else error) from None

    return Loop(lister, watcher, core.api_client.rest_client.pool_manager.clear)


def lightkube(api: ApiServerThread) -> Loop:
    from lightkube import Client, KubeConfig
    from lightkube.core.exceptions import ApiError
    from lightkube.resources.core_v1 import Pod

    client = Client(config=KubeConfig.from_file(api.kubeconfig))

    def lister() -> tuple[list[dict[str, Any]], str]:
        try:
            found = client.list(Pod, namespace="*", chunk_size=20)
            items = [item.to_dict() for item in found]
            return items, found.resourceVersion
        except ApiError as error:
            raise (Gone() if error.status.code == 410 else error) from None

    def watcher(revision: str) -> Iterator[Event]:
        try:
            for kind, obj in client.watch(Pod, namespace="*", resource_version=revision, server_timeout=2):
                yield kind, obj.to_dict()
        except ApiError as error:
            raise (Gone() if error.status.code == 410 else error) from None

    return Loop(lister, watcher, lambda: None)


class Churn:
    """Changes objects at random, over and over."""

    def __init__(self, api: ApiServerThread, seed: int) -> None:
        self._api = api
        self._random = random.Random(seed)
        self._number = 0
        self._names: list[str] = []

    def go(self, changes: int) -> None:
        self._api.call(lambda sandbox: self._go(sandbox, changes))

    async def _go(self, sandbox: ApiSandbox, changes: int) -> None:
        for _ in range(changes):
            what = self._random.random()
            if what < 0.4 or len(self._names) < 5:
                self._number += 1
                self._names.append(f"p-{self._number}")
                await sandbox.apply(pod(self._names[-1]).label(turn="0").request(cpu="10m").build())
            elif what < 0.6:
                gone = self._names.pop(self._random.randrange(len(self._names)))
                await sandbox.delete(f"Pod/default/{gone}", grace_period_seconds=0)
            else:
                self._number += 1
                name = self._random.choice(self._names)
                await sandbox.set_condition(
                    f"Pod/default/{name}", "example.com/turn", "True", "R", str(self._number)
                )

    def incident(self, number: int) -> None:
        match number % INCIDENTS:
            case 0:
                self._api.call(_cut)
            case 1:
                self._api.restart()
            case 2:
                self._api.compact()
            case _:
                self._api.advance(hours=1)


async def _cut(sandbox: ApiSandbox) -> None:
    """Every connection breaks off in the middle."""
    for connection in list(sandbox.server._server.connections):
        if connection.transport is not None:
            connection.transport.abort()


@pytest.mark.skipif(
    not ALONE,
    reason="restarts a server on its port, which wants a machine without other tests: make client-loops",
)
@pytest.mark.slow
@pytest.mark.parametrize("library", [official, lightkube], ids=lambda library: library.__name__)
def test_loop_misses_nothing_and_is_told_nothing_twice(
    library: Callable[[ApiServerThread], Loop], tidelog_api_servers: Callable[..., ApiServerThread]
) -> None:
    api = tidelog_api_servers(actors=[NodeAgent()])
    api.apply([node(f"n{number}").capacity(cpu="8", memory="8Gi").build() for number in range(3)])
    churn = Churn(api, 7)
    with library(api) as loop:
        for number in range(HOURS * INCIDENTS):
            churn.go(CHANGES)
            churn.incident(number)
        churn.go(CHANGES)
        api.settled()
        wanted = {one.metadata.name for one in api.pods()}
        last = _last_revision(api)
        _wait(lambda: loop.revision >= last and set(loop.objects) == wanted)
        final = {name: obj["metadata"]["resourceVersion"] for name, obj in loop.objects.items()}
    api.call(_cut)
    loop.end()

    print(
        f"{len(loop.versions)} pods, {HOURS} of each incident, {loop.relists} lists, {loop.resumes} watches"
    )
    assert loop.problems == []
    assert final == _revisions(api)
    assert loop.relists > 2
    assert loop.resumes > 2 * HOURS


@pytest.mark.skipif(
    not ALONE,
    reason="restarts a server on its port, which wants a machine without other tests: make client-loops",
)
@pytest.mark.slow
def test_informers_of_a_real_kube_scheduler_miss_nothing(
    tidelog_api_servers: Callable[..., ApiServerThread], tmp_path: Path
) -> None:
    """client-go's own loops. What they missed would show: a pod that came would never be placed, one would go to a node that is gone, or not to
    the one that came."""
    program = binary("kube-scheduler")
    if not program:
        pytest.skip(f"kube-scheduler is not there: set {VARIABLES['kube-scheduler'][0]}")
    api = tidelog_api_servers(limits=Limits(decides=False))
    api.apply(
        [node(f"n{number}").capacity(cpu="64", memory="64Gi", pods="5000").build() for number in range(3)]
    )
    churn = Churn(api, 11)
    said = tmp_path / "kube-scheduler.txt"
    with said.open("wb") as output, kube_scheduler(program, api, tmp_path, output):
        for number in range(HOURS):
            churn.go(CHANGES)
            churn.incident(number)
            if number % 6 == 2:  # Just after a compaction: the node's end is told by a new list.
                api.call(lambda sandbox, gone=f"n{number // 6}": sandbox.delete(f"Node//{gone}"))
                api.apply(node(f"n{number // 6 + 3}").capacity(cpu="64", memory="64Gi", pods="5000").build())
            churn.go(CHANGES)
            _wait(lambda: all(one.spec.node_name for one in api.pods()))
        nodes, used = _nodes(api), []
        while len(used) < 9 or set(used[-9:]) != nodes:  # What it was told late it knows in the end.
            api.apply(pod(f"last-{len(used)}").request(cpu="10m").build())
            _wait(lambda: all(one.spec.node_name for one in api.pods()))
            used.append(
                next(one.spec.node_name for one in api.pods() if one.metadata.name == f"last-{len(used)}")
            )
            assert len(used) < 100, (nodes, used)
    assert len(api.pods()) > HOURS
    assert b"panic" not in said.read_bytes()


@contextlib.contextmanager
def kube_scheduler(program: str, api: ApiServerThread, folder: Path, output: IO[bytes]) -> Iterator[None]:
    """It works while the block lasts."""
    connection = {
        "kubeconfig": str(api.kubeconfig),
        "contentType": "application/json",
        "acceptContentTypes": "application/json",
        "qps": 5000,
        "burst": 5000,
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {"leaderElect": False},
    }
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [program, f"--config={path}", "--secure-port=0"]
    process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()


def _nodes(api: ApiServerThread) -> set[str]:
    async def found(sandbox: ApiSandbox) -> set[str]:
        return {entry.object.metadata.name for entry in sandbox.runtime.facts.objects.of_kind("Node")}

    return api.call(found)


def _revisions(api: ApiServerThread) -> dict[str, str]:
    async def found(sandbox: ApiSandbox) -> dict[str, str]:
        await sandbox.server.view.caught_up()
        return {item.name: str(item.revision) for item in sandbox.server.view.shelves["Pod"].items()}

    return api.call(found)


def _last_revision(api: ApiServerThread) -> int:
    return max((int(revision) for revision in _revisions(api).values()), default=0)


def _wait(condition: Callable[[], bool]) -> None:
    from tests.patience import wait_until

    wait_until(condition, what="the loop sees everything")
