"""The page measured by a real Chromium's own clock: `make page-figures`.

    log     a log of RECORDS records on NODES nodes, most of its pods alive: as a file and served, first paint, when all is shown, the time of
            a step to a moment anywhere and to the next record, the script's memory, the file's size
    cost    SchedulingBasic without a page, with one that follows, with one that is scrubbed all the time, in turn: pods a second and
            the scheduler's processor time, each as a share of that without. Beside them what tells the page's cost from that of sharing a
            machine: a client that asks what a page asks, once a second and without a browser, and a loop that does nothing at all

The browser, the client and the loop work at the lowest priority, as if they were on another machine; the page's reader process works at its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tidelog.api.well_known import ZONE
from tidelog.benchmarks.scheduling import measured
from tidelog.page.export import export
from tidelog.page.serving import page_server
from tidelog.page.site import PageSite
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing.builders import node, pod

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-precise-memory-info",
]
STEPS = 150
ALIVE = 0.9
"""This share of the pods stays."""
PAGES = ("following", "scrubbed", "asked", "loop")


def made(nodes: int, records: int) -> Driver:
    """Return the log: nodes, then pods that come, are placed, and partly go."""
    rng = random.Random(1)
    driver = Driver()
    driver.start()
    driver.put(
        *(
            node(f"node-{n}")
            .label({ZONE: f"z{n % 3}"})
            .capacity(cpu="64", memory="256Gi", pods="110")
            .build()
            for n in range(nodes)
        )
    )
    living: list[str] = []
    number = 0
    while len(driver.records) < records:
        names = [f"web-{number + n}" for n in range(100)]
        number += 100
        driver.put(
            *(
                pod(name)
                .label(app=f"app-{rng.randrange(50)}")
                .scheduler("default-scheduler")
                .request(cpu="100m", memory="200Mi")
                .build()
                for name in names
            )
        )
        driver.advance(1)
        living += names
        while len(living) > number * ALIVE:
            place = rng.randrange(len(living))
            living[place], living[-1] = living[-1], living[place]
            driver.delete(driver.pod(living.pop()))
    return driver


@asynccontextmanager
async def shown(url: str) -> AsyncIterator[Any]:
    """Yield the page at this address, when it shows its log."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(600_000)
        await page.goto(url)
        await until(page, "performance.getEntriesByName('shown').length > 0")
        yield page
        await browser.close()


async def until(page: Any, condition: str) -> None:
    """Wait until it holds."""
    while not await page.evaluate(condition):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def figures_of(url: str) -> dict[str, Any]:
    """Return what the browser says of the page."""
    async with shown(url) as page:
        await until(page, "tidelogPage.a.meta.complete")
        paint = await page.evaluate("performance.getEntriesByType('paint').map((e) => e.startTime)")
        ready = await page.evaluate("performance.getEntriesByName('shown')[0].startTime")
        head = await page.evaluate("tidelogPage.a.head")
        rng = random.Random(2)
        await page.evaluate("performance.clearMeasures()")
        for _ in range(STEPS):
            await page.evaluate(f"tidelogPage.go({rng.randrange(1, head)})")
        far = await page.evaluate("performance.getEntriesByName('step').map((e) => e.duration)")
        await page.evaluate("performance.clearMeasures()")
        for _ in range(STEPS):
            await page.evaluate("tidelogPage.go(tidelogPage.a.seq - 1)")
        near = await page.evaluate("performance.getEntriesByName('step').map((e) => e.duration)")
        heap = await page.evaluate("performance.memory.usedJSHeapSize")
        return {
            "first_paint_ms": round(min(paint)),
            "shown_ms": round(ready),
            "step_anywhere_ms": spread(far),
            "step_next_ms": spread(near),
            "heap_mib": round(heap / 2**20),
        }


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the 90th percentile."""
    return {
        "p50": round(statistics.median(values), 1),
        "p90": round(sorted(values)[int(len(values) * 0.9)], 1),
    }


async def of_log(nodes: int, records: int) -> None:
    """Print the figures of a log, from a file and served."""
    with tempfile.TemporaryDirectory(prefix="tidelog-page-") as folder:
        log, file = Path(folder) / "cluster.db", Path(folder) / "page.html"
        driver = made(nodes, records)
        await write_log(log, driver.records)
        began = time.perf_counter()
        found = await export({"a": log})
        seconds = time.perf_counter() - began
        file.write_text(found.text)
        base = {"nodes": nodes, "records": len(driver.records)}
        del driver
        print(
            json.dumps(
                {
                    **base,
                    "from": "file",
                    "export_seconds": round(seconds, 1),
                    "file_mib": round(file.stat().st_size / 2**20, 1),
                    **await figures_of(file.as_uri()),
                    "left_out": found.left_out,
                }
            ),
            flush=True,
        )
        with page_server("127.0.0.1:0", PageSite({"a": log})) as address:
            print(
                json.dumps({**base, "from": "server", **await figures_of(f"http://{address}/ui/")}),
                flush=True,
            )


async def watch(url: str, scrubbed: bool) -> None:
    """Look at a page until the process is ended."""
    os.nice(19)
    async with shown(url) as page:
        rng = random.Random(3)
        while True:
            if scrubbed:
                await page.evaluate(f"tidelogPage.go({rng.randrange(1, 10**9)} % tidelogPage.a.head + 1)")
            await asyncio.sleep(0.05 if scrubbed else 0.5)


def ask_as_a_page(url: str) -> None:
    """Ask what a page asks that follows, until the process is ended."""
    os.nice(19)
    chunk, reached = -1, 0

    def get(question: str) -> bytes:
        with urlopen(f"{url}api/a/{question}") as answer:
            found: bytes = answer.read()
            return found

    while True:
        meta = json.loads(get("meta"))
        get("backlog?bins=1200")
        if chunk >= 0:
            get(f"chunk?n={chunk}&after={reached}")
        if chunk != len(meta["chunks"]) - 1:
            chunk = len(meta["chunks"]) - 1
            get(f"chunk?n={chunk}")
        reached = meta["reached"]
        time.sleep(1)


LOOP = "import os\nos.nice(19)\nwhile True: pass"


@contextlib.contextmanager
def beside(*words: str) -> Iterator[None]:
    """Let a program run beside what is measured."""
    process = subprocess.Popen([sys.executable, *words])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def watcher(log: Path, how: str) -> Iterator[None]:
    """Open a page of the log beside what is measured, as soon as the log is there."""
    if how == "none":
        yield
    elif how == "loop":
        with beside("-c", LOOP):
            yield
    else:
        with (
            page_server("127.0.0.1:0", PageSite({"a": log})) as address,
            beside(
                str(Path(__file__).resolve()),
                "--watch",
                f"http://{address}/ui/",
                "--how",
                how,
                "--log",
                str(log),
            ),
        ):
            yield


def cost(rounds: int, nodes: int, pods: int) -> None:
    """Print what a page costs the scheduler."""
    found: dict[str, list[dict[str, Any]]] = {how: [] for how in ("none", *PAGES)}
    for turn in range(rounds):
        for how in list(found) if turn % 2 == 0 else reversed(list(found)):
            with tempfile.TemporaryDirectory(prefix="tidelog-page-") as folder:
                log = Path(folder) / "cluster.db"
                with watcher(log, how):
                    found[how].append(asyncio.run(measured("SchedulingBasic", nodes, pods, log=log)))
            print(
                json.dumps(
                    {"page": how, **{k: found[how][-1][k] for k in ("pods_per_second", "cpu_seconds")}}
                ),
                flush=True,
            )
    base = {k: statistics.median(one[k] for one in found["none"]) for k in ("pods_per_second", "cpu_seconds")}
    for how in PAGES:
        ratios = {k: round(statistics.median(one[k] for one in found[how]) / base[k], 3) for k in base}
        print(json.dumps({"page": how, "against": "none", **ratios}))


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("log", "cost"))
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch:
        while not Path(args.log).exists():
            time.sleep(0.05)
        time.sleep(0.5)
        with contextlib.suppress(KeyboardInterrupt):
            if args.how == "asked":
                ask_as_a_page(args.watch)
            asyncio.run(watch(args.watch, args.how == "scrubbed"))
    elif args.what == "cost":
        cost(args.rounds, args.nodes, args.pods)
    elif args.what == "log":
        asyncio.run(of_log(args.nodes, args.records))
    else:
        parser.error("say what to measure: log or cost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
