"""A rejection's message as a multiset of reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.framework.reasons import nodes_message
from tidelog.replay.shadow.messages import Reasons, RejectionMessage, parsed


def test_reasons_and_preemption_are_told_apart() -> None:
    found = parsed(
        "0/5 nodes are available: 1 Insufficient memory, 5 Insufficient cpu. "
        "preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod."
    )

    assert found == RejectionMessage(
        Reasons(5, (("Insufficient cpu", 5), ("Insufficient memory", 1))),
        Reasons(5, (("No preemption victims found for incoming pod", 5),)),
    )


def test_a_preemption_names_its_node_and_counts_its_victims() -> None:
    found = parsed(
        "0/5 nodes are available: 5 Insufficient cpu. "
        "preemption: found a potential placement for pod on node node-0, preempting 2 victims"
    )

    assert (found.preemption, found.placement, found.victims) == (None, "node-0", 2)


def test_the_order_of_reasons_says_nothing_and_their_numbers_do() -> None:
    one, other = "2 a, 11 node(s) had x, y", "11 node(s) had x, y, 2 a"

    assert parsed(f"0/13 nodes are available: {one}.") == parsed(f"0/13 nodes are available: {other}.")
    assert parsed("0/13 nodes are available: 2 a.") != parsed("0/13 nodes are available: 3 a.")


@pytest.mark.parametrize(
    "text", ["", "no nodes available to schedule pods", "preemption: not eligible", "0/1 nodes are"]
)
def test_a_message_of_another_shape_is_itself(text: str) -> None:
    assert parsed(text) == parsed(text)
    assert parsed(text) != parsed(text + " at all")


@given(st.text(max_size=60))
def test_no_message_is_too_odd(text: str) -> None:
    assert isinstance(parsed(text), RejectionMessage)


REASONS = st.dictionaries(
    st.sampled_from(["Insufficient cpu", "Too many pods", "x, y z"]), st.integers(1, 99), min_size=1
)


@given(REASONS, st.integers(1, 99))
def test_our_own_messages_come_back_as_their_counts(counts: dict[str, int], nodes: int) -> None:
    assert parsed(nodes_message(nodes, counts)).reasons == Reasons(nodes, tuple(sorted(counts.items())))
