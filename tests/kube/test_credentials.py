"""A kubeconfig says where the server is and who we are; what is wrong with it is told in one line."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS, format_time
from tidelog.kube.cluster import credentials
from tidelog.kube.cluster.credentials import Credentials, read_access
from tidelog.kube.cluster.port import ClusterError
from tidelog.testing.virtual_time import VirtualClock


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **more: Any) -> str:
    path = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_token_is_shown(tmp_path: Path) -> None:
    access = read_access(kubeconfig(tmp_path, {"token": "secret"}))

    assert access.server == "https://127.0.0.1:6443"
    assert await Credentials(access, VirtualClock()).headers() == {"Authorization": "Bearer secret"}


async def test_password_is_shown(tmp_path: Path) -> None:
    access = read_access(kubeconfig(tmp_path, {"username": "a", "password": "b"}))

    assert await Credentials(access, VirtualClock()).headers() == {
        "Authorization": "Basic " + base64.b64encode(b"a:b").decode()
    }


async def test_token_file_is_read_again_after_a_minute_and_when_it_was_not_taken(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", VirtualClock()
    file.write_text("one\n")
    found = Credentials(read_access(kubeconfig(tmp_path, {"tokenFile": "token"})), clock)
    first = await found.headers()
    file.write_text("two\n")
    still = await found.headers()
    clock._now += 61 * NANOS
    later = await found.headers()
    file.write_text("three\n")
    await found.renew()
    renewed = await found.headers()

    assert [h["Authorization"] for h in (first, still, later, renewed)] == [
        "Bearer one",
        "Bearer one",
        "Bearer two",
        "Bearer three",
    ]


async def test_program_is_asked_for_a_token_until_it_expires(tmp_path: Path) -> None:
    clock, count = VirtualClock(), tmp_path / "count"
    count.write_text("")
    status = {"token": "t", "expirationTimestamp": format_time(clock.now() + 100 * NANOS)}
    printed = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    )
    script = f"open({str(count)!r}, 'a').write('x'); import os; assert 'KUBERNETES_EXEC_INFO' in os.environ and os.environ['A'] == 'b'; print({printed!r})"
    command = {"command": sys.executable, "args": ["-c", script], "env": [{"name": "A", "value": "b"}]}
    found = Credentials(read_access(kubeconfig(tmp_path, {"exec": command})), clock)
    for _ in range(3):
        assert await found.headers() == {"Authorization": "Bearer t"}
    asked = count.read_text()
    clock._now += 95 * NANOS
    await found.headers()

    assert (asked, count.read_text()) == ("x", "xx")


@pytest.mark.parametrize(
    ("script", "why"),
    [("import sys; sys.exit('no login')", "no login"), ("print('{')", "printed no ExecCredential")],
)
async def test_program_that_fails_is_told(tmp_path: Path, script: str, why: str) -> None:
    command = {"command": sys.executable, "args": ["-c", script]}
    found = Credentials(read_access(kubeconfig(tmp_path, {"exec": command})), VirtualClock())

    with pytest.raises(ClusterError, match=why):
        await found.headers()


@pytest.mark.parametrize(
    ("user", "cluster", "more", "why"),
    [
        ({"auth-provider": {"name": "gcp"}}, {}, {}, "auth-provider is not supported"),
        ({}, {"server": "ftp://x"}, {}, "is no http"),
        ({"client-certificate-data": "%%%"}, {}, {}, "is not base64"),
        ({}, {}, {"contexts": []}, 'context "c" is not there'),
        ({}, {}, {"users": []}, 'user "u" is not there'),
        ({}, {}, {"clusters": "x"}, "this is no kubeconfig"),
        ({}, {}, {"current-context": "", "contexts": []}, "no current-context"),
    ],
)
def test_kubeconfig_that_is_wrong_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    path = kubeconfig(tmp_path, user, cluster, **more)

    with pytest.raises(UsageError, match=why) as error:
        read_access(path)

    assert path in str(error.value)


def test_context_can_be_chosen(tmp_path: Path) -> None:
    contexts = [{"name": "c", "context": {"cluster": "k"}}, {"name": "d", "context": {"cluster": "l"}}]
    clusters = [{"name": n, "cluster": {"server": f"http://{n}"}} for n in "kl"]
    path = kubeconfig(tmp_path, {}, contexts=contexts, clusters=clusters)

    assert read_access(path, "d").server == "http://l"


def test_kubeconfig_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_access(str(tmp_path / "none"))


def test_in_cluster_is_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="no pod of a cluster"):
        read_access("in-cluster")
    (tmp_path / "token").write_text("t")

    access = read_access("in-cluster")

    assert access.server == "https://10.0.0.1:443"
    assert access.token_file == str(tmp_path / "token")


async def test_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    broken = base64.b64encode(b"no certificate").decode()
    user = {"client-certificate-data": broken, "client-key-data": broken}
    found = Credentials(read_access(kubeconfig(tmp_path, user)), VirtualClock())

    with pytest.raises(ClusterError, match="certificates cannot be used"):
        await found.tls()
