"""Words and options that people bring along from kubectl, and where tidelog has what they want."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

KUBECTL = frozenset(
    [
        "annotate",
        "api-resources",
        "api-versions",
        "auth",
        "cluster-info",
        "config",
        "cordon",
        "create",
        "drain",
        "edit",
        "expose",
        "kustomize",
        "label",
        "patch",
        "proxy",
        "replace",
        "rollout",
        "scale",
        "set",
        "taint",
        "uncordon",
        "wait",
    ]
)
"""Verbs that kubectl has, and that it does on the log by way of `tidelog serve`."""
NOTHING_RUNS = {
    **dict.fromkeys(
        ("attach", "cp", "debug", "exec", "logs", "port-forward"),
        "a log has no containers; `tidelog log tail` shows its records, `tidelog why` the story of a pod",
    ),
    "top": "nobody measures what pods use; `tidelog describe node n1` shows what they ask for, and what is free",
}
"""Verbs of kubectl that ask for running containers: verb → what there is instead."""
MEANT = {
    "explain": "why", "help": "--help", "history": "log tail", "pending": "queue", "pods": "get pods", "nodes": "get nodes",
    "status": "queue", "start": "run", "simulate": "replay what-if", "what-if": "replay what-if", "verify": "log verify",
    "ui": "page", "dashboard": "page", "show": "log show",
}  # fmt: skip
"""Words that people try → the verb that does it."""
ALIASES = {"events": ["get", "events"]}
"""A verb of kubectl's → the words that do the same here."""
_OPTIONS = {
    "w": "`tidelog log tail -f` follows the log, and `kubectl get -w` works on `tidelog serve`",
    "watch": "`tidelog log tail -f` follows the log, and `kubectl get -w` works on `tidelog serve`",
    "show-labels": "-o wide shows labels",
    "pending": "`tidelog queue` lists the pods that wait for a node",
    "validate": "--strict refuses unknown fields",
    "field-selector": "`tidelog get pods --field-selector status.phase=Pending` has it",
    "types": "`tidelog get events --field-selector type=Warning` has it",
    "image": "`tidelog run` is the scheduler; `kubectl run` works on `tidelog serve`",
}
"""Options of kubectl's and others' → what there is here."""
_DRY_RUNS = {"client": True, "server": True, "none": False}


def without_dry_run_values(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--dry-run=client` and `=server` as `--dry-run`: there is one way, which asks the log and appends nothing."""
    found = []
    for word in arguments:
        name, _, value = word.partition("=")
        if name != "--dry-run" or value not in _DRY_RUNS:
            found.append(word)
        elif _DRY_RUNS[value]:
            found.append(name)
    return found


def option_hint(message: str, parser: argparse.ArgumentParser) -> str:
    """Name what does what somebody wanted of an option that argparse refused; empty where nothing is known."""
    if "argument -o" in message and any(
        name in message for name in ("jsonpath", "custom-columns", "go-template")
    ):
        return "; use -o json and jq, or kubectl on `tidelog serve`"
    _, found, words = message.partition("unrecognized arguments: ")
    option = next((word.partition("=")[0] for word in words.split() if word.startswith("-")), "")
    if not found or not option:
        return ""
    name = option.lstrip("-")
    known = [known for action in parser._actions for known in action.option_strings]
    if "--drop" in known and name.startswith(("without", "remove", "exclude")):
        return "; --drop node/n3 leaves an object out, as if it had never been"
    if name in _OPTIONS and (name != "validate" or "--strict" in known):
        return f"; {_OPTIONS[name]}"
    close = difflib.get_close_matches(
        option, [word for word in known if word.startswith("--")], n=1, cutoff=0.75
    )
    if close:
        return f"; did you mean {close[0]}?"
    return "; kubectl on `tidelog serve` has all of its options" if parser.prog.split()[1] in _SHARED else ""


_SHARED = ("get", "describe", "apply", "delete", "diff")
"""Verbs that kubectl has too."""
