"""`tidelog apply`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import (
    add_dry_run,
    add_manifests,
    add_namespace,
    add_output,
    add_strict,
)

DESCRIPTION = """\
Put the objects of manifests into the log: YAML with any number of documents, JSON, lists, what `kubectl get -o json`
prints. All of them enter, or none: when one breaks a rule, every error of every object is listed and nothing is changed.
What is already so appends nothing. A log that does not exist is made.

A put replaces the object whole: what the manifest leaves out is taken away, and a warning names it, with --dry-run beforehand. Fields that a kind
does not have are warned of, with the closest known one; --strict refuses them. Kinds that no decision depends on are left out and counted."""
EXAMPLES = """\
  tidelog apply --log cluster.db -f examples/
  tidelog apply -f nodes.yaml -f pods.yaml --dry-run
  tidelog apply -f pod.yaml --strict
  kubectl get all,nodes,pdb,pc -A -o json | tidelog apply -f -
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_manifests(parser)
    add_namespace(parser)
    add_dry_run(parser)
    add_strict(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Read, submit, report."""
    from tidelog.cli.commands.options import log_path
    from tidelog.cli.commands.reporting import submit_and_report
    from tidelog.cli.manifest_files import manifests_of
    from tidelog.daemon.intake.messages import Apply

    log_path(args)
    found = manifests_of(args)
    facts = Apply(objects=[m.object for m in found], sources=[m.source for m in found])
    return submit_and_report(args, facts, "apply")
