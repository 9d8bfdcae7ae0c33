"""Changes that clients ask for, decided at the moment at which the log numbers them.

    body ─► manifest ─► typed object and what is left over ─► admission, as for `tidelog apply` ─► one record

Everything that a change depends on (is there one of this name, is it still the version that the client has seen, what do budgets allow) is looked
up in the objects as the record before left them, so no two changes can both pass on a state that one of them ends. Nothing is answered before it is
on the disk; a change that changes nothing appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.admission import admit, admit_delete, uid_of
from tidelog.api.cluster import SYSTEM_NAMESPACES, Stamp
from tidelog.api.errors import FieldError, InvalidObjects
from tidelog.api.kinds.registry import KIND_BY_NAME, KINDS, object_key
from tidelog.api.manifests.manifests import OBJECT_BYTES_MAX
from tidelog.api.manifests.wrong_types import wrong_types
from tidelog.api.objects import Namespace, Object, ObjectMeta, Pod
from tidelog.api.times import NANOS, format_time
from tidelog.api.writes import merged
from tidelog.daemon.intake.facts import CLUSTER, FactService
from tidelog.eventlog.log import AppendMoment
from tidelog.eventlog.objects import ObjectEntry, ObjectTable
from tidelog.eventlog.records import NO_OPAQUE, Draft, ObjectDeleted, ObjectPut
from tidelog.kube import opaque, status
from tidelog.kube.patches import PatchError, json_patched, strategically_merged
from tidelog.kube.resources import ApiResource
from tidelog.kube.schema import may_be_unknown, unknown_fields
from tidelog.kube.serve.items import Item, item_of

STATUS_AT_CREATION = frozenset(("Node", "Namespace", "PodGroup", "ResourceClaim", "ResourceSlice"))
"""Kinds whose status is taken when they are created: others say it through their own path."""
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Written(NamedTuple):
    """The result of a change."""

    item: Item
    created: bool = False
    gone: bool = False
    warnings: tuple[str, ...] = ()


class Options(NamedTuple):
    """Options in the query or the body beside the object."""

    dry_run: bool = False
    field_validation: str = "Warn"


class Preconditions(NamedTuple):
    """Preconditions of an object that is to be deleted or evicted."""

    uid: str = ""
    revision: str = ""


ANY = Preconditions()
"""Nothing need hold."""


class Given(NamedTuple):
    """An object as a client gives it."""

    typed: Object
    rest: dict[str, Any]
    warnings: tuple[str, ...] = ()


class Spot(NamedTuple):
    """An object as it is at the moment of a change."""

    key: str
    entry: ObjectEntry
    item: Item


class Writer:
    """Carries changes into the log."""

    def __init__(self, facts: FactService) -> None:
        self.facts = facts

    # --- reading a manifest -----------------------------------------------------------------------------------------------

    def given(self, resource: ApiResource, manifest: Any, namespace: str, options: Options) -> Given:
        """The typed object and what is left over. Raises ApiError."""
        check_kind(resource, manifest)
        meta = manifest.get("metadata")
        meta = dict(meta) if isinstance(meta, dict) else {}
        manifest = {**manifest, "metadata": meta}
        for field in ("managedFields", "selfLink"):
            meta.pop(field, None)
        if resource.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise status.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        elif meta.pop("namespace", None):
            raise status.bad_request(f"{resource.kind} is not namespaced")
        kind = KIND_BY_NAME[resource.kind]
        typed = self._typed(resource, manifest, kind.type)
        rest = opaque.left_over(manifest, kind.type)
        if rest:
            rest = without_nulls(rest)
        warnings: tuple[str, ...] = ()
        if rest:
            unknown = unknown_fields(resource, manifest) if may_be_unknown(resource, rest) else []
            if unknown and options.field_validation == "Strict":
                raise status.bad_request(
                    f"{_cannot_be(resource)}: strict decoding error: {', '.join(unknown)}"
                )
            if unknown and options.field_validation != "Ignore":
                warnings = tuple(unknown)
        return Given(typed, rest, warnings)

    def _typed(self, resource: ApiResource, manifest: dict[str, Any], type: type[Object]) -> Object:
        try:
            return msgspec.convert(manifest, type)
        except msgspec.ValidationError:
            pass
        # Absent and null are the same, and few say null.
        manifest = without_nulls(manifest)
        try:
            return msgspec.convert(manifest, type)
        except msgspec.ValidationError as error:
            errors = wrong_types(manifest, type, 10)
            why = "; ".join(map(str, errors)) if errors else str(error)
            raise status.bad_request(f"{_cannot_be(resource)}: {why}") from None

    # --- create -----------------------------------------------------------------------------------------------------------

    async def create(self, resource: ApiResource, namespace: str, manifest: Any, options: Options) -> Written:
        """Put a new object. Raises ApiError."""
        given = self.given(resource, manifest, namespace, options)
        typed = _as_new(resource, given.typed)
        rest = given.rest
        if resource.has_status and resource.kind not in STATUS_AT_CREATION:
            rest = {key: value for key, value in rest.items() if key != "status"}

        def decide(table: ObjectTable, moment: AppendMoment) -> _Decided:
            meta = typed.metadata
            if meta.name and table.entry(f"{resource.kind}/{namespace}/{meta.name}") is not None:
                raise status.already_exists(resource.group, resource.plural, meta.name)
            check_namespace(table, namespace)
            stamp = Stamp(seq=moment.seq + 1, at=moment.at)
            admitted, said = self._admit(resource, typed, None, table, stamp)
            if table.entry(object_key(admitted)) is not None:
                raise status.already_exists(resource.group, resource.plural, admitted.metadata.name)
            return _put(admitted, rest, moment.seq + 1, created=True, warnings=(*given.warnings, *said))

        return await self._write(decide, options)

    # --- update, patch ------------------------------------------------------------------------------------------------------

    async def update(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        subresource: str,
        manifest: Any,
        options: Options,
    ) -> Written:
        """Put a new version of an object, or of its status. Raises ApiError."""
        given = self.given(resource, manifest, namespace, options)
        if given.typed.metadata.name not in ("", name):
            raise status.bad_request(
                f"the name of the object ({given.typed.metadata.name}) does not match the name on the URL ({name})"
            )

        def decide(table: ObjectTable, moment: AppendMoment) -> _Decided:
            spot = self.spot(table, resource, namespace, name)
            uid = given.typed.metadata.uid
            if uid and uid != spot.entry.object.metadata.uid:
                why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {spot.entry.object.metadata.uid}"
                raise status.conflict(resource.group, resource.plural, name, why)
            return self._replaced(resource, spot, given, subresource, table, moment)

        return await self._write(decide, options)

    async def patch(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        subresource: str,
        patch: Any,
        how: str,
        options: Options,
    ) -> Written:
        """Change an object, or its status, by a patch. Raises ApiError."""

        def decide(table: ObjectTable, moment: AppendMoment) -> _Decided:
            spot = self.spot(table, resource, namespace, name)
            before = {"apiVersion": resource.api_version, "kind": resource.kind, **spot.item.manifest}
            given = self.given(resource, patched(before, patch, how), namespace, options)
            meta, old = given.typed.metadata, spot.entry.object.metadata
            for field, value, was in (("uid", meta.uid, old.uid), ("name", meta.name, old.name)):
                if value != was:
                    error = FieldError(
                        path=f"metadata.{field}", kind="Invalid", value=value, rule="field is immutable"
                    )
                    raise status.invalid(resource.group, resource.kind, name, [error])
            return self._replaced(resource, spot, given, subresource, table, moment)

        return await self._write(decide, options)

    def _replaced(
        self,
        resource: ApiResource,
        spot: Spot,
        given: Given,
        subresource: str,
        table: ObjectTable,
        moment: AppendMoment,
    ) -> _Decided:
        meta = given.typed.metadata
        old, name = spot.entry.object, spot.item.name
        if meta.resource_version not in ("", "0", str(spot.item.revision)):
            raise status.conflict(resource.group, resource.plural, name, status.MODIFIED)
        new, rest = _of_part(resource, given, old, opaque.read(spot.entry.opaque), subresource)
        new = replace(new, metadata=_kept_metadata(new.metadata, old.metadata))
        stamp = Stamp(seq=moment.seq + 1, at=moment.at)
        if (
            old.metadata.deletion_timestamp
            and not new.metadata.finalizers
            and old.metadata.finalizers
            and _ends_at_once(old)
        ):
            draft = Draft(body=ObjectDeleted(uid=old.metadata.uid), author=CLUSTER, key=spot.key)
            entry = replace(spot.entry, seq=moment.seq + 1, place=1)
            return _Decided((draft,), Written(item_of(spot.key, entry), gone=True))
        admitted, said = self._admit(resource, new, old, table, stamp, resize=subresource == "resize")
        text = opaque.dumped(rest) if rest else ""
        if text == spot.entry.opaque:
            if admitted is old:
                return _Decided((), Written(spot.item, warnings=given.warnings))
        elif admitted is old or admitted.metadata.generation == old.metadata.generation:
            grown = rest.get("spec") != opaque.read(spot.entry.opaque).get("spec")
            admitted = replace(
                admitted,
                metadata=replace(
                    admitted.metadata,
                    generation=old.metadata.generation + grown,
                    resource_version=str(moment.seq + 1),
                ),
            )
        return _put(admitted, rest, moment.seq + 1, warnings=(*given.warnings, *said))

    def _admit(
        self,
        resource: ApiResource,
        new: Object,
        old: Object | None,
        table: ObjectTable,
        stamp: Stamp,
        *,
        resize: bool = False,
    ) -> tuple[Object, tuple[str, ...]]:
        try:
            return admit(new, old, table.cluster, self.facts.gates, stamp, resize=resize)
        except InvalidObjects as error:
            name = new.metadata.name or new.metadata.generate_name
            raise status.invalid(resource.group, resource.kind, name, error.errors) from None

    # --- delete -------------------------------------------------------------------------------------------------------------

    async def delete(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        options: Options,
        preconditions: Preconditions = ANY,
        grace: int | None = None,
        orphan: bool = False,
    ) -> Written:
        """Delete an object, or begin to. Raises ApiError."""

        def decide(table: ObjectTable, moment: AppendMoment) -> _Decided:
            spot = self.spot(table, resource, namespace, name)
            check_preconditions(resource, spot, preconditions)
            drafts: list[Draft] = []
            written = self.deletion(resource, spot, table, moment, drafts, grace)
            if orphan:
                self._orphan(spot, table, moment, drafts)
            return _Decided(tuple(drafts), written)

        return await self._write(decide, options)

    async def delete_all(
        self,
        resource: ApiResource,
        namespace: str,
        matches: Callable[[Item], bool] | None,
        options: Options,
        grace: int | None = None,
    ) -> list[Written]:
        """Delete all objects that match, or begin to. Raises ApiError."""
        found: list[Written] = []

        def decide(table: ObjectTable, moment: AppendMoment) -> _Decided:
            drafts: list[Draft] = []
            for entry in table.of_kind(resource.kind):
                meta = entry.object.metadata
                if namespace and meta.namespace != namespace:
                    continue
                key = f"{resource.kind}/{meta.namespace}/{meta.name}"
                item = item_of(key, entry)
                if matches is None or matches(item):
                    found.append(
                        self.deletion(resource, Spot(key, entry, item), table, moment, drafts, grace)
                    )
            return _Decided(tuple(drafts), Written(Item("", "", "", 0, None, manifest={})))

        await self._write(decide, options)
        return found

    def deletion(
        self,
        resource: ApiResource,
        spot: Spot,
        table: ObjectTable,
        moment: AppendMoment,
        drafts: list[Draft],
        grace: int | None,
    ) -> Written:
        """Add what the deletion of an object takes, and say what it comes to."""
        old = spot.entry.object
        stamp = Stamp(seq=moment.seq + len(drafts) + 1, at=moment.at)
        try:
            remaining = admit_delete(old, grace, stamp)
        except InvalidObjects as error:
            why = "; ".join(problem.rule for problem in error.errors)
            raise status.ApiError(
                403,
                "Forbidden",
                f'{status.qualified(resource.plural, resource.group)} "{spot.item.name}" is forbidden: {why}',
                {"name": spot.item.name, "kind": resource.plural},
            ) from None
        if remaining is None and old.metadata.finalizers:
            remaining = old if old.metadata.deletion_timestamp else _going(old, stamp)
        if remaining is old:
            return Written(spot.item)
        if remaining is not None:
            drafts.append(Draft(body=ObjectPut(object=remaining), author=CLUSTER, key=spot.key))
            entry = replace(spot.entry, seq=stamp.seq, object=remaining, place=1)
            return Written(item_of(spot.key, entry))
        if isinstance(old, Namespace):
            drafts += _contents(table, old.metadata.name)
        drafts.append(Draft(body=ObjectDeleted(uid=old.metadata.uid), author=CLUSTER, key=spot.key))
        entry = replace(spot.entry, seq=moment.seq + len(drafts), place=1)
        return Written(item_of(spot.key, entry), gone=True)

    def _orphan(self, spot: Spot, table: ObjectTable, moment: AppendMoment, drafts: list[Draft]) -> None:
        """Take the reference to the object from everything that it owns."""
        uid = spot.entry.object.metadata.uid
        for kind in ("Pod", "ReplicaSet", "Job"):
            for entry in table.of_kind(kind) if kind in KIND_BY_NAME else ():
                meta = entry.object.metadata
                owners = tuple(owner for owner in meta.owner_references if owner.uid != uid)
                if len(owners) != len(meta.owner_references):
                    seq = str(moment.seq + len(drafts) + 1)
                    freed = replace(
                        entry.object, metadata=replace(meta, owner_references=owners, resource_version=seq)
                    )
                    drafts.append(Draft(body=ObjectPut(object=freed), author=CLUSTER, key=object_key(freed)))

    # --- what others change ---------------------------------------------------------------------------------------------------

    async def change(
        self,
        decide: Callable[[ObjectTable, AppendMoment], tuple[Sequence[Draft], Any]],
        *,
        dry_run: bool = False,
    ) -> Any:
        """Append what is decided at the moment of numbering, and return what else it says. Raises what it raises."""
        said: list[Any] = []

        def make(table: ObjectTable, moment: AppendMoment) -> Sequence[Draft]:
            drafts, answer = decide(table, moment)
            said.append(answer)
            return () if dry_run else drafts

        await self.facts.write(make)
        return said[-1]

    def spot(self, table: ObjectTable, resource: ApiResource, namespace: str, name: str) -> Spot:
        """The object as it is. Raises ApiError if there is none."""
        key = f"{resource.kind}/{namespace}/{name}"
        entry = table.entry(key)
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return Spot(key, entry, item_of(key, entry))

    async def _write(
        self, decide: Callable[[ObjectTable, AppendMoment], _Decided], options: Options
    ) -> Written:
        def both(table: ObjectTable, moment: AppendMoment) -> tuple[Sequence[Draft], Written]:
            decided = decide(table, moment)
            return decided.drafts, decided.written

        written: Written = await self.change(both, dry_run=options.dry_run)
        return written


class _Decided(NamedTuple):
    drafts: tuple[Draft, ...]
    written: Written


def _put(
    obj: Object, rest: Mapping[str, Any], seq: int, *, created: bool = False, warnings: tuple[str, ...] = ()
) -> _Decided:
    text = opaque.dumped(rest) if rest else ""
    if len(text) > OBJECT_BYTES_MAX:
        raise status.too_large(OBJECT_BYTES_MAX)
    key = object_key(obj)
    body = ObjectPut(object=obj, opaque=text or ("" if created else NO_OPAQUE))
    item = item_of(key, ObjectEntry(seq, obj, 1, text))
    return _Decided((Draft(body=body, author=CLUSTER, key=key),), Written(item, created, warnings=warnings))


# --- rules ----------------------------------------------------------------------------------------------------------------


def _cannot_be(resource: ApiResource) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'


def check_kind(resource: ApiResource, manifest: Any) -> None:
    """Raise ApiError where a manifest is no object of this resource."""
    if not isinstance(manifest, dict):
        raise status.bad_request("the body of the request must be an object")
    kind, version = manifest.get("kind", resource.kind), manifest.get("apiVersion", resource.api_version)
    if kind != resource.kind or version != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({version}, Kind={kind}) does not match the expected API version "
            f"({resource.api_version}, Kind={resource.kind})"
        )


def without_nulls(value: Any) -> Any:
    """Absent and null are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [without_nulls(part) for part in value if part is not None]
    return value


def check_namespace(table: ObjectTable, namespace: str) -> None:
    """Nothing can be put where there is no namespace, or where one is going."""
    if not namespace:
        return
    found = table.get(f"Namespace//{namespace}")
    if found is None and namespace not in SYSTEM_NAMESPACES:
        raise status.not_found("", "namespaces", namespace)
    if found is not None and found.metadata.deletion_timestamp:
        raise status.forbidden(
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )


def _as_new(resource: ApiResource, typed: Object) -> Object:
    """Leave out what a client may not set on an object that is not there yet."""
    meta = typed.metadata
    if meta.resource_version not in ("", "0"):
        raise status.bad_request("resourceVersion should not be set on objects to be created")
    if not meta.name and not meta.generate_name:
        error = FieldError(path="metadata.name", kind="Required", rule="name or generateName is required")
        raise status.invalid(resource.group, resource.kind, "", [error])
    bare = replace(
        meta,
        uid="",
        resource_version="",
        generation=0,
        creation_timestamp="",
        deletion_timestamp="",
        deletion_grace_period_seconds=None,
    )
    changes: dict[str, Any] = {"metadata": bare}
    if resource.has_status and resource.kind not in STATUS_AT_CREATION and hasattr(typed, "status"):
        changes["status"] = type(typed.status)()
    return replace(typed, **changes)


def _of_part(
    resource: ApiResource, given: Given, old: Object, old_rest: Mapping[str, Any], subresource: str
) -> tuple[Any, dict[str, Any]]:
    """The object that is meant by one that was given for a part of it."""
    if subresource == "status":
        changes: dict[str, Any] = {
            "metadata": replace(
                old.metadata, labels=given.typed.metadata.labels, annotations=given.typed.metadata.annotations
            )
        }
        if hasattr(old, "status"):
            changes["status"] = getattr(given.typed, "status")  # noqa: B009 # Only some kinds have one.
        rest = {key: value for key, value in old_rest.items() if key != "status"}
        if "status" in given.rest:
            rest["status"] = given.rest["status"]
        return replace(old, **changes), rest
    if not resource.has_status:
        return given.typed, given.rest
    rest = {key: value for key, value in given.rest.items() if key != "status"}
    if "status" in old_rest:
        rest["status"] = old_rest["status"]
    if hasattr(old, "status"):
        return replace(given.typed, status=old.status), rest
    return given.typed, rest


def _kept_metadata(meta: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """Keep the fields that nobody can change."""
    return replace(
        meta,
        uid=old.uid,
        generation=old.generation,
        creation_timestamp=old.creation_timestamp,
        deletion_timestamp=old.deletion_timestamp,
        deletion_grace_period_seconds=old.deletion_grace_period_seconds,
        resource_version=old.resource_version,
        generate_name=old.generate_name,
    )


def check_preconditions(resource: ApiResource, spot: Spot, wanted: Preconditions) -> None:
    """Whether it is the object that the client means."""
    name, uid = spot.item.name, spot.entry.object.metadata.uid
    if wanted.uid and wanted.uid != uid:
        message = (
            f'Operation cannot be fulfilled on {resource.kind} "{name}": the UID in the precondition ({wanted.uid}) does not '
            f"match the UID in record ({uid}). The object might have been deleted and then recreated"
        )
        raise status.ApiError(409, "Conflict", message, {"name": name, "kind": resource.kind})
    if wanted.revision and wanted.revision != str(spot.item.revision):
        message = (
            f'Operation cannot be fulfilled on {resource.kind} "{name}": the ResourceVersion in the precondition '
            f"({wanted.revision}) does not match the ResourceVersion in record ({spot.item.revision}). "
            "The object might have been modified"
        )
        raise status.ApiError(409, "Conflict", message, {"name": name, "kind": resource.kind})


def _ends_at_once(obj: Object) -> bool:
    return not (
        isinstance(obj, Pod) and obj.spec.node_name and obj.status.phase not in ("Succeeded", "Failed")
    )


def _going(obj: Object, stamp: Stamp) -> Object:
    meta = replace(
        obj.metadata,
        deletion_timestamp=format_time(stamp.at // NANOS * NANOS),
        deletion_grace_period_seconds=0,
        resource_version=str(stamp.seq),
    )
    return replace(obj, metadata=meta)


def _contents(table: ObjectTable, namespace: str) -> list[Draft]:
    """The end of everything in a namespace."""
    return [
        Draft(
            body=ObjectDeleted(uid=entry.object.metadata.uid),
            author=CLUSTER,
            key=f"{kind.name}/{namespace}/{entry.object.metadata.name}",
        )
        for kind in KINDS
        if kind.namespaced
        for entry in table.of_kind(kind.name)
        if entry.object.metadata.namespace == namespace
    ]


def patched(before: Mapping[str, Any], patch: Any, how: str) -> dict[str, Any]:
    """The manifest with the patch applied. Raises ApiError."""
    try:
        if how == JSON_PATCH:
            return json_patched(before, patch)
        if not isinstance(patch, dict):
            raise PatchError("a patch must be an object")
        if how == STRATEGIC_PATCH:
            return strategically_merged(before, patch)
        found: dict[str, Any] = merged(before, patch)
        return found
    except PatchError as error:
        raise status.ApiError(
            422 if how == JSON_PATCH else 400, "Invalid" if how == JSON_PATCH else "BadRequest", str(error)
        ) from None


async def bootstrap(facts: FactService) -> None:
    """Put into the log what exists in every cluster, as an API server does when it starts, where it is not there yet."""
    from tidelog.api.object_table import INITIAL_OBJECTS

    def decide(table: ObjectTable, moment: AppendMoment) -> list[Draft]:
        drafts: list[Draft] = []
        for obj in INITIAL_OBJECTS:
            key = object_key(obj)
            if table.entry(key) is None:
                stamp = Stamp(seq=moment.seq + len(drafts) + 1, at=moment.at)
                meta = replace(
                    obj.metadata,
                    uid=uid_of(key, stamp),
                    creation_timestamp=format_time(moment.at // NANOS * NANOS),
                    resource_version=str(stamp.seq),
                )
                drafts.append(
                    Draft(body=ObjectPut(object=replace(obj, metadata=meta)), author=CLUSTER, key=key)
                )
        return drafts

    await facts.write(decide)
