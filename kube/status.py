"""Status objects: how an API server says that something went wrong, in its own words and codes.

    raise not_found(PODS, "web-1")           # 404 pods "web-1" not found

Clients tell them apart by code, reason and the causes' reasons, people read the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.api.errors import ErrorKind, FieldError

CAUSES_MAX = 100
"""More broken rules than this are not told of one object."""

CAUSE_OF: dict[ErrorKind, str] = {
    "Required": "FieldValueRequired",
    "Invalid": "FieldValueInvalid",
    "NotSupported": "FieldValueNotSupported",
    "Duplicate": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "TooMany": "FieldValueTooMany",
    "TooLong": "FieldValueTooLong",
    "NotFound": "FieldValueNotFound",
}


class ApiError(Exception):
    """A request that is answered with a Status that tells of a failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        retry_after: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.metadata = metadata or {}

    @property
    def status(self) -> dict[str, Any]:
        """The Status object."""
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details:
            found["details"] = details
        found["code"] = self.code
        return found


def success(details: dict[str, Any] | None = None, code: int = 200) -> dict[str, Any]:
    """The Status that says that all went well."""
    found: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        found["details"] = details
    if code != 200:
        found["code"] = code
    return found


def _details(group: str, kind: str, name: str, causes: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name:
        found["name"] = name
    if group:
        found["group"] = group
    found["kind"] = kind
    if causes:
        found["causes"] = list(causes)
    return found


def qualified(resource: str, group: str) -> str:
    """`pods`, or `poddisruptionbudgets.policy`."""
    return f"{resource}.{group}" if group else resource


def not_found(group: str, resource: str, name: str) -> ApiError:
    """There is no such object."""
    return ApiError(
        404, "NotFound", f'{qualified(resource, group)} "{name}" not found', _details(group, resource, name)
    )


def no_such_resource() -> ApiError:
    """There is no such path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, resource: str, name: str) -> ApiError:
    """There is one of this name."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str) -> ApiError:
    """The object is not as the request takes it to be."""
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(group, resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> ApiError:
    """The object breaks rules."""
    found = list(errors)[:CAUSES_MAX]
    told = [str(error) for error in found]
    why = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    causes = [
        {
            "reason": CAUSE_OF[error.kind],
            "message": str(error).partition(": ")[2],
            "field": error.path,
        }
        for error in found
    ]
    message = f'{qualified(kind, group)} "{name}" is invalid: {why}'
    return ApiError(422, "Invalid", message, _details(group, kind, name, causes))


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(message: str) -> ApiError:
    """The user may not do this here."""
    return ApiError(403, "Forbidden", message, {})


def unauthorized() -> ApiError:
    """Nobody knows who asks."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """The resource has no such verb."""
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def unsupported_media_type(message: str) -> ApiError:
    """The body is in an encoding that is not served."""
    return ApiError(415, "UnsupportedMediaType", message, {})


def too_large(limit: int) -> ApiError:
    """The body is too large."""
    return ApiError(413, "RequestEntityTooLarge", f"limit is {limit}")


def expired(message: str, *, metadata: dict[str, Any] | None = None) -> ApiError:
    """The revision that was asked for is gone."""
    return ApiError(410, "Expired", message, metadata=metadata)


def future(asked: int, current: int) -> ApiError:
    """The revision that was asked for is not there yet."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


def unavailable(message: str) -> ApiError:
    """Nobody answers here any more, or not yet: ask again."""
    return ApiError(503, "ServiceUnavailable", message, retry_after=1)


def internal(message: str) -> ApiError:
    """We cannot do it."""
    return ApiError(500, "InternalError", message)
