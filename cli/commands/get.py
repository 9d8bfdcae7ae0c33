"""`tidelog get`."""

from __future__ import annotations

import argparse

from tidelog.api.errors import TidelogError, UsageError
from tidelog.cli.commands.options import DEFAULT_NAMESPACE, add_namespace, add_output, log_path

DESCRIPTION = """\
List objects as the log has them: now, or with --at after an earlier record or at an earlier time. Ages count from that
moment. `all` stands for every kind; short names are kubectl's (po, no, pdb, pc, …). `get events` lists what the scheduler
has said of pods and groups in the last hour of the log, as an API server does, or with --since further back; `tidelog events` is the same."""
EXAMPLES = """\
  tidelog get pods
  tidelog get nodes,pods -A -o wide
  tidelog get pod web-1 -o yaml
  tidelog get pods -l 'app in (web, api), !canary, tier!=test'
  tidelog get pods -A --field-selector status.phase=Pending,spec.nodeName=
  tidelog get events --for pod/web-1 --since 2d
  tidelog get pods --at 120
  tidelog get pods --at 2026-03-01T14:03:00Z
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "objects",
        nargs="+",
        metavar="KIND[,KIND] [NAME…] | KIND/NAME…",
        help="what to list; all: everything",
    )
    add_namespace(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the objects of every namespace")
    parser.add_argument(
        "-l", "--selector", default="", metavar="SELECTOR", help="only objects with these labels"
    )
    parser.add_argument(
        "--field-selector",
        default="",
        metavar="SELECTOR",
        help="only objects with these fields, those that an API server selects by: status.phase=Pending,spec.nodeName=n1",
    )
    parser.add_argument(
        "--at",
        metavar="SEQ|TIME",
        help="as it was after this record, or at this time: 14:03, yesterday 14:03, 2026-03-01T14:03:00Z, or 5m ago",
    )
    parser.add_argument(
        "--for", dest="about", metavar="KIND/NAME", help="of events: only those about this object"
    )
    parser.add_argument(
        "--since", default="1h", metavar="DURATION", help="of events: how far back (default: %(default)s)"
    )
    parser.add_argument("--no-headers", action="store_true", help="leave out the headings of tables")
    add_output(parser, "table", "wide", "json", "yaml", "name")


def run(args: argparse.Namespace) -> int:
    """Read the log, select, print."""
    import asyncio

    from tidelog.cli.moments import mentioned, objects_at, parse_at, tell_end
    from tidelog.cli.object_names import EVENTS, named_objects
    from tidelog.cli.tables.listing import Listing, fields_of, missing_text, selected

    if args.objects[0].lower() in EVENTS:
        from tidelog.cli.events import print_events

        return print_events(args)
    wanted = named_objects(args.objects)
    names = [(kind, name) for kind, name in wanted if name is not None]
    if names and (args.all_namespaces or args.selector or args.field_selector):
        raise UsageError(
            "objects that are named are not selected as well: leave out -A, -l and --field-selector, or the names"
        )
    at = parse_at(args.at)
    matches = selected(args.selector)
    fields = {kind.name: fields_of(args.field_selector, kind.name) for kind, _ in wanted}
    table, now = asyncio.run(objects_at(log_path(args), at))
    namespace = None if args.all_namespaces else args.namespace or DEFAULT_NAMESPACE
    listing = Listing(table, now, namespace)
    if names:
        missing = listing.add_named(names)
        if missing:
            gone = asyncio.run(mentioned(log_path(args), missing, table.seq))
            raise TidelogError(missing_text(missing, gone, namespace or DEFAULT_NAMESPACE))
    else:
        listing.add_kinds([kind for kind, _ in wanted], matches, fields, initial=args.objects != ["all"])
    if args.output in ("table", "wide"):
        tell_end(at, now)
        listing.tell_placed(fields.get("Pod", ()))
    listing.print(args.output, headings=not args.no_headers)
    return 0
