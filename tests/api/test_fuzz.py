"""Whatever is given to `load` and `admit`, it is objects or InvalidObjects with a path and a reason for each error.

`TIDELOG_FUZZ_EXAMPLES` sets the number of examples of each test; the default keeps the usual run short.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.api.conftest import VALID
from tests.thorough import cases
from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KIND_BY_NAME, object_key
from tidelog.api.manifests.manifests import dump_json, dump_yaml, load
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import Object

FUZZ = settings(max_examples=cases(80, "TIDELOG_FUZZ_EXAMPLES"))
DUMP = json.loads((Path(__file__).parent / "data" / "kubectl-get-nodes-pods.json").read_text())["items"]
SEEDS: list[dict[str, Any]] = [
    *({"apiVersion": KIND_BY_NAME[kind].api_version, "kind": kind, **data} for kind, data in VALID.items()),
    *DUMP,
]
ON = FeatureGates(
    pod_topology_spread_fallback_mode=True,
    topology_aware_workload_scheduling=True,
    workload_basic_policy_desired_count=True,
    disruption_policy_in_priority_class=True,
)
OFF = FeatureGates(min_domains_in_pod_topology_spread=False)


def check_errors(error: InvalidObjects) -> None:
    assert error.errors
    assert all(
        found.path and (found.rule or found.kind in ("Required", "Duplicate")) for found in error.errors
    )
    assert str(error).isprintable()
    assert error.subject.isprintable()


def admitted(objects: list[Object], gates: FeatureGates) -> list[Object]:
    """What of the objects is admitted, each into the cluster of those before; what is not must say why."""
    table = ObjectTable()
    found = []
    for seq, obj in enumerate(objects, 1):
        _, namespace, name = object_key(obj).split("/", 2) if obj.metadata.name else ("", "", "")
        old = table.get(type(obj).__name__, namespace, name) if name else None
        try:
            stored, warnings = admit(obj, old, table, gates, Stamp(seq=seq, at=seq * 10**9))
        except InvalidObjects as error:
            check_errors(error)
            continue
        assert all(isinstance(warning, str) for warning in warnings)
        table.put(stored)
        found.append(stored)
    return found


def fed(data: bytes | str) -> None:
    """Load, admit, store, write, read: nothing of it may fail in any other way than by InvalidObjects."""
    try:
        objects = load(data, "fuzz")
    except InvalidObjects as error:
        check_errors(error)
        return
    for gates in (ON, OFF):
        for stored in admitted(objects, gates):
            kind = type(stored)
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=kind) == stored
            assert load(dump_json([stored])) == [stored]
            assert load(dump_yaml([stored])) == [stored]
            # What was admitted once is what it is: putting it again changes nothing.
            assert admit(stored, stored, ObjectTable(), gates, Stamp(seq=99, at=0))[0] is stored


@FUZZ
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
def test_random_bytes(data: bytes) -> None:
    fed(data)


@FUZZ
@given(st.text(max_size=300))
@example("- apiVersion: v1\n  kind: Pod")
def test_random_text(text: str) -> None:
    fed(text)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-5, max_value=5),
    st.integers(),
    st.sampled_from([0, 1, 100, 65535, 2**31 - 1, 2**31, 2**63, 2_000_000_000, 2_000_001_000]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "a",
            "web",
            "1",
            "1Gi",
            "-1",
            "1e9",
            "1.5",
            "50%",
            "In",
            "NotIn",
            "Exists",
            "Gt",
            "NoSchedule",
            "NoExecute",
            "DoNotSchedule",
            "ScheduleAnyway",
            "PreemptionFailed",
            "Always",
            "Never",
            "default",
            "system-node-critical",
            "2024-01-01T00:00:00Z",
            "hugepages-2Mi",
            "nvidia.com/gpu",
            "a/b/c",
            "metadata.name",
            "A" * 300,
            "\x00",
            "�",
        ]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "cpu", "name", "key"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        keys: Any = list(part) if isinstance(part, dict) else range(len(part))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], dict | list):
                waiting.append(part[key])
    return found


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest of ours with a few values replaced, removed, repeated or moved."""
    manifest = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        found = places(manifest)
        part, key = found[draw(st.integers(min_value=0, max_value=len(found) - 1))]
        match draw(st.sampled_from(["replace", "replace", "remove", "repeat", "move", "key"])):
            case "replace":
                part[key] = draw(VALUES)
            case "remove":
                del part[key]
            case "repeat" if isinstance(part, list):
                part.append(copy.deepcopy(part[key]))
            case "move":
                other, there = found[draw(st.integers(min_value=0, max_value=len(found) - 1))]
                part[key] = copy.deepcopy(other[there])
            case _ if isinstance(part, dict):
                part[draw(st.text(max_size=8))] = part.pop(key)
        if not places(manifest):
            break
    return manifest


@FUZZ
@given(st.lists(mutants(), min_size=1, max_size=3))
def test_mutated_manifests_in_json(found: list[dict[str, Any]]) -> None:
    fed(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    fed("\n".join(json.dumps(one) for one in found))


@FUZZ
@given(st.lists(mutants(), min_size=1, max_size=2))
def test_mutated_manifests_in_yaml(found: list[dict[str, Any]]) -> None:
    fed(yaml.safe_dump_all(found, allow_unicode=True))


@FUZZ
@given(mutants(), st.integers(min_value=0), st.binary(min_size=1, max_size=3))
def test_damaged_text(manifest: dict[str, Any], at: int, damage: bytes) -> None:
    data = json.dumps(manifest).encode()
    at %= len(data)
    text = yaml.safe_dump(manifest).encode()

    fed(data[:at] + damage + data[at + 1 :])
    fed(data[:at])
    fed(text[: at % len(text)] + damage + text[at % len(text) :])


@FUZZ
@given(mutants(), mutants())
def test_mutated_updates(first: dict[str, Any], second: dict[str, Any]) -> None:
    """The second takes the kind and name of the first, so that it is an update wherever it is an object at all."""
    second["apiVersion"], second["kind"] = first.get("apiVersion"), first.get("kind")
    second["metadata"] = first.get("metadata")

    fed(json.dumps({"apiVersion": "v1", "kind": "List", "items": [first, second]}))
