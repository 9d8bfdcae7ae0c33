"""The rules of claims, volumes and what belongs to them: each breach with path, kind and rule."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.manifests.manifests import load
from tidelog.api.object_table import ObjectTable
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}


def manifest(kind: str, name: str = "x", **fields: Any) -> dict[str, Any]:
    group = "v1" if kind.startswith(("Persistent", "Pod")) else "storage.k8s.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **fields}


def admitted(document: dict[str, Any], cluster: ObjectTable | None = None, old: Any = None) -> Any:
    (obj,) = load(msgspec_json(document), "file", namespace="default")
    table = cluster or ObjectTable()
    found, _ = admit(obj, old, table, FeatureGates(), Stamp(seq=7, at=0))
    return found


def msgspec_json(document: dict[str, Any]) -> bytes:
    import json

    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("document", "path", "rule"),
    [
        (
            manifest("PersistentVolumeClaim", spec={**CLAIM, "accessModes": []}),
            "spec.accessModes",
            "at least 1 access mode is required",
        ),
        (
            manifest(
                "PersistentVolumeClaim", spec={**CLAIM, "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}
            ),
            "spec.accessModes",
            "may not use ReadWriteOncePod with other access modes",
        ),
        (
            manifest("PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"]}),
            "spec.resources.requests[storage]",
            "",
        ),
        (
            manifest("PersistentVolumeClaim", spec={**CLAIM, "resources": {"requests": {"storage": "0"}}}),
            "spec.resources.requests[storage]",
            "must be greater than zero",
        ),
        (
            manifest("PersistentVolumeClaim", spec={**CLAIM, "volumeMode": "Tape"}),
            "spec.volumeMode",
            'supported values: "Block", "Filesystem"',
        ),
        (manifest("PersistentVolume", spec={"accessModes": ["ReadWriteOnce"]}), "spec.capacity[storage]", ""),
        (
            manifest("PersistentVolume", spec={**VOLUME, "local": {"path": "/x"}}),
            "spec.nodeAffinity",
            "Local volume requires node affinity",
        ),
        (manifest("PersistentVolume", spec={**VOLUME, "csi": {"driver": "d"}}), "spec.csi.volumeHandle", ""),
        (manifest("StorageClass"), "provisioner", ""),
        (
            manifest("StorageClass", provisioner="p", volumeBindingMode="Later"),
            "volumeBindingMode",
            'supported values: "Immediate", "WaitForFirstConsumer"',
        ),
        (
            manifest("CSINode", spec={"drivers": [{"name": "d", "allocatable": {"count": -1}}]}),
            "spec.drivers[0].allocatable.count",
            "must be greater than or equal to 0",
        ),
        (manifest("CSIStorageCapacity", capacity="1Gi"), "storageClassName", ""),
        (
            manifest("VolumeAttachment", spec={"attacher": "d", "nodeName": "n"}),
            "spec.source.persistentVolumeName",
            "must specify a PersistentVolume",
        ),
        (
            manifest(
                "Pod",
                spec={"containers": [{"name": "c"}], "volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            ),
            "spec.volumes[0].persistentVolumeClaim.claimName",
            "",
        ),
        (
            manifest(
                "Pod",
                spec={
                    "containers": [{"name": "c"}],
                    "volumes": [
                        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": "c"}} for i in range(33)
                    ],
                },
            ),
            "spec.volumes",
            "must have at most 32 volumes with claims",
        ),
    ],
)
def test_breach_is_told_with_its_path_and_rule(document: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(InvalidObjects) as refused:
        admitted(document)

    assert (path, rule) in [(error.path, error.rule) for error in refused.value.errors]


@pytest.mark.parametrize(
    ("kind", "before", "after", "path"),
    [
        (
            "PersistentVolumeClaim",
            {"spec": CLAIM},
            {"spec": {**CLAIM, "accessModes": ["ReadOnlyMany"]}},
            "spec.accessModes",
        ),
        (
            "PersistentVolumeClaim",
            {"spec": {**CLAIM, "volumeName": "a"}},
            {"spec": {**CLAIM, "volumeName": "b"}},
            "spec.volumeName",
        ),
        (
            "PersistentVolumeClaim",
            {"spec": CLAIM},
            {"spec": {**CLAIM, "resources": {"requests": {"storage": "1Mi"}}}},
            "spec.resources.requests[storage]",
        ),
        ("StorageClass", {"provisioner": "p"}, {"provisioner": "q"}, "provisioner"),
    ],
)
def test_what_must_not_change_is_told(kind: str, before: Any, after: Any, path: str) -> None:
    old = admitted(manifest(kind, **before))

    with pytest.raises(InvalidObjects) as refused:
        admitted(manifest(kind, **after), old=old)

    assert path in [error.path for error in refused.value.errors]


def test_what_others_would_write_is_filled_in() -> None:
    marked = manifest("StorageClass", "std", provisioner="p")
    marked["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    standard = admitted(marked)
    claim = admitted(manifest("PersistentVolumeClaim", spec=CLAIM), ObjectTable([standard]))
    volume = admitted(manifest("PersistentVolume", spec=VOLUME))

    assert isinstance(standard, StorageClass)
    assert isinstance(claim, PersistentVolumeClaim)
    assert isinstance(volume, PersistentVolume)
    assert (standard.volume_binding_mode, standard.reclaim_policy) == ("Immediate", "Delete")
    assert (claim.spec.storage_class_name, claim.spec.volume_mode, claim.status.phase) == (
        "std",
        "Filesystem",
        "Pending",
    )
    assert (volume.status.phase, volume.spec.persistent_volume_reclaim_policy) == ("Available", "Retain")


def test_claim_put_again_keeps_what_was_bound_to_it() -> None:
    old = admitted(
        manifest("PersistentVolumeClaim", spec={**CLAIM, "volumeName": "pv", "storageClassName": "s"})
    )

    again = admitted(manifest("PersistentVolumeClaim", spec=CLAIM), old=old)

    assert again is old
