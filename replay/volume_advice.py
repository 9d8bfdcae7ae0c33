"""Advice for a pod that its volumes keep away: which claim, which volume, which class, which zone, how many volumes too many.

Part of `tidelog.replay.advice`: an advisor for each of the plugins for volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tidelog.api.objects import NodeSelector
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import (
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    STORAGE,
    can_provision,
    claim_uses,
    class_of,
    is_fully_bound,
)
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.claims import LookupFailed
from tidelog.plugins.volumes.limits import attached_to, limits_of, volumes_of
from tidelog.plugins.volumes.matching import affinity_of, reaches
from tidelog.plugins.volumes.restrictions import conflict
from tidelog.plugins.volumes.zone import topologies_of
from tidelog.replay.examine import Examination

NAMED_MAX = 5


def _storage(seen: Examination) -> Storage:
    return seen.framework.handle.listers.storage


def _claims(seen: Examination) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
    """The pod's claims, by name."""
    pod, storage = seen.pod, _storage(seen)
    for use in claim_uses(pod.pod):
        yield use.claim, storage.claim(pod.namespace, use.claim)


def binding_advice(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """For each claim: what it lacks, or where its volume can be reached."""
    for name, claim in _claims(seen):
        if claim is None:
            who = (
                "the volume controller to make it for the ephemeral volume"
                if _is_ephemeral(seen, name)
                else "its creation"
            )
            yield f"claim {name} does not exist: {who}"
        elif claim.metadata.deletion_timestamp:
            yield f"claim {name} is being deleted: another one of this name, once it is gone"
        elif is_fully_bound(claim):
            yield from _bound(name, claim, nodes, _storage(seen))
        else:
            yield from _unbound(name, claim, nodes, _storage(seen))


def _is_ephemeral(seen: Examination, name: str) -> bool:
    return any(use.is_ephemeral for use in claim_uses(seen.pod.pod) if use.claim == name)


def _bound(
    name: str, claim: PersistentVolumeClaim, nodes: Sequence[NodeInfo], storage: Storage
) -> Iterator[str]:
    volume = storage.volume(claim.spec.volume_name)
    if volume is None:
        yield f"claim {name} is bound to volume {claim.spec.volume_name}, which does not exist"
        return
    selector = affinity_of(volume)
    if selector is not None and not all(map(reaches(selector), (node.labels for node in nodes))):
        yield f"volume {volume.metadata.name} of claim {name} can be reached from {_places(selector)}: room there"


def _unbound(
    name: str, claim: PersistentVolumeClaim, nodes: Sequence[NodeInfo], storage: Storage
) -> Iterator[str]:
    class_name = class_of(claim)
    found = storage.storage_class(class_name)
    asks = f"claim {name} ({claim.spec.resources.requests.get(STORAGE, 0)} of class {class_name or 'none'})"
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if found is None:
        what = f"storage class {class_name} does not exist" if class_name else "it names no storage class"
        yield f"{asks}: {what}, so only a volume that is bound to it by hand would do"
        return
    if found.volume_binding_mode != "WaitForFirstConsumer" or claim.spec.volume_name:
        who = (
            f"provisioner {found.provisioner}"
            if can_provision(found)
            else "somebody who makes volumes by hand"
        )
        yield f"{asks} is not bound yet: the volume controller, or {who}, to give it a volume before the pod is placed"
        return
    if chosen and any(node.name != chosen for node in nodes):
        yield f"{asks} waits for its volume on node {chosen}, which was selected for it: room there, or somebody who takes the annotation back"
        return
    free = [
        v
        for v in storage.volumes_of_class(class_name)
        if v.spec.claim_ref is None and v.status.phase == "Available"
    ]
    if free:
        yield f"{asks}: {len(free)} volumes of the class are free, and reached from {_places_of(free)}, but none of them will do on these nodes"
    if not can_provision(found):
        yield f"{asks}: a free volume of class {class_name} that these nodes reach; nobody makes volumes of this class"
        return
    allowed = sorted(
        f"{asked.key} {', '.join(asked.values)}"
        for term in found.allowed_topologies
        for asked in term.match_label_expressions
    )
    if allowed:
        yield f"{asks}: class {class_name} makes volumes only where {'; '.join(allowed)}"
    sizes = [
        c
        for c in storage.capacities_of_class(class_name)
        if c.capacity is not None or c.maximum_volume_size is not None
    ]
    driver = storage.csi_driver(found.provisioner)
    if driver is not None and driver.spec.storage_capacity:
        most = ", ".join(str(c.maximum_volume_size or c.capacity) for c in sizes[:NAMED_MAX]) or "nothing"
        yield f"{asks}: more free storage where the nodes are; {found.provisioner} tells of {most}"


def _places_of(volumes: Iterable[PersistentVolume]) -> str:
    found = Counter(
        _places(selector) if (selector := affinity_of(v)) is not None else "everywhere" for v in volumes
    )
    shown = [f"{place} ({count})" for place, count in sorted(found.items())[:NAMED_MAX]]
    return "; ".join(shown) + (
        f" and {len(found) - NAMED_MAX} other places" if len(found) > NAMED_MAX else ""
    )


def _places(selector: NodeSelector) -> str:
    """The labels of the nodes that reach it."""
    terms = (
        " and ".join(
            f"{r.key} {r.operator}" + (f" ({', '.join(r.values)})" if r.values else "")
            for r in term.match_expressions
        )
        for term in selector.node_selector_terms
    )
    return "nodes with " + " or ".join(terms)


def zone_advice(seen: Examination, _nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """Where the volumes are."""
    storage = _storage(seen)
    for name, claim in _claims(seen):
        volume = None if claim is None else storage.volume(claim.spec.volume_name)
        if volume is None:
            continue
        for topology in topologies_of(volume):
            yield f"room in {topology.key} {', '.join(sorted(topology.values))}, where volume {volume.metadata.name} of claim {name} is"


def limits_advice(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """How many volumes too many on the node that is closest, and of which driver."""
    storage, best = _storage(seen), None
    if any(claim is None for _, claim in _claims(seen)):
        return  # VolumeBinding tells what to do.
    for node in nodes:
        csi_node = storage.csi_node(node.name)
        limits = limits_of(csi_node)
        try:
            wanted = volumes_of(seen.pod.pod, storage, csi_node is not None, is_new=True)
            attached = attached_to(node, storage, csi_node)
        except LookupFailed:
            continue
        taken = Counter(attached.all.values())
        more = Counter(driver for key, driver in wanted.items() if key not in attached.by_pods)
        for driver, count in sorted(more.items()):
            too_many = taken[driver] + count - limits.get(driver, taken[driver] + count)
            if too_many > 0 and (best is None or too_many < best[0]):
                best = (too_many, driver, node.name, taken[driver], limits[driver], count)
    if best is None:
        yield "a node on which the CSI driver of the volumes is installed"
        return
    too_many, driver, name, taken_there, limit, count = best
    what = "volume" if too_many == 1 else "volumes"
    yield (
        f"{too_many} {what} of {driver} fewer on {name}, which comes closest: it attaches {limit} at most, has {taken_there}, "
        f"and the pod brings {count}; or a node that attaches more"
    )


def restrictions_advice(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """Return the pods that have the claim, or the disk."""
    for name, claim in _claims(seen):
        if claim is None and not _is_ephemeral(seen, name):
            yield f"claim {name} does not exist: its creation"
        if claim is None or READ_WRITE_ONCE_POD not in claim.spec.access_modes:
            continue
        users = sorted(
            f"{other.key} on {node.name}"
            for node in seen.nodes
            if (seen.pod.namespace, name) in node.claims
            for other in node.pods.values()
            if (seen.pod.namespace, name) in other.claims
        )
        if users:
            yield f"the end of {', '.join(users[:NAMED_MAX])}: claim {name} is for one pod alone ({READ_WRITE_ONCE_POD})"
    holders = [
        f"{other.key} on {node.name}"
        for node in nodes
        for other in node.pods.values()
        if conflict(seen.pod.pod, other.pod)
    ]
    if holders:
        yield f"a node without a pod that uses the same disk: now {', '.join(holders[:NAMED_MAX])} do"
