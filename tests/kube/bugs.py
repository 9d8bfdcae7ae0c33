"""Deliberate bugs of the client of a live cluster: each is a mistake that somebody could make, and that the stories must notice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.wire import ApiStatus, read_page
from tidelog.eventlog.promises import EFFECTS, Promises
from tidelog.kube.cluster import requests, view
from tidelog.kube.cluster.grounds import Grounds
from tidelog.kube.cluster.port import Request
from tidelog.kube.cluster.reader import KindReader
from tidelog.kube.cluster.view import Difference, KindView
from tidelog.kube.cluster.writer import Writer, _Failed
from tidelog.scheduler.core import Core

Bug = Callable[[], AbstractContextManager[Any]]


def _request(name: str, change: Callable[[Any], Any]) -> Bug:
    real = getattr(requests, name)
    return lambda: patch.object(requests, name, lambda *args, **more: change(real(*args, **more)))


def _without_uid(request: Any) -> Any:
    body = {**request.body, "metadata": {k: v for k, v in request.body["metadata"].items() if k != "uid"}}
    return msgspec.structs.replace(request, body=body)


def _effect(name: str, **changes: Any) -> Bug:
    return lambda: patch.dict(EFFECTS, {name: EFFECTS[name]._replace(**changes)})


def _method(owner: type, name: str, make: Callable[[Any], Any]) -> Bug:
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _no_overlay(real: Any) -> Any:
    def seen(self: Promises, key: str, obj: Any) -> Any:
        real(self, key, obj)
        return obj

    return seen


def _forgets_outbox(real: Any) -> Any:
    def load(self: Promises, dumped: Any) -> None:
        real(self, {**dumped, "promises": []})

    return load


def _unknown_is_failure(real: Any) -> Any:
    async def bind(self: Writer, promise: Any, effect: Any) -> None:
        original = self._resolve

        async def resolve(pod: Any, found: Any, status: Any) -> None:
            if status is None:
                raise _Failed(ApiStatus(message="no answer"))
            await original(pod, found, status)

        self._resolve = resolve  # type: ignore[method-assign]
        try:
            await real(self, promise, effect)
        finally:
            del self._resolve

    return bind


def _expiry_is_ignored(real: Any) -> Any:
    async def open_gap(self: KindReader, reason: Any) -> None:
        await (real(self, reason) if reason != "expired" else _goes_on(self))

    return open_gap


async def _goes_on(self: KindReader) -> None:
    """From where the server is now."""
    answer = await self._port.send(Request(method="GET", path=self._watched.path, query={"limit": "1"}))
    self.position = read_page(answer.body).resource_version


def _list_without_deletions(real: Any) -> Any:
    def diff(self: KindView, listed: Any, version: str) -> Difference:
        kept = {key: known.object for key, known in self._known.items() if known.object is not None}
        return real(self, {**kept, **listed}, version)

    return diff


def _no_drop(real: Any) -> Any:
    return lambda self, obj: [view._put(object_key(obj), obj)]


def _deaf_to_failures(real: Any) -> Any:
    def failed(self: Core, record: Any, body: Any) -> None:
        self.promises.broken(record, body, self.objects.get)

    return failed


@contextlib.contextmanager
def _never_back() -> Iterator[None]:
    async def check(self: KindReader) -> None:
        """Nobody looks."""

    with patch.object(KindReader, "_check_version", check):
        yield


BUGS: dict[str, Bug] = {
    "a binding without uid": _request("binding", _without_uid),
    "what was promised is not put over what the server says": _method(Promises, "seen", _no_overlay),
    "a binding is settled by its answer only, which the log does not know": _effect(
        "bind", is_kept=lambda *_: False
    ),
    "a binding is settled by any version of the pod": _effect("bind", is_kept=lambda *_: True),
    "the outbox is forgotten in snapshots": _method(Promises, "load", _forgets_outbox),
    "an answer that was lost counts as a failure": _method(Writer, "_bind", _unknown_is_failure),
    "an expired watch goes on as if nothing were missing": _method(
        KindReader, "_open_gap", _expiry_is_ignored
    ),
    "a list is not looked through for what is gone": _method(KindView, "diff", _list_without_deletions),
    "versions that are known are appended again": _method(KindView, "put", _no_drop),
    "nothing is looked at before a binding is sent": _method(Grounds, "gone", lambda real: lambda *_: ""),
    "a failed write is forgotten and not undone": _method(Core, "_write_failed", _deaf_to_failures),
    "nobody looks whether the server was set back": _never_back,
    "an outcome is sent before it is durable": lambda: patch.object(
        Writer, "_durable", property(lambda _: lambda: 10**9, lambda _, value: None), create=True
    ),
    "the promises of a pod that is gone are kept": lambda: patch.object(Promises, "_forget", lambda *_: None),
}
"""What is wrong → a context in which it is."""
