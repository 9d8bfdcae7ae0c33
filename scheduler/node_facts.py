"""Which nodes an object tells of though it is neither a node nor a pod: what its drivers attach, the volumes and devices of its pods.

Such a change counts as one of the node: who keeps answers about nodes until they or their pods change (`Depends.OCCUPANTS`) asks about this one
again, and about no other. A question costs the nodes that are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidelog.api.objects import Object, ResourceClaim, ResourceSlice
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from tidelog.api.volumes import host_of
from tidelog.framework.listers import Listers
from tidelog.framework.snapshot import Snapshot


def nodes_told_of(obj: Object, snapshot: Snapshot, listers: Listers) -> Iterator[str]:
    """Names of nodes, perhaps unknown ones, perhaps twice; the pods are where they were when the snapshot was taken."""
    meta = obj.metadata
    if isinstance(obj, CSINode):
        yield meta.name
    elif isinstance(obj, VolumeAttachment):
        yield obj.spec.node_name
    elif isinstance(obj, PersistentVolumeClaim):
        yield from snapshot.nodes_with_claim(meta.namespace, meta.name)
    elif isinstance(obj, PersistentVolume):
        storage, host = listers.storage, host_of(obj)
        if host is not None:
            yield from snapshot.nodes_of_host(host)
        for claim in storage.claims_with_volume(meta.name):
            yield from snapshot.nodes_with_claim(claim.metadata.namespace, claim.metadata.name)
        for attachment in storage.attachments_of(meta.name):
            yield attachment.spec.node_name
    elif isinstance(obj, ResourceSlice):
        yield obj.spec.node_name or ""
    elif isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
        for result in obj.status.allocation.devices.results:
            yield from listers.devices.nodes_of_pool(result.driver, result.pool)


def touch_nodes(
    before: Iterable[tuple[str, Object | None]],
    snapshot: Snapshot,
    listers: Listers,
    touch: Callable[[str], None],
) -> None:
    """Have kept answers about nodes looked at again where the objects of these keys, as they were or as they are shown now, tell of them."""
    for key, old in before:
        for obj in (old, listers.get(key)):
            for name in () if obj is None else nodes_told_of(obj, snapshot, listers):
                touch(name)
