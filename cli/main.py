"""The command line: `tidelog VERB …`.

This module finds the verb, parses its arguments, runs it, and turns whatever goes wrong into one line on stderr and an
exit code. Each verb is one module in `cli/commands/`, named after it (`log tail` is `log_tail.py`), and is imported
only when it is asked for, so that starting costs little. Such a module has

    DESCRIPTION, EXAMPLES        what `--help` says before and after the options
    configure(parser)            adds the arguments
    run(args) -> int             does the work and returns the exit code

Options stand anywhere behind the verb; those of every verb (`--log`, `--feature-gates`, `--debug`) before it too.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, Protocol, cast

from tidelog.eventlog import password

EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
EXIT_CODES = (
    "exit codes: 0 done, 1 error, 2 wrong usage, 3 a replay differs, 4 the log is damaged, 5 overtaken by a compaction: try again, "
    "130 interrupted"
)
DESCRIPTION = "Schedule Kubernetes pods as kube-scheduler does, and keep every fact and decision in one append-only log."


class Verb(NamedTuple):
    """A line of the table below."""

    group: str
    name: str
    summary: str

    @property
    def module(self) -> str:
        """The name of the module in cli/commands/ that does it."""
        return self.name.replace(" ", "_").replace("-", "_")


VERBS: tuple[Verb, ...] = (
    Verb("see it work", "demo", "a tour in half a minute, on a log of its own"),
    Verb("run it", "run", "the scheduler, until it is stopped"),
    Verb("run it", "serve", "the log as the Kubernetes API: kubectl and every client work on it"),
    Verb("load a cluster", "apply", "load manifests"),
    Verb("load a cluster", "diff", "what apply would add, change and take away"),
    Verb("load a cluster", "delete", "delete objects"),
    Verb("load a cluster", "patch-condition", "set a condition of a pod's status"),
    Verb("ask", "get", "list objects, or events, now or at an earlier moment"),
    Verb("ask", "describe", "pods with their conditions and events, or nodes with their pods"),
    Verb("ask", "why", "a pod's story: what it waits for, what would help, why this node"),
    Verb("ask", "why-not", "every plugin's verdict on one node for a pod"),
    Verb("ask", "queue", "the pending pods: where each waits, and until when"),
    Verb("ask", "plan", "where pods would go now, without writing anything"),
    Verb("ask", "page", "a log in the browser: scrub through it, in a file or live"),
    Verb("the log itself", "log init", "make an empty log: in a file, or in a PostgreSQL database"),
    Verb("the log itself", "log status", "who leads a log, who stands by, and how far each is"),
    Verb("the log itself", "log tail", "the last records, with -f those to come as well"),
    Verb("the log itself", "log show", "records in full"),
    Verb("the log itself", "log verify", "check that nothing is lost or changed"),
    Verb("the log itself", "log repair", "make a damaged log usable, without the lost records"),
    Verb("the log itself", "log compact", "drop old records"),
    Verb("the log itself", "log export", "all records as JSON lines"),
    Verb("the log itself", "log import", "make a log from exported JSON lines"),
    Verb("the log itself", "log redact", "a copy without names, to be shared"),
    Verb("the log itself", "log to-test", "a pytest file that asserts the log's decisions"),
    Verb("replay", "replay verify", "recompute every decision and compare"),
    Verb(
        "replay",
        "replay what-if",
        "decide again under another configuration, or without or with an object, and compare",
    ),
    Verb("replay", "shadow report", "a cluster's own scheduler, judged by our rules"),
    Verb("measure", "bench", "run a benchmark of the repository"),
    Verb("measure", "completion", "the completion script of bash, zsh or fish"),
    Verb("measure", "version", "the versions of program, log format, Python and SQLite"),
)
_VERB_BY_NAME = {verb.name: verb for verb in VERBS}
_GROUP_WORDS = tuple(dict.fromkeys(verb.name.split()[0] for verb in VERBS if " " in verb.name))
_SUGGESTED = [name for name in _VERB_BY_NAME if name != "delete"]
"""Verbs that a misspelled one may be taken for: never one that takes something away."""
_GLOBAL_WITH_VALUE = ("--log", "--feature-gates")
_GLOBAL_FLAGS = ("--debug",)


class CommandModule(Protocol):
    """The interface of a module in cli/commands/."""

    DESCRIPTION: str
    EXAMPLES: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """argparse, with errors as exceptions that `main` words like every other error."""

    def error(self, message: str) -> NoReturn:
        from tidelog.api.errors import UsageError
        from tidelog.cli.hints import option_hint

        raise UsageError(f"{message}{option_hint(message, self)} (see `{self.prog} --help`)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if argv is None:
        argv = sys.argv[1:]
        _print_anything()
        password.take()
    arguments = list(argv)
    debug = "--debug" in arguments
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as end:
        # argparse ends so when it has printed the help.
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:
        return _report(error, debug)


def _dispatch(arguments: list[str]) -> int:
    from tidelog.cli.hints import ALIASES, without_dry_run_values

    head, rest = _split_globals(arguments)
    if rest[:1] == ["help"] and len(rest) > 1:
        rest = [*rest[1:], "--help"]
    if not rest or rest[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if rest[0] == "--version":
        rest[0] = "version"
    rest = without_dry_run_values([*ALIASES.get(rest[0], rest[:1]), *rest[1:]])
    words = _words(rest)
    if len(words) == 1 and words[0] in _GROUP_WORDS and rest[1:2] in (["-h"], ["--help"]):
        print(overview(words[0]))
        return 0
    name = " ".join(words)
    verb = _VERB_BY_NAME.get(name)
    if verb is None:
        raise _unknown_verb(name)
    module = load(verb)
    args = parser_of(verb).parse_intermixed_args(head + rest[len(words) :])
    if args.feature_gates is not None:
        from tidelog.api.features import parse_feature_gates

        parse_feature_gates(args.feature_gates)  # A name that is no gate is wrong with every verb.
    return module.run(args)


def _split_globals(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options that stand before the verb, and everything from the verb on."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word in _GLOBAL_WITH_VALUE:
            place += 2
        elif word in _GLOBAL_FLAGS or word.startswith(tuple(f"{name}=" for name in _GLOBAL_WITH_VALUE)):
            place += 1
        else:
            break
    return arguments[:place], arguments[place:]


def _words(rest: list[str]) -> list[str]:
    """The words that name the verb: two for `log tail` and its like."""
    if rest[0] in _GROUP_WORDS and len(rest) > 1 and not rest[1].startswith("-"):
        return rest[:2]
    return rest[:1]


def _unknown_verb(name: str) -> Exception:
    from tidelog.api.errors import UsageError
    from tidelog.api.text import safe
    from tidelog.cli.hints import KUBECTL, MEANT, NOTHING_RUNS

    if name in _GROUP_WORDS:
        choices = ", ".join(verb.name for verb in VERBS if verb.name.startswith(f"{name} "))
        return UsageError(f"`tidelog {name}` needs one more word: {choices}")
    if name.startswith("-"):
        return UsageError(f"unknown option {safe(name)!r} before the verb (see `tidelog --help`)")
    word = safe(name.split(maxsplit=1)[0])
    if word in NOTHING_RUNS:
        return UsageError(f"there is no `tidelog {word}`: {NOTHING_RUNS[word]}")
    if word in KUBECTL:
        return UsageError(
            f"`tidelog {word}` is not needed: `tidelog serve` serves the log as the Kubernetes API, and `kubectl {word}` works on it"
        )
    meant = MEANT.get(word)
    close = [meant] if meant else difflib.get_close_matches(name, _SUGGESTED, n=1, cutoff=0.6)
    hint = f"; did you mean `tidelog {close[0]}`?" if close else ""
    return UsageError(f"unknown verb '{safe(name)}'{hint} (see `tidelog --help`)")


def load(verb: Verb) -> CommandModule:
    """The module that does the verb."""
    return cast(CommandModule, importlib.import_module(f"tidelog.cli.commands.{verb.module}"))


class HelpFormatter(argparse.HelpFormatter):
    """Breaks the lines of descriptions by the width of the terminal, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))


def parser_of(verb: Verb) -> argparse.ArgumentParser:
    """The parser of one verb; also the source of docs/cli.md."""
    module = load(verb)
    parser = Parser(
        prog=f"tidelog {verb.name}",
        description=module.DESCRIPTION,
        epilog=f"examples:\n{module.EXAMPLES.rstrip()}",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    everywhere = parser.add_argument_group("options of every verb")
    everywhere.add_argument("--log", metavar="FILE", help="the log (default: $TIDELOG_LOG)")
    everywhere.add_argument(
        "--feature-gates", metavar="GATE=BOOL,…", help="feature gates that differ from their defaults"
    )
    everywhere.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def overview(group_word: str = "") -> str:
    """Return the text of `tidelog --help`, or the part of it that begins with one word."""
    return "\n".join(_overview_lines(group_word))


def _overview_lines(group_word: str) -> Iterator[str]:
    yield f"usage: tidelog {group_word or 'VERB'} …    (`tidelog VERB --help` has examples)"
    yield ""
    yield DESCRIPTION
    shown = [verb for verb in VERBS if not group_word or verb.name.split()[0] == group_word]
    for group in dict.fromkeys(verb.group for verb in shown):
        yield ""
        yield f"{group}:"
        for verb in shown:
            if verb.group == group:
                yield f"  {verb.name:<17}{verb.summary}"
    yield ""
    yield "options of every verb:"
    yield "  --log FILE       the log: a file, or postgresql://… (default: $TIDELOG_LOG)"
    yield "  --feature-gates  GATE=true,OTHER=false"
    yield "  --debug          show the traceback of an error"
    yield ""
    yield EXIT_CODES


def _report(error: Exception, debug: bool) -> int:
    """One line on stderr that says what is wrong and what to do, more lines only for more broken rules."""
    from tidelog.api.text import safe
    from tidelog.cli.terminal import complaint

    code, lines = complaint(error)
    if debug:
        import traceback

        lines = [*map(safe, "".join(traceback.format_exception(error)).splitlines()), *lines]
    try:
        print("\n".join(lines), file=sys.stderr)
    except BrokenPipeError:
        return EXIT_PIPE_CLOSED
    return code


def _print_anything() -> None:
    """Where the terminal's encoding lacks a character, print it escaped instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _silence_stdout() -> None:
    """Nobody reads any more: let the interpreter's own flush at exit go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
