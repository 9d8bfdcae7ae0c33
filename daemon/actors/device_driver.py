"""Every device driver: it makes devices ready that a claim has been given, and says so in the claim's status.

    claim with devices that have bindingConditions ──(readySeconds)──► the conditions are True
    of a driver that `fails`                       ──(readySeconds)──► the first failure condition is True
    of a driver that is `silent`                   ──► nothing, ever

Devices without binding conditions need nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import AllocatedDeviceStatus, Condition, DeviceResult, Object, ResourceClaim
from tidelog.api.times import NANOS, format_time
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, put
from tidelog.eventlog.records import Body, Record, Reserved

READY = "ready"


class DeviceDriverSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fast devices get ready, and which drivers do not work."""

    ready_seconds: float = 1.0
    fails: tuple[str, ...] = ()
    """Names of drivers whose devices cannot be made ready."""
    silent: tuple[str, ...] = ()
    """Names of drivers that never answer."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        if not 0 <= self.ready_seconds <= 86400:
            rule = "must be from 0 to 86400"
            yield FieldError(path=f"{path}.readySeconds", kind="Invalid", value=self.ready_seconds, rule=rule)


class DeviceDriver:
    """Implements `tidelog.daemon.actors.protocol.Actor`."""

    name = "device-driver"
    Settings = DeviceDriverSettings

    def __init__(self, settings: DeviceDriverSettings | None = None) -> None:
        self._settings = settings or DeviceDriverSettings()

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        return [e for claim in objects.of_kind("ResourceClaim") for e in self._see(claim, seq, at)]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        keys = [record.key]
        if isinstance(body, Reserved):
            keys += [write.key for write in body.writes]
        seq, at = record.seq, record.at
        return [e for key in dict.fromkeys(keys) for e in self._see(objects.get(key), seq, at)]

    def _see(self, obj: Object | None, seq: int, at: int) -> Iterator[Errand]:
        if isinstance(obj, ResourceClaim) and any(self._unready(obj)):
            yield Errand(at + round(self._settings.ready_seconds * NANOS), READY, object_key(obj), seq)

    def _unready(self, claim: ResourceClaim) -> Iterator[DeviceResult]:
        """Devices that nobody has said anything about, of drivers that answer."""
        allocation = claim.status.allocation
        told = {(s.driver, s.pool, s.device) for s in claim.status.devices if s.conditions}
        for result in () if allocation is None else allocation.devices.results:
            is_told = (result.driver, result.pool, result.device) in told
            if result.binding_conditions and not is_told and result.driver not in self._settings.silent:
                yield result

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        claim = objects.get(errand.key)
        if not isinstance(claim, ResourceClaim):
            return NOTHING
        told = [self._told(result, at) for result in self._unready(claim)]
        if not told:
            return NOTHING
        done = {(s.driver, s.pool, s.device) for s in told}
        kept = [s for s in claim.status.devices if (s.driver, s.pool, s.device) not in done]
        status = replace(claim.status, devices=(*kept, *told))
        return Deeds([put(replace(claim, status=status))])

    def _told(self, result: DeviceResult, at: int) -> AllocatedDeviceStatus:
        is_broken = result.driver in self._settings.fails and bool(result.binding_failure_conditions)
        names = result.binding_failure_conditions[:1] if is_broken else result.binding_conditions
        reason = "DeviceFailed" if is_broken else "DeviceReady"
        conditions = tuple(
            Condition(type=name, status="True", reason=reason, last_transition_time=format_time(at))
            for name in names
        )
        return AllocatedDeviceStatus(
            driver=result.driver, pool=result.pool, device=result.device, conditions=conditions
        )
