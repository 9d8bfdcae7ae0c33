"""`kill -9` at random moments under load, real processes, a real file: nothing acknowledged is lost or doubled.

What is written are bare records and snapshots of nothing, and compaction drops the beginning: nobody decided anything in this log, so its chain
is verified after each kill and there is nothing to replay. `test_real_faults.py` kills a daemon and replays what it decided.

50 rounds by default; `TORTURE_KILLS=1000` for more, `TORTURE_SEED` for other moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("TORTURE_KILLS", "50"))
SEED = int(os.environ.get("TORTURE_SEED", "0"))


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path, nothing_to_replay: None) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.acceptance.kill_rounds",
        tmp_path / "c.db",
        str(ROUNDS),
        str(SEED),
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, f"seed {SEED}: {done.stderr}"
    report = json.loads(done.stdout)
    assert report["rounds"] == ROUNDS
    assert report["productive"] > ROUNDS // 4, "hardly any round had time to write"
