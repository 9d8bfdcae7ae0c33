"""Leadership among the schedulers of one cluster: a Lease object, held as kube-scheduler holds its own.

    GET ─► 404: create ─┐                                          ┌─► 409: somebody else was first
           held, and changed since we last looked: wait            │
           held, not changed for its duration by our own clock ────┴─► PUT with the version read ─► leading
    leading: PUT with the last version every `retry` seconds; not renewed within `renew_deadline`: no longer leading

No clock of another machine is read, and no wall clock of ours: only how long it is by a steady clock since the object changed. A Lease cannot
fence a request, so the leader stops itself: `may_write` is asked before each write, and answers by when the last successful renewal *began*.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tidelog.api.times import NANOS
from tidelog.configuration.cluster import LeaseOptions
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.records import Draft, LeadershipChanged
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.port import ClusterError, ClusterPort, Request
from tidelog.kube.cluster.view import AUTHOR
from tidelog.kube.cluster.waiting import micro_time, pause

_log = logging.getLogger("tidelog.cluster")


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class LeaseObject(msgspec.Struct, frozen=True):
    """As far as anybody here looks at it."""

    metadata: _LeaseMeta = _LeaseMeta()
    spec: _LeaseSpec = _LeaseSpec()


class Leadership:
    """Tells whether this process may write. Without a Lease it always may."""

    leading = True
    transitions = 0

    def may_write(self) -> bool:
        """Whether a write may begin now."""
        return True


class Lease(Leadership):
    """Seeks the Lease, and keeps it. `run` never ends by itself."""

    def __init__(
        self,
        port: ClusterPort,
        settings: LeaseOptions,
        identity: str,
        clock: Clock,
        steady: Callable[[], int],
        inbox: Inbox,
        random: Random,
        changed: Callable[[], None],
    ) -> None:
        """`steady`: nanoseconds of a clock that nobody sets, and that goes on while this process stands still."""
        self.leading = False
        self.transitions = 0
        self.holder = ""
        """Its holder, as we last saw."""
        self.settings = settings
        self._port = port
        self._identity = identity
        self._clock = clock
        self._steady = steady
        self._inbox = inbox
        self._random = random
        self._changed = changed
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._seen: tuple[str, int] = ("", 0)
        """The version last seen, and when by the steady clock it was seen first."""
        self._held: LeaseObject | None = None
        self._renewed_at = 0
        """When the last successful renewal began."""

    def may_write(self) -> bool:
        return self.leading and self._steady() - self._renewed_at < self.settings.renew_deadline * NANOS

    async def run(self) -> None:
        """Seek and keep it until cancelled."""
        while True:
            try:
                await self._step()
            except ClusterError as error:
                _log.warning("the lease cannot be reached", extra=fields(error=str(error)))
            if self.leading and not self.may_write():
                await self._lost("not renewed in time")
            await pause(
                self._clock, self.settings.retry * (1.0 if self.leading else 1 + 0.2 * self._random.random())
            )

    async def release(self) -> None:
        """Give it back, so that the next one need not wait."""
        if not self.leading or self._held is None:
            return
        self.leading = False
        spec = msgspec.structs.replace(self._held.spec, holder_identity="", lease_duration_seconds=1)
        try:
            await self._put(spec, self._held.metadata.resource_version)
        except ClusterError as error:
            _log.warning("the lease could not be released", extra=fields(error=str(error)))

    # --- one look -----------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        if self.leading and self._held is not None and await self._renew(self._held):
            return
        found = await self._get()
        if found is None:
            await self._create()
            return
        version, holder = found.metadata.resource_version, found.spec.holder_identity or ""
        if version != self._seen[0]:
            self._seen = (version, self._steady())
        if holder != self._identity:
            if self.leading:
                await self._lost(f"{holder or 'nobody'} holds it")
            self.holder = holder
            duration = (found.spec.lease_duration_seconds or self.settings.duration) * NANOS
            if holder and self._steady() - self._seen[1] < duration:
                return
        await self._take(found)

    async def _get(self) -> LeaseObject | None:
        answer = await self._port.send(self._request("GET", f"{self._path}/{self.settings.name}"))
        if answer.status == 404:
            return None
        if not answer.ok:
            raise ClusterError(f"{self._path}/{self.settings.name}: {answer.status} {answer.told().message}")
        return msgspec.json.decode(answer.body, type=LeaseObject)

    async def _create(self) -> None:
        began, now = self._steady(), self._now()
        spec = self._spec(now, now, 0)
        answer = await self._port.send(self._request("POST", self._path, self._body(spec, "")))
        if answer.ok:
            await self._won(msgspec.json.decode(answer.body, type=LeaseObject), began)
        elif answer.status != 409:
            raise ClusterError(f"POST {self._path}: {answer.status} {answer.told().message}")

    async def _take(self, found: LeaseObject) -> None:
        began, now = self._steady(), self._now()
        ours = found.spec.holder_identity == self._identity
        transitions = (found.spec.lease_transitions or 0) + (not ours)
        acquired = (found.spec.acquire_time or now) if ours else now
        spec = self._spec(acquired, now, transitions)
        taken = await self._put(spec, found.metadata.resource_version)
        if taken is not None:
            await self._won(taken, began)

    async def _renew(self, held: LeaseObject) -> bool:
        """Without a look first, which costs a request; False if somebody has changed it."""
        began = self._steady()
        spec = self._spec(held.spec.acquire_time or "", self._now(), held.spec.lease_transitions or 0)
        try:
            renewed = await self._put(spec, held.metadata.resource_version)
        except ClusterError as error:
            _log.warning("the lease was not renewed", extra=fields(error=str(error)))
            return True  # It is tried again, as long as there is time.
        if renewed is None:
            return False
        self._renewed(renewed, began)
        return True

    def _renewed(self, held: LeaseObject, began: int) -> None:
        waited = self.leading and not self.may_write()
        self._held, self._renewed_at = held, began
        if waited:
            self._changed()  # Who has something to write may do so again.

    async def _put(self, spec: _LeaseSpec, version: str) -> LeaseObject | None:
        """The object as it is now; None if it was changed meanwhile."""
        path = f"{self._path}/{self.settings.name}"
        answer = await self._port.send(self._request("PUT", path, self._body(spec, version)))
        if answer.status == 409:
            return None
        if not answer.ok:
            raise ClusterError(f"PUT {path}: {answer.status} {answer.told().message}")
        return msgspec.json.decode(answer.body, type=LeaseObject)

    # --- changes of leadership ----------------------------------------------------------------------------------------

    async def _won(self, held: LeaseObject, began: int) -> None:
        self._renewed(held, began)
        if self.leading:
            return
        self.leading, self.holder = True, self._identity
        self.transitions = held.spec.lease_transitions or 0
        _log.info("leading the cluster", extra=fields(lease=self.settings.name, transitions=self.transitions))
        await self._tell(held.metadata.resource_version, ours=True)

    async def _lost(self, why: str) -> None:
        self.leading, self._held = False, None
        _log.warning("not leading the cluster any more", extra=fields(lease=self.settings.name, why=why))
        await self._tell("", ours=False)

    async def _tell(self, version: str, *, ours: bool) -> None:
        body = LeadershipChanged(
            holder=self.holder if ours or self.holder != self._identity else "",
            ours=ours,
            transitions=self.transitions,
            resource_version=version,
        )
        await self._inbox.put([Draft(body=body, author=AUTHOR)])
        self._changed()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _spec(self, acquired: str, renewed: str, transitions: int) -> _LeaseSpec:
        return _LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=round(self.settings.duration),
            acquire_time=acquired,
            renew_time=renewed,
            lease_transitions=transitions,
        )

    def _body(self, spec: _LeaseSpec, version: str) -> dict[str, Any]:
        meta = {"name": self.settings.name, "namespace": self.settings.namespace}
        if version:
            meta["resourceVersion"] = version
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    def _request(self, method: str, path: str, body: Any = None) -> Request:
        seconds = self.settings.renew_deadline / 2
        return Request(
            method=method, path=path, query={"timeout": f"{seconds:g}s"}, body=body, seconds=seconds
        )

    def _now(self) -> str:
        return micro_time(self._clock.now())


async def held_by_another(port: ClusterPort, namespace: str, name: str, clock: Clock) -> str:
    """Return the holder of this Lease that has renewed it since we first looked, or will have soon; empty if nobody does.

    It is looked at twice, because no clock of another machine counts.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    first = ""
    for look in range(8):
        answer = await port.send(Request(method="GET", path=path))
        if not answer.ok:
            return ""
        found = msgspec.json.decode(answer.body, type=LeaseObject)
        if not found.spec.holder_identity:
            return ""
        first = first or found.metadata.resource_version
        if found.metadata.resource_version != first:
            return found.spec.holder_identity
        if look * 2.5 > (found.spec.lease_duration_seconds or 15):
            return ""
        await pause(clock, 2.5)
    return ""
