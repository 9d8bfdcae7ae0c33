"""Another scheduler's decision about a pod group, judged by our group cycle in the states that it may have been made in.

Placed: our cycle places the group, too, and where it has to be in one domain, theirs is among our best. Rejected: our cycle rejects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidelog.api.objects import Pod
from tidelog.eventlog.records import PlacementChosen, Unschedulable
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.replay.shadow.judge import BEST_MAX, ModeVerdict
from tidelog.replay.shadow.search import SearchView, Sought, first, is_pending
from tidelog.replay.shadow.world import ShadowStep, ShadowWorld
from tidelog.scheduler.groups.cycle import GroupOptions, GroupResult, run_group_cycle
from tidelog.scheduler.groups.group import Group, record_key
from tidelog.scheduler.pod_cycle import Stamp


class GroupJudge:
    """One cycle of a group. `placed`: uid → node of the members that were bound by it; empty: it was rejected."""

    def __init__(
        self,
        world: ShadowWorld,
        name: str,
        profile: str,
        at: int,
        placed: Mapping[str, str],
        told: Sequence[str] = (),
    ) -> None:
        """`told`: what the members of a rejected group were told."""
        self.world = world
        self.name = name
        self.profile = profile
        self.placed = placed
        self.told = told
        self.sought = Sought(frozenset(placed), at, self._is_over)
        self.other: ModeVerdict | None = None
        self.nodes: frozenset[str] = frozenset()
        """Of the placement that holds all of their nodes; empty if the group has the whole cluster, or none holds them."""
        self.steps: dict[str, list[str]] = {}
        """Member → why it found no node, by placement, where our cycle rejects the group."""

    def judge(self) -> tuple[ModeVerdict, ModeVerdict]:
        """In upstream mode, and in the default mode."""
        found = first(self.world, self.sought, self._look)
        if found is not None:
            return found
        self.world.refresh()
        default = self._in_view("default", SearchView(self.world.seq, self.sought.at, 0, 0))
        return self.other or ModeVerdict("differs", reason="the group had no pending members"), default

    def _is_over(self, step: ShadowStep) -> bool:
        """A member was created by this record, and it is one of those that were placed."""
        new = step.new
        return step.old is None and isinstance(new, Pod) and pod_uid(new) in self.placed

    def _look(self, view: SearchView) -> tuple[ModeVerdict, ModeVerdict] | None:
        found = self._in_view("upstream", view)
        if found.verdict == "agreed":
            nodes, steps = self.nodes, dict(self.steps)
            default = self._in_view("default", view)
            self.nodes, self.steps = nodes, steps
            return found, default
        self.other = self.other or found
        self.steps.clear()
        return None

    def _in_view(self, mode: str, view: SearchView) -> ModeVerdict:
        result = self._cycle(mode, view)
        if result is None:
            return ModeVerdict("differs", view, reason="the group had no pending members")
        body = result.outcomes[0][1]
        if isinstance(body, PlacementChosen):
            return (
                self._chosen(result, view)
                if self.placed
                else ModeVerdict("wouldPlace", view, best=(body.placement,))
            )
        text = body.message if isinstance(body, Unschedulable) else type(body).__name__
        if self.placed:
            return ModeVerdict("refused", view, reason=text)
        for evaluation in result.evaluations:
            for step in evaluation.steps:
                if not step.node:
                    self.steps.setdefault(step.pod.key, []).append(step.message)
        about_group = [one for one in self.told if is_about_group(one)]
        same = not about_group or any(text in one for one in about_group)
        return ModeVerdict("agreed", view, reason="" if same else f"in other words: {text}")

    def _chosen(self, result: GroupResult, view: SearchView) -> ModeVerdict:
        """The placement that holds all of their nodes must be among the best of ours."""
        nodes = set(self.placed.values())
        competing = [one for one in result.evaluations if one.is_feasible]
        top = max((one.score for one in competing), default=0.0)
        best = tuple(sorted(one.placement.name for one in competing if one.score == top))
        theirs = [one for one in competing if nodes <= set(one.placement.nodes)]
        if not theirs:
            return ModeVerdict(
                "refused", view, best=best[:BEST_MAX], reason="no feasible placement has all of the nodes"
            )
        self.nodes = frozenset(theirs[0].placement.nodes)
        gap = top - max(one.score for one in theirs)
        return ModeVerdict("gap" if gap else "agreed", view, gap=int(gap), best=best[:BEST_MAX])

    def _cycle(self, mode: str, view: SearchView) -> GroupResult | None:
        groups = self.world.cluster.groups
        rule = groups.rule(self.name)
        pending = [pod for pod in groups.members(self.name) if is_pending(pod) and not self._is_assumed(pod)]
        if rule is None or not pending:
            return None
        # They are told their nodes between decision and binding.
        members = [
            PodInfo(replace(pod, status=replace(pod.status, nominated_node_name=""))) for pod in pending
        ]
        # As kube-scheduler queues them. The sort is stable: equals stay in the order of their creation.
        members.sort(key=lambda member: -member.priority)
        group = Group(record_key(self.name), rule, members, self._placed(), groups.settings)
        configuration = self.world.configurations[mode]
        framework = self.world.frameworks[mode][self.profile]
        return run_group_cycle(
            framework, group, Stamp(1, view.seq, view.at, 0), options=GroupOptions.of(configuration)
        )

    def _is_assumed(self, pod: Pod) -> bool:
        return pod_uid(pod) in self.world.nominations.hidden

    def _placed(self) -> list[tuple[PodInfo, str]]:
        found = []
        for pod in self.world.cluster.groups.members(self.name):
            node = self.world.cluster.cache.node_of(pod_uid(pod))
            if node is not None:
                found.append((PodInfo(pod), node))
        return sorted(found, key=lambda placed: placed[0].key)


def is_about_group(message: str) -> bool:
    """Members are told about the group where nothing is to be said about themselves."""
    return message.startswith("pod group is unschedulable")
