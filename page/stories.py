"""The stories of all pods of a log, told in one pass: what `tidelog why` tells of one.

Each pod has its teller (`tidelog.replay.story`), and hears only what may be about it. Costs a few microseconds a record, and some three
kilobytes a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.eventlog.records import Body, Nominated, Record, Scheduled
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, pod_uid
from tidelog.replay.choice import NodeChoice, choice_of, placement_of
from tidelog.replay.story import PodStory, Teller
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt

VERDICTS_MAX = 400_000
"""So many nodes are scored anew, summed over the pods whose choice is told; arbitrary, some tens of seconds."""


class Stories:
    """Listens to a playback. `core` has consumed everything before its first record."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tellers = {
            key: Teller(core, key, listens=False) for key in core.objects if key.startswith("Pod/")
        }
        self._heard: dict[str, None] = {}
        self.choices: dict[str, NodeChoice] = {}
        """Pod → why it is on its node, as far as that was computed."""
        self.unscored = 0
        """How many placed pods have none."""
        self._verdicts = VERDICTS_MAX

    # --- what the queue tells (QueueObserver) -------------------------------------------------------------------------

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        """Hand the answer to the pod's teller."""
        teller = self._of(f"Pod/{waiting.key}")
        teller.hint_answered(waiting, plugin, event, answer)

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        """Hand the move to the pod's teller, or to those of the group's members."""
        names = entity.members if isinstance(entity, QueuedGroup) else (entity.key,)
        for name in names:
            self._of(f"Pod/{name}").entered(entity, event)

    def _of(self, key: str) -> Teller:
        self._heard[key] = None
        return self._teller(key)

    def _teller(self, key: str) -> Teller:
        found = self._tellers.get(key)
        if found is None:
            found = self._tellers[key] = Teller(self._core, key, listens=False, is_new=True)
        return found

    # --- records ------------------------------------------------------------------------------------------------------

    def hear(self, record: Record, body: Body | None) -> None:
        """Tell everybody whom the record, which has been consumed, may be about."""
        keys = self._heard
        self._heard = {}
        keys.update(dict.fromkeys(_concerned(record, body)))
        if record.kind == "ConfigurationLoaded":
            keys.update(dict.fromkeys(self._tellers))
        for key in keys:
            self._teller(key).hear(record)

    def made(self, attempt: RecordedAttempt) -> None:
        """Compute why pods were placed where they were. The core is in the state in which the attempt was made."""
        for record, body in attempt.outcomes:
            if isinstance(body, Nominated):
                self._teller(record.key).hear(attempt)
            pod = self._core.cluster.pod(record.key)
            if pod is None or placement_of(attempt, record.key) is None:
                continue
            if isinstance(body, Scheduled) and self._core.permit_of(pod_uid(pod)) is not None:
                continue  # The node was chosen when the wait began.
            nodes = len(self._core.cluster.cache)
            # Half of the room is for pods that had to wait: it is those that are asked about.
            waiting = self._core.queue.get(record.key.partition("/")[2])
            tried_before = waiting is not None and waiting.attempts > 0
            if self._verdicts - nodes < (0 if tried_before else VERDICTS_MAX // 2):
                self.unscored += 1
                continue
            self._verdicts -= nodes
            choice = choice_of(self._core, attempt, record.key)
            if choice is not None:
                self.choices[record.key] = choice

    def told(self) -> Iterator[tuple[str, PodStory]]:
        """Yield the name of each pod and its story."""
        for key, teller in self._tellers.items():
            yield key.partition("/")[2], teller.told()


def _concerned(record: Record, body: Body | None) -> Iterable[str]:
    keys = [
        record.key,
        getattr(body, "preemptor", ""),
        *getattr(body, "assignment", ()),
        *getattr(body, "members", ()),
    ]
    keys += getattr(body, "victims", ())
    return (key for key in keys if key.startswith("Pod/"))
