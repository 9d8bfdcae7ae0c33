"""Write `kube/fields.json`: which fields the objects of Kubernetes' API have, and of what types.

    python tools/make_kube_fields.py

Taken from the models of the official client package `kubernetes`, for the kinds that are served and everything they contain. What it holds are
the names of fields and their types, in a short form: `{"Pod": {"spec": "PodSpec", …}, "PodSpec": {"containers": "[]Container", …}}`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes.client.models as models

from tidelog.kube.resources import catalogue
from tidelog.kube.schema import definition_of

ROOT = Path(__file__).resolve().parent.parent
PLAIN = {
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "float": "number",
    "object": "any",
    "datetime": "time",
}
VERSION = re.compile(r"(V[0-9]+(?:(?:alpha|beta)[0-9]+)?)(\w+)")


def main() -> None:
    """Write the file."""
    found: dict[str, dict[str, str]] = {}
    for resource in catalogue().resources:
        version = resource.version.capitalize()
        group = resource.group.partition(".")[0].capitalize() or "Core"
        for name in (f"{version}{resource.kind}", f"{group}{version}{resource.kind}"):
            if hasattr(models, name):
                fields = fields_of(name, found)
                # An object's own, which are not among its fields; those of its parts are.
                fields.pop("apiVersion")
                fields.pop("kind")
                found.setdefault(definition_of(resource), {}).update(fields)
                break
    text = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(found[name], separators=(',', ':'))}" for name in sorted(found)
    )
    (ROOT / "kube" / "fields.json").write_text("{" + text + "}\n", encoding="utf-8")


def fields_of(name: str, found: dict[str, dict[str, str]]) -> dict[str, str]:
    """The fields of one model; those of the models that it contains are put into `found`."""
    model: Any = getattr(models, name)
    return {model.attribute_map[field]: type_of(typed, found) for field, typed in model.openapi_types.items()}


def type_of(text: str, found: dict[str, dict[str, str]]) -> str:
    """The short form of a type."""
    if inner := re.fullmatch(r"[Ll]ist\[(.*)\]", text):
        return "[]" + type_of(inner[1], found)
    if inner := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", text):
        return "{}" + type_of(inner[1], found)
    if text in PLAIN:
        return PLAIN[text]
    short = VERSION.fullmatch(text)
    name = short[2] if short else text
    if name not in found:
        found[name] = {}
        found[name] = fields_of(text, found)
    return name


if __name__ == "__main__":
    main()
