"""Passwords on a server that wants one: from a file or the environment, in no message, no process list, and no environment of a child."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemons import Daemon, tidelog
from tests.patience import wait_until
from tests.postgres.server import PostgresServer

PASSWORD = "correct-horse-7"
WRONG = "wrong-horse-8"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def scram() -> Iterator[PostgresServer]:
    """A server that lets nobody in without a password, with a log."""
    server = PostgresServer({"log_min_messages": "warning"}, password=PASSWORD)
    server.start()
    tidelog("log", "init", server.url(), PGPASSWORD=PASSWORD)
    tidelog("apply", "-f", EXAMPLES / "1-nodes.yaml", "--log", server.url(), PGPASSWORD=PASSWORD)
    yield server
    server.destroy()


def password_file(folder: Path, server: PostgresServer, password: str, mode: int = 0o600) -> str:
    path = folder / "pgpass"
    path.write_text(f"127.0.0.1:{server.port}:postgres:tidelog:{password}\n")
    path.chmod(mode)
    return str(path)


def test_password_file_lets_in(scram: PostgresServer, tmp_path: Path) -> None:
    done = tidelog(
        "get",
        "nodes",
        "-o",
        "name",
        "--log",
        scram.url(),
        PGPASSFILE=password_file(tmp_path, scram, PASSWORD),
    )

    assert len(done.stdout.splitlines()) == 6


def test_password_file_of_the_home_lets_in(scram: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / ".pgpass").write_text(f"*:*:*:*:{PASSWORD}\n")
    (tmp_path / ".pgpass").chmod(0o600)

    assert (
        "node/a-1" in tidelog("get", "nodes", "-o", "name", "--log", scram.url(), HOME=str(tmp_path)).stdout
    )


@pytest.mark.parametrize("debug", [False, True])
def test_wrong_password_is_one_line_without_it(debug: bool, scram: PostgresServer, tmp_path: Path) -> None:
    by_file = {"PGPASSFILE": password_file(tmp_path, scram, WRONG)}
    for given in ({"PGPASSWORD": WRONG}, by_file, {"PGPASSFILE": str(tmp_path / "none")}):
        for verb in (
            ("get", "nodes"),
            ("apply", "-f", EXAMPLES / "1-nodes.yaml"),
            ("run", "--listen", "off"),
        ):
            done = tidelog(*verb, "--log", scram.url(), *["--debug"] * debug, ok=False, **given)

            assert (done.returncode, done.stdout) == (1, "")
            said = [line for line in done.stderr.splitlines() if line.startswith("tidelog: error: ")]
            assert len(said) == 1
            assert debug or said == done.stderr.splitlines()
            assert 'password authentication failed for user "tidelog"' in said[0]
            assert "passwords come from PGPASSFILE (~/.pgpass) or PGPASSWORD" in said[0]
            assert WRONG not in done.stderr


def test_password_file_that_others_may_read_is_named(scram: PostgresServer, tmp_path: Path) -> None:
    path = password_file(tmp_path, scram, PASSWORD, 0o644)

    done = tidelog("get", "nodes", "--log", scram.url(), ok=False, PGPASSFILE=path)

    (line,) = done.stderr.splitlines()
    assert line.endswith(f"; {path} is not used, because others may read it: chmod 600 {path}")


def test_password_is_in_no_process_list_and_in_no_environment_of_a_child(
    scram: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's reader is a process of its own, which needs it, and is handed it through a pipe."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    daemon = Daemon(scram.url())  # type: ignore[arg-type]
    try:
        daemon.wait_for("scheduling")
        assert '"log"' in daemon.get("/ui/api/a/meta")
        wait_until(lambda: len(_family(daemon.process.pid)) > 1)
        family = _family(daemon.process.pid)
        lists = b"".join(_bytes(pid, "cmdline") for pid in family)
        children = b"".join(_bytes(pid, "environ") for pid in family if pid != daemon.process.pid)
        said = (
            "\n".join(daemon.lines) + daemon.get("/metrics") + daemon.get("/flagz") + daemon.get("/statusz")
        )
    finally:
        assert daemon.stop() == 0

    assert b"tidelog" in lists
    assert b"PATH=" in children
    for content in (lists, children, said.encode()):
        assert PASSWORD.encode() not in content
    assert PASSWORD not in (scram.folder / "log").read_text(errors="replace")


def _family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found


def _bytes(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def test_log_of_many_records_is_verified_by_processes_that_get_the_password(
    scram: PostgresServer, tmp_path: Path
) -> None:
    done = tidelog("replay", "verify", "--jobs", "2", "--log", scram.url(), PGPASSWORD=PASSWORD)

    assert "0 outcomes" in done.stdout
