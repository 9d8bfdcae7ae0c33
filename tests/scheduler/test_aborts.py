"""Each cause of an abort has a label without names and a sentence with them."""

from __future__ import annotations

import pytest

from tidelog.scheduler.aborts import AbortCause, AbortReason


@pytest.mark.parametrize(
    ("reason", "label", "sentence"),
    [
        (AbortCause.NODE_CORDONED.of("a"), "node cordoned", "node a was cordoned"),
        (AbortCause.NODE_LABELS.of("a"), "node changed", "the labels of node a changed"),
        (AbortCause.ROOM_TAKEN.of("default/web", "a"), "room taken", "default/web took room on node a"),
        (AbortCause.POD_CREATED_ANEW.of(), "pod changed", "the pod was created anew"),
        (AbortCause.POD_BOUND.of("n1"), "pod bound", "the pod was bound to n1"),
        (AbortCause.GROUP_DELETED.of(), "group changed", "the group's object was deleted"),
        (
            AbortCause.MEMBER_RELEASED.of("default/train-0"),
            "group changed",
            "default/train-0, which counts for the group's quorum, has lost its place",
        ),
        (
            AbortCause.BUDGET_ALLOWS_LESS.of("default/web", 0, 1),
            "budget changed",
            "PDB default/web allows 0 disruptions instead of 1",
        ),
    ],
)
def test_reason_has_a_label_and_a_sentence(reason: AbortReason, label: str, sentence: str) -> None:
    assert (reason.cause.label, str(reason)) == (label, sentence)


def test_every_sentence_takes_its_names() -> None:
    for cause in AbortCause:
        places = cause.sentence.count("{}")
        assert "{" not in str(cause.of(*"abc"[:places]))
        assert "{" not in cause.label
