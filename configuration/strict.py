"""Reading a configuration file into structs with every mistake reported at once, each with its path.

msgspec's own decoder stops at the first mistake and does not name an unknown field's place. This one walks the data beside the
type: `decode(KubeSchedulerConfiguration, data, "", errors)` fills `errors` and puts the default where it could not read, so that
the rules beyond types can be checked in the same run. null means absent, as everywhere in Kubernetes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as types

from tidelog.api.errors import FieldError, InvalidObjects
from tidelog.api.manifests.documents import read_documents
from tidelog.api.validation.field_errors import ErrorList

_WORDS: dict[type[types.Type], str] = {
    types.StrType: "a string",
    types.IntType: "an integer",
    types.FloatType: "a number",
    types.BoolType: "true or false",
    types.StructType: "an object",
    types.DictType: "an object",
    types.VarTupleType: "a list",
}


TEXT_BYTES_MAX = 1 << 20
"""Size limit of a configuration file: far more than anybody writes."""


def parse_document(text: str | bytes, source: str) -> Any:
    """The plain data of a YAML or JSON document, read as manifests are: within bounds, keys that are set twice refused.

    Raises InvalidObjects, named after `source`, for what is no such document.
    """
    documents = read_documents(text, source, TEXT_BYTES_MAX, keep_nulls=True)
    if len(documents) > 1:
        where, rule = f"line {documents[1].line}", "must be one YAML or JSON document"
        raise InvalidObjects(source, [FieldError(path=where, kind="Invalid", rule=rule)])
    return documents[0].value if documents else None


def decode(kind: Any, value: Any, path: str, errors: ErrorList) -> Any:
    """`value` as a `kind`; what cannot be read is reported in `errors` and left at its default."""
    return _Decoder(errors).value(types.type_info(kind), value, path)


def to_plain(value: Any) -> Any:
    """A struct as plain data with its defaults written out, so that a later change of a default changes nothing.

    The API's own structs leave their defaults out on purpose, and those never change.
    """
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.omit_defaults:
        fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {key: to_plain(getattr(value, name)) for key, name in fields}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    # Through JSON, because that makes lists of tuples at every depth.
    return msgspec.json.decode(msgspec.json.encode(value))


def child(path: str, key: str) -> str:
    """The path of a field; one without a name has a place all the same."""
    return f"{path}.{key}" if path else key or '""'


class _Decoder:
    def __init__(self, errors: ErrorList) -> None:
        self.errors = errors

    def value(self, kind: types.Type, value: Any, path: str) -> Any:
        """None stands for a value that could not be read."""
        match kind:
            case types.StructType():
                return self._struct(kind, value, path)
            case types.VarTupleType(item_type=item):
                if not isinstance(value, list | tuple):
                    return self._refuse(kind, value, path)
                items = tuple(self.value(item, one, f"{path}[{i}]") for i, one in enumerate(value))
                # A list that cannot be read whole is not read at all: rules and later paths count its places.
                return None if any(one is None for one in items) else items
            case types.DictType(value_type=item):
                if not isinstance(value, Mapping):
                    return self._refuse(kind, value, path)
                read = {str(key): self.value(item, one, child(path, str(key))) for key, one in value.items()}
                # As with lists, but for values that may be null.
                return None if None in read.values() and not _may_be_null(item) else read
            case types.UnionType():
                return self._union(kind, value, path)
            case types.AnyType():
                return value
            case _:
                return value if _is_leaf(kind, value) else self._refuse(kind, value, path)

    def _struct(self, kind: types.StructType, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._refuse(kind, value, path)
        fields = {field.encode_name: field for field in kind.fields}
        for key in value:
            if key not in fields:
                self.errors.forbidden(child(path, str(key)), _unknown(str(key), fields))
        known: dict[str, Any] = {}
        for key, field in fields.items():
            given = value.get(key)
            if given is not None:
                decoded = self.value(field.type, given, child(path, key))
                if decoded is not None:
                    known[field.name] = decoded
            elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
                self.errors.required(child(path, key))
        try:
            return kind.cls(**known)
        except TypeError:  # A required field is missing or could not be read: reported above.
            return None

    def _union(self, kind: types.UnionType, value: Any, path: str) -> Any:
        if value is None and kind.includes_none:
            return None
        options = [option for option in kind.types if not isinstance(option, types.NoneType)]
        if len(options) == 1:
            return self.value(options[0], value, path)
        if any(_is_leaf(option, value) for option in options):
            return value
        return self._refuse(kind, value, path)

    def _refuse(self, kind: types.Type, value: Any, path: str) -> None:
        if isinstance(kind, types.LiteralType):
            self.errors.not_supported(path, value, map(str, kind.values))
        else:
            options = kind.types if isinstance(kind, types.UnionType) else (kind,)
            words = [_WORDS[type(option)] for option in options if type(option) in _WORDS]
            self.errors.invalid(path, value, "must be " + " or ".join(words))


def _may_be_null(kind: types.Type) -> bool:
    return isinstance(kind, types.AnyType) or (isinstance(kind, types.UnionType) and kind.includes_none)


def _is_leaf(kind: types.Type, value: Any) -> bool:
    match kind:
        case types.StrType():
            return isinstance(value, str)
        case types.BoolType():
            return isinstance(value, bool)
        case types.IntType(ge=low, le=high):
            if not isinstance(value, int) or isinstance(value, bool):
                return False
            return (low is None or value >= low) and (high is None or value <= high)
        case types.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case types.LiteralType(values=values):
            return value in values
        case _:
            raise AssertionError(f"configuration structs do not use {kind}")


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return "unknown field" + (f', did you mean "{near[0]}"?' if near else "")
