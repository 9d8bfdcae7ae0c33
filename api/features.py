"""Feature gates: the switches that the enhancement proposals define, as one typed object.

`FeatureGates` is passed to everything that depends on a gate; `GATES` says of each what it does, for help texts and
documents.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.api.errors import InvalidObjects
from tidelog.api.validation.field_errors import ErrorList


class FeatureGates(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", forbid_unknown_fields=True):
    """Each gate with the effect that its proposal describes; the defaults are the proposals' own."""

    pod_topology_spread_fallback_mode: bool = False
    """KEP-3990: fallbackCriteria of spread constraints, nodeProvisioningTimeout, time events."""
    min_domains_in_pod_topology_spread: bool = True
    """KEP-3022: minDomains of spread constraints."""
    scheduler_queueing_hints: bool = True
    """KEP-4247: ask the plugins' hints; off: every registered event moves the pods its plugin rejected."""
    topology_aware_workload_scheduling: bool = False
    """KEP-5732: topology constraints of groups."""
    workload_basic_policy_desired_count: bool = False
    """KEP-5732: desiredCount of the basic policy."""
    disruption_policy_in_priority_class: bool = False
    """KEP-4664: disruption budgets that preemption must not break."""


class FeatureGate(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a gate, in two half sentences."""

    name: str
    proposal: str
    on: str
    off: str
    """The effect on new objects that use the feature; those that are stored keep it, without effect."""

    @property
    def default(self) -> bool:
        """Whether it is on unless somebody says otherwise."""
        return bool(getattr(FeatureGates(), _FIELD_OF_GATE[self.name]))


GATES: tuple[FeatureGate, ...] = (
    FeatureGate(
        name="PodTopologySpreadFallbackMode",
        proposal="KEP-3990",
        on="hard topology spread falls back to soft when its fallbackCriteria hold",
        off="pods with fallbackCriteria are refused",
    ),
    FeatureGate(
        name="MinDomainsInPodTopologySpread",
        proposal="KEP-3022",
        on="minDomains counts",
        off="minDomains is dropped from new pods",
    ),
    FeatureGate(
        name="SchedulerQueueingHints",
        proposal="KEP-4247",
        on="plugins' hints decide which events wake a rejected pod",
        off="every event that a rejecting plugin registered for wakes it",
    ),
    FeatureGate(
        name="TopologyAwareWorkloadScheduling",
        proposal="KEP-5732",
        on="groups with a topology constraint are placed whole into one domain",
        off="groups with a topology constraint are refused",
    ),
    FeatureGate(
        name="WorkloadBasicPolicyDesiredCount",
        proposal="KEP-5732",
        on="placements with room for desiredCount pods are preferred",
        off="groups with a desiredCount are refused",
    ),
    FeatureGate(
        name="DisruptionPolicyInPriorityClass",
        proposal="KEP-4664",
        on="preemptors below allowDisruptionByPriorityGreaterThanOrEqual keep to disruption budgets",
        off="the threshold is dropped from new priority classes and pods",
    ),
)

GATE_NAMES: tuple[str, ...] = FeatureGates.__struct_encode_fields__
_FIELD_OF_GATE = dict(zip(GATE_NAMES, FeatureGates.__struct_fields__, strict=True))


def parse_feature_gates(text: str) -> FeatureGates:
    """`Gate=true,Other=false`, as `--feature-gates` takes it; AllAlpha and AllBeta are not gates of ours."""
    pairs: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        value = value.strip()
        pairs[name.strip()] = {"true": True, "false": False}.get(value.lower(), value)
    return feature_gates(pairs, "--feature-gates")


def recorded_gates(values: object) -> FeatureGates:
    """Return the gates that a log's configuration records; names of other versions that are no gates here are ignored."""
    known = values.items() if isinstance(values, Mapping) else ()
    return FeatureGates(
        **{_FIELD_OF_GATE[n]: v for n, v in known if n in _FIELD_OF_GATE and isinstance(v, bool)}
    )


def feature_gates(values: Mapping[str, object], source: str = "featureGates") -> FeatureGates:
    """From gate names and booleans, as a configuration has them. Raises InvalidObjects with all errors."""
    errors = ErrorList()
    found: dict[str, bool] = {}
    for name, value in values.items():
        if name not in _FIELD_OF_GATE:
            errors.not_supported("featureGates", name, GATE_NAMES)
        elif not isinstance(value, bool):
            errors.invalid(f"featureGates.{name}", value, "must be true or false")
        else:
            found[_FIELD_OF_GATE[name]] = value
    if errors:
        raise InvalidObjects(source, errors)
    return FeatureGates(**found)
