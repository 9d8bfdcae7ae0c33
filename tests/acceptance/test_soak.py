"""The soak's own mechanics, in a few seconds; `make soak MINUTES=…` is the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent


def test_soak_reports_growth_and_drift_of_a_daemon_whose_log_verifies() -> None:
    command = [
        sys.executable,
        "tools/soak.py",
        "--minutes",
        "0.04",
        "--facts",
        "300",
        "--nodes",
        "12",
        "--pods",
        "80",
        "-o",
        "json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {
        "rss_slope_mib_per_hour",
        "append_p50_drift_percent",
        "append_p99_drift_percent",
    } <= figures.keys()
    assert figures["requests_refused"] == 0
    assert figures["facts"] > 100
    assert figures["outcomes"] > 50
    assert figures["outcomes_identical"] == figures["outcomes"]
    assert figures["in_flight_events_at_rest"] == 0
    assert figures["scheduled_after_flush"] == 0
