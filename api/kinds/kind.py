"""The declaration of a kind: everything that Tidelog has to know of it, in one place.

A kind needs a struct derived from `tidelog.api.objects.Object` and one `Kind`. Everybody who handles objects of any kind
(manifests, admission, the log, the command line, Kubernetes' API, redaction, cluster events) takes what it needs from the
declaration, so that nothing else has to be told of a new kind. Fields left out mean "nothing special".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tidelog.api.cluster import Admission, Stamp
from tidelog.api.kinds.columns import Column
from tidelog.api.objects import Object
from tidelog.api.validation.check import Check
from tidelog.api.validation.names import NameCheck, dns_subdomain


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a kind that `tidelog log redact` treats in a special way; every other text is a name and gets a number.

    Names of JSON fields, at any depth. Metadata, conditions and selectors are known already.
    """

    kept: tuple[str, ...] = ()
    """Left as they are: words that Kubernetes coined, amounts, times."""
    dropped: tuple[str, ...] = ()
    """Left out: text for people, and what nobody reads."""
    label_keys: tuple[str, ...] = ()
    """Hold the keys of labels or taints; those that Kubernetes coined are kept."""
    images: tuple[str, ...] = ()
    """Hold names of container images."""
    resources: tuple[str, ...] = ()
    """Hold names of resources; those that are not somebody's own are kept."""


class Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A kind of object. Equal only to itself."""

    # --- its names in the API -----------------------------------------------------------------------------------------

    name: str
    type: type[Object]
    group: str = ""
    """Empty for the core group."""
    version: str
    plural: str
    """Its resource: what stands in URLs, and what the command line calls it."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    """Names for several kinds at once, as kubectl's `all`."""
    namespaced: bool = True
    other_versions: tuple[str, ...] = ()
    """Versions of the group in which a manifest of this kind reads the same."""
    subresources: tuple[str, ...] = ()
    """Parts with a URL of their own in Kubernetes' API, as `status`."""

    # --- its rules ----------------------------------------------------------------------------------------------------

    name_rule: NameCheck = dns_subdomain
    """Gives the broken rules of a name."""
    prepare: Callable[[Any, Any, Admission], Any] | None = None
    """`prepare(new, old, admission)` gives the object with defaults filled in; it may add errors and warnings."""
    from_version: Callable[[Any, str], Any] | None = None
    """`from_version(obj, version)` gives what a manifest of another version means."""
    validate: Callable[[Any, Check], None] | None = None
    """`validate(obj, check)` adds the rules that the object breaks; its metadata are checked already."""
    validate_update: Callable[[Any, Any, Check], None] | None = None
    """`validate_update(old, new, check)` adds the rules that the change breaks."""
    warnings: Callable[[Any], tuple[str, ...]] | None = None
    """Sentences on what is allowed and probably not meant."""
    protected_names: tuple[str, ...] = ()
    """Objects that cannot be deleted …"""
    protected_rule: str = ""
    """… and the reason."""
    remains: Callable[[Any, int | None, Stamp], Any] | None = None
    """`remains(obj, grace_seconds, stamp)` gives the object that a deletion leaves for now, or None."""

    # --- its readers --------------------------------------------------------------------------------------------------

    events: Literal["", "ours", "upstream"] = ""
    """Whether a change is a cluster event that wakes pods: `upstream` as in kube-scheduler, `ours` outside `compat: upstream`."""
    columns: tuple[Column, ...] = ()
    """Of `tidelog get`; empty: name and age alone."""
    redaction: Redaction = Redaction()

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return self._versioned(self.version)

    @property
    def api_versions(self) -> tuple[str, ...]:
        """Every apiVersion that a manifest may have, the one that is written first."""
        return (self.api_version, *map(self._versioned, self.other_versions))

    def _versioned(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    @property
    def singular(self) -> str:
        """Its resource for one object."""
        return self.name.lower()

    @property
    def qualified_name(self) -> str:
        """`Kind`, or `group/Kind`: the name of its cluster events."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that people use, in lower case."""
        return (self.singular, self.plural, *self.short_names)
