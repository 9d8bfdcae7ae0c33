"""Manifests from where `-f` points: files, directories, stdin."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.api.errors import InvalidObjects, TidelogError, UsageError
from tidelog.api.manifests.documents import INPUT_BYTES_MAX
from tidelog.api.manifests.manifests import load
from tidelog.api.objects import Object
from tidelog.daemon.intake.messages import Refused, RefusedObject

SUFFIXES = (".yaml", ".yml", ".json")


class Manifest(NamedTuple):
    """An object and where it was read."""

    source: str
    object: Object


def read_manifests(names: Sequence[str], *, namespace: str, recursive: bool) -> list[Manifest]:
    """All objects of these files, in order; those of a directory by file name.

    Raises Refused with the errors of all files, so that one run shows everything that is to be repaired.
    """
    found: list[Manifest] = []
    refusals: list[RefusedObject] = []
    texts = 0
    for source, data in _texts(names, recursive):
        texts += 1
        try:
            found += (Manifest(source, obj) for obj in load(data, source, namespace=namespace))
        except InvalidObjects as error:
            refusals.append(RefusedObject(subject=error.subject, errors=error.errors))
    if refusals:
        raise Refused(refusals, texts)
    if not found:
        raise UsageError(f"there are no objects in {', '.join(names)}")
    return found


def _texts(names: Sequence[str], recursive: bool) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "stdin", _limited(sys.stdin.buffer.read(INPUT_BYTES_MAX + 1), "stdin")
        elif os.path.isdir(name):
            files = sorted(_files(name, recursive))
            if not files:
                hint = "" if recursive else " (-R also looks into its directories)"
                raise UsageError(f"there are no manifests ({', '.join(SUFFIXES)}) in {name}{hint}")
            yield from ((file, _read(file)) for file in files)
        else:
            yield name, _read(name)


def _files(folder: str, recursive: bool) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                # A link to a directory above would lead round in circles.
                if recursive and not entry.is_symlink():
                    yield from _files(entry.path, recursive)
            elif entry.name.endswith(SUFFIXES):
                yield entry.path


def _read(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _limited(b"", name, os.fstat(file.fileno()).st_size)
            return _limited(file.read(INPUT_BYTES_MAX + 1), name)
    except OSError as error:
        raise TidelogError(f"cannot read {name}: {error.strerror or error}") from error
    except ValueError as error:
        # A NUL in the name.
        raise UsageError(f"cannot read {name}: {error}") from error


def _limited(data: bytes, name: str, size: int | None = None) -> bytes:
    if (len(data) if size is None else size) > INPUT_BYTES_MAX:
        raise TidelogError(f"{name}: has more than {INPUT_BYTES_MAX >> 20} MiB; split it")
    return data
