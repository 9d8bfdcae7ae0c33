"""Find the plugins whose answers differ, when a recomputed decision is not the recorded one.

An outcome stores only what is cheap and final, so this is evidence, not always proof. A rejection lists reasons by plugin, which can be
compared. A placement lists a node: if that node is rejected now, whoever rejects it answers differently; if it is not, its scores beside
the new winner's show who moved. And a plugin that answers differently when asked twice in the same state needs no other evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.api.objects import Pod
from tidelog.eventlog.records import AttemptError, Body, Reserved, Scheduled, Unschedulable, Waiting
from tidelog.framework.interface import Status
from tidelog.framework.results import NodeScores
from tidelog.replay.examine import Examination, examine
from tidelog.scheduler.core import Core

ASKED_AGAIN = 3


class Evidence(NamedTuple):
    """Evidence that a plugin answers differently."""

    plugin: str
    what: str


def evidence(core: Core, pod: Pod, at: int, recorded: Body, computed: Body) -> list[Evidence]:
    """Find the plugins whose answers differ. `core` has just made the decision, so that its snapshot is still what was decided on."""
    seen = examine(core, pod, at, refresh=False)
    found = [*_unsteady(core, pod, at, seen), *_between(seen, recorded, computed)]
    if isinstance(computed, AttemptError) and computed.plugin:
        found.append(Evidence(computed.plugin, computed.message))
    return list(dict.fromkeys(found))


def _unsteady(core: Core, pod: Pod, at: int, first: Examination) -> Iterator[Evidence]:
    """Plugins that say something else when they are asked again."""
    scores = first.scores() if first.feasible else None
    for _ in range(ASKED_AGAIN):
        again = examine(core, pod, at, refresh=False)
        for node in first.nodes:
            one, other = first.by_node[node.name], again.by_node[node.name]
            for plugin in {s.plugin: None for s in (*one, *other)}:
                if [s for s in one if s.plugin == plugin] != [s for s in other if s.plugin == plugin]:
                    yield Evidence(plugin, f"gives different answers about node {node.name} when asked twice")
        if isinstance(scores, NodeScores) and [n.name for n in again.feasible] == [
            n.name for n in first.feasible
        ]:
            yield from _unsteady_scores(scores, again.scores())


def _unsteady_scores(one: NodeScores, other: NodeScores | Status) -> Iterator[Evidence]:
    if isinstance(other, Status):
        yield Evidence(other.plugin, other.message)
        return
    for plugin, scores in one.plugins.items():
        again = other.plugins.get(plugin)
        if again is None or again.raw != scores.raw:
            yield Evidence(plugin, "gives different scores when asked twice")


def _between(seen: Examination, recorded: Body, computed: Body) -> Iterator[Evidence]:
    if isinstance(recorded, Scheduled | Waiting | Reserved):
        reasons = seen.by_node.get(recorded.node)
        if reasons is None:
            return
        for status in reasons:
            yield Evidence(status.plugin, f"rejects node {recorded.node}, which was chosen: {status.message}")
        if (
            not reasons
            and isinstance(computed, Scheduled | Waiting | Reserved)
            and computed.node != recorded.node
        ):
            yield from _moved(seen, recorded.node, computed.node)
    elif isinstance(recorded, Unschedulable) and not recorded.same_as:
        yield from _reasons(recorded, computed)


def _moved(seen: Examination, old: str, new: str) -> Iterator[Evidence]:
    """Both nodes would do: the plugins that prefer the new one."""
    scores = seen.scores()
    if isinstance(scores, Status):
        return
    places = {node.name: place for place, node in enumerate(scores.nodes)}
    if old not in places or new not in places:
        return
    for plugin, answer in scores.plugins.items():
        before, after = answer.normalized[places[old]], answer.normalized[places[new]]
        if after > before:
            yield Evidence(plugin, f"gives {new} {after} points and {old}, which was chosen, {before}")


def _reasons(recorded: Unschedulable, computed: Body) -> Iterator[Evidence]:
    old = {(r.plugin, r.reason): r.nodes for r in recorded.rejections}
    rejections = computed.rejections if isinstance(computed, Unschedulable) else ()
    new = {(r.plugin, r.reason): r.nodes for r in rejections}
    for plugin, reason in {**old, **new}:
        before, after = old.get((plugin, reason), 0), new.get((plugin, reason), 0)
        if before != after:
            yield Evidence(plugin, f"rejected {before} nodes and rejects {after}: {reason}")
