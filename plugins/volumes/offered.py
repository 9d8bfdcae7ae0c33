"""Offers for a claim that waits for its pod's node, as far as they decide where the pod can go: equal for claims that no node tells apart.

Most such claims get a new volume, which is made wherever the class allows it. Then the class says all; else it matters what the claim asks for,
and what there is for claims of its class as of now; free volumes of single hosts are these nodes' own business.
"""

from __future__ import annotations

from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.volumes import SELECTED_NODE, STORAGE, class_of
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.matching import volumes_for
from tidelog.plugins.volumes.provisioning import counts_space


def may_get(claim: PersistentVolumeClaim, storage: Storage) -> object:
    """As long as no class and no driver changes."""
    name = class_of(claim)
    candidates = volumes_for(claim, storage)
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    found = storage.storage_class(name)
    space = found is not None and counts_space(claim, found, storage)
    has_local = storage.has_local_volumes(name)
    if not candidates and not space and not has_local:
        return name, chosen
    wanted = (claim.spec.resources.requests.get(STORAGE), claim.spec, storage.offers_of_class(name))
    promised = [v.metadata.name for v in candidates if v.spec.claim_ref is not None]
    versions = [v.metadata.resource_version for v in candidates if v.spec.claim_ref is not None]
    return name, chosen, wanted, promised, versions, has_local
