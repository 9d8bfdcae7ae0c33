"""Where the folders are that ship with the package and hold no code of the product (docs/decisions/0002)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tidelog.api.errors import InternalError


def folder(package: str) -> Path:
    """The directory of `tidelog.<package>`; importlib.resources does not read editable namespace packages."""
    for entry in import_module(f"tidelog.{package}").__path__:
        path = Path(entry)
        if path.is_dir():
            return path
    raise InternalError(f"the installation lacks its folder {package}")
