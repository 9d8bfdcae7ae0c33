"""The pictures of the README: `make screenshots`. Each is the page on a log that is made here, in a real Chromium.

pending.png    a pod that waits: every plugin's verdict, and what would help
budget.png     a protected budget that refused a preemption
fallback.png   a zone that ran out, and the spread that fell back
compared.png   the same pods under another weight, side by side
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from playwright.async_api import async_playwright

from tidelog.api.manifests.manifests import load
from tidelog.api.objects import Pod
from tidelog.cli.demo.preemption import scene as budget_scene
from tidelog.cli.demo.spread import stockout
from tidelog.cli.shipped import folder
from tidelog.configuration.configuration import resolve_configuration
from tidelog.page.export import export
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing.builders import node, pod

OUT = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class Picture(NamedTuple):
    """A picture, and where the page stands for it."""

    name: str
    logs: Mapping[str, Driver]
    choose: str
    key: str = ""


def pictures() -> Iterator[Picture]:
    """Make the logs, one after the other."""
    yield Picture("pending", {"a": _shop()}, '{pod: "default/render-1"}')
    yield Picture("budget", {"a": budget_scene(3, 500).driver}, '{pod: "default/rollout"}')
    yield Picture("fallback", {"a": stockout(_nothing).driver}, "{}", key="f")
    yield Picture("compared", {"a": _weighed(1), "b": _weighed(10)}, "{}")


def _nothing(line: str) -> None:
    """The demo's words are not for here."""
    del line


def _shop() -> Driver:
    driver = Driver()
    driver.start()
    examples = folder("examples")
    for name in ("1-nodes.yaml", "daemon/1-shop.yaml", "daemon/2-render.yaml"):
        for obj in load((examples / name).read_bytes(), name, namespace="default"):
            if isinstance(obj, Pod):  # As admission would.
                obj = replace(obj, spec=replace(obj.spec, scheduler_name="default-scheduler"))
            driver.put(obj)
        driver.advance(2)
    return driver


def _weighed(weight: int) -> Driver:
    """Pods that prefer a zone, with this weight of the preference beside that of free room."""
    weights = [{"name": "NodeAffinity", "weight": weight}, {"name": "NodeResourcesFit", "weight": 10}]
    profile = {"plugins": {"multiPoint": {"enabled": weights}}}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    driver = Driver()
    driver.start(resolve_configuration(file, Registry()).configuration)
    zone = "topology.kubernetes.io/zone"
    driver.put(
        *(node(f"{z}-{i}").label({zone: z}).capacity(cpu="8").build() for z in "abc" for i in range(4))
    )
    for number in range(40):
        made = pod(f"app-{number}").scheduler("default-scheduler").request(cpu="1")
        driver.put(made.prefer_node(1, f"{zone} in (a)").build())
        driver.advance(1)
    return driver


async def main() -> int:
    """Take all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("needs Chromium, and none is installed", file=sys.stderr)
        return 1
    OUT.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for picture in pictures():
            with tempfile.TemporaryDirectory() as name:
                logs = {}
                for side, driver in picture.logs.items():
                    logs[side] = Path(name) / ("cluster.db" if side == "a" else "weight-10.db")
                    await write_log(logs[side], driver.records)
                (Path(name) / "page.html").write_text((await export(logs)).text)
                page = await browser.new_page(viewport=SIZE, timezone_id="UTC")
                await page.goto((Path(name) / "page.html").as_uri())
                while not await page.evaluate("performance.getEntriesByName('shown').length"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                if picture.key:
                    await page.keyboard.press(picture.key)
                    await asyncio.sleep(0.5)
                else:
                    await page.evaluate(f"tidelogPage.choose({picture.choose})")
                await asyncio.sleep(0.5)
                await page.screenshot(path=OUT / f"{picture.name}.png")
                await page.close()
                print(OUT.name + f"/{picture.name}.png")
        await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
