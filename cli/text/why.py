"""`tidelog why` and `why-not` for people: the short answer first, the whole history last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.api.text import age, safe, table
from tidelog.api.times import format_duration, format_time
from tidelog.replay.advice import Help
from tidelog.replay.choice import NodeChoice
from tidelog.replay.story import StoryEntry
from tidelog.replay.waits import Waits
from tidelog.replay.why import Why, WhyNot


def moment(at: int) -> str:
    """To the millisecond, which is enough to tell attempts apart."""
    return format_time(at - at % 1_000_000)


def until(deadline: int, now: int) -> str:
    """A moment to come, or one that has just passed."""
    if deadline > now:
        left = format_duration((deadline - now) // 1_000_000 * 1_000_000)
        return f"{moment(deadline)} (in {left})"
    return f"{moment(deadline)} (due)"


def why_lines(found: Why, *, nodes: bool) -> Iterator[str]:
    """Everything, paragraph by paragraph."""
    on = f" on {found.node}" if found.node else ""
    yield safe(f"pod {found.pod}: {found.status}{on}   (after record {found.seq})")
    if found.note:
        yield safe(found.note)
    if found.waits is not None:
        yield from _waits(found.waits, found)
    if found.help or found.feasible:
        yield from _help(found)
    if nodes and found.by_node:
        yield from _nodes(found.by_node)
    if found.choice is not None:
        yield from _choice(found.choice, _number(found, found.choice.attempt))
    yield from _story(found)


# --- waiting ----------------------------------------------------------------------------------------------------------


def _waits(waits: Waits, found: Why) -> Iterator[str]:
    yield ""
    yield "waits:"
    yield from (f"  {safe(line)}" for line in wait_lines(waits, found.at))
    if waits.events:
        yield "  events that can wake it:"
        for plugin, events in waits.events.items():
            yield safe(f"    {plugin}: {', '.join(events) or 'none: no event can help'}")
    if found.story.slept_through:
        yield f"  events so far that did not help: {found.story.slept_through:,}"
        for judged in found.story.judged[-3:]:
            about = f" of {judged.object}" if judged.object else ""
            yield safe(
                f"    record {judged.seq}: {judged.event}{about}: {judged.plugin} said {judged.answer}"
            )


def wait_lines(waits: Waits, now: int) -> Iterator[str]:
    """Where it is and until when."""
    end = until(waits.until, now) if waits.until else ""
    by = f", rejected by {', '.join(waits.plugins)}" if waits.plugins else ""
    if waits.place == "active":
        yield "in the active queue, for its turn"
    elif waits.place == "backoff":
        yield f"backing off until {end}{by}; earlier if no other pod is ready"
    elif waits.place == "unschedulable":
        yield f"for an event that helps{by}; retried anyway at {end}"
    elif waits.place == "gated":
        yield f"outside the queue until its gate opens: {waits.gate}"
    elif waits.place == "in flight":
        yield "for the outcome of an attempt that is under way"
    elif waits.place == "permit":
        yield f"for {', '.join(waits.plugins)}, with its resources reserved on {waits.reserved_on}, until {end} at most"
    elif waits.place == "answers":
        yield f"for answers to what was written for it, with its place reserved on {waits.reserved_on}, until {end} at most:"
        yield from (f"  {safe(what)}" for what in waits.awaited)
    elif waits.place == "incomplete member":
        yield f"for its group {waits.group}, which does not exist yet"
    elif waits.place == "pending member":
        yield f"for the attempt of its group {waits.group} to end, which is under way without it"
    else:
        yield f"as a {waits.place}"
    if waits.nominated_to:
        gone = (
            f", until {', '.join(waits.leaving)} {'is' if len(waits.leaving) == 1 else 'are'} gone"
            if waits.leaving
            else ""
        )
        yield f"nominated to {waits.nominated_to}, where room is kept for it{gone}"
    if waits.group and "member" not in waits.place:
        yield f"as a member of group {waits.group}, which is tried as a whole"
    if waits.attempts:
        yield f"{waits.attempts} attempt{'' if waits.attempts == 1 else 's'} so far"
    yield from waits.fallback


def _help(found: Why) -> Iterator[str]:
    yield ""
    yield from advice_lines(found)


def advice_lines(found: Why) -> Iterator[str]:
    """The nodes that would take it, and what would make others do."""
    if found.feasible:
        names = ", ".join(found.feasible[:5]) + (" …" if len(found.feasible) > 5 else "")
        when = "now" if not any(advice.gate for advice in found.help) else "once its gate is open"
        yield safe(f"feasible {when}: {len(found.feasible)} of {found.nodes} nodes: {names}")
    if found.help:
        yield f"what would help ({found.nodes} nodes):"
    for advice in found.help:
        yield from (safe(line) for line in help_lines(advice))
    if sum(advice.nodes for advice in found.help) > found.nodes:
        yield "  (every plugin is asked about every node; an attempt's message counts a node once, for the plugin that rejects it first)"


def help_lines(advice: Help) -> Iterator[str]:
    """Describe one plugin's objections, and what would remove them."""
    if advice.gate:
        yield f"  {advice.plugin} keeps it out of the queue: {advice.gate}"
        yield from (f"    - {text}" for text in advice.advice)
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in advice.reasons.items())
    alone = f"; {advice.only} of them by it alone" if advice.only != advice.nodes else ""
    yield f"  {advice.plugin} rejects {advice.nodes} node{'' if advice.nodes == 1 else 's'}{alone}: {reasons}"
    yield from (f"    - {text}" for text in advice.advice)
    if advice.also:
        yield f"    not enough by itself: these nodes are rejected by {', '.join(advice.also)} as well"


def _nodes(by_node: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield ""
    rows = [
        (node, plugin, reason)
        for node, reasons in by_node.items()
        for plugin, reason in (reasons.items() if reasons else [("", "feasible")])
    ]
    yield table(["NODE", "PLUGIN", "REASON"], rows)


# --- the choice ---------------------------------------------------------------------------------------------------------


def _number(found: Why, attempt: int) -> int:
    """The number that the story gives to an attempt of the log."""
    return next((entry.number for entry in found.story.entries if entry.attempt == attempt), attempt)


def _choice(choice: NodeChoice, number: int) -> Iterator[str]:
    yield ""
    tied = f"; {choice.tied} nodes were equally good: {choice.tie_rule}" if choice.tied > 1 else ""
    yield safe(
        f"why {choice.node} (attempt {number}, record {choice.seq}): {choice.feasible} of {choice.nodes} nodes were feasible{tied}"
    )
    if choice.note:
        yield safe(f"  {choice.note}")
    if choice.rejected:
        told = ", ".join(f"{plugin} {count}" for plugin, count in choice.rejected.items())
        yield safe(f"  nodes ruled out by: {told}")
    if choice.scores:
        columns = ["NODE", "TOTAL", *(f"{p} ×{w}" for p, w in choice.weights.items())]
        rows = [
            (row.node, row.total, *(row.plugins[plugin].weighted for plugin in choice.weights))
            for row in choice.scores
        ]
        yield from (f"  {line}" for line in table(columns, rows).splitlines())


# --- the story ----------------------------------------------------------------------------------------------------------


def _story(found: Why) -> Iterator[str]:
    if not found.story.entries:
        return  # Of a pod whose records were dropped.
    yield ""
    yield "what happened:"
    rows: list[Sequence[object]] = []
    for entry in found.story.entries:
        rows.append((entry.seq, moment(entry.at), _attempt(entry) + entry.text))
        rows += [("", "", line) for line in _details(entry)]
    width = max((len(str(row[0])) for row in rows), default=0)
    for seq, at, text in rows:
        yield safe(f"  {seq!s:>{width}}  {at!s:<24}  {text}").rstrip()


def _attempt(entry: StoryEntry) -> str:
    if not entry.number:
        return ""
    if entry.count == 1:
        return f"attempt {entry.number}: "
    return f"attempts {entry.number} to {entry.number + entry.count - 1}: "


def _details(entry: StoryEntry) -> Iterator[str]:
    for rejected in entry.rejections:
        nodes = f" on {rejected.nodes} of {entry.nodes} nodes" if entry.nodes else ""
        yield f"  {rejected.plugin}: {rejected.reason}{nodes}"
    yield from (f"  {note}" for note in entry.notes)
    if entry.count > 1:
        again = entry.count - 1
        spent = age(max(entry.last_at - entry.at, 0))
        yield f"  the same {again} more time{'' if again == 1 else 's'} within {spent}, last in record {entry.last_seq}"
        if entry.woken_by:
            woken = ", ".join(f"{name} ×{count}" for name, count in entry.woken_by.items())
            yield f"  woken in between by {woken}"


# --- why-not ------------------------------------------------------------------------------------------------------------


def why_not_lines(found: WhyNot) -> Iterator[str]:
    """The verdicts, and the points of a feasible node."""
    when = "when it was placed" if found.attempt else f"after record {found.seq}"
    answer = "feasible" if found.feasible else "infeasible"
    yield safe(f"node {found.node} for pod {found.pod}, {when}: {answer}")
    yield table(
        ["PLUGIN", "VERDICT", "REASON"],
        [
            (v.plugin, v.verdict, v.reason + (" (preemption cannot help)" if _is_final(v.code) else ""))
            for v in found.verdicts
        ],
    )
    for advice in found.help:
        yield from (safe(f"{advice.plugin}: {text}") for text in advice.advice)
    if found.score:
        yield ""
        placed = found.winner_node == found.node
        yield safe(
            f"it was chosen, with {sum(found.score.values())} points"
            if placed
            else f"points beside {found.winner_node}, which {'was chosen' if found.placed_on else 'has most'}:"
        )
        rows = [(plugin, points, found.winner.get(plugin, 0)) for plugin, points in found.score.items()]
        rows.append(("total", sum(found.score.values()), sum(found.winner.values())))
        yield table(["PLUGIN", found.node, found.winner_node], rows)
    elif found.feasible and found.placed_on:
        yield safe(f"the only feasible node; the pod went to {found.placed_on}")
    if found.note:
        yield safe(found.note)


def _is_final(code: str) -> bool:
    return code == "UnschedulableAndUnresolvable"
