"""The page in a real browser, from a file and from a server, says what the command line says of the same record."""

import asyncio
import importlib.resources
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from tests.page.browser import needs_browser, opened, until_page
from tests.page.test_fold import stories_of_a_small_cluster
from tidelog.api.objects import Pod
from tidelog.api.times import NANOS
from tidelog.api.well_known import ZONE
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import Record
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import Head
from tidelog.page.export import export
from tidelog.page.serving import page_server
from tidelog.page.site import PageSite
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.history import open_history
from tidelog.replay.waits import queue_of
from tidelog.replay.what_if import run_what_if
from tidelog.scheduler.core import Core
from tidelog.testing.builders import node, pdb, pod

pytestmark = [needs_browser, pytest.mark.asyncio(loop_scope="module")]
PENDING = "[...tidelogPage.a.waiting()].map(([name, row]) => [name, row.where]).sort()"
PLACED = "[...tidelogPage.a.pods()].filter(([, row]) => row.node && row.where !== 'permit').map(([name, row]) => [name, row.node]).sort()"
OF_A = "[...document.querySelectorAll('.of-a')].map((note) => note.textContent)"
HOSTILE = '<img src=x onerror="document.title=1"></script><script>window.broken=1</script>'


@pytest_asyncio.fixture(loop_scope="module")
async def log(tmp_path: Path) -> Path:
    await write_log(tmp_path / "log.db", stories_of_a_small_cluster().records)
    return tmp_path / "log.db"


@pytest_asyncio.fixture(params=["file", "server"], loop_scope="module")
async def address(request: pytest.FixtureRequest, log: Path, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "file":
        made = await export({"a": log})
        (tmp_path / "page.html").write_text(made.text)
        yield (tmp_path / "page.html").as_uri()
    else:
        with _served({"a": log}) as url:
            yield url


def _served(logs: dict[str, Path]) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def served() -> Iterator[str]:
        with page_server("127.0.0.1:0", PageSite(logs)) as where:
            yield f"http://{where}/ui/"

    return served()


def placed(core: Core) -> list[list[str]]:
    """The pods that have a node, each with it."""
    return sorted(
        [key.removeprefix("Pod/"), obj.spec.node_name]
        for key, obj in core.objects.items()
        if isinstance(obj, Pod) and obj.spec.node_name
    )


async def test_every_record_shows_what_the_scheduler_had_there(browser: Any, address: str, log: Path) -> None:
    async with opened(browser, address) as (page, seen), await open_history(log) as history:
        head = await page.evaluate("tidelogPage.a.head")
        for seq in [*range(3, head, 4), head, 5]:
            await page.evaluate(f"tidelogPage.go({seq})")

            core = await history.core_at(seq)
            # A group's members are bound by one record, and leave the queue with the next ones.
            pending = sorted(
                [row.key, row.waits.place]
                for row in queue_of(core)
                if not core.objects[f"Pod/{row.key}"].spec.node_name  # type: ignore[union-attr]
            )
            assert await page.evaluate(PENDING) == pending, f"record {seq}"
            assert await page.evaluate(PLACED) == placed(core), f"record {seq}"
        assert seen.errors == []


async def test_page_that_follows_asks_for_what_is_new_and_shows_it(browser: Any, tmp_path: Path) -> None:
    records = stories_of_a_small_cluster().records
    third = len(records) // 3
    path = tmp_path / "grows.db"
    await write_log(path, records[:third])
    store = await SqliteStore.open(path, create=False)
    try:
        with _served({"a": path}) as url:
            async with opened(browser, url) as (page, seen), await open_history(path) as history:
                for batch in (records[third : 2 * third], records[2 * third :]):
                    last = batch[-1]
                    await store.append(batch, Head(last.seq, last.at, store.head.epoch, last.digest))
                    await until_page(page, f"tidelogPage.a.seq === {last.seq} && !tidelogPage.moving")

                    history.log.refresh()
                    core = await history.core_at(last.seq)
                    assert await page.evaluate(PLACED) == placed(core)
                assert [request for request in seen.requests if "after=" in request]
                assert seen.errors == []
    finally:
        await store.close()


async def test_keys_go_through_the_log(browser: Any, address: str) -> None:
    async with opened(browser, address) as (page, seen):
        await page.keyboard.press("Home")
        await until_page(page, "tidelogPage.a.seq === 1 && !tidelogPage.moving")
        await page.keyboard.press("ArrowRight")
        await until_page(page, "tidelogPage.a.seq === 2 && !tidelogPage.moving")
        await page.keyboard.press("Shift+ArrowRight")
        await until_page(page, "tidelogPage.a.step && tidelogPage.a.step.kind === 'Scheduled'")
        await page.keyboard.press("n")
        await until_page(page, "tidelogPage.a.step.kind === 'Evicted'")
        await until_page(
            page, "document.getElementById('detail-title').textContent.startsWith('Pod default/low')"
        )
        await page.keyboard.press("u")
        assert "UTC" in await page.text_content("#clock")
        await page.keyboard.press("Escape")
        assert await page.text_content("#detail-title") == "The cluster"
        await page.keyboard.press("?")
        assert await page.is_visible("#help")
        assert seen.errors == []


async def test_search_finds_a_pod_and_its_story(browser: Any, address: str) -> None:
    async with opened(browser, address) as (page, _):
        await page.evaluate("tidelogPage.go(tidelogPage.a.head)")
        await page.keyboard.press("/")
        await page.keyboard.type("high")
        await page.keyboard.press("Enter")

        await until_page(page, "document.querySelectorAll('.story li').length > 1")
        story = await page.text_content(".story")
        assert "created, priority 1000" in story
        assert "rejected" in story
        assert "nominated to" in story


async def test_pending_pod_shows_every_plugins_verdict_and_what_would_help(
    browser: Any, tmp_path: Path
) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("small").capacity(cpu="2").build())
    driver.put(pod("waits").scheduler("default-scheduler").request(cpu="4").build())
    driver.settle()
    await write_log(tmp_path / "log.db", driver.records)
    made = await export({"a": tmp_path / "log.db"})
    (tmp_path / "page.html").write_text(made.text)

    async with opened(browser, (tmp_path / "page.html").as_uri() + "#pod=default/waits") as (page, seen):
        await until_page(page, "document.querySelectorAll('#detail-body table').length > 0")
        text = await page.text_content("#detail-body")
        assert "Insufficient cpu" in text
        assert "What would help (1 nodes)" in text
        assert (
            await page.text_content("#command")
            == f"tidelog why default/waits --at {len(driver.records)} --log log.db"
        )
        assert seen.errors == []


async def test_zones_and_budgets_have_lines(browser: Any, tmp_path: Path) -> None:
    driver = Driver()
    driver.start()
    driver.put(
        node("a1").label({ZONE: "a"}).capacity(cpu="2", pods="10").build(),
        pdb("guard", {"app": "x"}, min_available=1),
    )
    driver.put(pod("p").scheduler("default-scheduler").request(cpu="1").build())
    driver.advance(1)
    await write_log(tmp_path / "log.db", driver.records)
    (tmp_path / "page.html").write_text((await export({"a": tmp_path / "log.db"})).text)

    async with opened(browser, (tmp_path / "page.html").as_uri()) as (page, seen):
        assert "How full the zones are" in await page.text_content("#detail-body")
        assert "50 %" in await page.text_content("#detail-body table")
        for lanes, count in {"zone": 1, "budget": 1}.items():
            await page.select_option("#lanes-by", lanes)
            assert (await page.get_attribute("#lanes", "aria-label")).startswith(f"{count} lanes")
        assert seen.errors == []


async def test_permalink_leads_back(browser: Any, address: str) -> None:
    async with opened(browser, address + "#at=9&pod=default/low-1") as (page, _):
        assert await page.evaluate("tidelogPage.a.seq") == 9
        assert await page.text_content("#detail-title") == "Pod default/low-1"
        assert await page.get_attribute("#permalink", "href") == "#at=9&pod=default/low-1"


async def test_dragging_on_the_backlog_goes_to_that_moment(browser: Any, address: str) -> None:
    async with opened(browser, address) as (page, _):
        await page.select_option("#axis", "record")
        box = await page.locator("#backlog").bounding_box()
        await page.mouse.move(box["x"] + 5, box["y"] + 40)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=5)
        await page.mouse.up()
        await until_page(page, "!tidelogPage.moving")

        head = await page.evaluate("tidelogPage.a.head")
        assert abs(await page.evaluate("tidelogPage.a.seq") - head / 2) <= head / 10


async def test_hostile_names_are_shown_and_nothing_of_them_runs(browser: Any, tmp_path: Path) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("a").label({"zone": HOSTILE}).build())
    driver.put(pod(HOSTILE).scheduler("default-scheduler").build())
    driver.put(pod("\u202egnp.exe\x1b[2J").scheduler("default-scheduler").request(cpu="99").build())
    driver.settle()
    await write_log(tmp_path / "log.db", driver.records)
    made = await export({"a": tmp_path / "log.db"})
    (tmp_path / "page.html").write_text(made.text)

    async with opened(browser, (tmp_path / "page.html").as_uri()) as (page, seen):
        for name in (HOSTILE, "\u202egnp.exe\x1b[2J"):
            await page.evaluate(f"tidelogPage.choose({{pod: {json.dumps('default/' + name)}}})")
            await until_page(page, "document.querySelectorAll('.story li').length > 0")
        for seq in range(1, len(driver.records) + 1):
            await page.evaluate(f"tidelogPage.go({seq})")

        assert await page.evaluate("window.broken") is None
        assert await page.title() == "log.db – tidelog"
        text = await page.text_content("body")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\u202egnp.exe\\u001b[2J" in text
        assert await page.evaluate("document.querySelectorAll('img').length") == 0
        assert seen.errors == []
        assert [url for url in seen.requests if not url.startswith("file:")] == []


async def test_two_logs_scrub_together_and_say_what_differs(browser: Any, log: Path, tmp_path: Path) -> None:
    other = stories_of_a_small_cluster()
    other.put(node("d").capacity(cpu="8").build())
    other.advance(10)
    await write_log(tmp_path / "b.db", other.records)

    with _served({"a": log, "b": tmp_path / "b.db"}) as url:
        async with opened(browser, url) as (page, seen):
            await page.evaluate("tidelogPage.go(tidelogPage.a.head)")
            assert await page.is_visible("#cells-b")
            await until_page(page, "!document.getElementById('figures').hidden")
            assert "pods differ" in await page.text_content("#record-of")
            assert "A and B are configured alike" in await page.text_content("#figures")
            assert await page.evaluate(OF_A) == ["(of A)", "(of A)"]
            await page.keyboard.press("a")
            await until_page(page, f"{OF_A}.join('') === ''")
            assert seen.errors == []


@pytest.mark.parametrize("kind", ["file", "server"])
async def test_weights_that_differ_and_waits_that_only_the_clock_made_are_told(
    browser: Any, tmp_path: Path, kind: str
) -> None:
    """B is a what-if of A under another weight: it waits no shorter for deciding without delay."""
    made = under_another_weight()
    logs = {"a": tmp_path / "a.db", "b": tmp_path / "b.db"}
    await write_log(logs["a"], made.recorded)
    await write_log(logs["b"], made.driver.records)
    with _served(logs) as url:
        if kind == "file":
            (tmp_path / "page.html").write_text((await export(logs)).text)
            url = (tmp_path / "page.html").as_uri()
        async with opened(browser, url) as (page, seen):
            await until_page(page, "!document.getElementById('figures').hidden")
            rows = await page.evaluate(
                "[...document.querySelectorAll('#figures tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
            )
            told = {row[0]: row[1:] for row in rows}
            assert await page.evaluate("tidelogPage.a.seq") == len(made.recorded)
            await until_page(page, "!document.getElementById('figures').hidden")
            height, shown = await page.evaluate(
                "(() => { const f = document.getElementById('figures'); return [f.scrollHeight, f.clientHeight]; })()"
            )
            assert height <= shown
            await until_page(
                page, "document.getElementById('detail-body').textContent.includes('fullest in B')"
            )

            assert told["weight of NodeResourcesFit"] == ["1", "7"]
            assert [name for name in told if name.startswith("weight of")] == ["weight of NodeResourcesFit"]
            mine, its = told["waits of the pods that were placed"]
            assert (mine, "within 2.0 s" in mine) == (its, True)
            assert "pending seconds" not in told
            assert seen.errors == []


class Made(NamedTuple):
    recorded: list[Record]
    driver: Driver


def under_another_weight() -> Made:
    driver = Driver()
    driver.start()
    driver.put(*(node(name).label({ZONE: name}).capacity(cpu="4", pods="10").build() for name in "ab"))
    driver.put(pod("gone").gate("quota").scheduler("default-scheduler").build())
    for number in range(4):
        driver.put(pod(f"p{number}").scheduler("default-scheduler").request(cpu="1").build())
        driver.attempt()
        driver.now += 2 * NANOS
        driver.commit()

    def heavier(recorded: SchedulerConfiguration) -> SchedulerConfiguration:
        plain = msgspec.to_builtins(recorded)
        for entry in plain["profiles"][0]["points"]["score"]:
            entry["weight"] = 7 if entry["name"] == "NodeResourcesFit" else entry["weight"]
        return msgspec.convert(plain, SchedulerConfiguration)

    gone = run_what_if(driver.records, driver.registry, heavier, drop=("Pod/default/gone",))
    return Made(driver.records, gone.driver)


async def test_scores_fit_on_a_small_screen(browser: Any, log: Path) -> None:
    with _served({"a": log}) as url:
        async with opened(browser, url) as (page, _):
            placed = await page.evaluate("[...tidelogPage.a.pods()].find(([, row]) => row.node)[0]")
            await page.set_viewport_size({"width": 390, "height": 800})
            await page.evaluate(f"tidelogPage.choose({{pod: '{placed}'}})")
            await until_page(page, "document.querySelector('.scores') !== null")
            width, room = await page.evaluate(
                "(() => { const t = document.querySelector('.scores'); return [t.scrollWidth, t.clientWidth]; })()"
            )

            assert await page.evaluate("document.querySelectorAll('.scores th').length") > 4
            assert width <= room


async def test_served_page_asks_its_own_server_only(browser: Any, log: Path) -> None:
    with _served({"a": log}) as url:
        async with opened(browser, url) as (page, seen):
            await page.keyboard.press("Home")
            await asyncio.sleep(0)
            assert {request.split("/ui/")[0] for request in seen.requests} == {url.removesuffix("/ui/")}


ON_THE_SCREEN = {
    "the overview": "tidelogPage.choose({})",
    "a pod": "tidelogPage.choose({pod: 'default/high'})",
    "a node, and the nodes as a list": "(tidelogPage.choose({node: 'a'}), document.getElementById('as-list').click())",
    "the search": "tidelogPage.search()",
    "the keys": "(document.getElementById('search').close(), document.getElementById('help').showModal())",
}
"""What is looked at → how the page comes to show it, one after the other."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_that_keeps_anybody_out(browser: Any, log: Path, scheme: str) -> None:
    axe = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    with _served({"a": log}) as url:
        async with opened(browser, url, color_scheme=scheme) as (page, _):
            await page.evaluate(axe)
            for what, how in ON_THE_SCREEN.items():
                await page.evaluate(how)
                await until_page(page, "!document.body.textContent.includes('asking …')")

                found = await page.evaluate("axe.run()")

                assert [
                    (v["id"], [n["html"][:200] for n in v["nodes"]]) for v in found["violations"]
                ] == [], what
                assert len(found["passes"]) > 10, what


async def test_everything_has_a_name_once(browser: Any, address: str) -> None:
    async with opened(browser, address) as (page, _):
        twice = await page.evaluate(
            "[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)"
        )
        assert twice == []
