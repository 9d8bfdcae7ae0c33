"""Real processes for tests: `tidelog run` in one, other verbs in others."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE, wait_until

TIDELOG = str(Path(sys.executable).with_name("tidelog"))


def tidelog(*argv: object, ok: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, with these environment variables."""
    environment = {**{k: v for k, v in os.environ.items() if k != "TIDELOG_LOG"}, **variables}
    done = subprocess.run(
        [TIDELOG, *map(str, argv)], capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    assert not ok or done.returncode == 0, done.stderr
    return done


def pods(log: Path) -> dict[str, dict[str, Any]]:
    """`tidelog get pods`: name → object."""
    listed = json.loads(tidelog("get", "pods", "--log", log, "-o", "json").stdout)
    return {item["metadata"]["name"]: item for item in listed["items"]}


def placements(log: Path) -> dict[str, str]:
    """Name → node of every pod that has one."""
    return {name: pod["spec"]["nodeName"] for name, pod in pods(log).items() if pod["spec"].get("nodeName")}


class Daemon:
    """`tidelog run` on a port of its own."""

    def __init__(self, log: Path, *options: object, listen: str = "127.0.0.1:0") -> None:
        self._begin("run", "--log", log, "--listen", listen, "--log-format", "json", *options)

    def _begin(self, *words: object) -> None:
        command = [TIDELOG, *words]
        self.process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.address = ""
        self._events: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            with contextlib.suppress(ValueError):
                self._events.put(json.loads(line))
        self._events.put(None)

    def wait_for(self, message: str) -> Mapping[str, Any]:
        """Return the first log line with this message that was not waited for before."""
        return self._next((message,))

    def wait_for_one_of(self, messages: Sequence[str]) -> str:
        """Which of them it says first."""
        return str(self._next(messages)["message"])

    def _next(self, messages: Sequence[str]) -> Mapping[str, Any]:
        while True:
            event = self._events.get(timeout=PATIENCE)
            assert event is not None, f"it ended before it said one of {messages}: {self.lines}"
            if event["message"] == "serving HTTP":
                self.address = event["address"]
            if event["message"] in messages:
                return event

    def get(self, path: str) -> str:
        """The body of this page."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=PATIENCE) as answer:
            body: bytes = answer.read()
        return body.decode()

    def metrics(self) -> dict[str, Metric]:
        """The metrics by name, as prometheus-client's own parser reads them."""
        return {family.name: family for family in text_string_to_metric_families(self.get("/metrics"))}

    def value(self, name: str, **labels: str) -> float:
        """The value of one sample; 0 if it is not there."""
        for family in self.metrics().values():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    def cpu_seconds(self) -> float:
        """Processor time that it has used; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until(self, name: str, value: float, **labels: str) -> None:
        """Return when this sample has at least this value."""
        wait_until(lambda: self.value(name, **labels) >= value, 0.02, f"{name}{labels} >= {value}")

    def signal(self, number: signal.Signals) -> None:
        """Send it."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.end()


@contextlib.contextmanager
def daemon(
    log: Path, *options: object, ready: str = "scheduling", listen: str = "127.0.0.1:0"
) -> Iterator[Daemon]:
    """A daemon that has said that it is ready; killed at the end if it still runs."""
    running = Daemon(log, *options, listen=listen)
    try:
        running.wait_for(ready)
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.end()


class ApiDaemon(Daemon):
    """`tidelog serve`, with its metrics and its page on a port of their own."""

    def __init__(self, log: Path, *options: object) -> None:
        listens = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        self._begin("serve", "--log", log, *listens, "--log-format", "json", *options)
