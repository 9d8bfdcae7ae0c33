"""The demo's chapter on the daemon: a scheduler in a process of its own, and commands that tell it things and ask it why.

The chapter waits for what the scheduler does by looking at the log, as any other process could.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from tidelog.api.errors import InternalError
from tidelog.api.objects import Pod, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.eventlog.lock import read_holder
from tidelog.eventlog.objects import ObjectTable, load_objects
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import open_reader

PATIENCE = 20.0
"""Seconds for anything that takes milliseconds."""

Condition = Callable[[ObjectTable], bool]


class Story(Protocol):
    """The printer of `tidelog.cli.demo.demo`."""

    def say(self, title: str, text: str) -> None: ...

    def run(self, *words: str, expected: int = 0) -> None: ...


def tell(story: Story, log: Path, examples: Path, shown: Callable[[Path], str]) -> None:
    """Run the chapter on this log. `shown` is how a path is typed."""
    story.say(
        "A scheduler",
        "Until now nobody placed a pod. Now `tidelog run` does, in a process of its own; the commands below hand what they are "
        "told over to it, through a socket beside the log. Here is what a deployment of six replicas makes, to be spread over the zones:",
    )
    with _daemon(log):
        story.run("apply", "-f", shown(examples / "daemon" / "1-shop.yaml"))
        _wait(log, lambda table: all(_is_placed(table, f"shop-{i}") for i in range(1, 7)))
        story.run("get", "pods")
        story.say(
            "A pod that waits", "The next pod asks for more than any node has. It waits, and can say why:"
        )
        story.run("apply", "-f", shown(examples / "daemon" / "2-render.yaml"))
        _wait(log, lambda table: _is_rejected(table, "render-1"))
        story.run("why", "render-1")
        story.say(
            "A node arrives",
            "Plugins say of each event whether it may help a pod that they rejected. This node does:",
        )
        story.run("apply", "-f", shown(examples / "daemon" / "3-node.yaml"))
        _wait(log, lambda table: _is_placed(table, "render-1"))
        story.run("why", "render-1")
    story.say(
        "The proof of the decisions",
        "The scheduler was told to stop. Whatever it decided can be computed again from the log, and must be the same:",
    )
    story.run("replay", "verify")


@contextlib.contextmanager
def _daemon(log: Path) -> Iterator[None]:
    """`tidelog run` on the log, until the end of the block."""
    command = [sys.executable, "-m", "tidelog.cli.main", "run", "--log", str(log), "--listen", "off"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            _until(lambda: _is_served(log), lambda: process.poll() is not None)
            yield
        finally:
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise InternalError(f"the demo's `tidelog run` ended with {process.returncode}: {said.strip()}")


def _is_served(log: Path) -> bool:
    holder = read_holder(log_path(log))
    return holder is not None and bool(holder.socket)


def _wait(log: Path, condition: Condition) -> None:
    """Return when it holds for the objects in the log."""
    _until(lambda: condition(asyncio.run(_objects(log))))


async def _objects(log: Path) -> ObjectTable:
    async with open_reader(log) as reader:
        return await load_objects(reader)


def _until(condition: Callable[[], bool], given_up: Callable[[], bool] = lambda: False) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if given_up() or time.monotonic() > end:
            raise InternalError("the demo's scheduler did not do what was expected of it")
        time.sleep(0.02)


def _is_placed(table: ObjectTable, name: str) -> bool:
    pod = table.get(f"Pod/default/{name}")
    return isinstance(pod, Pod) and bool(pod.spec.node_name)


def _is_rejected(table: ObjectTable, name: str) -> bool:
    pod = table.get(f"Pod/default/{name}")
    condition = pod_condition(pod, POD_SCHEDULED) if isinstance(pod, Pod) else None
    return condition is not None and condition.status == "False"
