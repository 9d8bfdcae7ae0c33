"""`tidelog patch-condition`."""

from __future__ import annotations

import argparse

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, add_dry_run, add_namespace, add_output

DESCRIPTION = """\
Set a condition of a pod's status, as a controller would: a cluster autoscaler says with NodeProvisioningInProgress
that it makes a node for the pod, or that it cannot (KEP-3990)."""
EXAMPLES = """\
  tidelog patch-condition pod web-1 --type NodeProvisioningInProgress --status True
  tidelog patch-condition pod web-1 --type NodeProvisioningInProgress --status False --reason ProvisioningFailed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("object", nargs="+", metavar="pod NAME | pod/NAME", help="the pod")
    parser.add_argument("--type", required=True, help="the type of the condition")
    # Another word is admission's to refuse, with path and rule.
    parser.add_argument("--status", required=True, metavar="True|False|Unknown", help="its status")
    parser.add_argument("--reason", default="", help="a word for a program")
    parser.add_argument("--message", default="", help="a sentence for people")
    add_namespace(parser)
    add_dry_run(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Find the pod, submit, report."""
    from tidelog.cli.commands.reporting import submit_and_report
    from tidelog.cli.object_names import key_of, named_objects
    from tidelog.daemon.intake.messages import SetCondition

    (kind, name), *more = named_objects(args.object)
    if more or name is None or kind.name != "Pod":
        raise UsageError("name one pod: `tidelog patch-condition pod web-1 …`")
    facts = SetCondition(
        key=key_of(kind, args.namespace or DEFAULT_NAMESPACE, name),
        type=args.type,
        status=args.status,
        reason=args.reason,
        message=args.message,
    )
    return submit_and_report(args, facts, "patch-condition", create=False)
