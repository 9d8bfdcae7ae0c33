"""ImageLocality: rather run a pod where its images are already.

An image counts with its size, the less the fewer nodes have it: otherwise the first node that pulled an image would draw every pod
that uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.api.objects import Pod
from tidelog.framework.behaviours import ONE_IMAGE_SIZE
from tidelog.framework.interface import CycleState, Depends, Handle, Plugin, ScorePlugin
from tidelog.framework.node_info import NodeInfo, PodInfo

_MIB = 1024 * 1024
MIN_THRESHOLD = 23 * _MIB
"""Less than this on the node is as good as nothing."""
MAX_THRESHOLD_PER_IMAGE = 1000 * _MIB
"""More than this per image on the node is as good as this."""

_STATE = "ImageLocality.images"


class ImageLocality(Plugin):
    """Prefers nodes that have the pod's images."""

    name = "ImageLocality"
    score_depends = Depends.NODE | Depends.ALL_NODES

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        # kube-scheduler keeps one size of an image, that of the node that it first saw with it.
        self._one_size = handle.upstream and handle.behaves(ONE_IMAGE_SIZE)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        images: list[str] | None = state.read(_STATE)
        if images is None:
            images = pod_images(pod.pod)
            state.write(_STATE, images)
        return score_of_size(self._size(images, node), len(images))

    def _size(self, images: Sequence[str], node: NodeInfo) -> int:
        """Bytes of the images that the node has, each in proportion to the share of nodes that have it."""
        if not node.images:
            return 0
        snapshot = self.handle.snapshot
        nodes, found = len(snapshot.nodes), 0
        for image in images:
            own = node.images.get(image)
            if own is not None:
                size = snapshot.image_size(image) if self._one_size else own
                found += int(size * (snapshot.image_nodes(image) / nodes))
        return found


def score_of_size(size: int, count: int) -> int:
    """The score of so many bytes, in proportion, of the images of a pod that has so many."""
    if size <= MIN_THRESHOLD:
        return 0
    largest = MAX_THRESHOLD_PER_IMAGE * count
    return 100 * (min(size, largest) - MIN_THRESHOLD) // (largest - MIN_THRESHOLD)


def pod_images(pod: Pod) -> list[str]:
    """The images of containers, init containers and image volumes; the same image twice is twice in the list."""
    spec = pod.spec
    names = [container.image for container in (*spec.init_containers, *spec.containers)]
    names += [str(volume.image.get("reference", "")) for volume in spec.volumes if volume.image is not None]
    return [normalized_image(name) for name in names]


def normalized_image(name: str) -> str:
    """With the tag that an absent one means; the colon of a registry's port is not a tag's."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


_score: type[ScorePlugin] = ImageLocality
