"""The answers of the API, without HTTP: a request's path, query and body become a Status, an object, a list, or a watch.

`Api` is made of a view of the log, a view of what is beside it, and the two writers. What a handler of HTTP needs of it is `answer`, and `watch`
for what goes on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from tidelog.api.times import NANOS, format_time
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.process.clock import Clock
from tidelog.kube import status
from tidelog.kube.events import GROUP as EVENTS_GROUP
from tidelog.kube.events import as_new
from tidelog.kube.paths import ResourcePath
from tidelog.kube.resources import ApiResource, catalogue
from tidelog.kube.serve import asking, tables
from tidelog.kube.serve.asking import Query, Selection
from tidelog.kube.serve.beside import BesideWriter
from tidelog.kube.serve.items import Item, head_of
from tidelog.kube.serve.memory import MemoryView
from tidelog.kube.serve.revisions import end_of
from tidelog.kube.serve.shelf import EventType, Form
from tidelog.kube.serve.subresources import bind, evict, scale_of, scaled
from tidelog.kube.serve.view import Expired, Listed, LogView
from tidelog.kube.serve.writes import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Writer, Written
from tidelog.kube.status import ApiError

PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
RETURNED_WHEN_DELETED = frozenset(("Pod", "PersistentVolume", "PersistentVolumeClaim", "Namespace"))
"""Kinds whose deletion is answered with the object."""
USER = "tidelog:owner"
OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token "
    "results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)
OLD_LIST = "The resourceVersion for the provided list is too old."
INCONSISTENT = -1
"""The revision in a continue token that asks for the rest as it is now."""

_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """The answer."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = ()
    type: str = "application/json"


class Asked(NamedTuple):
    """A request to a resource."""

    method: str
    path: ResourcePath
    resource: ApiResource
    query: Query
    accept: str
    content_type: str
    body: Any
    """Decoded; None without one."""

    @property
    def is_watch(self) -> bool:
        """The answer has no end."""
        return self.method == "GET" and not self.path.name and asking.flag(self.query, "watch")


def json_of(data: Any, code: int = 200) -> Answer:
    """An answer of plain data."""
    return Answer(_encode(data), code)


class Api:
    """Answers requests."""

    def __init__(self, facts: FactService, view: LogView, clock: Clock) -> None:
        self.view = view
        self.clock = clock
        self.beside = MemoryView(clock.now)
        self.writer = Writer(facts)
        self._beside_writer = BesideWriter(self.beside, clock.now)

    def resource_of(self, path: ResourcePath) -> ApiResource:
        """The resource of a path. Raises ApiError."""
        found = catalogue().by_path.get(path[:3])
        if found is None or bool(path.namespace and not found.namespaced):
            raise status.no_such_resource()
        return found

    def source(self, resource: ApiResource) -> LogView | MemoryView:
        """Where the objects of a resource are."""
        return self.view if resource.in_log else self.beside

    # --- one request --------------------------------------------------------------------------------------------------------

    async def answer(self, asked: Asked) -> Answer:
        """The answer to anything but a watch. Raises ApiError."""
        path = asked.path
        if path.subresource:
            return await self._subresource(asked)
        if path.name and asked.resource.namespaced and not path.namespace:
            raise status.no_such_resource()
        match asked.method, bool(path.name):
            case "GET", False:
                return await self._list(asked)
            case "GET", True:
                return await self._get(asked)
            case "POST", False:
                return await self._create(asked)
            case "PUT", True:
                return await self._update(asked)
            case "PATCH", True:
                return await self._patch(asked)
            case "DELETE", True:
                return await self._delete(asked)
            case "DELETE", False:
                return await self._delete_all(asked)
        raise status.method_not_allowed()

    # --- reading ------------------------------------------------------------------------------------------------------------

    async def _get(self, asked: Asked) -> Answer:
        return self._shown(await self._item(asked), asked)

    async def _item(self, asked: Asked) -> Item:
        path, resource = asked.path, asked.resource
        source = self.source(resource)
        if (past := await self._past(asked)) is not None:
            found = past.find(path.namespace, path.name)
            if found is None:
                raise status.not_found(resource.group, resource.plural, path.name)
            return found
        wanted = asking.revision_of(asked.query)
        if wanted != 0:
            await source.caught_up()
        if wanted and wanted > source.revision:
            raise status.future(wanted, source.revision)
        found = source.shelves[resource.kind].get(path.namespace, path.name)
        if found is None:
            raise status.not_found(resource.group, resource.plural, path.name)
        return found

    async def _list(self, asked: Asked) -> Answer:
        resource, query = asked.resource, asked.query
        selected = asking.selection(resource, asked.path.namespace, query)
        limit = asking.number(query, "limit")
        listed, start = await self._listed(asked, limit)
        if asking.revision_of(query) == 0 and not query.get("continue"):
            limit = 0
        items = listed.items
        if start:
            items = items[bisect_right(items, start, key=lambda item: item.sort_key) :]
        matches = selected.matches
        metadata: dict[str, Any] = {"resourceVersion": str(listed.revision)}
        if not limit:
            chosen = list(items) if matches is None else [item for item in items if matches(item)]
        else:
            chosen, more, left = _page(items, matches, limit)
            if more:
                metadata["continue"] = asking.token_of(asking.Place(listed.revision, chosen[-1].sort_key))
                if not asked.query.get("labelSelector") and not asked.query.get("fieldSelector"):
                    metadata["remainingItemCount"] = left
                if resource.in_log:
                    self.view.keep(resource.kind, listed)
        return self._shown_list(chosen, metadata, asked)

    async def _listed(self, asked: Asked, limit: int) -> tuple[Listed, tuple[str, str] | None]:
        """The list that is asked for, and behind which object to begin."""
        query, kind = asked.query, asked.resource.kind
        source = self.source(asked.resource)
        wanted, match = asking.revision_of(query), query.get("resourceVersionMatch", "")
        token = query.get("continue", "")
        if match not in ("", "Exact", "NotOlderThan"):
            raise asking.invalid_options("resourceVersionMatch", 'supported values: "Exact", "NotOlderThan"')
        if token:
            if wanted:
                raise status.bad_request("specifying resource version is not allowed when using continue")
            place = asking.place_of(token, namespaced=asked.resource.namespaced)
            if place.revision == INCONSISTENT:
                await source.caught_up()
                return source.listed(kind), place.start
            if place.revision > source.revision:
                raise status.future(place.revision, source.revision)
            try:
                return await source.listed_at(kind, place.revision), place.start
            except Expired:
                rest = asking.token_of(place._replace(revision=INCONSISTENT))
                raise status.expired(OLD_CONTINUE, metadata={"continue": rest}) from None
        if (past := await self._past(asked)) is not None:
            return past, None
        if match and wanted is None:
            raise asking.invalid_options(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if wanted != 0:
            await source.caught_up()
        if wanted and wanted > source.revision:
            raise status.future(wanted, source.revision)
        if wanted and (match == "Exact" or (limit and not match)):
            try:
                return await source.listed_at(kind, wanted), None
            except Expired:
                raise status.expired(OLD_LIST) from None
        if wanted == 0 and match == "Exact":
            raise asking.invalid_options(
                "resourceVersionMatch", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
            )
        return source.listed(kind), None

    async def _past(self, asked: Asked) -> Listed | None:
        """All objects of the kind at the moment of `?at=`. Raises ApiError."""
        at = asking.moment_of(asked.query)
        if at is None:
            return None
        if not asked.resource.in_log:
            raise status.bad_request(f"{asked.resource.plural} are kept beside the log, as they are now")
        await self.view.caught_up()
        log = self.view.log
        seq = await log.seq_at(at.time) if at.seq is None else at.seq
        if seq > log.head.seq:
            raise status.bad_request(f"at={seq}: there is no such record: the log ends at {log.head.seq}")
        if seq < log.anchor.seq or (at.seq is None and seq and at.time < log.anchor.at):
            raise status.expired(f"{OLD_LIST} The log begins at record {log.anchor.seq + 1}.")
        try:
            return await self.view.listed_at(asked.resource.kind, end_of(seq))
        except Expired:
            raise status.expired(OLD_LIST) from None

    # --- forms --------------------------------------------------------------------------------------------------------------

    def manifest_of(self, item: Item, resource: ApiResource) -> Mapping[str, Any]:
        """The whole object in the version of a resource, without kind and apiVersion."""
        return as_new(item.manifest) if resource.group == EVENTS_GROUP else item.manifest

    def json(self, item: Item, resource: ApiResource) -> bytes:
        """The object as itself."""
        if resource.group == EVENTS_GROUP:
            return head_of(resource) + _encode(self.manifest_of(item, resource))[1:]
        return item.json(resource)

    def _shown(self, item: Item, asked: Asked, code: int = 200, warnings: tuple[str, ...] = ()) -> Answer:
        form = asking.form_of(asked.accept)
        if form == "Table":
            meta = {"resourceVersion": str(item.revision)}
            return Answer(_encode(self._table([item], asked, meta)), code, warnings)
        if form:
            return Answer(_encode(tables.partial(item.manifest)), code, warnings)
        return Answer(self.json(item, asked.resource), code, warnings)

    def _shown_list(self, items: list[Item], metadata: dict[str, Any], asked: Asked) -> Answer:
        form, resource = asking.form_of(asked.accept), asked.resource
        if form == "Table":
            return Answer(_encode(self._table(items, asked, metadata)))
        if form:
            data = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": [tables.partial(item.manifest) for item in items],
            }
            return Answer(_encode(data))
        head = _encode(
            {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        )
        if resource.group == EVENTS_GROUP:
            bodies = [_encode(self.manifest_of(item, resource)) for item in items]
        else:
            bodies = [item.body for item in items]
        return Answer(head[:-1] + b',"items":[' + b",".join(bodies) + b"]}")

    def _table(self, items: list[Item], asked: Asked, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return tables.table(asked.resource.kind, items, _include(asked.query), self.clock.now(), metadata)

    def watch_form(self, asked: Asked) -> tuple[Form, object]:
        """How the events of a watch are written, and a key that is the same for all watches in which they are written so."""
        form, resource = asking.form_of(asked.accept), asked.resource
        if form == "Table":
            include = _include(asked.query)

            def as_table(type: EventType, item: Item, revision: int) -> bytes:
                meta = {"resourceVersion": str(revision)}
                shown = item if item.revision == revision else _at(item, revision)
                data = tables.table(resource.kind, [shown], include, self.clock.now(), meta)
                return _encode({"type": type, "object": data}) + b"\n"

            return as_table, (form, include)
        if form:

            def as_partial(type: EventType, item: Item, revision: int) -> bytes:
                shown = item if item.revision == revision else _at(item, revision)
                return _encode({"type": type, "object": tables.partial(shown.manifest)}) + b"\n"

            return as_partial, form

        def as_itself(type: EventType, item: Item, revision: int) -> bytes:
            shown = item if item.revision == revision else _at(item, revision)
            return b'{"type":"%b","object":%b}\n' % (type.encode(), self.json(shown, resource))

        return as_itself, resource.api_version

    def bookmark(self, resource: ApiResource, revision: int, *, ends_initial: bool = False) -> bytes:
        """The line that says how far a watch has come."""
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if ends_initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        data = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return _encode({"type": "BOOKMARK", "object": data}) + b"\n"

    # --- writing ------------------------------------------------------------------------------------------------------------

    async def _create(self, asked: Asked) -> Answer:
        resource, path = asked.resource, asked.path
        options = asking.options_of(asked.query)
        namespace = path.namespace
        if resource.namespaced and not namespace:
            raise status.method_not_allowed()
        if resource.in_log:
            written = await self.writer.create(resource, namespace, asked.body, options)
        else:
            written = self._beside_writer.create(resource, namespace, asked.body, options)
        return self._written(written, asked, 201, dry_run=options.dry_run)

    async def _update(self, asked: Asked) -> Answer:
        resource, path = asked.resource, asked.path
        options = asking.options_of(asked.query)
        if resource.in_log:
            written = await self.writer.update(
                resource, path.namespace, path.name, path.subresource, asked.body, options
            )
        else:
            written = self._beside_writer.update(resource, path.namespace, path.name, asked.body, options)
        return self._written(written, asked)

    async def _patch(self, asked: Asked) -> Answer:
        resource, path, how = asked.resource, asked.path, asked.content_type
        options = asking.options_of(asked.query)
        if how not in PATCHES:
            if how == APPLY_PATCH:
                raise status.unsupported_media_type(
                    "server-side apply is not served here, because nobody's fields are managed; use client-side apply (kubectl apply "
                    "without --server-side), or another kind of patch"
                )
            raise status.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {', '.join(PATCHES)}"
            )
        if resource.in_log:
            written = await self.writer.patch(
                resource, path.namespace, path.name, path.subresource, asked.body, how, options
            )
        else:
            written = self._beside_writer.patch(resource, path.namespace, path.name, asked.body, how, options)
        return self._written(written, asked)

    def _written(self, written: Written, asked: Asked, code: int = 200, *, dry_run: bool = False) -> Answer:
        item = written.item
        if dry_run:
            bare = {
                key: value for key, value in item.manifest["metadata"].items() if key != "resourceVersion"
            }
            item = Item(
                item.kind,
                item.namespace,
                item.name,
                item.revision,
                None,
                "",
                {**item.manifest, "metadata": bare},
            )
        elif asked.resource.in_log:
            item = self.view.known(item)
        return self._shown(item, asked, code, written.warnings)

    async def _delete(self, asked: Asked) -> Answer:
        resource, path = asked.resource, asked.path
        how = asking.delete_options(asked.query, asked.body)
        if resource.in_log:
            written = await self.writer.delete(
                resource, path.namespace, path.name, how.options, how.preconditions, how.grace, how.orphan
            )
        else:
            written = self._beside_writer.delete(
                resource, path.namespace, path.name, how.options, how.preconditions
            )
        if not written.gone or resource.kind in RETURNED_WHEN_DELETED:
            return self._shown(written.item, asked, warnings=written.warnings)
        details = {"name": path.name, "kind": resource.plural, "uid": written.item.uid}
        if resource.group:
            details["group"] = resource.group
        return json_of(status.success(details))

    async def _delete_all(self, asked: Asked) -> Answer:
        resource, path = asked.resource, asked.path
        how = asking.delete_options(asked.query, asked.body)
        selected: Selection = asking.selection(resource, path.namespace, asked.query)
        if resource.in_log:
            written = await self.writer.delete_all(
                resource, path.namespace, selected.matches, how.options, how.grace
            )
            items = [one.item for one in written]
        else:
            shelf = self.beside.shelves[resource.kind]
            items = [item for item in shelf.items() if selected.matches is None or selected.matches(item)]
            for item in items:
                if not how.options.dry_run:
                    self.beside.delete(resource.kind, *item.sort_key)
        metadata = {"resourceVersion": str(self.source(resource).revision)}
        return self._shown_list(items, metadata, asked)

    # --- parts of objects -----------------------------------------------------------------------------------------------------

    async def _subresource(self, asked: Asked) -> Answer:
        resource, path = asked.resource, asked.path
        if path.subresource not in resource.subresources or (resource.namespaced and not path.namespace):
            raise status.no_such_resource()
        match path.subresource, asked.method:
            case "status" | "resize", "GET":
                return await self._get(asked)
            case "status" | "resize", "PUT":
                return await self._update(asked)
            case "status" | "resize", "PATCH":
                return await self._patch(asked)
            case "binding", "POST":
                options = asking.options_of(asked.query, asked.body)
                await bind(self.writer, path.namespace, path.name, asked.body, options)
                return json_of(status.success(code=201), 201)
            case "eviction", "POST":
                return await self._evict(asked)
            case "scale", "GET":
                return json_of(scale_of(await self._item(asked)))
            case "scale", "PUT" | "PATCH":
                return await self._scale(asked)
        raise status.method_not_allowed()

    async def _evict(self, asked: Asked) -> Answer:
        body = asked.body
        if not isinstance(body, dict):
            raise status.bad_request("the body of the request must be an Eviction")
        meta = body.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if name not in (None, "", asked.path.name):
            raise status.bad_request(f"name in URL does not match name in Eviction object: {asked.path.name}")
        how = asking.delete_options(asked.query, body.get("deleteOptions"))
        await evict(
            self.writer, asked.path.namespace, asked.path.name, how.preconditions, how.grace, how.options
        )
        return json_of(status.success(code=201), 201)

    async def _scale(self, asked: Asked) -> Answer:
        path, resource = asked.path, asked.resource
        options = asking.options_of(asked.query)
        scale = asked.body
        if asked.method == "PATCH":
            if asked.content_type not in PATCHES:
                raise status.unsupported_media_type(
                    "a Scale can be changed by a merge patch, a JSON patch or a strategic merge patch"
                )
            from tidelog.kube.serve.writes import patched

            scale = patched(scale_of(await self._item(asked)), scale, asked.content_type)
        patch, _ = scaled(scale)
        written = await self.writer.patch(
            resource, path.namespace, path.name, "", patch, MERGE_PATCH, options
        )
        return json_of(scale_of(written.item))

    # --- questions --------------------------------------------------------------------------------------------------------------

    def review(self, kind: str, group: str, version: str, body: Any, *, may_write: bool) -> Answer:
        """The answer to a question that is asked by creating an object."""
        found: dict[str, Any] = {
            "kind": kind,
            "apiVersion": f"{group}/{version}",
            "metadata": {"creationTimestamp": format_time(self.clock.now() // NANOS * NANOS)},
        }
        if kind == "SelfSubjectReview":
            groups = ["system:masters", "system:authenticated"]
            return json_of({**found, "status": {"userInfo": {"username": USER, "groups": groups}}}, 201)
        spec = body.get("spec") if isinstance(body, dict) else None
        attributes = spec.get("resourceAttributes") if isinstance(spec, dict) else None
        verb = attributes.get("verb", "") if isinstance(attributes, dict) else ""
        allowed = may_write or verb in ("get", "list", "watch")
        return json_of({**found, "spec": spec or {}, "status": {"allowed": allowed}}, 201)


def _at(item: Item, revision: int) -> Item:
    """The object under another revision: that of its end."""
    if item.typed is not None:
        return Item(item.kind, item.namespace, item.name, revision, item.typed, item.opaque)
    meta = {**item.manifest["metadata"], "resourceVersion": str(revision)}
    return Item(item.kind, item.namespace, item.name, revision, None, "", {**item.manifest, "metadata": meta})


def _page(items: Any, matches: asking.Match | None, limit: int) -> tuple[list[Item], bool, int]:
    """As many as are wanted, whether there are more, and how many items are left."""
    chosen: list[Item] = []
    for place, item in enumerate(items):
        if matches is None or matches(item):
            if len(chosen) == limit:
                return chosen, True, len(items) - place
            chosen.append(item)
    return chosen, False, 0


def _include(query: Query) -> tables.Include:
    found = query.get("includeObject") or "Metadata"
    if found not in ("Metadata", "Object", "None"):
        raise status.bad_request(
            f'invalid includeObject "{found[:40]}": supported values: "None", "Metadata", "Object"'
        )
    return cast("tables.Include", found)


def refused(error: ApiError) -> Answer:
    """The answer that a failure is."""
    return json_of(error.status, error.code)
