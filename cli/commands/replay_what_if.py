"""`tidelog replay what-if`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.api.errors import TidelogError, UsageError
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, add_output, log_path, named_log, print_found
from tidelog.eventlog.address import LogAddress

if TYPE_CHECKING:
    from tidelog.configuration.configuration import SchedulerConfiguration
    from tidelog.plugins.registry import Registry
    from tidelog.replay.history import History, WhatIf
    from tidelog.replay.what_if import Injection

DESCRIPTION = """\
Take the facts of a log and decide anew under another configuration, on a virtual clock: what would have been different? As long
as the decisions are the recorded ones, the what-if follows the log exactly; from the first difference on it is on its own. Facts
that only answered a decision that was not made are left out."""
EXAMPLES = """\
  tidelog replay what-if cluster.db --config new.yaml
  tidelog replay what-if cluster.db --gate PodTopologySpreadFallbackMode=false --pods
  tidelog replay what-if cluster.db --drop node/n7
  tidelog replay what-if cluster.db --inject more-nodes.yaml --before 1200 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log (default: that of --log)")
    parser.add_argument(
        "--config", metavar="FILE", help="the configuration to decide under (default: as recorded)"
    )
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="GATE=BOOL",
        help="a feature gate that is to be different",
    )
    parser.add_argument(
        "--drop",
        "--without",
        action="append",
        default=[],
        metavar="SEQ|KIND/NAME",
        help="a fact, or an object, that never was",
    )
    parser.add_argument(
        "--inject",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests of objects that were not there",
    )
    parser.add_argument(
        "--before",
        type=int,
        metavar="SEQ",
        help="where the injected objects come (default: at the beginning)",
    )
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="of what --drop and --inject name")
    parser.add_argument("--pods", action="store_true", help="show every pod whose fate differs")
    parser.add_argument("--save", metavar="FILE", help="keep the log of the what-if")
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Decide anew, compare, print. The exit code is 0 whether or not anything differs: that was the question."""
    import asyncio

    from tidelog.cli.text.what_if import as_data, comparison_lines
    from tidelog.replay.files import write_log

    if (args.file or "").endswith((".yaml", ".yml")):
        raise UsageError(f"{args.file} is no log: a configuration goes to --config, an object to --inject")
    path = named_log(args.file) if args.file else log_path(args)
    found, records, first = asyncio.run(_made(path, args))
    if args.save:
        asyncio.run(write_log(args.save, records, first=first))
    print_found(args, as_data(found, pods=args.pods), comparison_lines(found, pods=args.pods))
    return 0


async def _made(path: LogAddress, args: argparse.Namespace) -> WhatIf:
    from tidelog.cli.progress import Progress
    from tidelog.replay.history import open_history

    async with open_history(path) as history:
        first, head = await history.first_state() + 1, history.log.head.seq
        if first > head > 0:
            raise TidelogError(
                f"{history.log.name}: the log was compacted to its end, so there is no decision to make again; `tidelog plan -f FILE` tells where pods would go now"
            )
        drop = [await _dropped(history, word, args.namespace, first) for word in args.drop]
        configure = _configure(args, history.registry)
        inject = _injections(args, first, head)
        with Progress("deciding anew", "records") as progress:
            return await history.what_if(
                configure,
                drop=drop,
                inject=inject,
                progress=progress.update,
                comparing=progress.then("comparing"),
            )


async def _dropped(history: History, word: str, namespace: str | None, oldest: int) -> str | int:
    """The record's number or the object's key; refuses what is not in the log."""
    from tidelog.api.kinds.registry import kind_named
    from tidelog.cli.object_names import key_of
    from tidelog.eventlog.records import decode_outcome

    if word.isascii() and word.isdigit():
        newest = history.log.head.seq
        if not oldest <= int(word) <= newest:
            raise UsageError(f"--drop {word}: the log has the records {oldest} to {newest}")
        record = await history.log.record(int(word))
        if decode_outcome(record) is not None:
            raise UsageError(
                f"--drop {word}: that record is a decision ({record.kind}); only facts can be left out"
            )
        return int(word)
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise UsageError(
            f"--drop {word}: must be the number of a record, or an object as KIND/NAME, for example node/n3"
        )
    place, inner, last = name.rpartition("/")
    key = key_of(kind_named(kind), place if inner else namespace or DEFAULT_NAMESPACE, last)
    if await history.span_of(key) is None:
        if oldest > 1 and key in (await history.core_from_snapshot(oldest - 1)).objects:
            return key
        kept = f" since record {oldest}, where it begins" if oldest > 1 else ""
        raise UsageError(f"--drop {word}: nothing is said of such an object in the log{kept}")
    return key


def _configure(
    args: argparse.Namespace, registry: Registry
) -> Callable[[SchedulerConfiguration], SchedulerConfiguration]:
    """Turns each recorded configuration into the one that is to be tried."""
    import msgspec

    from tidelog.cli.terminal import notice
    from tidelog.configuration.configuration import read_configuration

    gates = _gates(args.gate)
    if args.config:
        try:
            text = Path(args.config).read_bytes()
        except OSError as error:
            raise TidelogError(f"cannot read {args.config}: {error.strerror or error}") from error
        loaded = read_configuration(text, registry, source=args.config, gates=gates or None)
        for warning in loaded.warnings:
            notice(f"warning: {args.config}: {warning}")
        return lambda _recorded: loaded.configuration
    if not gates:
        return lambda recorded: recorded

    def with_gates(recorded: SchedulerConfiguration) -> SchedulerConfiguration:
        plain = msgspec.to_builtins(recorded)
        plain["featureGates"].update(gates)
        return msgspec.convert(plain, type(recorded))

    return with_gates


def _gates(words: Sequence[str]) -> dict[str, bool]:
    """The gates that were named, by name."""
    import msgspec

    from tidelog.api.features import parse_feature_gates

    text = ",".join(words)
    named = {word.partition("=")[0].strip() for word in text.split(",")}
    plain = msgspec.to_builtins(parse_feature_gates(text))
    return {name: value for name, value in plain.items() if name in named}


def _injections(args: argparse.Namespace, first: int, head: int) -> list[Injection]:
    from tidelog.cli.manifest_files import read_manifests
    from tidelog.replay.what_if import Injection

    if not args.inject:
        return []
    before = first if args.before is None else args.before
    if before < first:
        raise UsageError(f"--before {before}: the first record is {first}")
    if before > head:
        raise UsageError(f"--before {before}: the log has the records {first} to {head}")
    found = read_manifests(args.inject, namespace=args.namespace or DEFAULT_NAMESPACE, recursive=False)
    return [Injection(before, manifest.object) for manifest in found]
