"""The scheduler as a profile's plugins see it: nodes, objects, feature gates, and what the configuration says to all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.features import FeatureGates
from tidelog.framework.listers import Listers
from tidelog.framework.nominations import FixedNominations, NominatedPods
from tidelog.framework.preemption_plan import PreemptionPort
from tidelog.framework.snapshot import Snapshot


class FrameworkHandle:
    """The handle that a profile's plugins are given: implements `tidelog.framework.interface.Handle`."""

    def __init__(
        self,
        snapshot: Snapshot,
        listers: Listers,
        features: FeatureGates | None = None,
        *,
        upstream: bool = False,
        fallback_only_if_rejected_by_spread: bool = False,
        guard_starting_pods: bool = True,
        behaviours: Sequence[int] = (),
    ) -> None:
        self.snapshot = snapshot
        self.listers = listers
        self.features = features or FeatureGates()
        self.upstream = upstream
        self.fallback_only_if_rejected_by_spread = fallback_only_if_rejected_by_spread
        self.guard_starting_pods = guard_starting_pods
        self.preemption: PreemptionPort | None = None
        """Set once the framework exists: plugins are made before it."""
        self.nominated: NominatedPods = FixedNominations()
        """Set by the framework."""
        self.behaviours = frozenset(behaviours)

    def behaves(self, number: int) -> bool:
        """Whether a numbered change of behaviour is in force."""
        return number in self.behaviours
