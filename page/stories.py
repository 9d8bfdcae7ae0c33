"""The stories of all pods of a log, told in one pass: what `tidelog why` tells of one.

Each pod has its teller (`tidelog.replay.story`), and hears only what may be about it. Costs a few microseconds a record, and some three
kilobytes a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.eventlog.records import Body, Record
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.replay.story import PodStory, Teller
from tidelog.scheduler.core import Core


class Stories:
    """Listens to a playback. `core` has consumed everything before its first record."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tellers = {
            key: Teller(core, key, listens=False) for key in core.objects if key.startswith("Pod/")
        }
        self._heard: dict[str, None] = {}

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
