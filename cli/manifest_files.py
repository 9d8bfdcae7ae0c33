"""Manifests from where `-f` points: files, directories, stdin."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.api.errors import FieldError, InvalidObjects, TidelogError, UsageError, printable
from tidelog.api.kinds.kind import Kind
from tidelog.api.manifests.documents import INPUT_BYTES_MAX
from tidelog.api.manifests.manifests import Remarks, load
from tidelog.api.objects import Object
from tidelog.cli.commands.options import DEFAULT_NAMESPACE
from tidelog.cli.progress import Progress
from tidelog.cli.terminal import notice
from tidelog.daemon.intake.messages import Refused, RefusedObject
from tidelog.kube.schema import misspelled

SUFFIXES = (".yaml", ".yml", ".json")


class Manifest(NamedTuple):
    """An object and where it was read."""

    source: str
    object: Object


def manifests_of(args: argparse.Namespace) -> list[Manifest]:
    """All objects of the files that a verb's -f names."""
    return read_manifests(
        args.filename,
        namespace=args.namespace or DEFAULT_NAMESPACE,
        recursive=args.recursive,
        strict=getattr(args, "strict", False),
    )


def read_manifests(
    names: Sequence[str], *, namespace: str, recursive: bool, strict: bool = False
) -> list[Manifest]:
    """All objects of these files, in order; those of a directory by file name.

    Kinds that no decision depends on are left out, and counted in one line on stderr. A field that its kind does not have is warned of, or with
    `strict` refused. Raises Refused with the errors of all files, so that one run shows everything that is to be repaired.
    """
    found: list[Manifest] = []
    refusals: list[RefusedObject] = []
    remarks = Remarks(_unknown_fields)
    texts = 0
    with Progress("reading manifests", "files") as progress:
        for source, data in _texts(names, recursive):
            try:
                objects = load(data, source, namespace=namespace, remarks=remarks)
                found += (Manifest(source, obj) for obj in objects)
            except InvalidObjects as error:
                refusals.append(RefusedObject(subject=error.subject, errors=error.errors))
            texts += 1
            progress.update(texts)
    if strict:
        refusals += [RefusedObject(subject=subject, errors=odd) for subject, odd in remarks.odd]
    if refusals:
        raise Refused(refusals, max(texts, len(refusals)))
    _tell(remarks)
    if not found:
        which = "that concern scheduling " if remarks.left_out else ""
        raise UsageError(f"there are no objects {which}in {', '.join(names)}")
    return found


WARNINGS_MAX = 20
"""More objects with unknown fields than this are only counted: a file of ten thousand has one mistake, made once."""


def _unknown_fields(kind: Kind, value: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in misspelled(kind.name, kind.name, value):
        hint = f'; did you mean "{field.close}"?' if field.close else ""
        yield FieldError(path=field.path, kind="Forbidden", rule=f"unknown field{hint}")


def _tell(remarks: Remarks) -> None:
    for subject, odd in remarks.odd[:WARNINGS_MAX]:
        for error in odd:
            notice(f"warning: {subject}: {printable(error.path)}: {error.rule}; it is ignored")
    more = len(remarks.odd) - WARNINGS_MAX
    if more > 0:
        notice(f"warning: {more} more objects have unknown fields")
    if remarks.left_out:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(remarks.left_out.items()))
        notice(f"left out, since they do not concern scheduling: {counts}")
        if "KubeSchedulerConfiguration" in remarks.left_out:
            notice(
                "a configuration is no object: `tidelog run --config` takes it, and `tidelog replay what-if --config` tries it"
            )


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
