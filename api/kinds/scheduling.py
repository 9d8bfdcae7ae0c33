"""The kinds of the group scheduling.k8s.io: priority classes, workloads, pod groups."""

from __future__ import annotations

from tidelog.api.kinds.columns import column, level_words, policy_words
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.objects import PodGroup, PriorityClass, Workload
from tidelog.api.priorities import prepare_class, prepare_group, prepare_workload
from tidelog.api.validation.cluster import (
    SYSTEM_CLASSES,
    validate_priority_class,
    validate_priority_class_update,
)
from tidelog.api.validation.groups import (
    validate_pod_group,
    validate_pod_group_update,
    validate_workload,
    validate_workload_update,
)

GROUP = "scheduling.k8s.io"


def _threshold_warnings(found: PriorityClass) -> tuple[str, ...]:
    threshold = found.allow_disruption_by_priority_greater_than_or_equal
    if threshold is None or threshold > found.value + 1:
        return ()
    text = (
        f"allowDisruptionByPriorityGreaterThanOrEqual: {threshold} protects from nobody: "
        f"preemptors of pods with priority {found.value} have at least {found.value + 1}"
    )
    return (text,)


PRIORITY_CLASS = Kind(
    name="PriorityClass",
    type=PriorityClass,
    group=GROUP,
    version="v1",
    plural="priorityclasses",
    short_names=("pc",),
    namespaced=False,
    other_versions=("v1beta1", "v1alpha1"),
    prepare=prepare_class,
    validate=validate_priority_class,
    validate_update=validate_priority_class_update,
    warnings=_threshold_warnings,
    protected_names=tuple(SYSTEM_CLASSES),
    protected_rule="this is a system priority class and cannot be deleted",
    events="ours",
    columns=(
        column(PriorityClass, "VALUE", lambda c: c.value),
        column(PriorityClass, "GLOBAL-DEFAULT", lambda c: str(c.global_default).lower()),
        column(PriorityClass, "PREEMPTIONPOLICY", lambda c: c.preemption_policy or "PreemptLowerPriority"),
        column(
            PriorityClass,
            "DISRUPTION-BY",
            lambda c: c.allow_disruption_by_priority_greater_than_or_equal,
            wide=True,
        ),
        column(PriorityClass, "DESCRIPTION", lambda c: c.description, wide=True),
    ),
    redaction=Redaction(kept=("preemptionPolicy",), dropped=("description",)),
)
_GROUP_REDACTION = Redaction(kept=("preemptionPolicy",), label_keys=("level",))
WORKLOAD = Kind(
    name="Workload",
    type=Workload,
    group=GROUP,
    version="v1alpha1",
    plural="workloads",
    short_names=("wl",),
    other_versions=("v1alpha2", "v1alpha3", "v1beta1"),
    prepare=prepare_workload,
    validate=validate_workload,
    validate_update=validate_workload_update,
    events="ours",
    columns=(
        column(
            Workload,
            "GROUPS",
            lambda w: ", ".join(
                f"{g.name} ({policy_words(g.policy or g.scheduling_policy)})" for g in w.spec.pod_groups
            ),
        ),
    ),
    redaction=_GROUP_REDACTION,
)
POD_GROUP = Kind(
    name="PodGroup",
    type=PodGroup,
    group=GROUP,
    version="v1beta1",
    plural="podgroups",
    short_names=("pg",),
    other_versions=("v1alpha2", "v1alpha3"),
    subresources=("status",),
    prepare=prepare_group,
    validate=validate_pod_group,
    validate_update=validate_pod_group_update,
    events="upstream",
    columns=(
        column(PodGroup, "POLICY", lambda g: policy_words(g.spec.policy or g.spec.scheduling_policy)),
        column(PodGroup, "TOPOLOGY", lambda g: level_words(g.spec.scheduling_constraints)),
        column(PodGroup, "PRIORITY-CLASS", lambda g: g.spec.priority_class_name, wide=True),
    ),
    redaction=_GROUP_REDACTION,
)
