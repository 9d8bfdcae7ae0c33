"""`tidelog serve`."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Serve the log as the Kubernetes API, with the scheduler inside, until SIGTERM: kubectl, client libraries and controllers
work on it. It listens on this machine only, over HTTPS with a certificate and a token of its own, which are in a
kubeconfig that nobody else can read. A log that does not exist is made. Needs the extra: pip install 'tidelog[kube]'."""
EXAMPLES = """\
  tidelog serve --log cluster.db
  export KUBECONFIG=cluster.db.kubeconfig; kubectl get nodes
  tidelog serve --log cluster.db --listen 127.0.0.1:0 --actors actors.yaml
  tidelog serve --log cluster.db --no-scheduler
  tidelog serve --log postgresql://tidelog@db.example/cluster --kubeconfig-out ~/cluster.kubeconfig
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.daemon.process import logs

    parser.add_argument("--config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8001",
        metavar="ADDRESS:PORT",
        help="where the API is served (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig-out",
        type=Path,
        metavar="FILE",
        help="where to write the kubeconfig (default: LOG.kubeconfig; of a database DATABASE.kubeconfig in this directory)",
    )
    parser.add_argument("--no-scheduler", action="store_true", help="decide nothing: somebody else schedules")
    parser.add_argument(
        "--actors",
        type=Path,
        metavar="FILE",
        help="who plays the parts of a cluster that is not there: node agent, controllers, … (default: nobody)",
    )
    parser.add_argument(
        "--metrics-listen",
        default="off",
        metavar="ADDRESS:PORT|off",
        help="where metrics, health and the page (/ui/) are served (default: %(default)s)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="more tokens that are let in: lines of TOKEN,USER as kube-apiserver takes them",
    )
    parser.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="let in who has a certificate of this authority, without a token",
    )
    parser.add_argument(
        "--insecure-http",
        nargs="?",
        const="read-only",
        default="",
        choices=("read-only", "read-write"),
        help="plain HTTP without a token, on this machine only; without a word it only answers questions",
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
        metavar="RECORDS|TIME",
        help="drop older records while serving: keep so many (100000), or those of so long (30d, 12h); who watches from "
        "before is told 410 (default: keep all)",
    )
    parser.add_argument(
        "--no-standby", action="store_true", help="end with an error if another process holds the log"
    )
    logs.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve it."""
    import asyncio

    from msgspec.structs import replace

    from tidelog.api.errors import TidelogError, UsageError
    from tidelog.cli.commands.options import log_path
    from tidelog.cli.commands.run import fast_loop, flags_of, limits_of, named_gates
    from tidelog.daemon.actors.catalogue import read_actors
    from tidelog.daemon.process import logs
    from tidelog.daemon.process.process import Options
    from tidelog.eventlog.address import is_database
    from tidelog.page.site import PageSite

    try:
        from tidelog.kube.serve.process import KUBECONFIG, TLS, ServeProcess, beside
        from tidelog.kube.serve.server import Settings
    except ModuleNotFoundError as error:
        raise TidelogError(f"tidelog serve needs {error.name}: pip install 'tidelog[kube]'") from error

    logs.configure(args.log_format, args.verbosity, level=args.log_level)
    limits = replace(limits_of(args), decides=not args.no_scheduler)
    if args.insecure_http and (args.token_file or args.client_ca):
        raise UsageError("--insecure-http lets everybody in; leave --token-file and --client-ca out")
    actors = read_actors(args.actors)
    log = log_path(args)
    options = Options(
        log=log,
        config=args.config,
        gates=named_gates(args.feature_gates),
        listen=None if args.metrics_listen == "off" else args.metrics_listen,
        standby=not args.no_standby,
        limits=limits,
        flags=flags_of(args),
    )
    kubeconfig = args.kubeconfig_out or beside(log, KUBECONFIG)
    settings = Settings(
        listen=args.listen,
        kubeconfig=kubeconfig,
        # Of a log in a database all of it is where the kubeconfig is.
        tls=beside(kubeconfig.with_suffix("") if is_database(log) else log, TLS),
        insecure=args.insecure_http,
        token_file=args.token_file,
        client_ca=args.client_ca,
    )

    async def work() -> None:
        await ServeProcess(options, settings, actors, PageSite({"a": log})).run()

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(work())
    return 0
