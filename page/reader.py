"""The process that answers a page: it has the logs open read-only, so that what a page asks never runs beside the scheduler.

It is started with the first question, works at a lower priority, goes through the logs between questions, and ends by itself when nobody has
asked for some minutes or its parent is gone. If it fails, the next question starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tidelog.api.errors import TidelogError
from tidelog.eventlog import password
from tidelog.page.source import LogSource, Reply

IDLE_SECONDS = 180.0
"""A reader that nobody asks ends after so long; a page that is open asks every second."""
ANSWER_SECONDS = 60.0
LOOK_SECONDS = 0.2
"""How long it waits for a question before it looks whether the log has grown."""
REST = 12.0
"""While records come faster than it reads, it rests this many times as long as it works: the processor is the scheduler's. So it keeps up with
a thousand records a second; a log that does not grow meanwhile is read without a rest."""


class Question(NamedTuple):
    """A question, and the log it is about."""

    side: str
    name: str
    query: Mapping[str, str]


class ReaderProcess:
    """The parent's side. `ask` may be called from any thread; questions are answered one after the other."""

    def __init__(self, logs: Mapping[str, str | Path]) -> None:
        self.logs = {side: str(path) for side, path in logs.items()}
        self._lock = threading.Lock()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, question: Question) -> Reply:
        """Return the answer, whatever it takes; what goes wrong is an answer too."""
        with self._lock:
            for fresh in (False, True):
                try:
                    pipe = self._connection(fresh=fresh)
                    pipe.send(question)
                    if not pipe.poll(ANSWER_SECONDS):
                        self._stop()
                        return _failed(f"no answer within {ANSWER_SECONDS:g} s")
                    reply: Reply = pipe.recv()
                    return reply
                except (EOFError, OSError):
                    continue
            return _failed("the process that reads the log has ended; ask again")

    def _connection(self, *, fresh: bool) -> Connection:
        if fresh or self._process is None or not self._process.is_alive():
            self._stop()
            spawn = multiprocessing.get_context("spawn")
            ours, theirs = spawn.Pipe()
            self._process = spawn.Process(
                target=_main, args=(theirs, self.logs, password.kept()), name="tidelog-page", daemon=True
            )
            self._process.start()
            theirs.close()
            self._pipe = ours
        assert self._pipe is not None
        return self._pipe

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()


def _failed(why: str) -> Reply:
    return Reply(f"{why}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


def _main(pipe: Connection, logs: Mapping[str, str], secret: str | None) -> None:
    os.nice(5)
    password.give(secret)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # Nobody is there any more.
        asyncio.run(_serve(pipe, logs))


async def _serve(pipe: Connection, logs: Mapping[str, str]) -> None:
    sources: dict[str, LogSource] = {}
    idle = 0.0
    try:
        while idle < IDLE_SECONDS:
            heads = [source.head for source in sources.values()]
            began = time.process_time()
            busy = any([await source.grow() for source in sources.values()])
            worked = time.process_time() - began
            written = heads != [source.head for source in sources.values()]
            wait = (REST * worked if written else 0.0) if busy else LOOK_SECONDS
            if not pipe.poll(wait):
                idle += wait
                continue
            idle = 0.0
            question: Question = pipe.recv()
            pipe.send(await _answer(sources, logs, question))
    finally:
        for source in sources.values():
            await source.close()


async def _answer(sources: dict[str, LogSource], logs: Mapping[str, str], question: Question) -> Reply:
    try:
        source = sources.get(question.side)
        if source is None:
            source = sources[question.side] = await LogSource.open(logs[question.side])
        other = sources.get("a") if question.side == "b" else None
        return await source.answer(question.name, question.query, beside=other)
    except KeyError:
        return Reply(b"there is no such log here\n", status=HTTPStatus.NOT_FOUND)
    except TidelogError as error:
        return Reply(f"{error}\n".encode(), status=HTTPStatus.BAD_REQUEST)
