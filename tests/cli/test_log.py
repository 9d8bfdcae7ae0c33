"""The verbs about the log itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.cli.conftest import Tidelog
from tidelog.testing.builders import pod

Manifest = Callable[..., Path]


@pytest.fixture
def damaged(two_pods: Tidelog, tmp_path: Path) -> Tidelog:
    """A log whose second record was changed on the disk."""
    path = tmp_path / "cluster.db"
    data = path.read_bytes()
    place = data.index(b"web-2")
    path.write_bytes(data[:place] + b"wob-2" + data[place + 5 :])
    return two_pods


# --- tail, show -----------------------------------------------------------------------------------------------------


def test_tail_is_a_line_a_record(two_pods: Tidelog) -> None:
    two_pods("patch-condition", "pod", "web-1", "--type", "T", "--status", "True", "--reason", "Because")
    two_pods("delete", "pod", "web-2")

    lines = two_pods("log", "tail", "-n", "3").lines

    assert [line.split()[0] for line in lines] == ["SEQ", "2", "3", "4"]
    assert [line.split()[2:] for line in lines[1:]] == [
        ["cluster", "ObjectPut", "Pod/default/web-2"],
        ["cluster", "PodConditionSet", "Pod/default/web-1", "T=True", "(Because)"],
        ["cluster", "ObjectDeleted", "Pod/default/web-2"],
    ]


def test_tail_from_a_record(two_pods: Tidelog) -> None:
    assert [line.split()[0] for line in two_pods("log", "tail", "--from", "2").lines] == ["SEQ", "2"]
    assert two_pods("log", "tail", "-n", "0").lines == two_pods("log", "tail", "--from", "3").lines


@pytest.mark.parametrize("words", [["-n", "-1"], ["--from", "0"]])
def test_tail_of_nothing_that_there_is_is_wrong_usage(two_pods: Tidelog, words: list[str]) -> None:
    ran = two_pods("log", "tail", *words)

    assert ran.code == 2
    assert "must not be below" in ran.err


def test_tail_as_json_is_a_line_a_record(two_pods: Tidelog) -> None:
    records = [json.loads(line) for line in two_pods("log", "tail", "-o", "json").lines]

    assert [(r["seq"], r["kind"], r["body"]["object"]["kind"]) for r in records] == [
        (1, "ObjectPut", "Pod"),
        (2, "ObjectPut", "Pod"),
    ]


def test_show_is_all_of_a_record(two_pods: Tidelog) -> None:
    two_pods("delete", "pod", "web-1")

    first, last = yaml.safe_load_all(two_pods("log", "show", "1", "3").out)

    assert first["body"]["object"]["metadata"]["name"] == "web-1"
    assert {**last, "at": "", "digest": ""} == {
        "seq": 3,
        "at": "",
        "author": "cluster",
        "kind": "ObjectDeleted",
        "key": "Pod/default/web-1",
        "body": {"uid": first["body"]["object"]["metadata"]["uid"]},
        "digest": "",
    }
    assert len(last["digest"]) == 64


def test_show_takes_ranges(two_pods: Tidelog) -> None:
    shown = two_pods("log", "show", "1-2", "1", "-o", "table").lines

    assert [line.split()[0] for line in shown] == ["SEQ", "1", "2", "1"]


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("0", 2, "the first record is 1"),
        ("x", 2, "x: must be the number of a record"),
        ("3-1", 2, "3-1: must be the number of a record, or two as in 20-25"),
        ("1-", 2, "must be the number"),
        ("99999999999999999999", 2, "must be the number"),
        ("1-3", 1, "there is no record 3: the log ends at 2"),
    ],
)
def test_show_of_a_record_that_cannot_be(two_pods: Tidelog, text: str, code: int, error: str) -> None:
    ran = two_pods("log", "show", text)

    assert ran.code == code
    assert ran.out == ""
    assert error in ran.err


# --- verify, repair -------------------------------------------------------------------------------------------------


def test_verify_says_that_all_is_well(two_pods: Tidelog) -> None:
    assert two_pods("log", "verify") == (0, "2 records, chain ok, head ok\n", "")


def test_verify_takes_the_log_as_an_argument(two_pods: Tidelog, tidelog: Tidelog, tmp_path: Path) -> None:
    assert tidelog("log", "verify", tmp_path / "cluster.db") == two_pods("log", "verify")


def test_verify_as_data(two_pods: Tidelog) -> None:
    found = json.loads(two_pods("log", "verify", "-o", "json").out)

    assert len(found.pop("digest")) == 64
    assert found == {
        "records": 2,
        "first": 1,
        "last": 2,
        "chain": "ok",
        "head": "ok",
        "snapshots": 0,
        "rebuilt": 0,
        "problems": [],
    }


@pytest.mark.unreplayed("the log is damaged")
def test_damage_is_named_and_exit_4(damaged: Tidelog) -> None:
    ran = damaged("log", "verify")

    assert ran.code == 4
    assert ran.out == ""
    assert "record 2 is missing or damaged" in ran.err
    assert "tidelog log repair --accept-loss" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.unreplayed("the log is damaged")
def test_damage_as_data(damaged: Tidelog) -> None:
    ran = damaged("log", "verify", "-o", "json")

    assert ran.code == 4
    assert json.loads(ran.out)["damaged"]["first"] == 2


@pytest.mark.unreplayed("the log is damaged")
def test_every_verb_refuses_a_damaged_log(damaged: Tidelog, tmp_path: Path) -> None:
    for words in (("get", "pods"), ("apply", "-f", tmp_path / "objects.yaml"), ("log", "export")):
        assert damaged(*words).code == 4, words


@pytest.mark.unreplayed("the log is damaged")
def test_repair_without_consent_changes_nothing(damaged: Tidelog, tmp_path: Path) -> None:
    before = (tmp_path / "cluster.db").read_bytes()

    ran = damaged("log", "repair")

    assert ran.code == 4
    assert (tmp_path / "cluster.db").read_bytes() == before


def test_repair_drops_what_cannot_be_trusted(damaged: Tidelog, tmp_path: Path) -> None:
    ran = damaged("log", "repair", "--accept-loss")

    assert ran.code == 0
    assert ran.lines[0].startswith("repaired: the log goes on after record 1, record 2 is lost (")
    assert ran.lines[1] == f"the damaged log is kept as {tmp_path / 'cluster.db'}.damaged-1"
    assert damaged("log", "verify").out == "2 records, chain ok, head ok\n"
    assert "LossAccepted" in damaged("log", "tail", "-n", "1").out
    assert damaged("get", "pods", "-o", "name").lines == ["pod/web-1"]


def test_repair_of_a_sound_log_does_nothing(two_pods: Tidelog) -> None:
    assert (
        two_pods("log", "repair", "--accept-loss").out == "nothing to repair: 2 records, chain ok, head ok\n"
    )


# --- compact --------------------------------------------------------------------------------------------------------


def test_compacted_log_has_its_objects_and_no_past(two_pods: Tidelog, manifest: Manifest) -> None:
    before = two_pods("get", "pods", "-o", "json").out

    ran = two_pods("log", "compact")

    assert ran.code == 0
    assert ran.out.startswith("records 1 to 2 dropped, the log begins at record 3: ")
    assert two_pods("get", "pods", "-o", "json").out == before
    assert two_pods("apply", "-f", manifest(pod("web-3").build())).code == 0
    assert two_pods("log", "verify", "--rebuild").out == (
        "1 records, chain ok, head ok, 2 snapshots ok (1 computed again), records 1 to 2 were compacted\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["get", "pods", "--at", "1"], "record 1 was dropped by compaction; the log begins at 3"),
        (["get", "pods", "--at", "2001-01-01T00:00:00Z"], "was dropped by compaction; the log begins at"),
        (["log", "show", "1"], "record 1 was dropped by compaction"),
        (["log", "tail", "--from", "1"], "record 1 was dropped by compaction"),
    ],
)
def test_what_was_compacted_cannot_be_asked_for(two_pods: Tidelog, words: list[str], error: str) -> None:
    two_pods("log", "compact")

    ran = two_pods(*words)

    assert ran.code == 1
    assert error in ran.err


def test_compacting_twice_drops_nothing_more(two_pods: Tidelog) -> None:
    two_pods("log", "compact")

    assert two_pods("log", "compact").out == "nothing to drop: the log begins at record 3\n"


def test_snapshots_of_another_version_are_not_compacted_behind(two_pods: Tidelog, tmp_path: Path) -> None:
    import asyncio

    from tidelog.eventlog.log import open_log

    async def put_unreadable() -> None:
        async with open_log(tmp_path / "cluster.db") as log:
            for name in ("objects", "scheduler"):
                await log.put_snapshot(name, log.head.seq, msgspec.msgpack.encode((0, None, [])))

    before = two_pods("get", "pods", "-o", "json").out
    asyncio.run(put_unreadable())

    ran = two_pods("log", "compact")

    assert ran.out.startswith("records 1 to 2 dropped")
    assert two_pods("get", "pods", "-o", "json").out == before
    assert two_pods("queue").code == 0


@pytest.mark.parametrize(("seq", "code"), [("0", 2), ("3", 1)])
def test_compact_to_a_record_that_is_not_there(two_pods: Tidelog, seq: str, code: int) -> None:
    assert two_pods("log", "compact", "--to", seq).code == code
    assert two_pods("log", "verify").out == "2 records, chain ok, head ok\n"


def test_scheduler_comes_back_from_a_compacted_log_though_none_ever_kept_its_state(
    two_pods: Tidelog, manifest: Manifest, tmp_path: Path
) -> None:
    import asyncio

    from tidelog.daemon.process.recovery import recovered_core
    from tidelog.eventlog.log import open_log
    from tidelog.plugins.registry import installed_plugins

    async def recovered() -> list[str]:
        async with open_log(tmp_path / "cluster.db") as log:
            await log.take_over("a test")
            core = await recovered_core(log, installed_plugins())
            assert core.seq == log.head.seq
            return [pod.metadata.name for pod in core.cluster.pending_pods()]

    before_any = two_pods("log", "compact")
    first = asyncio.run(recovered())
    two_pods("apply", "-f", manifest(pod("web-3").build()))
    after_one = two_pods("log", "compact")
    second = asyncio.run(recovered())

    assert (before_any.code, first) == (0, ["web-1", "web-2"])
    assert after_one.out.startswith("records 3 to 4 dropped, the log begins at record 5: ")
    assert second == ["web-1", "web-2", "web-3"]


# --- export, import -------------------------------------------------------------------------------------------------


def test_exported_log_comes_back_the_same(two_pods: Tidelog, tidelog: Tidelog, tmp_path: Path) -> None:
    exported = two_pods("log", "export", "--to", tmp_path / "log.jsonl")
    imported = tidelog("log", "import", tmp_path / "log.jsonl", "--log", tmp_path / "copy.db")

    assert exported.out == f"2 records exported to {tmp_path / 'log.jsonl'}\n"
    assert imported.out == f"2 records imported into {tmp_path / 'copy.db'}, chain ok\n"
    digests = [
        json.loads(tidelog("log", "verify", log, "-o", "json").out)["digest"]
        for log in (tmp_path / "cluster.db", tmp_path / "copy.db")
    ]
    assert digests[0] == digests[1]


def test_export_writes_over_nothing(two_pods: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "backup.jsonl").write_text("precious")

    ran = two_pods("log", "export", "--to", tmp_path / "backup.jsonl")

    assert ran.code == 1
    assert "is there already" in ran.err
    assert (tmp_path / "backup.jsonl").read_text() == "precious"


@pytest.mark.unreplayed("the log is damaged")
def test_failed_export_leaves_no_file(damaged: Tidelog, tmp_path: Path) -> None:
    assert damaged("log", "export", "--to", tmp_path / "log.jsonl").code == 4
    assert not (tmp_path / "log.jsonl").exists()


def test_export_into_a_directory_that_is_not_there(two_pods: Tidelog, tmp_path: Path) -> None:
    ran = two_pods("log", "export", "--to", tmp_path / "none" / "log.jsonl")

    assert ran.code == 1
    assert ran.err.startswith("tidelog: error: cannot write")


def test_import_refuses_an_export_that_was_changed(
    two_pods: Tidelog, tidelog: Tidelog, tmp_path: Path
) -> None:
    two_pods("log", "export", "--to", tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text()
    (tmp_path / "log.jsonl").write_text(text.replace("web-2", "wob-2"))

    ran = tidelog("log", "import", tmp_path / "log.jsonl", "--log", tmp_path / "copy.db")

    assert ran.code == 1
    assert "line 3: " in ran.err
    assert not (tmp_path / "copy.db").exists()


def test_import_makes_no_log_over_another(two_pods: Tidelog, tmp_path: Path) -> None:
    two_pods("log", "export", "--to", tmp_path / "log.jsonl")

    ran = two_pods("log", "import", tmp_path / "log.jsonl")

    assert ran.code == 1
    assert "choose a name for a new log" in ran.err


def test_import_of_a_file_that_is_not_there(tidelog: Tidelog, tmp_path: Path) -> None:
    ran = tidelog("log", "import", tmp_path / "none.jsonl", "--log", tmp_path / "copy.db")

    assert ran == (
        1,
        "",
        f"tidelog: error: cannot read {tmp_path / 'none.jsonl'}: No such file or directory\n",
    )


def test_import_reads_stdin(
    two_pods: Tidelog, tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    two_pods("log", "export", "--to", tmp_path / "log.jsonl")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "log.jsonl").read_bytes())))

    ran = tidelog("log", "import", "-", "--log", tmp_path / "copy.db", "-o", "json")

    assert json.loads(ran.out) == {"records": 2, "log": str(tmp_path / "copy.db")}


# --- as data --------------------------------------------------------------------------------------------------------


def test_compaction_as_data(two_pods: Tidelog) -> None:
    found = json.loads(two_pods("log", "compact", "-o", "json").out)

    assert (found["dropped"], found["first"]) == (2, 3)


def test_repair_as_data(damaged: Tidelog, tmp_path: Path) -> None:
    found = json.loads(damaged("log", "repair", "--accept-loss", "-o", "json").out)

    assert (found["kept"], found["lost_last"]) == (1, 2)
    assert Path(found["backup"]).exists()


def test_unsound_snapshot_is_told_and_exit_4(two_pods: Tidelog, tmp_path: Path, manifest: Manifest) -> None:
    """It is only a cache: nothing is lost, and yet something on this disk was changed."""
    import sqlite3

    two_pods("apply", "-f", manifest(pod("web-3").build()))
    two_pods("log", "compact", "--to", "2")
    with sqlite3.connect(tmp_path / "cluster.db") as database:
        database.execute("UPDATE parts SET data = zeroblob(10) WHERE seq = 2")
    database.close()

    ran = two_pods("log", "verify")

    assert ran.code == 4
    assert "records, chain ok, head ok" in ran.out
    assert ran.err.startswith("tidelog: warning: snapshot objects at 2: ")
    assert ran.err.endswith("; it is only a cache, and is not used\n")


def test_damaged_structure_of_the_file_is_told_in_one_line_with_the_way_out(
    two_pods: Tidelog, tmp_path: Path
) -> None:
    log = tmp_path / "cluster.db"
    content = bytearray(log.read_bytes())
    content[20] ^= 1  # Bytes reserved at the end of each page, of which SQLite computes where cells may be.
    log.write_bytes(content)

    ran = two_pods("log", "verify")
    repaired = two_pods("log", "repair", "--accept-loss")
    after = two_pods("log", "verify")

    assert ran.code == 4
    assert ran.out == after.out == "2 records, chain ok, head ok\n"
    assert ran.err.count("\n") == 1
    assert "every record is there, but SQLite finds its file damaged (" in ran.err
    assert ran.err.endswith(f"make it anew, without loss: tidelog log repair --accept-loss {log}\n")
    assert (repaired.code, after.code) == (0, 0)
