"""Writes the completion scripts in `cli/completions/` from the verbs and their options: `python tools/make_completions.py`; with `--check` it only compares.

Each shell gets what it knows: verbs with their summaries, the options of the verb, the values of an option that has choices, kinds where a verb takes
them, files elsewhere. The scripts are static: a shell starts no Python to complete a word.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.api.kinds.registry import KINDS
from tidelog.cli.main import VERBS, Verb, parser_of

FOLDER = Path(__file__).resolve().parent.parent / "cli" / "completions"
TAKES_KINDS = ("get", "delete", "describe")
NO_FILE = ("why", "why-not", "patch-condition", "demo", "version", "completion")
"""Verbs whose words are no files."""
FILES = ("FILE", "LOG", "DIR", "PATH")
KIND_WORDS = (*(kind.plural for kind in KINDS), "events", "all")


class Opt(NamedTuple):
    """An option of a verb."""

    names: tuple[str, ...]
    help: str
    value: str
    """The name of its value; empty for a flag."""
    choices: tuple[str, ...]

    @property
    def is_file(self) -> bool:
        """Whether its value is a file."""
        return any(word in self.value for word in FILES)


def options_of(verb: Verb) -> list[Opt]:
    """Every option of the verb."""
    return [_option(action) for action in parser_of(verb)._actions if action.option_strings]


def _option(action: argparse.Action) -> Opt:
    takes = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    choices = tuple(map(str, action.choices)) if action.choices else ()
    return Opt(tuple(action.option_strings), text, metavar if takes else "", choices)


def choices_of(verb: Verb) -> tuple[str, ...]:
    """The words that the verb takes, where they are known."""
    if verb.name in TAKES_KINDS:
        return KIND_WORDS if verb.name != "describe" else ("pod", "node")
    for action in parser_of(verb)._actions:
        if not action.option_strings and action.choices:
            return tuple(map(str, action.choices))
    return ()


GROUPS = tuple(dict.fromkeys(verb.name.split()[0] for verb in VERBS if " " in verb.name))
"""First words of verbs of two."""


def second_words(group: str) -> list[Verb]:
    """The verbs that begin with it."""
    return [verb for verb in VERBS if verb.name.startswith(f"{group} ")]


def first_words() -> dict[str, str]:
    """The words that may stand first → what they do."""
    found = {verb.name: verb.summary for verb in VERBS if " " not in verb.name}
    for group in GROUPS:
        found[group] = ", ".join(verb.name.split()[1] for verb in second_words(group))
    return found


# --- bash -------------------------------------------------------------------------------------------------------------

_BASH_HEAD = """\
# bash completion of tidelog, written by tools/make_completions.py.   source <(tidelog completion bash)
_tidelog() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= word place
    COMPREPLY=()
    for ((place = 1; place < COMP_CWORD; place++)); do
        word=${COMP_WORDS[place]}
        case $word in
            --log | --feature-gates) [[ -z $verb ]] && ((place++)) ;;
            -*) ;;
            *)
                if [[ -z $verb ]]; then
                    verb=$word
                    case $verb in GROUPS) ;; *) break ;; esac
                else
                    verb="$verb $word"
                    break
                fi
                ;;
        esac
    done
"""


def bash() -> Iterator[str]:
    """The script for bash."""
    yield from _BASH_HEAD.replace("GROUPS", " | ".join(GROUPS)).splitlines()
    yield '    case "$verb:$prev" in'
    for verb in VERBS:
        for option in options_of(verb):
            patterns = " | ".join(f'"{verb.name}:{name}"' for name in option.names)
            if option.choices:
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur")); return ;;'
            elif option.is_file:
                yield f'        {patterns}) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;'
            elif option.value:
                yield f"        {patterns}) return ;;"
    yield '        ":--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;'
    yield "    esac"
    yield "    local words= options= files="
    yield '    case "$verb" in'
    yield f'        "") words="{" ".join(first_words())} help"; options="--log --feature-gates --debug --help --version" ;;'
    yield f'        help) words="{" ".join(first_words())}" ;;'
    for group in GROUPS:
        yield f'        "{group}") words="{" ".join(verb.name.split()[1] for verb in second_words(group))}"; options="--help" ;;'
    for verb in VERBS:
        names = " ".join(name for option in options_of(verb) for name in option.names)
        words = " ".join(choices_of(verb))
        files = "" if words or verb.name in NO_FILE else "; files=1"
        yield f'        "{verb.name}") words="{words}"; options="{names}"{files} ;;'
    yield "    esac"
    yield '    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$cur"))'
    yield '    elif [[ -n $files ]]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))'
    yield '    else COMPREPLY=($(compgen -W "$words" -- "$cur")); fi'
    yield "}"
    yield "complete -F _tidelog tidelog"


# --- zsh --------------------------------------------------------------------------------------------------------------


def _zsh_text(text: str) -> str:
    for char in "\\[]:":
        text = text.replace(char, "\\" + char)
    return text.replace("'", "'\\''")


def _zsh_option(option: Opt) -> Iterator[str]:
    value = ""
    if option.value:
        what = f"({' '.join(option.choices)})" if option.choices else "_files" if option.is_file else " "
        value = f":{_zsh_text(option.value)}:{what}"
    names = " ".join(option.names)
    for name in option.names:
        yield f"'({names}){name}[{_zsh_text(option.help)}]{value}'"


def _zsh_words(words: dict[str, str]) -> str:
    return " ".join(f"'{_zsh_text(word)}:{_zsh_text(summary)}'" for word, summary in words.items())


def zsh() -> Iterator[str]:
    """The script for zsh."""
    yield "#compdef tidelog"
    yield "# zsh completion of tidelog, written by tools/make_completions.py.   source <(tidelog completion zsh)"
    yield "_tidelog() {"
    yield "    local -a first second"
    yield f"    first=({_zsh_words(first_words())})"
    yield "    if ((CURRENT == 2)); then _describe verb first; return; fi"
    yield "    local verb=$words[2]"
    yield f"    if [[ $verb == ({'|'.join(GROUPS)}) ]]; then"
    yield "        if ((CURRENT == 3)); then"
    yield "            case $verb in"
    for group in GROUPS:
        words = {verb.name.split()[1]: verb.summary for verb in second_words(group)}
        yield f"                {group}) second=({_zsh_words(words)}) ;;"
    yield "            esac"
    yield "            _describe verb second; return"
    yield "        fi"
    yield '        verb="$verb $words[3]"; words=("$words[1]" "${(@)words[4,-1]}"); ((CURRENT -= 2))'
    yield "    else"
    yield '        words=("$words[1]" "${(@)words[3,-1]}"); ((CURRENT -= 1))'
    yield "    fi"
    yield "    case $verb in"
    for verb in VERBS:
        known = choices_of(verb)
        rest = (
            f"'*:word:({' '.join(known)})'"
            if known
            else "'*:name: '"
            if verb.name in NO_FILE
            else "'*:file:_files'"
        )
        specs = " ".join([*(spec for option in options_of(verb) for spec in _zsh_option(option)), rest])
        yield f"        {verb.name.replace(' ', chr(92) + ' ')}) _arguments -s {specs} ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _tidelog ]]; then _tidelog "$@"; else compdef _tidelog tidelog; fi'


# --- fish -------------------------------------------------------------------------------------------------------------


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish() -> Iterator[str]:
    """The script for fish."""
    yield "# fish completion of tidelog, written by tools/make_completions.py.   tidelog completion fish | source"
    yield "function __tidelog_verb"
    yield "    set -l words (commandline -opc)"
    yield "    set -l found"
    yield "    set -l skip"
    yield "    for word in $words[2..-1]"
    yield '        if test -n "$skip"; set skip; continue; end'
    yield "        switch $word"
    yield '            case --log --feature-gates; test -z "$found"; and set skip 1'
    yield "            case '-*'; true"
    yield "            case '*'"
    yield '                if test -z "$found"; set found $word'
    yield f"                    contains -- $word {' '.join(GROUPS)}; or break"
    yield '                else; set found "$found $word"; break; end'
    yield "        end"
    yield "    end"
    yield '    test "$found" = "$argv"'
    yield "end"
    yield "complete -c tidelog -f"
    for word, summary in first_words().items():
        yield f"complete -c tidelog -n '__tidelog_verb' -a {word} -d {_fish_text(summary)}"
    for group in GROUPS:
        for verb in second_words(group):
            yield f"complete -c tidelog -n '__tidelog_verb {group}' -a {verb.name.split()[1]} -d {_fish_text(verb.summary)}"
    for verb in VERBS:
        when = f"-n '__tidelog_verb {verb.name}'"
        if words := choices_of(verb):
            yield f"complete -c tidelog {when} -a {_fish_text(' '.join(words))}"
        elif verb.name not in NO_FILE:
            yield f"complete -c tidelog {when} -F"
        for option in options_of(verb):
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            value = ""
            if option.choices:
                value = f" -x -a {_fish_text(' '.join(option.choices))}"
            elif option.value:
                value = " -r -F" if option.is_file else " -x"
            yield f"complete -c tidelog {when} {names}{value} -d {_fish_text(option.help)}"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def main() -> int:
    """Write the scripts, or compare them."""
    old = []
    for name, lines in SHELLS.items():
        path, text = FOLDER / f"tidelog.{name}", "\n".join(lines()) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            old.append(path.name)
    if old:
        print(f"{', '.join(old)} in cli/completions: run `python tools/make_completions.py`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
