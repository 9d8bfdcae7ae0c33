"""Any words on the command line: an answer or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ, check_said, command
from tidelog.cli.main import VERBS

HARMLESS = [
    verb.name.split()
    for verb in VERBS
    if verb.name
    not in (
        "run",
        "serve",
        "page",
        "bench",
        "demo",
        "log repair",
        "log import",
        "log redact",
        "apply",
        "log compact",
    )
]
WORDS = st.one_of(
    st.sampled_from(
        [
            "pods", "pod", "web-0", "n1", "nodes", "-o", "json", "yaml", "wide", "-A", "-n", "default", "--at", "1", "0", "-1",
            "14", "2023-11-14T22:13:20Z", "99999999999999999999", "1-9", "9-1", "--", "-", "--debug=1", "-h", "--dry-run",
            "--feature-gates", "X=true", "SchedulerQueueingHints=maybe", "--set", "a.b=c", "--config", "/nowhere", "--filter", "--all",
            "A=True", "\x1b[2J", "\u202e", "=", "", "%s", "{}", "--at=1e400", "--at=-0", "--limit", "١",
        ]
    ),
    st.text(max_size=6).filter(lambda text: "\0" not in text),
)  # fmt: skip


@FUZZ
@given(st.sampled_from(HARMLESS), st.lists(WORDS, max_size=5))
def test_any_words_get_an_answer_or_one_line(story_log: Path, verb: list[str], words: list[str]) -> None:
    if "-f" in words or any(word.startswith(("-f", "--follow")) for word in words):
        return  # It waits for more records, as it should.
    before = story_log.read_bytes()

    said = command("--log", story_log, *verb, *words)

    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    assert said.code in (0, 1, 2, 3), said
    if verb[0] not in ("delete", "patch-condition"):
        assert story_log.read_bytes() == before
    check_said(said)
