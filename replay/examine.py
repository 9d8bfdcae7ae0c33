"""Ask every plugin about a pod and the nodes at one moment: the matrix behind an attempt, computed again.

An attempt stops at the first plugin that rejects a node, because that is all it needs. An examination asks each plugin alone, so that the
answer is complete: also the second and the third reason why a node does not do. It looks at the snapshot and changes nothing.

Costs plugins × nodes calls for all nodes, a few milliseconds at 1,000 nodes; one node costs PreFilter, which looks at the whole cluster,
and one call a plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from tidelog.api.errors import TidelogError
from tidelog.api.objects import Pod
from tidelog.framework.events import WaitingPod
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Code, CycleState, PreFilterResult, Status, unresolvable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.results import NodeScores
from tidelog.scheduler.core import Core

T = TypeVar("T")


class Examination:
    """One pod, all nodes, every plugin. Valid as long as the framework's snapshot is not refreshed."""

    def __init__(
        self, framework: Framework, pod: PodInfo, at: int = 0, waiting: WaitingPod | None = None
    ) -> None:
        self.framework = framework
        self.pod = pod
        self.state = CycleState(at, waiting)
        self.skipped: set[str] = set()
        """Plugins that have nothing to say about such a pod."""
        self.rejected: dict[str, Status] = {}
        """Plugins that rejected the pod, or failed, before any node was looked at."""
        self.narrowed: dict[str, frozenset[str]] = {}
        """Plugins that named the only nodes that can do."""
        self.state.skip_filter = self.skipped
        for plugin in framework.pre_filter:
            result = _asked(lambda plugin=plugin: plugin.pre_filter(self.state, pod, self.nodes))  # type: ignore[misc]
            if isinstance(result, Status):
                self.rejected[plugin.name] = result.by(plugin.name)
            else:
                self._heard(plugin.name, result)

    def _heard(self, name: str, result: PreFilterResult) -> None:
        status = result.status
        if status is not None and status.code is Code.SKIP:
            self.skipped.add(name)
        elif status is not None and status.code is not Code.SUCCESS:
            self.rejected[name] = status.by(name)
        elif result.nodes is not None:
            self.narrowed[name] = result.nodes

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """All nodes, in the snapshot's order."""
        return self.framework.snapshot.nodes

    def plugins(self) -> list[str]:
        """Every plugin that can have a say, by name, in the order in which they are asked."""
        filters = [plugin.name for plugin in self.framework.filter]
        return [*(p.name for p in self.framework.pre_filter if p.name not in filters), *filters]

    def verdicts(self, node: NodeInfo) -> dict[str, Status | None]:
        """Plugin → why it does not let the pod on the node, or None; plugins with nothing to say are left out."""
        found: dict[str, Status | None] = {}
        filters = {plugin.name: plugin for plugin in self.framework.filter}
        for name in self.plugins():
            if name in self.skipped:
                continue
            if name in self.rejected:
                found[name] = self.rejected[name]
            elif name in self.narrowed and node.name not in self.narrowed[name]:
                found[name] = unresolvable(f"node(s) didn't satisfy plugin {name}").by(name)
            elif name in filters:
                found[name] = self.framework.run_filters(self.state, self.pod, node, [filters[name]])
            else:
                found[name] = None
        return found

    def rejections(self, node: NodeInfo) -> list[Status]:
        """Every plugin's reason against the node, in order; none if it is feasible."""
        return [status for status in self.verdicts(node).values() if status is not None]

    @cached_property
    def by_node(self) -> dict[str, list[Status]]:
        """Node → every reason against it, for all nodes."""
        return {node.name: self.rejections(node) for node in self.nodes}

    @cached_property
    def feasible(self) -> list[NodeInfo]:
        """The nodes that nobody rejects."""
        return [node for node in self.nodes if not self.by_node[node.name]]

    def blamed(self) -> list[str]:
        """Every plugin that rejects some node, the one that rejects most first."""
        counts: dict[str, int] = {}
        for statuses in self.by_node.values():
            for status in statuses:
                counts[status.plugin] = counts.get(status.plugin, 0) + 1
        return sorted(counts, key=lambda name: (-counts[name], name))

    def nodes_of(self, plugin: str) -> list[NodeInfo]:
        """The nodes that this plugin rejects."""
        return [n for n in self.nodes if any(s.plugin == plugin for s in self.by_node[n.name])]

    def nodes_of_only(self, plugin: str) -> list[NodeInfo]:
        """The nodes that would do if this plugin agreed."""
        return [n for n in self.nodes_of(plugin) if all(s.plugin == plugin for s in self.by_node[n.name])]

    def scores(self) -> NodeScores | Status:
        """The scores of the feasible nodes; a status is an error."""
        return self.framework.score_nodes(self.state, self.pod, self.feasible)


def _asked(ask: Callable[[], T]) -> T | Status:
    """The answer, or the error as a status: one broken plugin must not hide what the others say."""
    try:
        return ask()
    except Exception as error:
        return Status(Code.ERROR, (f"{type(error).__name__}: {error}",))


def framework_for(core: Core, pod: Pod) -> Framework:
    """The profile that places the pod; raises TidelogError if no profile does."""
    name = pod.spec.scheduler_name
    framework = core.frameworks.get(name)
    if framework is None:
        known = ", ".join(core.frameworks) or "none: the log holds no configuration up to here"
        raise TidelogError(
            f"pod {pod.metadata.namespace}/{pod.metadata.name} wants the scheduler {name or '(none named)'}, and this log's are: {known}"
        )
    return framework


def examine(
    core: Core, pod: Pod, at: int, waiting: WaitingPod | None = None, *, refresh: bool = True
) -> Examination:
    """Ask every plugin about the pod in the state that `core` is in. `refresh=False`: in that in which its last attempt, this pod's, began."""
    framework, info = framework_for(core, pod), PodInfo(pod)
    snapshot, cache = core.cluster.snapshot, core.cluster.cache
    if refresh:
        snapshot.refresh(cache)
    elif (node := cache.node_of(info.uid)) is not None and snapshot.get(node) is not None:
        snapshot.hide(info.uid, node)
    if waiting is None:
        waiting = core.queue.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return Examination(framework, info, at, waiting)
