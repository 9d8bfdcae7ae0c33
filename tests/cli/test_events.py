"""`get events`, `describe node`, `get nodes -o wide`: what an SRE asks first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Tidelog
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

GPU = "nvidia.com/gpu"


def pod(name: str) -> b.PodBuilder:
    return b.pod(name).scheduler("default-scheduler")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pod that was placed two hours ago, one that has been tried again and again, one in another namespace, a victim."""
    driver = Driver()
    driver.start()
    driver.put(
        b.node("n1").capacity({"cpu": "4", "memory": "8Gi", "pods": 10, GPU: 2}).taint("x", "y", "PreferNoSchedule").build(),
        pod("first").request({GPU: 1}).build(),
    )  # fmt: skip
    driver.settle()
    driver.advance(7_200)
    driver.put(pod("big").request(cpu="9").build(), pod("other").namespace("shop").request(cpu="3").build())
    driver.settle()
    driver.advance(1_000)
    driver.put(pod("vip").priority(1000).request(cpu="3").build())
    driver.settle()
    path = tmp_path_factory.mktemp("events") / "c.db"
    asyncio.run(write_log(path, driver.records))
    return path


@pytest.fixture
def ask(tidelog: Tidelog, log: Path):
    def asked(*words: str) -> Ran:
        return tidelog("--log", log, *words)

    return asked


def test_events_of_the_last_hour_of_the_log(ask) -> None:
    lines = ask("get", "events").lines

    assert lines[0].split() == ["LAST", "SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert [line.split()[2:5] for line in lines[1:]] == [
        ["Warning", "FailedScheduling", "pod/big"],
        ["Warning", "FailedScheduling", "pod/vip"],
        ["Normal", "Nominated", "pod/vip"],
    ]
    assert "0/1 nodes are available: 1 Insufficient cpu." in lines[1]


def test_events_are_selected_by_their_fields(ask) -> None:
    chosen = ask(
        "get",
        "events",
        "-A",
        "--field-selector",
        "involvedObject.name=big,type=Warning",
        "--since",
        "10h",
    )
    others = ask("get", "events", "-A", "--field-selector", "type!=Warning", "--since", "10h")

    assert {line.split()[5] for line in chosen.out.splitlines()[1:]} == {"pod/big"}
    assert "FailedScheduling" in ask("get", "events", "-A", "--since", "10h").out
    assert others.out
    assert "FailedScheduling" not in others.out
    assert ask("get", "events", "--field-selector", "involvedObject.uid=1").code == 2
    assert "field label not supported" in ask("get", "events", "--field-selector", "nonsense=3").err


def test_events_further_back_and_of_every_namespace(ask) -> None:
    lines = ask("get", "events", "-A", "--since", "1d").lines

    told = [(line.split()[0], line.split()[4], line.split()[5]) for line in lines[1:]]
    assert ("default", "Scheduled", "pod/first") in told
    assert ("shop", "Preempted", "pod/other") in told


def test_repetitions_are_counted_and_told_with_their_message(ask) -> None:
    (event,) = json.loads(ask("get", "events", "--for", "pod/big", "-o", "json").out)

    assert event["count"] > 1
    assert event["message"].startswith("0/1 nodes are available")
    assert event["at"] < event["last_at"]


def test_message_of_a_repetition_comes_from_before_the_time_that_is_asked_for(ask) -> None:
    (event,) = json.loads(ask("get", "events", "--for", "pod/big", "--since", "8m", "-o", "json").out)

    assert event["message"].startswith("0/1 nodes are available")


def test_events_at_an_earlier_moment(ask) -> None:
    lines = ask("get", "events", "--at", "5").lines

    assert [line.split()[3:5] for line in lines[1:]] == [["Scheduled", "pod/first"]]


def test_events_that_a_compaction_dropped_are_said_to_be(tidelog: Tidelog, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    for file in log.parent.glob(f"{log.name}*"):
        (tmp_path / file.name.replace(log.name, copy.name)).write_bytes(file.read_bytes())

    assert tidelog("log", "compact", copy).code == 0

    assert "were dropped by compaction" in tidelog("get", "events", "--log", copy).err
    told = tidelog("why", "big", "--log", copy).out
    assert ("was dropped by compaction" in told, "what happened" in told) == (True, False)


def test_words_of_a_rejection_and_the_number_of_its_attempt_outlive_its_record(
    tidelog: Tidelog, log: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    for file in log.parent.glob(f"{log.name}*"):
        (tmp_path / file.name.replace(log.name, copy.name)).write_bytes(file.read_bytes())
    before = tidelog("why", "big", "--log", copy).out
    assert "attempts 1 to " in before

    assert tidelog("log", "compact", copy, "--keep", "8").code == 0

    (event,) = json.loads(tidelog("get", "events", "--for", "pod/big", "-o", "json", "--log", copy).out)
    assert event["message"].startswith("0/1 nodes are available: ")
    story = tidelog("why", "big", "--log", copy).out.partition("what happened")[2]
    assert "rejected: 0/1 nodes are available: " in story
    last = before.partition("attempts so far")[0].split()[-1]
    assert f" to {last}: " in story or f"attempt {last}: " in story


def test_moment_before_the_log_is_said_to_be_that(ask) -> None:
    assert "the log begins at 2023-11-14T22:13:20Z: there was nothing before" in ask("get", "pods", "--at", "2023-11-14T20:00:00Z").err  # fmt: skip


def test_time_of_day_is_understood_once_for_all_objects(ask) -> None:
    assert len(ask("describe", "pod", "first", "big", "--at", "00:20").err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["describe", "events"], "events are listed: `tidelog get events --for pod/web-1`"),
        (["get", "events", "web"], "events have no names"),
        (["get", "events", "-l", "a=b"], "events have no labels"),
        (["get", "events", "--since", "soon"], "must be a duration"),
        (["get", "events", "--for", "pods"], "name an object as KIND/NAME"),
        (["describe", "node", "n7"], "there is no node n7"),
        (["describe", "pods"], "name pods or nodes"),
    ],
)
def test_what_cannot_be_answered_is_one_line(ask, words: list[str], said: str) -> None:
    ran = ask(*words)

    assert ran.code in (1, 2)
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_node_is_described_with_its_pods_and_what_they_take(ask) -> None:
    lines = ask("describe", "node", "n1").lines

    assert "Taints:               x=y:PreferNoSchedule" in lines
    assert "Non-terminated Pods:  (2 in total)" in lines
    (gpu,) = [line.split() for line in lines[lines.index("Allocated resources:") :] if GPU in line]
    assert gpu == [GPU, "1", "2", "50%", "1"]
    assert any(line.split()[:5] == ["shop", "other", "cpu", "3", "(75%)"] for line in lines)


def test_node_at_an_earlier_moment_has_the_pods_of_then(ask) -> None:
    assert "Non-terminated Pods:  (0 in total)" in ask("describe", "node", "n1", "--at", "3").lines
    found = json.loads(ask("describe", "node", "n1", "-o", "json").out)
    assert {pod["metadata"]["name"] for pod in found["pods"]} == {"first", "other"}


def test_wide_nodes_show_extended_resources(ask) -> None:
    heading, line = ask("get", "nodes", "-o", "wide").lines

    assert "EXTENDED" in heading
    assert f"{GPU}=1/2" in line
