"""A soak with all that an operator does: churn, retention, leaders that are stopped and killed while a standby takes over, and readers.

    .venv/bin/python tools/soak_operations.py [--minutes 60] [--rate 30] [--keep 20000] [--change 180]        make soak-operations MINUTES=60

Two daemons share a log file. One leads until it is stopped, or killed, in turn, every so many seconds; the other takes over, and the first one comes
back as its standby. Meanwhile facts come (`tools/soak.py`), old records are dropped, and readers ask what people ask, one command after the other.

Reported: the memory of both processes and the size of the log's files, how much they grew over the second half, how often leaders changed, and what
readers were told. Exit code 1 if the log does not verify at the end, or a reader failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from soak import ACTORS, Churn

from tidelog.api.errors import LogOvertaken, TidelogError
from tidelog.daemon.intake.messages import Apply, Facts, read_answer, write_request
from tidelog.eventlog.socket import HandoverClient, connect

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
QUESTIONS: Sequence[Sequence[str]] = (
    ("log", "status"),
    ("get", "pods"),
    ("get", "nodes"),
    ("get", "events"),
    ("queue",),
    ("log", "tail", "-n", "50"),
    ("replay", "verify", "--sample", "50"),
)
SAMPLE_SECONDS = 15.0


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._log = folder / "soak.db"
        self._folder = folder
        self._dice = random.Random(options.seed)
        self._churn = Churn(options.nodes, options.pods, options.seed)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._samples: list[tuple[float, float, float]] = []
        """Seconds, MiB of memory of the larger daemon, MiB of the log's files."""
        self._told: Counter[str] = Counter()
        self._failed: list[str] = []
        self._sent = 0
        self._lost_connections = 0
        self._changes = 0
        self._until = 0.0

    async def run(self) -> dict[str, Any]:
        """Its figures."""
        (self._folder / "actors.yaml").write_text(ACTORS)
        began = time.monotonic()
        self._until = began + 60 * self._options.minutes
        self._daemons = [self._started()]
        while not self._log.exists():  # noqa: ASYNC110
            await asyncio.sleep(1)
        await asyncio.sleep(5)
        self._daemons.append(self._started())
        try:
            await asyncio.gather(
                self._feed(began), self._sample(began), self._change_leaders(), self._read(), self._read()
            )
        finally:
            for daemon in self._daemons:
                daemon.send_signal(signal.SIGTERM)
            codes = [daemon.wait(600) for daemon in self._daemons]
        return {**self._figures(), "exit_codes": codes, **self._verified()}

    def _started(self) -> subprocess.Popen[bytes]:
        with (self._folder / "messages.txt").open("ab") as messages:
            return subprocess.Popen(
                [
                    *(TIDELOG, "run", "--log", str(self._log), "--actors", str(self._folder / "actors.yaml")),
                    *("--keep", str(self._options.keep), "--log-format", "json", "--listen", "127.0.0.1:0"),
                ],
                stderr=messages,
            )

    async def _feed(self, began: float) -> None:
        client: HandoverClient | None = None
        facts: Facts = Apply(objects=self._churn.beginning())
        while time.monotonic() < self._until:
            if self._sent > (time.monotonic() - began) * self._options.rate:
                await asyncio.sleep(0.01)
                continue
            try:
                client = client or await connect(self._log)
                with suppress(ValueError):  # Refused.
                    read_answer(await client.request(write_request(facts)))
            except (TidelogError, OSError, TimeoutError):
                self._lost_connections += 1
                if client is not None:
                    await client.close()
                client = None
                await asyncio.sleep(0.5)
                continue  # The same again: it may have been done or not.
            self._sent += len(facts.objects) if isinstance(facts, Apply) else 1
            facts = self._churn.step()

    async def _change_leaders(self) -> None:
        """The older one of the two leads."""
        while time.monotonic() + self._options.change < self._until:
            await asyncio.sleep(self._options.change)
            leader, standby = self._daemons
            leader.send_signal(signal.SIGKILL if self._changes % 2 else signal.SIGTERM)
            await asyncio.to_thread(leader.wait, 600)
            await asyncio.sleep(2)
            self._daemons = [standby, self._started()]
            self._changes += 1

    async def _read(self) -> None:
        while time.monotonic() < self._until:
            question = self._dice.choice(QUESTIONS)
            asked = await asyncio.create_subprocess_exec(
                TIDELOG,
                *question,
                *("--log", str(self._log)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            _, error = await asked.communicate()
            self._told[f"{' '.join(question)}: {asked.returncode}"] += 1
            if asked.returncode not in (0, LogOvertaken.exit_code):
                self._failed.append(f"{question}: {asked.returncode} {error.decode()[-300:]}")
            await asyncio.sleep(10)

    async def _sample(self, began: float) -> None:
        while time.monotonic() < self._until:
            await asyncio.sleep(SAMPLE_SECONDS)
            memory = max(_rss(daemon.pid) for daemon in self._daemons)
            size = sum(file.stat().st_size for file in self._folder.glob("soak.db*")) / 2**20
            self._samples.append((time.monotonic() - began, memory, size))
            print(*(f"{value:.1f}" for value in self._samples[-1]), self._sent, file=sys.stderr, flush=True)

    def _figures(self) -> dict[str, Any]:
        half = self._samples[len(self._samples) // 2 :]
        found: dict[str, Any] = {"minutes": self._options.minutes, "facts": self._sent}
        for number, name in ((1, "memory"), (2, "files")):
            values = [sample[number] for sample in half]
            found[f"{name}_mib_second_half"] = [round(min(values), 1), round(max(values), 1)]
            slope = statistics.linear_regression([s[0] for s in half], values).slope
            found[f"{name}_slope_mib_per_hour"] = round(3600 * slope, 2)
        return {
            **found,
            "leaders_changed": self._changes,
            "connections_lost": self._lost_connections,
            "readers": dict(self._told),
            "readers_failed": self._failed,
        }

    def _verified(self) -> dict[str, Any]:
        done = subprocess.run(
            [TIDELOG, "replay", "verify", "--log", str(self._log), "-o", "json"],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return {"verified": f"{done.stdout}{done.stderr}"[-1000:]}
        report = json.loads(done.stdout)
        return {"outcomes": report["outcomes"], "outcomes_identical": report["identical"]}


def _rss(pid: int) -> float:
    """In MiB; 0 for a process that is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--rate", type=float, default=30.0, help="facts a second (default: 30)")
    parser.add_argument("--keep", type=int, default=20_000, help="so many records stay (default: 20000)")
    parser.add_argument("--change", type=float, default=180.0, help="seconds between leaders (default: 180)")
    parser.add_argument("--nodes", type=int, default=60, help="default: 60")
    parser.add_argument("--pods", type=int, default=600, help="about so many at a time (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="of the story (default: 0)")
    with tempfile.TemporaryDirectory(prefix="tidelog-soak-") as folder:
        figures = asyncio.run(Soak(parser.parse_args(), Path(folder)).run())
    print(json.dumps(figures, indent=2))
    return 1 if "verified" in figures or figures["readers_failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
