"""ImageLocality: rather run a pod where its images are already.

An image counts with its size, the less the fewer nodes have it: otherwise the first node that pulled an image would draw every pod
that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.api.objects import Pod
from tidelog.api.selectors import Labels
from tidelog.framework.behaviours import ONE_IMAGE_SIZE
from tidelog.framework.interface import CycleState, Depends, Handle, Plugin, ScorePlugin, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, NodeSets
from tidelog.framework.offers import CountsDomains, PodParts, SignsPods

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
    signed_parts = PodParts.SPEC

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        # kube-scheduler keeps one size of an image, that of the node that it first saw with it.
        self._one_size = handle.upstream and handle.behaves(ONE_IMAGE_SIZE)

    def sign_pod(self, pod: PodInfo) -> object:
        return pod_images(pod.pod)

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> ImageDomains:
        return ImageDomains(self, pod_images(pod.pod), nodes)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        images: list[str] | None = state.read(_STATE)
        if images is None:
            images = pod_images(pod.pod)
            state.write(_STATE, images)
        return score_of_size(self._size(images, node), len(images))

    def _size(self, images: Sequence[str], node: NodeInfo) -> int:
        """Bytes of the images that the node has, each in proportion to the share of nodes that have it."""
        return self.total(_held(images, node)) if node.images else 0

    def total(self, held: Iterable[tuple[str, int]]) -> int:
        """Bytes that these images of these sizes count for."""
        snapshot = self.handle.snapshot
        nodes, found = snapshot.node_count, 0
        for image, own in held:
            size = snapshot.image_size(image) if self._one_size else own
            found += int(size * (snapshot.image_nodes(image) / nodes))
        return found


def score_of_size(size: int, count: int) -> int:
    """The score of so many bytes, in proportion, of the images of a pod that has so many."""
    if size <= MIN_THRESHOLD:
        return 0
    largest = MAX_THRESHOLD_PER_IMAGE * count
    return 100 * (min(size, largest) - MIN_THRESHOLD) // (largest - MIN_THRESHOLD)


class ImageDomains:
    """The nodes that hold images of a pod, by what they hold: implements `tidelog.framework.offers.Domains`."""

    skips_filter = True
    reads_labels: Sequence[str] = ()
    reads_nodes = False
    reads_pods = False

    def __init__(self, plugin: ImageLocality, images: Sequence[str], nodes: NodeSets) -> None:
        self._plugin = plugin
        self._images = images
        self._nodes = nodes
        self._at: dict[int, _Holding] = {}
        """Place → what the node holds; nodes that hold nothing are left out."""
        self._sets: dict[_Holding, Bits] = {}
        snapshot = nodes.snapshot
        if any(snapshot.image_nodes(image) for image in images):
            for place, node in nodes.occupied():
                if node.images:
                    self.follow(place, node)

    @property
    def has_no_say(self) -> bool:
        return not self._sets

    def follow_moves(self, moves: Mapping[int, Labels | None]) -> bool:
        for place in moves:
            if self._nodes.node_or_none(place) is None:
                self._hold(place, ())
        return True

    def follow(self, place: int, node: NodeInfo) -> None:
        self._hold(place, _held(self._images, node) if node.images else ())

    def _hold(self, place: int, held: _Holding) -> None:
        before = self._at.get(place, ())
        if held == before:
            return
        bit = 1 << place
        if before:
            left = self._sets[before] ^ bit
            if left:
                self._sets[before] = left
            else:
                del self._sets[before]
            del self._at[place]
        if held:
            self._at[place] = held
            self._sets[held] = self._sets.get(held, 0) | bit

    def allowed(self) -> Bits | None:
        return None

    def rejections(self, among: Bits) -> Sequence[tuple[Status, Bits]]:
        return ()

    def fill(self, state: CycleState) -> None:
        """There is no PreFilter."""

    def scores(self, feasible: Bits) -> Groups | None:
        if not self._sets:
            return None
        found: dict[int, Bits] = {}
        rest, count = feasible, len(self._images)
        for held, bits in self._sets.items():
            both = bits & feasible
            if both:
                score = score_of_size(self._plugin.total(held), count)
                found[score] = found.get(score, 0) | both
                rest ^= both
        if rest:
            found[0] = found.get(0, 0) | rest
        return list(found.items())


_Holding = tuple[tuple[str, int], ...]
"""Images of the pod that a node has, and their sizes; the same image twice is there twice."""


def _held(images: Sequence[str], node: NodeInfo) -> _Holding:
    there = node.images
    return tuple([(image, there[image]) for image in images if image in there])


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
_signs: type[SignsPods] = ImageLocality
_counts: type[CountsDomains] = ImageLocality
