"""Signatures of pods: what plugins read of them, each bundle of plugins its own part. Pods with equal signatures are of one shape.

What has been signed is remembered by the fields that it follows from: a replica is known by all of them, a pod that differs in labels alone by its spec, and
one that differs in requests alone by the rest of its spec. So only those plugins are asked again that read what differs (`tidelog.framework.offers.PodParts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tidelog.api.selectors import SelectorError
from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import PodParts
from tidelog.scheduler.evaluation.asking import (
    SPEC_AND_REQUESTS,
    Bundle,
    NotFast,
    Ways,
    spec_alone,
    spec_without_requests,
)

SIGNED_MAX = 8_192
"""Of so many pods that differ in something it is remembered how they are signed."""

_encode = msgspec.msgpack.Encoder().encode


class Signed(NamedTuple):
    """The fields of a pod that plugins read."""

    key: tuple[bytes, ...]
    """Those read by each bundle of plugins."""
    varying: tuple[Any, ...]
    """Plugins for which each attempt of such a pod may be another one."""


class Signing:
    """Of one framework, until what signatures depend on beside the pod changes."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        by_spec = [one for one in ways.bundles if one.parts in SPEC_AND_REQUESTS]
        self._by_rest = [one for one in by_spec if one.parts is PodParts.SPEC]
        self._by_spec = [one for one in by_spec if one.parts is not PodParts.SPEC]
        self._by_all = [one for one in ways.bundles if one.parts not in SPEC_AND_REQUESTS]
        self._rests: dict[bytes, Signed] = {}
        """By spec, without what containers request."""
        self._specs: dict[bytes, Signed] = {}
        """By spec."""
        self._known: dict[bytes, Signed] = {}
        """By all fields that count."""

    def forget(self) -> None:
        """Signatures may be other ones."""
        self._rests.clear()
        self._specs.clear()
        self._known.clear()

    def sign(self, state: CycleState, pod: PodInfo) -> Signed:
        """Raises NotFast, or SelectorError."""
        obj = pod.pod
        meta, status, spec = obj.metadata, obj.status, spec_alone(obj)
        if status.container_statuses or status.init_container_statuses:
            # What it requests is not told by its spec alone.
            return self._more(
                self._more(self._of_rest(state, pod), self._by_spec, state, pod), self._by_all, state, pod
            )
        raw = (meta.namespace, meta.labels, meta.owner_references, spec)
        text = _encode((*raw, meta.annotations) if self._ways.signs_all else raw)
        known = self._known.get(text)
        if known is None:
            known = self._more(self._of_spec(state, pod), self._by_all, state, pod)
            _keep(self._known, text, known)
        return known

    def _of_spec(self, state: CycleState, pod: PodInfo) -> Signed:
        text = _encode((pod.namespace, spec_alone(pod.pod)))
        known = self._specs.get(text)
        if known is None:
            known = self._more(self._of_rest(state, pod), self._by_spec, state, pod)
            _keep(self._specs, text, known)
        return known

    def _of_rest(self, state: CycleState, pod: PodInfo) -> Signed:
        text = _encode((pod.namespace, spec_without_requests(pod.pod)))
        known = self._rests.get(text)
        if known is None:
            known = self._more(Signed((), ()), self._by_rest, state, pod)
            _keep(self._rests, text, known)
        return known

    def _more(self, known: Signed, bundles: Sequence[Bundle], state: CycleState, pod: PodInfo) -> Signed:
        """With what these read."""
        key, varying = [*known.key], known.varying
        try:
            for bundle in bundles:
                key.append(_encode([sign(pod) for sign in bundle.signs]))
                for plugin in bundle.varying:
                    if self._varies(plugin, state, pod):
                        varying = (*varying, plugin)
        except SelectorError:
            raise
        except Exception as error:
            raise NotFast("a plugin failed to sign the pod") from error
        return Signed(tuple(key), varying)

    def _varies(self, plugin: Any, state: CycleState, pod: PodInfo) -> bool:
        if plugin in self._ways.choosy:
            return bool(plugin.concerns(pod))
        return plugin.sign_attempt(state, pod) is not None


def _keep(known: dict[bytes, Signed], text: bytes, signed: Signed) -> None:
    if len(known) >= SIGNED_MAX:
        known.clear()
    known[text] = signed
