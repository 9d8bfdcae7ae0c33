"""DefaultPreemption: what the queue and the configuration know of it.

Preemption itself (PostFilter: choosing victims) belongs to the scheduling core. This module holds the plugin's arguments and
its registration: it never rejects a pod, so no event of its own can help one, yet a pod that waits for its victims to end is
to be looked at again when a pod goes. The plugin that really rejected the pod then answers Queue; this one always skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.fields import NOT_NEGATIVE, ErrorList, in_range
from tidelog.api.objects import Pod
from tidelog.plugins.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.plugins.interface import Plugin, PluginArgs


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    """How many candidate nodes a search looks for: the larger of the two, and never more than there are."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DefaultPreemption(Plugin):
    """Registered for the queue's sake; see the module."""

    name = "DefaultPreemption"
    Args = DefaultPreemptionArgs

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        """With both at zero no candidate would ever be looked at."""
        percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
        errors = ErrorList()
        if not 0 <= percentage <= 100:
            errors.invalid(f"{path}.minCandidateNodesPercentage", percentage, in_range(0, 100))
        if absolute < 0:
            errors.invalid(f"{path}.minCandidateNodesAbsolute", absolute, NOT_NEGATIVE)
        if percentage == 0 and absolute == 0:
            rule = "must not be zero together with minCandidateNodesAbsolute"
            errors.invalid(f"{path}.minCandidateNodesPercentage", percentage, rule)
        return errors

    def events_to_register(self) -> Sequence[EventRegistration]:
        pods = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        return [EventRegistration(pods, _pod_deleted)]


def _pod_deleted(waiting: WaitingPod, old: Pod, new: Pod | None) -> Hint:
    return Hint.SKIP
