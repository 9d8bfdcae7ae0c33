"""Why a pod is where it is: its story, what it waits for, what would help, and for a placed one how its node was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tidelog.api.errors import TidelogError
from tidelog.api.objects import Pod
from tidelog.api.pod_status import is_terminal
from tidelog.eventlog.records import Record
from tidelog.framework.results import NodeScores
from tidelog.replay.advice import Help, advise, gate_advice
from tidelog.replay.choice import NodeChoice, choice_of, placement_of, placing_attempt
from tidelog.replay.examine import Examination, examine
from tidelog.replay.kept import kept_room
from tidelog.replay.playback import playback
from tidelog.replay.story import PodStory, Teller
from tidelog.replay.waits import Waits, waits_of
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt

EXAMINED = ("active", "backoff", "unschedulable", "gated", "member", "pending member", "incomplete member")
"""Where a pod waits without a place of its own: only there does the question make sense what would help."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    pod: str
    """`namespace/name`."""
    uid: str
    seq: int
    """The record after which this holds."""
    at: int
    status: str
    node: str
    story: PodStory
    waits: Waits | None
    nodes: int
    """How many nodes there are."""
    feasible: tuple[str, ...]
    """For a pending pod: the nodes that would take it now."""
    help: tuple[Help, ...]
    choice: NodeChoice | None
    by_node: dict[str, dict[str, str]]
    """For a pending pod: node → plugin → its reason."""
    note: str = ""


def why(
    records: Sequence[Record],
    core: Core,
    key: str,
    *,
    later: Sequence[Record] = (),
    seq: int | None = None,
    at: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Why:
    """Explain the pod of this record key. `core` has consumed everything before `records`, and ends behind them.

    `later` are the records behind the last one, for attempts under way; `seq` and `at` are the moment in question, by default that of the last
    record. Of a pod that is placed or gone, the records after the last one about it need not be given.
    """
    last = placing_attempt(records, key)
    teller, choice = Teller(core, key), None
    for step in playback(records, core, later, progress=progress):
        if isinstance(step, RecordedAttempt) and step.attempt == last:
            choice = choice_of(core, step, key)
        teller.hear(step)
    told = teller.told()
    if not told.entries and core.cluster.pod(key) is None:
        raise TidelogError(f"pod {key.partition('/')[2]} is not in the log up to record {core.seq}")
    return _answer(core, key, told, choice, core.seq if seq is None else seq, core.at if at is None else at)


def explain_now(core: Core, key: str, story: PodStory) -> Why:
    """Explain the pod in the state that `core` is in; its story has been told already. How a node was chosen is not computed again."""
    return _answer(core, key, story, None, core.seq, core.at)


def _answer(core: Core, key: str, told: PodStory, choice: NodeChoice | None, seq: int, at: int) -> Why:
    pod, name = core.cluster.pod(key), key.partition("/")[2]
    if pod is None:
        return Why(
            pod=name, uid="", seq=seq, at=at, status="deleted", node="", story=told, waits=None, nodes=0,
            feasible=(), help=(), choice=choice, by_node={},
        )  # fmt: skip
    waits = waits_of(core, pod)
    help_: tuple[Help, ...] = ()
    feasible: tuple[str, ...] = ()
    by_node: dict[str, dict[str, str]] = {}
    note = ""
    if not pod.spec.node_name:
        if pod.spec.scheduler_name not in core.frameworks:
            note = _nobody(core, pod)
        elif waits is not None and waits.place in EXAMINED:
            seen = examine(core, pod, at)
            feasible = tuple(node.name for node in seen.feasible)
            help_ = (*_gate(waits, seen), *advise(seen))
            note = kept_room(seen)
            by_node = {
                node: {s.plugin: s.message for s in statuses} for node, statuses in seen.by_node.items()
            }
    return Why(
        pod=name,
        uid=pod.metadata.uid,
        seq=seq,
        at=at,
        status=status_of(pod, waits),
        node=pod.spec.node_name,
        story=told,
        waits=waits,
        nodes=len(list(core.cluster.cache.node_names())),
        feasible=feasible,
        help=help_,
        choice=choice if pod.spec.node_name or (waits and waits.reserved_on) else None,
        by_node=by_node,
        note=note,
    )


def _gate(waits: Waits, seen: Examination) -> Iterator[Help]:
    """A closed gate keeps the pod out of the queue, whatever the nodes."""
    plugin, _, reason = waits.gate.partition(": ")
    if plugin:
        yield Help(plugin=plugin, nodes=0, gate=reason, advice=gate_advice(plugin, seen))


def _nobody(core: Core, pod: Pod) -> str:
    known = ", ".join(core.frameworks)
    wanted = pod.spec.scheduler_name or "(none named)"
    if not known:
        return "no scheduler has taken this log yet: `tidelog run` starts one"
    return (
        f"the pod wants the scheduler {wanted}; this log's profiles are {known}, so nobody here will place it"
    )


def status_of(pod: Pod, waits: Waits | None) -> str:
    """One or two words for where the pod is on its way."""
    if pod.metadata.deletion_timestamp:
        return "terminating"
    if is_terminal(pod):
        return "finished"
    if pod.spec.node_name:
        return "placed"
    return "pending" if waits is None else f"pending ({waits.place})"


class PluginVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One plugin about one node."""

    plugin: str
    verdict: str
    """`passes`, `rejects`, `fails`, or `has nothing to say`."""
    reason: str = ""
    code: str = ""


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """Every plugin's verdict on one node."""

    pod: str
    node: str
    seq: int
    attempt: int
    """The attempt in whose state this was asked; 0: the state after record `seq`."""
    verdicts: tuple[PluginVerdict, ...]
    feasible: bool
    placed_on: str
    score: dict[str, int]
    """For a node that would do: plugin → weighted points."""
    winner: dict[str, int]
    """The same of the node with the most points."""
    winner_node: str
    note: str = ""
    help: tuple[Help, ...] = ()
    """Changes that would make the plugins agree which reject the node."""


def why_not(
    records: Sequence[Record],
    core: Core,
    key: str,
    node: str,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> WhyNot:
    """Ask every plugin about the pod and the node. For a pod that was placed: in the state in which that was decided."""
    placing = placing_attempt(records, key)
    for step in playback(records, core, progress=progress):
        if (
            isinstance(step, RecordedAttempt)
            and step.attempt == placing
            and (placed := placement_of(step, key))
        ):
            return _verdicts(core, key, node, step.at, attempt=step.attempt, placed_on=placed[1])
    return _verdicts(core, key, node, core.at)


def _verdicts(core: Core, key: str, name: str, at: int, *, attempt: int = 0, placed_on: str = "") -> WhyNot:
    pod = core.cluster.pod(key)
    if pod is None:
        raise TidelogError(f"pod {key.partition('/')[2]} does not exist at record {core.seq}")
    seen = examine(core, pod, at)
    node = next((n for n in seen.nodes if n.name == name), None)
    if node is None:
        raise TidelogError(f"node {name} does not exist at record {core.seq}")
    found = []
    answers = seen.verdicts(node)
    for plugin in seen.plugins():
        if plugin not in answers:
            found.append(PluginVerdict(plugin=plugin, verdict="has nothing to say"))
            continue
        status = answers[plugin]
        if status is None:
            found.append(PluginVerdict(plugin=plugin, verdict="passes"))
        else:
            said = "rejects" if status.is_rejected else "fails"
            found.append(
                PluginVerdict(plugin=plugin, verdict=said, reason=status.message, code=status.code.value)
            )
    feasible = all(v.verdict in ("passes", "has nothing to say") for v in found)
    scores = seen.scores() if feasible and len(seen.feasible) > 1 else None
    mine, best, winner = {}, {}, ""
    if isinstance(scores, NodeScores):
        places = {n.name: i for i, n in enumerate(scores.nodes)}
        winner = (
            placed_on if placed_on in places else scores.nodes[scores.totals.index(max(scores.totals))].name
        )
        mine = {p: s.weight * s.normalized[places[name]] for p, s in scores.plugins.items()}
        best = {p: s.weight * s.normalized[places[winner]] for p, s in scores.plugins.items()}
    note = ""
    if feasible and pod.spec.node_name and not attempt:
        note = f"the pod is on {pod.spec.node_name}, and its placement is not in this log"
    if not feasible and not attempt:
        note = kept_room(seen, name)
    return WhyNot(
        pod=key.partition("/")[2],
        node=name,
        seq=core.seq,
        attempt=attempt,
        verdicts=tuple(found),
        feasible=feasible,
        placed_on=placed_on,
        score=mine,
        winner=best,
        winner_node=winner,
        note=note,
        help=tuple(advise(seen, node)),
    )
