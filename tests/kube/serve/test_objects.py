"""Objects over HTTP: what one puts is what one gets, and nothing enters that may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.conftest import Client
from tidelog.eventlog.objects import ObjectEntry
from tidelog.eventlog.records import ObjectPut, decode_body
from tidelog.kube.serve.items import item_of
from tidelog.testing import builders as b

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}]}],
            "dnsPolicy": "Default",
            **spec,
        },
    }


async def test_pod_is_returned_with_all_that_was_put(client: Client) -> None:
    created = await client.post(PODS, pod())
    found = await client.get(f"{PODS}/web")

    assert created.status == 201
    assert found.body["spec"]["containers"] == [
        {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}]}
    ]
    assert found.body["spec"]["dnsPolicy"] == "Default"
    assert found.body["metadata"]["uid"] == created.body["metadata"]["uid"]
    assert found.body["kind"] == "Pod"


async def test_what_nothing_reads_is_in_the_log_and_survives_a_restart_and_a_compaction(
    client: Client,
) -> None:
    await client.post(PODS, pod())
    before = (await client.get(f"{PODS}/web")).body
    records = [record async for record in client.sandbox.records()]
    await client.sandbox.restart()
    after = (await client.get(f"{PODS}/web")).body
    await client.sandbox.compact()
    at_last = (await client.get(f"{PODS}/web")).body

    put = next(decode_body(record) for record in records if record.key == "Pod/default/web")
    assert isinstance(put, ObjectPut)
    assert (
        put.opaque
        == '{"spec":{"containers[]":{"c":{"env":[{"name":"A","value":"b"}]}},"dnsPolicy":"Default"}}'
    )
    assert before == after == at_last


async def test_revision_names_the_record(client: Client) -> None:
    created = (await client.post(PODS, pod())).body

    seq = int(created["metadata"]["resourceVersion"]) >> 20
    record = await client.sandbox.log.record(seq)

    assert record.key == "Pod/default/web"


async def test_name_is_generated(client: Client) -> None:
    manifest = pod()
    manifest["metadata"] = {"generateName": "web-"}

    names = [(await client.post(PODS, manifest)).body["metadata"]["name"] for _ in range(3)]

    assert len(set(names)) == 3
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


async def test_name_that_is_taken(client: Client) -> None:
    await client.post(PODS, pod())

    again = await client.post(PODS, pod())

    assert again.status == 409
    assert again.body["message"] == 'pods "web" already exists'
    assert again.body["reason"] == "AlreadyExists"
    assert again.body["details"] == {"name": "web", "kind": "pods"}


async def test_invalid_object_is_refused_with_every_error(client: Client) -> None:
    before = client.sandbox.log.head.seq

    answer = await client.post(PODS, pod(containers=[{"name": "C", "image": ""}], restartPolicy="Sometimes"))

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert {cause["field"] for cause in answer.body["details"]["causes"]} >= {
        "spec.containers[0].name",
        "spec.restartPolicy",
    }
    assert client.sandbox.log.head.seq == before


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"kind": "Node"}, 400, "does not match the expected API version"),
        ({"apiVersion": "v2"}, 400, "does not match the expected API version"),
        (
            {"metadata": {"name": "x", "namespace": "other"}},
            400,
            "namespace of the provided object does not match",
        ),
        ({"metadata": {"name": "x", "resourceVersion": "7"}}, 400, "resourceVersion should not be set"),
        ({"metadata": {}}, 422, "name or generateName is required"),
        ({"spec": "x"}, 400, "cannot be handled as a Pod"),
        ({"spec": {"containers": [{"name": 3}]}}, 400, "spec.containers[0].name"),
    ],
)
async def test_manifest_that_is_none(client: Client, change: Any, status: int, message: str) -> None:
    answer = await client.post(PODS, {**pod(), **change})

    assert answer.status == status
    assert message in answer.body["message"]


async def test_namespace_must_be_there(client: Client) -> None:
    answer = await client.post("/api/v1/namespaces/nowhere/pods", pod())

    assert answer.status == 404
    assert answer.body["message"] == 'namespaces "nowhere" not found'


async def test_dry_run_changes_nothing(client: Client) -> None:
    before = client.sandbox.log.head.seq

    answer = await client.post(PODS, pod(), dryRun="All")

    assert answer.status == 201
    assert "resourceVersion" not in answer.body["metadata"]
    assert client.sandbox.log.head.seq == before
    assert (await client.get(f"{PODS}/web")).status == 404


async def test_unknown_fields_are_told_or_refused(client: Client) -> None:
    manifest = pod(imagePullPolice="x")

    warned = await client.post(PODS, manifest, dryRun="All")
    refused = await client.post(PODS, manifest, fieldValidation="Strict")
    ignored = await client.post(PODS, manifest, fieldValidation="Ignore", dryRun="All")

    assert warned.headers["Warning"] == r'299 - "unknown field \"spec.imagePullPolice\""'
    assert refused.status == 400
    assert refused.body["message"].endswith('strict decoding error: unknown field "spec.imagePullPolice"')
    assert "Warning" not in ignored.headers


async def test_update_with_an_old_revision_is_a_conflict(client: Client) -> None:
    await client.post(PODS, pod())
    await client.sandbox.settled()
    first = (await client.get(f"{PODS}/web")).body
    second = await client.put(
        f"{PODS}/web", {**first, "metadata": {**first["metadata"], "labels": {"app": "x"}}}
    )
    third = await client.put(
        f"{PODS}/web", {**first, "metadata": {**first["metadata"], "labels": {"app": "y"}}}
    )

    assert second.status == 200
    assert second.body["metadata"]["labels"] == {"app": "x"}
    assert third.status == 409
    assert third.body["message"].endswith("please apply your changes to the latest version and try again")


async def test_update_that_changes_nothing_appends_nothing(client: Client) -> None:
    await client.sandbox.settled()
    await client.post(PODS, pod())
    await client.sandbox.settled()
    found = (await client.get(f"{PODS}/web")).body
    before = client.sandbox.log.head.seq

    again = await client.put(f"{PODS}/web", found)

    assert again.body == found
    assert client.sandbox.log.head.seq == before


async def test_change_of_what_nothing_reads_is_a_change(client: Client) -> None:
    first = (await client.post(PODS, pod())).body

    changed = await client.patch(f"{PODS}/web", {"spec": {"activeDeadlineSeconds": 9, "dnsPolicy": None}})

    assert changed.status == 200
    assert "dnsPolicy" not in changed.body["spec"]
    assert changed.body["metadata"]["generation"] == first["metadata"]["generation"] + 1
    assert int(changed.body["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", [{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
        ("merge", {"metadata": {"labels": {"x": "1"}}}),
        ("strategic", {"metadata": {"labels": {"x": "1"}}}),
    ],
)
async def test_patches_of_three_kinds(client: Client, kind: str, patch: Any) -> None:
    await client.post(PODS, pod())

    changed = await client.patch(f"{PODS}/web", patch, kind)

    assert changed.status == 200
    assert changed.body["metadata"]["labels"] == {"app": "web", "x": "1"}
    assert changed.body["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]


async def test_server_side_apply_is_refused_in_clear_words(client: Client) -> None:
    answer = await client.patch(f"{PODS}/web", pod(), "application/apply-patch+yaml")

    assert answer.status == 415
    assert "client-side apply" in answer.body["message"]


@pytest.mark.parametrize(
    ("patch", "field"),
    [({"metadata": {"uid": "x"}}, "metadata.uid"), ({"metadata": {"name": "x"}}, "metadata.name")],
)
async def test_identity_cannot_be_patched(client: Client, patch: Any, field: str) -> None:
    await client.post(PODS, pod())

    answer = await client.patch(f"{PODS}/web", patch)

    assert answer.status == 422
    assert answer.body["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize("left_over", ["", '{"spec":{"dnsPolicy":"Default"}}'])
def test_pod_whose_record_has_no_phase_is_pending(left_over: str) -> None:
    """An API server writes it at creation; a log that was made without one has pods that lack it."""
    item = item_of("Pod/default/bare", ObjectEntry(1, b.pod("bare").build(), 1, left_over))

    assert json.loads(item.body)["status"]["phase"] == item.manifest["status"]["phase"] == "Pending"
    assert item.field("status.phase") == "Pending"


async def test_status_is_written_by_its_own_path_alone(client: Client) -> None:
    await client.post(PODS, {**pod(), "status": {"phase": "Running"}})
    ignored = await client.patch(f"{PODS}/web", {"status": {"phase": "Running"}})
    taken = await client.patch(
        f"{PODS}/web/status", {"status": {"phase": "Running", "podIP": "1.2.3.4"}, "spec": {"nodeName": "n"}}
    )

    assert ignored.body["status"]["phase"] == "Pending"
    assert taken.body["status"]["phase"] == "Running"
    assert taken.body["status"]["podIP"] == "1.2.3.4"
    assert "nodeName" not in taken.body["spec"]


async def test_deletion_of_a_pod_without_a_node_returns_it(client: Client) -> None:
    created = (await client.post(PODS, pod())).body

    answer = await client.delete(f"{PODS}/web")

    assert answer.status == 200
    assert answer.body["metadata"]["uid"] == created["metadata"]["uid"]
    assert (await client.get(f"{PODS}/web")).status == 404


async def test_deletion_with_preconditions(client: Client) -> None:
    created = (await client.post(PODS, pod())).body

    wrong = await client.delete(f"{PODS}/web", {"preconditions": {"uid": "x"}})
    right = await client.delete(f"{PODS}/web", {"preconditions": {"uid": created["metadata"]["uid"]}})

    assert wrong.status == 409
    assert "the UID in the precondition (x) does not match the UID in record" in wrong.body["message"]
    assert right.status == 200


async def test_deletion_of_other_kinds_is_a_status(client: Client) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await client.post(path, {"metadata": {"name": "high"}, "value": 1})

    answer = await client.delete(f"{path}/high")

    assert answer.body["status"] == "Success"
    assert answer.body["details"]["name"] == "high"
    assert answer.body["details"]["group"] == "scheduling.k8s.io"


async def test_what_every_cluster_has_is_there_and_stays(client: Client) -> None:
    namespaces = (await client.get("/api/v1/namespaces")).body["items"]

    answer = await client.delete("/api/v1/namespaces/default")

    assert [one["metadata"]["name"] for one in namespaces] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert all(one["status"]["phase"] == "Active" and one["metadata"]["uid"] for one in namespaces)
    assert answer.status == 403


async def test_namespace_takes_its_contents_with_it(client: Client) -> None:
    await client.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await client.post("/api/v1/namespaces/team/pods", pod())

    await client.delete("/api/v1/namespaces/team")

    assert (await client.get("/api/v1/pods")).body["items"] == []
    assert (await client.get("/api/v1/namespaces/team")).status == 404


async def test_finalizers_hold_an_object(client: Client) -> None:
    manifest = pod()
    manifest["metadata"]["finalizers"] = ["example.com/wait"]
    await client.post(PODS, manifest)

    going = await client.delete(f"{PODS}/web")
    still = await client.get(f"{PODS}/web")
    await client.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in going.body["metadata"]
    assert still.status == 200
    assert (await client.get(f"{PODS}/web")).status == 404


async def test_deletecollection_takes_what_matches(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.post(PODS, pod(name))
    await client.patch(f"{PODS}/b", {"metadata": {"labels": {"app": "other"}}})

    gone = await client.delete(PODS, labelSelector="app=web")

    assert [one["metadata"]["name"] for one in gone.body["items"]] == ["a", "c"]
    assert [one["metadata"]["name"] for one in (await client.get(PODS)).body["items"]] == ["b"]


async def test_scheduler_places_what_is_put(client: Client) -> None:
    await client.post(
        "/api/v1/nodes",
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}},
    )
    await client.post(PODS, pod())
    await client.sandbox.settled()

    found = (await client.get(f"{PODS}/web")).body

    assert found["spec"]["nodeName"] == "n1"
    assert found["spec"]["dnsPolicy"] == "Default"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/secrets", 404),
        ("GET", "/apis/nowhere/v1/things", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/pods/web", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/web", 405),
        ("GET", f"{PODS}/web/log", 404),
        ("GET", f"{PODS}/web/binding", 405),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
    ],
)
async def test_paths_and_methods_that_are_not_served(
    client: Client, method: str, path: str, status: int
) -> None:
    answer = await client.ask(method, path, {} if method != "GET" else None)

    assert answer.status == status
    assert answer.body["kind"] == "Status"
    assert answer.body["code"] == status
