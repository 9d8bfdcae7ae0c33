"""What a real kube-apiserver answered, played back: the exchanges that were recorded, as far as they are at hand.

`TIDELOG_EXCHANGES` names the folder with the recordings (JSON lines); beside a checkout they are found by themselves. Without them the
tests skip: they are large, and what they taught is in `tests/kube/memory_server.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidelog.api.objects import Pod
from tidelog.api.wire import read_line, read_meta, read_object
from tidelog.eventlog.promises import PromisedEffect
from tidelog.kube.cluster import requests
from tidelog.kube.cluster.channel import is_of_budget
from tidelog.kube.cluster.port import Answer, told

ROOT = Path(__file__).resolve().parents[2]


def folder() -> Path:
    named = os.environ.get("TIDELOG_EXCHANGES")
    candidates = [Path(named)] if named else []
    candidates += [base / "shared" / "conformance" / "exchanges" for base in list(ROOT.parents)[:3]]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    pytest.skip("no recorded exchanges: set TIDELOG_EXCHANGES")


def exchanges(name: str) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(line) for line in (folder() / f"{name}.jsonl").read_bytes().splitlines() if line
    ]


def answer(exchange: dict[str, Any]) -> Answer:
    response = exchange["response"]
    plain = response.get("_text") if isinstance(response, dict) else None
    body = plain.encode() if plain is not None else msgspec.json.encode(response)
    after = exchange["rheaders"].get("retry-after")
    return Answer(status=exchange["status"], body=body, retry_after=float(after) if after else None)


def noted(name: str, words: str) -> dict[str, Any]:
    return next(e for e in exchanges(name) if words in e.get("note", ""))


def test_refusal_by_a_budget_is_told_from_overload() -> None:
    refused = [e for e in exchanges("eviction") if e["status"] == 429]
    overload = [e for e in exchanges("apf-429") if e["status"] == 429]

    assert refused
    assert overload
    assert all(is_of_budget(answer(e).told()) for e in refused)
    assert not any(is_of_budget(answer(e).told()) for e in overload)
    assert all(answer(e).retry_after == 1 for e in overload)
    assert answer(overload[0]).told().code == 429


def test_binding_is_what_the_server_has_taken() -> None:
    exchange = noted("bind", "uid+annotation")
    meta = exchange["body"]["metadata"]
    pod = msgspec.convert({"metadata": {k: meta[k] for k in ("name", "namespace", "uid")}}, Pod)
    effect = PromisedEffect(name="bind", seq=42, at=0, node=exchange["body"]["target"]["name"])

    made = requests.binding(pod, effect, "log1")

    assert made.path == exchange["path"]
    assert made.body["metadata"] == meta
    assert {k: made.body[k] for k in ("apiVersion", "kind")} == {
        k: exchange["body"][k] for k in ("apiVersion", "kind")
    }
    assert made.body["target"]["name"] == exchange["body"]["target"]["name"]


def test_eviction_is_what_the_server_has_taken() -> None:
    exchange = noted("eviction", "granted: 201")
    name = exchange["body"]["metadata"]["name"]
    uid = exchange["body"]["deleteOptions"]["preconditions"]["uid"]
    pod = msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": uid}}, Pod)

    made = requests.eviction(pod)

    assert (made.path, made.body) == (exchange["path"], exchange["body"])


@pytest.mark.parametrize("name", ["bind", "errors", "lease", "bind-timeout", "status-patch"])
def test_every_refusal_reads_as_a_status(name: str) -> None:
    for exchange in exchanges(name):
        if exchange["status"] >= 400 and exchange.get("response"):
            assert answer(exchange).told().code == exchange["status"]


@pytest.mark.parametrize("name", ["watch", "gone", "slow-consumer"])
def test_every_line_of_a_watch_is_read(name: str) -> None:
    kinds = {"pods": "Pod", "nodes": "Node"}
    seen = 0
    for exchange in exchanges(name):
        kind = kinds.get(exchange.get("path", "").rpartition("/")[2])
        for event in exchange.get("stream") or ():
            if "type" not in event:
                continue
            line = read_line(msgspec.json.encode(event))
            if line.type == "ERROR":
                assert told(line.object, 500).code == 410
            elif line.type == "BOOKMARK":
                assert read_meta(line.object).resource_version
            elif kind is not None:
                assert read_object(kind, line.object).metadata.uid
            seen += 1
    assert seen


def test_server_without_streaming_lists_says_so_with_422() -> None:
    (exchange,) = exchanges("watchlist-off")

    assert exchange["status"] == 422
    assert told(msgspec.json.encode(exchange["stream"][0]), 422).code == 422
