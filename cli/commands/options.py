"""The options that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.api.errors import UsageError
from tidelog.eventlog.address import is_database

if TYPE_CHECKING:
    from tidelog.api.features import FeatureGates

ENVIRONMENT_LOG = "TIDELOG_LOG"
DEFAULT_NAMESPACE = "default"


def add_output(parser: argparse.ArgumentParser, *formats: str, default: str = "table") -> None:
    """`-o`, with the formats that this verb has."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=default,
        metavar="|".join(formats),
        help="the format (default: %(default)s)",
    )


def print_found(args: argparse.Namespace, found: object, lines: Iterable[str]) -> None:
    """Print an answer in the format of `-o`: as text, or as data."""
    from tidelog.api.text import formatted

    print("\n".join(lines) if args.output == "table" else formatted(found, args.output))


def add_manifests(parser: argparse.ArgumentParser) -> None:
    """`-f` and `-R`."""
    parser.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE|DIR|-",
        help="a manifest, a directory of manifests, or - for stdin; may be given several times",
    )  # fmt: skip
    parser.add_argument("-R", "--recursive", action="store_true", help="look into directories of directories")


def add_namespace(parser: argparse.ArgumentParser) -> None:
    """`-n`."""
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help=f"the namespace, where none is named (default: {DEFAULT_NAMESPACE})",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="do everything but the append: say what would happen (kubectl's =client and =server are the same here)",
    )


def add_strict(parser: argparse.ArgumentParser) -> None:
    """`--strict`."""
    parser.add_argument(
        "--strict", action="store_true", help="refuse fields that a kind does not have, instead of warning"
    )


def add_log(parser: argparse.ArgumentParser) -> None:
    """The log as an argument, for verbs that are about a log as such."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log, if --log does not name it")


def log_path(args: argparse.Namespace) -> Path | str:
    """The log that the command line or the environment names: a file, or the address of a database."""
    given = getattr(args, "file", None)
    if given and args.log:
        raise UsageError(f"two logs are named, {given} and {args.log}: name one")
    named = given or args.log or os.environ.get(ENVIRONMENT_LOG)
    if not named:
        raise UsageError(f"which log? name it with --log FILE or set ${ENVIRONMENT_LOG}")
    return named_log(named)


def named_log(text: str) -> Path | str:
    """The log of this name. Raises UsageError for an address with a password, or that is none."""
    if not is_database(text):
        return Path(text)
    from tidelog.eventlog.postgres.address import parse_address

    parse_address(text)
    return text


def feature_gates(args: argparse.Namespace) -> FeatureGates | None:
    """The gates of --feature-gates; None where the option is not given."""
    from tidelog.api.features import parse_feature_gates

    return None if args.feature_gates is None else parse_feature_gates(args.feature_gates)
