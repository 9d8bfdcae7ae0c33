"""The pool: an event goes to whom it concerns, and to nobody else."""

from __future__ import annotations

from typing import Any

from tests.queue.toys import NODE_ADD, NODE_LABEL, Bench, Gate, Listener, Toy, for_me, no, node, on, toy
from tidelog.api.times import NANOS
from tidelog.framework.events import WILDCARD
from tidelog.testing import builders as build


def test_event_reaches_those_whom_an_interested_plugin_rejected() -> None:
    bench = Bench(toy("A", NODE_ADD), toy("B", NODE_LABEL))
    bench.add_and_reject("a", "A")
    bench.add_and_reject("b", "B")
    bench.add_and_reject("both", "A", "B")

    bench.node_added()

    assert [bench.where(p) for p in ("a", "b", "both")] == ["active", "unschedulable", "active"]


def test_event_asks_no_hint_for_pods_that_it_does_not_concern() -> None:
    listener = Listener()
    bench = Bench(toy("A", NODE_ADD, no), toy("B", NODE_LABEL, no), observer=listener)
    for i in range(50):
        bench.add_and_reject(f"b{i}", "B")
    bench.add_and_reject("a", "A")

    bench.node_added()

    assert [name for name, *_ in listener.answers] == ["a"]


def test_event_looks_at_no_entity_that_it_does_not_concern(monkeypatch: Any) -> None:
    bench = Bench(toy("A", NODE_ADD, no), toy("B", NODE_LABEL, no))
    for i in range(50):
        bench.add_and_reject(f"b{i}", "B")
    bench.add_and_reject("a", "A")
    looked_at: list[str] = []
    real = bench.queue._places.pool.concerned

    def concerned(rejectors: Any) -> Any:
        found = real(rejectors)
        looked_at.extend(entity.key for entity in found)
        return found

    monkeypatch.setattr(type(bench.queue._places.pool), "concerned", lambda self, r: concerned(r))

    bench.node_added()

    assert looked_at == ["default/a"]


def test_events_go_through_the_pool_in_the_order_of_parking() -> None:
    listener = Listener()
    bench = Bench(toy("A", NODE_ADD, no), toy("B", NODE_ADD, no), observer=listener)
    for name, plugin in [("z", "B"), ("m", "A"), ("a", "B"), ("k", "A")]:
        bench.add_and_reject(name, plugin)

    bench.node_added()

    assert [name for name, *_ in listener.answers] == ["z", "m", "a", "k"]


def test_precheck_limits_who_is_looked_at() -> None:
    bench = Bench(toy("A", NODE_ADD))
    bench.add_and_reject(build.pod("low").priority(1), "A")
    bench.add_and_reject(build.pod("high").priority(9), "A")

    bench.event(NODE_ADD, None, node("n"), precheck=lambda pod: (pod.spec.priority or 0) <= 5)

    assert [bench.where("low"), bench.where("high")] == ["active", "unschedulable"]


def test_gated_pod_is_found_by_its_gates_events_only() -> None:
    bench = Bench(Gate("Hold", on(NODE_LABEL)), toy("A", NODE_ADD))
    bench.add(build.pod("p").gate("Hold"))
    bench.plugins[0].closed = False

    bench.node_added()
    assert bench.where("p") == "unschedulable"

    bench.event(NODE_LABEL, None, node("n"))
    assert bench.where("p") == "active"


def test_pod_gated_after_an_attempt_is_woken_by_an_earlier_rejecters_hint() -> None:
    # The gate registers the event and says no; the plugin that rejected the pod says yes.
    bench = Bench(Gate("Hold", on(NODE_ADD, no)), toy("A", NODE_ADD))
    bench.plugins[0].closed = False
    bench.add_and_reject(build.pod("p").gate("Hold"), "A")
    bench.plugins[0].closed = True
    bench.node_added()
    assert bench.get("p").gating_plugin == "Hold"
    assert bench.get("p").unschedulable_plugins == ("A", "Hold")
    bench.plugins[0].closed = False

    bench.node_added()

    assert bench.where("p") == "active"


def test_wildcard_reaches_everybody() -> None:
    bench = Bench(toy("A", NODE_ADD), Toy("Deaf"))
    bench.add_and_reject("a", "A")
    bench.add_and_reject("d", "Deaf")

    bench.event(WILDCARD)

    assert [bench.where("a"), bench.where("d")] == ["active", "active"]


def test_pod_that_left_the_pool_is_in_no_index() -> None:
    bench = Bench(toy("A", NODE_ADD, for_me), toy("B", NODE_LABEL))
    bench.add_and_reject("p", "A", "B")
    pool = bench.queue._places.pool

    bench.node_added("p")

    assert bench.where("p") == "active"
    assert pool._by_rejector == {}
    assert pool.next_leftover_at() is None
    assert len(pool) == 0


def test_leftovers_are_those_who_stayed_strictly_longer_than_the_limit() -> None:
    bench = Bench(Toy("Deaf"), max_in_unschedulable=300 * NANOS)
    bench.add("p")
    bench.pop()
    bench.reject("p", "Deaf")

    bench.advance(300)
    assert bench.where("p") == "unschedulable"

    bench.advance(1e-9)
    assert bench.where("p") == "active"
    assert bench.get("p").was_flushed


def test_gated_leftover_is_tried_again_after_another_full_stay() -> None:
    bench = Bench(Gate("Hold"), max_in_unschedulable=300 * NANOS)
    bench.add(build.pod("p").gate("Hold"))

    bench.advance(301)
    assert bench.where("p") == "unschedulable"
    assert not bench.get("p").was_flushed
    bench.plugins[0].closed = False

    bench.advance(299)
    assert bench.where("p") == "unschedulable"

    bench.advance(2)
    assert bench.where("p") == "active"
