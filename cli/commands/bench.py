"""`tidelog bench`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_output, print_found

DESCRIPTION = """\
Run a benchmark of the repository on this machine and print its figures. Without a name: list the benchmarks. Run them on
an idle machine; the log is written to the directory for temporary files, so its disk counts."""
EXAMPLES = """\
  tidelog bench
  tidelog bench queue
  tidelog bench queue --pods 20000 -o json
  tidelog bench postgres --log postgresql://owner@db.example/scratch
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("benchmark", nargs="?", metavar="NAME", help="which one; leave it out for a list")
    parser.add_argument("--nodes", type=int, metavar="N", help="so many nodes, where the benchmark has nodes")
    parser.add_argument("--pods", type=int, metavar="N", help="so many pods, where it has pods")
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Run it, print its figures."""
    from tidelog.api.errors import UsageError
    from tidelog.api.kinds.registry import suggestion
    from tidelog.api.text import table
    from tidelog.cli.benchmark_catalogue import benchmarks, run_benchmark
    from tidelog.cli.text.figures import as_text

    known = benchmarks()
    if args.benchmark is None:
        print_found(args, known, [table(("BENCHMARK", "MEASURES"), list(known.items()))])
        return 0
    if args.benchmark not in known:
        close = suggestion(args.benchmark, list(known))
        hint = f", did you mean {close}?" if close else ""
        raise UsageError(f"there is no benchmark {args.benchmark}{hint} (known: {', '.join(known)})")
    sizes = {"nodes": args.nodes, "pods": args.pods}
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise UsageError(f"--{name} {size}: must be at least 1")
    given = {name: size for name, size in sizes.items() if size is not None}
    figures = run_benchmark(args.benchmark, given, args.log or "")
    print_found(args, figures, [as_text(figures)])
    return 0
