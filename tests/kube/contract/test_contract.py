"""Each flow that was recorded from a real kube-apiserver, told again to `tidelog serve`, and answered in the same words.

The same flows are told to a real server where one is given (`tests/kube/server.py`): so the contract is held to the truth, not only to its recording.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from tests.kube.contract.comparing import UID, differences, unexplained
from tests.kube.server import RealServer, need
from tidelog.daemon.process.runtime import Limits
from tidelog.testing.api_server import ApiSandbox

EXCHANGES = Path(__file__).parent / "exchanges"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ZERO = "00000000-0000-0000-0000-000000000000"
IMAGE = "registry.k8s.io/pause:3.10"
ACTIVE = "status.phase!=Succeeded,status.phase!=Failed"


def exchanges(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXCHANGES / f"{name}.jsonl").read_text().splitlines()]


class Teller:
    """Tells recorded requests to a server, in that server's uids and revisions."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.revisions: dict[str, str] = {}
        self.tokens: dict[str, str] = {}

    async def ask(
        self, method: str, path: str, body: Any = None, type: str = "application/json", **query: str
    ) -> tuple[int, Any, Any]:
        data = None if body is None else json.dumps(body)
        async with self.http.request(
            method, path, params=query, data=data, headers={"Content-Type": type}
        ) as reply:
            text = await reply.read()
            return reply.status, json.loads(text), reply.headers

    async def must(self, method: str, path: str, body: Any = None, type: str = "application/json") -> Any:
        status, found, _ = await self.ask(method, path, body, type)
        assert status < 300, found
        return found

    async def tell(self, exchange: dict[str, Any]) -> tuple[int, Any, Any]:
        body = json.loads(json.dumps(exchange["body"])) if exchange["body"] else None
        path = exchange["path"]
        if body:
            if str(body.get("note", "")).endswith("…"):
                body["note"] = "x" * 1025
            # The recording says that there were some, and not which.
            (body.get("metadata") or {}).pop("managedFields", None)
            await self._translate(body, path)
        query = dict(exchange["query"])
        if "continue" in query:
            query["continue"] = self.tokens[query["continue"]]
        if query.get("resourceVersion") in self.revisions:
            query["resourceVersion"] = self.revisions[query["resourceVersion"]]
        kind = exchange["headers"].get("content-type", "application/json")
        status, found, headers = await self.ask(exchange["method"], path, body, kind, **query)
        self._learn(exchange.get("response"), found)
        return status, found, headers

    async def _translate(self, body: dict[str, Any], path: str) -> None:
        target = "/".join(path.split("/")[:7]) if path.startswith("/api/") else path
        metadata = body.get("metadata", {})
        wanted = [
            (metadata, "uid"),
            ((body.get("deleteOptions") or {}).get("preconditions", {}), "uid"),
            (body.get("preconditions", {}), "uid"),
            (metadata, "resourceVersion"),
        ]
        for holder, field in wanted:
            value = holder.get(field)
            if not value or value in (ZERO, "1"):
                continue
            if value in self.revisions:
                holder[field] = self.revisions[value]
                continue
            status, current, _ = await self.ask("GET", target)
            if status == 200:
                holder[field] = current["metadata"][field]
                if field == "resourceVersion":
                    holder[field] = current["metadata"]["resourceVersion"]

    def _learn(self, recorded: Any, found: Any) -> None:
        if not isinstance(recorded, dict) or not isinstance(found, dict):
            return
        old, new = recorded.get("metadata", {}), found.get("metadata", {})
        if "resourceVersion" in old and "resourceVersion" in new:
            self.revisions[old["resourceVersion"]] = new["resourceVersion"]
        if "continue" in old and "continue" in new:
            self.tokens[old["continue"]] = new["continue"]

    # --- what must have happened before ---------------------------------------------------------------------------------

    async def pod(self, name: str, app: str = "t", cpu: str = "100m", **spec: Any) -> Any:
        resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
        manifest = {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {
                "containers": [{"name": "c", "image": IMAGE, "resources": resources}],
                "schedulerName": "tidelog-scheduler",
                **spec,
            },
        }
        return await self.must("POST", PODS, manifest)

    async def node(self, name: str, zone: str) -> None:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.must(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status}
        )

    async def nodes(self) -> None:
        for number in range(3):
            await self.node(f"n{number}", f"z{number % 2}")

    async def bind(self, name: str, node: str = "n0") -> None:
        await self.must(
            "POST",
            f"{PODS}/{name}/binding",
            {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}},
        )

    async def run(self, name: str, node: str = "n0") -> None:
        await self.bind(name, node)
        ready = [{"type": "Ready", "status": "True"}]
        patch = {"status": {"phase": "Running", "conditions": ready, "startTime": "2026-11-18T22:55:24Z"}}
        await self.must("PATCH", f"{PODS}/{name}/status", patch, "application/strategic-merge-patch+json")

    async def budget(self, name: str, status: dict[str, Any] | None) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "ev"}}}
        await self.must("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
        if status is not None:
            await self.budget_status(name, status)

    async def budget_status(self, name: str, status: dict[str, Any]) -> None:
        time = "2026-11-18T22:55:24Z"
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": 1,
            "reason": "InsufficientPods",
            "message": "",
            "lastTransitionTime": time,
        }
        await self.must(
            "PATCH",
            f"{BUDGETS}/{name}/status",
            {"status": {"observedGeneration": 1, "conditions": [condition], **status}},
            "application/merge-patch+json",
        )


async def before_bind(teller: Teller) -> None:
    await teller.nodes()
    for number in range(6):
        more: dict[str, Any] = {"schedulingGates": [{"name": "example.com/wait"}]} if number == 3 else {}
        await teller.pod(f"t-{number}", **more)
    finalizers = {"metadata": {"finalizers": ["example.com/wait"]}}
    await teller.must("PATCH", f"{PODS}/t-4", finalizers, "application/merge-patch+json")
    await teller.must("DELETE", f"{PODS}/t-4")
    nominated = {"status": {"nominatedNodeName": "n2"}}
    await teller.must("PATCH", f"{PODS}/t-5/status", nominated, "application/merge-patch+json")


async def before_status(teller: Teller) -> None:
    await teller.nodes()
    await teller.pod("t-5")


async def before_nominate(teller: Teller) -> None:
    await before_status(teller)
    condition = exchanges("status-patch")[0]["body"]["status"]
    await teller.must(
        "PATCH", f"{PODS}/t-5/status", {"status": condition}, "application/strategic-merge-patch+json"
    )


async def before_eviction(teller: Teller) -> None:
    await teller.nodes()
    for name in ("t-6", "t-7"):
        await teller.pod(name, "ev")
        await teller.run(name)
    await teller.pod("t-8", "ev")


BETWEEN = {
    # What users and the disruption controller did between two requests, by the number of the one after it.
    ("eviction", 1): lambda teller: teller.budget("b1", None),
    ("eviction", 2): lambda teller: teller.budget_status(
        "b1", {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    ),
    ("eviction", 3): lambda teller: teller.budget_status(
        "b1", {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    ),
    ("eviction", 9): lambda teller: teller.budget(
        "b2", {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    ),
    ("status-patch", 5): lambda teller: teller.bind("t-5", "n2"),
}


async def before_kube_scheduler(teller: Teller) -> None:
    """What kube-scheduler found: nodes, a class, two groups, and pods of which some run already when a victim is looked for."""
    await teller.nodes()
    await teller.must(
        "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000}
    )
    for name in ("g1", "g2"):
        gang = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        await teller.must("POST", "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", gang)
    for name, cpu in (
        ("plain-0", "100m"),
        ("plain-1", "100m"),
        ("toobig-0", "40"),
        ("low-0", "3500m"),
        ("low-1", "3500m"),
        ("low-2", "3500m"),
    ):
        await teller.pod(name, name.rpartition("-")[0], cpu, schedulerName="default-scheduler")
    await teller.pod("pre-0", "pre", "3", schedulerName="default-scheduler", priorityClassName="high")
    for name, cpu, group in (("gang", "50m", "g1"), ("gangbig", "50", "g2")):
        for number in range(2):
            more = {"schedulingGroup": {"podGroupName": group}, "schedulerName": "default-scheduler"}
            await teller.pod(f"{name}-{number}", name, cpu, **more)


async def nothing(teller: Teller) -> None:
    pass


FLOWS = {
    "bind": before_bind,
    "status-patch": before_status,
    "nominate": before_nominate,
    "eviction": before_eviction,
    "lease": nothing,
    "events": nothing,
    "dropped-fields": nothing,
    "podgroup": nothing,
    "kube-scheduler": before_kube_scheduler,
}
OURS = ("desiredCount", "preferred", "podGroups", "workloadRef")
"""Fields of the KEPs: named in the flow, so that their differences have a reason of their own."""


@asynccontextmanager
async def tidelog() -> AsyncIterator[Teller]:
    async with ApiSandbox(limits=Limits(decides=False)) as sandbox, sandbox.session() as http:
        facts = sandbox.runtime.facts
        facts.gates = replace(facts.gates, topology_aware_workload_scheduling=True)
        yield Teller(http)


@asynccontextmanager
async def kube_apiserver(folder: Path) -> AsyncIterator[Teller]:
    gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
    server = RealServer(
        folder / "server", gates=gates, flags=["--runtime-config=scheduling.k8s.io/v1beta1=true"]
    )
    try:
        await asyncio.to_thread(server.start)
        context = ssl.create_default_context(cafile=str(server.folder / "certs" / "apiserver.crt"))
        context.check_hostname = False
        headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
        async with aiohttp.ClientSession(
            server.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)
        ) as http:
            yield Teller(http)
    finally:
        server.stop()


def named(flow: str, exchange: dict[str, Any]) -> str:
    for word in OURS:
        if flow == "podgroup" and word in exchange["note"]:
            return f"{flow}: {word}"
    return flow


async def told(flow: str, teller: Teller) -> list[str]:
    """What is answered in another way, without a reason."""
    found = []
    for number, exchange in enumerate(exchanges(flow)):
        if between := BETWEEN.get((flow, number)):
            await between(teller)
        if exchange["path"] == "/apis/scheduling.k8s.io":
            continue
        status, answer, headers = await teller.tell(exchange)
        lines = (
            []
            if status == exchange["status"]
            else [f"status {status} in place of {exchange['status']}: {answer}"]
        )
        if not lines:
            lines += differences(exchange["response"], answer)
        for name in ("retry-after", "warning"):
            if (recorded := exchange["rheaders"].get(name)) != (given := headers.get(name)):
                lines.append(f"header {name}: {given} in place of {recorded}")
        found += [
            f"{number} ({exchange['note']}) {line}"
            for line in unexplained(named(flow, exchange), iter(lines))
        ]
    return found


@pytest.mark.parametrize("flow", FLOWS)
async def test_flow_is_answered_as_the_real_server_did(flow: str) -> None:
    async with tidelog() as teller:
        await FLOWS[flow](teller)

        found = await told(flow, teller)

    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("flow", FLOWS)
async def test_real_server_still_answers_so(flow: str, tmp_path: Path) -> None:
    need()
    async with kube_apiserver(tmp_path) as teller:
        await FLOWS[flow](teller)

        found = await told(flow, teller)

    assert not found, "\n".join(found)


async def test_bad_token(tmp_path: Path) -> None:
    exchange = exchanges("errors")[1]
    async with tidelog() as teller:
        teller.http.headers["Authorization"] = "Bearer bad"
        status, answer, _ = await teller.ask("GET", exchange["path"])

    assert (status, answer) == (exchange["status"], exchange["response"])


async def test_lists() -> None:
    async with tidelog() as teller:
        await teller.nodes()
        names = [
            item["metadata"]["name"]
            for exchange in exchanges("list")[:2]
            for item in exchange["response"]["items"]
        ]
        for name in [*names, "plain-0"]:
            await teller.pod(name, name.rpartition("-")[0], schedulerName="default-scheduler")
        recorded = exchanges("list")
        found = []
        for number, exchange in enumerate(recorded):
            status, answer, headers = await teller.tell(exchange)
            lines = [] if status == exchange["status"] else [f"status {status}: {answer}"]
            lines += differences(exchange["response"], answer)
            if exchange["rheaders"].get("retry-after") != headers.get("retry-after"):
                lines.append("header retry-after")
            found += [f"{number}: {line}" for line in unexplained("list", iter(lines))]

    assert not found, "\n".join(found)


async def test_watch_with_bookmarks() -> None:
    recorded = exchanges("watch")[0]
    async with tidelog() as teller:
        await teller.nodes()
        await teller.pod("w-0")
        await teller.bind("w-0")
        revision = (await teller.must("GET", "/api/v1/pods"))["metadata"]["resourceVersion"]
        query = {**recorded["query"], "resourceVersion": revision, "timeoutSeconds": "1"}
        async with teller.http.get("/api/v1/pods", params=query) as reply:
            await teller.pod("w-x", "w", schedulerName="nobody")
            label = {"metadata": {"labels": {"x": "1"}}}
            await teller.must("PATCH", f"{PODS}/w-x", label, "application/merge-patch+json")
            done = {"status": {"phase": "Succeeded"}}
            await teller.must("PATCH", f"{PODS}/w-x/status", done, "application/merge-patch+json")
            await teller.must("DELETE", f"{PODS}/w-0")
            await teller.must("DELETE", f"{PODS}/w-0", {"gracePeriodSeconds": 0})
            events = [json.loads(line) async for line in reply.content]

    def shape(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [
            (event["type"], event["object"]["metadata"].get("name", ""))
            for event in events
            if event["type"] != "BOOKMARK"
        ]

    assert shape(events) == shape(recorded["stream"])
    assert "BOOKMARK" in [event["type"] for event in events]
    events = [event for event in events if event["type"] != "BOOKMARK"]
    ours, theirs = events[2]["object"], recorded["stream"][2]["object"]
    assert ours["status"]["phase"] == theirs["status"]["phase"] == "Pending"  # Its last state that matched.
    assert (
        events[2]["object"]["metadata"]["resourceVersion"]
        > events[1]["object"]["metadata"]["resourceVersion"]
    )


async def test_streaming_list() -> None:
    recorded = exchanges("watch")[1]
    async with tidelog() as teller:
        await teller.nodes()
        query = {**recorded["query"], "timeoutSeconds": "1"}
        async with teller.http.get("/api/v1/nodes", params=query) as reply:
            events = [json.loads(line) async for line in reply.content]

    assert [event["type"] for event in events[:4]] == [event["type"] for event in recorded["stream"][:4]]
    assert (
        events[3]["object"]["metadata"]["annotations"]
        == recorded["stream"][3]["object"]["metadata"]["annotations"]
    )


async def test_what_is_gone() -> None:
    recorded = {exchange["note"].split(":")[0]: exchange for exchange in exchanges("gone")}
    async with ApiSandbox() as sandbox:
        async with sandbox.session() as http:
            teller = Teller(http)
            await teller.nodes()
            await teller.pod("a")
            await teller.pod("b")
            old = (await teller.must("GET", "/api/v1/pods"))["metadata"]["resourceVersion"]
            _, page, _ = await teller.ask("GET", "/api/v1/pods", limit="1")
            await teller.pod("c")
            await sandbox.compact()
        async with sandbox.session() as http:
            teller = Teller(http)
            async with http.get("/api/v1/pods", params={"watch": "true", "resourceVersion": old}) as reply:
                watched = [json.loads(line) async for line in reply.content]
            _, paged, _ = await teller.ask(
                "GET", "/api/v1/pods", limit="1", **{"continue": page["metadata"]["continue"]}
            )
            _, exact, _ = await teller.ask(
                "GET", "/api/v1/nodes", resourceVersion=old, resourceVersionMatch="Exact"
            )

    error = next(e for note, e in recorded.items() if note.startswith("watch from a resourceVersion older"))
    token = next(e for note, e in recorded.items() if note.startswith("continue token"))
    gone = next(e for note, e in recorded.items() if note.startswith("Exact on a compacted"))
    assert list(differences(error["stream"], watched)) == []
    assert unexplained("gone", differences(token["response"], paged)) == []
    assert list(differences(gone["response"], exact)) == []


def test_exchanges_hold_nothing_private() -> None:
    for path in EXCHANGES.glob("*.jsonl"):
        text = path.read_text()
        assert "Bearer" not in text
        assert "/home/" not in text
    assert UID
