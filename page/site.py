"""The paths below `/ui/`: the page's files, and the questions that it asks of a reader process.

/ui/            the page
/ui/NAME.js, .css
/ui/api/sides   which logs there are: ["a"], or ["a", "b"] to compare
/ui/api/SIDE/QUESTION?…   `tidelog.page.source` lists the questions
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from tidelog.daemon.http.server import Response
from tidelog.page.bundle import LIVE_POLICY, TYPES, asset, asset_type, live_document
from tidelog.page.reader import Question, ReaderProcess

ROOT = "/ui/"
JSON = "application/json"


class PageSite:
    """Answers for the page of these logs. Costs nothing until somebody asks."""

    def __init__(self, logs: Mapping[str, str | Path]) -> None:
        self.reader = ReaderProcess(logs)

    def respond(self, path: str, query: Mapping[str, Sequence[str]]) -> Response:
        """Answer GET for a path that begins with `/ui`."""
        if path in ("/ui", "/"):
            return Response("", HTTPStatus.FOUND, headers={"Location": ROOT})
        name = path.removeprefix(ROOT)
        if not name:
            return Response(
                live_document(), type=TYPES[".html"], headers={"Content-Security-Policy": LIVE_POLICY}
            )
        if name == "api/sides":
            return Response(json.dumps(list(self.reader.logs)), type=JSON)
        if name.startswith("api/"):
            side, _, question = name.removeprefix("api/").partition("/")
            return self._ask(Question(side, question, {key: values[0] for key, values in query.items()}))
        kind = asset_type(name)
        if kind is None:
            return Response("404 the page is at /ui/\n", HTTPStatus.NOT_FOUND)
        return Response(asset(name), type=kind)

    def _ask(self, question: Question) -> Response:
        reply = self.reader.ask(question)
        if reply.status != HTTPStatus.OK:
            return Response(reply.body, HTTPStatus(reply.status))
        headers = {"Content-Encoding": "gzip"} if reply.gzipped else {}
        return Response(reply.body, type=JSON, headers=headers)

    def close(self) -> None:
        """End the reader process."""
        self.reader.close()
