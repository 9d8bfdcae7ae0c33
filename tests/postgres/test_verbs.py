"""Every verb takes the address of a database where it takes a file."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from tests.postgres.conftest import Logs
from tests.postgres.server import PostgresServer
from tidelog.cli.main import main
from tidelog.eventlog.address import database_name
from tidelog.eventlog.postgres.address import parse_address

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; its code, and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_session_on_a_database_is_the_session_on_a_file(logs: Logs, run: Run, tmp_path: Path) -> None:
    def session(log: object) -> list[tuple[int, str]]:
        return [
            (run("log", "init", "--log", log)[0], ""),
            run("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", log)[:2],
            run("get", "nodes", "--log", log, "-o", "name")[:2],
            run("log", "verify", "--log", log)[:2],
            run("replay", "verify", "--log", log)[:2],
            run("delete", "node/a-1", "--log", log)[:2],
            run("get", "nodes", "--at", 3, "--log", log, "-o", "name")[:2],
            run("queue", "--log", log)[:2],
        ]

    of_database, of_file = session(logs.name()), session(tmp_path / "cluster.db")

    assert of_database == of_file
    assert all(code == 0 for code, _ in of_database)


def test_log_moves_to_a_database_and_back_with_the_same_digests(
    logs: Logs, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, back, url = tmp_path / "cluster.db", tmp_path / "back.db", logs.name()
    run("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", file)
    run("log", "compact", "--log", file, "--to", 3)
    run("apply", "-f", EXAMPLES / "daemon" / "1-shop.yaml", "--log", file)

    exports = []
    for source, target in ((file, url), (url, back)):
        code, exported, _ = run("log", "export", "--log", source)
        assert code == 0
        exports.append(exported)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(exported.encode())))
        assert run("log", "import", "-", "--log", target)[0] == 0
    digests = {
        json.loads(run("log", "verify", "--log", log, "-o", "json")[1])["digest"] for log in (file, url, back)
    }

    assert exports[0] == exports[1]
    assert len(digests) == 1


def test_import_into_a_log_with_records_is_refused(logs: Logs, run: Run, tmp_path: Path) -> None:
    url, lines = logs.name(), tmp_path / "lines"
    run("log", "init", url)
    run("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", url)
    lines.write_text(run("log", "export", "--log", url)[1])

    code, _, error = run("log", "import", lines, "--log", url)

    assert code == 1
    assert "is there already; import makes a new log" in error
    assert run("log", "verify", "--log", url)[1] == "6 records, chain ok, head ok\n"


def test_import_that_ends_too_early_leaves_an_empty_log(logs: Logs, run: Run, tmp_path: Path) -> None:
    url, copy, lines = logs.name(), logs.name(), tmp_path / "lines"
    run("log", "init", url)
    run("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", url)
    lines.write_text("".join(run("log", "export", "--log", url)[1].splitlines(keepends=True)[:-1]))

    code, _, error = run("log", "import", lines, "--log", copy)

    assert code == 1
    assert "the export ends too early" in error
    assert run("log", "verify", "--log", copy)[1] == "0 records, chain ok, head ok\n"


def test_log_that_was_not_made_is_named_with_the_way_to_make_it(logs: Logs, run: Run) -> None:
    url = logs.name()

    code, _, error = run("get", "pods", "--log", url)

    assert code == 1
    assert f"there is no log: make it with `tidelog log init {url}`" in error


def test_init_again_changes_nothing(logs: Logs, run: Run) -> None:
    url = logs.name()
    run("log", "init", url)
    run("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", url)

    code, out, _ = run("log", "init", url)

    assert code == 0
    assert "there is a log already" in out
    assert run("log", "verify", "--log", url)[1] == "6 records, chain ok, head ok\n"


def test_log_of_a_newer_version_is_refused(server: PostgresServer, logs: Logs, run: Run) -> None:
    url = logs.name()
    run("log", "init", url)

    async def made_newer(by: int) -> None:
        connection = await asyncpg.connect(server.url())
        await connection.execute(f"UPDATE {parse_address(url).schema}.about SET version = version + {by}")
        await connection.close()

    asyncio.run(made_newer(1))

    for words in (("log", "init", url), ("get", "nodes", "--log", url), ("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", url)):  # fmt: skip
        code, _, error = run(*words)

        assert code == 1
        assert "it has version 2 of the tables, and this tidelog knows 1: use a newer tidelog" in error
    asyncio.run(made_newer(-1))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2@h/db",
        "postgresql://me@h/db?password=hunter2",
        "postgres://me:hunter2@h:1/db?schema=x",
    ],
)
def test_password_in_an_address_is_refused_and_not_repeated(address: str, run: Run) -> None:
    code, out, error = run("get", "pods", "--log", address)

    assert code == 2
    assert "a password does not belong in an address" in error
    assert "hunter2" not in out + error + database_name(address)


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("postgresql://h", "names no database"),
        ("postgresql://h/", "names no database"),
        ("postgresql://h/a/b", "names no database"),
        ("postgresql://h/a?schema=A", "schema='A'"),
        ("postgresql://h/a?schema=pg_x", "schema='pg_x'"),
        ("postgresql://h/a?lease=1", "lease='1'"),
        ("postgresql://h/a?lease=100ms", "lease='100ms'"),
        ("postgresql://h/a?patience=2h", "patience='2h'"),
        ("postgresql://h/a#b", "#b"),
    ],
)
def test_address_that_is_none_is_refused(address: str, wrong: str, run: Run) -> None:
    code, _, error = run("get", "pods", "--log", address)

    assert code == 2
    assert wrong in error


def test_options_of_ours_do_not_reach_the_server() -> None:
    parsed = parse_address("postgresql://me@a,b/db?sslmode=require&schema=x&lease=3s&patience=1m")

    assert parsed.dsn == "postgresql://me@a,b/db?sslmode=require&target_session_attrs=read-write"
    assert (parsed.schema, parsed.lease_seconds, parsed.patience_seconds) == ("x", 3.0, 60.0)


def test_demo_makes_a_file(run: Run) -> None:
    code, _, error = run("demo", "--log", "postgresql://me@127.0.0.1:1/db")

    assert code == 2
    assert "the demo makes a log of its own, in a file" in error


def test_server_that_is_not_there_is_one_line(run: Run) -> None:
    code, _, error = run("get", "pods", "--log", "postgresql://me@127.0.0.1:1/db?patience=0s")

    assert code == 1
    assert "the database server cannot be used" in error
    assert len(error.splitlines()) == 1
