"""Contents of something, as one number."""

from __future__ import annotations

from tidelog.framework.contents import MASK, number_of
from tidelog.framework.storage import Storage
from tidelog.testing import storage as s


def test_equal_things_have_equal_numbers_and_others_do_not() -> None:
    assert number_of({"a": 1, "b": [2]}) == number_of({"b": [2], "a": 1})
    assert len({number_of(thing) for thing in ((), ("a",), ("b",), ("a", None), 1, 2)}) == 6
    assert all(0 <= number_of(number) <= MASK for number in range(100))


def test_offers_of_a_class_are_the_same_again_when_a_change_is_undone() -> None:
    storage = Storage()
    small, large = (
        s.volume(name, size, "fast", on={"zone": "a"}) for name, size in (("a", "1Gi"), ("b", "9Gi"))
    )
    empty = storage.offers_of_class("fast")
    storage.put(small)
    first = storage.offers_of_class("fast")
    storage.put(large)
    both = storage.offers_of_class("fast")

    storage.delete(small)
    assert storage.offers_of_class("fast") not in (empty, first, both)
    storage.put(small)
    assert storage.offers_of_class("fast") == both
    storage.delete(large)
    assert storage.offers_of_class("fast") == first
    storage.delete(small)
    assert storage.offers_of_class("fast") == empty
