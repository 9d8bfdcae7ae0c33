"""Which fields objects have: Kubernetes' own, and those that only tidelog knows.

`fields.json` has the names and types of the fields of every kind that is served (`tools/make_kube_fields.py` writes it). With it the server and
the command line say what is misspelled, and the server describes itself for `kubectl explain` and its like (`tidelog.kube.serve.openapi`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tidelog.api.kinds.registry import KIND_BY_NAME, suggestion
from tidelog.kube.opaque import LIST, Shape, shape_of
from tidelog.kube.resources import ApiResource

UNKNOWN_MAX = 50
"""More unknown fields than this are not told of one object."""
Fields = Mapping[str, str]
"""Field → type: `string`, `integer`, `boolean`, `number`, `time`, `any`, the name of a definition, `[]` and `{}` in front for lists and mappings."""


@cache
def definitions() -> Mapping[str, Fields]:
    """Name → fields."""
    data = resources.files("tidelog.kube").joinpath("fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, str]])


def definition_of(resource: ApiResource) -> str:
    """The name of a kind's definition."""
    if resource.kind == "Event":
        return f"{resource.group or 'core'}.Event"
    return resource.kind


def may_be_unknown(resource: ApiResource, rest: Mapping[str, Any]) -> bool:
    """Whether it is worth asking for unknown fields: they are all in what is left over, which is small."""
    fields = definitions().get(definition_of(resource))
    return fields is not None and _may_be_unknown(rest, fields)


def _may_be_unknown(rest: Mapping[str, Any], fields: Fields) -> bool:
    for name, part in rest.items():
        if name.endswith(LIST):
            inner = definitions().get(fields.get(name.removesuffix(LIST), "").removeprefix("[]"))
            if inner is None or any(_may_be_unknown(item, inner) for item in part.values()):
                return True
            continue
        short = fields.get(name)
        if short is None or _may_be_unknown_in(part, short):
            return True
    return False


def _may_be_unknown_in(part: Any, type: str) -> bool:
    if type.startswith("[]"):
        return isinstance(part, list) and any(_may_be_unknown_in(item, type[2:]) for item in part)
    if type.startswith("{}"):
        return isinstance(part, dict) and any(_may_be_unknown_in(item, type[2:]) for item in part.values())
    fields = definitions().get(type)
    return fields is not None and isinstance(part, dict) and _may_be_unknown(part, fields)


def unknown_fields(resource: ApiResource, manifest: Mapping[str, Any]) -> list[str]:
    """Return a server's warnings about fields that the kind does not have."""
    return [
        f'unknown field "{found.path}"'
        for found in misspelled(resource.kind, definition_of(resource), manifest)
    ]


class UnknownField(NamedTuple):
    """A field that a kind does not have."""

    path: str
    close: str
    """The field that is probably meant; empty if none is close."""


def misspelled(kind_name: str, definition: str, manifest: Mapping[str, Any]) -> list[UnknownField]:
    """The fields that neither Kubernetes nor this program knows, with the closest known ones; of kinds that neither describes, none."""
    fields = definitions().get(definition)
    if fields is None or "metadata" not in fields:
        return []  # No object, but a part that is called as another package's kind is.
    kind = KIND_BY_NAME.get(kind_name)
    shape = None if kind is None else shape_of(kind.type)
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    return list(islice(_unknown(body, fields, shape, ""), UNKNOWN_MAX))


def _unknown(
    value: Mapping[str, Any], fields: Fields, shape: Shape | None, path: str
) -> Iterator[UnknownField]:
    ours = shape.fields if shape is not None else {}
    for name, part in value.items():
        where = f"{path}.{name}" if path else name
        short = fields.get(name)
        if short is None:
            if name not in ours:
                yield UnknownField(where, suggestion(name, [*fields, *ours]))
            continue
        inner = ours.get(name)
        yield from _unknown_in(part, short, inner, where)


def _unknown_in(part: Any, type: str, shape: Shape | None, path: str) -> Iterator[UnknownField]:
    if type.startswith("[]"):
        if isinstance(part, list):
            for place, item in enumerate(part):
                yield from _unknown_in(item, type[2:], shape, f"{path}[{place}]")
    elif type.startswith("{}"):
        if isinstance(part, dict):
            for key, item in part.items():
                yield from _unknown_in(item, type[2:], shape, f"{path}.{key}")
    elif isinstance(part, dict) and (fields := definitions().get(type)):
        yield from _unknown(part, fields, shape, path)
