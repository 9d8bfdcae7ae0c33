"""What the actors for volumes do by themselves; the stories with a scheduler are in tests/acceptance/test_volume_stories.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api.errors import InvalidObjects
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import BIND_COMPLETED
from tidelog.api.well_known import ZONE
from tidelog.daemon.actors import volume_steps as steps
from tidelog.daemon.actors.attach_controller import AttachController, AttachControllerSettings
from tidelog.daemon.actors.catalogue import cast_of
from tidelog.daemon.actors.errands import ErrandBook, KeyedObjects
from tidelog.daemon.actors.protocol import Actor, Errand
from tidelog.daemon.actors.volume_controller import LOOK, VolumeController, VolumeControllerSettings
from tidelog.eventlog.records import ObjectDeleted, ObjectPut
from tidelog.testing import builders as b
from tidelog.testing import storage as s

SECOND = 10**9


def play(actor: Actor, *objects: Object, seconds: int = 5) -> dict[str, Object]:
    """The objects when the actor has done everything that it finds to do in so many seconds."""
    known = {object_key(obj): obj for obj in objects}
    book = ErrandBook([actor])
    for _ in range(5):  # Begun anew: what it has done must be enough to go on.
        book.begin(KeyedObjects(known), 1, 0)
        for now in range(0, seconds * SECOND + 1, SECOND):
            for entry in book.take_due(now):
                for draft in book.run(entry, KeyedObjects(known), now):
                    if isinstance(draft.body, ObjectPut):
                        known[draft.key] = draft.body.object
                    elif isinstance(draft.body, ObjectDeleted):
                        known.pop(draft.key, None)
    return known


def claim_in(found: dict[str, Object], name: str = "c") -> PersistentVolumeClaim:
    claim = found[f"PersistentVolumeClaim/default/{name}"]
    assert isinstance(claim, PersistentVolumeClaim)
    return claim


def test_claim_that_need_not_wait_gets_the_smallest_volume_that_will_do() -> None:
    now = s.storage_class("now", mode="Immediate")
    free = [s.volume(name, size, "now") for name, size in (("a", "9Gi"), ("b", "2Gi"), ("c", "500Mi"))]

    found = play(VolumeController(), now, *free, s.claim("c", "1Gi", "now"))

    assert claim_in(found).spec.volume_name == "b"
    assert claim_in(found).status.phase == "Bound"
    assert BIND_COMPLETED in claim_in(found).metadata.annotations
    volume = found["PersistentVolume//b"]
    assert isinstance(volume, PersistentVolume)
    assert volume.status.phase == "Bound"


def test_claim_that_waits_for_a_consumer_is_left_alone() -> None:
    found = play(VolumeController(), s.storage_class(), s.volume("a", "1Gi", "fast"), s.claim("c"))

    assert claim_in(found) == s.claim("c")


SELECTED = replace(
    s.claim("c"), metadata=replace(s.claim("c").metadata, annotations={steps.SELECTED_NODE: "n"})
)


def test_volume_is_made_where_the_selected_node_reaches_it() -> None:
    node = b.node("n").label({ZONE: "z"}).build()

    found = play(VolumeController(), s.storage_class(), node, SELECTED)

    made = found[f"PersistentVolume//{claim_in(found).spec.volume_name}"]
    assert isinstance(made, PersistentVolume)
    assert made.spec.node_affinity is not None
    assert made.spec.node_affinity.required is not None
    (term,) = made.spec.node_affinity.required.node_selector_terms
    assert [(r.key, r.values) for r in term.match_expressions] == [(ZONE, ("z",))]


@pytest.mark.parametrize(
    ("settings", "annotated"),
    [({"refuses": ("fast",)}, False), ({"silent": ("fast",)}, True), ({"provision_seconds": 9.0}, True)],
)
def test_provisioner_may_refuse_or_be_silent_or_slow(settings: dict[str, Any], annotated: bool) -> None:
    actor = VolumeController(VolumeControllerSettings(**settings))

    found = play(actor, s.storage_class(), b.node("n").build(), SELECTED)

    assert claim_in(found).spec.volume_name == ""
    assert (steps.SELECTED_NODE in claim_in(found).metadata.annotations) is annotated


def test_volume_that_is_bound_already_is_not_written_once_more_with_its_claim() -> None:
    """As behind a repair that dropped what was written of the claim: seed 232 of the simulation."""
    claim = s.claim("c", "1Gi", "now")
    volume = s.volume("v", "1Gi", "now", bound=claim)
    known = {object_key(obj): obj for obj in (s.storage_class("now", mode="Immediate"), claim, volume)}

    deeds = VolumeController().run(Errand(0, LOOK, object_key(claim), 1), KeyedObjects(known), 0)

    assert [draft.key for draft in deeds.drafts] == [object_key(claim)]


def test_claim_whose_volume_is_gone_is_lost() -> None:
    found = play(VolumeController(), s.claim("c", volume="gone"))

    assert claim_in(found).status.phase == "Lost"


def test_attachment_ends_when_nobody_on_the_node_uses_the_volume() -> None:
    claim = s.claim("c", volume="v")
    volume = s.volume("v", bound=claim)
    user = b.pod("p").pvc("c").on("n").build()
    actor = AttachController(AttachControllerSettings())

    attached = play(actor, claim, volume, user)
    alone = play(actor, *(obj for obj in attached.values() if obj != user))

    assert [key.split("/")[0] for key in attached if key.startswith("VolumeAtt")] == ["VolumeAttachment"]
    assert [key for key in alone if key.startswith("VolumeAtt")] == []


def test_nodes_without_a_csi_node_get_one_with_the_limits() -> None:
    actor = AttachController(AttachControllerSettings(limits={"d": 3}))
    own = s.csi_node("b", {"d": 9})

    found = play(actor, b.node("a").build(), b.node("b").build(), own)

    registered = found["CSINode//a"]
    assert isinstance(registered, CSINode)
    assert [(d.name, d.allocatable and d.allocatable.count) for d in registered.spec.drivers] == [("d", 3)]
    assert found["CSINode//b"] == own


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"volumeController": {"provisionSeconds": -1}}, ["volumeController.provisionSeconds"]),
        ({"attachController": {"limits": {"d": -1}}}, ["attachController.limits[d]"]),
        ({"volumeController": {"speed": 2}}, ["volumeController.speed"]),
    ],
)
def test_bad_settings_are_refused_with_their_path(given: dict[str, Any], paths: Sequence[str]) -> None:
    with pytest.raises(InvalidObjects) as refused:
        cast_of(given)

    assert [error.path for error in refused.value.errors] == paths


def test_released_volume_keeps_its_claim_ref() -> None:
    claim = s.claim("c", volume="v")
    volume = s.volume("v", bound=claim)

    released = steps.released(volume)

    assert released == replace(volume, status=replace(volume.status, phase="Released"))
