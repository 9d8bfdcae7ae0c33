"""Deliberate bugs: each a context manager that breaks one rule of the real code, for the proof that the simulation would see it.

    with BUGS["forget to assume"]():
        simulate(make_story(seed))          # fails, for some seed below 500

A bug is as small as it can be, and of the kind that a good engineer makes: one line left out, one comparison wrong, one case forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tests.simulation.bug import Bug, Place, broken
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod
from tidelog.daemon.intake import facts
from tidelog.daemon.intake.messages import Refused
from tidelog.daemon.process.runtime import Runtime
from tidelog.eventlog import log as eventlog
from tidelog.eventlog.records import SchedulerStarted, Unschedulable
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.events import Hint, Resource
from tidelog.framework.framework import Framework
from tidelog.plugins.default_preemption.dry_run import _Trial
from tidelog.plugins.default_preemption.plugin import TERMINATING, DefaultPreemption
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.plugins.placement.topology import TopologyPlacement
from tidelog.plugins.pod_topology_spread.constraints import SpreadRules
from tidelog.plugins.pod_topology_spread.fallback import FallbackRules
from tidelog.queue import state as queue_state
from tidelog.queue.in_flight import InFlight
from tidelog.queue.nominator import Nominator
from tidelog.queue.scheduling_queue import SchedulingQueue, empty_queue
from tidelog.scheduler.adoption import Adoption
from tidelog.scheduler.cache import Cache
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.fast import FastEvaluation
from tidelog.scheduler.groups.cycle import GroupOptions
from tidelog.scheduler.groups.group import Group


def _bug(*places: Place) -> Bug:
    """Owner, name, and what makes the broken function of the right one, for each place of the code that is broken."""
    return lambda: broken(*places)


def _nothing(*_: Any, **__: Any) -> None:
    """Whatever it was, it is forgotten."""


# --- the queue ------------------------------------------------------------------------------------------------------------


def _abort_without_requeue(right: Any) -> Any:
    def abort(self: SchedulingQueue, uid: str, now: int) -> None:
        self.in_flight.end(uid)

    return abort


def _record_without_nodes(right: Any) -> Any:
    def record(self: InFlight, seq: int, event: Any, old: Any, new: Any) -> None:
        if event.resource is not Resource.NODE:
            right(self, seq, event, old, new)

    return record


def _sleepy_hint(right: Any) -> Any:
    def hint(self: NodeResourcesFit, waiting: Any, old: Any, new: Any) -> Hint:
        return Hint.SKIP if new is None else right(self, waiting, old, new)

    return hint


def _dump_without_nominations(right: Any) -> Any:
    def dump(*parts: Any) -> Any:
        return right(*(Nominator() if isinstance(part, Nominator) else part for part in parts))

    return dump


# --- the core -------------------------------------------------------------------------------------------------------------


def _believe_less(right: Any) -> Any:
    """Adopting does something that the outcome does not tell."""

    def attempt(self: Core, *moment: Any) -> Any:
        decision = right(self, *moment)
        if decision is not None and isinstance(decision.outcomes[0][1], Unschedulable):
            pod = self.cluster.pod(decision.key)
            nodes = self.cluster.cache.node_names()
            if pod is not None and nodes and self.queue is not None:
                self.queue.nominator.nominate(pod, nodes[0])
        return decision

    return attempt


def _keep_first_epoch(right: Any) -> Any:
    def consume(self: Core, record: Any, body: Any) -> None:
        epoch = self.epoch
        right(self, record, body)
        if isinstance(body, SchedulerStarted) and epoch:
            self.epoch = epoch

    return consume


_SALTS = itertools.count()


def _salted(right: Any, at: int) -> Any:
    """As an order of hashes would be: the same within a process, another one in the next. `at`: which argument is the turn."""

    def choose(self: Any, *args: Any) -> Any:
        salt = self.__dict__.setdefault("_salt", next(_SALTS))
        return right(self, *args[:at], args[at] + salt, *args[at + 1 :])

    return choose


def _forget_last_binding(right: Any) -> Any:
    """A scheduler that comes back does not know of the newest binding."""

    def init(self: Runtime, log: Any, core: Core, *more: Any, **named: Any) -> None:
        right(self, log, core, *more, **named)
        bound = [o for o in core.objects.values() if isinstance(o, Pod) and o.spec.node_name]
        if bound and not core.in_flight:
            pod = bound[-1]
            core.cluster.change(object_key(pod), None)
            core.cluster.change(object_key(pod), replace(pod, spec=replace(pod.spec, node_name="")))

    return init


def _gone_when_terminating(right: Any) -> Any:
    """Who terminates takes no room any more."""

    def put_pod(self: Cache, pod: Any) -> None:
        if pod.terminating:
            self.remove_pod(pod.uid)
        else:
            right(self, pod)

    return put_pod


def _smaller_quorum(right: Any) -> Any:
    return property(lambda group: max(right.fget(group) - 1, 1))


def _come_back_empty(right: Any) -> Any:
    """A node that was gone comes back without the pods that are still on it."""

    def put_node(self: Cache, node: Any) -> None:
        self._aside.pop(node.metadata.name, None)
        right(self, node)

    return put_node


def _release_in_silence(right: Any) -> Any:
    """Nobody is told that room is free again which an attempt had taken."""

    def release(self: Cluster, uid: str, key: str) -> None:
        queue, self.queue = self.queue, empty_queue()
        right(self, uid, key)
        self.queue = queue

    return release


def _always_in_part(right: Any) -> Any:
    """Of a basic group that asks for a level as many are placed as fit."""
    return lambda configuration: right(configuration)._replace(partial_always=True)


# --- the plugins ------------------------------------------------------------------------------------------------------------


def _one_more_skew(right: Any) -> Any:
    def compiled(self: SpreadRules, constraint: Any, kin: Any, pod: Any) -> Any:
        found = right(self, constraint, kin, pod)
        return found._replace(max_skew=found.max_skew + 1)

    return compiled


def _half_the_timeout(right: Any) -> Any:
    def timeout_at(self: FallbackRules, standing: Any) -> int | None:
        due = right(self, standing)
        return None if due is None or self.timeout is None else due - self.timeout // 2

    return timeout_at


def _generous(right: Any) -> Any:
    return lambda self, budget: right(self, budget) + 1


def _uncharged(right: Any) -> Any:
    """Only what the status says counts, not what was decided since."""

    def stated(self: Allowances, budget: Any, key: str) -> int:
        found: int = budget.status.disruptions_allowed
        return found

    return stated


def _impatient(right: Any) -> Any:
    """Who waits for his victims' end makes others go, too."""

    def eligibility(self: DefaultPreemption, *of: Any) -> Any:
        status = right(self, *of)
        return None if status is not None and TERMINATING in status.message else status

    return eligibility


# --- the shell --------------------------------------------------------------------------------------------------------------


async def _never(*_: Any) -> None:
    return None


def _copied(right: Any) -> Any:
    """Nothing is ever found to be unchanged."""

    def admit(new: Any, old: Any, *more: Any, **named: Any) -> Any:
        admitted, warnings = right(new, old, *more, **named)
        return replace(admitted), warnings

    return admit


def _one_record_for_all(right: Any) -> Any:
    """The answer names the first record of a request for all its objects."""

    def answer(self: facts._Decision, dry_run: bool) -> Any:
        found = right(self, dry_run)
        results = [replace(r, seq=self._head + 1) if r.seq else r for r in found.results]
        return replace(found, results=tuple(results))

    return answer


def _in_part(right: Any) -> Any:
    """Of a request of which something is refused the rest is done."""

    def make(self: facts._Decision, moment: Any) -> Iterator[Any]:
        try:
            yield from right(self, moment)
        except Refused:
            if not self._drafted:
                raise

    return make


def _answer_first(right: Any) -> Any:
    """Clients are answered before the store has written anything. Not the runtime itself, which would stumble over it at its start."""

    async def add(self: Any, request: Any) -> None:
        await right(self, request)
        for answered, records in self._answers:
            is_fact = all(record.kind in ("ObjectPut", "ObjectDeleted") for record in records)
            if answered is request and is_fact and not request.done.done():
                request.done.set_result(records)

    return add


BUGS: dict[str, Bug] = {
    "forget Done": _bug((SchedulingQueue, "done", lambda _: _nothing)),
    "lose the requeue after an abort": _bug((SchedulingQueue, "abort", _abort_without_requeue)),
    "drop in-flight events of nodes": _bug((InFlight, "record", _record_without_nodes)),
    "a hint that sleeps": _bug((NodeResourcesFit, "_other_pod_changed", _sleepy_hint)),
    "forget the nominations in snapshots": _bug((queue_state, "dumping", _dump_without_nominations)),
    "ignore the commit check": _bug((Core, "conflict", lambda _: _nothing)),
    "forget to assume": _bug((Adoption, "_assume", lambda _: _nothing)),
    "adopt what the outcome does not tell": _bug((Core, "attempt", _believe_less)),
    "keep the epoch of the first start": _bug((Core, "_consume", _keep_first_epoch)),
    "break ties by the order of hashes": _bug((Framework, "select", lambda right: _salted(right, 1)), (FastEvaluation, "_choose", lambda right: _salted(right, 2))),
    "bind again after a restart": _bug((Runtime, "__init__", _forget_last_binding)),
    "count who terminates as gone": _bug((Cache, "put_pod", _gone_when_terminating)),
    "bind half a gang": _bug((Group, "quorum", _smaller_quorum)),
    "leave a group's level": _bug((TopologyPlacement, "generate", lambda _: lambda self, state, group, parents: (parents, None))),
    "allow one more skew": _bug((SpreadRules, "_compiled", _one_more_skew)),
    "fall back too early": _bug((FallbackRules, "_timeout_at", _half_the_timeout)),
    "evict past the budget": _bug((Allowances, "left", _generous)),
    "forget what budgets were charged": _bug((Allowances, "_stated", _uncharged)),
    "forget who was asked to go": _bug((Adoption, "_evict", lambda _: _nothing)),
    "forget the tick": _bug((Runtime, "_tick", lambda _: _never)),
    "append what changes nothing": _bug((facts, "admit", _copied)),
    "answer before the commit": _bug((eventlog._Group, "add", _answer_first)),
    "forget who is on a node that comes back": _bug((Cache, "put_node", _come_back_empty)),
    "free room in silence": _bug((Cluster, "release", _release_in_silence)),
    "place a group in part that asks for a level": _bug((GroupOptions, "of", _always_in_part)),
    "evict more than is needed": _bug((_Trial, "spares", lambda _: lambda self, pod: False)),
    "evict again while others go already": _bug((DefaultPreemption, "eligibility", _impatient)),
    "answer with one record for all": _bug((facts._Decision, "answer", _one_record_for_all)),
    "do what is good of a refused request": _bug((facts._Decision, "make", _in_part)),
}  # fmt: skip
