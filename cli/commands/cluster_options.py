"""The options of `tidelog run` about a live cluster, and the process that they describe.

What the command line says counts before what the configuration's section `tidelog.cluster` says.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from tidelog.configuration.cluster import LeaseOptions
    from tidelog.daemon.process.process import Options, Process
    from tidelog.page.site import PageSite


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about a live cluster."""
    group = parser.add_argument_group(
        "a live cluster (docs/live.md); the configuration's section tidelog.cluster says the same"
    )
    group.add_argument(
        "--kubeconfig",
        metavar="FILE|in-cluster",
        help="attach the log to the API server that this file names",
    )
    group.add_argument("--context", default="", help="another context of the file than its current one")
    group.add_argument(
        "--mode",
        choices=("record", "shadow", "schedule"),
        help="record: read only, decide nothing; shadow: the same, and judge what the cluster's own scheduler decides; schedule: bind pods (default: record)",
    )
    group.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME|none",
        help="the Lease that is held while this process schedules (default: kube-system/tidelog-scheduler)",
    )
    group.add_argument(
        "--redact",
        choices=("standard", "images", "pseudonymous"),
        help="what is taken out of objects before they are stored, beside annotations and texts (default: standard)",
    )
    group.add_argument("--redact-key", type=Path, metavar="FILE", help="the key of pseudonyms; keep it")
    group.add_argument(
        "--keep-annotations",
        default="",
        metavar="KEY[,KEY…]",
        help="annotations that are stored all the same",
    )
    group.add_argument(
        "--record-kinds", default="", metavar="KIND[,KIND…]", help="read these kinds only (record and shadow)"
    )
    group.add_argument(
        "--shadow-records",
        action="store_true",
        help="with --mode shadow: put each verdict into the log, too (`tidelog shadow report` computes them from the log anyway)",
    )
    group.add_argument(
        "--unsettled",
        type=int,
        metavar="N",
        help="decide while at most so many bindings are not seen yet (default: 128)",
    )
    group.add_argument(
        "--events",
        choices=("all", "problems", "none"),
        help="the Events that are posted: problems leaves out one for each pod that is bound (default: all)",
    )
    group.add_argument(
        "--reattach", action="store_true", help="the log was another cluster's, and is to go on with this one"
    )
    group.add_argument(
        "--replace-kube-scheduler",
        action="store_true",
        help="schedule pods of default-scheduler although a kube-scheduler holds its Lease",
    )


def live_process(args: argparse.Namespace, options: Options, site: PageSite) -> Process:
    """The process on a live cluster that the options describe."""
    from tidelog.api.errors import UsageError
    from tidelog.api.projection import Projection
    from tidelog.daemon.process.scheduler import load_configuration
    from tidelog.kube.cluster.credentials import read_access
    from tidelog.kube.cluster.live import ClusterSettings, Mode
    from tidelog.kube.cluster.process import LiveProcess
    from tidelog.kube.cluster.writer import WriterSettings
    from tidelog.plugins.registry import installed_plugins

    if args.actors is not None:
        raise UsageError(
            "--actors play the parts of a cluster that is not there; leave them out with --kubeconfig"
        )
    said = load_configuration(options.config, installed_plugins(), options.gates).cluster
    section = said.section
    mode: Mode = args.mode or section.mode or "record"
    kinds = named(args.record_kinds)
    if mode == "schedule" and kinds:
        raise UsageError("--record-kinds: --mode schedule needs every kind that decisions depend on")
    if args.shadow_records and mode != "shadow":
        raise UsageError("--shadow-records: only with --mode shadow is anything judged")
    unsettled = args.unsettled if args.unsettled is not None else section.unsettled
    if unsettled is not None and unsettled < 1:
        raise UsageError(f"--unsettled {unsettled}: must be at least 1")
    events = args.events or section.events or "all"
    settings = ClusterSettings(
        mode=mode,
        kinds=kinds,
        lease=lease_options(args.lease, said.lease),
        unsettled=unsettled or ClusterSettings().unsettled,
        writer=WriterSettings(
            concurrency=section.concurrency,
            strict_binding=section.strict_binding,
            preemption=section.preemption,
            annotate_explanation=section.annotate_explanation,
        ),
        events=events != "none",
        scheduled_events=events == "all",
        shadow_records=args.shadow_records,
        reattach=args.reattach,
        replace_kube_scheduler=args.replace_kube_scheduler,
        qps=said.qps,
        burst=said.burst,
        resync_check=said.resync_check,
    )
    redaction = args.redact or section.redaction or "standard"
    projection = Projection(
        level="pseudonymous" if redaction == "pseudonymous" else "standard",
        key=read_key(args.redact_key),
        keep_annotations=named(args.keep_annotations) or section.keep_annotations,
        hide_images=redaction == "images",
    )
    return LiveProcess(options, read_access(args.kubeconfig, args.context), settings, projection, site)


def lease_options(text: str | None, said: LeaseOptions) -> LeaseOptions | None:
    """The Lease of --lease, with the times of the configuration; None for none."""
    from tidelog.api.errors import UsageError

    if text == "none":
        return None
    if text is None:
        return said
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise UsageError(f"--lease {text}: must be NAMESPACE/NAME, or none")
    return replace(said, namespace=namespace, name=name)


def named(text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def read_key(path: Path | None) -> bytes:
    """The key of pseudonyms; empty without a file."""
    from tidelog.api.errors import UsageError

    if path is None:
        return b""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"--redact-key {path}: cannot be read: {error.strerror or error}") from error
    if len(key) < 16:
        raise UsageError(f"--redact-key {path}: must hold at least 16 bytes")
    return key
