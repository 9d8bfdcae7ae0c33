"""The password of a database: out of the environment, so that no program that this one starts inherits it.

`tidelog` takes `PGPASSWORD` out of its environment when it begins (`take`); processes of its own that open a log are handed it through the pipe by
which they are started (`give`). A password file is the client library's to read. A program that uses tidelog as a library keeps its environment, and
the client library reads that.
"""

from __future__ import annotations

import os
import stat

VARIABLE = "PGPASSWORD"
FILE_VARIABLE = "PGPASSFILE"

_kept: str | None = None


def take() -> None:
    """Take it out of this process's environment."""
    give(os.environ.pop(VARIABLE, _kept))


def give(password: str | None) -> None:
    """Use this one; None for what the client library finds by itself."""
    global _kept  # noqa: PLW0603 # A process has one environment.
    _kept = password


def kept() -> str | None:
    """The password that was taken or given."""
    return _kept


def unused_file() -> str:
    """Why the password file is not used, for the end of a message; empty if there is nothing wrong with it."""
    path = os.environ.get(FILE_VARIABLE) or os.path.expanduser("~/.pgpass")
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        named = os.environ.get(FILE_VARIABLE)
        return f"; {path} cannot be read: {error.strerror}" if named else ""
    if stat.S_ISREG(mode) and mode & 0o077 and _kept is None:
        return f"; {path} is not used, because others may read it: chmod 600 {path}"
    return ""
