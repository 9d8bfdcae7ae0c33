"""Watches what SQLite itself writes and syncs, and lets it fail, below everything that Python's `sqlite3` shows.

SQLite reaches files through a table of C functions, its VFS, which an application may add to. `watch` adds one that is the usual
one with xWrite, xTruncate, xSync and xDelete told to Python; locks and shared memory stay SQLite's own. It is made with ctypes
in the very library that `sqlite3` uses, so that what is tested is what runs. Where that library cannot be reached (it is linked
into the interpreter without its names), `AVAILABLE` is False.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from typing import Any, Protocol

NAME = "tidelog-watched"
_OK = 0
_CANTOPEN = 14
_PRNG_SEED = 28
"""SQLITE_TESTCTRL_PRNG_SEED."""
_OPEN_CREATE = 0x4


class Watcher(Protocol):
    """Is told of each step when it is done, and asked about it before. The code of an error that `before` returns is what SQLite gets, and the
    step is not done. Nothing may be raised: there is C between here and who would catch it."""

    def before(self, what: str, path: str, end: int) -> int:
        """`what`: create, write, truncate, sync or remove; `end`: where what is to be written ends."""
        return _OK

    def created(self, path: str) -> None: ...
    def written(self, path: str, offset: int, data: bytes) -> int | None: ...
    def truncated(self, path: str, size: int) -> int | None: ...
    def synced(self, path: str) -> int | None: ...
    def removed(self, path: str, durably: bool) -> int | None: ...


_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("others", c_void_p * 13),
    ]


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("path_max", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", _Open),
        ("delete", _Delete),
        ("others", c_void_p * 14),
    ]


def _library() -> Any:
    """The SQLite in this process, or None."""
    try:
        import _sqlite3

        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        library.sqlite3_vfs_register.argtypes = [POINTER(_Vfs), c_int]
        library.sqlite3_libversion.restype = c_char_p
    except (AttributeError, ImportError, OSError):
        return None
    same = library.sqlite3_libversion().decode() == sqlite3.sqlite_version
    return library if same and library.sqlite3_vfs_find(None).contents.version >= 3 else None


_LIBRARY = _library()
AVAILABLE = _LIBRARY is not None
_watchers: dict[str, Watcher] = {}
_paths: dict[int, str] = {}
"""Of open files, by the address of SQLite's handle."""
_originals: dict[int, tuple[_Methods, _Methods]] = {}
"""Tables of methods by their address: SQLite's, and ours in its place."""


def watch(folder: str, watcher: Watcher) -> None:
    """Tell the watcher of files in this folder, of connections that are opened with `vfs=NAME`."""
    _register()
    _watchers[folder] = watcher


@cache
def _register() -> _Vfs:
    """Add ours to SQLite's; kept for as long as the process lives."""
    ours = _Vfs.from_buffer_copy(_usual())
    ours.name, ours.open, ours.delete = NAME.encode(), _open, _delete
    assert _LIBRARY.sqlite3_vfs_register(ctypes.byref(ours), 0) == _OK
    return ours


@cache
def _usual() -> _Vfs:
    vfs: _Vfs = _LIBRARY.sqlite3_vfs_find(None).contents
    return vfs


def unwatch(folder: str) -> None:
    """Tell it no more."""
    del _watchers[folder]


def _watcher(path: str) -> Watcher | None:
    return _watchers.get(path.rpartition("/")[0])


@_Open
def _open(_vfs: Any, name: Any, file: Any, flags: int, out: Any) -> int:
    path = "" if name is None else ctypes.string_at(name).decode()
    watcher = _watcher(path)
    # The name goes on as the address that it came as: SQLite keeps the parameters of the URI behind its end.
    if watcher is not None and flags & _OPEN_CREATE and not os.path.exists(path):
        if watcher.before("create", path, 0):
            return _CANTOPEN
        watcher.created(path)
    code: int = _usual().open(ctypes.addressof(_usual()), name, file, flags, out)
    if code == _OK and watcher is not None:
        _paths[file] = path
        handle = ctypes.cast(file, POINTER(c_void_p))
        handle[0] = ctypes.addressof(_wrapped(handle[0]))
    return code


def _wrapped(address: int) -> _Methods:
    """The table at this address with ours in it."""
    if address not in _originals:
        original = _Methods.from_address(address)
        ours = _Methods.from_buffer_copy(original)

        @_Write
        def write(file: Any, data: Any, size: int, offset: int) -> int:
            path = _paths[file]
            if (watcher := _watcher(path)) is None:
                return int(original.write(file, data, size, offset))
            code = watcher.before("write", path, offset + size) or int(
                original.write(file, data, size, offset)
            )
            return code or watcher.written(path, offset, ctypes.string_at(data, size)) or _OK

        @_Truncate
        def truncate(file: Any, size: int) -> int:
            path = _paths[file]
            if (watcher := _watcher(path)) is None:
                return int(original.truncate(file, size))
            code = watcher.before("truncate", path, size) or int(original.truncate(file, size))
            return code or watcher.truncated(path, size) or _OK

        @_Sync
        def sync(file: Any, flags: int) -> int:
            path = _paths[file]
            if (watcher := _watcher(path)) is None:
                return int(original.sync(file, flags))
            code = watcher.before("sync", path, 0) or int(original.sync(file, flags))
            return code or watcher.synced(path) or _OK

        ours.write, ours.truncate, ours.sync = write, truncate, sync
        _originals[address] = (original, ours)
    return _originals[address][1]


@_Delete
def _delete(_vfs: Any, name: bytes, sync_folder: int) -> int:
    path = name.decode()
    watcher = _watcher(path)
    code = _OK if watcher is None else watcher.before("remove", path, 0)
    code = code or int(_usual().delete(ctypes.addressof(_usual()), name, sync_folder))
    if code or watcher is None:
        return code
    return watcher.removed(path, bool(sync_folder)) or _OK


def seed(number: int) -> None:
    """SQLite's own random numbers, of which the salts of write-ahead logs are made, follow from this one from now on; 0: they do not any more."""
    _LIBRARY.sqlite3_test_control(_PRNG_SEED, number, None)
