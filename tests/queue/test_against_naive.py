"""Random histories, played on the queue and on the naive one: after every step both are in the same state.

The naive queue (`naive.py`) is plain lists and the written rules. At any step the queue may be dumped and loaded anew, and
at the end a further queue is given the same calls: nothing of this may be noticed.

`TIDELOG_QUEUE_HISTORIES` sets the number of long histories.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.thorough import cases
from tests.worlds.queue_histories import OPERATIONS, History

pytestmark = pytest.mark.no_cover  # Hundreds of long histories; the other tests of the queue cover it.

RANDOM = st.randoms(use_true_random=False)
HISTORIES = cases(60, "TIDELOG_QUEUE_HISTORIES")


def test_long_histories() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        rnd = Random(seed)
        history = History(rnd)
        for operation in rnd.choices(list(OPERATIONS), list(OPERATIONS.values()), k=150):
            operation(history, rnd)
            history.check()
        history.finish()
        seen += history.seen

    places = {"active", "backoff", "unschedulable", "in_flight", "pending_member", "incomplete_member"}
    operations = {"add", "update", "delete", "pop", "fail", "done", "event", "activate", "group_result"}
    assert places | operations <= seen.keys(), "the histories do not go everywhere"


class Histories(RuleBasedStateMachine):
    """The same, chosen by hypothesis, which finds the shortest history that goes wrong."""

    @initialize(rnd=RANDOM)
    def start(self, rnd: Random) -> None:
        self.history = History(rnd)

    @rule(rnd=RANDOM)
    def add_or_update(self, rnd: Random) -> None:
        self.history.add_or_update(rnd)

    @rule(rnd=RANDOM)
    def pop(self, rnd: Random) -> None:
        self.history.pop(rnd)

    @rule(rnd=RANDOM)
    def fail(self, rnd: Random) -> None:
        self.history.fail(rnd)

    @rule(rnd=RANDOM)
    def done_or_delete(self, rnd: Random) -> None:
        rnd.choice([self.history.done, self.history.delete])(rnd)

    @rule(rnd=RANDOM)
    def event(self, rnd: Random) -> None:
        self.history.event(rnd)

    @rule(rnd=RANDOM)
    def activate_or_flush(self, rnd: Random) -> None:
        history = self.history
        rnd.choice([history.activate, history.flush_backoff, history.flush_unschedulable])(rnd)

    @rule(rnd=RANDOM)
    def gates_and_groups(self, rnd: Random) -> None:
        rnd.choice([self.history.turn_gate, self.history.add_or_delete_group])(rnd)

    @rule(rnd=RANDOM)
    def dump_and_load(self, rnd: Random) -> None:
        self.history.dump_and_load(rnd)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "history"):
            self.history.check()

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.finish()


Histories.TestCase.settings = settings(max_examples=cases(20), stateful_step_count=40)
TestHistories = Histories.TestCase
