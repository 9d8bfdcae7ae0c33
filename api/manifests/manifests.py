"""Manifests in and out: YAML, JSON, lists, what `kubectl get -o json` prints.

`load` gives typed objects or raises InvalidObjects with all errors that can be told apart, each with its document and
path; nothing is half read. It decides form only: whether an object obeys the rules of its kind is validation's matter,
and what it becomes is admission's. Fields that Tidelog does not read are dropped; docs/manifests.md lists what is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import yaml
from msgspec.structs import replace

from tidelog.api.errors import FieldError, InvalidObjects, printable
from tidelog.api.kinds.elsewhere import is_elsewhere, other_kinds
from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import ELSEWHERE, KIND_BY_NAME, KIND_OF_TYPE, known_kind, suggestion
from tidelog.api.manifests.documents import INPUT_BYTES_MAX, Document, read_documents
from tidelog.api.manifests.wrong_types import wrong_types
from tidelog.api.manifests.yaml_reader import resolve
from tidelog.api.objects import Object
from tidelog.api.validation.field_errors import ERRORS_MAX, ErrorList

OBJECT_BYTES_MAX = 1536 << 10
"""Size limit of an object's kept part as JSON: etcd's default limit, so no object of a cluster is larger."""
VALUES_MAX = 20_000
"""Limit on an object's entries and items in all, so that validation takes a few tens of milliseconds at most. A slice
of 128 devices with all the attributes that they may have comes to half of it."""

Unknown = Literal["refuse", "skip"]


class Remarks:
    """Filled by `load`: what is no error and should be told. One may serve several texts."""

    def __init__(self, look: Callable[[Kind, Mapping[str, Any]], Iterable[FieldError]] | None = None) -> None:
        """`look` gives what is odd about an object of a known kind, as it stands in the text."""
        self.look = look
        self.odd: list[tuple[str, tuple[FieldError, ...]]] = []
        """Source and name of an object, and what `look` said of it."""
        self.left_out: Counter[str] = Counter()
        """Kind → how many objects of it were left out, because nothing here reads it."""


def load(
    data: bytes | str,
    source: str = "manifest",
    *,
    namespace: str = "default",
    unknown: Unknown = "refuse",
    bytes_max: int = INPUT_BYTES_MAX,
    remarks: Remarks | None = None,
) -> list[Object]:
    """The objects of a text, in its order, lists taken apart.

    Objects of namespaced kinds that name no namespace get `namespace`; those of the whole cluster lose theirs. Kinds that
    are not known here are refused, or left out with `unknown="skip"` (a dump of everything). With `remarks` those that clusters
    have and that nothing here reads are left out and counted, and misspelled ones are refused. Raises InvalidObjects.
    """
    documents = read_documents(data, source, bytes_max)
    reader = _Reader(source, len(documents) > 1, namespace, unknown, remarks)
    for document in documents:
        reader.read(document)
        if len(reader.errors) >= ERRORS_MAX:
            break
    if reader.errors:
        subject = f"{source}: {reader.subject}" if reader.subject else source
        raise InvalidObjects(subject, reader.errors[:ERRORS_MAX])
    return reader.objects


class _Reader:
    """Turns documents into objects and collects the errors of all of them."""

    def __init__(
        self, source: str, several: bool, namespace: str, unknown: Unknown, remarks: Remarks | None
    ) -> None:
        self.source = source
        self.remarks = remarks
        self.several = several
        self.namespace = namespace
        self.unknown = unknown
        self.objects: list[Object] = []
        self.errors: list[FieldError] = []
        self.subject = ""
        """Names the only object of the text; with several of them each error names its own."""

    def read(self, document: Document) -> None:
        where = f"document {document.number}" if self.several else ""
        large = document.size > _SURELY_SMALL
        for place, value in _items(document.value, where):
            errors, obj = self.convert(value, large)
            if errors:
                self.tell(place, value, errors)
            elif obj is not None:
                self.objects.append(obj)
            if len(self.errors) >= ERRORS_MAX:
                return

    def convert(self, value: Any, large: bool) -> tuple[ErrorList, Object | None]:
        errors = ErrorList()
        kind = _kind(value, errors)
        if kind is None:
            return (ErrorList() if self.is_left_out(value) else errors), None
        if large and _has_more_values(value, VALUES_MAX):
            errors.add(kind.name, "TooMany", None, f"must have at most {VALUES_MAX} entries and items in all")
            return errors, None
        obj = self.typed(value, kind, errors)
        if obj is not None and large and len(_encode(obj)) > OBJECT_BYTES_MAX:
            errors.too_long(kind.name, OBJECT_BYTES_MAX)
        return errors, obj

    def is_left_out(self, value: Any) -> bool:
        if not _is_manifest(value):
            return False
        name = value["kind"]
        if self.remarks is not None and name not in _REFUSED and is_elsewhere(value["apiVersion"], name):
            self.remarks.left_out[printable(name, 63)] += 1
            return True
        return self.unknown == "skip"

    def remark(self, value: dict[str, Any], kind: Kind) -> None:
        if self.remarks is not None and self.remarks.look is not None:
            odd = tuple(self.remarks.look(kind, value))
            if odd:
                self.remarks.odd.append((f"{self.source}: {_title(value)}", odd))

    def typed(self, value: dict[str, Any], kind: Kind, errors: ErrorList) -> Object | None:
        try:
            obj = msgspec.convert(value, kind.type)
        except msgspec.ValidationError as error:
            errors.extend(wrong_types(value, kind.type, ERRORS_MAX))
            if not errors:
                # Our walk and msgspec disagree: its own message names the first place.
                errors.invalid(kind.name, None, str(error))
            return None
        self.remark(value, kind)
        if kind.from_version is not None:
            obj = kind.from_version(obj, value["apiVersion"].rpartition("/")[2])
        wanted = (obj.metadata.namespace or self.namespace) if kind.namespaced else ""
        if obj.metadata.namespace != wanted:
            obj = replace(obj, metadata=replace(obj.metadata, namespace=wanted))
        return obj

    def tell(self, place: str, value: Any, errors: Sequence[FieldError]) -> None:
        name = _title(value)
        if not place:
            self.subject = name
        prefix = f"{place} ({name}): " if place and name else f"{place}: " if place else ""
        self.errors.extend(replace(error, path=prefix + error.path) for error in errors)


_REFUSED = ("Binding", "CompositePodGroup")
"""Left out, they would not do what was meant."""
_SURELY_SMALL = min(VALUES_MAX, OBJECT_BYTES_MAX // 8)
"""A text of so many characters breaks neither limit: a value takes one at least, and JSON writes no character of it in more than eight."""
_encode = msgspec.json.Encoder().encode


def _has_more_values(value: Any, limit: int) -> bool:
    """Whether there are more entries and items in it, all levels counted. Looks at no more than it has to."""
    waiting, count = [value], 0
    while waiting:
        part = waiting.pop()
        count += len(part)
        if count > limit:
            return True
        parts = part.values() if isinstance(part, dict) else part
        waiting += [inner for inner in parts if isinstance(inner, dict | list)]
    return False


def _is_manifest(value: Any) -> bool:
    """Whether it says of which kind it is, so that its kind alone can be what is wrong with it."""
    return isinstance(value, dict) and all(isinstance(value.get(k), str) for k in ("apiVersion", "kind"))


def _title(value: Any) -> str:
    """`Pod "web-1"`, as far as it can be told."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return ""
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = printable(value["kind"], 63)
    return f'{kind} "{printable(name, 253)}"' if isinstance(name, str) else kind


def _items(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The objects of a document with their places: itself, or the items of a list."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not _is_list(kind, value) or depth > 3:
        yield where, value
        return
    items = value.get("items", [])
    if not isinstance(items, list):
        yield f"{where}, items" if where else "items", items
        return
    for index, item in enumerate(items):
        place = f"{where}, items[{index}]" if where else f"items[{index}]"
        if kind != "List" and isinstance(item, dict):
            # The API server leaves out what a typed list says already.
            item = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} | item
        yield from _items(item, place, depth + 1)


def _is_list(kind: str, value: dict[str, Any]) -> bool:
    """An empty list may come without its items."""
    return kind.endswith("List") and ("items" in value or kind[:-4] in ("", *KIND_BY_NAME))


def _kind(value: Any, errors: ErrorList) -> Kind | None:
    """The kind that apiVersion and kind name, or why not."""
    if not isinstance(value, dict):
        errors.invalid("object", value, "must be an object with apiVersion and kind")
        return None
    for field in ("apiVersion", "kind"):
        if field not in value:
            errors.required(field)
        elif not isinstance(value[field], str):
            errors.invalid(field, value[field], "must be a string")
        elif not value[field]:
            errors.required(field)
    if errors:
        return None
    kind = known_kind(value["kind"])
    if kind is None:
        _unknown_kind(value["kind"], errors)
    elif value["apiVersion"] not in kind.api_versions:
        errors.not_supported("apiVersion", value["apiVersion"], kind.api_versions)
    else:
        return kind
    return None


def _unknown_kind(name: str, errors: ErrorList) -> None:
    close = suggestion(name, [*KIND_BY_NAME, *other_kinds()])
    hint = ELSEWHERE.get(name) or (f'did you mean "{close}"?' if close not in ("", name) else "")
    errors.not_supported("kind", name, KIND_BY_NAME)
    if hint:
        errors[-1] = replace(errors[-1], rule=f"{hint}; {errors[-1].rule}")


# --- out ----------------------------------------------------------------------------------------------------------------


def to_builtins(obj: Object) -> dict[str, Any]:
    """Plain data with apiVersion and kind first, empty parts left out: what `load` reads."""
    kind = KIND_OF_TYPE[type(obj)]
    found = {"apiVersion": kind.api_version, "kind": kind.name}
    # By way of JSON, because msgspec.to_builtins would leave tuples.
    parts = msgspec.json.decode(msgspec.json.encode(obj))
    return found | {name: part for name, part in parts.items() if part != {}}


def as_list(objects: Iterable[Object]) -> dict[str, Any]:
    """The objects as one `kind: List`."""
    return {"apiVersion": "v1", "kind": "List", "items": [to_builtins(obj) for obj in objects]}


def dump_json(objects: Sequence[Object], *, indent: int = 4) -> str:
    """One object as itself, any other number as a List."""
    data = to_builtins(objects[0]) if len(objects) == 1 else as_list(objects)
    return msgspec.json.format(msgspec.json.encode(data), indent=indent).decode() + "\n"


def dump_yaml(objects: Sequence[Object], *, wrap: bool = False, ascii: bool = False) -> str:
    """One document for each object, or one List of all of them. `ascii` escapes every other character."""
    documents = [as_list(objects)] if wrap else [to_builtins(obj) for obj in objects]
    text: str = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=not ascii,
        width=1 << 20,
        explicit_start=len(documents) > 1,
    )
    return text


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc] # The C dumper is there or not.
    """Quotes every text that our reader, or Kubernetes', would not read back as that text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 # Nothing is written as an alias.
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None if isinstance(resolve(text), str) and text not in _YAML_1_1_BOOLEANS else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YAML_1_1_BOOLEANS = frozenset("yYnN")

_Dumper.add_representer(str, _represent_text)
