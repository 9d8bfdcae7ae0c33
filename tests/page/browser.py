"""A real Chromium, if there is one, driven by playwright."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.patience import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, and none is installed")


class Seen:
    """What went wrong or out while a page was open."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []


@asynccontextmanager
async def opened(browser: Any, url: str, **context: Any) -> AsyncIterator[tuple[Any, Seen]]:
    """The page at this address, when it shows its log, in a window that shares nothing with others."""
    seen = Seen()
    async with await browser.new_context(viewport={"width": 1400, "height": 900}, **context) as window:
        page = await window.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on(
            "console", lambda message: seen.errors.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        await page.goto(url)
        await until_page(page, "performance.getEntriesByName('shown').length > 0")
        yield page, seen


async def until_page(page: Any, condition: str) -> None:
    """Wait until this holds on the page. (Playwright's own way evaluates strings, which the page's policy forbids.)"""
    async with asyncio.timeout(PATIENCE):
        while not await page.evaluate(condition):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
