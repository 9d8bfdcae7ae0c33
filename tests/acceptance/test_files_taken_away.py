"""The files of a log are restored, moved or removed beneath a daemon that leads it: it ends, and nothing was acknowledged that is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.daemons import daemon, pods, tidelog
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.testing import builders as b

pytestmark = pytest.mark.unreplayed("their files are taken away, cut and overwritten")


def apply(log: Path, name: str, *, ok: bool = True) -> str:
    manifest = log.with_name("pod.yaml")
    manifest.write_text(dump_yaml([b.pod(name).build()]))
    return tidelog("apply", "--log", log, "-f", manifest, ok=ok).stderr


def copied(log: Path) -> Path:
    """As `cp -a` does."""
    backup = log.with_name("backup")
    backup.mkdir()
    for suffix in ("", "-wal", ".head"):
        shutil.copy2(f"{log}{suffix}", backup)
    return backup


def test_backup_moved_into_place_beneath_a_daemon(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    with daemon(log) as running:
        apply(log, "before")
        backup = copied(log)
        for file in list(backup.iterdir()):
            file.rename(log.with_name(file.name))
        log.with_name("c.db-shm").unlink()

        refused = apply(log, "after", ok=False)

        # It may have noticed by itself, and ended; then the verb has taken the lock, and appended to the backup.
        assert not refused or "was replaced: nothing more is written or acknowledged" in refused
        assert running.end() == 1
        assert "was replaced: nothing more is written or acknowledged" in running.lines[-1]
    assert sorted(pods(log)) == (["before"] if refused else ["after", "before"])
    with daemon(log) as again:
        apply(log, "after")
        assert again.stop() == 0
    assert sorted(pods(log)) == ["after", "before"]


@pytest.mark.parametrize("with_lock", [True, False])
def test_daemon_with_nothing_to_do_notices_that_its_files_are_gone(with_lock: bool, tmp_path: Path) -> None:
    log, other = tmp_path / "c.db", tmp_path / "other"
    other.mkdir()
    with daemon(log) as running:
        apply(log, "before")
        for file in list(tmp_path.glob("c.db*")):
            if with_lock or file.suffix != ".lock":
                file.rename(other / file.name)

        assert running.end() == 1
        assert any("was moved or removed" in line or "was removed or" in line for line in running.lines)

    refused = apply(log, "after", ok=False)
    assert "is gone, and process" in refused
    assert not log.exists()
    assert list(pods(other / "c.db")) == ["before"]
