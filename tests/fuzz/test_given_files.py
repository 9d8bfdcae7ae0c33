"""Every other file that a command line can name, and what the environment names: any content, one clear answer, nothing else changed.

Manifests at `apply` are fuzzed in tests/cli/test_bad_input.py, files of actors and configurations beside this one, logs in
test_log_files.py.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.api.test_fuzz import mutants as manifests
from tests.fuzz.conftest import EXAMPLES, FUZZ, check_said, command, mutated
from tests.fuzz.test_configuration_files import LEAVES, SEED

FEW = settings(FUZZ, max_examples=max(20, EXAMPLES // 3))
"""Each example decides a log anew."""


@pytest.fixture(scope="session")
def lines(story_log: Path) -> list[bytes]:
    """The story as it is exported."""
    said = command("log", "export", "--log", story_log)
    return said.out.encode().splitlines(keepends=True)


# --- log import -----------------------------------------------------------------------------------------------------------

NUMBERS = st.integers(-2, 40) | st.integers(-(2**70), 2**70)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.floats(),
    st.text(max_size=8),
    st.just("00" * 32),
    st.just("zz" * 32),
)


@st.composite
def changed_lines(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    """A few lines dropped, repeated, exchanged, changed in their fields, or in their bytes."""
    found = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(found) - 1, 0)))
        if not found:
            break
        match draw(st.sampled_from(["field", "field", "field", "bytes", "drop", "repeat", "cut"])):
            case "field":
                value = json.loads(found[at]) if _is_json(found[at]) else {}
                found[at] = json.dumps(draw(mutated(value, VALUES))).encode() + b"\n"
            case "bytes":
                place = draw(st.integers(0, len(found[at])))
                found[at] = found[at][:place] + draw(st.binary(max_size=4)) + found[at][place + 1 :]
            case "drop":
                del found[at]
            case "repeat":
                found.insert(at, found[draw(st.integers(0, len(found) - 1))])
            case "cut":
                found[at:] = [found[at][: draw(st.integers(0, len(found[at])))]]
    return found


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


@FUZZ
@given(st.data())
def test_changed_exports_are_refused_or_make_the_log_again(
    lines: list[bytes], story_log: Path, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        export, made = Path(folder) / "export.jsonl", Path(folder) / "made.db"
        export.write_bytes(b"".join(data.draw(changed_lines(lines))))

        said = command("log", "import", export, "--log", made)

        check_said(said)
        if said.code:
            assert {path.name for path in Path(folder).iterdir()} <= {"export.jsonl", "made.db.lock"}
        else:
            check_said(command("log", "verify", "--log", made))
            # Nothing gets in under a digest that is not its own.
            again = command("log", "export", "--log", made).out.encode().splitlines(keepends=True)
            assert again[1:] == lines[1 : len(again) - 1] + again[-1:]


@FUZZ
@given(st.binary(max_size=200))
@example(b'{"tidelog": "export", "format": 1, "anchor": {"seq": 1e400, "at": 0, "epoch": 0, "digest": ""}}')
@example(
    b'{"tidelog": "export", "format": 1, "anchor": {"seq": 99999999999999999999, "at": 0, "epoch": 0, "digest": ""}}'
)
@example(b"[" * 100_000)
def test_any_bytes_are_no_export(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "export.jsonl"
        export.write_bytes(data)

        said = command("log", "import", export, "--log", Path(folder) / "made.db")

        check_said(said)
        assert said.code == 1
        assert not (Path(folder) / "made.db").exists()


# --- files of questions ---------------------------------------------------------------------------------------------------


@FEW
@given(st.lists(manifests(), min_size=1, max_size=2), st.integers(1, 27))
def test_any_manifests_are_injected_or_refused(
    story_log: Path, found: list[dict[str, Any]], before: int
) -> None:
    """Into a past in which they may be anything: older or newer versions, twins, of gates that were off."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inject.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))

        said = command(
            "replay",
            "what-if",
            story_log,
            "--inject",
            file,
            "--before",
            before,
            "--save",
            Path(folder) / "s.db",
        )

        check_said(said)
        if said.code == 0:
            check_said(verified := command("replay", "verify", Path(folder) / "s.db", "--jobs", "1"))
            assert verified.code == 0


@FEW
@given(mutated(SEED, LEAVES))
def test_any_configuration_is_tried_or_refused(story_log: Path, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, written = Path(folder) / "config.yaml", Path(folder) / "written.yaml"
        file.write_text(json.dumps(value))

        tried = command("replay", "what-if", story_log, "--config", file, "--pods")
        spelled = command("run", "--config", file, "--write-config-to", written)

        check_said(tried)
        check_said(spelled)
        assert tried.code == spelled.code
        assert written.exists() == (spelled.code == 0)


@FUZZ
@given(
    st.sampled_from(["what-if --config", "what-if --inject", "delete -f", "run --config"]),
    st.binary(max_size=200),
)
def test_any_bytes_as_a_file_are_read_or_refused(story_log: Path, how: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(data)
        words: dict[str, list[object]] = {
            "what-if --config": ["replay", "what-if", story_log, "--config", file],
            "what-if --inject": ["replay", "what-if", story_log, "--inject", file],
            "delete -f": ["delete", "-f", file, "--log", story_log],
            "run --config": ["run", "--config", file, "--write-config-to", Path(folder) / "written.yaml"],
        }
        before = story_log.read_bytes()

        said = command(*words[how])

        check_said(said)
        assert story_log.read_bytes() == before


# --- the environment ------------------------------------------------------------------------------------------------------

VARIABLES = st.binary(max_size=300).filter(lambda value: 0 not in value).map(os.fsdecode)
"""What the system lets a variable hold."""


@FUZZ
@given(
    st.sampled_from(
        [["get", "pods"], ["log", "verify"], ["replay", "verify"], ["delete", "pod", "x"], ["queue"]]
    ),
    VARIABLES
    | st.sampled_from(["", ".", "/", "/dev/null", "/proc/self/mem", "x" * 300, "a/b", "\x1b[2J", "~"]),
)
def test_any_log_in_the_environment_is_opened_or_refused(words: list[str], value: str) -> None:
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory() as folder:
        environment.chdir(folder)
        environment.setenv("TIDELOG_LOG", value)

        said = command(*words)

        check_said(said)
        assert said.code in (1, 2)
        assert os.listdir(folder) == []


@FUZZ
@given(st.sampled_from(["XDG_RUNTIME_DIR", "NO_COLOR", "TERM"]), VARIABLES)
def test_other_variables_change_no_answer(story_log: Path, name: str, value: str) -> None:
    plain = command("get", "pods", "--log", story_log, "-o", "name")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(name, value)

        assert command("get", "pods", "--log", story_log, "-o", "name") == plain
