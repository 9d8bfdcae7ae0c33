"""`tidelog diff`: what apply would change, and nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_terminal import is_harmless

BEFORE = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a, disk: ssd}}
spec: {taints: [{key: gpu, value: only, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", pods: "10"}}
"""
AFTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: b, rack: r1}}
status: {allocatable: {cpu: "4", pods: "10"}}
"""


def test_diff_names_fields_added_changed_and_taken_away(tidelog, tmp_path: Path) -> None:
    log = str(tmp_path / "x.db")
    (tmp_path / "before.yaml").write_text(BEFORE)
    (tmp_path / "after.yaml").write_text(AFTER)
    tidelog("apply", "--log", log, "-f", str(tmp_path / "before.yaml"))

    ran = tidelog("diff", "--log", log, "-f", str(tmp_path / "after.yaml"))

    assert (ran.code, ran.lines) == (
        0,
        [
            "node/n1 would change",
            "  ~ metadata.labels[zone]: a -> b",
            "  + metadata.labels[rack]: r1",
            "  - metadata.labels[disk]: ssd",
            "  - spec.taints[gpu=only:NoSchedule].key: gpu",
            "  - spec.taints[gpu=only:NoSchedule].value: only",
            "  - spec.taints[gpu=only:NoSchedule].effect: NoSchedule",
        ],
    )
    assert tidelog("diff", "--log", log, "-f", str(tmp_path / "before.yaml")).lines == ["node/n1 unchanged"]
    assert json.loads(
        tidelog("diff", "--log", log, "-f", str(tmp_path / "before.yaml"), "-o", "json").out
    ) == {"Node//n1": []}


def test_diff_prints_hostile_values_harmlessly(tidelog, tmp_path: Path) -> None:
    log = str(tmp_path / "x.db")
    (tmp_path / "before.yaml").write_text(BEFORE)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "\x1b[2Jx\ny"}}}
    (tmp_path / "pod.json").write_text(json.dumps(pod | {"spec": {"containers": [{"name": "c"}]}}))
    tidelog("apply", "--log", log, "-f", str(tmp_path / "before.yaml"))

    ran = tidelog("diff", "--log", log, "-f", str(tmp_path / "pod.json"))

    assert ran.lines[0] == "pod/p would be created"
    assert is_harmless(ran.out + ran.err), ascii(ran)
    assert any(line.startswith("  + metadata.annotations[a]: ") for line in ran.lines)
