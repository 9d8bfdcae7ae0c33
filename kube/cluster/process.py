"""The process of `tidelog run --kubeconfig`: the daemon, with its log attached to a live cluster while it leads that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from random import Random
from uuid import uuid4

from tidelog.api.projection import Projection
from tidelog.daemon.http.endpoints import Checks, Site
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.process import Options, Process
from tidelog.daemon.process.runtime import Runtime
from tidelog.kube.cluster.credentials import Access, Credentials
from tidelog.kube.cluster.live import ClusterSettings, LiveCluster
from tidelog.kube.cluster.session import Session

_log = logging.getLogger("tidelog.cluster")


class LiveProcess(Process):
    """One run of the daemon on a cluster."""

    def __init__(
        self,
        options: Options,
        access: Access,
        settings: ClusterSettings,
        projection: Projection,
        site: Site | None = None,
    ) -> None:
        """Raises what is wrong with the configuration, or with what is installed."""
        super().__init__(options, site=site)
        self._access = access
        self._settings = settings
        self._projection = projection
        self._identity = f"{socket.gethostname()}_{uuid4()}"
        self._cluster: LiveCluster | None = None
        self._session: Session | None = None
        self.state.more_checks = self._checks
        self.state.more_rows = self._rows

    def assembled(self, runtime: Runtime) -> None:
        clock = SystemClock()
        self._session = Session(
            Credentials(self._access, clock), agent=f"tidelog/{os.getpid()} {self._settings.mode}"
        )
        self._cluster = LiveCluster(
            runtime,
            self._session,
            self._settings,
            self._projection,
            identity=self._identity,
            clock=clock,
            random=Random(),
        )
        runtime.facts.cluster = self._access.server
        self.state.measured.cluster = self._cluster.statistics

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> AsyncIterator[None]:
        assert self._cluster is not None
        assert self._session is not None
        async with super().leading(runtime), self._session:
            attached = self._cluster.attached()
            # It may wait for the server for ever, and is to be stopped all the same.
            entered = await self._unless_stopped(_entered(attached))
            if entered is None:
                yield
                return
            _log.info("attached", extra=fields(cluster=self._access.server, mode=self._settings.mode))
            try:
                yield
            finally:
                await attached.__aexit__(None, None, None)

    async def led(self, runtime: Runtime) -> None:
        assert self._cluster is not None
        tasks = [asyncio.create_task(super().led(runtime)), asyncio.create_task(self._cluster.ended())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- what it tells --------------------------------------------------------------------------------------------------

    def _checks(self) -> Checks:
        if self._cluster is None:
            return {}
        return {"cluster": "; ".join(self._cluster.troubles()) or None}

    def _rows(self) -> Mapping[str, object]:
        cluster = self._cluster
        if cluster is None:
            return {}
        promises = cluster.runtime.core.promises
        return {
            "Cluster": self._access.server,
            "Mode": self._settings.mode,
            "Leads the cluster": cluster.leadership.leading if self._settings.mode == "schedule" else "no",
            "Unsettled bindings": promises.binds,
            **_verdicts(cluster),
        }


def _verdicts(cluster: LiveCluster) -> Mapping[str, object]:
    """How many of each the shadow has come to."""
    if cluster.shadow is None:
        return {}
    return {f"Verdict {name}": count for name, count in sorted(cluster.shadow.counts.items())}


async def _entered(context: contextlib.AbstractAsyncContextManager[None]) -> bool:
    await context.__aenter__()
    return True
