"""Reads a request's wishes from its query and its headers: selectors, revisions, limits, forms."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from tidelog.api.selector_text import parse_label_selector
from tidelog.api.selectors import SelectorError, label_matcher
from tidelog.api.times import parse_time
from tidelog.kube import status
from tidelog.kube.resources import ApiResource
from tidelog.kube.selectors import FieldSelectorError, field_matcher, parse_field_selector
from tidelog.kube.serve.items import Item
from tidelog.kube.serve.shelf import INDEXED
from tidelog.kube.serve.writes import Options, Preconditions

REVISION_MAX = (1 << 63) - 1
GRACE_MAX = (1 << 31) - 1
TOKEN_VERSION = "meta.k8s.io/v1"
TRUE = ("true", "1", "True")

Query = Mapping[str, str]
Match = Callable[[Item], bool]


class Selection(NamedTuple):
    """Which objects are asked for."""

    matches: Match | None
    """None: all."""
    one_value: tuple[str, str] | None
    """A field, and the one value that it must have."""


class Moment(NamedTuple):
    """After a record, or at a time."""

    seq: int | None = None
    time: int = 0


class Place(NamedTuple):
    """Where a list goes on: the revision, and the first object that is not before this."""

    revision: int
    start: tuple[str, str]


def selection(resource: ApiResource, namespace: str, query: Query) -> Selection:
    """Return the objects that the selectors and the namespace leave. Raises ApiError."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    index: tuple[str, str] | None = None
    tests: list[Match] = []
    if namespace:
        tests.append(lambda item: item.namespace == namespace)
    if labels:
        try:
            by_labels = label_matcher(parse_label_selector(labels))
        except SelectorError as error:
            raise status.bad_request(
                f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match label selector '
                f'"{labels[:200]}", field selector "{fields[:200]}": {error}'
            ) from None
        tests.append(lambda item: by_labels(item.labels))
    if fields:
        try:
            terms = parse_field_selector(fields, resource.kind)
        except FieldSelectorError as error:
            raise status.bad_request(
                f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match label selector '
                f'"{labels[:200]}", field selector "{fields[:200]}": {error}'
            ) from None
        index = next(
            ((term.field, term.value) for term in terms if term.wanted and term.field in INDEXED), None
        )
        by_fields = field_matcher(terms, Item.field)
        if by_fields is not None:
            tests.append(by_fields)
    if not tests:
        return Selection(None, None)
    if len(tests) == 1:
        return Selection(tests[0], index)
    return Selection(lambda item: all(test(item) for test in tests), index)


def flag(query: Query, name: str) -> bool:
    """A yes or no."""
    return query.get(name, "") in TRUE


def number(query: Query, name: str) -> int:
    """A number that is not negative; 0 where it is absent. Raises ApiError."""
    text = query.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise status.bad_request(f'invalid value for query parameter "{name}": "{text[:40]}"')
    return int(text)


def revision_of(query: Query) -> int | None:
    """The resourceVersion; None without one. Raises ApiError."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= REVISION_MAX):
        raise status.bad_request(f'Invalid value: "{text[:40]}": resourceVersion must be a number')
    return int(text)


def moment_of(query: Query) -> Moment | None:
    """The moment of `?at=`, which is ours and for people; None without one. Raises ApiError."""
    text = query.get("at", "")
    if not text:
        return None
    if any(query.get(name) for name in ("resourceVersion", "resourceVersionMatch")):
        raise status.bad_request("at and resourceVersion both say a moment: give one")
    if text.isascii() and text.isdigit() and len(text) < 13:
        return Moment(seq=int(text))
    try:
        return Moment(time=parse_time(text))
    except ValueError:
        raise status.bad_request(
            f'at="{text[:40]}": must be the number of a record, or a time as 2026-03-01T14:03:00Z'
        ) from None


def invalid_options(field: str, rule: str) -> status.ApiError:
    """The options of a list or watch do not go together."""
    message = f'ListOptions.meta.k8s.io "" is invalid: {field}: Forbidden: {rule}'
    cause = {"reason": "FieldValueForbidden", "message": f"Forbidden: {rule}", "field": field}
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    return status.ApiError(422, "Invalid", message, details)


# --- paging -----------------------------------------------------------------------------------------------------------------


def token_of(place: Place) -> str:
    """The text with which a client asks for the rest of a list."""
    start = "/".join(filter(None, place.start)) + "\0"
    data = {"v": TOKEN_VERSION, "rv": place.revision, "start": start}
    return base64.urlsafe_b64encode(msgspec.json.encode(data)).decode().rstrip("=")


def place_of(token: str, *, namespaced: bool) -> Place:
    """Read such a text. Raises ApiError."""
    try:
        data: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = data["v"], data["rv"], data["start"]
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        version = revision = start = None
    if (
        version != TOKEN_VERSION
        or not isinstance(revision, int)
        or not isinstance(start, str)
        or isinstance(revision, bool)
    ):
        raise status.bad_request("continue key is not valid: it was not made by this server")
    namespace, _, name = start.removesuffix("\0").rpartition("/")
    return Place(revision, (namespace if namespaced else "", name))


# --- what is to be written ----------------------------------------------------------------------------------------------------


def options_of(query: Query, body: Any = None) -> Options:
    """How to write. Raises ApiError."""
    dry_run = [query["dryRun"]] if query.get("dryRun") else []
    if isinstance(body, dict):
        more = body.get("dryRun")
        dry_run += more if isinstance(more, list) else []
    if any(value != "All" for value in dry_run):
        raise status.bad_request('invalid dryRun option: supported values: "All"')
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise status.bad_request(
            f'invalid fieldValidation option "{validation[:40]}": supported values: "Ignore", "Warn", "Strict"'
        )
    return Options(bool(dry_run), validation)


class DeleteOptions(NamedTuple):
    """How to delete."""

    grace: int | None
    preconditions: Preconditions
    orphan: bool
    options: Options


def delete_options(query: Query, body: Any) -> DeleteOptions:
    """How to delete. Raises ApiError."""
    body = {} if body is None else body
    if not isinstance(body, dict):
        raise status.bad_request("the body of a deletion must be DeleteOptions")
    given = body.get("gracePeriodSeconds")
    if given is None and query.get("gracePeriodSeconds"):
        given = number(query, "gracePeriodSeconds")
    if given is not None and (
        not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= GRACE_MAX
    ):
        raise status.bad_request("gracePeriodSeconds must be a number, and not negative")
    found = body.get("preconditions")
    wanted = found if isinstance(found, dict) else {}
    uid, revision = wanted.get("uid") or "", wanted.get("resourceVersion") or ""
    if not isinstance(uid, str) or not isinstance(revision, str):
        raise status.bad_request("preconditions must be strings")
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if policy not in ("", "Background", "Foreground", "Orphan"):
        raise status.bad_request(
            'invalid propagationPolicy: supported values: "Background", "Foreground", "Orphan"'
        )
    orphan = policy == "Orphan" or body.get("orphanDependents") is True or flag(query, "orphanDependents")
    return DeleteOptions(given, Preconditions(uid, revision), orphan, options_of(query, body))


# --- forms --------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def form_of(accept: str) -> str:
    """Return the form in which objects are sent: empty for themselves, `Table`, or `PartialObjectMetadata`. The first that is served counts."""
    for part in accept.split(","):
        kind, *parameters = (text.strip() for text in part.split(";"))
        named = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        wanted = named.get("as", "")
        if wanted in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            if named.get("v") in ("v1", "v1beta1"):
                return wanted.removesuffix("List")
            continue
        return ""
    return ""
