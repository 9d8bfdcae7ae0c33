"""Why this preemption: the search of an attempt, made again in the state in which it was made, and the rule that decided."""

from __future__ import annotations

import copy

from tidelog.eventlog.records import Nominated
from tidelog.plugins.default_preemption.candidates import Candidate, Twin, rank, ranked
from tidelog.plugins.default_preemption.plugin import DefaultPreemption
from tidelog.replay.examine import examine
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt


def deciding_rule(core: Core, attempt: RecordedAttempt, key: str) -> str:
    """Tell by which rule the node was preferred to the next best. `core` is in the state in which the attempt is about to be made.

    Empty where there was no choice, or the best was not taken because an eviction was refused.
    """
    chosen = next((b for r, b in attempt.outcomes if r.key == key and isinstance(b, Nominated)), None)
    pod = core.cluster.pod(key)
    if chosen is None or chosen.candidates < 2 or pod is None:
        return ""
    framework = core.frameworks.get(pod.spec.scheduler_name)
    plugins = () if framework is None else framework.post_filter
    plugin = next((plugin for plugin in plugins if isinstance(plugin, DefaultPreemption)), None)
    if plugin is None or plugin.handle.preemption is None:
        return ""
    waiting = copy.copy(core.queue.get(key.partition("/")[2]))
    if waiting is not None:
        waiting.attempted_at = attempt.at
    seen = examine(core, pod, attempt.at, waiting)
    seen.state.turn = attempt.attempt
    statuses = {node: reasons[0] for node, reasons in seen.by_node.items() if reasons}
    port = plugin.handle.preemption
    allowances = plugin.allowances(port, seen.state, seen.pod)
    found = ranked(plugin.search(port, allowances, seen.state, seen.pod, statuses).candidates, attempt.at)
    if len(found) < 2 or found[0].node != chosen.node:
        return ""
    return _difference(found, attempt.at)


def _difference(found: list[Candidate | Twin], at: int) -> str:
    """Name the first of kube-scheduler's rules by which the best and the next one differ."""
    best, other = found[:2]
    place = next(
        (i for i, (a, b) in enumerate(zip(rank(best, at), rank(other, at), strict=True)) if a != b), -1
    )
    last = other.victims[0].key
    match place:
        case 0:
            why = f"it breaks {best.violations} promises of disruption budgets, {other.node} would break {other.violations}"
        case 1:
            why = f"its most important victim has priority {best.victims[0].priority}, that on {other.node} ({last}) {other.victims[0].priority}"
        case 2 | 3 if len(best.victims) != len(other.victims):
            count = "1 pod" if len(best.victims) == 1 else f"{len(best.victims)} pods"
            why = f"{count} must go, on {other.node} it would be {len(other.victims)}"
        case 2:
            why = f"the priorities of its victims sum up to less than those on {other.node}"
        case 4:
            why = f"{best.victims[0].key} has run for a shorter time than {last} on {other.node}, and is as important"
        case _:
            equals = [one.node for one in found[1:] if rank(one, at) == rank(best, at)]
            more = f" and {len(equals) - 3} more" if len(equals) > 3 else ""
            return f"on {', '.join(equals[:3])}{more} it would do as little harm: among equals the order of the search decides"
    return f"this node and not {other.node}, the next best: {why}"
