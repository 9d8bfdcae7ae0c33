"""The kind of the group policy: disruption budgets."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.cluster import Admission
from tidelog.api.kinds.columns import column, number_or_none, selector_words
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.objects import LabelSelector, PodDisruptionBudget
from tidelog.api.validation.cluster import validate_budget


def _prepare_budget(
    budget: PodDisruptionBudget, _old: PodDisruptionBudget | None, _admission: Admission
) -> PodDisruptionBudget:
    """A status that somebody wrote by hand is about the object as it is."""
    status = budget.status
    if status.observed_generation or not (status.disruptions_allowed or status.expected_pods):
        return budget
    generation = budget.metadata.generation or 1
    return replace(budget, status=replace(status, observed_generation=generation))


def _budget_from_version(budget: PodDisruptionBudget, version: str) -> PodDisruptionBudget:
    """Before v1 an empty selector selected no pod."""
    if version == "v1beta1" and budget.spec.selector == LabelSelector():
        return replace(budget, spec=replace(budget.spec, selector=None))
    return budget


def _budget_warnings(budget: PodDisruptionBudget) -> tuple[str, ...]:
    status = budget.status
    if status.disruptions_allowed or status.expected_pods or status.observed_generation:
        return ()
    return (
        "status.disruptionsAllowed: stays 0, which allows no disruption, until a disruption controller sets it",
    )


POD_DISRUPTION_BUDGET = Kind(
    name="PodDisruptionBudget",
    type=PodDisruptionBudget,
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    short_names=("pdb",),
    other_versions=("v1beta1",),
    subresources=("status",),
    prepare=_prepare_budget,
    from_version=_budget_from_version,
    validate=validate_budget,
    warnings=_budget_warnings,
    events="ours",
    columns=(
        column(PodDisruptionBudget, "MIN AVAILABLE", lambda b: number_or_none(b.spec.min_available)),
        column(PodDisruptionBudget, "MAX UNAVAILABLE", lambda b: number_or_none(b.spec.max_unavailable)),
        column(PodDisruptionBudget, "ALLOWED DISRUPTIONS", lambda b: b.status.disruptions_allowed),
        column(PodDisruptionBudget, "SELECTOR", lambda b: selector_words(b.spec.selector), wide=True),
    ),
    redaction=Redaction(kept=("maxUnavailable", "minAvailable", "unhealthyPodEvictionPolicy")),
)
