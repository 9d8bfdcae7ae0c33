"""The controllers of workloads: Deployments, ReplicaSets, StatefulSets and Jobs become pods, and what nobody owns any more goes.

    Deployment ──► the ReplicaSet of its template ──► pods          replicas, at once: nothing of a rollout
    StatefulSet ──► pods with ordinals, one after the other, or all with podManagementPolicy Parallel
    Job ──► as many pods as parallelism and completions ask for, until enough have succeeded or too many failed

Small on purpose: what a scheduler's decisions depend on (labels, owners, ordinals, how many, when). Templates are in the fields that the scheduler
does not read; so what is applied has to come through `tidelog serve`, which keeps them.

A look at an owner costs the pods of the cluster. Looks come at whole multiples of a fifth of a second, so that a thousand pods that start
together are one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import KIND_OF_TYPE, object_key
from tidelog.api.objects import (
    ClaimVolume,
    Deployment,
    Job,
    Object,
    ObjectMeta,
    OwnerReference,
    Pod,
    ReplicaSet,
    StatefulSet,
    Volume,
)
from tidelog.api.pod_status import GRACE_SECONDS, is_terminal
from tidelog.api.storage import PersistentVolumeClaim, PersistentVolumeClaimStatus
from tidelog.api.times import NANOS, format_time
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, delete, put
from tidelog.eventlog.records import Body, Draft, ObjectDeleted, ObjectPut, Record
from tidelog.framework.disruption_budgets import is_ready
from tidelog.kube.opaque import dumped, left_over, read

LOOK = "look at the owner"
COLLECT = "collect what nobody owns"
PERIOD = NANOS // 5
OWNERS = ("Deployment", "ReplicaSet", "StatefulSet", "Job")
OWNED = ("ReplicaSet", "Pod")
HASH_LABEL = "pod-template-hash"
REPLICAS_MAX = 100_000
"""More pods than this are not made for one owner; arbitrary."""
PODS_PER_LOOK = 500
"""So many are made or ended at a time."""
BACKOFF_LIMIT = 6
"""So many pods of a Job may fail, if it does not say how many."""


class WorkloadControllerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nothing can be set."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken: none."""
        return iter(())


class WorkloadController:
    """Implements `tidelog.daemon.actors.protocol.Actor`. It keeps who owns which pod, to know whose it was when it is gone."""

    name = "workload-controller"
    Settings = WorkloadControllerSettings

    def __init__(self, settings: WorkloadControllerSettings | None = None) -> None:
        self._owner_of: dict[str, str] = {}
        """Key of what is owned → key of its owner."""

    # --- the actor's part -----------------------------------------------------------------------------------------------

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        self._owner_of = {}
        for kind in OWNED:
            for obj in objects.of_kind(kind):
                if owner := owner_key(obj):
                    self._owner_of[object_key(obj)] = owner
        looks = [_look(object_key(obj), at, seq) for kind in OWNERS for obj in objects.of_kind(kind)]
        return [*looks, Errand(_next(at), COLLECT, "", seq)]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        kind, _, _ = record.key.partition("/")
        found: list[Errand] = []
        if kind in OWNED and isinstance(body, ObjectPut | ObjectDeleted):
            obj = objects.get(record.key)
            before = self._owner_of.pop(record.key, "")
            now = "" if obj is None else owner_key(obj)
            if now:
                self._owner_of[record.key] = now
            found += [_look(owner, record.at, record.seq) for owner in dict.fromkeys((before, now)) if owner]
        if kind in OWNERS:
            if isinstance(body, ObjectDeleted):
                found.append(Errand(_next(record.at), COLLECT, "", record.seq))
            elif isinstance(body, ObjectPut):
                found.append(_look(record.key, record.at, record.seq))
        return found

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        if errand.what == COLLECT:
            return Deeds(_collected(objects, at))
        owner = objects.get(errand.key)
        if owner is None or owner.metadata.deletion_timestamp:
            return NOTHING
        look = _Look(owner, errand.key, objects, at)
        match owner:
            case Deployment():
                look.deployment(owner)
            case ReplicaSet():
                look.replica_set(owner)
            case StatefulSet():
                look.stateful_set(owner)
            case Job():
                look.job(owner)
        again = (Errand(at + PERIOD, LOOK, errand.key, errand.cause),) if look.is_unfinished else ()
        return Deeds(look.drafts, again)


def _next(at: int) -> int:
    return -(-at // PERIOD) * PERIOD


def _look(key: str, at: int, seq: int) -> Errand:
    return Errand(_next(at), LOOK, key, seq)


def controller_of(obj: Object) -> OwnerReference | None:
    """The owner that controls it."""
    return next((owner for owner in obj.metadata.owner_references if owner.controller), None)


def owner_key(obj: Object) -> str:
    """The key of the owner that controls it, if it is one of ours; empty otherwise."""
    owner = controller_of(obj)
    if owner is None or owner.kind not in OWNERS:
        return ""
    return f"{owner.kind}/{obj.metadata.namespace}/{owner.name}"


def _collected(objects: Objects, at: int) -> list[Draft]:
    """The end of everything whose owner is gone, or is another one of its name."""
    drafts: list[Draft] = []
    for kind in OWNED:
        for obj in objects.of_kind(kind):
            key, owner = owner_key(obj), controller_of(obj)
            if not key or owner is None or obj.metadata.deletion_timestamp:
                continue
            found = objects.get(key)
            if found is None or found.metadata.uid != owner.uid:
                drafts.append(_end(obj, at))
    return drafts


def _end(obj: Object, at: int) -> Draft:
    """As if somebody deleted it: a pod on a node is left to its node agent."""
    if not isinstance(obj, Pod) or not obj.spec.node_name or is_terminal(obj):
        return delete(obj)
    grace = obj.spec.termination_grace_period_seconds
    grace = GRACE_SECONDS if grace is None else grace
    due = format_time(at + grace * NANOS)
    meta = replace(obj.metadata, deletion_timestamp=due, deletion_grace_period_seconds=grace)
    return put(replace(obj, metadata=meta))


class _Look:
    """One look at one owner."""

    def __init__(self, owner: Object, key: str, objects: Objects, at: int) -> None:
        self.drafts: list[Draft] = []
        self.is_unfinished = False
        self._owner = owner
        self._key = key
        self._objects = objects
        self._at = at
        self._rest = read(objects.opaque(key))

    # --- kinds ------------------------------------------------------------------------------------------------------------

    def deployment(self, owner: Deployment) -> None:
        """One ReplicaSet has the Deployment's template and its number; all others have none."""
        template = self._template()
        if template is None:
            return
        sets = [obj for obj in self._owned("ReplicaSet") if isinstance(obj, ReplicaSet)]
        label = _hash(template)
        wanted = self._wanted(owner.spec.replicas)
        name = f"{owner.metadata.name}-{label}"
        current = next((found for found in sets if found.metadata.name == name), None)
        for found in sets:
            number = wanted if found is current else 0
            if found.spec.replicas != number:
                self._put(replace(found, spec=replace(found.spec, replicas=number)))
        if current is None:
            self._put_set(owner, name, label, wanted, template)
        ready = sum(self._status_of(found).get("readyReplicas", 0) for found in sets)
        have = sum(self._status_of(found).get("replicas", 0) for found in sets)
        updated = 0 if current is None else self._status_of(current).get("replicas", 0)
        self._state(replicas=have, updatedReplicas=updated, readyReplicas=ready, availableReplicas=ready)

    def _put_set(
        self, owner: Deployment, name: str, label: str, wanted: int, template: dict[str, Any]
    ) -> None:
        meta = template.get("metadata") or {}
        labels = {**(meta.get("labels") or {}), HASH_LABEL: label}
        selector = owner.spec.selector
        if selector is not None:
            selector = replace(selector, match_labels={**selector.match_labels, HASH_LABEL: label})
        made = ReplicaSet(
            metadata=self._owned_meta(name=name, labels=labels),
            spec=replace(owner.spec, replicas=wanted, selector=selector),
        )
        inner = {**template, "metadata": {**meta, "labels": labels}}
        text = dumped({"spec": {"template": inner}})
        self.drafts.append(Draft(body=ObjectPut(object=made, opaque=text), author="", key=object_key(made)))

    def replica_set(self, owner: ReplicaSet) -> None:
        """As many pods as it wants, all alike."""
        pods = self._pods()
        active = [pod for pod in pods if not is_terminal(pod) and not pod.metadata.deletion_timestamp]
        wanted = self._wanted(owner.spec.replicas)
        if len(active) < wanted:
            for _ in range(self._as_many(wanted - len(active))):
                self._make(generate_name=f"{owner.metadata.name}-")
        elif len(active) > wanted:
            # Those go first that run nowhere, then the youngest.
            order = sorted(active, key=_keep_rank)
            for pod in order[: self._as_many(len(active) - wanted)]:
                self.drafts.append(_end(pod, self._at))
        ready = sum(map(is_ready, active))
        self._state(
            replicas=len(active),
            fullyLabeledReplicas=len(active),
            readyReplicas=ready,
            availableReplicas=ready,
        )

    def stateful_set(self, owner: StatefulSet) -> None:
        """Pods by their ordinals; each waits until the one before it is ready, unless they are made in parallel."""
        pods = {pod.metadata.name: pod for pod in self._pods()}
        wanted = self._wanted(owner.spec.replicas)
        spec = self._rest.get("spec") or {}
        in_turn = spec.get("podManagementPolicy") != "Parallel"
        start = (spec.get("ordinals") or {}).get("start", 0)
        made = 0
        for ordinal in range(start, start + wanted):
            name = f"{owner.metadata.name}-{ordinal}"
            pod = pods.get(name)
            if pod is None:
                if made == PODS_PER_LOOK:
                    self.is_unfinished = True
                    break
                made += 1
                labels = {
                    "statefulset.kubernetes.io/pod-name": name,
                    "apps.kubernetes.io/pod-index": str(ordinal),
                }
                self._make(name=name, labels=labels, volumes=self._volumes(owner, name))
            elif is_terminal(pod):
                self.drafts.append(_end(pod, self._at))
            if in_turn and (pod is None or not is_ready(pod) or pod.metadata.deletion_timestamp):
                break
        keep = {f"{owner.metadata.name}-{ordinal}" for ordinal in range(start, start + wanted)}
        extra = [
            pod for name, pod in pods.items() if name not in keep and not pod.metadata.deletion_timestamp
        ]
        for pod in sorted(extra, key=_ordinal, reverse=True)[: 1 if in_turn else self._as_many(len(extra))]:
            self.drafts.append(_end(pod, self._at))
        ready = sum(map(is_ready, pods.values()))
        self._state(
            replicas=len(pods), readyReplicas=ready, currentReplicas=len(pods), availableReplicas=ready
        )

    def _volumes(self, owner: StatefulSet, pod: str) -> tuple[Volume, ...]:
        """Those of the set's volumeClaimTemplates for this pod. A claim that is missing is made; nobody takes it back when the pod goes."""
        found = []
        for template in (self._rest.get("spec") or {}).get("volumeClaimTemplates") or ():
            try:
                claim = msgspec.convert(template, PersistentVolumeClaim)
            except msgspec.ValidationError:
                continue
            volume, meta = claim.metadata.name, owner.metadata
            name = f"{volume}-{pod}"
            labels = owner.spec.selector.match_labels if owner.spec.selector else {}
            made = ObjectMeta(
                name=name,
                namespace=meta.namespace,
                labels={**labels, **claim.metadata.labels},
                annotations=claim.metadata.annotations,
            )
            claim = replace(claim, metadata=made, status=PersistentVolumeClaimStatus())
            if self._objects.get(object_key(claim)) is None:
                self.drafts.append(put(claim))
            found.append(Volume(name=volume, persistent_volume_claim=ClaimVolume(claim_name=name)))
        return tuple(found)

    def job(self, owner: Job) -> None:
        """Pods until enough have succeeded."""
        spec, pods = owner.spec, self._pods()
        status = self._rest.get("status") or {}
        if any(
            one.get("status") == "True" and one.get("type") in ("Complete", "Failed")
            for one in status.get("conditions") or ()
        ):
            return
        succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
        failed = [pod for pod in pods if pod.status.phase == "Failed"]
        active = [pod for pod in pods if not is_terminal(pod) and not pod.metadata.deletion_timestamp]
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        done = len(succeeded)
        needed = parallelism if spec.completions is None else max(spec.completions - done, 0)
        if spec.completions is None and done:
            needed = len(active)
        limit = BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
        condition = ""
        if len(failed) > limit:
            condition, wanted = "Failed", 0
        elif (spec.completions is not None and not needed) or (
            spec.completions is None and done and not active
        ):
            condition, wanted = "Complete", 0
        else:
            wanted = 0 if spec.suspend else min(parallelism, needed, REPLICAS_MAX)
        free = _free_indexes(pods, spec.completions) if spec.completion_mode == "Indexed" else iter(())
        labels = {
            "batch.kubernetes.io/job-name": owner.metadata.name,
            "batch.kubernetes.io/controller-uid": owner.metadata.uid,
            "job-name": owner.metadata.name,
            "controller-uid": owner.metadata.uid,
        }
        for _ in range(self._as_many(max(wanted - len(active), 0))):
            index = next(free, None)
            more = {} if index is None else {_INDEX: str(index)}
            middle = "" if index is None else f"{index}-"
            self._make(
                generate_name=f"{owner.metadata.name}-{middle}", labels={**labels, **more}, annotations=more
            )
        for pod in sorted(active, key=_keep_rank)[: max(len(active) - wanted, 0)]:
            self.drafts.append(_end(pod, self._at))
        now = format_time(self._at // NANOS * NANOS)
        more_state: dict[str, Any] = {"startTime": status.get("startTime", now)}
        if condition:
            more_state["conditions"] = [{"type": condition, "status": "True", "lastTransitionTime": now}]
            if condition == "Complete":
                more_state["completionTime"] = now
        self._state(
            active=len(active),
            succeeded=done,
            failed=len(failed),
            ready=sum(map(is_ready, active)),
            **more_state,
        )

    # --- pods and objects -----------------------------------------------------------------------------------------------------

    def _template(self) -> dict[str, Any] | None:
        found = (self._rest.get("spec") or {}).get("template")
        return found if isinstance(found, dict) else None

    def _owned(self, kind: str) -> list[Object]:
        uid, namespace = self._owner.metadata.uid, self._owner.metadata.namespace
        return [
            obj
            for obj in self._objects.of_kind(kind)
            if obj.metadata.namespace == namespace
            and (owner := controller_of(obj)) is not None
            and owner.uid == uid
        ]

    def _pods(self) -> list[Pod]:
        return [pod for pod in self._owned("Pod") if isinstance(pod, Pod)]

    def _wanted(self, replicas: int | None) -> int:
        return min(1 if replicas is None else max(replicas, 0), REPLICAS_MAX)

    def _as_many(self, number: int) -> int:
        """Return this number, or the most that one look may make."""
        self.is_unfinished |= number > PODS_PER_LOOK
        return min(number, PODS_PER_LOOK)

    def _owned_meta(
        self,
        *,
        name: str = "",
        generate_name: str = "",
        labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
    ) -> ObjectMeta:
        kind, meta = KIND_OF_TYPE[type(self._owner)], self._owner.metadata
        owner = OwnerReference(
            api_version=kind.api_version, kind=kind.name, name=meta.name, uid=meta.uid, controller=True
        )
        return ObjectMeta(
            name=name,
            generate_name=generate_name,
            namespace=meta.namespace,
            labels=dict(labels),
            annotations=dict(annotations or {}),
            owner_references=(owner,),
        )

    def _make(
        self,
        *,
        name: str = "",
        generate_name: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        volumes: tuple[Volume, ...] = (),
    ) -> None:
        """A pod of the template, with these volumes in the place of its own of their names. Nothing, if there is no template."""
        template = self._template()
        if template is None:
            return
        meta = template.get("metadata") or {}
        manifest = {"spec": template.get("spec") or {}}
        try:
            pod = msgspec.convert(manifest, Pod)
            meta = self._owned_meta(
                name=name,
                generate_name=generate_name,
                labels={**(meta.get("labels") or {}), **(labels or {})},
                annotations={**(meta.get("annotations") or {}), **(annotations or {})},
            )
        except (msgspec.ValidationError, TypeError):
            return
        rest = left_over(manifest, Pod)
        named = {volume.name for volume in volumes}
        kept = tuple(volume for volume in pod.spec.volumes if volume.name not in named)
        pod = replace(pod, metadata=meta, spec=replace(pod.spec, volumes=(*kept, *volumes)))
        draft = Draft(
            body=ObjectPut(object=pod, opaque=dumped(rest) if rest else ""), author="", key=object_key(pod)
        )
        self.drafts.append(draft)

    def _put(self, obj: Object) -> None:
        meta = replace(obj.metadata, generation=obj.metadata.generation + 1)
        self.drafts.append(put(replace(obj, metadata=meta)))

    def _status_of(self, obj: Object) -> dict[str, Any]:
        found = read(self._objects.opaque(object_key(obj))).get("status")
        return found if isinstance(found, dict) else {}

    def _state(self, **status: Any) -> None:
        """Say in the owner's status how it stands, if that is something new."""
        wanted = {**status, "observedGeneration": self._owner.metadata.generation}
        if isinstance(self._owner, Job):
            del wanted["observedGeneration"]
        if (self._rest.get("status") or {}) == wanted:
            return
        text = dumped({**self._rest, "status": wanted})
        self.drafts.append(Draft(body=ObjectPut(object=self._owner, opaque=text), author="", key=self._key))


_INDEX = "batch.kubernetes.io/job-completion-index"


def _free_indexes(pods: Iterable[Pod], completions: int | None) -> Iterator[int]:
    """Those that no pod has that runs or has succeeded."""
    taken = {pod.metadata.annotations.get(_INDEX) for pod in pods if pod.status.phase != "Failed"}
    return (index for index in range(completions or 0) if str(index) not in taken)


def _keep_rank(pod: Pod) -> tuple[bool, bool, str]:
    """Smaller goes earlier."""
    youngest_first = "".join(chr(0x10FFFF - ord(char)) for char in pod.metadata.creation_timestamp)
    return bool(pod.spec.node_name), is_ready(pod), youngest_first + pod.metadata.name


def _ordinal(pod: Pod) -> int:
    number = pod.metadata.name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def _hash(template: Mapping[str, Any]) -> str:
    """Ten characters that stand for a template."""
    number = int(hashlib.sha256(dumped(template).encode()).hexdigest(), 16)
    text = ""
    for _ in range(10):
        number, place = divmod(number, len(_LETTERS))
        text += _LETTERS[place]
    return text
