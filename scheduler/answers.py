"""Whether what was written for the pods that wait has been answered.

A pod whose attempt had objects written waits in `permits` until the plugins say that all of it is answered. They are asked when the wait
begins, and again whenever an object changes that could be the answer: one that was written, one that they named, or the pod's node. What they
say follows from the log alone, so it is the same in every replay. When nothing is awaited any more the next attempt binds the pod.

A change costs a look at a dictionary, and a question for each pod that watches the object.
"""

from __future__ import annotations

from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.scheduler.assembly import Assembly
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.permits import Permit, Permits


class Answers:
    """Keeps the permits of pods that wait for answers up to date."""

    def __init__(self, cluster: Cluster, assembly: Assembly, permits: Permits) -> None:
        self._cluster = cluster
        self._assembly = assembly
        self._permits = permits

    def look(self, *keys: str) -> None:
        """The objects of these keys have changed, come or gone: each pod is asked once, those last that watch the last of them."""
        watching: dict[str, Permit] = {}
        for key in keys:
            for permit in self._permits.watching(key):
                watching.pop(permit.uid, None)
                watching[permit.uid] = permit
        for permit in watching.values():
            self.ask(permit)

    def ask_all(self) -> None:
        """Other plugins are in force."""
        for permit in self._permits.reserved():
            self.ask(permit)

    def ask(self, permit: Permit) -> None:
        """Ask the plugins anew."""
        cluster = self._cluster
        pod = cluster.pod(permit.key)
        if pod is None or pod_uid(pod) != permit.uid:
            return  # Its end is being dealt with.
        framework = self._assembly.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return
        node = cluster.cache.get(permit.node)
        awaited, failure = framework.answers(PodInfo(pod), node, permit.writes)
        self._permits.judge(permit, awaited, failure, cluster.seq)
