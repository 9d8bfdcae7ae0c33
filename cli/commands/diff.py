"""`tidelog diff`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.cli.commands.options import (
    add_manifests,
    add_namespace,
    add_output,
    add_strict,
    log_path,
)

if TYPE_CHECKING:
    from tidelog.api.differences import FieldChange

DESCRIPTION = """\
Say what `tidelog apply` would change: the objects of the manifests beside those of the log, field by field. A + is added, a - is
taken away (a put replaces the object whole), a ~ is another value. Nothing is written."""
EXAMPLES = """\
  tidelog diff -f examples/
  tidelog diff -f nodes.yaml -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_manifests(parser)
    add_namespace(parser)
    add_strict(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Read, admit beside what is there, compare. The exit code is 0 whether or not anything differs: that was the question."""
    import asyncio

    from tidelog.api.differences import differences
    from tidelog.api.kinds.registry import object_key
    from tidelog.api.text import formatted, safe
    from tidelog.cli.manifest_files import manifests_of
    from tidelog.cli.moments import NOW, objects_at
    from tidelog.cli.terminal import notice
    from tidelog.daemon.intake.messages import short_name
    from tidelog.replay.plan import admitted

    path = log_path(args)
    manifests = manifests_of(args)
    table, now = asyncio.run(objects_at(path, NOW))
    stored, warnings = admitted(table, [manifest.object for manifest in manifests], now)
    for warning in warnings:
        notice(f"warning: {warning}")
    found = [(object_key(new), table.get(object_key(new)), new) for new in stored]
    changes = {key: differences(old, new) for key, old, new in found}
    if args.output != "table":
        print(formatted(changes, args.output))
        return 0
    for key, old, _ in found:
        action = "would be created" if old is None else "would change" if changes[key] else "unchanged"
        print(f"{safe(short_name(key))} {action}")
        for line in _lines(changes[key]):
            print(f"  {safe(line)}")
    return 0


def _lines(changes: Iterable[FieldChange]) -> Iterable[str]:
    for change in changes:
        if not change.old:
            yield f"+ {change.path}: {change.new}"
        elif not change.new:
            yield f"- {change.path}: {change.old}"
        else:
            yield f"~ {change.path}: {change.old} -> {change.new}"
