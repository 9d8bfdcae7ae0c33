"""Whether an object obeys the rules of its kind: all breaches at once, each with path, value and rule.

`validate` judges an object by itself, `validate_update` a change, `warnings` finds what is allowed and probably not meant.
Nothing is changed and nothing else is looked at; what needs other objects (priority classes, groups) is admission's.
The rules of a kind are named in its declaration (`tidelog.api.kinds`). Costs some ten microseconds for an ordinary pod.
"""

from __future__ import annotations

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import kind_of
from tidelog.api.objects import Object
from tidelog.api.validation import common as validate_common
from tidelog.api.validation.check import Check
from tidelog.api.validation.field_errors import IMMUTABLE


def validate(obj: Object, gates: FeatureGates, *, constraints_max: int = 1) -> list[FieldError]:
    """The errors of an object that is new. `constraints_max`: how many topology constraints a group may have."""
    check = Check(gates, constraints_max=constraints_max)
    _validate(obj, check)
    return check


def validate_update(
    old: Object, new: Object, gates: FeatureGates, *, resize: bool = False, constraints_max: int = 1
) -> list[FieldError]:
    """The errors of putting `new` in the place of `old`: its own, and those of the change.

    `resize` lets cpu and memory of a pod's containers change.
    """
    check = Check(gates, old, constraints_max=constraints_max, resize=resize)
    _validate(new, check)
    if new.metadata.uid and old.metadata.uid and new.metadata.uid != old.metadata.uid:
        check.invalid("metadata.uid", new.metadata.uid, IMMUTABLE)
    rules = kind_of(new).validate_update
    if rules is not None:
        rules(old, new, check)
    return check


def _validate(obj: Object, check: Check) -> None:
    kind = kind_of(obj)
    validate_common.metadata(check, obj.metadata, kind.namespaced, kind.name_rule)
    if kind.validate is not None:
        kind.validate(obj, check)


def warnings(obj: Object) -> tuple[str, ...]:
    """One sentence each; the object is valid all the same."""
    rules = kind_of(obj).warnings
    return () if rules is None else rules(obj)
