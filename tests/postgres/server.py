"""A real PostgreSQL server for tests: made in a folder of its own, started, stopped, killed, copied, as a user other than root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.ports import free_port


def binaries() -> Path | None:
    """The folder of the newest server that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def missing() -> str:
    """Why there can be no server; empty if there can."""
    if binaries() is None:
        return "no PostgreSQL server is installed (apt-get install postgresql)"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and there is no other account"
    return ""


def _account() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


class PostgresServer:
    """One server. Its user `tidelog` may do everything, without a password from this machine unless one is given."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        of: PostgresServer | None = None,
        password: str = "",
    ) -> None:
        """A new one, which may want a password, or (`of`) a standby of another that runs."""
        found = binaries()
        assert found is not None
        self._bin = found
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-pg-", dir="/tmp"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {"max_connections": "60", "shared_buffers": "16MB", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        account = _account()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            assert account is not None
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        if of is None:
            auth = ["--auth=trust"]
            if password:
                (self.folder / "password").write_text(password + "\n")
                auth = ["--auth=scram-sha-256", f"--pwfile={self.folder / 'password'}"]
            self._run(
                "initdb",
                "-D",
                self.data,
                "-U",
                "tidelog",
                *auth,
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
                "-k",
            )
        else:
            self._run(
                "pg_basebackup",
                "-h",
                "127.0.0.1",
                "-p",
                of.port,
                "-U",
                "tidelog",
                "-D",
                self.data,
                "-R",
                "-c",
                "fast",
                "--no-sync",
            )

    def _run(self, name: str, *args: object) -> None:
        done = subprocess.run(
            [str(self._bin / name), *map(str, args)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            **self._as,
        )
        assert done.returncode == 0, done.stderr + done.stdout

    def url(self, database: str = "postgres", user: str = "tidelog") -> str:
        """Where it is reached."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """Of its first process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            **self.settings,
        }
        command = [str(self._bin / "postgres"), "-D", str(self.data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder / "log", "ab") as log:
            if os.geteuid() == 0:
                os.chown(self.folder / "log", self._as["user"], self._as["group"])
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self._as)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it takes connections."""
        end = time.monotonic() + PATIENCE
        while subprocess.run(
            [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        ).returncode:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it in good order; stopping twice is allowed."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)

    def kill(self) -> None:
        """End all its processes at once, as a power failure does, except that what was written stays written."""
        assert self._process is not None
        children = list(self._children())
        for pid in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def pause(self) -> None:
        """Stop all its processes where they are."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The opposite of `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self.pid, *self._children()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _children(self) -> Iterator[int]:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    yield int(stat.parent.name)

    def promote(self) -> None:
        """A standby becomes a server of its own."""
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def destroy(self) -> None:
        """End it, and remove everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
