"""Requests to the fact service and its answers, within the process and over the socket.

Within the process these are structs. On the wire (`tidelog.eventlog.socket` carries it) it is one message each way, with
the version of its format. What comes over the wire is from strangers: everything is checked, sizes and nesting are bounded,
and the answer to nonsense says where it begins. A field that is not known is refused, because ignoring it could mean to do
something else than was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, assert_never

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from tidelog.api.errors import ErrorKind, FieldError, InvalidObjects, TidelogError, printable, quoted
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.manifests.manifests import OBJECT_BYTES_MAX, load, to_builtins
from tidelog.api.objects import Object
from tidelog.api.validation.field_errors import INT32_MAX, in_range

VERSION = 2
"""Version of the wire format. Another one is refused with a message that names both."""
OBJECTS_MAX = 20_000
"""Limit on the objects or keys of one request; arbitrary, about a second of admission."""
TEXT_BYTES_MAX = OBJECT_BYTES_MAX + 1024
"""Size limit of an object on the wire, which also names its kind."""
VALUE_BYTES_MAX = 500
"""Size limit of a refused value that is sent back; more than is printed of one."""
GRACE_MAX = INT32_MAX


# --- what is asked --------------------------------------------------------------------------------------------------


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Put these objects, in this order: a later one may rely on an earlier one."""

    objects: Sequence[Object]
    sources: Sequence[str] = ()
    """Where each object was read, for messages; empty, or as long as `objects`."""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete what has these keys. A grace period of 0 takes pods away at once."""

    keys: Sequence[str]
    grace_period_seconds: int | None = None
    ignore_not_found: bool = False


class SetCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Set one condition of a pod's status."""

    key: str
    type: str
    status: str
    reason: str = ""
    message: str = ""


Facts = Apply | Delete | SetCondition


# --- what is answered -----------------------------------------------------------------------------------------------

Action = Literal["created", "configured", "unchanged", "deleted", "terminating", "patched"]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one object."""

    key: str
    action: Action
    seq: int = 0
    """Its record; 0 where nothing was appended."""
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`pod/web-1`, as kubectl writes it."""
        return short_name(self.key)


class RefusedObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object that may not enter, and every rule that it breaks."""

    subject: str
    errors: tuple[FieldError, ...]


class Refused(TidelogError):
    """The request breaks rules. Nothing of it was appended."""

    def __init__(self, refusals: Sequence[RefusedObject], of: int) -> None:
        super().__init__(tuple(refusals), of)
        self.refusals = tuple(refusals)
        self.of = of
        """How many objects there were in all."""

    def __str__(self) -> str:
        return f"{self.headline}: {'; '.join(self.details)}"

    @property
    def headline(self) -> str:
        """The message without its details."""
        if len(self.refusals) == 1:
            return f"{self.refusals[0].subject}: refused, nothing was changed"
        return f"{len(self.refusals)} of {self.of} refused, nothing was changed"

    @property
    def details(self) -> tuple[str, ...]:
        """A line for each broken rule, with the object where there are several."""
        if len(self.refusals) == 1:
            return tuple(map(str, self.refusals[0].errors))
        return tuple(f"{refusal.subject}: {error}" for refusal in self.refusals for error in refusal.errors)


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a request: a result for each object, or the reason why it was refused as a whole."""

    version: int = VERSION
    head: int = 0
    """The seq of the log's newest record when the request was decided."""
    dry_run: bool = False
    results: tuple[Result, ...] = ()
    refusals: tuple[RefusedObject, ...] = ()
    of: int = 0
    """With refusals: how many objects there were in all."""


def short_name(key: str) -> str:
    """`Pod/default/web-1` as `pod/web-1`."""
    kind, _, rest = key.partition("/")
    return f"{kind.lower()}/{rest.rpartition('/')[2]}"


# --- the wire -------------------------------------------------------------------------------------------------------


class _Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Messages are held to their fields: what is not understood must not be ignored."""


_Few = Meta(max_length=OBJECTS_MAX)
"""Looked at before anything is made of the items."""


class _WireApply(_Wire, frozen=True, kw_only=True, tag_field="verb", tag="apply"):
    objects: Annotated[tuple[bytes, ...], _Few]
    """A manifest each, so that they can be read one after the other."""
    namespace: str = "default"
    sources: Annotated[tuple[str, ...], _Few] = ()


class _WireDelete(_Wire, frozen=True, kw_only=True, tag_field="verb", tag="delete"):
    keys: Annotated[tuple[str, ...], _Few]
    grace_period_seconds: int | None = None
    ignore_not_found: bool = False


class _WireSetCondition(_Wire, frozen=True, kw_only=True, tag_field="verb", tag="patch-condition"):
    key: str
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Request(_Wire, frozen=True, kw_only=True):
    """A message on the socket."""

    version: int
    facts: _WireApply | _WireDelete | _WireSetCondition
    dry_run: bool = False
    feature_gates: FeatureGates | None = None
    """The client's feature gates; None leaves them to the process that writes."""


def write_request(facts: Facts, *, dry_run: bool = False, gates: FeatureGates | None = None) -> object:
    """The request for these facts as it goes over the socket."""
    match facts:
        case Apply():
            objects = tuple(msgspec.json.encode(to_builtins(obj)) for obj in facts.objects)
            wire: _WireApply | _WireDelete | _WireSetCondition = _WireApply(
                objects=objects, sources=tuple(facts.sources)
            )
        case Delete():
            wire = _WireDelete(
                keys=tuple(facts.keys),
                grace_period_seconds=facts.grace_period_seconds,
                ignore_not_found=facts.ignore_not_found,
            )
        case SetCondition():
            wire = _WireSetCondition(**msgspec.structs.asdict(facts))
        case _:
            assert_never(facts)
    return Request(version=VERSION, facts=wire, dry_run=dry_run, feature_gates=gates)


class _Versioned(msgspec.Struct):
    """As much of a message of any version as tells which."""

    version: object = None


def read_request(message: Raw) -> Request:
    """The request that this message is; raises InvalidObjects that says what is wrong and where.

    A malformed request takes no more memory than its bytes: unknown fields are not decoded.
    """
    try:
        version = msgspec.msgpack.decode(message, type=_Versioned).version
        if isinstance(version, int) and version != VERSION:
            rule = f"this tidelog speaks version {VERSION}; use the same tidelog on both sides"
            raise _bad("version", "NotSupported", version, rule)
        return msgspec.msgpack.decode(message, type=Request)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        rule, _, path = str(error).partition(" - at `$")
        raise _bad(path.strip("`.") or "request", "Invalid", None, rule) from None


def facts_of(request: Request) -> Facts:
    """Decode the request; raises InvalidObjects."""
    facts = request.facts
    match facts:
        case _WireApply():
            if facts.sources and len(facts.sources) != len(facts.objects):
                rule = f"must have {len(facts.objects)} items, one for each object"
                raise _bad("facts.sources", "Invalid", len(facts.sources), rule)
            return Apply(objects=_read_objects(facts), sources=facts.sources)
        case _WireDelete():
            for index, key in enumerate(facts.keys):
                _check_key(f"facts.keys[{index}]", key)
            grace = facts.grace_period_seconds
            if grace is not None and not 0 <= grace <= GRACE_MAX:
                raise _bad("facts.grace_period_seconds", "Invalid", grace, in_range(0, GRACE_MAX))
            return Delete(
                keys=facts.keys, grace_period_seconds=grace, ignore_not_found=facts.ignore_not_found
            )
        case _WireSetCondition():
            _check_key("facts.key", facts.key)
            return SetCondition(**msgspec.structs.asdict(facts))
        case _:
            assert_never(facts)


def _read_objects(facts: _WireApply) -> list[Object]:
    objects = []
    for index, text in enumerate(facts.objects):
        found = load(text, f"objects[{index}]", namespace=facts.namespace, bytes_max=TEXT_BYTES_MAX)
        if len(found) != 1:
            raise _bad(f"facts.objects[{index}]", "Invalid", len(found), "must be one object")
        objects += found
    return objects


def _check_key(path: str, key: str) -> None:
    name, *rest = key.split("/")
    kind = KIND_BY_NAME.get(name)
    if kind is None:
        raise _bad(path, "NotSupported", key, "must begin with a known kind")
    if len(rest) != 2 or not rest[1] or bool(rest[0]) != kind.namespaced:
        form = "Kind/namespace/name" if kind.namespaced else "Kind//name"
        raise _bad(path, "Invalid", key, f"must be {form}")


def _bad(path: str, kind: ErrorKind, value: object, rule: str) -> InvalidObjects:
    return InvalidObjects("the request", [FieldError(path=path, kind=kind, value=value, rule=rule)])


def plain(refusal: RefusedObject) -> RefusedObject:
    """With nothing in it that msgpack cannot carry, or that is long: such a value is told as it would be printed."""
    return replace(refusal, errors=tuple(_carried(error) for error in refusal.errors))


def _carried(error: FieldError) -> FieldError:
    """No longer than it would be printed: very many errors must fit into one message."""
    value, path, rule = error.value, printable(error.path), printable(error.rule)
    try:
        if len(msgspec.msgpack.encode(value)) > VALUE_BYTES_MAX:
            value = value[:VALUE_BYTES_MAX] if isinstance(value, str) else quoted(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        value = quoted(value)
    return replace(error, path=path, rule=rule, value=value)


def read_answer(message: Any) -> Answer:
    """The answer that this message is; raises Refused if it is a refusal."""
    try:
        answer = msgspec.convert(message, Answer)
    except msgspec.ValidationError as error:
        raise TidelogError(
            f"the process that writes the log answered what this tidelog does not understand ({error}); "
            "use the same tidelog on both sides"
        ) from None
    if answer.refusals:
        raise Refused(answer.refusals, answer.of)
    return answer
