"""What `kubectl get nodes,pods -A -o json` prints of a real cluster goes in, and comes out as it was.

The fixture has every field that a cluster of version 1.34 writes: managed fields, statuses, volumes, probes, ephemeral
containers; a control plane node, a cordoned and a GPU node; pods of ReplicaSets with a sidecar, of a DaemonSet, of a
StatefulSet and of a Job; a pending, a gated and a terminating one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.manifests.manifests import dump_json, dump_yaml, load, to_builtins
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import Object
from tidelog.api.resources import occupied_requests, pod_requests

TEXT = (Path(__file__).parent / "data" / "kubectl-get-nodes-pods.json").read_bytes()
ITEMS: list[dict[str, Any]] = json.loads(TEXT)["items"]


def modelled(value: Any, expected: inspect.Type) -> Any:
    """What of a document our structs describe, with nulls and empty values left out: the fields that must survive."""
    if isinstance(expected, inspect.UnionType):
        members = [t for t in expected.types if not isinstance(t, inspect.NoneType)]
        return modelled(value, members[0]) if len(members) == 1 else value
    if isinstance(expected, inspect.StructType):
        parts = {
            f.encode_name: modelled(value.get(f.encode_name), f.type)
            for f in expected.fields
            if value.get(f.encode_name) is not None
        }
        return {name: part for name, part in parts.items() if part not in ("", 0, False, {}, [])}
    if isinstance(expected, inspect.VarTupleType):
        return [modelled(item, expected.item_type) for item in value]
    return value


def pruned(value: Any) -> Any:
    """Without empty parts, which both sides may write or leave out."""
    if isinstance(value, dict):
        parts = {key: pruned(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in ("", 0, False, {}, [])}
    return [pruned(part) for part in value] if isinstance(value, list) else value


def admitted() -> list[Object]:
    table = ObjectTable()
    found = []
    for seq, obj in enumerate(load(TEXT, "dump"), 1):
        stored, _ = admit(obj, None, table, FeatureGates(), Stamp(seq=seq, at=1_800_000_000_000_000_000))
        table.put(stored)
        found.append(stored)
    return found


def test_fixture_is_what_it_says() -> None:
    kinds = [item["kind"] for item in ITEMS]

    assert (kinds.count("Node"), kinds.count("Pod")) == (4, 9)


@pytest.mark.parametrize("index", range(len(ITEMS)), ids=[item["metadata"]["name"] for item in ITEMS])
def test_every_modelled_field_of_a_real_object_survives(index: int) -> None:
    item = ITEMS[index]
    expected = modelled(item, inspect.type_info(KIND_BY_NAME[item["kind"]].type))

    out = pruned(to_builtins(admitted()[index]))

    del out["apiVersion"], out["kind"]
    out["metadata"]["resourceVersion"] = item["metadata"]["resourceVersion"]
    out["metadata"]["generation"] = item["metadata"].get("generation")
    if out["metadata"]["generation"] is None:
        del out["metadata"]["generation"]
    assert out == pruned(expected)


def test_fields_worth_scheduling_by_are_modelled() -> None:
    """The comparison above would be blind to a field that no struct has."""
    web = next(to_builtins(obj) for obj in admitted() if obj.metadata.name == "web-6c9f7d5b8c-4kzqp")

    assert web["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    assert web["spec"]["topologySpreadConstraints"][0]["minDomains"] == 2
    assert web["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert web["spec"]["priorityClassName"] == "business-critical"
    assert web["spec"]["tolerations"][0]["tolerationSeconds"] == 300
    assert web["metadata"]["ownerReferences"][0]["controller"] is True
    assert web["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "250m", "memory": "128Mi"}


def test_real_objects_that_come_again_change_nothing() -> None:
    table = ObjectTable(stored := admitted())

    for obj, before in zip(load(TEXT), stored, strict=True):
        assert admit(obj, before, table, FeatureGates(), Stamp(seq=99, at=1))[0] is before


def test_list_is_written_and_read_back_whole() -> None:
    objects = admitted()

    assert load(dump_json(objects)) == objects
    assert load(dump_yaml(objects)) == objects


def test_real_objects_are_stored_in_the_log_and_read_back() -> None:
    for obj in admitted():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(obj), type=type(obj)) == obj


def test_requests_of_real_pods_are_counted() -> None:
    pods = {obj.metadata.name: obj for obj in admitted() if type(obj).__name__ == "Pod"}

    assert pod_requests(pods["web-6c9f7d5b8c-4kzqp"]) == {"cpu": 1000, "memory": 512 << 20}  # type: ignore[arg-type]
    assert occupied_requests(pods["web-6c9f7d5b8c-4kzqp"]) == {"cpu": 1000, "memory": 512 << 20}  # type: ignore[arg-type]
    assert pod_requests(pods["train-0"]) == {
        "cpu": 6250,
        "memory": (24 << 30) + (120 << 20),
        "nvidia.com/gpu": 4,
    }  # type: ignore[arg-type]


def test_the_same_dump_in_yaml_means_the_same() -> None:
    import yaml

    data = yaml.safe_dump(json.loads(TEXT))

    assert [replace(obj) for obj in load(data)] == load(TEXT)
