"""Nothing that stands in a log can act on the terminal of who reads it: every verb, on a log full of hostile names."""

from __future__ import annotations

import asyncio
import json
import logging
import unicodedata
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Tidelog
from tidelog.api.objects import Condition, Node, Pod, Taint
from tidelog.cli.main import VERBS
from tidelog.cli.shipped import folder
from tidelog.daemon.process.logs import configure, fields
from tidelog.eventlog.records import Draft, PodConditionSet
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

EVIL = "x\x1b[2J\x07\x9b31m\x7f\r\b\u202e\u2066\u2028\u2029\u200e\x00"
"""Clears the screen, rings, colours, deletes, goes back, turns the direction of text around, breaks lines."""
ELSEWHERE = {
    "apply": "reads no log; what it says of manifests is tested below",
    "run": "its lines are those of the last test",
    "bench": "reads no log",
    "version": "reads no log",
    "demo": "makes its own names",
    "completion": "reads no log",
    "log init": "makes a log; it prints where",
    "log status": "asks a database; tested in tests/postgres",
    "diff": "tested with such values in test_diff.py",
    "log repair": "asks for a damaged log; what it prints of one are numbers and the path",
    "log compact": "prints numbers and the path",
    "serve": "prints addresses; what it serves is tested in tests/kube",
    "page": "prints numbers and the path; what the page shows is tested in tests/page",
}


def is_harmless(text: str) -> bool:
    """No character of it controls, formats or breaks a line, except the newline."""
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text if c != "\n")


def hostile_node(name: str) -> Node:
    node = b.node(name).label({b.ZONE: EVIL, EVIL: EVIL}).capacity(cpu=1, memory="1Gi").build()
    return replace(node, spec=replace(node.spec, taints=(Taint(key=EVIL, value=EVIL, effect="NoExecute"),)))


def hostile_pod(name: str, cpu: int = 1) -> Pod:
    return b.pod(name).label({EVIL: EVIL}).request(cpu=cpu).scheduler("default-scheduler").build()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of hostile names and texts in all that takes them, none of which admission would let in."""
    driver = Driver()
    driver.start()
    driver.put(
        b.namespace(EVIL, {EVIL: EVIL}),
        replace(b.priority_class(EVIL, 7), description=EVIL),
        b.service(EVIL, {EVIL: EVIL}),
        b.pdb(EVIL, {EVIL: EVIL}, min_available=1),
        b.workload(EVIL, b.workload_group(EVIL, min_count=2)),
        b.pod_group(EVIL, min_count=2),
        hostile_node(EVIL),
        b.node("n1").capacity(cpu=1, memory="1Gi").build(),
        hostile_pod(EVIL),
        hostile_pod(f"big{EVIL}", cpu=9),
        hostile_pod("stuck", cpu=9),
        b.pod("gated").gate(EVIL).build(),
    )
    driver.settle()
    evil_condition = Condition(type=EVIL, status="True", reason=EVIL, message=EVIL)
    driver.append(Draft(body=PodConditionSet(condition=evil_condition), author=EVIL, key="Pod/default/stuck"))
    driver.settle()
    path = tmp_path_factory.mktemp("hostile") / "c.db"
    asyncio.run(write_log(path, driver.records))
    return path


COMMANDS: list[list[str]] = [
    *(
        ["get", kind, *form]
        for kind in ("pods", "nodes", "namespaces", "pc", "svc", "pdb", "podgroups", "workloads")
        for form in (
            [],
            ["-A", "-o", "wide"] if kind in ("pods", "svc", "pdb") else ["-o", "wide"],
            ["-o", "json"],
            ["-o", "yaml"],
        )
    ),
    *(["get", "pod", name, "-o", form] for name in (EVIL, "stuck") for form in ("table", "json", "yaml")),
    *(
        [*words, *form]
        for words in (["describe", "pod", EVIL], ["describe", "pod", "stuck"], ["describe", "pod", "gated"])
        for form in ([], ["-o", "json"])
    ),
    *(
        [*words, *form]
        for words in (
            ["why", EVIL],
            ["why", f"big{EVIL}"],
            ["why", "stuck"],
            ["why", "gated"],
            ["why-not", "stuck", EVIL],
            ["why-not", EVIL, "n1"],
            ["queue"],
        )
        for form in ([], ["-o", "json"], ["-o", "yaml"])
    ),
    *(["get", "events", "-A", *form] for form in ([], ["-o", "wide"], ["-o", "json"], ["-o", "yaml"])),
    *(
        ["describe", "node", name, *form]
        for name in (EVIL, "n1", f"no{EVIL}")
        for form in ([], ["-o", "json"])
    ),
    ["get", "events", "--for", f"pod/{EVIL}"],
    ["get", "pods", f"no{EVIL}"],
    ["get", EVIL],
    ["describe", "pod", f"no{EVIL}"],
    ["why", f"no{EVIL}"],
    ["why-not", "stuck", f"no{EVIL}"],
    ["get", "pods", "--at", EVIL],
    ["get", "pods", "-n", EVIL],
    ["delete", "pod", f"no{EVIL}"],
    ["delete", "--dry-run", "pod", EVIL],
    ["patch-condition", "pod", f"no{EVIL}", EVIL],
    ["patch-condition", "--dry-run", "pod", "stuck", f"{EVIL}=True"],
    *(["log", "tail", *form] for form in ([], ["-o", "json"], ["-n", "100"])),
    *(["log", "show", "1-40", *form] for form in ([], ["-o", "json"], ["-o", "yaml"])),
    ["plan", "-f", f"no{EVIL}"],
    ["shadow", "report"],
    ["plan", "-f", str(folder("examples") / "daemon" / "1-shop.yaml")],
    ["log", "verify"],
    ["log", "export"],
    ["log", "to-test"],
    ["replay", "verify"],
    ["replay", "what-if", "--set", f"nodes.{EVIL}=1"],
    ["replay", "what-if"],
    [EVIL],
    ["--" + EVIL],
    ["get", "--" + EVIL],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words))[1:60])
def test_nothing_in_a_log_reaches_the_terminal_as_it_is(
    log: Path, tidelog: Tidelog, words: list[str]
) -> None:
    ran = tidelog(*words, "--log", log)

    assert is_harmless(ran.out + ran.err), ascii(ran)
    assert ran.out + ran.err
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err


def test_every_verb_is_tried_or_said_not_to_be() -> None:
    tried = {" ".join(words[:2]) for words in COMMANDS} | {words[0] for words in COMMANDS}

    untried = {verb.name for verb in VERBS} - tried
    assert untried == {*ELSEWHERE, "log import", "log redact"}


def test_json_gives_the_original_back(log: Path, tidelog: Tidelog) -> None:
    ran = tidelog("get", "pod", EVIL, "-o", "json", "--log", log)

    assert json.loads(ran.out)["metadata"]["name"] == EVIL


def test_exported_lines_bring_the_log_back(log: Path, tidelog: Tidelog, tmp_path: Path) -> None:
    exported = tidelog("log", "export", "--log", log, "--to", tmp_path / "lines")
    imported = tidelog("log", "import", tmp_path / "lines", "--log", tmp_path / "again.db")
    redacted = tidelog("log", "redact", "--log", log, tmp_path / "redacted.db")

    assert (exported.code, imported.code, redacted.code) == (0, 0, 0)
    assert is_harmless(
        exported.out + exported.err + imported.out + imported.err + redacted.out + redacted.err
    )


@pytest.mark.parametrize("format", ["text", "json"])
def test_lines_of_the_daemon_are_harmless(capsys: pytest.CaptureFixture[str], format: str) -> None:
    before = logging.getLogger().handlers[:]
    try:
        configure(format)  # type: ignore[arg-type]
        log = logging.getLogger("tidelog.test")
        try:
            raise ValueError(EVIL)
        except ValueError:
            log.exception(EVIL, extra=fields(name=EVIL, many=[EVIL], deep={EVIL: EVIL}, **{EVIL: EVIL}))
        log.error("half of a pair", extra=fields(name="\ud800"))
        said = capsys.readouterr().err
    finally:
        logging.getLogger().handlers[:] = before

    assert len(said.splitlines()) == 2
    assert is_harmless(said)
