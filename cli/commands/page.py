"""`tidelog page`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.api.errors import TidelogError, UsageError
from tidelog.cli.commands.options import add_log, log_path, named_log

if TYPE_CHECKING:
    from tidelog.page.site import PageSite

DESCRIPTION = """\
Show a log as a page in a browser: scrub through it, see queues, nodes and pods at every moment, and why each pod is where it is.
With -o the page is one file that fetches nothing, to attach to an incident; with --open it is served on this machine, read-only, until Ctrl-C.
A running daemon serves the same page at /ui/ of its HTTP address. A second log to compare is made by `tidelog replay what-if … --save FILE`."""
EXAMPLES = """\
  tidelog page cluster.db -o incident.html
  tidelog page cluster.db -o lunch.html --from 2026-03-01T12:00:00Z --to 2026-03-01T13:00:00Z
  tidelog page cluster.db --open
  tidelog page a.db --against b.db --open
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the page into this new file")
    parser.add_argument(
        "--open", action="store_true", help="serve the page on this machine and open the browser"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        default="127.0.0.1:0",
        help="where --open serves (default: %(default)s, a free port of this machine)",
    )
    parser.add_argument("--no-browser", action="store_true", help="with --open: only print the address")
    parser.add_argument(
        "--against", metavar="LOG", help="a second log to compare, for example a what-if of the first"
    )
    parser.add_argument("--from", dest="first", metavar="SEQ|TIME", help="begin the file with this record")
    parser.add_argument("--to", dest="last", metavar="SEQ|TIME", help="end the file with this record")


def run(args: argparse.Namespace) -> int:
    """Export, or serve."""
    logs: dict[str, str | Path] = {"a": log_path(args)}
    if args.against:
        logs["b"] = named_log(args.against)
    if bool(args.output) == args.open:
        raise UsageError("write the page with -o FILE, or look at it with --open")
    if args.open:
        if args.first or args.last:
            raise UsageError("--from and --to are for a file; with --open the whole log is there")
        return _serve(logs, args)
    return _export(logs, args)


def _export(logs: dict[str, str | Path], args: argparse.Namespace) -> int:
    import asyncio
    import os

    from tidelog.cli.progress import Progress
    from tidelog.cli.terminal import notice
    from tidelog.eventlog.disk import owner_only
    from tidelog.page.export import export

    async def made(progress: Progress):  # type: ignore[no-untyped-def]
        first, last = await _seq(logs["a"], args.first), await _seq(logs["a"], args.last)
        return await export(logs, first=first, last=last, progress=progress.update)

    try:
        with open(args.output, "x", encoding="utf-8", opener=owner_only) as file:
            try:
                with Progress("going through the log", "records") as progress:
                    found = asyncio.run(made(progress))
                file.write(found.text)
            except BaseException:
                os.unlink(args.output)
                raise
    except FileExistsError:
        raise TidelogError(f"{args.output}: is there already; write to another name") from None
    except OSError as error:
        raise TidelogError(f"cannot write {args.output}: {error.strerror or error}") from error
    for left in found.left_out:
        notice(f"left out of the page: {left}")
    print(f"{args.output}: {len(found.text.encode()) / 2**20:.1f} MiB; open it in a browser")
    return 0


async def _seq(path: str | Path, text: str | None) -> int | None:
    from tidelog.cli.moments import dated, parse_at, seq_of
    from tidelog.eventlog.reader import open_reader

    if text is None:
        return None
    async with await open_reader(path) as log:
        return await seq_of(log, await dated(log, parse_at(text)))


def _serve(logs: dict[str, str | Path], args: argparse.Namespace) -> int:
    import contextlib
    import webbrowser

    from tidelog.page.serving import page_server
    from tidelog.page.site import PageSite

    for path in logs.values():
        _check(path)
    site: PageSite = PageSite(logs)
    with page_server(args.listen, site) as address:
        url = f"http://{address}/ui/"
        print(f"{url}   (Ctrl-C ends it)", flush=True)
        if not args.no_browser:
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            _wait()
    return 0


def _check(path: str | Path) -> None:
    """Fail now, in one line, for a log that cannot be opened."""
    import asyncio

    from tidelog.eventlog.reader import open_reader

    async def look() -> None:
        await (await open_reader(path)).close()

    asyncio.run(look())


def _wait() -> None:
    import signal
    import threading

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
