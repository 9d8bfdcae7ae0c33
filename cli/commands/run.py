"""`tidelog run`."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Run the scheduler on a log until SIGTERM. It takes the log's lock and schedules; if another process holds it, it stands
by, follows, and takes over when that one ends. Other verbs hand their facts to it. SIGHUP reads the configuration file
again. A log that does not exist is made."""
EXAMPLES = """\
  tidelog run --log cluster.db
  tidelog run --log cluster.db --config scheduler.yaml --listen 127.0.0.1:10259
  tidelog run --log cluster.db --listen off --log-format json -v
  tidelog run --config scheduler.yaml --write-config-to complete.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
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
        "--no-standby", action="store_true", help="end with an error if another process holds the log"
    )
    logs.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run it, or write the configuration."""
    import asyncio

    from tidelog.api.errors import UsageError
    from tidelog.cli.commands.options import log_path
    from tidelog.daemon.actors.catalogue import read_actors
    from tidelog.daemon.process import logs
    from tidelog.daemon.process.process import Options, Process
    from tidelog.daemon.process.runtime import Limits

    gates = named_gates(args.feature_gates)
    logs.configure(args.log_format, args.verbosity)
    if args.write_config_to is not None:
        write_configuration_file(args.config, gates, args.write_config_to)
        return 0
    if args.snapshot_every < 0:
        raise UsageError(f"--snapshot-every {args.snapshot_every}: must not be below 0")
    actors = read_actors(args.actors)
    options = Options(
        log=log_path(args),
        config=args.config,
        gates=gates,
        listen=None if args.listen == "off" else args.listen,
        standby=not args.no_standby,
        limits=Limits(snapshot_every=args.snapshot_every),
    )

    async def work() -> None:
        await Process(options, actors).run()

    asyncio.run(work())
    return 0


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
