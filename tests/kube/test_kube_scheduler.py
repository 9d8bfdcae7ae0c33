"""A real kube-scheduler, where one is named, schedules on a served log: its placements are facts in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from tests.kube.server import VARIABLES, binary
from tests.patience import PATIENCE
from tidelog.daemon.process.runtime import Limits
from tidelog.testing.api_server import ApiSandbox
from tidelog.testing.builders import node, pod

PODS = 1_000
NODES = 100


@pytest.mark.slow
async def test_kube_scheduler_places_a_thousand_pods(tmp_path: Path) -> None:
    program = binary("kube-scheduler")
    if not program:
        pytest.skip(f"kube-scheduler is not there: set {VARIABLES['kube-scheduler'][0]}")
    async with ApiSandbox(limits=Limits(decides=False)) as sandbox:
        await sandbox.apply(
            [node(f"n{number}").capacity(cpu="8", memory="16Gi").build() for number in range(NODES)]
        )
        await sandbox.apply([pod(f"p{number}").request(cpu="100m").build() for number in range(PODS)])
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(sandbox.kubeconfig),
                "contentType": "application/json",
                "acceptContentTypes": "application/json",
                "qps": 5000,
                "burst": 5000,
            },
            "leaderElection": {"leaderElect": True},
        }
        path = tmp_path / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        output = (tmp_path / "scheduler.txt").open("wb")
        process = await asyncio.create_subprocess_exec(
            program, f"--config={path}", "--secure-port=0", stdout=output, stderr=output
        )
        try:
            async with asyncio.timeout(PATIENCE):
                while len(sandbox.placements) < PODS:
                    assert process.returncode is None, (tmp_path / "scheduler.txt").read_text()[-2000:]
                    await asyncio.sleep(0.1)
        finally:
            process.terminate()
            await process.wait()
            output.close()
        authors = {record.author async for record in sandbox.records() if record.kind == "Scheduled"}

    assert set(sandbox.placements.values()) <= {f"n{number}" for number in range(NODES)}
    assert authors == set()
