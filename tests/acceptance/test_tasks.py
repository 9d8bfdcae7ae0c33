"""The twenty tasks of `tasks/README.md`, each by its first obvious command, with the answer that it must give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.tasks.world import write

Ask = Callable[..., str]
README = Path(__file__).parent / "tasks" / "README.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tasks, as they begin."""
    folder = tmp_path_factory.mktemp("tasks")
    write(folder)
    return folder


@pytest.fixture
def ask(made: Path, tmp_path: Path) -> Ask:
    """Runs the installed command in a copy of that folder; returns all that it said."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "TIDELOG_LOG": str(tmp_path / "cluster.db"), "PATH": path, "TZ": "UTC"}

    def asked(command: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return asked


TASKS: list[tuple[int, str, list[str]]] = [
    (1, "tidelog get pods --field-selector=status.phase=Pending", ["batch-3          Unschedulable", "big              Unschedulable", "training         Unschedulable", "waiting          SchedulingGated"]),
    (2, "tidelog describe pod big", ["a larger node: the pod asks for 9 cpu, and none of n1, n2, n3 has more than 4 even when empty"]),
    (3, "tidelog describe pod training", ["1 more nvidia.com/gpu on g1, the node with the most room: it has 1 of 2 free"]),
    (4, "tidelog events --for pod/training", ["FailedScheduling", "Insufficient nvidia.com/gpu"]),
    (5, "tidelog describe node n2", ["cpu        3          4             75%    1", "batch-1", "web-2"]),
    (6, "tidelog describe nodes", ["nvidia.com/gpu   1          2             50%    1", "n3"]),
    (7, "tidelog get pod low --at 22:20", ["low    Scheduled   n1"]),
    (8, "tidelog why low", ["preempted from n1, to make room for pod default/batch-3", "22:29:40", "the next pod placed on n1 was default/urgent", "22:32:40"]),
    (9, "tidelog why web-1", ["why n1", "3 nodes were equally good"]),
    (10, "tidelog why-not web-1 g1", ["infeasible", "untolerated taint"]),
    (11, "tidelog log verify && tidelog replay verify", ["chain ok, head ok", "identical"]),
    (12, "tidelog apply -f everything.json", ["pod/cart-1 created", "1 ConfigMap, 1 DaemonSet, 1 Secret"]),
    (13, "tidelog apply -f typo.yaml --dry-run=server", ['spec.nodeSelecter: unknown field; did you mean "nodeSelector"?', "(dry run)"]),
    (14, "tidelog diff -f node.yaml", ["- metadata.labels[disk]"]),
    (15, "tidelog log compact --keep 20 --dry-run", ["records 1 to 36 would be dropped, the log would begin at record 37"]),
    (16, "tidelog plan -f new-pod.yaml", ["default/new: pending", "n2 has room for it, but this is kept for default/batch-3, nominated to n2", "would help: "]),
    (17, "tidelog replay what-if --config packing.yaml", ["nodes in use            4          4"]),
    (18, "tidelog replay what-if --drop node/n3 --pods", ["nodes in use            4          3         -1", "default/web-3     n3"]),
    (19, "tidelog log redact cluster.db shared.db", ["names replaced"]),
    (20, """tidelog log tail --from 1 -o json | jq -r 'select(.kind == "Scheduled") | .body.node' | sort | uniq -c""", ["n1"]),
]  # fmt: skip


def test_every_task_of_the_page_is_tried() -> None:
    numbers = [int(line.split(".")[0]) for line in README.read_text().splitlines() if line[:1].isdigit()]

    assert numbers == [number for number, _, _ in TASKS] == list(range(1, 21))


@pytest.mark.parametrize(("number", "command", "answers"), TASKS, ids=[str(task[0]) for task in TASKS])
def test_first_obvious_command_gives_the_answer(
    ask: Ask, number: int, command: str, answers: list[str]
) -> None:
    told = ask(command)

    # How wide the columns are depends on what else is in the table.
    words = " ".join(told.split())
    assert [answer for answer in answers if " ".join(answer.split()) not in words] == [], told
