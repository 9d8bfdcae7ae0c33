"""A Kubernetes API server for tests: the sandbox, with `tidelog.kube.serve` before it.

    async with ApiSandbox() as cluster:                  # on a virtual clock, in the test's own event loop
        async with cluster.session() as http:
            await http.post("/api/v1/namespaces/default/pods", json=…)

    with ApiServerThread() as api:                       # in a thread of its own, for clients that block, and for programs
        subprocess.run(["kubectl", "get", "pods"], env={"KUBECONFIG": str(api.kubeconfig), …})
        api.advance(minutes=5)

The log is in memory, the address a free port of this machine. Needs the extra: pip install 'tidelog[kube]'.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import yaml

from tidelog.api.objects import Object, Pod
from tidelog.daemon.process.compaction import compact
from tidelog.testing.sandbox import Sandbox

if TYPE_CHECKING:
    import aiohttp

    from tidelog.kube.serve.server import ApiServer

T = TypeVar("T")

START_SECONDS = 60.0
"""How long the thread may take to serve. Only a machine that is stuck needs so long."""


class ApiSandbox(Sandbox):
    """A sandbox that is served."""

    def __init__(
        self, config: Any = None, *, insecure: Any = "", server_limits: Any = None, **settings: Any
    ) -> None:
        """As `Sandbox`; `insecure` and `server_limits` as the server's settings have them."""
        super().__init__(config, **settings)
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-api-"))
        self._insecure = insecure
        self._server_limits = server_limits
        self._port = 0
        self.server: ApiServer

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    async def _start(self, *, again: bool = False) -> None:
        from tidelog.kube.serve.http import Limits
        from tidelog.kube.serve.server import ApiServer, Settings

        await super()._start(again=again)
        self.server = ApiServer(
            self.log,
            self.runtime.facts,
            self.clock,
            Settings(
                listen=f"127.0.0.1:{self._port}",
                kubeconfig=self.kubeconfig,
                tls=self.folder / "tls",
                insecure=self._insecure,
                limits=self._server_limits or Limits(),
            ),
        )
        await self.server.__aenter__()
        self._port = int(self.url.rpartition(":")[2])

    async def restart(self, actors: Any = None) -> None:
        """As if the process had been killed; another serves the same address."""
        await self.server.__aexit__(None, None, None)
        await super().restart(actors)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.server.__aexit__(None, None, None)
            await super().__aexit__(kind, error, trace)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def compact(self) -> int:
        """Verify the log and drop all records: whoever watches from an older one is told that it is gone. Serving begins anew, as it does after
        `log compact`."""
        if not self.log.anchor.seq:
            await self.verify()
        await self.settled()
        await self.server.__aexit__(None, None, None)
        self.runtime.abandon()
        await self.runtime.ended()
        last = await compact(self.log, self.registry)
        await self.log.close()
        await self._start(again=True)
        return last

    @property
    def kubeconfig(self) -> Path:
        """The file that kubectl and client libraries take."""
        return self.folder / "kubeconfig"

    @property
    def url(self) -> str:
        """Where it is served."""
        return self.server.url

    @property
    def token(self) -> str:
        """The token: it lets in every client that has it."""
        user = yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]
        return str(user.get("token", ""))

    def session(self, **settings: Any) -> aiohttp.ClientSession:
        """An HTTP client that is let in."""
        import ssl

        import aiohttp

        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.url.startswith("https:"):
            context = ssl.create_default_context(cadata=_authority(self.folder / "tls"))
            settings.setdefault("connector", aiohttp.TCPConnector(ssl=context, limit=0))
        return aiohttp.ClientSession(self.url, headers=headers, **settings)


def _authority(path: Path) -> str:
    text = path.read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


class ApiServerThread:
    """An `ApiSandbox` in a thread, for those who wait. The clock stands still until `advance`, unless it is a real one."""

    def __init__(self, config: Any = None, **settings: Any) -> None:
        self._make: Callable[[], ApiSandbox] = lambda: ApiSandbox(config, **settings)
        self._thread = threading.Thread(target=self._work, name="tidelog api server", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.sandbox: ApiSandbox

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise TimeoutError("the API server did not start")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._make() as self.sandbox:
            self._ready.set()
            await self._stop.wait()

    def call(self, work: Callable[[ApiSandbox], Awaitable[T]]) -> T:
        """Do something with the sandbox where it lives, and return what comes of it."""

        async def done() -> T:
            return await work(self.sandbox)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    # --- what tests ask of it ---------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it is served."""
        return self.sandbox.url

    @property
    def kubeconfig(self) -> Path:
        """The file that kubectl and client libraries take."""
        return self.sandbox.kubeconfig

    def client(self) -> Any:
        """An `ApiClient` of the official package `kubernetes`."""
        from kubernetes import config

        make: Any = config.new_client_from_config
        return make(str(self.kubeconfig))

    def apply(self, objects: Object | Iterable[Object]) -> None:
        """Put objects, and let the scheduler do what it can do at once."""
        given: Sequence[Object] = [objects] if isinstance(objects, Object) else list(objects)
        self.call(lambda sandbox: sandbox.apply(given))

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0) -> None:
        """Let time go by on the virtual clock."""
        self.call(lambda sandbox: sandbox.advance(seconds, minutes=minutes, hours=hours))

    def settled(self) -> None:
        """Return when only time could give anybody something to do."""
        self.call(lambda sandbox: sandbox.settled())

    def restart(self) -> None:
        """As if the process had been killed; another serves the same address."""
        self.call(lambda sandbox: sandbox.restart())

    def compact(self) -> None:
        """Drop all records, and begin to serve anew."""
        self.call(lambda sandbox: sandbox.compact())

    def verify(self) -> None:
        """Recompute every decision and compare. Of a log that was compacted nothing: that was done before."""

        async def work(sandbox: ApiSandbox) -> None:
            if not sandbox.log.anchor.seq:
                await sandbox.verify()

        self.call(work)

    def pods(self) -> list[Pod]:
        """All pods."""

        async def found(sandbox: ApiSandbox) -> list[Pod]:
            return sandbox.pods()

        return self.call(found)
