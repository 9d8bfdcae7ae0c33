"""Two dicts told apart by identity and order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.dict_changes import dict_changes, drop_oldest

Steps = list[tuple[str, bool]]


def changed(old: dict[str, object], steps: Steps) -> dict[str, object]:
    new = dict(old)
    for key, puts in steps:
        if puts:
            new[key] = object()
        else:
            new.pop(key, None)
    return new


steps = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=30)


@given(steps, steps)
def test_changes_make_the_new_dict_of_the_old_one_in_its_order(before: Steps, since: Steps) -> None:
    old = changed({}, before)
    new = changed(old, since)

    removed, put = dict_changes(old, new)
    made = dict(old)
    for key in removed:
        del made[key]
    made.update(put)

    assert list(made.items()) == list(new.items())


def test_only_what_was_replaced_is_put() -> None:
    one, two, other = object(), object(), object()

    assert dict_changes({"a": one, "b": two}, {"a": one, "b": other}) == ([], {"b": other})


def test_a_key_that_went_and_came_again_is_removed_and_put() -> None:
    one, two = object(), object()

    assert dict_changes({"a": one, "b": two}, {"b": two, "a": one}) == (["a"], {"a": one})


def test_equal_dicts_have_no_changes() -> None:
    one = object()

    assert dict_changes({"a": one}, {"a": one}) == ([], {})


def test_oldest_entries_are_dropped_and_the_others_stay_in_order() -> None:
    known = {"a": 1, "b": 2, "c": 3}
    known["a"] = known.pop("a")

    drop_oldest(known, 2)

    assert known == {"a": 1}
