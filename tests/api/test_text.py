"""Text for the terminal is aligned, dated, and harmless."""

from __future__ import annotations

import json

import pytest
import yaml

from tidelog.api import text as text_of

HOSTILE = "a\x1b[2Jb\u202ec\x9bd\ne\x7f"


def test_table_pads_columns_and_shows_nothing_as_none() -> None:
    text = text_of.table(("NAME", "NODE"), [("web-1", "a-1"), ("a-longer-name", "")])

    assert text.splitlines() == [
        "NAME            NODE",
        "web-1           a-1",
        "a-longer-name   <none>",
    ]


def test_safe_text_has_only_printable_characters() -> None:
    assert text_of.safe(HOSTILE) == r"a\x1b[2Jb\u202ec\x9bd\ne\x7f"


@pytest.mark.parametrize("text", ["plain", "grüße", "日本", ""])
def test_safe_text_leaves_letters_alone(text: str) -> None:
    assert text_of.safe(text) == text


def test_table_cells_are_safe() -> None:
    assert "\x1b" not in text_of.table(("NAME",), [(HOSTILE,)])


@pytest.mark.parametrize("render", [text_of.as_json, text_of.as_json_line])
def test_json_is_printable_and_reads_back_the_same(render: object) -> None:
    assert callable(render)
    text = render({"name": HOSTILE, "emoji": "😀", "private": "\U000f0000"})

    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == {"name": HOSTILE, "emoji": "😀", "private": "\U000f0000"}


@pytest.mark.parametrize("name", [HOSTILE, "grüße", "yes", "1"])
def test_yaml_is_printable_and_reads_back_the_same(name: str) -> None:
    text = text_of.as_yaml({"name": name})

    assert all(line.isprintable() for line in text.split("\n"))
    assert yaml.safe_load(text) == {"name": name}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 120, "5h2m"),
        (9 * 3600, "9h"),
        (47 * 3600, "47h"),
        (3 * 86400 + 3600, "3d1h"),
        (30 * 86400, "30d"),
        (3 * 365 * 86400, "3y"),
        (4 * 365 * 86400 + 86400, "4y1d"),
        (10 * 365 * 86400, "10y"),
    ],
)
def test_age_is_written_as_kubectl_writes_it(seconds: int, expected: str) -> None:
    assert text_of.age(seconds * 1_000_000_000) == expected
