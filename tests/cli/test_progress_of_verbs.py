"""Everything that goes through a log counts what it has done, and knows of how much: so a terminal can be told the rate and the time left."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.cli.progress import Progress
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

RECORDS = 5_000
"""Several of the steps after which progress is told, and of the batches that are read."""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: a}]}
"""


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pod that was placed and one that waits, and a node that says for hours that it is there."""
    driver = Driver()
    driver.start()
    node = b.node("n1").capacity(cpu="4", pods="10")
    pods = [
        b.pod(name).scheduler("default-scheduler").request(cpu=cpu).build()
        for name, cpu in (("web", "1"), ("big", "9"))
    ]
    driver.put(node.build(), *pods)
    driver.settle()
    for number in range(RECORDS - len(driver.records)):
        driver.now += 1_000_000
        driver.put(node.label(beat=str(number % 7)).build())
    path = tmp_path_factory.mktemp("long") / "x.db"
    asyncio.run(write_log(path, driver.records))
    return path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What a terminal would have been told: the work, how much is done, of how much."""
    found: list[tuple[str, int, int]] = []
    update = Progress.update

    def heard(self: Progress, done: int, total: int = 0) -> None:
        update(self, done, total)
        found.append((self._doing, done, total))

    monkeypatch.setattr(Progress, "update", heard)
    return found


@pytest.mark.parametrize(
    ("words", "works"),
    [
        (["why", "big"], {"reading the log"}),
        (["why-not", "big", "n1"], {"reading the log"}),
        (["describe", "pod", "big"], {"reading the log"}),
        (["queue"], {"reading the log"}),
        (["get", "pods"], {"reading the log"}),
        (["get", "events"], {"reading the log"}),
        (["plan", "-f", "POD"], {"reading the log"}),
        (["diff", "-f", "POD"], {"reading the log"}),
        (["apply", "-f", "POD"], {"reading the log"}),
        (["delete", "pod", "big"], {"reading the log"}),
        (["log", "verify"], {"verifying"}),
        (["log", "repair"], {"checking"}),
        (["log", "compact"], {"compacting"}),
        (["log", "compact", "--to", "4000"], {"compacting"}),
        (["log", "export", "--to", "NEW"], {"exporting"}),
        (["log", "redact", "NEW"], {"reading the log", "redacting", "writing the copy"}),
        (["log", "to-test"], {"reading the log"}),
        (["replay", "verify"], {"verifying"}),
        (["replay", "what-if"], {"deciding anew", "comparing"}),
        (["page", "-o", "NEW"], {"going through the log"}),
    ],
)  # fmt: skip
def test_verb_counts_what_it_has_done(
    words: list[str],
    works: set[str],
    tidelog: Tidelog,
    told: list[tuple[str, int, int]],
    long_log: Path,
    tmp_path: Path,
) -> None:
    path, pod = tmp_path / "x.db", tmp_path / "pod.yaml"
    for ending in ("", ".head"):
        shutil.copy(f"{long_log}{ending}", f"{path}{ending}")
    pod.write_text(POD)
    given = {"POD": str(pod), "NEW": str(tmp_path / "new")}

    ran = tidelog(*(given.get(word, word) for word in words), "--log", path)

    assert ran.code == 0, ran.err
    assert {doing for doing, done, total in told if 0 < done < total >= RECORDS // 2} >= works


@pytest.mark.parametrize(
    "words", [["why", "big"], ["why-not", "big", "n1"], ["queue"], ["describe", "pod", "big"]]
)
def test_playing_back_what_was_read_is_counted_too(
    words: list[str], tidelog: Tidelog, told: list[tuple[str, int, int]], long_log: Path
) -> None:
    """It takes ten times as long as reading."""
    tidelog(*words, "--log", long_log)

    done = [done for _, done, total in told if total >= RECORDS // 2]
    assert done.count(RECORDS - 1_000) >= 2


def test_objects_that_are_applied_are_counted(
    tidelog: Tidelog, told: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    pods = "---\n".join(POD.replace("new", f"p{number}") for number in range(20))
    (tmp_path / "pods.yaml").write_text(pods)

    tidelog("apply", "-f", tmp_path / "pods.yaml", "--log", tmp_path / "x.db")

    assert ("apply", 20, 20) in told
