"""Kinds that a cluster has and that no decision depends on: what a dump of everything contains beside what is read here.

`is_elsewhere(api_version, kind)` tells a kind that may be left out from one that is misspelled. A kind of a group that Kubernetes itself has must be one of
the kinds of that group; every other group is a package's own, with kinds of its own, unless its name is a typing error for a group of Kubernetes'.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

_OTHERS: Mapping[str, str] = {
    "": "Binding ComponentStatus ConfigMap Endpoints Event LimitRange PodTemplate ResourceQuota Secret ServiceAccount",
    "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "apps": "ControllerRevision DaemonSet",
    "authentication.k8s.io": "SelfSubjectReview TokenRequest TokenReview",
    "authorization.k8s.io": "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    "autoscaling": "HorizontalPodAutoscaler Scale",
    "batch": "CronJob",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest",
    "coordination.k8s.io": "Lease LeaseCandidate",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "extensions": "DaemonSet Ingress NetworkPolicy PodSecurityPolicy",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "metrics.k8s.io": "NodeMetrics PodMetrics",
    "networking.k8s.io": "ClusterCIDR IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "policy": "Eviction PodSecurityPolicy",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "resource.k8s.io": "ResourcePoolStatusRequest",
    "scheduling.k8s.io": "",
    "storage.k8s.io": "VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
}
"""Group of Kubernetes' own → its kinds that are not read here."""
_KINDS = {group: frozenset(kinds.split()) for group, kinds in _OTHERS.items()}
_ALIKE = 0.85
"""Names of groups that have so much in common are taken for one: `app` and `apps`, and not `gateway.networking.k8s.io`."""


def is_elsewhere(api_version: str, kind: str) -> bool:
    """Whether it is a kind that clusters have and that is not read here; not a misspelled one."""
    group = api_version.rpartition("/")[0]
    others = _KINDS.get(group)
    if others is not None:
        return kind in others
    return "." in group and not difflib.get_close_matches(group[:64], list(_KINDS), n=1, cutoff=_ALIKE)


def other_kinds() -> list[str]:
    """The names of Kubernetes' kinds that are not read here, for suggestions."""
    return sorted(frozenset().union(*_KINDS.values()))
