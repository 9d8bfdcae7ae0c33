"""Writes for a plan, and whether the binders and provisioners of volumes have answered.

A binding is written to the volume, which names the claim from then on; a provision to the claim, which names the node. Whoever binds volumes
(Kubernetes' volume controller) and makes them (a provisioner) goes on from there, and the pod may be bound when every claim has its volume.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    bound_to_claim,
    class_of,
    is_for,
    is_fully_bound,
)
from tidelog.api.writes import Write, patch_of
from tidelog.framework.interface import Answer, Awaited
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.claims import error
from tidelog.plugins.volumes.in_tree import TranslationError, affinity_for
from tidelog.plugins.volumes.matching import reaches
from tidelog.plugins.volumes.plan import Binding, Plan

_VOLUME = "PersistentVolume/"
_CLAIM = "PersistentVolumeClaim/"


def writes_of(plan: Plan, node: str) -> list[Write]:
    """The plan as writes, bindings first."""
    found = [patch_of(binding.volume, _bound(binding)) for binding in plan.bindings]
    chosen = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    return [*found, *(patch_of(claim, chosen) for claim, _ in plan.provisions)]


def _bound(binding: Binding) -> dict[str, Any]:
    claim, volume = binding
    ref = bound_to_claim(volume, claim).spec.claim_ref
    patch: dict[str, Any] = {"spec": {"claimRef": msgspec.to_builtins(ref)}}
    if not is_for(volume, claim):
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    return patch


class _Failed(Exception):
    pass


def answer(writes: Sequence[Write], node: NodeInfo | None, storage: Storage) -> Answer:
    """As kube-scheduler's poll: the first thing that is not there yet, or has failed, is the answer."""
    mine = [write for write in writes if write.key.startswith((_VOLUME, _CLAIM))]
    if not mine:
        return Answer()
    try:
        if node is None:
            raise _Failed("failed to get node: node not found")
        for write in mine:
            check = _check_binding if write.key.startswith(_VOLUME) else _check_provision
            awaited = check(write, node, storage)
            if awaited is not None:
                return Answer((awaited,))
    except _Failed as failure:
        return Answer(failure=error(f"binding volumes: {failure}"))
    return Answer()


def _check_binding(write: Write, node: NodeInfo, storage: Storage) -> Awaited | None:
    name = write.key.rpartition("/")[2]
    ref = write.patch["spec"]["claimRef"]
    namespace, claim_name = ref["namespace"], ref["name"]
    volume = storage.volume(name)
    if volume is None:
        raise _Failed(f'failed to check binding: persistentvolumes "{name}" not found')
    claim = storage.claim(namespace, claim_name)
    if claim is None:
        raise _Failed(f'failed to check binding: persistentvolumeclaims "{namespace}/{claim_name}" not found')
    _check_affinity(volume, node, storage)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        raise _Failed(f'ClaimRef got reset for pv "{name}"')
    if is_fully_bound(claim):
        return None
    return Awaited(
        object_key(claim), f"the volume controller to bind claim {namespace}/{claim_name} to volume {name}"
    )


def _check_provision(write: Write, node: NodeInfo, storage: Storage) -> Awaited | None:
    _, namespace, name = write.key.split("/")
    claim = storage.claim(namespace, name)
    if claim is None:
        raise _Failed(
            f'failed to check provisioning pvc: persistentvolumeclaims "{namespace}/{name}" not found'
        )
    annotations = claim.metadata.annotations
    if not annotations:
        raise _Failed(f'selectedNode annotation reset for PVC "{name}"')
    if annotations.get(SELECTED_NODE) != node.name:
        raise _Failed(f'provisioning failed for PVC "{name}"')
    if claim.spec.volume_name:
        volume = storage.volume(claim.spec.volume_name)
        if volume is None:
            what = f"volume {claim.spec.volume_name} of claim {namespace}/{name} to be there"
            return Awaited(f"{_VOLUME}/{claim.spec.volume_name}", what)
        _check_affinity(volume, node, storage)
    if is_fully_bound(claim):
        return None
    return Awaited(object_key(claim), _whom(claim, node.name, storage))


def _whom(claim: PersistentVolumeClaim, node: str, storage: Storage) -> str:
    where = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.spec.volume_name:
        return f"the volume controller to bind claim {where} to volume {claim.spec.volume_name}"
    found = storage.storage_class(class_of(claim))
    who = f"provisioner {found.provisioner}" if found is not None else "a provisioner"
    return f"{who} to make a volume for claim {where} where node {node} reaches it"


def _check_affinity(volume: PersistentVolume, node: NodeInfo, storage: Storage) -> None:
    name = volume.metadata.name
    try:
        selector = affinity_for(volume, storage.csi_node(node.name))
    except TranslationError as problem:
        raise _Failed(f"failed to translate pv to csi: {problem}") from None
    if not reaches(selector)(node.labels):
        raise _Failed(
            f'pv "{name}" node affinity doesn\'t match node "{node.name}": no matching NodeSelectorTerms'
        )
