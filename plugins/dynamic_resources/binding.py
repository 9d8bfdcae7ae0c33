"""Writes before a pod with claims is bound, and whether they have been answered.

Allocations and reservations are the claims' own status. Nothing else has to happen, unless a device is ready only when conditions are met:
then the pod is bound when its driver has said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import AllocationResult, ClaimConsumer, Pod, ResourceClaim
from tidelog.api.times import format_time
from tidelog.api.writes import Write, patch_of
from tidelog.framework.interface import Answer, Awaited, Code, Status
from tidelog.plugins.dynamic_resources.claims import Lookup, NoClaim, claims_of, is_reserved_for
from tidelog.plugins.dynamic_resources.conditions import Failed, unready
from tidelog.plugins.dynamic_resources.extended_resources import IN_MEMORY, Mapped
from tidelog.plugins.dynamic_resources.result import share_name

FINALIZER = "resource.kubernetes.io/delete-protection"
_GENERATED_BASE_MAX = 58


def claim_writes(claim: ResourceClaim, pod: Pod, given: AllocationResult | None, now: int) -> Iterator[Write]:
    """Allocate the claim, if devices are given, and reserve it for the pod; nothing, if it is reserved for it."""
    if given is None and is_reserved_for(claim, pod):
        return
    if given is not None and FINALIZER not in claim.metadata.finalizers:
        yield patch_of(claim, {"metadata": {"finalizers": [*claim.metadata.finalizers, FINALIZER]}})
    yield patch_of(claim, {"status": _status(claim, pod, given, now)})


def _status(claim: ResourceClaim, pod: Pod, given: AllocationResult | None, now: int) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    allocation = given or claim.status.allocation
    assert allocation is not None, "a claim is reserved with its devices or after it has them"
    if given is not None:
        patch["allocation"] = msgspec.to_builtins(given)
    if not allocation.allocation_timestamp:
        patch.setdefault("allocation", {})["allocationTimestamp"] = format_time(now)
    meta = pod.metadata
    consumer = ClaimConsumer(resource="pods", name=meta.name, uid=meta.uid)
    patch["reservedFor"] = msgspec.to_builtins([*claim.status.reserved_for, consumer])
    return patch


def special_writes(
    claim: ResourceClaim, pod: Pod, given: AllocationResult, mappings: Sequence[Mapped], turn: int, now: int
) -> Iterator[Write]:
    """Make the claim of extended resources, as any other, and tell the pod which request serves which container."""
    meta = claim.metadata
    ending = share_name("claim", pod.metadata.uid, turn).replace("-", "")[:5]
    name = f"{meta.generate_name[:_GENERATED_BASE_MAX]}{ending}" if meta.name == IN_MEMORY else meta.name
    made = msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(
            meta,
            name=name,
            uid=share_name("uid", pod.metadata.uid, turn),
            creation_timestamp=format_time(now),
        ),
    )
    yield Write(key=object_key(made), verb="create", patch=msgspec.to_builtins(made))
    yield from claim_writes(made, pod, given, now)
    mapped = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in mappings
    ]
    status = {"resourceClaimName": name, "requestMappings": mapped}
    yield patch_of(pod, {"status": {"extendedResourceClaimStatus": status}})


def deallocation(claim: ResourceClaim) -> Write:
    """Take the claim's devices from it: nobody uses them, and where they are nobody can."""
    return patch_of(claim, {"status": {"allocation": None, "reservedFor": None, "devices": None}})


def deletion(claim: ResourceClaim) -> Iterator[Write]:
    """Delete a claim of extended resources that an earlier attempt left."""
    rest = [name for name in claim.metadata.finalizers if name != FINALIZER]
    yield patch_of(claim, {"metadata": {"finalizers": rest}})
    yield Write(key=object_key(claim), uid=claim.metadata.uid, verb="delete")


def is_for(pod: Pod, claim: ResourceClaim) -> bool:
    """Nobody uses the claim, or the pod alone does."""
    consumers = claim.status.reserved_for
    return not consumers or (len(consumers) == 1 and is_reserved_for(claim, pod))


def answer_of(pod: Pod, writes: Sequence[Write], lookup: Lookup) -> Answer:
    """Whether every device of the pod's claims is ready."""
    keys = dict.fromkeys(w.key for w in writes if w.key.startswith("ResourceClaim/") and w.verb == "patch")
    try:
        own = [object_key(claim) for claim in claims_of(pod, lookup)]
    except NoClaim as problem:
        return Answer(failure=_error(str(problem)))
    awaited: list[Awaited] = []
    for key in dict.fromkeys((*keys, *own)):
        _, namespace, name = key.split("/")
        claim = lookup(namespace, name)
        if claim is None:
            return Answer(failure=_error(f"claim {namespace}/{name} got deleted in the meantime"))
        if claim.status.allocation is None:
            return Answer(failure=_error(f"claim {namespace}/{name} got deallocated in the meantime"))
        try:
            missing = unready(claim)
        except Failed as failure:
            return Answer(failure=_error(str(failure)))
        if missing is not None:
            what = (
                f"driver {missing.driver} to say {', '.join(missing.conditions)} of device {missing.device}"
            )
            awaited.append(Awaited(key, what))
    return Answer(tuple(awaited))


def _error(text: str) -> Status:
    return Status(Code.ERROR, (text,))
