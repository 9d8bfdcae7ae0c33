"""A page on this machine for a log that nobody runs: the daemon's HTTP server with nothing but the page on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from tidelog.daemon.http.endpoints import bound_server
from tidelog.daemon.http.server import HttpLimits, Response
from tidelog.page.site import PageSite


@contextlib.contextmanager
def page_server(listen: str, site: PageSite) -> Iterator[str]:
    """Serve until the block ends; yields the address. Raises TidelogError if it cannot be had."""

    def respond(target: str) -> Response:
        url = urlsplit(target)
        return site.respond(url.path, parse_qs(url.query, keep_blank_values=True))

    server = bound_server(listen, respond, HttpLimits())
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="tidelog-page", daemon=True)
    thread.start()
    try:
        host, port = str(server.server_address[0]), server.server_address[1]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        site.close()
        thread.join()
