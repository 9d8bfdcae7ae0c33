"""Moments in `-o json` are RFC 3339 to the nanosecond: as integers, tools that count in doubles would cut them. Durations have units."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tidelog
from tidelog.api.text import MOMENTS
from tidelog.api.times import parse_time
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

EXACT = 123_456_789


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A placed pod, one that waits, one that is gated."""
    driver = Driver()
    driver.start()
    driver.now += EXACT
    base = b.pod("placed").request(cpu="1").scheduler("default-scheduler")
    driver.put(b.node("n1").capacity(cpu="2", pods=10).build(), b.node("n2").capacity(cpu="1").build())
    driver.put(
        base.build(), base.named("big").request(cpu="9").build(), base.named("gated").gate("g").build()
    )
    driver.settle()
    path = tmp_path_factory.mktemp("times") / "c.db"
    asyncio.run(write_log(path, driver.records))
    (path.parent / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: a}]}\n"
    )
    return path


VERBS = [
    "why placed", "why big", "why gated", "why-not big n1", "why-not placed n1", "queue", "describe pod big", "log show 1-9",
    "log tail -n 20", "log verify", "replay verify", "replay what-if --drop node/n2", "plan -f POD", "get pods", "log compact --dry-run",
    "apply --dry-run -f POD",
]  # fmt: skip


def numbers(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path."""
    if isinstance(data, dict):
        for name, part in data.items():
            yield from numbers(part, f"{path}.{name}")
    elif isinstance(data, list):
        for part in data:
            yield from numbers(part, f"{path}[]")
    else:
        yield path, data


@pytest.mark.parametrize("verb", VERBS)
def test_neither_moment_nor_duration_is_an_integer(tidelog: Tidelog, log: Path, verb: str) -> None:
    words = [str(log.parent / "pod.yaml") if word == "POD" else word for word in verb.split()]

    ran = tidelog("--log", log, *words, "-o", "json")

    assert ran.code == 0, ran.err
    texts = ran.lines if verb.startswith(("log show", "log tail")) else [ran.out]
    leaves = [leaf for text in texts for leaf in numbers(json.loads(text))]
    assert [leaf for leaf in leaves if type(leaf[1]) is int and abs(leaf[1]) > 10**9] == []
    for path, value in leaves:
        if path.rpartition(".")[2] in MOMENTS and value is not None:
            parse_time(value)


def test_moments_keep_every_nanosecond(tidelog: Tidelog, log: Path) -> None:
    found = json.loads(tidelog("--log", log, "why", "big", "-o", "json").out)

    assert {parse_time(entry["at"]) % 10**9 for entry in found["story"]["entries"]} == {EXACT}
    assert parse_time(found["waits"]["until"]) > parse_time(found["waits"]["since"])
