"""The fields of an object that nothing here reads: kept beside the typed object, and put back when it is shown.

    rest = left_over(manifest, Pod)          # {"spec": {"containers[]": {"web": {"env": […]}}}}
    whole = with_left_over(typed, rest)      # the typed fields as they are now, and the others as they were put

What is left over has the shape of the manifest, with everything taken out that the struct has. Under a list of structs stands a mapping from
the item's name (or what else tells such items apart) to what is left over of it, below the list's name with `[]` behind it; so items find
theirs again when the typed list has changed meanwhile. Values that Kubernetes would say explicitly and a struct leaves out (`0`, `{}`) are
left over too. Where both say something, the typed object is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

ITEM_KEYS = ("name", "type", "uid", "containerPort", "topologyKey", "key", "device")
"""Keys that tell the items of a list apart: the first of these that the item's struct has. Else their places do."""
LIST = "[]"


class Shape(NamedTuple):
    """The part of a manifest that a struct has."""

    fields: Mapping[str, Shape | None]
    """By their names in JSON; None: the whole value is taken."""
    omitted: frozenset[str] = frozenset()
    """Those that are left out when their value is an empty one."""
    items: bool = False
    """It is a list of such structs."""
    values: bool = False
    """It is a mapping from free keys to such structs."""
    item_key: str = ""


def left_over(manifest: Mapping[str, Any], type: type) -> dict[str, Any]:
    """Return the part of a manifest that the struct does not take. apiVersion and kind are no fields of an object."""
    rest = _left_over(manifest, shape_of(type))
    rest.pop("apiVersion", None)
    rest.pop("kind", None)
    return rest


def _left_over(value: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    fields = shape.fields
    for name, part in value.items():
        if part is None:
            continue
        inner = fields.get(name, _UNKNOWN)
        if inner is _UNKNOWN or (not part and name in shape.omitted):
            rest[name] = part
        elif inner is not None:
            found = _left_over_of(part, inner)
            if found:
                rest[name + LIST if inner.items else name] = found
    return rest


def _left_over_of(part: Any, shape: Shape) -> dict[str, Any]:
    if shape.items:
        if not isinstance(part, list):
            return {}
        found = {}
        for place, item in enumerate(part):
            if isinstance(item, dict) and (rest := _left_over(item, shape)):
                found[_name(item, shape, place)] = rest
        return found
    if not isinstance(part, dict):
        return {}
    if shape.values:
        inner = {key: _left_over(item, shape) for key, item in part.items() if isinstance(item, dict)}
        return {key: rest for key, rest in inner.items() if rest}
    return _left_over(part, shape)


def _name(item: Mapping[str, Any], shape: Shape, place: int) -> str:
    return str(item.get(shape.item_key, place)) if shape.item_key else str(place)


def with_left_over(typed: dict[str, Any], rest: Mapping[str, Any], type: type) -> dict[str, Any]:
    """The plain data of an object with what is left over put back; `typed` is changed."""
    _merge(typed, rest, shape_of(type))
    return typed


def _merge(typed: dict[str, Any], rest: Mapping[str, Any], shape: Shape) -> None:
    for name, part in rest.items():
        if name.endswith(LIST):
            inner = shape.fields.get(name[: -len(LIST)])
            items = typed.get(name[: -len(LIST)])
            if inner is not None and inner.items and isinstance(items, list) and isinstance(part, dict):
                for place, item in enumerate(items):
                    if isinstance(found := part.get(_name(item, inner, place)), dict):
                        _merge(item, found, inner)
            continue
        inner = shape.fields.get(name)
        mine = typed.get(name)
        if inner is None or inner.items or not isinstance(part, dict):
            if mine is None:
                typed[name] = part
        elif inner.values:
            for key, found in part.items():
                if isinstance(mine, dict) and isinstance(mine.get(key), dict):
                    _merge(mine[key], found, inner)
        else:
            if mine is None:
                mine = typed[name] = {}
            _merge(mine, part, inner)


@cache
def shape_of(type: type) -> Shape:
    """The shape of a struct."""
    found = _shape(inspect.type_info(type))
    assert found is not None
    return found


_UNKNOWN = Shape({})


def _shape(info: inspect.Type) -> Shape | None:
    if isinstance(info, inspect.StructType):
        fields = {field.encode_name: _shape(field.type) for field in info.fields}
        return Shape(
            fields, frozenset(field.encode_name for field in info.fields if field.default is not None)
        )
    if isinstance(info, inspect.UnionType):
        found = [shape for part in info.types if (shape := _shape(part)) is not None]
        return found[0] if found else None
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        inner = _shape(info.item_type)
        if inner is None or inner.items or inner.values:
            return None
        key = next((name for name in ITEM_KEYS if name in inner.fields), "")
        return inner._replace(items=True, item_key=key)
    if isinstance(info, inspect.DictType):
        inner = _shape(info.value_type)
        return None if inner is None or inner.items or inner.values else inner._replace(values=True)
    return None


def dumped(rest: Mapping[str, Any]) -> str:
    """As it is kept: JSON, the same for the same content."""
    return msgspec.json.encode(rest, order="deterministic").decode()


def read(text: str) -> dict[str, Any]:
    """Return the fields that were kept."""
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
