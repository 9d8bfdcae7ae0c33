"""`tidelog run`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from tidelog.daemon.process.runtime import Limits

DESCRIPTION = """\
Run the scheduler on a log until SIGTERM. It takes the log's lock and schedules; if another process holds it, it stands
by, follows, and takes over when that one ends. Other verbs hand their facts to it. SIGHUP reads the configuration file
again. A log that does not exist is made."""
EXAMPLES = """\
  tidelog run --log cluster.db
  tidelog run --log cluster.db --config scheduler.yaml --listen 127.0.0.1:10259
  tidelog run --log cluster.db --listen off --log-format json -v
  tidelog run --log cluster.db --keep 30d
  tidelog run --config scheduler.yaml --write-config-to complete.yaml
  tidelog run --log prod.db --kubeconfig ~/.kube/config --mode record
  tidelog run --log prod.db --kubeconfig in-cluster --mode schedule --config scheduler.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.commands.cluster_options import add_cluster_options
    from tidelog.daemon.process import logs

    parser.add_argument("--config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration")
    parser.add_argument(
        "--write-config-to",
        type=Path,
        metavar="FILE",
        help="write the configuration with everything spelled out to this file, and end",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:10259",
        metavar="ADDRESS:PORT|off",
        help="where metrics and health are served (default: %(default)s)",
    )
    parser.add_argument(
        "--actors",
        type=Path,
        metavar="FILE",
        help="who plays the parts of a cluster that is not there: node agent, autoscaler, … (default: nobody)",
    )
    parser.add_argument(
        "--snapshot-every",
        type=int,
        default=20_000,
        metavar="N",
        help="keep a snapshot of the state after so many records, 0 for never (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        metavar="N|DURATION",
        help="drop older records while running: keep so many (100000), or those of so long (30d, 12h), and what "
        "lies between them and the snapshot before (default: keep all)",
    )
    parser.add_argument(
        "--end-silent-leader",
        metavar="DURATION",
        help="as a standby, kill a leader on this machine that has shown no sign of life for so long (30s), and take over "
        "(default: only say so)",
    )
    parser.add_argument(
        "--no-standby", action="store_true", help="end with an error if another process holds the log"
    )
    add_cluster_options(parser)
    logs.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run it, or write the configuration."""
    import asyncio

    from tidelog.api.errors import UsageError
    from tidelog.cli.commands.cluster_options import live_process
    from tidelog.cli.commands.options import log_path
    from tidelog.daemon.actors.catalogue import read_actors
    from tidelog.daemon.process import logs
    from tidelog.daemon.process.process import Options, Process
    from tidelog.page.site import PageSite

    gates = named_gates(args.feature_gates)
    logs.configure(args.log_format, args.verbosity, level=args.log_level)
    if args.write_config_to is not None:
        write_configuration_file(args.config, gates, args.write_config_to)
        return 0
    if args.kubeconfig is None and args.mode is not None:
        raise UsageError("--mode needs a cluster: name its --kubeconfig")
    end_silent = None
    if args.end_silent_leader is not None:
        end_silent = seconds_of(args.end_silent_leader)
    actors = read_actors(args.actors)
    log = log_path(args)
    options = Options(
        log=log,
        config=args.config,
        gates=gates,
        listen=None if args.listen == "off" else args.listen,
        standby=not args.no_standby,
        end_silent_leader=end_silent,
        limits=limits_of(args),
        flags=flags_of(args),
    )

    site = PageSite({"a": log})

    async def work() -> None:
        if args.kubeconfig is not None:
            await live_process(args, options, site).run()
        else:
            await Process(options, actors, site).run()

    if args.kubeconfig is None:
        asyncio.run(work())
    else:
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(work())
    return 0


def fast_loop() -> Callable[[], AbstractEventLoop] | None:
    """uvloop's, where it is installed: it halves what a request costs."""
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return made


def limits_of(args: argparse.Namespace) -> Limits:
    """The limits that --snapshot-every and --keep name."""
    from tidelog.api.errors import UsageError
    from tidelog.daemon.process.retention import read_retention
    from tidelog.daemon.process.runtime import Limits

    if args.snapshot_every < 0:
        raise UsageError(f"--snapshot-every {args.snapshot_every}: must not be below 0")
    keep = None if args.keep is None else read_retention(args.keep)
    if keep is not None and not args.snapshot_every:
        raise UsageError(
            "--keep needs snapshots, behind which the log can begin: --snapshot-every must not be 0"
        )
    return Limits(snapshot_every=args.snapshot_every, keep=keep)


def flags_of(args: argparse.Namespace) -> dict[str, str]:
    """The options and their values, for `/flagz`."""
    return {name.replace("_", "-"): "" if value is None else str(value) for name, value in vars(args).items()}


def seconds_of(text: str) -> float:
    """The seconds of --end-silent-leader."""
    from tidelog.api.errors import UsageError
    from tidelog.daemon.process.retention import read_retention
    from tidelog.daemon.process.standby import SILENT_SECONDS

    found = read_retention(text, "--end-silent-leader") if text[-1:].isalpha() else None
    if found is None or found.nanos < SILENT_SECONDS * 1e9:
        raise UsageError(f"--end-silent-leader {text}: must be a duration of 5s or more, as 30s or 2m")
    return found.nanos / 1e9


def named_gates(text: str | None) -> dict[str, bool] | None:
    """The gates of --feature-gates by name: only those that were named override the file's."""
    import msgspec

    from tidelog.api.features import parse_feature_gates

    if text is None:
        return None
    parsed = msgspec.to_builtins(parse_feature_gates(text))
    named = (part.partition("=")[0].strip() for part in text.split(","))
    return {name: parsed[name] for name in named if name}


def write_configuration_file(config: Path | None, gates: dict[str, bool] | None, path: Path) -> None:
    """Spell the configuration out, as kube-scheduler's option of this name does."""
    from tidelog.api.errors import TidelogError
    from tidelog.cli.terminal import notice
    from tidelog.configuration.configuration import write_configuration
    from tidelog.daemon.process.scheduler import load_configuration
    from tidelog.eventlog.disk import owner_only
    from tidelog.plugins.registry import installed_plugins

    loaded = load_configuration(config, installed_plugins(), gates)
    for warning in loaded.warnings:
        notice(f"warning: {warning}")
    try:
        with open(path, "w", encoding="utf-8", opener=owner_only) as file:
            file.write(write_configuration(loaded.configuration))
    except OSError as error:
        raise TidelogError(f"{path}: cannot be written: {error.strerror or error}") from error
    notice(f"wrote the configuration to {path}")
