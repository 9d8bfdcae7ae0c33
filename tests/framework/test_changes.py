"""The list of changes tells everybody what they missed."""

from __future__ import annotations

from tidelog.framework.changes import ChangeList


def test_each_change_has_its_generation_and_the_latest_comes_first() -> None:
    changes = ChangeList()

    generations = [changes.touch(name) for name in ("a", "b", "a", "c")]

    assert generations == [1, 2, 3, 4]
    assert changes.since(0) == ["c", "a", "b"]
    assert changes.since(2) == ["c", "a"]
    assert changes.since(4) == []


def test_removed_names_are_dropped_once_there_are_many() -> None:
    changes = ChangeList()
    for i in range(1000):
        changes.touch(f"gone-{i}")
    changes.touch("here")

    changes.drop_removed({"here": None})

    assert changes.since(1000) == ["here"]
    assert changes.since(999) is None, "who saw only part of what was dropped must start over"


def test_a_few_removed_names_stay() -> None:
    changes = ChangeList()
    changes.touch("gone")
    changes.touch("here")

    changes.drop_removed({"here": None})

    assert changes.since(0) == ["here", "gone"]


def test_list_of_a_cluster_that_replaces_its_nodes_does_not_grow_for_ever() -> None:
    changes, longest = ChangeList(), 0
    for i in range(1000):
        changes.touch(f"node-{i}")
        changes.drop_removed({f"node-{i}": None})
        longest = max(longest, len(changes._last))

    assert longest <= 2 * 1 + 64 + 1
