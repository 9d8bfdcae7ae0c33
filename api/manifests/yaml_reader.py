"""YAML as Kubernetes reads it, built from the parser's events in one loop.

There is no recursion, so that depth is a number and not a crash, and every error knows its line. YAML is 1.1 with go-yaml's
idea of a boolean and a number, anchors and merge keys. What could surprise is an error: duplicate keys, tabs, unknown tags,
aliases that expand without bound. Nulls are dropped from mappings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from tidelog.api.errors import ErrorKind, FieldError

INPUT_BYTES_MAX = 64 << 20
DEPTH_MAX = 100  # Kubernetes' deepest types reach about 20.
DOCUMENTS_MAX = 100_000

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document(NamedTuple):
    """One document: its number from 1, the line it begins at, what it holds, and its size with aliases written out."""

    number: int
    line: int
    value: Any
    size: int


class Problem(Exception):
    """An error and its place, before the source's name is known."""

    def __init__(self, path: str, rule: str, value: object = None, kind: ErrorKind = "Invalid") -> None:
        super().__init__(path, rule)
        self.error = FieldError(path=path, kind=kind, value=value, rule=rule)


def append_document(documents: list[Document], line: int, value: Any, size: int) -> None:
    """One more document, if there may be one more."""
    if len(documents) >= DOCUMENTS_MAX:
        raise Problem(f"line {line}", f"must have at most {DOCUMENTS_MAX} documents")
    documents.append(Document(len(documents) + 1, line, value, size))


def place_of(text: str, position: int) -> str:
    """Line and column of a position in the text."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - (text.rfind(chr(10), 0, position) + 1) + 1}"


def _line_at(text: str, line: int) -> str:
    """The text of a line (from 1), shortened."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if not start:
            return ""
    end = text.find("\n", start)
    return text[start : min(len(text) if end < 0 else end, start + 60)].rstrip("\r")


# --- YAML: plain scalars ------------------------------------------------------------------------------------------------

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **{form: True for word in ("true", "on", "yes") for form in (word, word.title(), word.upper())},
    **{form: False for word in ("false", "off", "no") for form in (word, word.title(), word.upper())},
    **{form: float("inf") for word in (".inf", ".Inf", ".INF") for form in (word, "+" + word)},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_MISSING = object()
_INTEGERS = (
    (re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII), 10),
    (re.compile(r"[-+]?0o?[0-7_]+", re.ASCII), 8),
    (re.compile(r"[-+]?0x[0-9a-fA-F_]+", re.ASCII), 16),
    (re.compile(r"[-+]?0b[01_]+", re.ASCII), 2),
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_DIGITS_MAX = 64


def resolve(text: str) -> Any:
    """Resolve a plain (unquoted) YAML scalar as go-yaml in Kubernetes does: dates stay text, `on` is true."""
    word = _WORDS.get(text, _MISSING)
    if word is not _MISSING:
        return word
    if text[0] not in "+-.0123456789" or len(text) > _DIGITS_MAX:
        return text
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(text):
            digits = text.replace("_", "").replace("o", "")
            try:
                return int(digits, base)
            except ValueError:
                return text
    return float(text) if _FLOAT.fullmatch(text) else text


# --- YAML: structure ----------------------------------------------------------------------------------------------------

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    _TAG + "int": (int,),
    _TAG + "float": (float, int),
    _TAG + "bool": (bool,),
    _TAG + "null": (type(None),),
}
_TEXT_TAGS = ("!", _TAG + "str", _TAG + "timestamp")
_COLLECTION_TAGS = (None, "!", _TAG + "map", _TAG + "seq")


class _Frame:
    """A mapping or sequence that is still open."""

    __slots__ = ("anchor", "has_null", "is_merge", "key", "merged", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        """The key whose value comes next; None while a key comes next."""
        self.is_merge = False
        """Whether that key is `<<`, unquoted."""
        self.merged: list[Any] = []
        """The mappings named by `<<`, to be merged at the end."""
        self.has_null = False
        self.weight = 1
        """The size of the text that this would be with all aliases written out."""


class _Builder:
    """Builds documents from events; one for a whole text."""

    def __init__(self, keep_nulls: bool, bytes_max: int) -> None:
        self.keep_nulls = keep_nulls
        self.bytes_max = bytes_max
        self.documents: list[Document] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.root: Any = None
        self.size = 0
        self.line = 1
        self.expanded = 0

    def run(self, events: Iterator[Any]) -> list[Document]:
        handlers = {
            yaml.ScalarEvent: self.scalar,
            yaml.MappingStartEvent: self.open_mapping,
            yaml.SequenceStartEvent: self.open_sequence,
            yaml.MappingEndEvent: self.close,
            yaml.SequenceEndEvent: self.close,
            yaml.AliasEvent: self.alias,
            yaml.DocumentStartEvent: self.begin,
            yaml.DocumentEndEvent: self.end,
        }
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        return self.documents

    def fail(self, event: Any, rule: str, value: object = None) -> NoReturn:
        mark = event.start_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        path = self.path()
        raise Problem(f"{place} ({path})" if path else place, rule, value)

    def path(self) -> str:
        """Where we are, from the document's root."""
        path = ""
        for frame in self.frames:
            if isinstance(frame.value, list):
                path += f"[{len(frame.value)}]"
            elif frame.key is not None:
                path += f".{frame.key}" if path else frame.key
        return path if len(path) <= 200 else "..." + path[-197:]

    def begin(self, event: Any) -> None:
        self.anchors.clear()
        self.root = None
        self.line = event.start_mark.line + 1

    def end(self, _event: Any) -> None:
        if self.root is not None:
            append_document(self.documents, self.line, self.root, self.size)

    def scalar(self, event: Any) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and isinstance(frame.value, dict):
            self.take_key(event, frame)
            return
        value = self.scalar_value(event)
        weight = len(event.value) + 1
        if event.anchor:
            self.anchors[event.anchor] = (value, weight)
        self.put(value, weight)

    def scalar_value(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            return resolve(text) if event.implicit[0] else text
        if tag in _TEXT_TAGS:
            return text
        types = _SCALAR_TAGS.get(tag)
        if types is None:
            self.fail(event, f"tag {tag} is not supported", text)
        value = resolve(text)
        if type(value) not in types:
            self.fail(event, f"must be {tag.removeprefix(_TAG)}, as its tag says", text)
        return value

    def take_key(self, event: Any, frame: _Frame) -> None:
        """Keys are their text, whatever it would mean as a value."""
        key = event.value
        if event.anchor:
            self.anchors[event.anchor] = (key, len(key) + 1)
        if key == "<<" and event.implicit[0]:
            frame.key, frame.is_merge = key, True
            return
        assert isinstance(frame.value, dict)
        if key in frame.value:
            self.fail(event, "key is there twice", key)
        frame.key = key

    def open_mapping(self, event: Any) -> None:
        self.open(event, {})

    def open_sequence(self, event: Any) -> None:
        self.open(event, [])

    def open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        if event.tag not in _COLLECTION_TAGS:
            self.fail(event, f"tag {event.tag} is not supported")
        if self.frames:
            parent = self.frames[-1]
            if isinstance(parent.value, dict) and parent.key is None:
                self.fail(event, "a key must be text")
        if len(self.frames) >= DEPTH_MAX:
            self.fail(event, f"must not be nested deeper than {DEPTH_MAX} levels")
        self.frames.append(_Frame(value, event.anchor))

    def close(self, event: Any) -> None:
        frame = self.frames.pop()
        value = frame.value
        if isinstance(value, dict):
            for merged in frame.merged:
                self.merge(event, value, merged)
            if frame.has_null and not self.keep_nulls:
                value = {key: item for key, item in value.items() if item is not None}
        if frame.anchor:
            self.anchors[frame.anchor] = (value, frame.weight)
        self.put(value, frame.weight)

    def merge(self, event: Any, into: dict[str, Any], merged: Any) -> None:
        """`<<: *base`: keys that are there already win."""
        for base in merged if isinstance(merged, list) else [merged]:
            if not isinstance(base, dict):
                self.fail(event, "<< must name a mapping or a list of mappings")
            for key, item in base.items():
                into.setdefault(key, item)

    def alias(self, event: Any) -> None:
        found = self.anchors.get(event.anchor)
        if found is None:
            inside = any(frame.anchor == event.anchor for frame in self.frames)
            self.fail(
                event, "alias refers to itself" if inside else "alias has no anchor before it", event.anchor
            )
        value, weight = found
        self.expanded += weight
        if self.expanded > self.bytes_max:
            self.fail(event, f"aliases must not expand to more than {self.bytes_max} bytes", event.anchor)
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and isinstance(frame.value, dict):
            if not isinstance(value, str):
                self.fail(event, "a key must be text")
            if value in frame.value:
                self.fail(event, "key is there twice", value)
            frame.key = value
            return
        self.put(value, weight)

    def put(self, value: Any, weight: int) -> None:
        """A finished value goes into the innermost open collection."""
        if not self.frames:
            self.root, self.size = value, weight
            return
        frame = self.frames[-1]
        frame.weight += weight
        if isinstance(frame.value, list):
            frame.value.append(value)
            return
        assert frame.key is not None
        if frame.is_merge:
            frame.merged.append(value)
            frame.is_merge = False
        else:
            frame.value[frame.key] = value
            frame.has_null |= value is None
        frame.weight += len(frame.key)
        frame.key = None


def read_yaml(text: str, *, keep_nulls: bool = False, bytes_max: int = INPUT_BYTES_MAX) -> list[Document]:
    """The documents that are not empty. `bytes_max`: so much may aliases add. Raises Problem."""
    try:
        return _Builder(keep_nulls, bytes_max).run(yaml.parse(text, Loader=LOADER))
    except yaml.MarkedYAMLError as error:
        raise _yaml_problem(text, error) from None
    except yaml.YAMLError as error:
        # The reader's error: a character that YAML forbids.
        position = getattr(error, "position", None)
        where = place_of(text, position) if isinstance(position, int) else "text"
        raise Problem(where, "must not contain control characters") from None
    except RecursionError:
        # Only the parser in pure Python recurses, and that for nesting.
        raise Problem("text", f"must not be nested deeper than {DEPTH_MAX} levels") from None


def _yaml_problem(text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = error.problem or error.context or "cannot be read"
    if mark is None:
        return Problem("text", f"must be YAML: {said}")
    shown = _line_at(text, mark.line + 1)
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    if "\t" in shown[: mark.column + 1]:
        return Problem(where, "a tab cannot indent or begin a value in YAML; use spaces", shown)
    detail = f"{error.context}, {said}" if error.context and error.problem else said
    return Problem(where, f"must be YAML: {detail}", shown)
