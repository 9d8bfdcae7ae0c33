"""Regular expressions as RE2 reads and matches them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.cel.errors import EvaluationError
from tidelog.api.cel.patterns import TextPattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a|ab", "ab", (0, 1)),
        ("(a|ab)(c|bcd)", "abcd", (0, 4)),
        ("a*?b", "aab", (0, 3)),
        ("b*?", "bb", (0, 0)),
        ("(?U)b*", "bb", (0, 0)),
        ("^b", "a\nb", None),
        ("(?m)^b$", "a\nb\nc", (2, 3)),
        (".", "\n", None),
        ("(?s).", "\n", (0, 1)),
        ("[^a]", "\n", (0, 1)),
        (r"\bfoo\b", "a foo b", (2, 5)),
        (r"\Boo", "foo", (1, 3)),
        (r"\d{2,3}", "1234", (0, 3)),
        (r"\d{2,3}?", "1234", (0, 2)),
        (r"x{,2}", "x{,2}", (0, 5)),
        (r"(?i)straSSe", "STRAßE strasse", (7, 14)),
        (r"(?i)k", "\u212a", (0, 1)),
        (r"(?i)[k-l]", "\u212a", (0, 1)),
        (r"(?i)é", "É", (0, 1)),
        (r"[[:upper:]][[:^upper:]]", "aBc", (1, 3)),
        (r"[]a]+", "]a", (0, 2)),
        (r"[a\-z]+", "-z", (0, 2)),
        (r"\x41\x{42}\103", "ABC", (0, 3)),
        (r"\Qa.b\E+", "a.bb", (0, 4)),
        (r"\pL+", "1éa", (1, 3)),
        (r"\P{Lu}", "Aa", (1, 2)),
        (r"[\pN\s]+", "a1 2", (1, 4)),
        (r"(?P<x>a)(?<y>b)", "ab", (0, 2)),
        (r"(?i:A)b", "ab", (0, 2)),
        (r"a(?i)B|C", "c", (0, 1)),
        (r"(a*)+", "aa", (0, 2)),
        (r"(|a)+", "aa", (0, 0)),
        (r"(|a)*", "aa", (0, 0)),
        (r"(a|)+", "aa", (0, 2)),
        (r"(|a){2,}b", "aab", (0, 3)),
        (r"^*a", "a", (0, 1)),
        ("", "abc", (0, 0)),
    ],
)
def test_pattern_finds_what_re2_finds(pattern: str, text: str, found: tuple[int, int] | None) -> None:
    assert TextPattern(pattern).search(text) == found


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "a**", "a{2}{3}", "*a", "+", "a{1001}", "a{2,1}", "[z-a]", "[[:nope:]]", r"\1", r"\8", r"\C", r"\Z", r"\y", "(?=a)", "(?!a)", "(?<=a)", "(?P<>a)", "(?x)a", r"\p{Nope}", "\\", r"\x{110000}", r"\xZZ", "a{500}{500}", "(a{900}){900}", "(" * 200 + ")" * 200],
)  # fmt: skip
def test_pattern_that_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(EvaluationError, match="error parsing regexp"):
        TextPattern(pattern)


def test_matches_do_not_overlap_and_empty_ones_stand_apart() -> None:
    assert list(TextPattern("a*").all("baac")) == [(0, 0), (1, 3), (4, 4)]
    assert list(TextPattern("a").all("aaa", 2)) == [(0, 1), (1, 2)]
    assert list(TextPattern("").all("ab")) == [(0, 0), (1, 1), (2, 2)]


def test_cost_is_linear_in_the_text() -> None:
    pattern = TextPattern("(a|a)*(a|a)*b")

    assert pattern.cost(2000) < 2.2 * pattern.cost(1000)
    assert pattern.search("a" * 2000) is None


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab|)", r"\w", "^", "$", r"\b"])
SIGNS = st.sampled_from(["", "", "*", "+", "?", "*?", "{2}", "{1,2}"])


@given(st.lists(st.tuples(ATOMS, SIGNS), max_size=5), st.text(alphabet="ab c\n", max_size=8))
def test_plain_patterns_find_what_pythons_re_finds(parts: list[tuple[str, str]], text: str) -> None:
    """Where the two mean the same; Python is safe here, because the patterns are ours and the texts are short."""
    pattern = "".join(atom + ("" if atom in ("^", "$", r"\b") else sign) for atom, sign in parts)
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)

    found = TextPattern(pattern).search(text)

    assert (None if found is None else found) == (None if expected is None else expected.span())


@given(st.text(alphabet=r"ab()[]{}*+?|^$\.dwpPLQE:-,12<>ix", max_size=20), st.text(max_size=10))
def test_any_text_is_a_pattern_or_an_error(pattern: str, text: str) -> None:
    try:
        found = TextPattern(pattern).search(text)
    except EvaluationError:
        return
    assert found is None or 0 <= found[0] <= found[1] <= len(text)
