"""All kinds: those of this package, and those that other packages register; found by name, by struct, by what people type.

A package of somebody else's gives its kind to `register`, or names it in a plugin's `kinds`; and it offers the kind in the
entry-point group `tidelog.kinds`, so that the command line, which loads no plugins, knows it too: installed packages are
asked when a name is not known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import overload

from tidelog.api.entry_points import offered
from tidelog.api.errors import PluginError, UsageError
from tidelog.api.kinds import apps, core, policy, resource, scheduling, storage
from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import Object

ENTRY_POINT_GROUP = "tidelog.kinds"

ELSEWHERE: dict[str, str] = {
    "CompositePodGroup": "composite pod groups are not supported; use PodGroup or Workload",
    "Binding": "a binding is the scheduler's own decision; to tell of one made elsewhere, apply the pod with its nodeName",
    **dict.fromkeys(
        ("DaemonSet", "CronJob"),
        "controllers are not run here; apply the pods that they make",
    ),
    "KubeSchedulerConfiguration": "it is the configuration; pass it with --config",
}
"""Kinds that people try, with what to do instead."""

_OURS: tuple[Kind, ...] = (
    core.POD,
    core.NODE,
    core.NAMESPACE,
    scheduling.PRIORITY_CLASS,
    policy.POD_DISRUPTION_BUDGET,
    core.SERVICE,
    core.REPLICATION_CONTROLLER,
    apps.REPLICA_SET,
    apps.STATEFUL_SET,
    scheduling.WORKLOAD,
    scheduling.POD_GROUP,
    resource.RESOURCE_SLICE,
    resource.DEVICE_CLASS,
    resource.RESOURCE_CLAIM,
    resource.RESOURCE_CLAIM_TEMPLATE,
    resource.DEVICE_TAINT_RULE,
    storage.PERSISTENT_VOLUME_CLAIM,
    storage.PERSISTENT_VOLUME,
    storage.STORAGE_CLASS,
    storage.CSI_NODE,
    storage.CSI_DRIVER,
    storage.CSI_STORAGE_CAPACITY,
    storage.VOLUME_ATTACHMENT,
    apps.DEPLOYMENT,
    apps.JOB,
)


class Kinds(Sequence[Kind]):
    """Every kind: ours, then the registered ones by name, whatever the order in which they came."""

    def __init__(self) -> None:
        self._foreign: list[Kind] = []

    def _all(self) -> tuple[Kind, ...]:
        return (*_OURS, *self._foreign)

    @overload
    def __getitem__(self, index: int) -> Kind: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Kind, ...]: ...
    def __getitem__(self, index: int | slice) -> Kind | tuple[Kind, ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._all())

    def add(self, kind: Kind) -> None:
        """Take in a kind of another package."""
        self._foreign = sorted((*self._foreign, kind), key=lambda known: known.name)

    def remove(self, kind: Kind) -> None:
        """Give up a kind of another package."""
        self._foreign.remove(kind)


KINDS = Kinds()
KIND_BY_NAME: dict[str, Kind] = {}
KIND_OF_TYPE: dict[type, Kind] = {}
_BY_WORD: dict[str, Kind] = {}
"""By every name that people use, in lower case."""


def _enter(kind: Kind) -> None:
    KIND_BY_NAME[kind.name] = kind
    KIND_OF_TYPE[kind.type] = kind
    _BY_WORD.update(dict.fromkeys(kind.names, kind))


for _kind in _OURS:
    _enter(_kind)


def register(kind: Kind) -> Kind:
    """Make a kind known to this process; the same one again is no error. Raises PluginError if a name is taken.

    To be called before a log that has objects of the kind is read.
    """
    if KIND_BY_NAME.get(kind.name) is kind:
        return kind
    if not issubclass(kind.type, Object):
        raise PluginError(f"kind {kind.name}", "its type must be derived from tidelog.api.objects.Object")
    taken = [name for name in kind.names if name in _BY_WORD]
    if taken or kind.type in KIND_OF_TYPE:
        other = _BY_WORD[taken[0]] if taken else KIND_OF_TYPE[kind.type]
        raise PluginError(
            f"kind {kind.name}", f"{taken[0] if taken else 'its type'} is taken by {other.name}"
        )
    KINDS.add(kind)
    _enter(kind)
    return kind


def unregister(kind: Kind) -> None:
    """Forget a kind that `register` made known: for tests."""
    KINDS.remove(kind)
    del KIND_BY_NAME[kind.name], KIND_OF_TYPE[kind.type]
    for name in kind.names:
        del _BY_WORD[name]


@cache
def load_installed() -> None:
    """Register the kinds of installed packages, once. Raises PluginError for the first that cannot be."""
    for name, origin, kind in offered(ENTRY_POINT_GROUP):
        if not isinstance(kind, Kind):
            raise PluginError(f"{name} of {origin}", "must be a tidelog.api.kinds.kind.Kind")
        if kind.name != name:
            raise PluginError(f"{kind.name} of {origin}", f"the entry point calls it {name}")
        register(kind)


# --- finding ------------------------------------------------------------------------------------------------------------


def known_kind(name: str) -> Kind | None:
    """The kind of exactly this name, an installed package's too. Raises PluginError as `load_installed`."""
    if name not in KIND_BY_NAME:
        load_installed()
    return KIND_BY_NAME.get(name)


def kind_of(obj: Object) -> Kind:
    """The kind of an object."""
    return KIND_OF_TYPE[type(obj)]


def object_key(obj: Object) -> str:
    """`Kind/namespace/name`; the namespace is empty for kinds of the whole cluster."""
    kind = KIND_OF_TYPE[type(obj)]
    return f"{kind.name}/{obj.metadata.namespace if kind.namespaced else ''}/{obj.metadata.name}"


def find_kind(text: str) -> Kind | None:
    """The kind of that name, in any case (`Pod`, `pods`, `po`); a group and a version may follow (`pods.v1.`)."""
    head, dot, rest = text.lower().partition(".")
    if head not in _BY_WORD:
        load_installed()
    kind = _BY_WORD.get(head)
    if kind is None or not dot:
        return kind
    version, _, group = rest.partition(".")
    if version in (kind.version, *kind.other_versions):
        return kind if group == kind.group or (not group and "." not in rest) else None
    return kind if rest == kind.group else None


def kind_named(text: str) -> Kind:
    """As `find_kind`; raises UsageError with the closest name and all names."""
    kind = find_kind(text)
    if kind is not None:
        return kind
    close = suggestion(text.lower(), list(_BY_WORD))
    raise UsageError(
        f'there is no kind "{text}"'
        + (f', did you mean "{close}"?' if close else "")
        + f" (known: {', '.join(kind.plural for kind in KINDS)})"
    )


def suggestion(text: str, known: list[str]) -> str:
    """The closest of the known names, or nothing if none is close."""
    # Longer names are not typing errors, and comparing them costs the square of their length.
    found = difflib.get_close_matches(text, known, n=1, cutoff=0.6) if len(text) <= 64 else []
    return found[0] if found else ""
