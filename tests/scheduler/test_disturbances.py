"""The index finds the same first conflict as a walk over all notes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.thorough import cases
from tidelog.framework.interface import Depends
from tidelog.scheduler.aborts import AbortCause, AbortReason
from tidelog.scheduler.commit_check import Disturbance, conflict
from tidelog.scheduler.decision import Relies
from tidelog.scheduler.disturbances import DROPPED_AT_ONCE, Notes

KEYS = [f"Pod/{namespace}/{name}" for namespace in "ab" for name in "xyz"]
NODES = ["", "n1", "n2"]
TOPOLOGY = Depends.DOMAINS | Depends.CLUSTER
TOUCHES = [Depends.POD, TOPOLOGY, TOPOLOGY | Depends.ALL_NODES]
ON = [Depends.POD, Depends.NODE | Depends.OCCUPANTS, Depends.ALL_NODES, Depends.DOMAINS]


def perhaps(reason: AbortReason) -> st.SearchStrategy[AbortReason | None]:
    return st.sampled_from([None, None, reason])


disturbances = st.builds(
    Disturbance,
    seq=st.just(0),
    key=st.sampled_from(KEYS),
    node=st.sampled_from(NODES),
    takes=perhaps(AbortCause.ROOM_TAKEN.of("a/x", "n1")),
    touches=st.sampled_from(TOUCHES),
    own=perhaps(AbortCause.POD_GONE.of()),
    repels=st.booleans(),
    forbids=perhaps(AbortCause.BUDGET_APPEARED.of("a/b")),
    withdraws=perhaps(AbortCause.FALLBACK_WITHDRAWN.of()),
    loses=perhaps(AbortCause.MEMBER_RELEASED.of("a/x")),
    opens=perhaps(AbortCause.PREEMPTION_CALLED_OFF.of("n1")),
    stays=st.booleans(),
)
reliances = st.builds(
    Relies,
    pod_key=st.sampled_from(KEYS),
    pod_uid=st.just("u"),
    node=st.sampled_from(NODES),
    on=st.sampled_from(ON),
    victims=st.frozensets(st.sampled_from(KEYS), max_size=2),
    budgets=st.frozensets(st.sampled_from("ab"), max_size=1),
    counts_place=st.booleans(),
    found_none=st.booleans(),
)


@settings(max_examples=cases(200))
@given(st.lists(disturbances, max_size=12), reliances, st.integers(0, 8), st.integers(1, 3), st.booleans())
def test_first_conflict_is_the_one_that_a_walk_finds(
    found: list[Disturbance], relies: Relies, observed: int, each: int, hurts: bool
) -> None:
    notes = Notes()
    notes.wanted = True
    # Several may come from one record.
    happened = [replace(note, seq=1 + i // each) for i, note in enumerate(found)]
    for note in happened:
        notes.append(note)

    seen = [note for note in happened if note.seq > observed]
    walked = conflict(relies, seen, staying_hurts=hurts)
    indexed = conflict(relies, notes.concerning(relies, observed, staying_hurts=hurts), staying_hurts=hurts)

    assert walked == indexed


def test_old_notes_are_dropped_when_they_are_the_most() -> None:
    notes = Notes()
    notes.wanted = True
    for seq in range(1, 2 * DROPPED_AT_ONCE):
        notes.append(Disturbance(seq, KEYS[seq % 6], "n1", AbortCause.ROOM_TAKEN.of("a/x", "n1"), TOPOLOGY))

    notes.drop_until(10)
    before = len(notes)
    notes.drop_until(2 * DROPPED_AT_ONCE - 5)
    after = len(notes)

    assert (before, after) == (2 * DROPPED_AT_ONCE - 1, 4)
    relies = Relies(KEYS[0], "u", "n1")
    first = conflict(relies, notes.concerning(relies, 2 * DROPPED_AT_ONCE - 5))
    assert first is not None
    assert first.seq == 2 * DROPPED_AT_ONCE - 4
