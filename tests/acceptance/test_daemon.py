"""The daemon as its users meet it: real processes, a real file, HTTP, signals, kill -9."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.daemons import Daemon, daemon, placements, pods, tidelog
from tests.daemon.metrics.test_metrics import KUBE_SCHEDULER, OURS, rows
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.api.objects import Node, Pod
from tidelog.daemon.process.recovery import recovered_core
from tidelog.eventlog import database, head_file
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing.sandbox import assert_tables_agree

ZONE = "topology.kubernetes.io/zone"


def a_node(name: str, cpu: str = "8") -> Node:
    return b.node(name).label({ZONE: f"zone-{int(name[1:]) % 3}"}).capacity(cpu=cpu, memory="64Gi").build()


def a_pod(name: str, cpu: str = "1") -> Pod:
    return b.pod(name).label(app="web").spread(ZONE, max_skew=3).request(cpu=cpu).build()


def manifest(path: Path, *objects: Node | Pod) -> Path:
    path.write_text(dump_yaml(objects))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cluster.db"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Six nodes, and forty pods that fit."""
    objects = [*(a_node(f"n{i}") for i in range(6)), *(a_pod(f"p{i}") for i in range(40))]
    return manifest(tmp_path / "cluster.yaml", *objects)


async def check_log(path: Path) -> list[Record]:
    """Every decision is what the facts make of it, no pod was placed twice, and all ways lead to the same state."""
    async with open_reader(path) as reader:
        records = [record async for record in reader.read()]
        from_snapshot = await recovered_core(reader, Registry())
    report = verify(records, Registry())
    assert report.first_difference is None
    core = recover(records, Registry())
    assert core.digest() == from_snapshot.digest()
    assert report.digest in ("", core.digest())
    assert_tables_agree(records, core)
    bound = Counter(record.key for record in records if record.kind == "Scheduled")
    assert set(bound.values()) <= {1}
    return records


async def test_pods_applied_by_one_process_are_placed_by_another(
    log: Path, cluster: Path, tmp_path: Path
) -> None:
    with daemon(log, "--snapshot-every", 50) as first:
        tidelog("apply", "--log", log, "-f", cluster)
        first.until("scheduler_schedule_attempts_total", 40, result="scheduled", profile="default-scheduler")
        scraped = first.metrics()
        ready, live = first.get("/readyz"), first.get("/livez")
        in_force = json.loads(first.get("/configz"))
        code = first.stop()

    placed = placements(log)
    with daemon(log) as second:
        status = second.get("/statusz")
        more = manifest(tmp_path / "more.yaml", a_pod("late"))
        tidelog("apply", "--log", log, "-f", more)
        second.until("scheduler_schedule_attempts_total", 1, result="scheduled")
        second.stop()

    assert (code, ready, live) == (0, "ok", "ok")
    assert scraped["scheduler_pending_pods"].samples[0].value == 0
    assert in_force["componentconfig"]["kind"] == "KubeSchedulerConfiguration"
    assert "Epoch: 2" in status
    assert len(placed) == 40
    after = placements(log)
    assert placed == {name: node for name, node in after.items() if name != "late"}
    assert "late" in after
    await check_log(log)


async def test_every_metric_of_the_specification_is_exposed_by_the_daemon(log: Path, cluster: Path) -> None:
    with daemon(log) as running:
        tidelog("apply", "--log", log, "-f", cluster)
        running.until("scheduler_schedule_attempts_total", 40, result="scheduled")
        scraped = running.metrics()

    for name, kind, labels, *_ in (*rows(KUBE_SCHEDULER, "scheduler_"), *rows(OURS, "tidelog_")):
        family = scraped[name.removesuffix("_total") if kind == "counter" else name]
        assert kind == family.type
        own = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert own <= set() if labels == "-" else own <= set(labels.split(",")), name
    for name in (
        "scheduler_framework_extension_point_duration_seconds",
        "scheduler_plugin_execution_duration_seconds",
        "scheduler_plugin_evaluation",
        "scheduler_event_handling_duration_seconds",
        "scheduler_queue_incoming_pods",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "tidelog_log_commit_duration_seconds",
        "tidelog_queue_wait_seconds",
    ):
        assert any(sample.value > 0 for sample in scraped[name].samples), name


async def test_standby_takes_over_when_the_first_is_killed(log: Path, cluster: Path, tmp_path: Path) -> None:
    with daemon(log) as first, daemon(log, ready="standing by") as second:
        tidelog("apply", "--log", log, "-f", cluster)
        first.until("scheduler_schedule_attempts_total", 40, result="scheduled")
        waiting = second.get("/statusz"), second.get("/readyz")
        first.kill()
        second.wait_for("scheduling")
        tidelog("apply", "--log", log, "-f", manifest(tmp_path / "more.yaml", a_pod("late")))
        second.until("scheduler_schedule_attempts_total", 1, result="scheduled")
        leading = second.get("/statusz")
        second.stop()

    assert "Phase: standby" in waiting[0]
    assert waiting[1] == "ok"
    assert "Phase: leading" in leading
    assert "Epoch: 2" in leading
    assert len(placements(log)) == 41
    await check_log(log)


def keep_applying(log: Path, folder: Path, over: threading.Event) -> None:
    """Another process hands over pods until it is told to stop; the daemon may be dead at any time."""
    for turn in range(1_000):
        if over.is_set():
            return
        path = manifest(folder / f"turn-{turn}.yaml", *(a_pod(f"t{turn}-{i}", "10m") for i in range(20)))
        tidelog("apply", "--log", log, "-f", path, ok=False)


@pytest.mark.slow
async def test_daemon_that_is_killed_under_load_comes_back_without_loss(log: Path, tmp_path: Path) -> None:
    rnd = random.Random(7)
    tidelog(
        "apply", "--log", log, "-f", manifest(tmp_path / "nodes.yaml", *(a_node(f"n{i}") for i in range(6)))
    )
    over = threading.Event()
    applying = threading.Thread(target=keep_applying, args=(log, tmp_path, over))
    applying.start()
    try:
        for _ in range(4):
            with daemon(log, "--snapshot-every", 100) as running:
                threading.Event().wait(rnd.uniform(0.2, 1.2))
                running.kill()
    finally:
        over.set()
        applying.join()

    with daemon(log) as running:
        running.until("tidelog_ready", 1)
        waiting = len([name for name, pod in pods(log).items() if not pod["spec"].get("nodeName")])
        running.until("scheduler_schedule_attempts_total", 0, result="scheduled")
        for _ in range(500):
            if not waiting:
                break
            waiting = len([name for name, pod in pods(log).items() if not pod["spec"].get("nodeName")])
        running.stop()

    assert waiting == 0
    records = await check_log(log)
    assert len([r for r in records if r.kind == "SchedulerStarted"]) == 5


async def test_sighup_puts_the_file_in_force_and_a_broken_one_not(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    with daemon(log, "--config", config) as running:
        config.write_text(config.read_text() + "podMaxBackoffSeconds: 77\n")
        running.signal(signal.SIGHUP)
        running.wait_for("the configuration was read again")
        changed = json.loads(running.get("/configz"))["componentconfig"]["podMaxBackoffSeconds"]
        config.write_text(config.read_text() + "podMaxBackofSeconds: 78\n")
        running.signal(signal.SIGHUP)
        refused = running.wait_for("the configuration is refused, the old one stays")
        kept = json.loads(running.get("/configz"))["componentconfig"]["podMaxBackoffSeconds"]
        running.stop()

    assert (changed, kept) == (77, 77)
    assert "podMaxBackofSeconds" in refused["error"]
    records = await check_log(log)
    assert [r.kind for r in records].count("ConfigurationLoaded") == 2


async def test_node_agent_starts_and_ends_pods(log: Path, tmp_path: Path) -> None:
    actors = tmp_path / "actors.yaml"
    actors.write_text("nodeAgent: {startSeconds: 0.1, speed: 1000}\n")
    with daemon(log, "--actors", actors) as running:
        tidelog("apply", "--log", log, "-f", manifest(tmp_path / "m.yaml", a_node("n1"), a_pod("web")))
        running.until("tidelog_log_head_seq", 6)
        phase = pods(log)["web"]["status"]["phase"]
        tidelog("delete", "pod", "web", "--log", log)
        running.until("tidelog_log_head_seq", 8)
        running.stop()

    assert phase == "Running"
    assert pods(log) == {}
    await check_log(log)


def test_configuration_is_written_as_a_file_that_reads_as_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"

    tidelog("run", "--write-config-to", first)
    tidelog("run", "--config", first, "--write-config-to", second)

    assert first.read_text() == second.read_text()


# --- bad input ------------------------------------------------------------------------------------------------------------


def refused(*argv: object) -> tuple[int, str]:
    """Exit code and the one line on stderr of a run that must not begin; log lines aside."""
    done = tidelog("run", *argv, ok=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("tidelog: ")]
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


def test_bad_options_are_one_line_each_and_change_nothing(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    broken = tmp_path / "broken.yaml"
    broken.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nnonsense: 1\n"
    )
    actors = tmp_path / "actors.yaml"
    actors.write_text("nodeAgent: {startSeconds: -1}\n")
    off = ("--listen", "off")
    cases = [
        (("--log", log, *off, "--config", broken), 1, "nonsense"),
        (("--log", log, *off, "--config", tmp_path / "none.yaml"), 1, "No such file"),
        (("--log", log, *off, "--actors", actors), 1, "nodeAgent.startSeconds"),
        (("--log", log, *off, "--feature-gates", "Nonsense=true"), 1, "Nonsense"),
        (("--log", log, *off, "--snapshot-every", -1), 2, "--snapshot-every"),
        (("--log", log, "--listen", "nonsense"), 2, "cannot listen on"),
        (("--log", tmp_path / "none" / "c.db", *off), 1, "there is no directory"),
        (("--log", tmp_path, *off), 1, "is a directory"),
        (off, 2, "which log?"),
    ]

    for argv, code, words in cases:
        found, line = refused(*argv)
        assert (code, True) == (found, words in line), line
    assert not log.exists()


def test_taken_port_is_told_before_the_log_is_touched(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = refused("--log", log, "--listen", f"127.0.0.1:{port}")

    assert code == 1
    assert f"port {port}" in line
    assert not log.exists()


async def test_log_of_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "c.db"
    monkeypatch.setattr(database, "FORMAT", 99)
    monkeypatch.setattr(head_file, "FORMAT", 99)
    async with open_log(log):
        pass

    code, line = refused("--log", log, "--listen", "off")

    assert code == 1
    assert "newer" in line


def test_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    log.write_text("this is no database, and long enough to be looked at as if it were one\n" * 100)

    code, line = refused("--log", log, "--listen", "off")

    assert code == 1
    assert "not a tidelog log" in line


def test_second_daemon_may_refuse_to_stand_by(log: Path) -> None:
    with daemon(log) as running:
        code, line = refused("--log", log, "--listen", "off", "--no-standby")
        assert isinstance(running, Daemon)

    assert code == 1
    assert "is being written by" in line
