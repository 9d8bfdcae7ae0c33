"""The page's own files: as they are for a browser that fetches them, and as one document for a file that fetches nothing.

The script's modules import each other by name. In one document they stand behind each other without their imports and exports, each after those
that it needs; their top-level names differ, which `tests/page` holds.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from html import escape

from tidelog.cli.shipped import folder

ENTRY = "main.js"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) )", re.MULTILINE)


@cache
def asset(name: str) -> str:
    """Return one of the page's files as text."""
    return (folder("page") / "assets" / name).read_text(encoding="utf-8")


def asset_type(name: str) -> str | None:
    """Return the media type of a file that may be fetched by this name; None if there is none."""
    if not re.fullmatch(r"[a-z]+\.(?:css|js)", name):
        return None
    if not (folder("page") / "assets" / name).is_file():
        return None
    return TYPES[name[name.rindex(".") :]]


def live_document() -> str:
    """Return the document for a page whose files and answers are fetched."""
    head = '<link rel="stylesheet" href="page.css"><script type="module" src="main.js"></script>'
    return _document(head, "")


LIVE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The rights of a page that is fetched: run and ask its own server, nothing else."""


def document(title: str, blocks: Iterable[tuple[str, bytes]]) -> str:
    """Return everything in one document. Blocks are (id, gzipped JSON); in base64 nothing in them can become markup."""
    script, style = flattened(), asset("page.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<style>{style}</style>\n"
        f"<title>{escape(title)}</title>"
    )
    data = [
        f'<script type="application/octet-stream" id="{name}">{base64.b64encode(block).decode()}</script>'
        for name, block in blocks
    ]
    return _document(head, "\n".join([*data, f'<script type="module">{script}</script>']))


def _document(head: str, data: str) -> str:
    text = asset("index.html")
    return text.replace("<!--head-->", head).replace("<!--data-->", data)


@cache
def flattened() -> str:
    """Return all modules of the script as one."""
    done: dict[str, None] = {}
    _collect(ENTRY, done)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in done)


def _collect(name: str, done: dict[str, None]) -> None:
    """Put the module behind all that it imports."""
    for needed in _IMPORT.findall(asset(name)):
        if needed not in done:
            _collect(needed, done)
    done[name] = None


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
