"""The claims of a pod: found by the names that it gives, or that its status gives for those made from a template."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.api.objects import ObjectMeta, Pod, PodResourceClaim, ResourceClaim

Lookup = Callable[[str, str], ResourceClaim | None]
"""Of namespace and name."""


class NoClaim(Exception):
    """A claim of the pod cannot be had; the text says why."""


def claims_of(pod: Pod, lookup: Lookup) -> list[ResourceClaim]:
    """The pod's claims, in its order. Raises NoClaim for the first that is not there."""
    found: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue
        found.append(_claim(pod, entry, name, lookup))
    return found


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of an entry's claim; None if the status says that none is needed. Raises NoClaim."""
    own = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.resource_claim_template_name is None:
        raise NoClaim(f'{own}, spec.resourceClaim "{entry.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise NoClaim(f"{own}: ResourceClaim not created yet")


def _claim(pod: Pod, entry: PodResourceClaim, name: str, lookup: Lookup) -> ResourceClaim:
    namespace = pod.metadata.namespace
    claim = lookup(namespace, name)
    if claim is None:
        raise NoClaim(f'could not find ResourceClaim "{namespace}/{name}"')
    if claim.metadata.deletion_timestamp:
        raise NoClaim(f'resourceclaim "{name}" is being deleted')
    if entry.resource_claim_name is None and not is_controlled_by(claim.metadata, pod):
        raise NoClaim(
            f"ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod.metadata.name} (Pod is not owner)"
        )
    return claim


def is_controlled_by(meta: ObjectMeta, pod: Pod) -> bool:
    """Whether the pod is the controller of an object, by uid."""
    return any(owner.controller and _is_same(owner.uid, owner.name, pod) for owner in meta.owner_references)


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim lists the pod among its consumers."""
    return any(_is_same(consumer.uid, consumer.name, pod) for consumer in claim.status.reserved_for)


def _is_same(uid: str, name: str, pod: Pod) -> bool:
    """By uid; by name where neither has one."""
    return uid == pod.metadata.uid and (bool(uid) or name == pod.metadata.name)
