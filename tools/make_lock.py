"""Writes what an installation consists of: `make lock`, or `python tools/make_lock.py`, which asks the package index for the hashes.

    deploy/requirements.lock    each package that running Tidelog needs, its extras included, with its version, the hashes of all its
                                files, and by whom it is needed: `pip install --require-hashes -r deploy/requirements.lock`
    deploy/sbom.cdx.json        the same as a bill of materials (CycloneDX 1.5); follows from the lock file alone

The versions are those that are installed in this environment: update it first, run the tests, then write the lock.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "deploy" / "requirements.lock"
SBOM = ROOT / "deploy" / "sbom.cdx.json"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HEADER = """\
# The packages that running Tidelog needs, with its extras. Written by tools/make_lock.py (`make lock`); sbom.cdx.json follows from it.
"""
_PACKAGE = re.compile(r"^([a-z0-9][a-z0-9-]*)==(\S+) \\$")


class Locked(NamedTuple):
    """A package of the lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]
    """Those that need it, by name."""


def project() -> dict[str, Any]:
    """The project's own table."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def wanted() -> list[Requirement]:
    """The requirements that pyproject.toml names, those of its extras included."""
    table = project()
    texts = [*table["dependencies"], *(t for e in table["optional-dependencies"].values() for t in e)]
    return [Requirement(text) for text in texts]


def closure() -> dict[str, tuple[str, set[str]]]:
    """The version of each package that is needed, and by whom, as it is installed here."""
    found: dict[str, tuple[str, set[str]]] = {}
    todo = [(requirement, "tidelog") for requirement in wanted()]
    while todo:
        requirement, by = todo.pop()
        name = canonicalize_name(requirement.name)
        installed = distribution(requirement.name)
        via = found.setdefault(name, (installed.version, set()))[1]
        is_new = not via or requirement.extras
        via.add(by)
        if is_new:
            todo += [(each, name) for each in _needs(installed.requires or [], requirement.extras)]
    return found


def _needs(requires: list[str], extras: set[str]) -> Iterator[Requirement]:
    """Those of its requirements that any supported Python on Linux has."""
    for text in requires:
        requirement = Requirement(text)
        marker = requirement.marker
        places = (
            {"python_version": p, "python_full_version": f"{p}.0", "extra": e}
            for p in PYTHONS
            for e in ("", *extras)
        )
        if marker is None or any(marker.evaluate(place) for place in places):
            yield requirement


def hashes(name: str, version: str) -> tuple[str, ...]:
    """SHA-256 of each file of this version, as the package index tells them."""
    with urllib.request.urlopen(f"https://pypi.org/simple/{name}/", timeout=60) as answer:
        links = re.findall(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"', answer.read().decode())
    found = {digest for file, digest in links if _version(file) == version}
    if not found:
        raise SystemExit(f"{name} {version}: the index has no files of it")
    return tuple(sorted(found))


def _version(file: str) -> str:
    """The version that a file is of; empty for what is neither wheel nor source."""
    try:
        if file.endswith(".whl"):
            return str(parse_wheel_filename(file)[1])
        return str(parse_sdist_filename(file)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


def written(packages: list[Locked]) -> str:
    """The text of the lock file."""
    lines = [HEADER]
    for package in packages:
        lines.append(f"{package.name}=={package.version} \\\n")
        lines.append(" \\\n".join(f"    --hash=sha256:{digest}" for digest in package.hashes))
        lines.append(f"\n    # via {', '.join(package.via)}\n")
    return "".join(lines)


def read(text: str) -> list[Locked]:
    """The packages of a lock file."""
    found: list[Locked] = []
    for line in text.splitlines():
        if match := _PACKAGE.match(line):
            found.append(Locked(match[1], match[2], (), ()))
        elif line.strip().startswith("--hash=sha256:"):
            digest = line.strip().removeprefix("--hash=sha256:").removesuffix(" \\")
            found[-1] = found[-1]._replace(hashes=(*found[-1].hashes, digest))
        elif line.strip().startswith("# via "):
            found[-1] = found[-1]._replace(via=tuple(line.strip().removeprefix("# via ").split(", ")))
    return found


def bill(packages: list[Locked]) -> str:
    """The bill of materials of these packages."""
    table = project()
    me = f"pkg:pypi/tidelog@{table['version']}"
    places = {package.name: f"pkg:pypi/{package.name}@{package.version}" for package in packages} | {
        "tidelog": me
    }
    needs: dict[str, list[str]] = {place: [] for place in (me, *places.values())}
    for package in packages:
        for by in package.via:
            needs[places[by]].append(places[package.name])
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": me,
                    "name": "tidelog",
                    "version": table["version"],
                    "purl": me,
                    "licenses": [{"license": {"id": table["license"]}}],
                }
            },
            "components": [
                {
                    "type": "library",
                    "bom-ref": places[package.name],
                    "name": package.name,
                    "version": package.version,
                    "purl": places[package.name],
                    "externalReferences": [
                        {
                            "type": "distribution",
                            "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                        }
                    ],
                }
                for package in packages
            ],
            "dependencies": [{"ref": place, "dependsOn": sorted(on)} for place, on in needs.items()],
        },
        indent=1,
    ) + "\n"  # fmt: skip


def main() -> int:
    """Write both files."""
    packages = [
        Locked(name, version, hashes(name, version), tuple(sorted(via)))
        for name, (version, via) in sorted(closure().items())
    ]
    LOCK.write_text(written(packages), encoding="utf-8")
    SBOM.write_text(bill(packages), encoding="utf-8")
    print(f"{len(packages)} packages, {sum(len(p.hashes) for p in packages)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
