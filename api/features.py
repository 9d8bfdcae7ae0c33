"""Feature gates: the switches that the enhancement proposals define, as one typed object."""

from __future__ import annotations

import msgspec

from tidelog.api.errors import FieldError, InvalidObjects


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


GATE_NAMES: tuple[str, ...] = FeatureGates.__struct_encode_fields__
_FIELD_OF_GATE = dict(zip(GATE_NAMES, FeatureGates.__struct_fields__, strict=True))


def parse_feature_gates(text: str) -> FeatureGates:
    """`Gate=true,Other=false`, as `--feature-gates` takes it; AllAlpha and AllBeta are not gates of ours."""
    values: dict[str, bool] = {}
    errors = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in _FIELD_OF_GATE:
            errors.append(
                FieldError(
                    path="featureGates",
                    kind="NotSupported",
                    value=name,
                    rule=f"one of {', '.join(GATE_NAMES)}",
                )
            )
        elif value.lower() not in ("true", "false"):
            errors.append(
                FieldError(
                    path=f"featureGates.{name}", kind="Invalid", value=value, rule="must be true or false"
                )
            )
        else:
            values[_FIELD_OF_GATE[name]] = value.lower() == "true"
    if errors:
        raise InvalidObjects("--feature-gates", errors)
    return FeatureGates(**values)
