"""Any file of actors is read, or refused with every mistake in it; who was read plays, whatever the objects say that they meet."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.api.test_fuzz import mutants as manifests
from tests.fuzz.conftest import EXAMPLES, FUZZ, a_pod, check_error, damaged, mutated
from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.api.manifests.manifests import load
from tidelog.api.objects import Object
from tidelog.api.times import format_time
from tidelog.configuration import strict
from tidelog.daemon.actors.catalogue import Cast, cast_of
from tidelog.daemon.actors.cluster_autoscaler import ORDERED
from tidelog.daemon.intake.messages import Refused, SetCondition
from tidelog.plugins.pod_topology_spread.fallback import NODE_PROVISIONING_IN_PROGRESS
from tidelog.plugins.registry import Registry
from tidelog.testing import builders as b
from tidelog.testing.sandbox import Sandbox
from tidelog.testing.virtual_time import START

FEW = settings(FUZZ, max_examples=max(20, EXAMPLES // 2))
"""Each example runs a cluster."""

SEED: dict[str, Any] = {
    "nodeAgent": {"startSeconds": 2, "speed": 10},
    "disruptionController": {},
    "clusterAutoscaler": {
        "scanSeconds": 5,
        "stockoutBackoffSeconds": 20,
        "stopped": False,
        "nodeGroups": [
            {
                "name": "general",
                "zones": ["a", "b"],
                "min": 1,
                "max": 3,
                "provisioningSeconds": 5,
                "labels": {"team": "web"},
                "taints": [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}],
                "resources": {"cpu": "2", "memory": "4Gi", "pods": 10},
                "stockouts": [{"zones": ["b"], "start": format_time(START), "end": "2100-01-01T00:00:00Z"}],
            },
            {"name": "spare", "zones": ["a"], "provisioningSeconds": 0},
        ],
    },
}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "",
            "a",
            "general",
            "x" * 63,
            "x" * 64,
            "NoExecute",
            "2Gi",
            "1e400",
            "-1",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "\x1b[2J",
            10**30,
        ]
    ),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none() | st.integers(), max_size=2),
)


def read(text: str | bytes) -> Cast | None:
    """What the file says, or nothing if it is refused as it should be."""
    try:
        return cast_of(strict.parse_document(text, "fuzz"), "fuzz")
    except TidelogError as error:
        check_error(error)
        return None


async def play(cast: Cast, objects: Sequence[Object], conditions: Sequence[SetCondition] = ()) -> None:
    """A cluster with these actors in which pods come, wait, run and go, also over a restart; its log must verify."""
    registry = Registry()
    async with Sandbox(actors=cast(registry), registry=registry) as cluster:
        await cluster.apply([a_pod("web").request(cpu=1).build(), a_pod("big").request(cpu=1000).build()])
        for obj in objects:
            with contextlib.suppress(Refused):
                await cluster.apply(obj)
        for condition in conditions:
            with contextlib.suppress(Refused):
                await cluster.runtime.facts.submit(condition)
        await cluster.advance(seconds=30)
        await cluster.restart(cast(registry))
        with contextlib.suppress(Refused):  # It may have been replaced by one that is deleted already.
            await cluster.delete(["Pod/default/web"])
        await cluster.advance(minutes=3)
        await cluster.verify()


@FUZZ
@given(mutated(SEED, LEAVES))
@example({"nodeAgent": 5})
@example({"clusterAutoscaler": {"nodeGroups": [{"name": "a", "zones": ["z"], "labels": {"a": None}}]}})
@example({"clusterAutoscaler": {"nodeGroups": [{"name": "a" * 40, "zones": ["z" * 40], "min": 1}]}})
@example({"clusterAutoscaler": {"nodeGroups": [{"name": "a", "zones": ["z"], "min": 10**9, "max": 10**9}]}})
@example({"": None})
def test_mutated_files_of_actors_are_refused_or_play(value: Any) -> None:
    cast = read(yaml.safe_dump(value, allow_unicode=True))

    if cast is not None and _is_small(value):
        asyncio.run(play(cast, ()))


def _is_small(value: Any) -> bool:
    """Nodes by the hundred are for benchmarks."""
    groups = ((value.get("clusterAutoscaler") or {}).get("nodeGroups")) or ()
    return all((group.get("min") or 0) <= 20 for group in groups)


@FUZZ
@given(st.binary(max_size=200) | st.text(max_size=200))
@example(b"[" * 5000)
@example("a: &a [*a]")
@example("clusterAutoscaler: {nodeGroups: " + "[" * 100 + "]" * 100 + "}")
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    read(text)


@FUZZ
@given(damaged(SEED, LEAVES))
def test_damaged_text_is_read_or_refused(text: bytes) -> None:
    read(text)


@FEW
@given(st.lists(manifests(), min_size=1, max_size=4))
def test_actors_and_scheduler_bear_whatever_is_admitted(found: list[dict[str, Any]]) -> None:
    try:
        objects = load(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}), "fuzz")
    except InvalidObjects:
        return

    asyncio.run(play(cast_of(SEED), objects))


MESSAGES = st.builds(
    "node {} of group {} in zone {} is expected at {}".format,
    st.sampled_from(["general-a-1", "general-a-2", "general-x-1", "n0", "A_b", "\x1b", "x" * 300, "../etc"]),
    st.sampled_from(["general", "spare", "none"]),
    st.sampled_from(["a", "b", "x", "A_b", "x" * 100]),
    st.sampled_from(["soon", "2024-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-13-01T00:00:00Z"]),
)


@FEW
@given(st.lists(MESSAGES | st.text(max_size=20), min_size=1, max_size=3), st.sampled_from([ORDERED, "Else"]))
@example(["node general-a-1 of group general in zone a is expected at soon"], ORDERED)
@example(["node A_b of group general in zone a is expected at 2024-01-01T00:00:00Z"], ORDERED)
def test_orders_that_anybody_may_have_written_are_taken_up_or_passed_over(
    messages: list[str], reason: str
) -> None:
    """After a restart the autoscaler reads its orders in the pods' conditions, which others can set."""
    said = [
        SetCondition(
            key=f"Pod/default/p{i}",
            type=NODE_PROVISIONING_IN_PROGRESS,
            status="True",
            reason=reason,
            message=message,
        )
        for i, message in enumerate(messages)
    ]
    pods = [a_pod(f"p{i}").request(cpu=2000).build() for i in range(len(said))]

    asyncio.run(play(cast_of(SEED), [b.node("n0").capacity(cpu=1).build(), *pods], said))
