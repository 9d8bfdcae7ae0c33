"""Plans for a pod's claims on one node."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.plugins.volumes.provisioning import Provision


class Binding(NamedTuple):
    """A volume that is there, and the claim that gets it."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


class Plan(NamedTuple):
    """In the order in which it is done."""

    bindings: tuple[Binding, ...] = ()
    provisions: tuple[Provision, ...] = ()
