"""Text to plain data: YAML documents and JSON, from people and from strangers.

Accepts the same as Kubernetes' own reader: YAML (see `tidelog.api.manifests.yaml_reader`), JSON, several documents in one text,
UTF-8, and UTF-16 with a byte order mark. What could surprise is one error with its line: duplicate keys, nesting without bound,
text that is no text. Nulls are dropped from objects, because to Kubernetes null means absent.

Reading costs time and memory in proportion to the text; JSON is some ten times faster than YAML.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from tidelog.api.errors import InvalidObjects
from tidelog.api.manifests.yaml_reader import (
    DEPTH_MAX,
    INPUT_BYTES_MAX,
    Document,
    Problem,
    append_document,
    place_of,
    read_yaml,
)

__all__ = ["DEPTH_MAX", "INPUT_BYTES_MAX", "Document", "read_documents"]


def read_documents(
    data: bytes | str, source: str, bytes_max: int = INPUT_BYTES_MAX, *, keep_nulls: bool = False
) -> list[Document]:
    """The documents that are not empty. Raises InvalidObjects that names the source and the line.

    `keep_nulls` leaves keys whose value is null where they are, for what is no object of Kubernetes'.
    """
    try:
        text = _text(data, bytes_max)
        # JSON is YAML as well; it only takes longer.
        documents = None if keep_nulls else _read_json(text)
        if documents is None:
            documents = read_yaml(text, keep_nulls=keep_nulls, bytes_max=bytes_max)
        return documents
    except Problem as problem:
        raise InvalidObjects(source, [problem.error]) from None


# --- bytes to text ------------------------------------------------------------------------------------------------------

_MARKS = (
    # The marks of UTF-32 begin with those of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def _text(data: bytes | str, bytes_max: int) -> str:
    if len(data) > bytes_max:
        raise Problem("text", f"may not be more than {bytes_max} bytes", kind="TooLong")
    if isinstance(data, str):
        text = data.removeprefix("\ufeff")
        _encodable(text)
        return text
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data[len(mark) :], encoding)
    return _decoded(data, "utf-8")


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        rule = f"must be {encoding.upper()}: byte {error.start} of the text is not ({error.reason})"
        raise Problem(f"line {line}", rule, data[error.start : error.start + 8].hex(" ")) from None


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise Problem(f"line {line}", "must not contain half of a surrogate pair") from None


# --- JSON ---------------------------------------------------------------------------------------------------------------

# The possessive forms make an unterminated string cost one pass.
_NOT_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]++', re.DOTALL)
_SEPARATORS = re.compile(r"(?:\s++|^---[ \t]*+$)*+", re.MULTILINE)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LOCATE_BYTES_MAX = 4 << 20


class _DuplicateKey(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)
    return {k: v for k, v in pairs if v is not None} if None in found.values() else found


def _read_json(text: str) -> list[Document] | None:
    """The documents of JSON text, one after the other; None if it looks like YAML instead."""
    start = last = _skip(text, 0)
    if text[start : start + 1] not in ("{", "["):
        return None
    _check_depth(text)
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    documents: list[Document] = []
    while start < len(text):
        if text[start] not in "{[":
            return None
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Expecting property name"):
                return None
            rule = f"must be JSON: {error.msg[:1].lower()}{error.msg[1:]}"
            raise Problem(place_of(text, error.pos), rule, text[error.pos : error.pos + 20]) from None
        except _DuplicateKey as error:
            _locate_duplicate(text)
            raise Problem(f"document {len(documents) + 1}", "key is there twice", error.args[0]) from None
        except ValueError:
            # Python refuses to read numbers of thousands of digits.
            raise Problem(f"document {len(documents) + 1}", "must not hold such long numbers") from None
        line = documents[-1].line + text.count("\n", last, start) if documents else 1
        append_document(documents, line, value, end - start)
        last = start
        start = _skip(text, end)
    if _SURROGATE_ESCAPE.search(text):
        for document in documents:
            _check_strings(document)
    return documents


def _skip(text: str, start: int) -> int:
    found = _SEPARATORS.match(text, start)
    assert found is not None
    return found.end()


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the parser, which recurses, meets it: each turn takes the innermost level away."""
    rest = _NOT_BRACKETS.sub("", text)
    for _ in range(DEPTH_MAX + 1):
        less = rest.replace("{}", "").replace("[]", "")
        if len(less) == len(rest):
            # All of balanced text is gone by now; what is left of other text is for the parser to explain.
            if rest.count("{") + rest.count("[") <= DEPTH_MAX:
                return
            break
        rest = less
    raise Problem("text", f"must not be nested deeper than {DEPTH_MAX} levels")


def _locate_duplicate(text: str) -> None:
    """JSON is YAML, and our reader of YAML knows the line."""
    if len(text) <= _LOCATE_BYTES_MAX:
        read_yaml(text)


def _check_strings(document: Document) -> None:
    """JSON can spell half of a surrogate pair, which is no text."""
    waiting = [document.value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                rule = "must not contain half of a surrogate pair"
                raise Problem(f"document {document.number}", rule, value) from None
        elif isinstance(value, dict):
            waiting.extend(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
