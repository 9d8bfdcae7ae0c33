"""Random requests to the API server: each is answered with a Status or an object, none with 500, and the log stays sound."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import EXAMPLES, FUZZ
from tests.patience import PATIENCE
from tidelog.testing.api_server import ApiSandbox

NAMES = st.sampled_from(
    [
        "web",
        "n1",
        "default",
        "kube-system",
        "",
        "x" * 300,
        "..",
        "a/b",
        "é",
        "status",
        "binding",
        "eviction",
        "scale",
    ]
)
RESOURCES = st.sampled_from(
    [
        "pods",
        "nodes",
        "namespaces",
        "poddisruptionbudgets",
        "deployments",
        "jobs",
        "replicasets",
        "podgroups",
        "events",
        "leases",
        "secrets",
        "priorityclasses",
    ]
)
GROUPS = st.sampled_from(["api/v1", "apis/apps/v1", "apis/policy/v1", "apis/batch/v1", "apis/events.k8s.io/v1", "apis/coordination.k8s.io/v1",
                          "apis/scheduling.k8s.io/v1", "apis/scheduling.k8s.io/v1beta1", "apis/x/v1", "openapi", "api", "apis"])  # fmt: skip
PATHS = st.builds(
    lambda group, namespace, rest: (
        "/" + "/".join([group, *(["namespaces", namespace] if namespace else []), *rest])
    ),
    GROUPS,
    st.sampled_from(["", "default", "nowhere"]),
    st.lists(RESOURCES | NAMES, max_size=4),
)
QUERIES = st.dictionaries(
    st.sampled_from(["at", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "dryRun", "fieldValidation",
                     "gracePeriodSeconds", "propagationPolicy", "includeObject", "watch", "timeoutSeconds", "sendInitialEvents"]),
    st.sampled_from(["", "0", "1", "-1", "99999999999999999999", "true", "Exact", "All", "Strict", "a=b", "a in (", "metadata.name=web", "spec.nodeName!=",
                     "Table", "Background", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "\x00", "é"]),
    max_size=3,
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5) | st.sampled_from(["web", "v1", "Pod", "100m", "a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "uid", "resourceVersion", "finalizers", "ownerReferences",
                         "spec", "status", "containers", "conditions", "type", "template", "selector", "replicas", "target", "deleteOptions", "preconditions",
                         "op", "path", "value", "$patch", "$setElementOrder/conditions", "involvedObject", "x"]),
        inner, max_size=5),
    max_leaves=25,
)  # fmt: skip
TYPES = st.sampled_from(["application/json", "application/yaml", "application/json-patch+json", "application/merge-patch+json",
                         "application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain", ""])  # fmt: skip
ACCEPTS = st.sampled_from(["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "",
                           "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ";;,=", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"])  # fmt: skip
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]), PATHS, QUERIES, VALUES, TYPES, ACCEPTS
    ),
    min_size=1,
    max_size=10,
)


async def told(requests: list[Any]) -> None:
    from tidelog.kube.serve.http import Limits

    async with (
        ApiSandbox(insecure="read-write", server_limits=Limits(watch_seconds=0.05)) as sandbox,
        sandbox.session() as http,
    ):
        pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await http.post("/api/v1/namespaces/default/pods", json=pod)
        await http.post("/api/v1/nodes", json={"metadata": {"name": "n1"}})
        for method, path, query, value, kind, accept in requests:
            if query.get("timeoutSeconds") not in (None, "", "-1", "0", "1"):
                query = {**query, "timeoutSeconds": "1"}
            data = None if method == "GET" else json.dumps(value).encode()
            headers = {"Content-Type": kind, "Accept": accept}
            async with http.request(method, path, params=query, data=data, headers=headers) as reply:
                text = await reply.read()
                assert reply.status != 500 or b"target" in text or b"more than one" in text, (
                    method,
                    path,
                    query,
                    value,
                    text,
                )
                if reply.status >= 400:
                    assert json.loads(text)["kind"] == "Status", text
        await sandbox.settled()
        await sandbox.verify()


@settings(FUZZ, max_examples=EXAMPLES // 4 or 1)
@given(REQUESTS)
def test_any_request_is_answered(requests: list[Any]) -> None:
    asyncio.run(told(requests))


async def thrown(data: list[bytes]) -> None:
    async with ApiSandbox(insecure="read-write") as sandbox:
        host, _, port = sandbox.url.removeprefix("http://").rpartition(":")
        for part in data:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(part)
            writer.write_eof()
            try:
                async with asyncio.timeout(PATIENCE):
                    await reader.read()
            except ConnectionError:
                pass
            writer.close()
        async with sandbox.session() as http, http.get("/readyz") as reply:
            assert reply.status == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(FUZZ, max_examples=EXAMPLES // 6 or 1)
@given(
    st.lists(
        st.binary(max_size=200)
        | st.builds(
            lambda head, rest: head + rest,
            st.sampled_from(
                [b"GET / HTTP/1.1\r\n", b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n", b"PUT "]
            ),
            st.binary(max_size=100),
        ),
        max_size=5,
    )
)
def test_any_bytes_end_at_most_their_own_connection(data: list[bytes]) -> None:
    asyncio.run(thrown(data))
