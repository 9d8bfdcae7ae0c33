"""Events about what the scheduler decides, so that `kubectl describe pod` and `kubectl get events` say it: made of the log's outcomes as they come.

They are in memory like all events; the same thing said again of a pod is one event with a count. The truth is the log (`tidelog why`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tidelog.api.admission import uid_of
from tidelog.api.cluster import Stamp
from tidelog.api.objects import Pod
from tidelog.api.times import NANOS, format_time
from tidelog.eventlog.records import Body, Evicted, Record, Scheduled, Unschedulable
from tidelog.kube.events import Saying, cut, preempted, rejected, scheduled
from tidelog.kube.serve.items import Item
from tidelog.kube.serve.memory import MemoryView
from tidelog.kube.serve.view import LogView

REMEMBERED = 4_096
"""So many that may be said again; arbitrary."""


class Telling:
    """Turns records into events."""

    def __init__(self, view: LogView, beside: MemoryView) -> None:
        self._pods = view.shelves["Pod"]
        self._beside = beside
        self._said: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """Pod's uid, reason and message → name of the event."""

    def note(self, record: Record, body: Body) -> None:
        """A record has been consumed."""
        match body:
            case Scheduled():
                _, namespace, name = record.key.split("/")
                self._say(record, record.key, scheduled(namespace, name, body.node))
            case Unschedulable(same_as=0):
                for key in body.members or (record.key,):
                    self._say(record, key, rejected(cut(body.message)))
            case Unschedulable():
                self._say(record, record.key, rejected(""))
            case Evicted():
                by = self._pod(body.preemptor)
                self._say(record, record.key, preempted("" if by is None else by.uid, body.node))

    def _pod(self, key: str) -> Item | None:
        kind, _, rest = key.partition("/")
        namespace, _, name = rest.partition("/")
        return self._pods.get(namespace, name) if kind == "Pod" else None

    def _say(self, record: Record, key: str, saying: Saying) -> None:
        """Without a note: what was said of this pod for this reason the last time."""
        item = self._pod(key)
        if item is None or not isinstance(item.typed, Pod):
            return
        now = format_time(record.at // NANOS * NANOS)
        reason, message = saying.reason, saying.note
        if not message:
            message = next(
                (text for uid, why, text in reversed(self._said) if (uid, why) == (item.uid, reason)), ""
            )
        said = (item.uid, reason, message)
        known = self._beside.shelves["Event"].get(item.namespace, self._said.get(said, ""))
        if known is not None:
            again = {**known.manifest, "count": known.manifest["count"] + 1, "lastTimestamp": now}
            again["metadata"] = dict(known.manifest["metadata"])
            self._beside.put("Event", again)
            return
        if not message:
            return
        self._beside.put("Event", _event(record, item, saying._replace(note=message), now))
        if saying.type != "Normal":
            self._said[said] = _name(record, item)
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)


def _name(record: Record, item: Item) -> str:
    return f"{item.name[:200]}.{record.seq:x}"


def _event(record: Record, item: Item, saying: Saying, now: str) -> dict[str, Any]:
    assert isinstance(item.typed, Pod)
    name = _name(record, item)
    scheduler = item.typed.spec.scheduler_name
    return {
        "metadata": {
            "name": name,
            "namespace": item.namespace,
            "uid": uid_of(f"Event/{item.namespace}/{name}", Stamp(seq=record.seq, at=record.at)),
            "creationTimestamp": now,
        },
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": item.namespace,
            "name": item.name,
            "uid": item.uid,
            "resourceVersion": str(item.revision),
        },
        "reason": saying.reason,
        "message": saying.note,
        "type": saying.type,
        "action": saying.action,
        "source": {"component": scheduler},
        "reportingComponent": scheduler,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
