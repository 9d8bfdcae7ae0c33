"""The heap from whose middle one can take."""

from __future__ import annotations

from random import Random

from tidelog.queue.heap import Heap


def test_items_come_out_in_order() -> None:
    heap: Heap[str] = Heap()
    for item, order in [("b", (1, 2)), ("c", (3, 0)), ("a", (1, 1))]:
        heap.push(item, order)

    assert heap.ordered() == ["a", "b", "c"]
    assert [heap.pop() for _ in range(4)] == ["a", "b", "c", None]


def test_discarded_item_does_not_come_out() -> None:
    heap: Heap[str] = Heap()
    heap.push("a", (1,))
    heap.push("b", (2,))

    assert heap.discard("a")
    assert not heap.discard("a")

    assert "a" not in heap
    assert heap.first() == "b"
    assert [heap.pop(), heap.pop()] == ["b", None]


def test_pushing_again_gives_another_order() -> None:
    heap: Heap[str] = Heap()
    heap.push("a", (1,))
    heap.push("b", (2,))

    heap.push("a", (3,))

    assert len(heap) == 2
    assert heap.order_of("a") == (3,)
    assert heap.ordered() == ["b", "a"]


def test_item_that_returns_in_its_old_order_comes_out_once() -> None:
    heap: Heap[str] = Heap()
    heap.push("a", (1,))
    heap.discard("a")
    heap.push("a", (1,))

    assert [heap.pop(), heap.pop()] == ["a", None]


def test_memory_follows_the_living() -> None:
    heap: Heap[int] = Heap()
    heap.push(-1, (-1,))

    for i in range(10_000):
        heap.push(i, (i,))
        heap.discard(i)

    assert len(heap._heap) < 100


def test_memory_does_not_grow_with_changes_of_order() -> None:
    heap: Heap[str] = Heap()

    for i in range(10_000):
        heap.push("a", (-i,))

    assert len(heap._heap) < 100
    assert [heap.pop(), heap.pop()] == ["a", None]


def test_heap_agrees_with_a_sorted_list_under_random_operations() -> None:
    rnd = Random(7)
    heap: Heap[int] = Heap()
    model: dict[int, tuple[int, int]] = {}
    for number in range(20_000):
        choice = rnd.random()
        item = rnd.randrange(50)
        if choice < 0.5:
            model[item] = (rnd.randrange(20), number)
            heap.push(item, model[item])
        elif choice < 0.7:
            assert heap.discard(item) == (model.pop(item, None) is not None)
        elif choice < 0.8:
            assert heap.first() == min(model, key=lambda i: model[i], default=None)
        else:
            first = min(model, key=lambda i: model[i], default=None)
            assert heap.pop() == first
            if first is not None:
                del model[first]
        assert len(heap) == len(model)
    assert heap.ordered() == sorted(model, key=lambda i: model[i])
    assert sorted(heap.unordered()) == sorted(model)
