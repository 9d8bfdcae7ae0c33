"""The fields of a pod that the plugins about volumes read."""

from __future__ import annotations

from tidelog.api.objects import Volume
from tidelog.api.volumes import matters
from tidelog.framework.node_info import PodInfo


def signed(pod: PodInfo) -> list[Volume]:
    """Its volumes, but for those that have nothing to do with where it runs; most pods have no others."""
    volumes = pod.pod.spec.volumes
    return [volume for volume in volumes if matters(volume)] if volumes else []
