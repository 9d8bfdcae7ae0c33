"""What of a cluster's object is stored: nothing that may be a secret, and everything that decisions depend on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.inspect import (
    AnyType,
    CollectionType,
    DictType,
    IntType,
    NoneType,
    StrType,
    StructType,
    UnionType,
    type_info,
)

from tidelog.api.errors import UsageError
from tidelog.api.kinds.registry import KINDS
from tidelog.api.objects import Condition, Node, NodeStatus, ObjectMeta, Pod, PodSpec, PodStatus, Volume
from tidelog.api.projection import LEVELS, Projection
from tidelog.api.wire import read_object
from tidelog.testing.builders import node, pod

CANARY = "canary-7f3a"
KEY = b"k" * 32


def planted(type_: Any, canary: Iterator[str]) -> Any:
    """Plain data that fills every field of the type, with a canary wherever a free text or an unread part can stand."""
    if isinstance(type_, StructType):
        return {field.encode_name: planted_field(field, canary) for field in type_.fields}
    if isinstance(type_, UnionType):
        return planted(next(one for one in type_.types if not isinstance(one, NoneType)), canary)
    if isinstance(type_, CollectionType):
        return [planted(type_.item_type, canary)]
    if isinstance(type_, DictType):
        return {"key": planted(type_.value_type, canary)}
    if isinstance(type_, AnyType):
        return {"driver": "csi.example.com", "attributes": {"password": next(canary)}}
    if isinstance(type_, StrType):
        return "5"
    if isinstance(type_, IntType):
        return 5
    return True


def planted_field(field: Any, canary: Iterator[str]) -> Any:
    if field.encode_name in ("annotations", "parameters"):
        return {"kubectl.kubernetes.io/last-applied-configuration": next(canary)}
    if field.encode_name in ("message", "description"):
        return next(canary)
    return planted(field.type, canary)


def canaries() -> Iterator[str]:
    return (f"{CANARY}-{number}" for number in itertools.count())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_canary_is_left_in_an_object_of_any_kind(kind: Any, level: str) -> None:
    data = msgspec.json.encode(planted(type_info(kind.type), canaries()))
    obj = read_object(kind.name, data)

    stored = Projection(level=level, key=KEY).of(obj)

    assert CANARY in str(obj) or kind.name not in ("Pod", "Node"), "there is something to take out"
    assert CANARY.encode() not in msgspec.msgpack.encode(stored)


def test_what_scheduling_reads_stays() -> None:
    found = pod("web").request(cpu="1").tolerate("a").node_selector(a="b").spread("zone").build()

    assert Projection().of(found) is found


def test_annotations_go_but_for_ours_and_those_that_somebody_wants() -> None:
    found = pod("web").annotate({"a": "1", "b": "2", "scheduling.tidelog.dev/explain": "3"}).build()

    assert Projection().of(found).metadata.annotations == {"scheduling.tidelog.dev/explain": "3"}
    assert Projection(keep_annotations=["a"]).of(found).metadata.annotations == {
        "a": "1",
        "scheduling.tidelog.dev/explain": "3",
    }


def test_messages_of_conditions_stay_where_scheduling_writes_them() -> None:
    conditions = tuple(Condition(type=t, message="m") for t in ("PodScheduled", "Ready", "DisruptionTarget"))

    stored = Projection().of(Pod(status=PodStatus(conditions=conditions)))

    assert [(c.type, c.message) for c in stored.status.conditions] == [
        ("PodScheduled", "m"),
        ("Ready", ""),
        ("DisruptionTarget", "m"),
    ]


def test_of_a_volume_no_more_is_kept_than_refers_to_something() -> None:
    csi = {
        "driver": "csi.example.com",
        "volumeAttributes": {"token": CANARY},
        "nodePublishSecretRef": {"name": CANARY},
    }

    (stored,) = Projection().of(Pod(spec=PodSpec(volumes=(Volume(name="v", csi=csi),)))).spec.volumes

    assert stored.csi == {"driver": "csi.example.com"}


def test_images_can_be_hidden() -> None:
    found = pod("web").image("registry/app:1").build()
    there = node("n").image("registry/app:1", 5).build()
    hide = Projection(hide_images=True)

    assert [c.image for c in hide.of(found).spec.containers] == [""]
    assert [image.names for image in hide.of(there).status.images] == [()]
    assert Projection().of(found) is found


# --- pseudonyms ---------------------------------------------------------------------------------------------------------

SECRET = Projection(level="pseudonymous", key=KEY)


def test_names_become_pseudonyms_and_equal_ones_stay_equal() -> None:
    web = pod("web", "shop").label(app="web").on("node-1").build()
    there = Node(
        metadata=ObjectMeta(name="node-1", labels={"kubernetes.io/hostname": "node-1"}), status=NodeStatus()
    )

    stored, machine = SECRET.of(web), SECRET.of(there)

    assert stored.metadata.name.startswith("x-")
    assert len(stored.metadata.name) == 18
    assert stored.metadata.labels["app"] == stored.metadata.name, (
        "the key stays, and the same text is the same name"
    )
    assert stored.spec.node_name == machine.metadata.name == machine.metadata.labels["kubernetes.io/hostname"]
    assert stored.metadata.uid == web.metadata.uid
    assert SECRET.place("shop", "web") == (stored.metadata.namespace, stored.metadata.name)


def test_values_of_some_labels_stay_also_where_they_are_asked_for() -> None:
    os = "kubernetes.io/os"
    found = pod("web").node_selector(**{os: "haiku", "tier": "gold"}).node_affinity(os, "In", "haiku").build()

    stored = SECRET.of(found)

    assert stored.spec.node_selector[os] == "haiku"
    assert stored.spec.node_selector["tier"].startswith("x-")
    assert "haiku" in str(stored.spec.affinity)


def test_an_image_without_its_default_tag_stays_the_same_image() -> None:
    one, other = (SECRET.of(pod("a").image(name).build()) for name in ("reg/app", "reg/app:latest"))

    assert one.spec.containers[0].image + ":latest" == other.spec.containers[0].image


@given(st.text(min_size=1, max_size=20), st.binary(min_size=1, max_size=40))
def test_a_pseudonym_depends_on_name_and_key_alone(name: str, key: bytes) -> None:
    one, other = (Projection(level="pseudonymous", key=key).place("", name)[1] for _ in range(2))

    assert one == other


def test_rules_and_key_show_in_the_digest() -> None:
    digests = [
        Projection().digest,
        Projection(keep_annotations=["a"]).digest,
        Projection(hide_images=True).digest,
        Projection(level="pseudonymous", key=b"1").digest,
        Projection(level="pseudonymous", key=b"2").digest,
    ]

    assert len(set(digests)) == len(digests)
    assert Projection().digest == digests[0]


@pytest.mark.parametrize(
    ("changes", "words"), [({"level": "secret"}, "no redaction"), ({"level": "pseudonymous"}, "need a key")]
)
def test_wrong_rules_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Projection(**changes)
