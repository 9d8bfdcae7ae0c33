"""The lock file names all that running needs, with hashes, and the bill of materials follows from it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_lock", ROOT / "tools" / "make_lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
PACKAGES = TOOL.read(TOOL.LOCK.read_text(encoding="utf-8"))


def test_lock_has_what_the_project_asks_for_in_a_version_that_it_takes() -> None:
    versions = {package.name: package.version for package in PACKAGES}

    for requirement in TOOL.wanted():
        assert versions[TOOL.canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_each_package_has_hashes_and_somebody_who_needs_it() -> None:
    names = {package.name for package in PACKAGES}

    assert len(names) == len(PACKAGES)
    for package in PACKAGES:
        assert package.hashes, package.name
        assert all(len(digest) == 64 for digest in package.hashes), package.name
        assert set(package.via) <= names | {"tidelog"}, package.name
        assert package.via, package.name


def test_lock_reads_as_it_was_written() -> None:
    assert TOOL.written(PACKAGES) == TOOL.LOCK.read_text(encoding="utf-8")


def test_nothing_is_needed_that_the_lock_lacks() -> None:
    """As far as the versions are installed here."""
    found = TOOL.closure()
    locked = {package.name: package for package in PACKAGES}
    if any(locked[name].version != found[name][0] for name in found if name in locked):
        pytest.skip("other versions are installed here than the lock names")

    assert {name: via for name, (_, via) in found.items()} == {p.name: set(p.via) for p in PACKAGES}


def test_bill_of_materials_is_that_of_the_lock() -> None:
    assert TOOL.SBOM.read_text(encoding="utf-8") == TOOL.bill(PACKAGES), "make lock writes it anew"


def test_image_is_built_on_one_base_named_by_its_digest() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]

    assert len(bases) == 2
    assert len(set(bases)) == 1, bases
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", bases[0]), bases[0]
