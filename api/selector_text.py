"""Selectors as `kubectl -l` takes them: `app=web,tier in (a,b),!old,cores>4`."""

from __future__ import annotations

import re

from tidelog.api.objects import LabelSelector, LabelSelectorRequirement
from tidelog.api.selectors import SelectorError, parse_int64

_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,=!<>()]+)
      | (?P<key>[^\s,=!<>()]+)\s*(?:
            (?P<sign>==|=|!=|<|>)\s*(?P<value>[^\s,=!<>()]*)
          | (?P<set>(?i:in|notin))\s*\((?P<values>[^()=!<>]*)\)
        )?
    )\s*""",
    re.VERBOSE | re.ASCII,
)
_OPERATOR_OF_SIGN = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_OPERATOR_OF_SET = {"in": "In", "notin": "NotIn"}


def parse_requirements(text: str) -> tuple[LabelSelectorRequirement, ...]:
    """The requirements in order; none for blank text. Raises SelectorError that names the place."""
    if not text.strip():
        return ()
    requirements = []
    start = 0
    while True:
        found = _REQUIREMENT.match(text, start)
        if found is None:
            raise SelectorError(_complaint(text, start))
        requirements.append(_requirement_of(found))
        start = found.end()
        if start == len(text):
            return tuple(requirements)
        if text[start] != ",":
            raise SelectorError(_complaint(text, start))
        start += 1


def _requirement_of(found: re.Match[str]) -> LabelSelectorRequirement:
    if found["absent"]:
        return LabelSelectorRequirement(key=found["absent"], operator="DoesNotExist")
    if found["sign"]:
        operator = _OPERATOR_OF_SIGN[found["sign"]]
        if operator in ("Gt", "Lt") and parse_int64(found["value"]) is None:
            raise SelectorError(f"{found['value']!r} must be an integer after {found['sign']!r}")
        return LabelSelectorRequirement(key=found["key"], operator=operator, values=(found["value"],))
    if found["set"]:
        values = tuple(value.strip() for value in found["values"].split(","))
        operator = _OPERATOR_OF_SET[found["set"].lower()]
        return LabelSelectorRequirement(key=found["key"], operator=operator, values=values)
    return LabelSelectorRequirement(key=found["key"], operator="Exists")


def _complaint(text: str, start: int) -> str:
    rest = text[start : start + 40]
    return f"unable to parse selector at {rest!r} (column {start + 1}): expected key, !key, key=value, key!=value or key in (a,b)"


def parse_label_selector(text: str) -> LabelSelector:
    """As a label selector, equalities as `matchLabels`; blank text selects everything. Raises SelectorError."""
    labels: dict[str, str] = {}
    expressions = []
    for requirement in parse_requirements(text):
        if requirement.operator in ("Gt", "Lt"):
            raise SelectorError(f"{requirement.key}: labels of objects cannot be compared with < or >")
        if requirement.operator == "In" and len(requirement.values) == 1 and requirement.key not in labels:
            labels[requirement.key] = requirement.values[0]
        else:
            expressions.append(requirement)
    return LabelSelector(match_labels=labels, match_expressions=tuple(expressions))
