"""The rules of a pod, new and changed.

Fields that only the node agent reads (images, probes, mounts, security) are not checked, because they are not read here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import astuple, replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    Affinity,
    Container,
    ContainerStatus,
    NodeSelectorTerm,
    Pod,
    PodResourceClaim,
    PodSpec,
    ResourceRequirements,
    Toleration,
    Volume,
)
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import names
from tidelog.api.validation import placement as validate_placement
from tidelog.api.validation import resources as validate_resources
from tidelog.api.validation.check import Check
from tidelog.api.validation.field_errors import INT32_MAX, ErrorList, in_range
from tidelog.api.validation.storage import claim_spec

PROTOCOLS = ("TCP", "UDP", "SCTP")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
CLAIMS_MAX = 32
"""So many volumes of a pod may stand for claims. Each costs an attempt up to 10 ms at 5,000 nodes. Kubernetes has no limit; no node attaches many more."""
PORT_RULE = in_range(1, 65535)
CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Pod, errors: Check) -> None:
    """Everything that can be said of a pod alone; fallbackCriteria that are stored already are not refused."""
    gates, old = errors.gates, errors.old
    keep_fallback = old is not None and _has_fallback(old.spec)
    key = _spec_key(pod.spec)
    if key is None or (key, gates, keep_fallback) not in _known_good:
        found = ErrorList()
        _spec(pod, gates, found, keep_fallback)
        errors.extend(found)
        if key is not None and not found:
            if len(_known_good) >= _KNOWN_MAX:
                _known_good.clear()
            _known_good[key, gates, keep_fallback] = None
    _status(errors, pod)


def _has_fallback(spec: PodSpec) -> bool:
    return any(constraint.fallback_criteria for constraint in spec.topology_spread_constraints)


_encode = msgspec.msgpack.Encoder().encode
_known_good: dict[tuple[bytes, FeatureGates, bool], None] = {}
"""Specs in which nothing was found wrong: replicas have the same one, and looking at it again costs ten times as much as this."""
_KNOWN_MAX = 1024


def _spec_key(spec: PodSpec) -> bytes | None:
    """Equal for equal specs; None for one that cannot be encoded, in which something will be found wrong."""
    try:
        return _encode(spec)
    except (TypeError, ValueError, OverflowError):
        return None


def _spec(pod: Pod, gates: FeatureGates, errors: ErrorList, keep_fallback: bool) -> None:
    """Validate the spec alone."""
    spec = pod.spec
    claim_names = frozenset(claim.name for claim in spec.resource_claims)
    _containers(errors, spec, claim_names)
    validate_resources.pod_level(errors, pod)
    if spec.overhead:
        validate_resources.overhead(errors, spec.overhead, "spec.overhead")
    if spec.node_selector:
        validate_common.labels(errors, spec.node_selector, "spec.nodeSelector")
    validate_placement.demands(errors, spec.affinity, spec.topology_spread_constraints, "spec.affinity")
    validate_placement.affinity(errors, spec.affinity, "spec.affinity")
    validate_placement.tolerations(errors, spec.tolerations, "spec.tolerations")
    validate_placement.topology_spread(
        errors,
        spec.topology_spread_constraints,
        "spec.topologySpreadConstraints",
        gates,
        keep_fallback,
    )
    if spec.scheduling_gates:
        _scheduling_gates(errors, spec)
    _words(errors, spec)
    _groups(errors, spec)
    if spec.resource_claims:
        resource_claims(errors, spec.resource_claims, "spec.resourceClaims")
    if spec.volumes:
        _volumes(errors, spec.volumes)


# --- containers ---------------------------------------------------------------------------------------------------------


def _containers(errors: ErrorList, spec: PodSpec, claims: Collection[str]) -> None:
    if not spec.containers:
        errors.required("spec.containers")
    seen: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            path = f"spec.{field}[{index}]"
            _container(errors, container, path, claims)
            errors.unique(f"{path}.name", container.name, seen)
            if spec.host_network:
                _host_network_ports(errors, container, path)
    _host_port_conflicts(errors, spec.containers, "spec.containers")
    for index, container in enumerate(spec.init_containers):
        # Ordinary init containers run one after the other.
        _host_port_conflicts(errors, (container,), "spec.initContainers", index)


def _container(errors: ErrorList, container: Container, path: str, claims: Collection[str]) -> None:
    if container.name:
        errors.invalid_each(f"{path}.name", container.name, names.dns_label(container.name))
    else:
        errors.required(f"{path}.name")
    if container.restart_policy and container.restart_policy not in RESTART_POLICIES:
        errors.not_supported(f"{path}.restartPolicy", container.restart_policy, RESTART_POLICIES)
    resources = container.resources
    if resources.limits or resources.requests or resources.claims:
        validate_resources.requirements(errors, resources, f"{path}.resources", claims)
    port_names: set[str] = set()
    for index, port in enumerate(container.ports):
        where = f"{path}.ports[{index}]"
        if port.name:
            errors.invalid_each(f"{where}.name", port.name, names.port_name(port.name))
            if port.name in port_names:
                errors.duplicate(f"{where}.name", port.name)
            port_names.add(port.name)
        if not port.container_port:
            errors.required(f"{where}.containerPort")
        elif not 1 <= port.container_port <= 65535:
            errors.invalid(f"{where}.containerPort", port.container_port, PORT_RULE)
        if port.host_port and not 1 <= port.host_port <= 65535:
            errors.invalid(f"{where}.hostPort", port.host_port, PORT_RULE)
        if port.protocol and port.protocol not in PROTOCOLS:
            errors.not_supported(f"{where}.protocol", port.protocol, PROTOCOLS)
        if port.host_ip:
            _ip(errors, port.host_ip, f"{where}.hostIP")


def _ip(errors: ErrorList, text: str, path: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def _host_network_ports(errors: ErrorList, container: Container, path: str) -> None:
    for index, port in enumerate(container.ports):
        if port.host_port != port.container_port:
            rule = "must match `containerPort` when `hostNetwork` is true"
            errors.invalid(f"{path}.ports[{index}].hostPort", port.host_port, rule)


def _host_port_conflicts(
    errors: ErrorList, containers: Sequence[Container], path: str, first: int = 0
) -> None:
    seen: set[str] = set()
    for number, container in enumerate(containers, first):
        for index, port in enumerate(container.ports):
            if not port.host_port:
                continue
            text = f"{port.protocol or 'TCP'}/{port.host_ip}/{port.host_port}"
            errors.unique(f"{path}[{number}].ports[{index}].hostPort", text, seen)


# --- the rest of the spec -----------------------------------------------------------------------------------------------


def _scheduling_gates(errors: ErrorList, spec: PodSpec) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        path = f"spec.schedulingGates[{index}]"
        errors.invalid_each(path, gate.name, names.label_key(gate.name))
        errors.unique(path, gate.name, seen)
    if spec.node_name:
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _words(errors: ErrorList, spec: PodSpec) -> None:
    if spec.node_name:
        errors.invalid_each("spec.nodeName", spec.node_name, names.dns_subdomain(spec.node_name))
    if spec.priority_class_name:
        rules = names.dns_subdomain(spec.priority_class_name)
        errors.invalid_each("spec.priorityClassName", spec.priority_class_name, rules)
    if spec.preemption_policy is not None:
        preemption_policy(errors, spec.preemption_policy, "spec.preemptionPolicy")
    if spec.restart_policy and spec.restart_policy not in RESTART_POLICIES:
        errors.not_supported("spec.restartPolicy", spec.restart_policy, RESTART_POLICIES)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= INT32_MAX:
        errors.invalid("spec.activeDeadlineSeconds", deadline, in_range(1, INT32_MAX))


def preemption_policy(errors: ErrorList, policy: str, path: str) -> None:
    """Validate the preemption policy of a pod, class or group."""
    if not policy:
        errors.required(path)
    elif policy not in PREEMPTION_POLICIES:
        errors.not_supported(path, policy, PREEMPTION_POLICIES)


def _groups(errors: ErrorList, spec: PodSpec) -> None:
    group, workload = spec.scheduling_group, spec.workload_ref
    if group is not None:
        path = "spec.schedulingGroup.podGroupName"
        if group.pod_group_name:
            errors.invalid_each(path, group.pod_group_name, names.dns_subdomain(group.pod_group_name))
        else:
            errors.required(path)
        if spec.eviction_responders:
            errors.forbidden("spec.evictionResponders", "may not be set together with schedulingGroup")
    for responder in spec.eviction_responders:
        validate_common.raw(errors, responder, "spec.evictionResponders")
    if workload is None:
        return
    if group is not None:
        errors.invalid("spec.workloadRef", workload.name, "may not be set together with schedulingGroup")
    for field, value, rule in (
        ("name", workload.name, names.dns_subdomain),
        ("podGroup", workload.pod_group, names.dns_label),
    ):
        if value:
            errors.invalid_each(f"spec.workloadRef.{field}", value, rule(value))
        else:
            errors.required(f"spec.workloadRef.{field}")
    if workload.pod_group_replica_key:
        rules = names.dns_label(workload.pod_group_replica_key)
        errors.invalid_each("spec.workloadRef.podGroupReplicaKey", workload.pod_group_replica_key, rules)


def resource_claims(errors: ErrorList, claims: Iterable[PodResourceClaim], path: str) -> None:
    """The claims of a pod or of a group: unique names, exactly one reference each."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        if not claim.name:
            errors.required(f"{where}.name")
        elif errors.unique(f"{where}.name", claim.name, seen):
            errors.invalid_each(f"{where}.name", claim.name, names.dns_label(claim.name))
        given = (claim.resource_claim_name, claim.resource_claim_template_name)
        if given == (None, None):
            rule = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.invalid(where, claim.name, rule)
        elif None not in given:
            rule = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.invalid(where, claim.name, rule)
        for field, value in zip(("resourceClaimName", "resourceClaimTemplateName"), given, strict=True):
            if value is not None:
                errors.invalid_each(f"{where}.{field}", value, names.dns_subdomain(value))


def _volumes(errors: ErrorList, volumes: Sequence[Volume]) -> None:
    claims = sum(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in volumes
    )
    if claims > CLAIMS_MAX:
        rule = f"must have at most {CLAIMS_MAX} volumes with claims"
        errors.add("spec.volumes", "TooMany", claims, rule)
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        if not volume.name:
            errors.required(f"{path}.name")
        elif errors.unique(f"{path}.name", volume.name, seen):
            errors.invalid_each(f"{path}.name", volume.name, names.dns_label(volume.name))
        _volume_claim(errors, volume, path)
        for source in (volume.azure_file, volume.vsphere_volume, volume.csi, volume.image):
            if source is not None:
                validate_common.raw(errors, source, path)


def _volume_claim(errors: ErrorList, volume: Volume, path: str) -> None:
    claim, ephemeral = volume.persistent_volume_claim, volume.ephemeral
    if claim is not None:
        where = f"{path}.persistentVolumeClaim.claimName"
        if claim.claim_name:
            errors.invalid_each(where, claim.claim_name, names.dns_subdomain(claim.claim_name))
        else:
            errors.required(where)
    if claim is not None and ephemeral is not None:
        errors.forbidden(f"{path}.ephemeral", "may not specify more than 1 volume type")
    elif ephemeral is not None and ephemeral.volume_claim_template is None:
        errors.required(f"{path}.ephemeral.volumeClaimTemplate")
    elif ephemeral is not None and ephemeral.volume_claim_template is not None:
        claim_spec(errors, ephemeral.volume_claim_template.spec, f"{path}.ephemeral.volumeClaimTemplate.spec")


def _status(errors: ErrorList, pod: Pod) -> None:
    status = pod.status
    if status.phase and status.phase not in PHASES:
        errors.not_supported("status.phase", status.phase, PHASES)
    if status.conditions:
        validate_common.conditions(errors, status.conditions, "status.conditions")
    if status.nominated_node_name:
        rules = names.dns_subdomain(status.nominated_node_name)
        errors.invalid_each("status.nominatedNodeName", status.nominated_node_name, rules)
    validate_common.time(errors, status.start_time, "status.startTime")
    _container_statuses(errors, status.container_statuses, "status.containerStatuses")
    _container_statuses(errors, status.init_container_statuses, "status.initContainerStatuses")
    known = {claim.name for claim in pod.spec.resource_claims}
    for index, claim in enumerate(status.resource_claim_statuses):
        if claim.name not in known:
            rule = "must match the name of an entry in `spec.resourceClaims`"
            errors.invalid(f"status.resourceClaimStatuses[{index}].name", claim.name, rule)


def _container_statuses(errors: ErrorList, statuses: Iterable[ContainerStatus], path: str) -> None:
    for index, status in enumerate(statuses):
        where = f"{path}[{index}]"
        validate_resources.quantities(errors, status.allocated_resources, f"{where}.allocatedResources")
        if status.resources is not None:
            for part, found in (
                ("requests", status.resources.requests),
                ("limits", status.resources.limits),
            ):
                validate_resources.quantities(errors, found, f"{where}.resources.{part}")


# --- updates ------------------------------------------------------------------------------------------------------------


def validate_pod_update(old: Pod, new: Pod, errors: Check) -> None:
    """Refuse changes of fields that are immutable. `validate_pod` judges the new pod itself.

    Besides Kubernetes' exceptions, an empty nodeName may be set: that is how a binding by somebody else gets known.
    A resize lets cpu and memory of containers change, as Kubernetes' resize subresource does.
    """
    before, after = old.spec, new.spec
    if after == before:
        return
    for field, was, now in (
        ("containers", before.containers, after.containers),
        ("initContainers", before.init_containers, after.init_containers),
    ):
        if len(was) != len(now):
            errors.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    _deadline_update(errors, before, after)
    _tolerations_update(errors, before.tolerations, after.tolerations)
    _gates_update(errors, before, after)
    masked = _without_changeable(before, after, errors.resize)
    if before.scheduling_gates:
        _gated_update(errors, before, after)
        masked = _without_gated(before, masked)
    if masked != before:
        changed = ", ".join(_changed_fields(before, masked))
        errors.forbidden(
            "spec", f"pod updates may not change fields other than {CHANGEABLE} (changed: {changed})"
        )


def _without_changeable(before: PodSpec, after: PodSpec, resize: bool) -> PodSpec:
    """The new spec with the old values where a change is allowed or has been judged by itself."""
    grace = after.termination_grace_period_seconds
    if (before.termination_grace_period_seconds or 0) < 0 and grace == 1:
        grace = before.termination_grace_period_seconds
    return replace(
        after,
        containers=_same_containers(before.containers, after.containers, resize),
        init_containers=_same_containers(before.init_containers, after.init_containers, resize),
        active_deadline_seconds=before.active_deadline_seconds,
        tolerations=before.tolerations,
        scheduling_gates=before.scheduling_gates,
        termination_grace_period_seconds=grace,
        node_name=after.node_name if before.node_name else "",
    )


def _same_containers(
    before: Sequence[Container], after: Sequence[Container], resize: bool
) -> tuple[Container, ...]:
    return tuple(
        replace(now, image=was.image, resources=_same_resources(was, now) if resize else now.resources)
        for was, now in zip(before, after, strict=True)
    )


def _same_resources(was: Container, now: Container) -> ResourceRequirements:
    """Cpu and memory as they were, provided that neither is new or gone."""
    resources = now.resources
    for part in ("requests", "limits"):
        old, new = getattr(was.resources, part), getattr(resources, part)
        kept = {n: (old[n] if n in old and n in ("cpu", "memory") else v) for n, v in new.items()}
        resources = replace(resources, **{part: kept})
    return resources


def _changed_fields(before: PodSpec, after: PodSpec) -> list[str]:
    fields = zip(before.__struct_fields__, before.__struct_encode_fields__, strict=True)
    return [f"spec.{name}" for field, name in fields if getattr(before, field) != getattr(after, field)]


def _deadline_update(errors: ErrorList, before: PodSpec, after: PodSpec) -> None:
    was, now = before.active_deadline_seconds, after.active_deadline_seconds
    if was is not None and now is None:
        rule = "must not update from a positive integer to nil value"
        errors.invalid("spec.activeDeadlineSeconds", None, rule)
    elif was is not None and now is not None and now > was:
        errors.invalid("spec.activeDeadlineSeconds", now, "must be less than or equal to previous value")


def _tolerations_update(errors: ErrorList, before: Iterable[Toleration], after: Iterable[Toleration]) -> None:
    kept = {_beside_its_seconds(toleration) for toleration in after}
    if any(_beside_its_seconds(toleration) not in kept for toleration in before):
        rule = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", rule)


def _beside_its_seconds(toleration: Toleration) -> tuple[object, ...]:
    return astuple(replace(toleration, toleration_seconds=None))


def _gates_update(errors: ErrorList, before: PodSpec, after: PodSpec) -> None:
    known = {gate.name for gate in before.scheduling_gates}
    for index, gate in enumerate(after.scheduling_gates):
        if gate.name not in known:
            rule = f"only deletion is allowed, but found new scheduling gate '{gate.name}'"
            errors.forbidden(f"spec.schedulingGates[{index}].name", rule)


def _gated_update(errors: ErrorList, before: PodSpec, after: PodSpec) -> None:
    """A gated pod may become more particular about its node."""
    if not before.node_selector.items() <= after.node_selector.items():
        rule = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.invalid("spec.nodeSelector", after.node_selector, rule)
    was, now = _required_terms(before.affinity), _required_terms(after.affinity)
    path = f"spec.affinity.nodeAffinity.{validate_placement.REQUIRED}.nodeSelectorTerms"
    if was and len(was) != len(now):
        rule = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.invalid(path, len(now), rule)
        return
    for index, (old, new) in enumerate(zip(was, now, strict=False)):
        if not _only_added(old, new):
            rule = "only additions are allowed (no mutations or deletions)"
            errors.invalid(f"{path}[{index}]", new, rule)


def _required_terms(affinity: Affinity | None) -> tuple[NodeSelectorTerm, ...]:
    node = affinity.node_affinity if affinity else None
    return node.required.node_selector_terms if node and node.required else ()


def _only_added(old: NodeSelectorTerm, new: NodeSelectorTerm) -> bool:
    if not old.match_expressions and not old.match_fields:
        # An empty term matches nothing; whatever is added to it widens it.
        return not new.match_expressions and not new.match_fields
    return (
        new.match_expressions[: len(old.match_expressions)] == old.match_expressions
        and new.match_fields[: len(old.match_fields)] == old.match_fields
    )


def _without_gated(before: PodSpec, after: PodSpec) -> PodSpec:
    was, now = before.affinity, after.affinity
    if (was and was.node_affinity) != (now and now.node_affinity):
        restored = replace(now or Affinity(), node_affinity=was.node_affinity if was else None)
        now = None if was is None and restored == Affinity() else restored
    return replace(after, node_selector=before.node_selector, affinity=now)
