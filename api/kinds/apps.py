"""The kinds of the groups apps and batch: owners of pods, as far as default spread constraints, budgets, and the actor that plays their controllers read them."""

from __future__ import annotations

from tidelog.api.kinds.columns import column, selector_words
from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import Deployment, Job, ReplicaSet, StatefulSet
from tidelog.api.validation.cluster import validate_owner, validate_owner_update

REPLICA_SET = Kind(
    name="ReplicaSet",
    type=ReplicaSet,
    group="apps",
    version="v1",
    plural="replicasets",
    short_names=("rs",),
    categories=("all",),
    other_versions=("v1beta2",),
    validate=validate_owner,
    validate_update=validate_owner_update,
    columns=(column(ReplicaSet, "SELECTOR", lambda s: selector_words(s.spec.selector)),),
)
STATEFUL_SET = Kind(
    name="StatefulSet",
    type=StatefulSet,
    group="apps",
    version="v1",
    plural="statefulsets",
    short_names=("sts",),
    categories=("all",),
    other_versions=("v1beta2", "v1beta1"),
    validate=validate_owner,
    validate_update=validate_owner_update,
    columns=(column(StatefulSet, "SELECTOR", lambda s: selector_words(s.spec.selector)),),
)
DEPLOYMENT = Kind(
    name="Deployment",
    type=Deployment,
    group="apps",
    version="v1",
    plural="deployments",
    short_names=("deploy",),
    categories=("all",),
    validate=validate_owner,
    validate_update=validate_owner_update,
    columns=(column(Deployment, "SELECTOR", lambda d: selector_words(d.spec.selector)),),
)
JOB = Kind(
    name="Job",
    type=Job,
    group="batch",
    version="v1",
    plural="jobs",
    categories=("all",),
    columns=(
        column(Job, "PARALLELISM", lambda j: j.spec.parallelism),
        column(Job, "COMPLETIONS", lambda j: j.spec.completions),
    ),
)
