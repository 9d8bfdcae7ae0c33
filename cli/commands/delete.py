"""`tidelog delete`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, add_dry_run, add_namespace, add_output

DESCRIPTION = """\
Delete objects. All of them are deleted, or none. A pod that runs on a node only begins to terminate: it keeps its room
until its node says that it is gone, or its grace period is over."""
EXAMPLES = """\
  tidelog delete pod web-1 web-2
  tidelog delete pod/web-1 pdb/web --ignore-not-found
  tidelog delete -f examples/3-pods.yaml
  tidelog delete pod web-1 --grace-period 0 --force
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("objects", nargs="*", metavar="KIND NAME… | KIND/NAME…", help="what to delete")
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        metavar="FILE|DIR|-",
        help="delete the objects of these manifests",
    )
    parser.add_argument("-R", "--recursive", action="store_true", help="look into directories of directories")
    add_namespace(parser)
    parser.add_argument(
        "--grace-period",
        type=int,
        metavar="SECONDS",
        help="how long a running pod may take to end (default: what its spec says)",
    )
    parser.add_argument("--force", action="store_true", help="take running pods away at once")
    parser.add_argument("--ignore-not-found", action="store_true", help="what does not exist is no error")
    add_dry_run(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Find the keys, submit, report."""
    from tidelog.cli.commands.reporting import submit_and_report
    from tidelog.daemon.intake.messages import Delete

    facts = Delete(
        keys=_keys(args), grace_period_seconds=_grace(args), ignore_not_found=args.ignore_not_found
    )
    return submit_and_report(args, facts, "delete", create=False)


def _keys(args: argparse.Namespace) -> list[str]:
    from tidelog.api.kinds.registry import object_key
    from tidelog.cli.manifest_files import manifests_of
    from tidelog.cli.object_names import key_of, named_objects

    namespace = args.namespace or DEFAULT_NAMESPACE
    if args.filename and args.objects:
        raise UsageError("name the objects, or give manifests with -f, not both")
    if args.filename:
        return [object_key(manifest.object) for manifest in manifests_of(args)]
    names = named_objects(args.objects)
    if not names:
        raise UsageError("delete what? `tidelog delete pod web-1`, or -f FILE")
    return [key_of(kind, namespace, _name(kind.plural, name, args.objects)) for kind, name in names]


def _name(plural: str, name: str | None, words: Sequence[str]) -> str:
    if name is None:
        raise UsageError(f"delete which of the {plural}? `tidelog delete {words[0]} NAME`")
    return name


def _grace(args: argparse.Namespace) -> int | None:
    grace: int | None = args.grace_period
    if grace is not None and not 0 <= grace < 1 << 31:
        raise UsageError(f"--grace-period {grace}: must be a number of seconds, not below 0")
    if args.force:
        if grace:
            raise UsageError("--force takes pods away at once: it goes with --grace-period 0 only")
        return 0
    if grace == 0:
        raise UsageError(
            "--grace-period 0 takes pods away while they may still be running: say --force as well"
        )
    return grace
