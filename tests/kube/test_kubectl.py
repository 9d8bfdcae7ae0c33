"""kubectl's own verbs on a served log, with its defaults alone: the transcript of a session, told by every kubectl that is there.

Taken are the one that `TIDELOG_KUBECTL` names, the one on the path, and of others beside it that have a version in their name (`kubectl.1.31`) the oldest
and the newest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.server import binary
from tests.patience import PATIENCE
from tidelog.daemon.actors.disruption_controller import DisruptionController
from tidelog.daemon.actors.node_agent import NodeAgent, NodeAgentSettings
from tidelog.daemon.actors.workload_controller import WorkloadController
from tidelog.daemon.process.clock import SystemClock
from tidelog.testing.api_server import ApiServerThread

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: nginx:1.27
    env: [{name: A, value: b}]
    resources: {requests: {cpu: 100m}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: main, image: shop:1}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop}
spec: {minAvailable: 3, selector: {matchLabels: {app: shop}}}
"""


def kubectls() -> list[str]:
    """The one that is named, the one on the path, and the oldest and the newest beside it."""
    found = [binary("kubectl"), shutil.which("kubectl") or ""]
    beside = [path for one in filter(None, found) for path in Path(one).resolve().parent.glob("kubectl.1.*")]
    others = sorted((path for path in map(str, beside) if _minor(path) >= 28), key=_minor)
    named = {str(Path(path).resolve()): path for path in filter(None, (*found, *others[:1], *others[-1:]))}
    return [path for path in named.values() if _minor(path) >= 28]


def _minor(path: str) -> int:
    try:
        done = subprocess.run(
            [path, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=PATIENCE
        )
        return int(re.sub(r"\D", "", json.loads(done.stdout)["clientVersion"]["minor"]))
    except (OSError, ValueError, KeyError):
        return 0


KUBECTLS = kubectls()
pytestmark = [
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl from 1.28 on is on the path; name one in TIDELOG_KUBECTL"
    ),
    pytest.mark.slow,
]


class Kubectl:
    def __init__(self, path: str, api: ApiServerThread, folder: Path) -> None:
        self.path = path
        self.api = api
        self.folder = folder
        home = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        self.env = {**home, "KUBECONFIG": str(api.kubeconfig), "KUBE_EDITOR": f"sh {folder / 'editor.sh'}"}

    def run(self, *words: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [self.path, *words],
            input=stdin,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")

    def table(self, *words: str) -> list[list[str]]:
        """The rows without the heading, in columns."""
        return [re.split(r" {2,}", line.strip()) for line in self.run(*words).splitlines()[1:]]

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture(params=KUBECTLS, ids=lambda path: Path(path).name)
def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubectl]:
    agent = NodeAgent(NodeAgentSettings(start_seconds=0.1, speed=1000))
    actors = [agent, DisruptionController(), WorkloadController()]
    with ApiServerThread(actors=actors, clock=SystemClock()) as api:
        yield Kubectl(request.param, api, tmp_path)


def test_session(kubectl: Kubectl, tmp_path: Path) -> None:
    k = kubectl.run
    manifest = tmp_path / "web.yaml"
    manifest.write_text(MANIFEST)

    # apply, get
    assert k("apply", "-f", str(EXAMPLES / "1-nodes.yaml")).count("created") == 6
    assert k("apply", "-f", str(EXAMPLES / "1-nodes.yaml")).count("unchanged") == 6
    assert k("apply", "-f", str(manifest)) == "pod/web created\n"
    assert k("apply", "-f", str(manifest)) == "pod/web unchanged\n"
    assert (
        k("wait", "--for=condition=Ready", "pod/web", f"--timeout={PATIENCE:.0f}s")
        == "pod/web condition met\n"
    )
    assert [row[:3] for row in kubectl.table("get", "pods")] == [["web", "1/1", "Running"]]
    wide = k("get", "pods", "-o", "wide").splitlines()
    assert wide[0].split()[-4:] == ["NOMINATED", "NODE", "READINESS", "GATES"]
    node = kubectl.json("get", "pod", "web")["spec"]["nodeName"]
    assert node in wide[1].split()
    assert "value: b" in k("get", "pod", "web", "-o", "yaml")
    assert k("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert k("get", "pods", "-l", "app!=web", "-o", "name") == ""
    assert k("get", "pods", "--field-selector", f"spec.nodeName={node}", "-o", "name") == "pod/web\n"
    names = k("get", "nodes", "--sort-by=.metadata.name", "-o", "jsonpath={.items[*].metadata.name}")
    assert names == "a-1 a-2 b-1 b-2 c-1 c-2"
    assert [row[0] for row in kubectl.table("get", "pods", "-A")] == ["default"]
    assert k("get", "pod", "web", "-o", "custom-columns=N:.metadata.name", "--no-headers") == "web\n"
    assert "pod/web" in k("get", "all")
    assert 'pods "ghost" not found' in k("get", "pod", "ghost", code=1)

    # label, annotate, taint, cordon
    assert k("label", "node", "a-1", "disk=ssd") == "node/a-1 labeled\n"
    assert k("annotate", "node", "a-1", "note=x") == "node/a-1 annotated\n"
    assert k("taint", "nodes", "a-1", "k=v:NoSchedule") == "node/a-1 tainted\n"
    assert k("taint", "nodes", "a-1", "k=v:NoSchedule-") == "node/a-1 untainted\n"
    assert k("cordon", "a-1") == "node/a-1 cordoned\n"
    assert kubectl.table("get", "node", "a-1")[0][1] == "Ready,SchedulingDisabled"
    assert k("uncordon", "a-1") == "node/a-1 uncordoned\n"
    assert kubectl.json("get", "node", "a-1")["metadata"]["labels"]["disk"] == "ssd"

    # patch of three kinds, edit, diff
    assert k("patch", "pod", "web", "-p", '{"metadata":{"labels":{"s":"1"}}}') == "pod/web patched\n"
    assert (
        k("patch", "pod", "web", "--type=merge", "-p", '{"metadata":{"labels":{"m":"1"}}}')
        == "pod/web patched\n"
    )
    operations = '[{"op":"add","path":"/metadata/labels/j","value":"1"}]'
    assert k("patch", "pod", "web", "--type=json", "-p", operations) == "pod/web patched\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {
        "app": "web",
        "s": "1",
        "m": "1",
        "j": "1",
    }
    (tmp_path / "editor.sh").write_text('sed -i "s/j: \\"1\\"/j: \\"2\\"/" "$1"\n')
    assert k("edit", "pod", "web") == "pod/web edited\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"]["j"] == "2"
    assert k("diff", "-f", str(manifest)) == ""
    manifest.write_text(MANIFEST.replace("nginx:1.27", "nginx:1.28"))
    assert "+  - image: nginx:1.28" in re.sub(
        r"\+    image", "+  - image", k("diff", "-f", str(manifest), code=1)
    )
    assert k("apply", "-f", str(manifest)) == "pod/web configured\n"
    assert kubectl.json("get", "pod", "web")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]

    # describe, explain, events, api-resources, auth
    described = k("describe", "pod", "web")
    assert node in described
    assert re.search(r"A: +b", described)
    assert "Non-terminated Pods" in k("describe", "node", node)
    assert "nodeName" in k("explain", "pod.spec")
    assert "fallbackCriteria" in k("explain", "pod.spec.topologySpreadConstraints")
    assert "poddisruptionbudgets" in k("api-resources")
    assert "policy/v1" in k("api-versions")
    assert "tidelog:owner" in k("auth", "whoami")
    assert k("auth", "can-i", "create", "pods") == "yes\n"
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "message": "hi", "reason": "R",
             "type": "Normal", "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default", "uid": kubectl.json("get", "pod", "web")["metadata"]["uid"]}}  # fmt: skip
    k("create", "-f", "-", stdin=json.dumps(event))
    assert "hi" in k("get", "events")
    assert "hi" in k("describe", "pod", "web")

    # what a generator sends is sent as YAML
    made = k("create", "namespace", "demo", "--dry-run=client", "-o", "yaml")
    assert k("create", "-f", "-", stdin=made) == "namespace/demo created\n"

    # what is refused is refused in the server's words
    assert 'unknown field "spec.contaners"' in k(
        "create", "-f", "-", stdin=MANIFEST.replace("containers:", "contaners:"), code=1
    )
    assert "server-side apply is not served" in k("apply", "--server-side", "-f", str(manifest), code=1)

    # delete
    assert k("delete", "pod", "web", "--wait=true").startswith('pod "web" deleted')
    assert k("get", "pods", "-o", "name") == ""


def test_watching(kubectl: Kubectl) -> None:
    kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    process = subprocess.Popen(
        [kubectl.path, "get", "pods", "-w", "--no-headers"],
        env=kubectl.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split()[0] == "web"
        kubectl.run("label", "pod", "web", "x=y")
        assert process.stdout.readline().split()[0] == "web"
        kubectl.run("delete", "pod", "web")
        assert process.stdout.readline().split()[0] == "web"
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def test_drain_with_a_budget_that_refuses(kubectl: Kubectl) -> None:
    k = kubectl.run
    k("apply", "-f", str(EXAMPLES / "1-nodes.yaml"))
    k("apply", "-f", "-", stdin=DEPLOYMENT)
    k("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/shop", f"--timeout={PATIENCE:.0f}s")
    pods = kubectl.json("get", "pods")["items"]
    node = pods[0]["spec"]["nodeName"]

    for seconds in (2, 8, 32, 128, 512):  # A busy machine may not get as far as to be refused.
        refused = k("drain", node, "--ignore-daemonsets", f"--timeout={seconds}s", code=1)
        if "Cannot evict" in refused:
            break
    k("patch", "pdb", "shop", "--type=merge", "-p", '{"spec":{"minAvailable":2}}')
    drained = k("drain", node, "--ignore-daemonsets", f"--timeout={PATIENCE:.0f}s")
    k("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/shop", f"--timeout={PATIENCE:.0f}s")

    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
    assert f"node/{node} drained" in drained
    assert node not in {pod["spec"].get("nodeName") for pod in kubectl.json("get", "pods")["items"]}
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {"ReplicaSet"}


def test_scale_and_delete_a_deployment(kubectl: Kubectl) -> None:
    k = kubectl.run
    k("apply", "-f", str(EXAMPLES / "1-nodes.yaml"))
    k("create", "-f", "-", stdin=DEPLOYMENT)
    k("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/shop", f"--timeout={PATIENCE:.0f}s")
    assert k("scale", "deployment", "shop", "--replicas=4") == "deployment.apps/shop scaled\n"
    k("wait", "--for=jsonpath={.status.readyReplicas}=4", "deployment/shop", f"--timeout={PATIENCE:.0f}s")
    assert kubectl.table("get", "deployment", "shop")[0][1] == "4/4"

    k("delete", "deployment", "shop")
    k("wait", "--for=delete", "pod", "-l", "app=shop", f"--timeout={PATIENCE:.0f}s")

    assert k("get", "pods,replicasets", "-o", "name") == ""
