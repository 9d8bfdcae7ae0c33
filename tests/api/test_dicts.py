"""What is dropped of a dict."""

from __future__ import annotations

from tidelog.api.dicts import drop_oldest


def test_oldest_entries_are_dropped_and_the_others_stay_in_order() -> None:
    known = {"a": 1, "b": 2, "c": 3}
    known["a"] = known.pop("a")

    drop_oldest(known, 2)

    assert known == {"a": 1}
