"""Text from people and from strangers becomes plain data, or one error with its line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.errors import InvalidObjects
from tidelog.api.manifests import documents, yaml_reader
from tidelog.api.manifests.documents import DEPTH_MAX, INPUT_BYTES_MAX, read_documents
from tidelog.api.manifests.yaml_reader import resolve


@pytest.fixture(params=["C", "Python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds with PyYAML's C parser and without it."""
    if request.param == "Python":
        monkeypatch.setattr(yaml_reader, "LOADER", yaml.SafeLoader)


def values(data: bytes | str) -> list[Any]:
    return [document.value for document in read_documents(data, "text")]


def complaint(data: bytes | str) -> str:
    with pytest.raises(InvalidObjects) as caught:
        read_documents(data, "f.yaml")
    (error,) = caught.value.errors
    assert caught.value.subject == "f.yaml"
    return str(error)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("\n# nothing\n---\n---\n", []),
        ("a: 1", [{"a": 1}]),
        ("a: 1\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        ("a: null\nb: ~\nc:\nd: [~]\n", [{"d": [None]}]),
        ('{"a": null, "b": [null]}', [{"b": [None]}]),
        ('{"a": 1}', [{"a": 1}]),
        ('{"a": 1}{"b": 2}\n{"c": 3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('---\n{"a": 1}\n---\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n---\nb: 2\n', [{"a": 1}, {"b": 2}]),
        ("{a: 1, b: [x, 'y']}", [{"a": 1, "b": ["x", "y"]}]),
        ('{"a": "\\u00e9\\n", "b": 1.5, "c": true}', [{"a": "é\n", "b": 1.5, "c": True}]),
        ("on: 1\n2: b\n~: c\n", [{"on": 1, "2": "b", "~": "c"}]),
        ("a: &x {b: 1}\nc: *x\n", [{"a": {"b": 1}, "c": {"b": 1}}]),
        ("a: &x k\n*x : v\n", [{"a": "k", "k": "v"}]),
        ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", [{"a": {"b": 1, "c": 2}, "d": {"c": 3, "b": 1}}]),
        ("a: &x {b: 1}\nd: {<<: [*x, {b: 2, e: 3}]}\n", [{"a": {"b": 1}, "d": {"b": 1, "e": 3}}]),
        ('"<<": x\n', [{"<<": "x"}]),
        ("&k key: v\nother: *k\n", [{"key": "v", "other": "key"}]),
        ("a: !!str 5\nb: !!int '7'\nc: !!float 1\nd: ! 3\n", [{"a": "5", "b": 7, "c": 1, "d": "3"}]),
        ("- a\n- - b\n", [["a", ["b"]]]),
        ("text\n", ["text"]),
        ("a: |\n  x\n  y\nb: >\n  x\n  y\n", [{"a": "x\ny\n", "b": "x y\n"}]),
        (b"\xef\xbb\xbfa: \xc3\xa9", [{"a": "é"}]),
        ("\ufeffa: 1", [{"a": 1}]),
        ("a: é".encode("utf-16"), [{"a": "é"}]),
        (b"\xfe\xff" + "a: 1".encode("utf-16-be"), [{"a": 1}]),
        (b"\xff\xfe\x00\x00" + "a: 1".encode("utf-32-le"), [{"a": 1}]),
        ("a: 1\r\nb: 2\r\n", [{"a": 1, "b": 2}]),
    ],
)
def test_text_is_read_as_kubernetes_reads_it(data: bytes | str, expected: list[Any]) -> None:
    assert values(data) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((word, True) for word in ("true", "True", "TRUE", "yes", "Yes", "on", "ON")),
        *((word, False) for word in ("false", "no", "No", "off", "OFF")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        ("y", "y"),
        ("n", "n"),
        ("tRUE", "tRUE"),
        ("12", 12),
        ("+12", 12),
        ("-1_000", -1000),
        ("0", 0),
        ("017", 15),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("08", 8.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("100m", "100m"),
        ("1Gi", "1Gi"),
        ("-", "-"),
        ("0x", "0x"),
        ("0x_", "0x_"),
        ("9" * 64, int("9" * 64)),
        ("9" * 65, "9" * 65),
        ("٣", "٣"),
    ],
)
def test_plain_scalar_means_what_go_yaml_says(text: str, expected: Any) -> None:
    found = resolve(text)

    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "a:\n\tb: 1",
            'line 2, column 1: Invalid value: "\\tb: 1": a tab cannot indent or begin a value in YAML; use spaces',
        ),
        (
            "a: b: c",
            'line 1, column 5: Invalid value: "a: b: c": must be YAML: mapping values are not allowed',
        ),
        ("a: [1,\nb", "must be YAML: while parsing a flow sequence"),
        ("a: 1\na: 2", 'line 2, column 1: Invalid value: "a": key is there twice'),
        ("x:\n- y: 1\n  y: 2", 'line 3, column 3 (x[0]): Invalid value: "y": key is there twice'),
        ("a: ~\na: ~", 'line 2, column 1: Invalid value: "a": key is there twice'),
        ('{"a": {"b": 1,\n "b": 2}}', 'line 2, column 2 (a): Invalid value: "b": key is there twice'),
        ("a: &k b\nb: 1\n*k : 2\n", 'line 3, column 1: Invalid value: "b": key is there twice'),
        ("a: *b", 'line 1, column 4 (a): Invalid value: "b": alias has no anchor before it'),
        ("a: &b [*b]", 'line 1, column 8 (a[0]): Invalid value: "b": alias refers to itself'),
        ("a: &b 1\n---\nc: *b", "alias has no anchor before it"),
        ("a: &b {}\n*b : 1", "line 2, column 1: Invalid value: a key must be text"),
        ("? [a]\n: b", "line 1, column 3: Invalid value: a key must be text"),
        ("a: &b c\n<<: *b", "<< must name a mapping or a list of mappings"),
        ("a: !!binary aGk=", "tag tag:yaml.org,2002:binary is not supported"),
        (
            "a: !!python/object/apply:os.system [x]",
            "tag tag:yaml.org,2002:python/object/apply:os.system is not supported",
        ),
        ("a: !Ref b", "tag !Ref is not supported"),
        ("a: !!int x", "must be int, as its tag says"),
        ("a: \x07", "must not contain control characters"),
        ("\x00", "must not contain control characters"),
        (
            b"a: 1\nb: \xff\xfe",
            'line 2: Invalid value: "ff fe": must be UTF-8: byte 8 of the text is not (invalid start byte)',
        ),
        (b"\xff\xfea", "must be UTF-16-LE"),
        ("a: \ud800", "line 1: Invalid value: must not contain half of a surrogate pair"),
        ('{"a": "\\ud800"}', "document 1: Invalid value"),
        ('{"a": {"\\udfff": 1}}', "must not contain half of a surrogate pair"),
        ('{"a": 1', "line 1, column 8: Invalid value: \"\": must be JSON: expecting ',' delimiter"),
        ('{"a" 1}', "must be JSON: expecting ':' delimiter"),
        ('{"a": "b\n"}', "must be JSON: invalid control character at"),
        ('{"a": ' + "9" * 5000 + "}", "document 1: Invalid value: must not hold such long numbers"),
    ],
)
def test_bad_text_is_one_error_with_its_place(data: bytes | str, expected: str) -> None:
    assert expected in complaint(data)


NESTED = [
    '{"a":' * 5000 + "1" + "}" * 5000,
    "[" * 100_000,
    "- " * 5000,
    "a: " + "{b: " * 5000,
    '{"a":' * 101 + "1" + "}" * 101,
]


@pytest.mark.parametrize("data", NESTED, ids=["json", "open", "sequence", "flow", "just"])
def test_deep_nesting_is_refused(data: str) -> None:
    assert f"must not be nested deeper than {DEPTH_MAX} levels" in complaint(data)


@pytest.mark.parametrize("data", ['{"a":' * 100 + "1" + "}" * 100, "[" * 100 + "]" * 100, "- " * 100 + "a"])
def test_nesting_up_to_the_limit_is_read(data: str) -> None:
    assert len(values(data)) == 1


def test_aliases_that_expand_without_bound_are_refused() -> None:
    lines = ["a0: &a0 [" + ",".join(["lol"] * 10) + "]"]
    lines += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 12)]

    assert "aliases must not expand to more than 67108864 bytes" in complaint("\n".join(lines))


def test_anchors_that_are_used_sanely_are_read() -> None:
    data = "x: &x [" + ",".join(["v"] * 100) + "]\nlist:\n" + "- *x\n" * 1000

    (value,) = values(data)

    assert len(value["list"]) == 1000


def test_text_over_the_limit_is_refused() -> None:
    with pytest.raises(InvalidObjects, match="text: Too long: may not be more than 10 bytes"):
        read_documents("a: 12345678", "f", 10)
    assert INPUT_BYTES_MAX == 64 << 20


def test_duplicate_key_of_a_long_text_is_named_without_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LOCATE_BYTES_MAX", 3)

    assert complaint('{"x": 1, "a": 1, "a": 2}') == 'document 1: Invalid value: "a": key is there twice'


def test_parser_that_knows_no_place_is_believed() -> None:
    problem = yaml_reader._yaml_problem("a", yaml.MarkedYAMLError(problem="strange"))

    assert (problem.error.path, problem.error.rule) == ("text", "must be YAML: strange")


def test_too_many_documents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "DOCUMENTS_MAX", 3)

    assert "line 6: Invalid value: must have at most 3 documents" in complaint("a: 1\n---\n" * 5)
    assert "must have at most 3 documents" in complaint('{"a": 1}' * 5)


def test_documents_know_their_number_line_and_size() -> None:
    found = read_documents("a: 1\n---\n---\n\nb: [x, y]\n", "f")
    json_found = read_documents('{"a": 1}\n\n{"b":\n2}\n{"c": 3}', "f")

    assert [(d.number, d.line) for d in found] == [(1, 1), (2, 3)]
    assert [(d.number, d.line, d.size) for d in json_found] == [(1, 1, 8), (2, 3, 8), (3, 5, 8)]


def place_of_the_problem(data: bytes | str) -> str:
    try:
        read_documents(data, "f")
    except InvalidObjects as error:
        return error.errors[0].path
    return ""


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused_with_a_place(data: bytes | str) -> None:
    problem = place_of_the_problem(data)

    assert problem == "" or problem.startswith(("line ", "document ", "text"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), JSON_VALUES, min_size=1))
def test_json_is_read_as_json_with_nulls_dropped(value: dict[str, Any]) -> None:
    assert values(json.dumps(value)) == [without_nulls(value)]
