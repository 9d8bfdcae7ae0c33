"""Which pods are promised a node on which room is being made for them.

A nomination lives in the pod's status (`nominatedNodeName`) or, until that is written, only here. Filters count the
nominated pods of a node as if they were on it.
"""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid


class Nominator:
    """Node → the pods nominated to it, in the order of their nomination."""

    __slots__ = ("_node_of", "_pods_on", "generation")

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._pods_on: dict[str, dict[str, PodInfo]] = {}
        self.generation = 0
        """Grows with each change."""

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: Pod, node: str | None = None) -> None:
        """Nominate the pod to `node`, in place of any earlier nomination.

        None takes the node from the pod's status; with an empty name, and once it has a node, the pod is not nominated
        any more.
        """
        node = pod.status.nominated_node_name if node is None else node
        uid = pod_uid(pod)
        self._forget(uid)
        if node and not pod.spec.node_name:
            self.generation += 1
            self._node_of[uid] = node
            self._pods_on.setdefault(node, {})[uid] = PodInfo(pod)

    def update(self, old: Pod, new: Pod) -> None:
        """The pod has a new version. A nomination that is only here stays when neither version names a node."""
        uid = pod_uid(old)
        node = self._node_of.get(uid)
        if old.status.nominated_node_name or new.status.nominated_node_name:
            self._forget(uid)
            self.nominate(new)
        elif node is not None:
            self.generation += 1
            self._pods_on[node][uid] = PodInfo(new)

    def forget(self, pod: Pod) -> None:
        """The pod is assumed, bound or gone."""
        if self._node_of:
            self._forget(pod_uid(pod))

    def node_of(self, pod: Pod) -> str:
        """Where the pod is nominated to, or an empty string."""
        return self._node_of.get(pod_uid(pod), "") if self._node_of else ""

    def is_nominated(self, uid: str) -> bool:
        """Whether the pod of this uid is."""
        return uid in self._node_of

    def pods_on(self, node: str) -> tuple[PodInfo, ...]:
        """Return the pods nominated to the node."""
        return tuple(self._pods_on.get(node, {}).values())

    def nodes(self) -> list[str]:
        """The names of the nodes to which somebody is nominated."""
        return list(self._pods_on)

    def nominations(self) -> list[tuple[PodInfo, str]]:
        """All, node by node."""
        return [(pod, node) for node, pods in self._pods_on.items() for pod in pods.values()]

    def restore(self, nominations: list[tuple[Pod, str]]) -> None:
        """Take over what `nominations` told."""
        self.generation += 1
        self._node_of.clear()
        self._pods_on.clear()
        for pod, node in nominations:
            self.nominate(pod, node)

    def _forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            self.generation += 1
            on_node = self._pods_on[node]
            del on_node[uid]
            if not on_node:
                del self._pods_on[node]
