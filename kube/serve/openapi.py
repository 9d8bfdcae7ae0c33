"""OpenAPI v3 as far as kubectl needs it: what fields there are (`explain`), how lists are merged (`apply`, `edit`), and that the server validates fields itself.

Made from `fields.json` and from the fields that only tidelog has. One document for each group and version, made when it is first asked for.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

import msgspec

from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.kube.opaque import Shape, shape_of
from tidelog.kube.patches import MERGE_KEYS, PRIMITIVES
from tidelog.kube.paths import ResourcePath
from tidelog.kube.resources import ApiResource, catalogue
from tidelog.kube.schema import definition_of, definitions

OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2 = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07tidelog"
"""A document of version 2 without a path: kubectl asks for it, in this encoding alone, when it is given a `kind: List`, and leaves validation to the
server when it finds nothing in it. (Fields 1, swagger, and 2, info, with title and version.)"""

_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number"},
    "time": {"type": "string", "format": "date-time"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def _name(definition: str) -> str:
    return f"io.k8s.tidelog.{definition}"


def _reference(definition: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/components/schemas/{_name(definition)}"}], "default": {}}


def openapi_index() -> dict[str, Any]:
    """Return the answer of `/openapi/v3`: where the documents are."""
    paths = {}
    for group_version in dict.fromkeys(resource.api_version for resource in catalogue().resources):
        where = f"api/{group_version}" if "/" not in group_version else f"apis/{group_version}"
        text = openapi_of(where.split("/"))
        assert text is not None
        paths[where] = {
            "serverRelativeURL": f"/openapi/v3/{where}?hash={sha256(text).hexdigest()[:32].upper()}"
        }
    return {"paths": paths}


def openapi_of(parts: list[str]) -> bytes | None:
    """The document of a group and version, by the parts of its path; None if there is none."""
    return _document(tuple(parts))


@cache
def _document(parts: tuple[str, ...]) -> bytes | None:
    found = [
        resource
        for resource in catalogue().resources
        if parts
        == (("apis", resource.group, resource.version) if resource.group else ("api", resource.version))
    ]
    if not found:
        return None
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in found:
        if definition_of(resource) not in definitions():
            continue  # A kind of another package: nobody has told what fields it has.
        _add_schema(definition_of(resource), schemas)
        kind = KIND_BY_NAME.get(resource.kind)
        if kind is not None:
            _add_ours(schemas, definition_of(resource), shape_of(kind.type))
        root = schemas[_name(definition_of(resource))]
        gvk = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        root.setdefault("x-kubernetes-group-version-kind", []).append(gvk)
        for field in ("apiVersion", "kind"):
            root["properties"].setdefault(field, {"type": "string"})
        paths |= _paths(resource, gvk)
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "tidelog"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return msgspec.json.encode(document)


def _add_schema(definition: str, schemas: dict[str, Any]) -> None:
    name = _name(definition)
    if name in schemas:
        return
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schemas[name] = schema
    for field, short in definitions()[definition].items():
        schema["properties"][field] = _typed(field, short, schemas)


def _typed(field: str, type: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if type.startswith("[]"):
        found: dict[str, Any] = {"type": "array", "items": _typed("", type[2:], schemas)}
        key = MERGE_KEYS.get(field) or ("type" if field == "addresses" else "")
        if field == "ports":
            key = "containerPort" if type == "[]ContainerPort" else "port"
        if key and type[2:] in definitions():
            found |= {"x-kubernetes-patch-merge-key": key, "x-kubernetes-patch-strategy": "merge"}
        elif field in PRIMITIVES:
            found["x-kubernetes-patch-strategy"] = "merge"
        return found
    if type.startswith("{}"):
        return {"type": "object", "additionalProperties": _typed("", type[2:], schemas)}
    if type in _TYPES:
        return dict(_TYPES[type])
    _add_schema(type, schemas)
    return _reference(type)


def _add_ours(schemas: dict[str, Any], definition: str, shape: Shape) -> None:
    """Fields that Kubernetes does not have."""
    fields = definitions()[definition]
    properties = schemas[_name(definition)]["properties"]
    for field, inner in shape.fields.items():
        short = fields.get(field)
        if short is None:
            if field not in properties:
                properties[field] = dict(_TYPES["any"])
        elif inner is not None:
            of = short.removeprefix("[]").removeprefix("{}")
            if of in definitions():
                _add_ours(schemas, of, inner)


def _paths(resource: ApiResource, gvk: dict[str, str]) -> dict[str, Any]:
    namespace = "{namespace}" if resource.namespaced else ""
    collection = ResourcePath(resource.group, resource.version, resource.plural, namespace)
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _QUERY
    ]
    body = {"schema": {"$ref": f"#/components/schemas/{_name(definition_of(resource))}"}}

    def operation(action: str, *types: str) -> dict[str, Any]:
        return {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "parameters": parameters,
            **({"requestBody": {"content": dict.fromkeys(types, body)}} if types else {}),
            "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
        }

    where = str(collection).replace("%7B", "{").replace("%7D", "}")
    return {
        where: {"get": operation("list"), "post": operation("post", "application/json", "application/yaml")},
        f"{where}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", "application/json", "application/yaml"),
            "delete": operation("delete"),
            "patch": operation(
                "patch",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ),
        },
    }
