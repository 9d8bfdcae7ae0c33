"""Make the cluster of the twenty tasks: `python -m tests.acceptance.tasks.world DIR` writes `cluster.db` and the manifests that the tasks name.

Half an hour of a cluster with four nodes: a web shop, a batch pod that is preempted, a training pod that wants GPUs, a pod that fits nowhere, a gated one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tidelog.api.manifests.manifests import dump_yaml
from tidelog.api.objects import Object
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.testing import builders as b

GPU = "nvidia.com/gpu"
TYPO = """\
apiVersion: v1
kind: Pod
metadata: {name: api, labels: {app: api}}
spec:
  nodeSelecter: {disk: ssd}
  containers:
  - {name: main, resources: {requests: {cpu: "1"}}}
"""
PACKING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins:
    score: {disabled: [{name: NodeResourcesBalancedAllocation}]}
"""
DUMP = """\
{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}},
 {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}},
 {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}},
 {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart-1", "labels": {"app": "cart"}}, "spec": {"containers": [{"name": "main"}]}}
]}
"""


def node(name: str, zone: str) -> b.NodeBuilder:
    """A node of four processors."""
    return (
        b.node(name)
        .label({b.ZONE: zone, "disk": "ssd", "kubernetes.io/hostname": name})
        .capacity({"cpu": "4", "memory": "16Gi", "pods": 20})
    )


def pod(name: str, cpu: str = "1") -> b.PodBuilder:
    """A pod for the default profile."""
    return b.pod(name).request(cpu=cpu).scheduler("default-scheduler")


def history() -> Driver:
    """The half hour."""
    driver = Driver()
    driver.start()
    gpu = (
        b.node("g1")
        .label({b.ZONE: "c"})
        .capacity({"cpu": "4", "memory": "16Gi", "pods": 20, GPU: 2})
        .taint("gpu", "only")
    )
    driver.put(node("n1", "a").build(), node("n2", "b").build(), node("n3", "b").build(), gpu.build())
    driver.advance(60)
    for number in range(1, 5):
        driver.put(pod(f"web-{number}").label(app="web").build())
        driver.settle()
        driver.advance(5)
    driver.put(pod("low", "3").priority(0).build())
    driver.advance(300)
    driver.put(
        pod("first-training").request({GPU: 1}).tolerate("gpu", value="only", effect="NoSchedule").build()
    )
    driver.put(pod("training").request({GPU: 2}).tolerate("gpu", value="only", effect="NoSchedule").build())
    driver.put(pod("big", "9").build(), pod("waiting").gate("quota").build())
    driver.advance(600)
    for number in (1, 2, 3):
        driver.put(pod(f"batch-{number}", "2").priority(10).build())
    driver.advance(60)
    driver.put(pod("urgent", "3").priority(1000).build())
    driver.advance(120)
    for name in ("low", "batch-1", "batch-2", "batch-3"):
        victim = driver.core.cluster.pod(f"Pod/default/{name}")
        if victim is not None and victim.metadata.deletion_timestamp:
            driver.delete(victim)
    driver.advance(600)
    return driver


def write(folder: Path) -> None:
    """Write the log and the manifests."""
    files: dict[str, str | Sequence[Object]] = {
        "typo.yaml": TYPO,
        "packing.yaml": PACKING,
        "everything.json": DUMP,
        "new-pod.yaml": [pod("new").label(app="web").build()],
        "node.yaml": [
            b.node("n1").label({b.ZONE: "a"}).capacity({"cpu": "4", "memory": "16Gi", "pods": 20}).build()
        ],
    }
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else dump_yaml(content))
    asyncio.run(write_log(folder / "cluster.db", history().records))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
    print(f"export TIDELOG_LOG={target / 'cluster.db'}")
