"""How the volume plugins look up a pod's claims, and the words that they have in common."""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.volumes import claim_uses, is_made_for
from tidelog.framework.events import Hint, WaitingPod
from tidelog.framework.interface import Code, Status
from tidelog.framework.storage import Storage

NO_NAME = "PersistentVolumeClaim had no name"


def not_found(name: str) -> str:
    """As kube-scheduler's listers say it."""
    return f'persistentvolumeclaim "{name}" not found'


def not_owner(claim: str, pod: Pod) -> str:
    """The claim of an ephemeral volume is somebody else's."""
    meta = pod.metadata
    return f"PVC {meta.namespace}/{claim} was not created for pod {meta.namespace}/{meta.name} (pod is not owner)"


def error(text: str) -> Status:
    """Not a rejection: the attempt fails."""
    return Status(Code.ERROR, (text,))


class LookupFailed(Exception):
    """A claim of a pod cannot be had; the status says what that means."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


def mounted_names(pod: Pod) -> list[str]:
    """Names of the claims of `persistentVolumeClaim` volumes, a name for each volume; ephemeral volumes are left out."""
    return [use.claim for use in claim_uses(pod) if not use.is_ephemeral]


def made_for(pod: Pod, name: str, is_ephemeral: bool, storage: Storage) -> PersistentVolumeClaim | None:
    """The claim of one of the pod's volumes, None if it is missing. Raises LookupFailed if it belongs to another pod."""
    found = storage.claim(pod.metadata.namespace, name)
    if found is not None and is_ephemeral and not is_made_for(found, pod):
        raise LookupFailed(error(not_owner(name, pod)))
    return found


def queue_if(condition: bool) -> Hint:
    """A hint's answer."""
    return Hint.QUEUE if condition else Hint.SKIP


def concerns_claim(
    waiting: WaitingPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> Hint:
    """The claim is one of the pod's, those of ephemeral volumes included."""
    pod, meta = waiting.pod, new.metadata
    mine = pod.metadata.namespace == meta.namespace and any(use.claim == meta.name for use in claim_uses(pod))
    return queue_if(mine)


def concerns_mounted_claim(
    waiting: WaitingPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> Hint:
    """The claim is one that a `persistentVolumeClaim` volume of the pod names."""
    pod, meta = waiting.pod, new.metadata
    return queue_if(pod.metadata.namespace == meta.namespace and meta.name in mounted_names(pod))
