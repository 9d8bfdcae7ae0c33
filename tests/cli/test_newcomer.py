"""Remarks of somebody who had never seen the product, on the cluster of the twenty tasks: a log that ended long ago."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.tasks.world import PACKING, history, node, pod
from tests.cli.conftest import Tidelog
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log

Ask = Callable[..., str]


@pytest.fixture
def ask(tidelog: Tidelog, tmp_path: Path) -> Ask:
    """A verb on that log; the lines of both streams."""
    asyncio.run(write_log(tmp_path / "x.db", history().records))

    def run(*words: str) -> str:
        ran = tidelog(*words, "--log", tmp_path / "x.db")
        return ran.out + ran.err

    return run


def test_events_are_counted_and_their_ages_count_to_the_end_of_the_log(ask: Ask) -> None:
    lines = ask("get", "events").splitlines()

    assert lines[0].split() == ["LAST", "SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert any(line.split()[:5] == ["2m", "6", "Warning", "FailedScheduling", "pod/big"] for line in lines)
    assert any(line.split()[:5] == ["25m", "1", "Normal", "Scheduled", "pod/web-1"] for line in lines)
    assert "the log ended at 2023-11-14T22:39:40" in lines[-1]


def test_events_of_a_described_pod_count_to_the_end_of_the_log_too(ask: Ask) -> None:
    found = ask("describe", "pod", "big")

    assert "FailedScheduling   2m (x6 over 20m)" in " ".join(found.split(" "))


def test_queue_of_an_old_log_waits_until_its_end(ask: Ask) -> None:
    found = ask("queue")

    assert "default/big        unschedulable   0          6          2m" in found
    assert "2023-11-14T22:42:40Z (in 2m59.999s)" in found


def test_moment_after_the_end_of_the_log_names_its_end(ask: Ask) -> None:
    assert "the log ends at record 56, 2023-11-14T22:39:40" in ask("get", "pods", "--at", "2024-03-01")
    assert "the log ends at" not in ask("get", "pods", "--at", "2023-11-14T22:45:00Z")


def test_graphics_processors_show_without_wide_where_a_node_has_any(
    ask: Ask, tidelog: Tidelog, tmp_path: Path
) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("n1", "a").build())
    asyncio.run(write_log(tmp_path / "y.db", driver.records))

    assert "nvidia.com/gpu=1/2" in ask("get", "nodes")
    assert "EXTENDED" not in tidelog("get", "nodes", "--log", tmp_path / "y.db").out


def test_taint_is_named_for_one_node_and_advice_is_about_that_node(ask: Ask) -> None:
    found = ask("why-not", "big", "g1")

    assert "TaintToleration: a toleration of gpu=only:NoSchedule, or its removal from g1" in found
    assert (
        "NodeResourcesFit: a larger node: the pod asks for 9 cpu, and g1 has no more than 4 even when empty"
        in found
    )


def test_counts_of_nodes_that_differ_from_those_of_the_message_are_explained(ask: Ask) -> None:
    said = "an attempt's message counts a node once, for the plugin that rejects it first"

    assert said in ask("why", "big")
    assert said not in ask("why", "training")


def test_pod_that_is_nominated_says_for_whose_end_it_waits(ask: Ask) -> None:
    assert "nominated to n2, where room is kept for it, until default/web-2 is gone" in ask("why", "batch-3")
    assert "nominated to" not in ask("why", "big").partition("what happened")[0]


def test_described_pods_are_shown_though_one_of_them_is_gone(ask: Ask) -> None:
    found = ask("describe", "pod", "big", "low")

    assert "Name:                 big" in found
    assert "pod default/low was deleted; `tidelog why` still tells its story" in found


def test_what_if_counts_every_pod_and_numbers_attempts_as_why_does(ask: Ask, tmp_path: Path) -> None:
    packing = tmp_path / "packing.yaml"
    packing.write_text(PACKING)
    lines = ask("replay", "what-if", "--drop", "node/n3").splitlines()
    counts = {
        words[0]: int(words[-2])
        for line in lines
        if (words := line.split()) and words[0] in ("placed", "unplaced")
    }

    assert "13 pods" in lines[1]
    assert sum(counts.values()) == 13
    assert "before record 10, attempt 1 of pod default/web-2: " in ask(
        "replay", "what-if", "--config", str(packing)
    )
    assert "observed:" not in ask("replay", "what-if", "--config", str(packing))


def test_what_if_does_not_delete_a_pod_that_it_has_not_evicted(ask: Ask) -> None:
    """Without batch-3 and urgent nobody has to go for them."""
    found = ask("replay", "what-if", "--drop", "pod/batch-3", "--drop", "pod/urgent", "--pods")

    assert [line.split()[3:] for line in found.splitlines() if line.startswith("default/low")] == [
        ["0s", "n1", "0s", "different"]
    ]


def test_pod_that_was_deleted_while_it_was_pending_is_counted(tidelog: Tidelog, tmp_path: Path) -> None:
    driver = Driver()
    driver.start()
    driver.put(node("n1", "a").build(), pod("large", "9").build())
    driver.settle()
    driver.delete(driver.pod("large"))
    asyncio.run(write_log(tmp_path / "y.db", driver.records))

    found = tidelog("replay", "what-if", "--log", tmp_path / "y.db").out

    assert [line.split()[-3:] for line in found.splitlines() if line.startswith("deleted while pending")] == [
        ["1", "1", "-"]
    ]


def test_help_tells_where_an_export_has_the_node(tidelog: Tidelog) -> None:
    assert "[.key, .body.node]" in tidelog("log", "export", "--help").out


def test_option_that_is_guessed_leads_to_drop(ask: Ask) -> None:
    assert "--drop node/n3 leaves an object out" in ask("replay", "what-if", "--without-node", "n3")
    assert "for example node/n3" in ask("replay", "what-if", "--drop", "node")
