"""Follows a log and judges each decision that shows in it, as soon as enough is known of what came after.

    follower = Follower(registry)
    for record in records:
        for judged in follower.take(record): …
    for judged in follower.finish(): …

Decisions show in the pods' own versions: `nodeName` appears, PodScheduled=False comes with another message. Half a second of the log is
looked ahead, because pods may have been assumed whose bindings show later; so the verdicts come as much later, online as well as from a file.
The same records give the same verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.api.objects import Object, Pod, pod_condition
from tidelog.api.pod_status import is_preempted, is_terminal
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.attachment import Attachment, attached
from tidelog.eventlog.records import (
    Body,
    ClusterAttached,
    KindGap,
    KindSynced,
    ObjectPut,
    Record,
    Scheduled,
    decode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import pod_uid
from tidelog.replay.foreign import rejection_shown
from tidelog.replay.shadow.group_judge import GroupJudge, is_about_group
from tidelog.replay.shadow.judge import BindingJudge, ModeVerdict, RejectionJudge
from tidelog.replay.shadow.messages import parsed
from tidelog.replay.shadow.world import AHEAD_TIME, ShadowWorld, WorldEntry
from tidelog.scheduler.cluster import wants_node
from tidelog.scheduler.groups.group import group_name, record_key

VOLUME_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
DEVICE_KINDS = ("ResourceClaim", "ResourceSlice", "DeviceClass")
GROUP_TIME = NANOS // 4
"""The members of a rejected group are told one after the other, within so long."""


class JudgedDecision(NamedTuple):
    """One decision, and what it is."""

    seq: int
    """The record in which it shows."""
    at: int
    what: str
    """`binding`, `rejection`, `group`."""
    key: str
    uid: str
    node: str
    verdict: str
    upstream: ModeVerdict
    default: ModeVerdict
    waited: int = -1
    """Nanoseconds from the pod's first version in the log to its binding; -1: not known."""


CATCH_UP_TIME = 5 * NANOS
_NONE = ModeVerdict("")
_UNORDERED = ModeVerdict("unordered", reason="it shows while the log was catching up with the server")


class Follower:
    """The judge of a whole log."""

    def __init__(self, registry: Registry) -> None:
        self.world = ShadowWorld(registry)
        self.attachment: Attachment | None = None
        self._created: dict[str, int] = {}
        """Uid of each pending pod → when the log first had it."""
        self._accounted: dict[str, frozenset[str]] = {}
        """Uids of members of groups whose group's cycle was judged → nodes of its placement, until their bindings have come."""
        self._told: dict[str, tuple[int, GroupJudge]] = {}
        """Group → until when what its members are told belongs to the rejection that was judged, and by whom it was."""
        self._behind: set[str] = set()
        """Kinds whose events are not in the cluster's order, or not all there."""
        self._behind_until = 0
        """A resumed watch brings first what happened while nobody looked; that is over after a while."""
        self._own: set[str] = set()
        """Keys of pods that this log's own scheduler placed."""

    def begin(
        self,
        configuration: SchedulerConfiguration | None,
        objects: Iterable[Object],
        attachment: Attachment | None,
    ) -> None:
        """Begin in the middle of a log, with what it comes to up to there."""
        self.attachment = attachment
        if attachment is not None:
            self._behind = {kind for kind in attachment.kinds if kind not in attachment.positions}
        self.world.begin(configuration, objects)

    def take(self, record: Record, body: Body | None = None) -> Iterator[JudgedDecision]:
        """The next record; yields what can be judged now."""
        self.world.coming.append(WorldEntry(record, decode_body(record) if body is None else body))
        yield from self._go_on(record.at - AHEAD_TIME)

    def pass_time(self, now: int) -> Iterator[JudgedDecision]:
        """There was no record up to this moment; yields what can be judged without waiting for one."""
        yield from self._go_on(now - AHEAD_TIME)

    def finish(self) -> Iterator[JudgedDecision]:
        """There are no more records."""
        yield from self._go_on(None)

    def _go_on(self, until: int | None) -> Iterator[JudgedDecision]:
        coming = self.world.coming
        while coming:
            entry = coming[0]
            new = entry.body.object if isinstance(entry.body, ObjectPut) else None
            if isinstance(new, Pod) and self.world.frameworks:
                # Only what shows a decision has to wait for what comes after it.
                if until is not None and entry.record.at > until and self._shows(entry, new):
                    return
                yield from self._judge(entry.record, new)
            self._note(entry)
            self.world.advance()

    def _shows(self, entry: WorldEntry, new: Pod) -> bool:
        old = self.world.pod(entry.record.key, pod_uid(new))
        return _binds(old, new) or rejection_shown(old, new) is not None

    def _note(self, entry: WorldEntry) -> None:
        record, body = entry
        self.attachment = attached(self.attachment, record.key, body)
        if isinstance(body, ClusterAttached):
            self._behind = set(body.kinds)
        elif isinstance(body, KindGap):
            self._behind.add(body.kind)
        elif isinstance(body, KindSynced):
            self._behind.discard(body.kind)
            if body.how == "resume":
                self._behind_until = record.at + CATCH_UP_TIME
        if isinstance(body, Scheduled):
            self._own.add(record.key)
        if not isinstance(body, ObjectPut) or not isinstance(body.object, Pod):
            return
        uid = pod_uid(body.object)
        if wants_node(body.object):
            self._created.setdefault(uid, record.at)
        else:
            self._created.pop(uid, None)
            self._accounted.pop(uid, None)

    # --- what shows ---------------------------------------------------------------------------------------------------

    def _judge(self, record: Record, new: Pod) -> Iterator[JudgedDecision]:
        old = self.world.pod(record.key, pod_uid(new))
        if _binds(old, new):
            yield from self._binding(record, old, new)
            return
        message = rejection_shown(old, new)
        if message is not None and new.spec.scheduler_name in self.world.frameworks["upstream"]:
            yield from self._rejection(record, old or new, new, message)

    def _binding(self, record: Record, old: Pod | None, new: Pod) -> Iterator[JudgedDecision]:
        uid, node = pod_uid(new), new.spec.node_name

        def judged(upstream: ModeVerdict, default: ModeVerdict = _NONE) -> JudgedDecision:
            waited = record.at - self._created[uid] if uid in self._created else -1
            return JudgedDecision(
                record.seq,
                record.at,
                "binding",
                record.key,
                uid,
                node,
                upstream.verdict,
                upstream,
                default,
                waited,
            )

        behind = self._is_behind(record.at)
        if old is None:
            if not behind:
                yield judged(ModeVerdict("foreign", reason="it had its node when it was first seen"))
            return
        if record.key in self._own:
            return
        if behind:
            yield judged(_UNORDERED)
            return
        if old.spec.scheduler_name not in self.world.frameworks["upstream"]:
            yield judged(ModeVerdict("foreign", reason=f"of scheduler {old.spec.scheduler_name}"))
            return
        needs = self._unsupported(old)
        if needs:
            yield judged(ModeVerdict("unsupported", reason=needs))
            return
        if group_name(old) and uid not in self._accounted:
            yield from self._placed_group(record, old, new)
        within = self._accounted.get(uid, frozenset())
        yield judged(*BindingJudge(self.world, old, node, record.at, within).judge())

    def _placed_group(self, record: Record, old: Pod, new: Pod) -> Iterator[JudgedDecision]:
        name = group_name(old)
        placed = {pod_uid(old): new.spec.node_name}
        for pod, node in self.world.following_bindings(frozenset(placed)):
            if group_name(pod.pod) == name and self.world.pod(f"Pod/{pod.key}", pod.uid) is not None:
                placed[pod.uid] = node
        judge = GroupJudge(self.world, name, old.spec.scheduler_name, record.at, placed)
        verdicts = judge.judge()
        self._accounted.update(dict.fromkeys(placed, judge.nodes))
        yield self._of_group(record, name, "placed", verdicts)

    def _rejection(self, record: Record, old: Pod, new: Pod, message: str) -> Iterator[JudgedDecision]:
        uid, name = pod_uid(new), group_name(new)

        def judged(upstream: ModeVerdict, default: ModeVerdict = _NONE) -> JudgedDecision:
            return JudgedDecision(
                record.seq,
                record.at,
                "rejection",
                record.key,
                uid,
                new.status.nominated_node_name,
                upstream.verdict,
                upstream,
                default,
            )

        needs = self._unsupported(old)
        if self._is_behind(record.at):
            yield judged(_UNORDERED)
        elif needs:
            yield judged(ModeVerdict("unsupported", reason=needs))
        elif name:
            if name not in self._told or self._told[name][0] < record.at:
                yield self._rejected_group(record, name, old.spec.scheduler_name, message)
            yield judged(self._of_member(name, new, message))
        else:
            yield judged(
                *RejectionJudge(self.world, old, message, record.at, self._evicted(record.at)).judge()
            )

    def _rejected_group(self, record: Record, name: str, profile: str, message: str) -> JudgedDecision:
        until = record.at + GROUP_TIME
        told = [message]
        for entry in self.world.coming:
            obj = entry.body.object if isinstance(entry.body, ObjectPut) else None
            if isinstance(obj, Pod) and group_name(obj) == name and entry.record.at <= until:
                condition = pod_condition(obj, "PodScheduled")
                told.append("" if condition is None else condition.message)
        judge = GroupJudge(self.world, name, profile, record.at, {}, told)
        found = self._of_group(record, name, "rejected", judge.judge())
        self._told[name] = (until, judge)
        return found

    def _of_member(self, name: str, pod: Pod, message: str) -> ModeVerdict:
        """Return the reason that one member of a rejected group was told: of the group, or why it found no node itself."""
        if is_about_group(message):
            return ModeVerdict("ofGroup", reason=message)
        ours = self._told[name][1].steps.get(f"{pod.metadata.namespace}/{pod.metadata.name}", [])
        if parsed(message) in map(parsed, ours):
            return ModeVerdict("agreed")
        return ModeVerdict(
            "differs", reason="; ".join(dict.fromkeys(ours)) or "our cycle did not try this member"
        )

    def _of_group(
        self, record: Record, name: str, what: str, verdicts: tuple[ModeVerdict, ModeVerdict]
    ) -> JudgedDecision:
        upstream, default = verdicts
        return JudgedDecision(
            record.seq, record.at, "group", record_key(name), "", what, upstream.verdict, upstream, default
        )

    # --- what is known besides ----------------------------------------------------------------------------------------

    def _is_behind(self, at: int) -> bool:
        """The log is catching up with the server. A log without a session never is."""
        return bool(self._behind) or at < self._behind_until

    def _unsupported(self, pod: Pod) -> str:
        """Return the objects that the pod needs and the log does not have."""
        spec = pod.spec
        volumes = any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in spec.volumes)
        if volumes and not self._has(VOLUME_KINDS):
            return "it uses volumes, which are not recorded"
        if spec.resource_claims and not self._has(DEVICE_KINDS):
            return "it uses devices, which are not recorded"
        framework = self.world.frameworks["upstream"].get(spec.scheduler_name)
        status = None if framework is None else self.world.gates[spec.scheduler_name].pre_enqueue(pod)
        return "" if status is None else status.message

    def _has(self, kinds: tuple[str, ...]) -> bool:
        return self.attachment is not None and all(kind in self.attachment.positions for kind in kinds)

    def _evicted(self, at: int) -> list[Pod]:
        """Return the pods asked to go to make room, not long before or after."""
        found: dict[str, Pod] = {}
        for step in self.world.recent(at - AHEAD_TIME):
            if isinstance(step.new, Pod) and is_preempted(step.new):
                before = step.old if isinstance(step.old, Pod) else step.new
                if not is_preempted(before):
                    found.setdefault(pod_uid(before), before)
        for entry in self.world.coming:
            obj = entry.body.object if isinstance(entry.body, ObjectPut) else None
            if entry.record.at <= at + AHEAD_TIME and isinstance(obj, Pod) and is_preempted(obj):
                known = self.world.pod(entry.record.key, pod_uid(obj))
                if known is not None and not is_preempted(known):
                    found.setdefault(pod_uid(known), known)
        return list(found.values())


def _binds(old: Pod | None, new: Pod) -> bool:
    return bool(new.spec.node_name) and not is_terminal(new) and (old is None or not old.spec.node_name)
