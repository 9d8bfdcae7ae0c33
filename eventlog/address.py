"""Where a log is: the path of a file, or the address of a PostgreSQL database, as `--log` takes them.

    cluster.db
    postgresql://tidelog@db.example/cluster?schema=prod

Everything that opens a log takes either. Nothing of PostgreSQL is imported for a file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from tidelog.api.errors import TidelogError

LogAddress = str | os.PathLike[str]

SCHEMES = ("postgresql://", "postgres://")

_PASSWORD = re.compile(r"(://[^/:@]*):.*@")


def is_database(address: LogAddress) -> bool:
    """Whether the log is in a database, and not in a file."""
    return os.fspath(address).startswith(SCHEMES)


def database_name(address: LogAddress) -> str:
    """How messages call a log in a database: its address without options, and without a password, should there be one in it."""
    return _PASSWORD.sub(r"\1@", os.fspath(address).partition("?")[0])


@contextlib.contextmanager
def needs_postgres() -> Iterator[None]:
    """Where the extra is imported: without it one line says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise TidelogError(
            f"a log in PostgreSQL needs {error.name}: pip install 'tidelog[postgres]'"
        ) from error
