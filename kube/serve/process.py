"""The process of `tidelog serve`: `tidelog run`, and the API of its log beside it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tidelog.daemon.actors.catalogue import Cast, nobody
from tidelog.daemon.http.endpoints import Site
from tidelog.daemon.process.process import Options, Process
from tidelog.daemon.process.runtime import Runtime
from tidelog.eventlog.address import LogAddress, database_name, is_database
from tidelog.eventlog.opening import log_path
from tidelog.kube.serve.server import ApiServer, Settings

KUBECONFIG = ".kubeconfig"
TLS = ".tls"


def beside(log: LogAddress, ending: str) -> Path:
    """A file beside a log; for one in a database, of its name in the working directory."""
    path = Path.cwd() / database_name(log).rpartition("/")[2] if is_database(log) else Path(log_path(log))
    return path.with_name(path.name + ending)


class ServeProcess(Process):
    """One run of the daemon with an API server."""

    what = "tidelog serve"

    def __init__(
        self, options: Options, settings: Settings, actors: Cast = nobody, site: Site | None = None
    ) -> None:
        super().__init__(options, actors, site)
        self._settings = settings

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> AsyncIterator[None]:
        async with (
            super().leading(runtime),
            ApiServer(runtime.log, runtime.facts, runtime.clock, self._settings) as server,
        ):
            server.on_failure = self.stop
            print(f"serving {runtime.log.name} at {server.url}", file=sys.stderr)
            print(f"export KUBECONFIG={self._settings.kubeconfig}", file=sys.stderr, flush=True)
            yield
            if server.failure is not None:
                raise server.failure
