"""What is answered below /ui/, by a reader process on a real log."""

import gzip
import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tidelog.page.site import PageSite
from tidelog.page.source import SLICE
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing.builders import node, pod


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    driver = Driver()
    driver.start()
    driver.put(node("a").capacity(cpu="2").build())
    driver.put(pod("p").scheduler("default-scheduler").request(cpu="1").build())
    driver.put(pod("big").scheduler("default-scheduler").request(cpu="9").build())
    driver.settle()
    await write_log(tmp_path / "log.db", driver.records)
    return tmp_path / "log.db"


@pytest.fixture
def site(log: Path) -> Iterator[PageSite]:
    found = PageSite({"a": log})
    yield found
    found.close()


def ask(site: PageSite, path: str, **query: str) -> object:
    answer = site.respond(path, {name: [value] for name, value in query.items()})
    assert answer.status is HTTPStatus.OK, answer.body
    body = answer.body if isinstance(answer.body, bytes) else str(answer.body).encode()
    return json.loads(gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body)


def test_questions_of_the_page_are_answered(site: PageSite) -> None:
    assert ask(site, "/ui/api/sides") == ["a"]
    meta = ask(site, "/ui/api/a/meta")
    assert isinstance(meta, dict)
    assert meta["head"] < SLICE
    why = ask(site, "/ui/api/a/why", pod="default/big", seq=str(meta["head"]))
    assert isinstance(why, dict)
    assert why["status"].startswith("pending")
    assert why["by_node"] == {"a": {"NodeResourcesFit": "Insufficient cpu"}}
    record = ask(site, "/ui/api/a/record", seq="2")
    assert isinstance(record, dict)
    assert len(record["digest"]) == 64
    assert isinstance(ask(site, "/ui/api/a/state", seq="3"), dict)


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/ui/api/a/why", {"pod": "default/none"}, "is not in the log"),
        ("/ui/api/a/why", {}, "pod is missing"),
        ("/ui/api/a/record", {"seq": "-1"}, "must be a whole number"),
        ("/ui/api/a/record", {"seq": "99999"}, "99999"),
        ("/ui/api/a/secrets", {}, "no question"),
        ("/ui/api/c/meta", {}, "no such log"),
        ("/ui/../etc/passwd", {}, "the page is at"),
    ],
)
def test_wrong_questions_get_one_line(site: PageSite, path: str, query: dict[str, str], said: str) -> None:
    answer = site.respond(path, {name: [value] for name, value in query.items()})

    assert answer.status is not HTTPStatus.OK
    text = answer.body.decode() if isinstance(answer.body, bytes) else str(answer.body)
    assert said in text
    assert text.count("\n") == 1


def test_reader_that_died_is_replaced(site: PageSite) -> None:
    ask(site, "/ui/api/a/meta")
    process = site.reader._process
    assert process is not None
    process.kill()
    process.join(PATIENCE)

    assert isinstance(ask(site, "/ui/api/a/meta"), dict)


def test_page_comes_with_a_policy_that_lets_it_run_its_own_files_only(site: PageSite) -> None:
    answer = site.respond("/ui/", {})

    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
