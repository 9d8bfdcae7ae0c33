"""`tidelog serve` as somebody starts it: its kubeconfig lets a client in, a pod is placed, and the page stands beside it."""

import json
import ssl
import stat
import urllib.error
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.daemons import ApiDaemon, placements
from tests.patience import PATIENCE

pytest.importorskip("aiohttp", reason="needs the extra [kube]")

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "2", "pods": "9"}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}


class Client:
    """A client that knows the kubeconfig and nothing else."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server, self._token = cluster["server"], user["token"]
        self._tls = ssl.create_default_context(
            cadata=b64decode(cluster["certificate-authority-data"]).decode()
        )

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._server + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE, context=self._tls) as answer:
            return json.load(answer)

    def put(self, path: str, body: object) -> bool:
        """Whether it was the version that is there."""
        try:
            self.ask(path, body, "PUT")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 409:
                raise
            return False
        return True


def test_a_served_log_schedules_and_shows_itself(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    daemon = ApiDaemon(log)
    try:
        daemon.wait_for("scheduling")
        kubeconfig = tmp_path / "c.db.kubeconfig"
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        client = Client(kubeconfig)

        client.ask("/api/v1/nodes", NODE)
        client.ask("/api/v1/namespaces/default/pods", POD)
        watch = "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName=n"
        while not client.ask(watch)["items"]:
            pass

        assert "<!doctype html>" in daemon.get("/ui/")
        assert json.loads(daemon.get("/ui/api/a/meta"))["log"] == "c.db"
    finally:
        daemon.stop()

    assert placements(log) == {"p": "n"}
