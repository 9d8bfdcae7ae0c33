"""The resource claim controller: it makes the claims that pods have templates for, and takes devices back from claims that nobody uses any more.

    pod with a template                    ──► its claim, and the claim's name in the pod's status
    template applied                       ──► the claims of the pods that waited for it
    consumer finished or gone              ──► it is taken from reservedFor
    the last consumer gone                 ──► the allocation is cleared, and the finalizer removed
    pod finished or gone                   ──► the claims made for it, extended resources included, are deleted

A look at a claim costs its consumers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    ClaimConsumer,
    Object,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    ResourceClaim,
    ResourceClaimTemplate,
)
from tidelog.api.pod_status import is_terminal
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, delete, put
from tidelog.eventlog.records import Body, Draft, Record, Reserved

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_NAME_MAX = 63 - 6
LOOK = "look"
RELEASE = "release"


class ClaimControllerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """It has none: claims are made and released at once."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        yield from ()


class ClaimController:
    """Implements `tidelog.daemon.actors.protocol.Actor`."""

    name = "claim-controller"
    Settings = ClaimControllerSettings

    def __init__(self, settings: ClaimControllerSettings | None = None) -> None:
        self._of_pod: dict[str, dict[str, None]] = {}
        """Key of a pod → claims that it consumes or controls."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Key of a template that is not there → pods that want it."""

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        self._of_pod, self._waiting = {}, {}
        found = [Errand(at, LOOK, object_key(pod), seq) for pod in objects.of_kind("Pod")]
        for claim in objects.of_kind("ResourceClaim"):
            found += self._see(object_key(claim), claim, seq, at)
        return found

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        keys = [record.key]
        if isinstance(body, Reserved):
            keys += [write.key for write in body.writes]
        seq, at = record.seq, record.at
        return [errand for key in dict.fromkeys(keys) for errand in self._see(key, objects.get(key), seq, at)]

    def _see(self, key: str, obj: Object | None, seq: int, at: int) -> Iterator[Errand]:
        if key.startswith("Pod/"):
            if obj is None or (isinstance(obj, Pod) and is_terminal(obj)):
                yield from (Errand(at, RELEASE, claim, seq) for claim in self._of_pod.pop(key, ()))
            else:
                yield Errand(at, LOOK, key, seq)
        elif isinstance(obj, ResourceClaim):
            for pod in _pods_of(obj):
                self._of_pod.setdefault(pod, {})[key] = None
            yield Errand(at, RELEASE, key, seq)
        elif isinstance(obj, ResourceClaimTemplate):
            yield from (Errand(at, LOOK, pod, seq) for pod in self._waiting.pop(key, ()))

    # --- doing --------------------------------------------------------------------------------------------------------

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        found = objects.get(errand.key)
        if isinstance(found, Pod) and not is_terminal(found) and not found.metadata.deletion_timestamp:
            return Deeds(list(self._made(found, objects)))
        if isinstance(found, ResourceClaim):
            return Deeds(list(_released(found, objects)))
        return NOTHING

    def _made(self, pod: Pod, objects: Objects) -> Iterator[Draft]:
        statuses = list(pod.status.resource_claim_statuses)
        known = {status.name for status in statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name is None or entry.name in known:
                continue
            key = f"ResourceClaimTemplate/{pod.metadata.namespace}/{entry.resource_claim_template_name}"
            template = objects.get(key)
            if not isinstance(template, ResourceClaimTemplate):
                self._waiting.setdefault(key, {})[object_key(pod)] = None
                continue
            claim = _claim_for(pod, entry, template)
            if objects.get(object_key(claim)) is None:
                yield put(claim)
            statuses.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.metadata.name))
        if len(statuses) > len(pod.status.resource_claim_statuses):
            yield put(replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses))))


def _claim_for(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
    meta = pod.metadata
    base = f"{meta.name}-{entry.name}"[:_NAME_MAX]
    ending = hashlib.sha1(f"{meta.uid}/{entry.name}".encode(), usedforsecurity=False).hexdigest()[:5]
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    metadata = ObjectMeta(
        name=f"{base}-{ending}",
        namespace=meta.namespace,
        annotations={POD_CLAIM_NAME: entry.name},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _released(claim: ResourceClaim, objects: Objects) -> Iterator[Draft]:
    """Return the writes for a claim whose consumers may have gone."""
    if _owner_is_gone(claim, objects):
        yield delete(claim)
        return
    status = claim.status
    left = tuple(one for one in status.reserved_for if _still_uses(claim, one, objects))
    if len(left) == len(status.reserved_for):
        return
    if left:
        yield put(replace(claim, status=replace(status, reserved_for=left)))
        return
    finalizers = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    yield put(
        replace(
            claim,
            metadata=replace(claim.metadata, finalizers=finalizers),
            status=replace(status, reserved_for=(), allocation=None, devices=()),
        )
    )


def _owner_is_gone(claim: ResourceClaim, objects: Objects) -> bool:
    owner = next((o for o in claim.metadata.owner_references if o.controller and o.kind == "Pod"), None)
    if owner is None:
        return False
    pod = objects.get(f"Pod/{claim.metadata.namespace}/{owner.name}")
    return not isinstance(pod, Pod) or is_terminal(pod) or pod.metadata.uid != owner.uid


def _still_uses(claim: ResourceClaim, consumer: ClaimConsumer, objects: Objects) -> bool:
    if consumer.resource != "pods":
        return True
    pod = objects.get(f"Pod/{claim.metadata.namespace}/{consumer.name}")
    return isinstance(pod, Pod) and not is_terminal(pod) and pod.metadata.uid == consumer.uid


def _pods_of(claim: ResourceClaim) -> Iterator[str]:
    namespace = claim.metadata.namespace
    for consumer in claim.status.reserved_for:
        if consumer.resource == "pods":
            yield f"Pod/{namespace}/{consumer.name}"
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.kind == "Pod":
            yield f"Pod/{namespace}/{owner.name}"
