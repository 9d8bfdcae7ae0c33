"""A gate that is always there: a pod that needs what nobody here looks after is not placed, and is told what that is.

Volumes and devices decide on which nodes a pod can run. A profile has a plugin for them if one registers for the events of their claims;
without one, a node chosen in ignorance would be wrong, and the pod would hang there. So such a pod stays out of the queues. It belongs to
no configuration, so that none can leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from tidelog.api.objects import Pod
from tidelog.framework.events import EventRegistration, Resource
from tidelog.framework.interface import Plugin, PreEnqueuePlugin, Status, unresolvable


class UnsupportedNeeds(Plugin):
    """Gates pods with claims that no plugin of their profile looks after."""

    name: ClassVar[str] = "UnsupportedNeeds"

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        looked_after = {
            registration.event.resource
            for plugin in plugins
            for registration in plugin.events_to_register() or ()
        }
        self._volumes = Resource.PERSISTENT_VOLUME_CLAIM in looked_after
        self._devices = Resource.RESOURCE_CLAIM in looked_after

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Names every need, not only the first."""
        needs = tuple(self._needs(pod))
        return unresolvable(*needs) if needs else None

    def events_to_register(self) -> list[EventRegistration]:
        """Nothing helps: what a pod needs never changes, and another configuration enlists it anew."""
        return []

    def _needs(self, pod: Pod) -> Iterator[str]:
        if not self._volumes:
            for volume in pod.spec.volumes:
                if volume.persistent_volume_claim is not None:
                    yield f"persistent volume claim {volume.name!r} is not supported"
                elif volume.ephemeral is not None:
                    yield f"ephemeral volume {volume.name!r} is not supported"
        if not self._devices:
            for claim in pod.spec.resource_claims:
                yield f"resource claim {claim.name!r} is not supported without a plugin for it in the profile"


_pre_enqueue: type[PreEnqueuePlugin] = UnsupportedNeeds
