"""What each role may do with a log in a database: the one that `--grant` names, the one that `--grant-reading` names, and everybody else."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.acceptance.daemons import Daemon, tidelog
from tests.postgres.conftest import Logs
from tests.postgres.server import PostgresServer
from tidelog.cli.main import main
from tidelog.eventlog.status import log_status

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES, SHOP = EXAMPLES / "1-nodes.yaml", EXAMPLES / "daemon" / "1-shop.yaml"
ROLES = ("leads", "reads", "stranger")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; its code, and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        if arguments[0] == "run":
            done = tidelog(*arguments, ok=False)
            return done.returncode, done.stdout, done.stderr
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def urls(server: PostgresServer, logs: Logs, run: Run) -> Iterator[dict[str, str]]:
    """A log's address for each role, and for its owner."""

    async def on_server(statement: str) -> None:
        connection = await asyncpg.connect(server.url())
        for role in ROLES:
            await connection.execute(statement.format(role))
        await connection.close()

    asyncio.run(on_server("CREATE ROLE {} LOGIN"))
    owner = logs.name()
    assert run("log", "init", owner, "--grant", "leads", "--grant-reading", "reads")[0] == 0
    yield {"owner": owner, **{role: owner.replace("//tidelog@", f"//{role}@") for role in ROLES}}
    asyncio.run(on_server("DROP OWNED BY {}"))
    asyncio.run(on_server("DROP ROLE {}"))


def lead(url: str) -> Daemon:
    """A daemon that leads it."""
    daemon = Daemon(url, listen="off")  # type: ignore[arg-type]
    daemon.wait_for("scheduling")
    return daemon


def placed(run: Run, url: str) -> set[str]:
    listed = json.loads(run("get", "pods", "-A", "--log", url, "-o", "json")[1])
    return {item["metadata"]["name"] for item in listed["items"] if item["spec"].get("nodeName")}


def test_role_that_may_lead_needs_nothing_else(
    urls: dict[str, str], run: Run, tmp_path: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urls["leads"]
    did = [
        run("apply", "-f", NODES, "--log", url),
        run("get", "nodes", "--log", url),
        run("describe", "node/a-1", "--log", url),
        run("diff", "-f", SHOP, "--log", url),
        run("plan", "-f", SHOP, "--log", url),
    ]
    daemon = lead(url)
    try:
        did.append(run("apply", "-f", SHOP, "--log", url))
        while not placed(run, url):
            assert daemon.process.poll() is None
        did.append(run("queue", "--log", url))
    finally:
        assert daemon.stop() == 0
    pod = min(placed(run, url))
    did += [
        run("why", pod, "--log", url),
        run("why-not", pod, "a-1", "--log", url),
        run("patch-condition", f"pod/{pod}", "--type", "example.com/warm", "--status", "True", "--log", url),
        run("log", "status", "--log", url),
        run("log", "tail", "-n", "3", "--log", url),
        run("log", "show", "3", "--log", url),
        run("log", "verify", "--log", url),
        run("log", "repair", "--log", url),
        run("log", "compact", "--log", url),
        run("log", "verify", "--log", url),
        run("replay", "verify", "--log", url),
        run("delete", "node/c-2", "--log", url),
    ]
    code, exported, error = run("log", "export", "--log", url)

    assert [(code, error) for code, _, error in did if code] == []
    assert (code, error) == (0, "")
    # It makes no tables, in this log or in another.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(exported.encode())))
    code, _, error = run("log", "import", "-", "--log", logs.name().replace("//tidelog@", "//leads@"))
    assert code == 1
    assert_one_line(error, "permission denied for database")


def test_role_that_may_read_reads(urls: dict[str, str], run: Run) -> None:
    assert run("apply", "-f", NODES, "--log", urls["owner"])[0] == 0
    url = urls["reads"]

    did = [
        run("get", "nodes", "--log", url),
        run("log", "status", "--log", url),
        run("log", "tail", "-n", "3", "--log", url),
        run("log", "verify", "--log", url),
        run("log", "export", "--log", url),
        run("log", "compact", "--dry-run", "--log", url),
        run("replay", "verify", "--log", url),
    ]

    assert [(code, error) for code, _, error in did if code] == []


def test_role_that_may_read_hands_facts_to_whoever_leads(urls: dict[str, str], run: Run) -> None:
    url = urls["reads"]

    alone = run("apply", "-f", NODES, "--log", url)
    daemon = lead(urls["leads"])
    try:
        led = run("apply", "-f", NODES, "--log", url)
    finally:
        assert daemon.stop() == 0

    assert alone[0] == 1
    assert_one_line(alone[2], "permission denied for table lease, and nobody leads it", "--grant")
    assert (led[0], led[1].count("created")) == (0, 6)


@pytest.mark.parametrize(
    "words",
    [("log", "repair"), ("log", "compact"), ("run", "--listen", "off")],
    ids=" ".join,
)
def test_role_that_may_read_changes_nothing(words: tuple[str, ...], urls: dict[str, str], run: Run) -> None:
    assert run("apply", "-f", NODES, "--log", urls["owner"])[0] == 0

    code, out, error = run(*words, "--log", urls["reads"])

    assert (code, out) == (1, "")
    assert_one_line(error, "this user lacks a right", "log init --grant USER")
    assert run("log", "verify", "--log", urls["owner"])[1] == "6 records, chain ok, head ok\n"


def test_role_that_may_not_lead_does_not_stand_by(urls: dict[str, str], run: Run) -> None:
    daemon = lead(urls["leads"])
    try:
        code, _, error = run("run", "--listen", "off", "--log", urls["reads"])
        (standbys,) = {asyncio.run(log_status(urls["owner"])).followers}
    finally:
        assert daemon.stop() == 0

    assert code == 1
    assert_one_line(error, "it may not take the lease")
    assert standbys == ()


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "-f", str(NODES)),
        ("get", "nodes"),
        ("log", "status"),
        ("log", "verify"),
        ("log", "compact"),
        ("log", "repair"),
        ("log", "export"),
        ("replay", "verify"),
        ("run", "--listen", "off"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_everybody_else_is_refused(words: tuple[str, ...], urls: dict[str, str], run: Run) -> None:
    code, out, error = run(*words, "--log", urls["stranger"])

    assert (code, out) == (1, "")
    assert_one_line(error, "permission denied for schema", "the log's owner gives it with `tidelog log init")


def assert_one_line(error: str, *parts: str) -> None:
    (line,) = [line for line in error.splitlines() if not line.startswith("{")]
    assert line.startswith("tidelog: error: ")
    for part in parts:
        assert part in line


def test_role_that_is_not_there_is_named(logs: Logs, run: Run) -> None:
    url = logs.name()

    code, _, error = run("log", "init", url, "--grant", "nobody-of-this-name")

    assert code == 2
    assert_one_line(error, "--grant nobody-of-this-name", "createuser")
