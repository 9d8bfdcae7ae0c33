"""Pod groups: what Workload and PodGroup objects say, who is a member, and one group as an attempt sees it.

KEP-5732's Workload and kube-scheduler's PodGroup both become the same `Group`. `GroupTable` follows the objects and tells what the
queue has to know of a group each time that changes; a change costs the change of one pod, or the replicas of one workload.

A group's name here and in the queue:

    namespace/name                         a PodGroup
    namespace/workload/group               a group of a Workload
    namespace/workload/group/replica       one of its replicas, known as long as it has pods: each may land in a domain of its own

Its records are filed under `PodGroup/…` or `Workload/…` and that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    GroupPolicy,
    GroupSchedulingConstraints,
    Object,
    Pod,
    PodGroup,
    PodResourceClaim,
    PodSpec,
    Workload,
    WorkloadPodGroup,
)
from tidelog.api.pod_status import is_terminal
from tidelog.framework.interface import LevelConstraint
from tidelog.framework.node_info import PodInfo
from tidelog.queue.group_rules import QueuedGroupInfo


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a group, from its object."""

    object_key: str
    """The record key of that object."""
    is_gang: bool
    min_count: int = 0
    desired_count: int = 0
    constraints: tuple[LevelConstraint, ...] = ()
    claims: tuple[str, ...] = ()
    priority: int | None = None
    """None: its pods' own."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that matters to groups."""

    gates: FeatureGates = FeatureGates()
    desired_count_wait: int = 0
    """Nanoseconds."""


class Group:
    """One group in one attempt. Implements `tidelog.framework.interface.GroupInfo`."""

    __slots__ = ("claims", "constraints", "desired_count", "key", "members", "min_count", "placed", "rule")

    def __init__(
        self,
        key: str,
        rule: GroupRule,
        members: Sequence[PodInfo],
        placed: Sequence[tuple[PodInfo, str]] = (),
        settings: GroupSettings = GroupSettings(),  # noqa: B008
    ) -> None:
        self.key = key
        """Its record key."""
        self.rule = rule
        self.members: Sequence[PodInfo] = members
        self.placed: Sequence[tuple[PodInfo, str]] = placed
        self.min_count = rule.min_count
        gates = settings.gates
        self.desired_count = rule.desired_count if gates.workload_basic_policy_desired_count else 0
        self.constraints: Sequence[LevelConstraint] = (
            rule.constraints if gates.topology_aware_workload_scheduling else ()
        )
        self.claims: Sequence[str] = rule.claims

    @property
    def quorum(self) -> int:
        """With fewer members placed the group is not placed at all."""
        return self.min_count if self.rule.is_gang else 1

    @property
    def name(self) -> str:
        """As messages call it."""
        return self.key.partition("/")[2]


def group_name(pod: Pod) -> str:
    """The name of the pod's group; empty if it is in none."""
    spec = pod.spec
    group, reference = spec.scheduling_group, spec.workload_ref
    if group is None and reference is None:
        return ""  # Nearly all pods.
    namespace = pod.metadata.namespace
    if group is not None:
        return f"{namespace}/{group.pod_group_name}"
    assert reference is not None
    replica = f"/{reference.pod_group_replica_key}" if reference.pod_group_replica_key else ""
    return f"{namespace}/{reference.name}/{reference.pod_group}{replica}"


def record_key(name: str) -> str:
    """Under which key the records about a group of this name are filed."""
    return f"PodGroup/{name}" if name.count("/") == 1 else f"Workload/{name}"


def group_record_key(pod: Pod) -> str:
    """The record key of the pod's group; empty if it is in none."""
    name = group_name(pod)
    return record_key(name) if name else ""


def is_group_key(key: str) -> bool:
    """Whether a record's key is that of a group."""
    return key.startswith(("PodGroup/", "Workload/"))


def rules_of(obj: Object | None) -> dict[str, GroupRule]:
    """The groups that an object defines, by name without replica."""
    if isinstance(obj, PodGroup):
        meta, spec = obj.metadata, obj.spec
        name = f"{meta.namespace}/{meta.name}"
        policy = spec.scheduling_policy or spec.policy
        return {
            name: _rule(
                f"PodGroup/{name}", policy, spec.scheduling_constraints, spec.resource_claims, spec.priority
            )
        }
    if isinstance(obj, Workload):
        return dict(map(_workload_rule(obj), obj.spec.pod_groups))
    return {}


def _workload_rule(workload: Workload) -> Callable[[WorkloadPodGroup], tuple[str, GroupRule]]:
    place = f"{workload.metadata.namespace}/{workload.metadata.name}"

    def rule(group: WorkloadPodGroup) -> tuple[str, GroupRule]:
        policy = group.scheduling_policy or group.policy
        return f"{place}/{group.name}", _rule(
            f"Workload/{place}", policy, group.scheduling_constraints, group.resource_claims, group.priority
        )

    return rule


def _rule(
    object_key: str,
    policy: GroupPolicy | None,
    constraints: GroupSchedulingConstraints | None,
    claims: Iterable[PodResourceClaim],
    priority: int | None,
) -> GroupRule:
    gang = None if policy is None else policy.gang
    basic = None if policy is None else policy.basic
    desired = gang.desired_count if gang is not None else basic.desired_count if basic is not None else None
    return GroupRule(
        object_key=object_key,
        is_gang=gang is not None,
        min_count=gang.min_count if gang is not None else 0,
        desired_count=desired or 0,
        constraints=tuple(_levels(constraints)),
        claims=tuple(claim.resource_claim_name for claim in claims if claim.resource_claim_name),
        priority=priority,
    )


def _levels(constraints: GroupSchedulingConstraints | None) -> Iterator[LevelConstraint]:
    """Both spellings, the widest level first, as they are written."""
    if constraints is not None:
        for one in (*constraints.topology_constraints, *constraints.topology):
            yield LevelConstraint(one.level or one.key, one.preferred)


def _definition(name: str) -> str:
    """Where a group's rule is found: a replica's is that of its workload's group."""
    return name if name.count("/") < 3 else "/".join(name.split("/", 3)[:3])


class GroupTable:
    """The groups that there are, and their members, as the objects tell."""

    def __init__(self) -> None:
        self.settings = GroupSettings()
        self._rules: dict[str, GroupRule] = {}
        self._members: dict[str, dict[str, Pod]] = {}
        """Group → its pods that have not ended, by key, in the order of creation; no entry without pods."""
        self._placed: dict[str, int] = {}
        """Group → how many of its pods have a node."""
        self._replicas: dict[str, dict[str, None]] = {}
        """Group of a workload → those of its replicas that have pods."""

    # --- following the objects ----------------------------------------------------------------------------------------

    def change(self, old: Object | None, new: Object | None) -> list[str]:
        """An object has a new version, or is gone; the names of the groups whose `info` may have changed."""
        if isinstance(old, Pod) or isinstance(new, Pod):
            before = group_name(old) if isinstance(old, Pod) else ""
            after = group_name(new) if isinstance(new, Pod) else ""
            return self._change_pod(_living(old), before, _living(new), after) if before or after else []
        rules_before, rules_after = rules_of(old), rules_of(new)
        if rules_before == rules_after:
            return []
        for name in rules_before:
            self._rules.pop(name, None)
        self._rules.update(rules_after)
        touched: dict[str, None] = {}
        for name in (*rules_before, *rules_after):
            touched[name] = None
            touched.update(self._replicas.get(name, {}))
        return list(touched)

    def _change_pod(self, old: Pod | None, before: str, new: Pod | None, after: str) -> list[str]:
        """`before` and `after` are the names of the groups of the two."""
        if before == after and old is not None and new is not None:
            self._members[after][_name(new)] = new
            if old.spec.node_name == new.spec.node_name and old.spec.priority == new.spec.priority:
                return []
            self._placed[after] += bool(new.spec.node_name) - bool(old.spec.node_name)
            return [after]
        touched: dict[str, None] = {}
        if before and old is not None:
            self._leave(before, old)
            touched[before] = None
        if after and new is not None:
            # The first makes a replica known, and may give the group its priority; one with a node is counted.
            if after not in self._members or new.spec.node_name:
                touched[after] = None
            self._enter(after, new)
        return list(touched)

    def _enter(self, name: str, pod: Pod) -> None:
        self._members.setdefault(name, {})[_name(pod)] = pod
        self._placed[name] = self._placed.get(name, 0) + bool(pod.spec.node_name)
        if (definition := _definition(name)) != name:
            self._replicas.setdefault(definition, {})[name] = None

    def _leave(self, name: str, pod: Pod) -> None:
        members = self._members[name]
        del members[_name(pod)]
        self._placed[name] -= bool(pod.spec.node_name)
        if members:
            return
        del self._members[name], self._placed[name]
        if (definition := _definition(name)) != name:
            replicas = self._replicas[definition]
            del replicas[name]
            if not replicas:
                del self._replicas[definition]

    # --- asking ---------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every group that there is, sorted."""
        found = dict.fromkeys((*self._rules, *self._members))
        return sorted(name for name in found if self.rule(name) is not None)

    def rule(self, name: str) -> GroupRule | None:
        """Return the rules of the group; None without an object."""
        return self._rules.get(_definition(name))

    def members(self, name: str) -> Sequence[Pod]:
        """Its pods that have not ended, with a node or without, in the order of creation."""
        return tuple(self._members.get(name, {}).values())

    def _known(self, name: str) -> GroupRule | None:
        """The rules of a group that an object defines, and of which there is a pod if it is a replica."""
        definition = _definition(name)
        return self._rules.get(definition) if name in self._members or definition == name else None

    def __contains__(self, name: str) -> bool:
        return self._known(name) is not None

    def info(self, name: str) -> QueuedGroupInfo | None:
        """Return the rules as the queue needs them; None if there is no group: no object, or no pod of that replica."""
        rule = self._known(name)
        if rule is None:
            return None
        settings = self.settings
        desired = rule.desired_count if settings.gates.workload_basic_policy_desired_count else 0
        return QueuedGroupInfo(
            key=name,
            priority=self.priority(name, rule),
            min_count=rule.min_count,
            desired_count=desired,
            desired_count_wait=settings.desired_count_wait if desired else 0,
            placed=self._placed.get(name, 0),
        )

    def priority(self, name: str, rule: GroupRule) -> int:
        """The group's own, or else that of its first pod."""
        if rule.priority is not None:
            return rule.priority
        first = next(iter(self._members.get(name, {}).values()), None)
        return 0 if first is None else first.spec.priority or 0

    def gang_of(self, pod: Pod) -> tuple[int, int] | None:
        """How many members the pod's gang needs, and how many are known; None if it is in no known group, or in no gang."""
        name = group_name(pod)
        rule = self.rule(name) if name else None
        if rule is None or not rule.is_gang:
            return None
        return rule.min_count, len(self._members.get(name, {}))

    def levels_of(self, pod: Pod) -> Sequence[LevelConstraint]:
        """The topology levels that the pod's group asks for; none if it is in no known group."""
        name = group_name(pod)
        rule = self.rule(name) if name else None
        return () if rule is None else rule.constraints


def _living(obj: Object | None) -> Pod | None:
    return obj if isinstance(obj, Pod) and not is_terminal(obj) else None


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def misfits(priority: int, pods: Iterable[Pod]) -> str:
    """Why pods that differ so cannot be tried as one group; empty if they can."""
    first: Pod | None = None
    for pod in pods:
        spec = pod.spec
        if (spec.priority or 0) != priority:
            what, found, wanted = (
                "priority as the pod group's priority",
                str(spec.priority or 0),
                str(priority),
            )
        elif first is not None and spec.scheduler_name != first.spec.scheduler_name:
            what, found, wanted = ".spec.schedulerName", first.spec.scheduler_name, spec.scheduler_name
        elif first is not None and _policy(spec) != _policy(first.spec):
            what, found, wanted = "preemption policy", _policy(first.spec), _policy(spec)
        else:
            first = pod
            continue
        return f"all pods in a single pod group should have the same {what}, got {found} and {wanted}"
    return ""


def _policy(spec: PodSpec) -> str:
    return spec.preemption_policy or "PreemptLowerPriority"
