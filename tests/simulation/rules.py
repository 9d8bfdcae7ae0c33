"""What a place has to be for a pod: the hard rules of Kubernetes scheduling, by plain arithmetic over `SeenCluster`.

`misfit(cluster, pod, node)` walks over all pods, so it costs some ten microseconds in the small clusters of the simulation, and is
asked once a binding. Nothing is shared with the scheduler's plugins: no counts are kept, no tables, no order of evaluation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tests.simulation.cluster import SeenCluster, SeenNode, SeenPod
from tests.simulation.promises import awaits_device, has_lost_claims, too_many_volumes, unmet
from tidelog.api.objects import LabelSelector, NodeSelectorTerm, PodAffinityTerm, TopologySpreadConstraint

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def misfit(
    cluster: SeenCluster,
    pod: SeenPod,
    node: SeenNode,
    *,
    fallen: Collection[int] = (),
    without: Collection[str] = (),
    promised: bool = False,
    claims: bool = True,
    limits: bool = True,
) -> str:
    """Why the pod must not go to this node as things are; empty if it may.

    `fallen`: indices of its spread constraints that do not count. `without`: keys of pods that are taken to be gone. `promised`: pods of
    its priority and above count where they are nominated to. `claims`: its own count. `limits`: so do those of the
    node for volumes.
    """
    if reason := _closed(pod, node) or _wrong_kind(pod, node):
        return reason
    others = [p for p in cluster.pods.values() if (p.node or p.reserved) and not p.ended and p is not pod]
    if without:
        others = [p for p in others if p.key not in without]
    here = [p for p in others if (p.node or p.reserved) == node.name]
    guests = _promised(cluster, pod, node) if promised else []
    return (
        (unmet(cluster, pod, node) if claims else "")
        or (too_many_volumes(cluster.others, pod, node, here) if limits else "")
        or _no_room(pod, node, [*here, *guests])
        or _too_near(cluster, pod, node, others)
        or _too_far(cluster, pod, node, others)
        or _skewed(cluster, pod, node, others, fallen)
    )


def fits(
    cluster: SeenCluster,
    pod: SeenPod,
    node: SeenNode,
    fallen: Collection[int] = (),
    *,
    without: Collection[str] = (),
) -> bool:
    """The pod may go there, also when those have come, and count for everything, who were promised room there before it. Not if that is not certain:
    its devices may never get ready, and nobody is told when a volume on the node is not counted any more."""
    if (
        awaits_device(cluster, pod)
        or has_lost_claims(cluster, pod, node)
        or misfit(cluster, pod, node, fallen=fallen, without=without)
    ):
        return False
    guests = _promised(cluster, pod, node)
    for guest in guests:
        guest.reserved = node.name
    found = not guests or not misfit(cluster, pod, node, fallen=fallen, without=without)
    for guest in guests:
        guest.reserved = ""
    return found


def _promised(cluster: SeenCluster, pod: SeenPod, node: SeenNode) -> list[SeenPod]:
    return [
        p
        for p in cluster.pods.values()
        if p is not pod and p.is_pending and not p.place and p.nominated == node.name
        if p.priority >= pod.priority
    ]


# --- the node by itself -------------------------------------------------------------------------------------------------


def _closed(pod: SeenPod, node: SeenNode) -> str:
    """A cordon, or a taint that the pod does not tolerate."""
    spec = node.obj.spec
    if spec.unschedulable and not _tolerates(pod, UNSCHEDULABLE, "", "NoSchedule"):
        return "the node is cordoned"
    for taint in spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(
            pod, taint.key, taint.value, taint.effect
        ):
            return f"the node has the taint {taint.key}"
    return ""


def _tolerates(pod: SeenPod, key: str, value: str, effect: str) -> bool:
    return any(
        t.effect in ("", effect)
        and t.key in ("", key)
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == value and t.key == key))
        for t in pod.obj.spec.tolerations
    )


def admits(pod: SeenPod, node: SeenNode) -> bool:
    """Node selector and required node affinity."""
    spec = pod.obj.spec
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_holds(term, node.labels) for term in affinity.required.node_selector_terms)


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    assert not term.match_fields, "no story selects nodes by a field"
    return bool(term.match_expressions) and all(
        _holds(r.key, r.operator, r.values, labels) for r in term.match_expressions
    )


def _holds(key: str, operator: str, values: Collection[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            raise AssertionError(f"no story uses {operator}")


def _wrong_kind(pod: SeenPod, node: SeenNode) -> str:
    return "" if admits(pod, node) else "the node is not of the kind that the pod asks for"


def _no_room(pod: SeenPod, node: SeenNode, there: Collection[SeenPod]) -> str:
    if len(there) + 1 > node.pods:
        return f"there are {len(there)} pods on the node already, it takes {node.pods}"
    # Who asks for nothing fits even where others take too much.
    if pod.cpu and sum(p.cpu for p in there) + pod.cpu > node.cpu:
        return f"cpu: {sum(p.cpu for p in there)} + {pod.cpu} > {node.cpu}"
    if pod.memory and sum(p.memory for p in there) + pod.memory > node.memory:
        return f"memory: {sum(p.memory for p in there)} + {pod.memory} > {node.memory}"
    for other in there:
        if set(other.ports) & set(pod.ports):
            return f"{other.key} has the same host port"
    return ""


# --- the others -----------------------------------------------------------------------------------------------------------


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An absent selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _holds(r.key, r.operator, r.values, labels) for r in selector.match_expressions
    )


def _is_about(term: PodAffinityTerm, owner: SeenPod, other: SeenPod) -> bool:
    assert term.namespace_selector is None
    return other.namespace in (term.namespaces or (owner.namespace,)) and selects(
        term.label_selector, other.labels
    )


def _repelled_by(pod: SeenPod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.obj.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()


def is_attracted(pod: SeenPod) -> bool:
    """It has required affinity to other pods."""
    return bool(_attracted_by(pod))


def _attracted_by(pod: SeenPod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.obj.spec.affinity
    return affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()


def _domain(cluster: SeenCluster, node: str, key: str) -> str | None:
    found = cluster.nodes.get(node)
    return None if found is None else found.labels.get(key)


def _too_near(cluster: SeenCluster, pod: SeenPod, node: SeenNode, others: Iterable[SeenPod]) -> str:
    """Anti-affinity, the pod's own and the others'."""
    mine = _repelled_by(pod)
    for other in others:
        for owner, about, terms in ((pod, other, mine), (other, pod, _repelled_by(other))):
            for term in terms:
                here = node.labels.get(term.topology_key)
                if here is not None and _domain(cluster, other.place, term.topology_key) == here:
                    if _is_about(term, owner, about):
                        return f"{owner.key} must not be near {about.key} ({term.topology_key})"
    return ""


def _too_far(cluster: SeenCluster, pod: SeenPod, node: SeenNode, others: Collection[SeenPod]) -> str:
    """Affinity: somebody who meets all terms is in each term's domain; the first of its kind may go where the keys are."""
    terms = _attracted_by(pod)
    if not terms:
        return ""
    if any(term.topology_key not in node.labels for term in terms):
        return "the node lacks a topology key of the pod's affinity"
    good = [p for p in others if all(_is_about(term, pod, p) for term in terms)]
    met = [
        any(_domain(cluster, p.place, term.topology_key) == node.labels[term.topology_key] for p in good)
        for term in terms
    ]
    if all(met):
        return ""
    anywhere = any(_domain(cluster, p.place, term.topology_key) is not None for p in good for term in terms)
    if not anywhere and all(_is_about(term, pod, pod) for term in terms):
        return ""
    return "nobody whom the pod's affinity asks for is near"


def _skewed(
    cluster: SeenCluster, pod: SeenPod, node: SeenNode, others: Collection[SeenPod], fallen: Collection[int]
) -> str:
    """Topology spread."""
    hard = [
        c
        for i, c in enumerate(pod.obj.spec.topology_spread_constraints)
        if c.when_unsatisfiable == "DoNotSchedule" and i not in fallen
    ]
    counted = [n for n in cluster.nodes.values() if all(c.topology_key in n.labels for c in hard)]
    for constraint in hard:
        key = constraint.topology_key
        if key not in node.labels:
            return f"the node is in no domain of {key}"
        counts = _counts(pod, constraint, counted, others)
        enough = len(counts) >= (constraint.min_domains or 1)
        least = min(counts.values()) if counts and enough else 0
        itself = selects(constraint.label_selector, pod.labels)
        if counts.get(node.labels[key], 0) + itself - least > constraint.max_skew:
            return f"{key} {node.labels[key]} would be out of balance: {counts}"
    return ""


def _counts(
    pod: SeenPod, constraint: TopologySpreadConstraint, nodes: Iterable[SeenNode], others: Iterable[SeenPod]
) -> dict[str, int]:
    counts: dict[str, int] = {}
    domains: dict[str, str] = {}
    for node in nodes:
        if constraint.node_affinity_policy != "Ignore" and not admits(pod, node):
            continue
        if constraint.node_taints_policy == "Honor" and any(
            t.effect in ("NoSchedule", "NoExecute") and not _tolerates(pod, t.key, t.value, t.effect)
            for t in node.obj.spec.taints
        ):
            continue
        domains[node.name] = domain = node.labels[constraint.topology_key]
        counts.setdefault(domain, 0)
    for other in others:
        if other.place in domains and not other.terminating and other.namespace == pod.namespace:
            counts[domains[other.place]] += selects(constraint.label_selector, other.labels)
    return counts
