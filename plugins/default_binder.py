"""DefaultBinder: binds a pod by letting its placement enter the log.

kube-scheduler's plugin of this name writes the binding to the API server. Here the log is the API: the outcome record
`scheduled` *is* the binding, the core appends it for every pod whose Bind succeeded, and whoever acts on bindings (a node
agent, a bridge to a real cluster) reads it there. So the plugin has nothing left to do but agree; another Bind plugin
configured before it may refuse, or take a pod over.
"""

from __future__ import annotations

from tidelog.framework.interface import BindPlugin, CycleState, Plugin, Status
from tidelog.framework.node_info import PodInfo


class DefaultBinder(Plugin):
    """Agrees to every placement. Exactly the pods it is asked about are bound by the record that follows."""

    name = "DefaultBinder"

    def bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None


_bind: type[BindPlugin] = DefaultBinder
