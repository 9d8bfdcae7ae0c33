"""docs/limits.md names every limit with its value; and each of them holds: what is at it enters, what is one over it is refused."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidelog.api import quantity
from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects, LogError
from tidelog.api.features import FeatureGates
from tidelog.api.manifests.documents import read_documents
from tidelog.api.manifests.manifests import OBJECT_BYTES_MAX, VALUES_MAX, load
from tidelog.api.manifests.yaml_reader import DEPTH_MAX, DOCUMENTS_MAX, INPUT_BYTES_MAX
from tidelog.api.object_table import ObjectTable
from tidelog.api.times import NANOS
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import devices as validate_devices
from tidelog.api.validation import groups as validate_groups
from tidelog.api.validation import placement as validate_placement
from tidelog.api.validation.field_errors import ERRORS_MAX
from tidelog.api.validation.names import NAME_LENGTH_MAX, SUBDOMAIN_LENGTH_MAX
from tidelog.api.validation.pod import CLAIMS_MAX
from tidelog.configuration import strict
from tidelog.daemon.actors import node_groups
from tidelog.daemon.http import server as http_server
from tidelog.daemon.intake import facts
from tidelog.daemon.intake.messages import OBJECTS_MAX, TEXT_BYTES_MAX, VERSION, read_request
from tidelog.eventlog import log, records, room, sqlite
from tidelog.eventlog import socket as log_socket
from tidelog.eventlog.log import memory_log
from tidelog.eventlog.records import Draft, SchedulerStarted

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
YEARS = {5: "five"}
UNSATISFIABLE = validate_placement.UNSATISFIABLE
HTTP = http_server.HttpLimits()
VALUES = {
    "an object, of what is kept of it, as JSON": f"{OBJECT_BYTES_MAX / 2**20} MiB",
    "entries and items of an object, all levels counted": f"{VALUES_MAX:,}",
    "demands of a pod on its place: requirements on nodes, pod affinity terms and spread constraints together": str(
        validate_placement.DEMANDS_MAX
    ),
    "of these pod affinity terms and spread constraints": str(validate_placement.DEMANDS_ON_PODS_MAX),
    "different topology keys among these terms and constraints": str(validate_placement.TOPOLOGY_KEYS_MAX),
    "requirements of a label selector": str(validate_common.REQUIREMENTS_MAX),
    "`matchLabelKeys`, `mismatchLabelKeys` of a term or constraint": str(validate_common.REQUIREMENTS_MAX),
    "annotations of an object, keys and values": f"{validate_common.ANNOTATION_BYTES_MAX >> 10} KiB",
    "the name part of a label key, a label value, a DNS label": f"{NAME_LENGTH_MAX} characters",
    "a name, a label key's prefix": f"{SUBDOMAIN_LENGTH_MAX} characters",
    "a quantity": f"{quantity._LENGTH_MAX} characters",
    "volumes of a pod that stand for claims": str(CLAIMS_MAX),
    "nesting of what is stored as it came (volumes' sources)": f"{validate_common.RAW_DEPTH_MAX} levels",
    "groups of a workload; claims of a group": f"{validate_groups.GROUPS_MAX}; {validate_groups.CLAIMS_MAX}",
    "devices of a slice; attributes and capacities of a device": (
        f"{validate_devices.DEVICES_MAX}; {validate_devices.ATTRIBUTES_MAX}"
    ),
    "errors told of one object": str(ERRORS_MAX),
    "a text": f"{INPUT_BYTES_MAX >> 20} MiB",
    "what aliases of YAML may add to a text": "as much as a text may have",
    "nesting": f"{DEPTH_MAX} levels",
    "documents of a text": f"{DOCUMENTS_MAX:,}",
    "a file of settings: configuration, actors": f"{strict.TEXT_BYTES_MAX >> 20} MiB",
    "nodes of a node group, in a file of actors": f"{node_groups.NODES_MAX:,}",
    "nesting of an answer, where a client reads it": f"{log_socket.NESTING_MAX} levels",
    "a message": f"{log_socket.FRAME_BYTES_MAX >> 20} MiB",
    "objects or keys of a request": f"{OBJECTS_MAX:,}",
    "an object's text in a request": f"{OBJECT_BYTES_MAX / 2**20} MiB and {TEXT_BYTES_MAX - OBJECT_BYTES_MAX >> 10} KiB",
    "connections": (str(log_socket.CONNECTIONS_MAX), str(HTTP.connections)),
    f"messages of more than {log_socket.SMALL_BYTES >> 10} KiB that are under way together": (
        f"{log_socket.BUDGET_BYTES >> 20} MiB"
    ),
    "a write-ahead log that somebody's reading keeps from being emptied": (
        f"{sqlite.PINNED_BYTES >> 20} MiB; {sqlite.PINNED_BYTES_MAX >> 30} GiB"
    ),
    "a time": f"{YEARS[log.LEAP_MAX // (365 * 86_400 * NANOS)]} years after the record before, the year 2200",
    "the time for a message to arrive, once it has begun": f"{log_socket.SECONDS_PER_MESSAGE:g} s",
    "objects told of in a refusal; broken rules in all": f"{facts.REFUSALS_MAX}; {facts.REFUSED_ERRORS_MAX:,}",
    "warnings told of one request; characters of each": f"{facts.WARNINGS_MAX:,}; {facts.WARNING_LENGTH_MAX:,}",
    "a record's body": f"{records.BODY_BYTES_MAX >> 20} MiB",
    "a group that is committed as one": (
        f"{log.GROUP_RECORDS:,} records or {log.GROUP_BYTES >> 20} MiB, and the request that goes over it"
    ),
    "appends that wait": f"{log.QUEUE_LENGTH:,}",
    "room on the disk": f"{room.RESERVE_BYTES >> 20} MiB, or a twentieth of a small disk",
    "a request with its headers": f"{HTTP.request_bytes >> 10} KiB",
    "headers": str(http.client._MAXHEADERS),  # type: ignore[attr-defined]
    "the time for a request to arrive": f"{HTTP.request_seconds:g} s",
    "the time for an answer to be taken": f"{HTTP.answer_seconds:g} s",
    "the time for the event loop to answer": f"{HTTP.loop_seconds:g} s",
}


def test_the_page_names_every_limit_with_the_value_in_force() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line[:2] == "| "
    ]
    found: dict[str, Any] = {}
    for name, value, _ in rows:
        if name != "limit":
            found[name] = (found[name], value) if name in found else value

    assert found == VALUES


# --- objects, at each limit and one over it -----------------------------------------------------------------------------


def pod(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    meta = {"name": spec.pop("name", "web"), "labels": labels or {}, "annotations": annotations or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [{"name": "c"}], **spec},
    }


def spread(count: int, **more: Any) -> dict[str, Any]:
    return pod(
        topologySpreadConstraints=[
            {"topologyKey": f"k{i // 2}", "maxSkew": 1, "whenUnsatisfiable": UNSATISFIABLE[i % 2], **more}
            for i in range(count)
        ]
    )


def demands_on_pods(count: int) -> dict[str, Any]:
    """Two constraints, and terms."""
    made = spread(2)
    terms = [{"topologyKey": "zone", "labelSelector": {}}] * (count - 2)
    made["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return made


def topology_keys(count: int) -> dict[str, Any]:
    """One of a constraint, the others of terms."""
    terms = [{"topologyKey": f"other{i}", "labelSelector": {}} for i in range(count - 1)]
    made = spread(2)
    made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return made


def demands(count: int) -> dict[str, Any]:
    """Eight constraints, as many terms as are left for them, and requirements on nodes."""
    made = spread(8)
    terms = [{"topologyKey": "zone", "labelSelector": {}}] * 24
    expressions = [{"key": "a", "operator": "Exists"}] * (count - 8 - 24)
    made["spec"]["affinity"] = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]
            }
        },
    }
    return made


def values(count: int) -> dict[str, Any]:
    """With exactly so many entries and items: eleven, and the tolerations' two each."""
    made = pod(tolerations=[{"operator": "Exists"}] * ((count - 11) // 2))
    if (count - 11) % 2:
        made["spec"]["priority"] = 0
    return made


def sized(count: int) -> dict[str, Any]:
    """Of so many bytes, as it is kept, nearly all of them in quantities' company: a volume's source."""
    (empty,) = load(json.dumps(pod(volumes=[{"name": "v", "csi": {"a": ""}}])))
    rest = count - len(msgspec.json.encode(empty))
    return pod(volumes=[{"name": "v", "csi": {"a": "x" * rest}}])


def nested(depth: int) -> dict[str, Any]:
    inner: Any = "x"
    for _ in range(depth - 1):
        inner = {"a": inner}
    return pod(volumes=[{"name": "v", "csi": {"a": inner}}])


def slice_of(devices: int, attributes: int = 0) -> dict[str, Any]:
    one = {"attributes": {f"a{i}": {"int": 1} for i in range(attributes)}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example",
            "pool": {"name": "p", "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": f"d{i}", **one} for i in range(devices)],
        },
    }


def workload(groups: int) -> dict[str, Any]:
    made = [{"name": f"g{i}", "policy": {"gang": {"minCount": 1}}} for i in range(groups)]
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podGroups": made},
    }


BY_SIZE: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "bytes": (OBJECT_BYTES_MAX, sized),
    "values": (VALUES_MAX, values),
    "demands": (validate_placement.DEMANDS_MAX, demands),
    "demands on pods": (validate_placement.DEMANDS_ON_PODS_MAX, demands_on_pods),
    "topology keys": (validate_placement.TOPOLOGY_KEYS_MAX, topology_keys),
    "requirements of a selector": (
        validate_common.REQUIREMENTS_MAX,
        lambda n: spread(1, labelSelector={"matchLabels": {f"l{i}": "" for i in range(n)}}),
    ),
    "match label keys": (
        validate_common.REQUIREMENTS_MAX,
        lambda n: spread(1, labelSelector={}, matchLabelKeys=[f"l{i}" for i in range(n)]),
    ),
    "annotations": (
        validate_common.ANNOTATION_BYTES_MAX,
        lambda n: pod(annotations={"a": "x" * (n - 1)}),
    ),
    "label value": (NAME_LENGTH_MAX, lambda n: pod({"a": "x" * n})),
    "label key": (NAME_LENGTH_MAX, lambda n: pod({"x" * n: ""})),
    "name": (SUBDOMAIN_LENGTH_MAX, lambda n: pod(name="x" * n)),
    "quantity": (
        quantity._LENGTH_MAX,
        lambda n: pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "0" * (n - 1) + "1"}}}]),
    ),
    "nesting of raw parts": (validate_common.RAW_DEPTH_MAX, nested),
    "devices": (validate_devices.DEVICES_MAX, slice_of),
    "attributes": (validate_devices.ATTRIBUTES_MAX, lambda n: slice_of(1, n)),
    "groups": (validate_groups.GROUPS_MAX, workload),
}


def admitted(manifest: dict[str, Any]) -> None:
    (obj,) = load(json.dumps(manifest))
    admit(obj, None, ObjectTable(), FeatureGates(), Stamp(seq=1, at=0))


@pytest.mark.parametrize("limit", BY_SIZE)
def test_what_is_at_a_limit_enters_and_what_is_over_it_does_not(limit: str) -> None:
    count, make = BY_SIZE[limit]

    admitted(make(count))
    with pytest.raises(InvalidObjects):
        admitted(make(count + 1))


def test_no_more_errors_are_told_than_anybody_reads() -> None:
    with pytest.raises(InvalidObjects) as refused:
        admitted(pod({f"_{i}": "" for i in range(1000)}))

    assert len(refused.value.errors) == ERRORS_MAX


def test_many_wrong_labels_do_not_hide_that_a_spec_is_wrong() -> None:
    """A spec that was judged behind a hundred other errors must not be remembered as good."""
    wrong = spread(1, maxSkew=0)
    labels = {f"_{i}": "" for i in range(ERRORS_MAX)}

    for meta in ({"name": "a", "labels": labels}, {"name": "a"}):
        with pytest.raises(InvalidObjects):
            admitted({**wrong, "metadata": meta})


# --- texts --------------------------------------------------------------------------------------------------------------


def test_texts_are_bounded_in_size_depth_and_number() -> None:
    at_limit = "[" * DEPTH_MAX + "]" * DEPTH_MAX

    assert len(read_documents(at_limit, "f")) == 1
    assert len(read_documents("{}\n" * DOCUMENTS_MAX, "f")) == DOCUMENTS_MAX
    assert len(read_documents(b"a: b" + b" " * 96, "f", 100)) == 1
    for text, most in (
        (f"[{at_limit}]", 10**6),
        ("{}\n" * (DOCUMENTS_MAX + 1), 10**6),
        ("a: b" + " " * 97, 100),
    ):
        with pytest.raises(InvalidObjects):
            read_documents(text, "f", most)


def test_settings_are_bounded() -> None:
    strict.parse_document("a: " + "x" * (strict.TEXT_BYTES_MAX - 3), "f")

    with pytest.raises(InvalidObjects, match="Too long"):
        strict.parse_document("a: " + "x" * (strict.TEXT_BYTES_MAX - 2), "f")


# --- requests and records -----------------------------------------------------------------------------------------------


def request(**facts: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode({"version": VERSION, "facts": facts}))


@pytest.mark.parametrize("field", ["keys", "objects", "sources"])
def test_requests_are_bounded_in_number(field: str) -> None:
    verb, item, more = {
        "keys": ("delete", "Pod/a/b", {}),
        "objects": ("apply", b"", {}),
        "sources": ("apply", "", {"objects": []}),
    }[field]

    read_request(request(verb=verb, **{**more, field: [item] * OBJECTS_MAX}))
    with pytest.raises(InvalidObjects, match=rf"facts\.{field}: .*length <= {OBJECTS_MAX}"):
        read_request(request(verb=verb, **{**more, field: [item] * (OBJECTS_MAX + 1)}))


async def test_a_records_body_is_bounded() -> None:
    def draft(epoch: int, size: int) -> Draft:
        return Draft(body=SchedulerStarted(epoch=epoch, holder="x" * size), author="scheduler")

    async with await memory_log() as memory:
        (record,) = await memory.append([draft(1, 70_000)])
        rest = records.BODY_BYTES_MAX - len(record.body) + 70_000
        await memory.append([draft(2, rest)])
        with pytest.raises(LogError, match=f"at most {records.BODY_BYTES_MAX} can be appended"):
            await memory.append([draft(3, rest + 1)])
