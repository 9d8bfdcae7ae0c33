"""Groups in the state machine: which attempts of groups are under way, and what their outcomes do when they come back from the log.

The core (`tidelog.scheduler.core`) pops, adopts and consumes; what is different for a group than for a pod is here:

- one attempt is about many pods: it is over, and the queue told so, when the last of them has its outcome (`leave`);
- `PlacementChosen` binds all members by one record, so that no reader ever sees a part of a group bound;
- one `Unschedulable` or `AttemptError` under the group's key is about all members;
- a claim that is allocated counts for later attempts before it is in the log, as an assumed pod does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tidelog.api.objects import AllocationResult, Pod, PodGroup, ResourceClaim
from tidelog.api.pod_status import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    allocated,
    bound_to,
    rejected,
    with_group_condition,
)
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Body,
    PlacementChosen,
    Unschedulable,
)
from tidelog.framework.framework import Framework
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import QueuedPod, pod_uid
from tidelog.queue.groups import GroupStatus
from tidelog.queue.scheduling_queue import QueueRejection
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.commit_check import given_back
from tidelog.scheduler.groups.cycle import GroupOptions, GroupResult, group_error, run_group_cycle
from tidelog.scheduler.groups.group import Group, misfits, record_key
from tidelog.scheduler.pod_cycle import Stamp


class GroupFlight(msgspec.Struct):
    """An attempt whose outcomes are not all in the log yet."""

    name: str
    status: GroupStatus = "success"
    failed: dict[str, QueueRejection] = {}
    """Members, by uid, that got no node."""


class GroupFlights:
    """The groups' attempts that are under way. All follows from outcomes: nothing here needs to be stored."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.under_way: dict[int, GroupFlight] = {}
        """By the attempt's number."""

    # --- deciding -----------------------------------------------------------------------------------------------------

    def decide(
        self,
        name: str,
        popped: Sequence[QueuedPod],
        frameworks: Mapping[str, Framework],
        stamp: Stamp,
        options: GroupOptions,
    ) -> GroupResult:
        """Decide the group with these members. The snapshot must be fresh; nothing is changed."""
        groups = self._cluster.groups
        rule = groups.rule(name)
        assert rule is not None, f"group {name} is in the queue, but has no object"
        group = Group(
            record_key(name),
            rule,
            [PodInfo(member.pod) for member in popped],
            self._placed(name, {member.uid for member in popped}),
            groups.settings,
        )
        pods = [*(pod.pod for pod in group.members), *(pod.pod for pod, _ in group.placed)]
        problem = misfits(groups.priority(name, rule), pods)
        if problem:
            return group_error(group, stamp, problem)
        framework = frameworks[group.members[0].pod.spec.scheduler_name]
        waiting = {member.uid: member for member in popped}
        return run_group_cycle(framework, group, stamp, waiting=waiting, options=options)

    def _placed(self, name: str, popped: set[str]) -> list[tuple[PodInfo, str]]:
        """The members that have a node, bound or waiting for their permit, by name."""
        found: list[tuple[PodInfo, str]] = []
        for pod in self._cluster.groups.members(name):
            uid = pod_uid(pod)
            node = self._cluster.cache.node_of(uid)
            if node is not None and uid not in popped:
                found.append((self._cluster.cache.pod(uid) or PodInfo(pod), node))
        return sorted(found, key=lambda placed: placed[0].key)

    # --- adopting -----------------------------------------------------------------------------------------------------

    def adopt(self, attempt: int, outcomes: Sequence[tuple[str, Body]]) -> Iterator[tuple[str, str]]:
        """The attempt counts from now on; (key, node) of the pods that are to be assumed besides those that have an outcome each."""
        key, body = outcomes[0]
        self.under_way[attempt] = GroupFlight(key.partition("/")[2])
        if isinstance(body, PlacementChosen | AttemptAborted):
            for claim, result in body.claims.items():
                self._allocate(claim, result, key)
        if isinstance(body, AttemptAborted):
            yield from body.assignment.items()

    def members(self, attempt: int) -> list[str]:
        """The uids of all pods that the attempt is about."""
        group = self._cluster.queue.get_group(self.under_way[attempt].name)
        assert group is not None
        return [member.uid for member in group.popped]

    def _allocate(self, key: str, result: AllocationResult, group: str) -> None:
        """Plugins see the claim's devices taken; the claim itself changes when the record is in the log."""
        claim = self._cluster.objects.get(key)
        if isinstance(claim, ResourceClaim):
            self._cluster.listers.put(allocated(claim, result, group))

    # --- consuming ----------------------------------------------------------------------------------------------------

    def chosen(self, key: str, body: PlacementChosen) -> None:
        """Bind all, at once."""
        cluster, at = self._cluster, self._cluster.at
        for claim_key, result in body.claims.items():
            claim = cluster.objects.get(claim_key)
            if isinstance(claim, ResourceClaim):
                cluster.keep_promise(claim_key, allocated(claim, result, key))
        waiting = frozenset(body.waiting)
        for pod_key, node in body.assignment.items():
            pod = cluster.pod(pod_key)
            if pod is not None and pod_key not in waiting:
                cluster.bind(pod_key, pod, bound_to(pod, node, at))
        self._set_condition(key, "True", "Scheduled", "")

    def rejected(self, key: str, body: Unschedulable) -> list[str]:
        """The whole group is; the uids of its members."""
        flight = self.under_way[body.attempt]
        flight.status = "unschedulable"
        self._set_condition(key, "False", UNSCHEDULABLE, body.message)
        rejection = QueueRejection(unschedulable=body.plugins, pending=body.pending)
        return self._fail_all(body.attempt, body.message, UNSCHEDULABLE, rejection)

    def errored(self, key: str, body: AttemptError) -> list[str]:
        """The whole group's attempt failed; the uids of its members."""
        self.under_way[body.attempt].status = "error"
        self._set_condition(key, "False", SCHEDULER_ERROR, body.message)
        return self._fail_all(body.attempt, body.message, SCHEDULER_ERROR, QueueRejection())

    def _fail_all(self, attempt: int, message: str, reason: str, rejection: QueueRejection) -> list[str]:
        flight, uids = self.under_way[attempt], self.members(attempt)
        for uid, pod in zip(uids, self._pods(attempt), strict=True):
            if pod is not None:
                changed = rejected(pod, message, self._cluster.at, reason=reason)
                self._cluster.change(f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", changed)
            flight.failed[uid] = rejection
        return uids

    def _pods(self, attempt: int) -> list[Pod | None]:
        group = self._cluster.queue.get_group(self.under_way[attempt].name)
        assert group is not None
        return [self._cluster.pod(f"Pod/{member.key}") for member in group.popped]

    def left_over(self, attempt: int, uid: str, body: Unschedulable) -> None:
        """A member for which there was no room while others were placed."""
        rejection = QueueRejection(unschedulable=body.plugins, pending=body.pending)
        self.under_way[attempt].failed[uid] = rejection

    def finish(self, attempt: int) -> None:
        """Every member has its outcome."""
        flight = self.under_way.pop(attempt)
        self._cluster.queue.finish_group(flight.name, flight.status, flight.failed, now=self._cluster.at)

    def aborted(self, key: str, body: AttemptAborted) -> list[tuple[str, str]]:
        """The attempt does not count; (uid, key) of its members, whose places are to be given up before `put_back`."""
        for claim in body.claims:
            obj = self._cluster.objects.get(claim)
            if obj is not None:
                self._cluster.listers.put(obj)
            # Later attempts saw the claim with these devices.
            self._cluster.notes.append(given_back(self._cluster.seq, claim))
        group = self._cluster.queue.get_group(key.partition("/")[2])
        assert group is not None
        return [(member.uid, f"Pod/{member.key}") for member in group.popped]

    def put_back(self, attempt: int) -> None:
        """Try the group again."""
        flight = self.under_way.pop(attempt, None)
        if flight is not None:
            self._cluster.queue.abort_group(flight.name, self._cluster.at)

    def _set_condition(self, key: str, status: str, reason: str, message: str) -> None:
        group = self._cluster.objects.get(key)
        if isinstance(group, PodGroup):
            changed = with_group_condition(group, status, reason, message, self._cluster.at)
            if changed is not group:
                self._cluster.restate(key, changed)
