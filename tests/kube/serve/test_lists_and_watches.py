"""Lists and watches: at any revision, in pages, through compaction, and for each watcher what it asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.kube.conftest import Client, MakeClient
from tests.patience import until
from tidelog.daemon.process.retention import Retention
from tidelog.daemon.process.runtime import Limits
from tidelog.kube.serve import shelf
from tidelog.kube.serve.revisions import end_of, revision

PODS = "/api/v1/namespaces/default/pods"
ALL_PODS = "/api/v1/pods"


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
    }


async def fill(client: Client, *names: str) -> list[str]:
    """The pods' resourceVersions."""
    return [
        (await client.post(PODS, pod(name, app=name))).body["metadata"]["resourceVersion"] for name in names
    ]


class Lines:
    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self) -> dict[str, Any]:
        line = await self._content.readline()
        assert line, "the watch ended"
        found: dict[str, Any] = json.loads(line)
        return found

    async def some(self, count: int) -> list[tuple[str, str]]:
        found = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in found]

    async def rest(self) -> list[dict[str, Any]]:
        return [json.loads(line) async for line in self._content]


@asynccontextmanager
async def watch(client: Client, path: str = ALL_PODS, **query: str) -> AsyncIterator[Lines]:
    async with client.http.get(path, params={"watch": "true", **query}) as reply:
        assert reply.status == 200
        yield Lines(reply.content)


async def names(client: Client, path: str = ALL_PODS, **query: str) -> list[str]:
    answer = await client.get(path, **query)
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


# --- lists ----------------------------------------------------------------------------------------------------------


async def test_list_has_kind_revision_and_items_without_kind(client: Client) -> None:
    await fill(client, "a")

    body = (await client.get(ALL_PODS)).body

    assert body["kind"] == "PodList"
    assert int(body["metadata"]["resourceVersion"]) == end_of(client.sandbox.log.head.seq)
    assert "kind" not in body["items"][0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"labelSelector": "app=a"}, ["a"]),
        ({"labelSelector": "app in (a,c)"}, ["a", "c"]),
        ({"labelSelector": "app!=a"}, ["b", "c"]),
        ({"labelSelector": "!app"}, []),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b,status.phase=Pending"}, ["a", "c"]),
        ({"fieldSelector": "spec.nodeName="}, ["a", "b", "c"]),
        ({"labelSelector": "app=a", "fieldSelector": "metadata.name=b"}, []),
    ],
)
async def test_list_with_selectors(client: Client, query: dict[str, str], expected: list[str]) -> None:
    await fill(client, "a", "b", "c")

    assert await names(client, **query) == expected


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"labelSelector": "a in b"}, 400),
        ({"fieldSelector": "spec.foo=1"}, 400),
        ({"resourceVersion": "x"}, 400),
        ({"limit": "-1"}, 400),
        ({"continue": "x"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "1", "resourceVersionMatch": "About"}, 422),
        ({"resourceVersion": "99999999999"}, 504),
    ],
)
async def test_list_that_cannot_be(client: Client, query: dict[str, str], code: int) -> None:
    answer = await client.get(ALL_PODS, **query)

    assert answer.status == code
    assert answer.body["kind"] == "Status"


async def test_pages_are_one_list_whatever_happens_meanwhile(client: Client) -> None:
    await fill(client, "a", "b", "c", "d", "e")
    first = (await client.get(ALL_PODS, limit="2")).body
    await client.delete(f"{PODS}/c")
    await fill(client, "cc")
    second = (await client.get(ALL_PODS, limit="2", **{"continue": first["metadata"]["continue"]})).body
    third = (await client.get(ALL_PODS, limit="2", **{"continue": second["metadata"]["continue"]})).body

    found = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]

    assert found == ["a", "b", "c", "d", "e"]
    assert first["metadata"]["remainingItemCount"] == 3
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]


async def test_list_at_any_revision_is_what_was_there_then(client: Client) -> None:
    revisions = await fill(client, "a", "b", "c")
    await client.delete(f"{PODS}/a")

    found = [
        await names(client, resourceVersion=one, resourceVersionMatch="Exact")
        for one in ("1", *revisions, str(end_of(client.sandbox.log.head.seq)))
    ]

    assert found == [[], ["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"]]


async def test_people_name_a_moment_by_its_record_or_its_time(client: Client) -> None:
    revisions = await fill(client, "a", "b")
    await client.sandbox.advance(minutes=10)
    await client.delete(f"{PODS}/a")
    seqs = [int(one) >> 20 for one in revisions]
    created = (await client.get(f"{PODS}/b")).body["metadata"]["creationTimestamp"]

    assert await names(client, at=str(seqs[0])) == ["a"]
    assert await names(client, at=created.replace("Z", ".999Z")) == ["a", "b"]
    assert await names(client) == ["b"]
    then = await client.get(f"{PODS}/a", at=str(seqs[1]))
    assert (then.status, then.body["metadata"]["resourceVersion"]) == (200, revisions[0])
    assert (await client.get(f"{PODS}/b", at=str(seqs[0]))).status == 404
    page = (await client.get(ALL_PODS, at=str(seqs[1]), limit="1")).body
    rest = (await client.get(ALL_PODS, **{"continue": page["metadata"]["continue"]})).body
    assert [item["metadata"]["name"] for item in (*page["items"], *rest["items"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "query", "why"),
    [
        (ALL_PODS, {"at": "yesterday"}, "must be the number of a record, or a time"),
        (ALL_PODS, {"at": "99999"}, "there is no such record: the log ends at"),
        (ALL_PODS, {"at": "1", "resourceVersion": "1"}, "both say a moment"),
        (ALL_PODS, {"at": "1", "watch": "true"}, "a watch goes on"),
        ("/api/v1/events", {"at": "1"}, "kept beside the log"),
    ],
)
async def test_moment_that_cannot_be_shown_is_refused_in_words(
    path: str, query: dict[str, str], why: str, client: Client
) -> None:
    answer = await client.get(path, **query)

    assert (answer.status, answer.body["kind"]) == (400, "Status")
    assert why in answer.body["message"]


async def test_moment_that_was_compacted_is_gone(client: Client) -> None:
    revisions = await fill(client, "a")
    await fill(client, "b")
    await client.sandbox.compact()

    answer = await client.get(ALL_PODS, at=str(int(revisions[0]) >> 20))

    assert answer.status == 410
    assert "The log begins at record" in answer.body["message"]


async def test_compaction_makes_old_revisions_expire(client: Client) -> None:
    revisions = await fill(client, "a", "b")
    page = (await client.get(ALL_PODS, limit="1")).body
    await fill(client, "bb")
    await client.sandbox.compact()
    await fill(client, "c")

    exact = await client.get(ALL_PODS, resourceVersion=revisions[0], resourceVersionMatch="Exact")
    paged = await client.get(ALL_PODS, limit="1", **{"continue": page["metadata"]["continue"]})
    rest = await client.get(ALL_PODS, **{"continue": paged.body["metadata"]["continue"]})
    async with watch(client, resourceVersion=revisions[0]) as lines:
        watched = await lines.rest()

    assert exact.status == 410
    assert exact.body["message"] == "The resourceVersion for the provided list is too old."
    assert paged.status == 410
    assert paged.body["reason"] == "Expired"
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["b", "bb", "c"]
    assert [event["type"] for event in watched] == ["ERROR"]
    assert watched[0]["object"]["code"] == 410
    assert watched[0]["object"]["message"].startswith(f"too old resource version: {revisions[0]} (")


async def test_compaction_beside_the_server_makes_old_revisions_expire_and_disturbs_nobody(
    serve: MakeClient,
) -> None:
    client = await serve(limits=Limits(snapshot_every=20, keep=Retention(records=10), retain_every=20))
    (old,) = await fill(client, "first")

    async with watch(client, resourceVersion=old) as lines:
        names_put = [f"p-{number}" for number in range(60)]
        await fill(client, *names_put)
        seen = await lines.some(60)
        await until(lambda: client.sandbox.log.anchor.seq > 0)
    exact = await client.get(ALL_PODS, resourceVersion=old, resourceVersionMatch="Exact")

    assert [name for _, name in seen] == names_put
    assert exact.status == 410
    assert len(await names(client)) == 61


# --- watches --------------------------------------------------------------------------------------------------------


async def test_watch_from_a_list_has_everything_since(client: Client) -> None:
    await fill(client, "a")
    start = (await client.get(ALL_PODS)).body["metadata"]["resourceVersion"]

    async with watch(client, resourceVersion=start) as lines:
        await fill(client, "b")
        await client.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}})
        await client.delete(f"{PODS}/b")
        found = await lines.some(3)

    assert found == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_watch_without_a_revision_begins_with_what_is_there(client: Client) -> None:
    await fill(client, "a", "b")

    async with watch(client) as lines:
        found = await lines.some(2)

    assert found == [("ADDED", "a"), ("ADDED", "b")]


@pytest.mark.parametrize("kept", [8192, 1])
async def test_watch_may_begin_at_any_revision_also_in_front_of_what_is_in_memory(
    client: Client, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "KEPT", kept)
    revisions = await fill(client, "a", "b", "c")
    await client.delete(f"{PODS}/b")
    everything = [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("DELETED", "b")]

    for start, skipped in (("1", 0), *zip(revisions, (1, 2, 3), strict=True)):
        async with watch(client, resourceVersion=start) as lines:
            assert await lines.some(4 - skipped) == everything[skipped:]


async def test_watch_goes_on_after_a_restart(client: Client) -> None:
    revisions = await fill(client, "a", "b")
    await client.sandbox.restart()
    await fill(client, "c")

    async with watch(client, resourceVersion=revisions[0]) as lines:
        found = await lines.some(2)

    assert found == [("ADDED", "b"), ("ADDED", "c")]


async def test_watch_in_the_middle_of_a_record_that_binds_a_gang_misses_nothing(serve: MakeClient) -> None:
    client = await serve()
    await client.post(
        "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "9", "pods": "9"}}}
    )
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    assert (
        await client.post("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", group)
    ).status == 201
    for name in ("a", "b", "c"):
        manifest = pod(name)
        manifest["spec"] |= {"schedulerName": "default-scheduler", "schedulingGroup": {"podGroupName": "g"}}
        assert (await client.post(PODS, manifest)).status == 201
    await client.sandbox.settled()
    items = (await client.get(ALL_PODS)).body["items"]
    bound = sorted(int(item["metadata"]["resourceVersion"]) for item in items)

    async with watch(client, resourceVersion=str(bound[0])) as lines:
        found = await lines.some(2)

    assert [item["spec"]["nodeName"] for item in items] == ["n1"] * 3
    assert len({one >> 20 for one in bound}) == 1
    assert [kind for kind, _ in found] == ["MODIFIED", "MODIFIED"]


async def test_object_that_begins_or_ceases_to_match_is_added_or_deleted(client: Client) -> None:
    await fill(client, "a", "b")
    start = (await client.get(ALL_PODS)).body["metadata"]["resourceVersion"]

    async with watch(client, resourceVersion=start, labelSelector="app=x") as lines:
        await client.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "x"}}})
        await client.patch(f"{PODS}/a", {"metadata": {"labels": {"more": "y"}}})
        gone = (await client.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "z"}}})).body
        found = [await lines.next() for _ in range(3)]

    assert [event["type"] for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert found[2]["object"]["metadata"]["labels"] == {"app": "x", "more": "y"}
    assert found[2]["object"]["metadata"]["resourceVersion"] == gone["metadata"]["resourceVersion"]


async def test_watch_of_one_nodes_pods(client: Client) -> None:
    await fill(client, "a", "b")

    async with watch(client, fieldSelector="spec.nodeName=n1") as lines:
        for name, node in (("a", "n1"), ("b", "n2")):
            binding = {"metadata": {"name": name}, "target": {"name": node}}
            await client.post(f"{PODS}/{name}/binding", binding)
        await client.patch(f"{PODS}/b", {"metadata": {"labels": {"x": "1"}}})
        await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
        found = await lines.some(2)

    assert found == [("ADDED", "a"), ("DELETED", "a")]


async def test_initial_events_end_with_a_bookmark(client: Client) -> None:
    await fill(client, "a", "b")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }

    async with watch(client, **query) as lines:
        found = [await lines.next() for _ in range(3)]
        await fill(client, "c")
        after = await lines.some(1)

    assert [event["type"] for event in found] == ["ADDED", "ADDED", "BOOKMARK"]
    assert found[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(found[2]["object"]["metadata"]["resourceVersion"]) >= int(
        found[1]["object"]["metadata"]["resourceVersion"]
    )
    assert after == [("ADDED", "c")]


async def test_initial_events_need_their_match(client: Client) -> None:
    answer = await client.get(ALL_PODS, watch="true", sendInitialEvents="true")

    assert answer.status == 422
    assert answer.body["details"]["causes"][0]["field"] == "resourceVersionMatch"


async def test_watch_ends_with_a_bookmark_when_its_time_is_over(client: Client) -> None:
    await fill(client, "a")

    async with watch(client, timeoutSeconds="1", allowWatchBookmarks="true") as lines:
        found = await lines.rest()

    assert found[-1]["type"] == "BOOKMARK"
    assert int(found[-1]["object"]["metadata"]["resourceVersion"]) == end_of(client.sandbox.log.head.seq)


async def test_watch_from_the_future_is_silent(client: Client) -> None:
    async with watch(client, resourceVersion=str(revision(1 << 20, 1)), timeoutSeconds="1") as lines:
        await fill(client, "a")
        assert await lines.rest() == []


async def test_watcher_that_takes_too_little_is_cut_off_and_harms_nobody(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "UNSENT_BYTES_MAX", 200_000)
    await fill(client, "a")

    async with watch(client) as lines, watch(client) as other:
        await lines.some(1)
        await other.some(1)
        for count in range(300):
            big = {"metadata": {"annotations": {"big": f"{count}" + "x" * 100_000}}}
            assert (await client.patch(f"{PODS}/a", big)).status == 200
            await other.some(1)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await lines.some(301)


async def test_bytes_of_an_event_are_made_once_for_all_watchers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, "a")
    made = 0
    api = client.sandbox.server.api
    original = api.json

    def counted(*args: Any) -> bytes:
        nonlocal made
        made += 1
        return original(*args)

    start = (await client.get(ALL_PODS)).body["metadata"]["resourceVersion"]
    async with watch(client, resourceVersion=start) as one, watch(client, resourceVersion=start) as two:
        while client.sandbox.server.view.shelves["Pod"].watchers < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        monkeypatch.setattr(api, "json", counted)
        await client.patch(f"{PODS}/a/status", {"metadata": {"labels": {"x": "1"}}})
        assert await one.some(1) == await two.some(1)

    assert made == 2  # Of the answer to the patch, and of the event.


async def test_watch_of_tables(client: Client) -> None:
    await fill(client, "a")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}

    async with client.http.get(ALL_PODS, params={"watch": "true"}, headers=accept) as reply:
        event = json.loads(await reply.content.readline())

    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]


async def test_partial_objects(client: Client) -> None:
    await fill(client, "a")
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}

    answer = await client.ask("GET", ALL_PODS, headers=accept)

    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert list(answer.body["items"][0]) == ["kind", "apiVersion", "metadata"]
