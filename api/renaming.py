"""Where names stand in an object, so that all of them can be replaced: the one list for every copy without names.

A `Renaming` walks plain data (what a struct is as JSON) and says, field by field, what is a name, an image, the key or value of a label, or
nothing of the kind. What it does not know it takes for a name: a new field gives nothing away. What a name becomes is for each subclass to say.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from functools import cache
from typing import Any

from tidelog.api.kinds.kind import Redaction
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.resources import CLASS_PREFIX
from tidelog.api.tie_number import TIE
from tidelog.api.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLASS,
    DEFAULT_CLASS,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
)

KEPT_WORDS = frozenset(
    ("", "default", "kube-system", "kube-public", "kube-node-lease", "true", "false", "True", "False", "latest",
     "kubernetes.io", "no-provisioner", "aws-ebs", "gce-pd", "cinder", "azure-disk", "azure-file", "portworx-volume",
     "vsphere-volume", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org", "disk.csi.azure.com",
     "pxd.portworx.com", "system-cluster-critical", "system-node-critical", "metadata.name", "0.0.0.0"),
)  # fmt: skip
"""Names that every cluster has, and values that are not names."""

_EVERYWHERE = Redaction(
    kept=(
        "apiVersion", "creationTimestamp", "deletionTimestamp", "from", "how", "kind", "kinds", "lastTransitionTime", "mode",
        "operator", "positions", "resourceVersion", "server", "status", "type", "verdict", "version", "view",
    ),
    dropped=("error", "message", "opaque", "redaction", "source"),
    label_keys=("key",),
    resources=("resourceName",),
)  # fmt: skip
"""Fields of records, metadata, conditions and selectors; what a kind has besides is in its declaration."""
_AMOUNTS = frozenset(("allocatable", "capacity", "hard", "limits", "overhead", "requests"))
"""Fields that map resources to amounts. A resource with a slash in its name is an extended one: somebody's, as the name of a product is."""
_PAIRS = frozenset(("labels", "matchLabels", "nodeSelector"))
_COINED = re.compile(r"(^|[.])(kubernetes|k8s)[.]io(/|$)")
"""Keys of labels and taints that Kubernetes coined."""
_WORD = re.compile(r"([A-Z][a-z]+)+")
"""A reason as controllers write them."""


class _Fields:
    """The fields of one kind of object that are not names."""

    def __init__(self, kind: Redaction) -> None:
        self.kept = frozenset((*_EVERYWHERE.kept, *kind.kept))
        self.dropped = frozenset((*_EVERYWHERE.dropped, *kind.dropped))
        self.label_keys = frozenset((*_EVERYWHERE.label_keys, *kind.label_keys))
        self.images = frozenset((*_EVERYWHERE.images, *kind.images))
        self.resources = frozenset((*_EVERYWHERE.resources, *kind.resources))


@cache
def _fields_of(kind: str) -> _Fields:
    known = KIND_BY_NAME.get(kind)
    return _Fields(Redaction() if known is None else known.redaction)


NAMING_ANNOTATIONS = frozenset((SELECTED_NODE, CLASS))
READ_ANNOTATIONS = frozenset(
    (BIND_COMPLETED, BOUND_BY_CONTROLLER, CLASS, DEFAULT_CLASS, MIGRATED_PLUGINS, SELECTED_NODE, TIE)
)
"""Those that decide where pods may go. Others are for people, or for programs that are not here."""


class Renaming:
    """The walk. A subclass says what becomes of a name."""

    drops: bool = False
    """Whether fields that a kind's declaration calls dropped are left out."""
    kept: Collection[str] = ()
    """Further fields that hold no names."""

    def name(self, text: str) -> str:
        """The new name."""
        raise NotImplementedError

    def label_key(self, text: str) -> str:
        """The key of a label or taint."""
        return text if _COINED.search(text) else self.name(text)

    def resource(self, text: str) -> str:
        """The name of a resource, which may be that of a class of devices."""
        if text.startswith(CLASS_PREFIX):
            return CLASS_PREFIX + self.name(text.removeprefix(CLASS_PREFIX))
        return self.name(text) if "/" in text and not _COINED.search(text) else text

    def configuration(self, value: Any) -> Any:
        """A configuration as plain data."""
        return value

    def label_value(self, key: str, text: str) -> str:  # noqa: ARG002 # Another renaming may keep the values of some keys.
        """The value of a label or taint of this key."""
        return self.name(text)

    def annotation(self, key: str, text: str) -> str:
        """The value of an annotation."""
        raise NotImplementedError

    def image(self, text: str) -> str:
        """The name of an image, its registry and its tag renamed apart, so that with and without the default tag stay alike."""
        return re.sub(r"[^/:@]+", lambda part: self.name(part[0]), text)

    def value(self, value: Any, kind: str = "") -> Any:
        """An object of this kind, or the body of a record about one, as plain data."""
        return self._value(_fields_of(kind), value, "", "")

    def _value(self, fields: _Fields, value: Any, field: str, label: str) -> Any:
        """`label` is the key of the label that it is a value of."""
        if isinstance(value, dict):
            found = value.get("key")
            of = found if isinstance(found, str) else ""
            return {
                k: v for key, part in value.items() for k, v in self._member(fields, field, key, part, of)
            }
        if isinstance(value, list | tuple):
            return [self._value(fields, part, field, label) for part in value]
        return self._text(fields, field, value, label) if isinstance(value, str) else value

    def _member(self, fields: _Fields, parent: str, key: str, part: Any, label: str) -> list[tuple[str, Any]]:
        if parent in _PAIRS and isinstance(part, str):
            # A node selector of terms has the name of one of pairs.
            return [(self.label_key(key), self.label_value(key, part))]
        if parent == "annotations":
            return [] if self.drops and key not in READ_ANNOTATIONS else [(key, self.annotation(key, part))]
        if parent == "disruptedPods":
            return [(self.name(key), part)]
        if key == "configuration":
            return [(key, self.configuration(part))]
        if (
            key in _AMOUNTS
            and isinstance(part, dict)
            and not any(isinstance(v, dict | list) for v in part.values())
        ):
            return [(key, {self.resource(resource): amount for resource, amount in part.items()})]
        if self.drops and key in fields.dropped:
            return []
        if (key in fields.kept or key in self.kept) and (
            isinstance(part, str) or key not in ("status", "requests")
        ):
            return [(key, part)]
        if key == "requests" and isinstance(part, dict):
            return [(key, part)]
        return [(key, self._value(fields, part, key, label if key in ("value", "values") else ""))]

    def _text(self, fields: _Fields, field: str, text: str, label: str) -> str:
        if field in fields.label_keys:
            return self.label_key(text)
        if field in fields.resources:
            return self.resource(text)
        if field in fields.images:
            return self.image(text)
        if field == "reason":
            return text if _WORD.fullmatch(text) else ""
        return self.label_value(label, text) if label else self.name(text)


_KEPT_LABELS = frozenset(("kubernetes.io/os", "kubernetes.io/arch"))


class Pseudonyms(Renaming):
    """Each name becomes `x-` and 16 hex digits of an HMAC under a key that stays with the owner: equal names stay equal.

    The keys of labels stay as they are, and so do the values of some.
    """

    kept = ("uid",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def name(self, text: str) -> str:
        if text in KEPT_WORDS:
            return text
        if "/" in text:
            return "/".join(map(self.name, text.split("/")))
        return f"x-{hmac.digest(self._key, text.encode(), 'sha256').hex()[:16]}"

    def label_key(self, text: str) -> str:
        return text

    def resource(self, text: str) -> str:
        return text

    def label_value(self, key: str, text: str) -> str:
        return text if key in _KEPT_LABELS else self.name(text)

    def annotation(self, key: str, text: str) -> str:
        return self.name(text) if key in NAMING_ANNOTATIONS else text
