"""The manners of the command line, whatever the verb."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli import main as cli

EVERY_VERB = [pytest.param(verb, id=verb.name) for verb in cli.VERBS]


def in_a_new_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_help_lists_every_verb(tidelog) -> None:
    ran = tidelog("--help")

    assert ran.code == 0
    assert [verb.name for verb in cli.VERBS if f"  {verb.name} " not in ran.out] == []


def test_no_verb_prints_the_help(tidelog) -> None:
    assert tidelog() == tidelog("--help")


def test_help_imports_nothing_heavy() -> None:
    heavy = in_a_new_interpreter(
        "import sys; from tidelog.cli.main import main; main(['--help']);"
        "print([m for m in ('asyncio', 'msgspec', 'sqlite3', 'yaml', 'aiosqlite') if m in sys.modules])"
    )

    assert heavy == "[]"


def test_a_verb_imports_only_its_own_module() -> None:
    loaded = in_a_new_interpreter(
        "import sys; from tidelog.cli.main import main; main(['version']);"
        "print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('tidelog.cli.commands.')))"
    )

    assert loaded == "['options', 'version']"


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_help_of_a_verb_has_an_example(tidelog, verb: cli.Verb) -> None:
    ran = tidelog(*verb.name.split(), "--help")

    assert ran.code == 0
    assert f"tidelog {verb.name}" in ran.out.partition("examples:\n")[2]


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_examples_of_a_verb_parse(verb: cli.Verb) -> None:
    import shlex

    examples = cli.load(verb).EXAMPLES.replace("…", "x").splitlines()
    commands = [
        part.strip() for line in examples for part in re.split(r" \| | > ", line) if "tidelog" in part.split()
    ]

    assert commands
    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        assert words[: len(verb.name.split())] == verb.name.split()
        cli.parser_of(verb).parse_intermixed_args(words[len(verb.name.split()) :])


def test_group_word_lists_its_verbs(tidelog) -> None:
    ran = tidelog("log", "--help")

    assert ran.code == 0
    assert "log verify" in ran.out
    assert "apply" not in ran.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["aply"], "unknown verb 'aply'; did you mean `tidelog apply`? (see `tidelog --help`)"),
        (
            ["log", "verfy"],
            "unknown verb 'log verfy'; did you mean `tidelog log verify`? (see `tidelog --help`)",
        ),
        (["xyzzy"], "unknown verb 'xyzzy' (see `tidelog --help`)"),
        (["\x1b[2J"], "unknown verb '\\x1b[2J' (see `tidelog --help`)"),
        (["--lgo", "x", "get"], "unknown option '--lgo' before the verb (see `tidelog --help`)"),
        (
            ["get"],
            "the following arguments are required: KIND[,KIND] [NAME…] | KIND/NAME… (see `tidelog get --help`)",
        ),
        (
            ["get", "pods", "--slector", "x"],
            "unrecognized arguments: --slector x; did you mean --selector? (see `tidelog get --help`)",
        ),
        (["get", "pods"], "which log? name it with --log FILE or set $TIDELOG_LOG"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(tidelog, words: list[str], error: str) -> None:
    ran = tidelog(*words)

    assert ran == (2, "", f"tidelog: error: {error}\n")


def test_group_word_alone_names_the_words_that_may_follow(tidelog) -> None:
    ran = tidelog("log")

    assert ran.code == 2
    assert (
        "`tidelog log` needs one more word: log init, log status, log tail, log show, log verify" in ran.err
    )


def test_unknown_choice_names_the_choices(tidelog) -> None:
    ran = tidelog("get", "pods", "-o", "jsn")

    assert ran.code == 2
    assert "'jsn'" in ran.err
    assert "'json'" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["--log", "LOG", "get", "pods", "web-1"],
        ["--log=LOG", "--debug", "get", "pods", "web-1"],
        ["get", "--log", "LOG", "pods", "web-1"],
        ["get", "pods", "--log", "LOG", "web-1"],
        ["get", "pods", "-n", "default", "web-1", "--log=LOG"],
    ],
)
def test_options_may_stand_anywhere(two_pods, tidelog, tmp_path: Path, words: list[str]) -> None:
    log = str(tmp_path / "cluster.db")

    ran = tidelog(*(word.replace("LOG", log) for word in words))

    assert ran.code == 0
    assert [line.split()[0] for line in ran.lines] == ["NAME", "web-1"]


def test_log_may_come_from_the_environment(
    two_pods, tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_LOG", str(tmp_path / "cluster.db"))

    assert tidelog("get", "pods", "-o", "name").lines == ["pod/web-1", "pod/web-2"]


def test_two_logs_are_one_too_many(tidelog) -> None:
    ran = tidelog("log", "verify", "a.db", "--log", "b.db")

    assert ran == (2, "", "tidelog: error: two logs are named, a.db and b.db: name one\n")


def test_traceback_is_shown_only_with_debug(tidelog, tmp_path: Path) -> None:
    quiet = tidelog("get", "pods", "--log", tmp_path / "none.db")
    loud = tidelog("get", "pods", "--log", tmp_path / "none.db", "--debug")

    assert quiet.code == loud.code == 1
    assert quiet.err.count("\n") == 1
    assert "Traceback" in loud.err
    assert loud.err.endswith(quiet.err)


def test_our_own_failure_asks_for_a_report(tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.cli.commands import version

    monkeypatch.setattr(version, "collect", lambda: 1 / 0)
    ran = tidelog("version")

    assert ran.code == 1
    assert ran.err.startswith(
        "tidelog: error: internal error: ZeroDivisionError: division by zero; please report"
    )
    assert ran.err.count("\n") == 1


def test_interrupt_is_quiet_and_exit_130(tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.cli.commands import version

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(version, "collect", interrupted)

    assert tidelog("version") == (130, "", "")


def test_closed_pipe_is_quiet(two_pods, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [
        sys.executable,
        "-m",
        "tidelog.cli.main",
        "get",
        "pods",
        "--log",
        str(tmp_path / "cluster.db"),
    ]

    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)

    assert (done.returncode, done.stderr) == (cli.EXIT_PIPE_CLOSED, "")


def test_terminal_without_unicode_gets_escapes(two_pods, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog.cli.main", "apply", "--help"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = subprocess.run(command, capture_output=True, env=environment)

    assert done.returncode == 0
    assert done.stdout.isascii()


def test_version_says_what_it_runs_on(tidelog) -> None:
    ran = tidelog("version")

    assert ran.code == 0
    assert [line.split("  ")[0] for line in ran.lines] == [
        "tidelog",
        "log format",
        "python",
        "sqlite",
        "msgspec",
    ]
    assert tidelog("--version") == ran


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "web-1"], "did you mean `tidelog why`?"),
        (["logs", "web-1"], "a log has no containers"),
        (["get", "pods", "--sort-by", ".x"], "kubectl on `tidelog serve` has all of its options"),
        (["get", "pods", "-w"], "`tidelog log tail -f` follows the log"),
        (["get", "pods", "-o", "jsonpath={.x}"], "use -o json and jq"),
        (["replay", "what-if", "--without-node", "n3"], "--drop node/n3 leaves an object out"),
        (["apply", "-f", "x", "--dry-run=sever"], "ignored explicit argument 'sever'"),
        (["drain", "node-1"], "`kubectl drain` works on it"),
        (["config", "view"], "`kubectl config` works on it"),
        (["run", "web", "--image=x"], "`kubectl run` works on `tidelog serve`"),
        (["get", "events", "--types=Warning"], "`tidelog get events --field-selector type=Warning` has it"),
        (["aply"], "did you mean `tidelog apply`?"),
    ],
)
def test_words_of_others_lead_to_what_does_the_same(tidelog, words: list[str], said: str) -> None:
    ran = tidelog(*words)

    assert ran.code == 2
    assert said in ran.err


def test_nothing_that_takes_away_is_suggested(tidelog) -> None:
    assert "delete" not in tidelog("delte").err


def test_help_of_a_verb_is_also_its_own(tidelog) -> None:
    assert tidelog("help", "why").out == tidelog("why", "--help").out


def test_unknown_feature_gate_is_refused_by_verbs_that_do_not_need_gates(tidelog, tmp_path) -> None:
    ran = tidelog("get", "pods", "--log", tmp_path / "none.db", "--feature-gates", "Foo=true")

    assert ran.code != 0
    assert "Foo" in ran.err
