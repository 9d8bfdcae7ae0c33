"""Handing facts to the process that writes the log: a Unix socket beside it, mode 0600.

    tidelog apply ──request──▶ cluster.db.sock ──▶ handler of the process that holds the lock
                  ◀─answer───

A message is four bytes of length, big-endian, and that much msgpack; every request gets one answer, `{"ok": value}` or
`{"error": …}`, from which the client raises what the handler raised. What the messages say is the handler's affair.

Whoever can write the log may connect, nobody else. Nothing that arrives can do harm by its form: frames are limited, what
is not msgpack, or nested too deeply, is answered with an error and the connection closed, and the handler gets a message
as it came, so that nothing is built of it before it is known to be what the handler takes. Each connection is served by a
task of its own, so that a slow client delays only itself.

The address is written into the lock file, where clients find it. Usually it is the log's path with `.sock`; where that
is too long for the system or the folder takes no sockets, it is one in the user's run-time folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from tidelog.api.errors import (
    FieldError,
    InternalError,
    InvalidObjects,
    LogDamaged,
    LogError,
    LogFenced,
    LogFull,
    LogLocked,
    PluginError,
    TidelogError,
    UsageError,
    WithReason,
    printable,
    quoted,
)
from tidelog.eventlog.address import LogAddress, is_database
from tidelog.eventlog.closing import Closing, opens
from tidelog.eventlog.lock import read_holder
from tidelog.eventlog.log import Log
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.sqlite import SqliteStore

if TYPE_CHECKING:
    from tidelog.eventlog.postgres.mailbox import MailboxClient

FRAME_BYTES_MAX = 16 * 2**20
"""A larger message is refused; looking through one of this size holds up the event loop for some tens of milliseconds at worst."""

CONNECTIONS_MAX = 256
"""Where one more comes, the one that has been silent longest is closed, or else the slowest in the middle of a message; arbitrary."""

BUDGET_BYTES = 64 * 2**20
"""All large messages that are under way together. The next one waits until one of them has been answered, and those behind it wait in turn."""

LOOK_SECONDS = 1.0
"""While somebody waits, it is looked this often how much of the others has arrived."""

LOOK_BYTES = 2**16
"""A message of which less than this has arrived since the last look is slow; after `SLOW_LOOKS` such looks it is closed. A daemon that is held up itself reads twice as much at a time."""

SLOW_LOOKS = 5

SMALL_BYTES = 2**16
"""Smaller answers do not count: a reader has as much in memory of each connection anyway."""

SECONDS_PER_MESSAGE = 30.0
"""A message that has begun must be there after this time. Between messages a client may take as long as it likes."""

SECONDS_AT_CLOSE = 1.0
"""A closing server waits this long for requests under way and for clients that read slowly."""

NESTING_MAX = 200
"""Limit on an answer's nesting, more than any object has: Python cannot show everything that it can read."""

_ADDRESS_BYTES_MAX = 107
_LENGTH = struct.Struct(">I")
_LOG = logging.getLogger(__name__)

_Phase = Literal["silent", "sending", "waiting", "answered"]
Handler = Callable[[msgspec.Raw], Awaitable[Any]]
T = TypeVar("T")


class NoWriter(WithReason, LogError):
    """No process takes requests for this log."""

    def __str__(self) -> str:
        return f"{self.path}: no process takes requests for this log: {self.reason}"


class _Malformed(Exception):
    """A malformed message; the text says why."""


# --- messages -------------------------------------------------------------------------------------------------------


def frame(message: object) -> bytes:
    """A message as it travels, behind its length. Raises LogError for one that is too large."""
    data = msgspec.msgpack.encode(message)
    if len(data) > FRAME_BYTES_MAX:
        raise LogError(
            f"a message of {len(data)} bytes: at most {FRAME_BYTES_MAX} can be handed over at once"
        )
    return _LENGTH.pack(len(data)) + data


class _Arrival:
    """How a message arrives: told by its reader, and what it does makes the reader wait."""

    async def begun(self, size: int) -> None:
        """A message has begun; `size` is 0 as long as it is not known. Returns when there is room for it."""

    def arrived(self, size: int) -> None:
        """So many bytes more are there."""


async def _read_message(
    reader: asyncio.StreamReader, seconds: float | None, type: type[T], arrival: _Arrival | None = None
) -> T:
    """The next message; raises `EOFError` at the end, `_Malformed` for what is none. To wait for room takes none of its `seconds`."""
    arrival = arrival or _Arrival()
    first = await reader.read(1)
    if not first:
        raise EOFError
    async with asyncio.timeout(seconds):
        await arrival.begun(0)
        (length,) = _LENGTH.unpack(first + await reader.readexactly(_LENGTH.size - 1))
    if length > FRAME_BYTES_MAX:
        raise _Malformed(f"a message of {length} bytes: at most {FRAME_BYTES_MAX} are taken")
    await arrival.begun(length)
    data = bytearray()
    async with asyncio.timeout(seconds):
        while len(data) < length:
            piece = await reader.read(length - len(data))
            if not piece:
                raise EOFError
            data += piece
            arrival.arrived(len(piece))
    try:
        return msgspec.msgpack.decode(data, type=type)
    except RecursionError:
        raise _Malformed("the message is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise _Malformed(f"the message is not msgpack: {error}") from None


def _is_nested_beyond(value: object, levels: int) -> bool:
    parts = [value]
    for _ in range(levels):
        containers = [part for part in parts if isinstance(part, dict | list)]
        parts = [one for part in containers for one in (part.values() if isinstance(part, dict) else part)]
        if not parts:
            return False
    return True


_TRAVELLING: dict[str, type[TidelogError]] = {
    kind.__name__: kind
    for kind in (
        TidelogError,
        UsageError,
        InvalidObjects,
        PluginError,
        LogError,
        LogLocked,
        LogFenced,
        LogFull,
        LogDamaged,
        NoWriter,
        InternalError,
    )
}
"""The errors that reach a client as what they are; every other one is a TidelogError with its sentence."""


def _described(error: TidelogError) -> dict[str, Any]:
    """An error as it travels: its class, and the arguments that make it again."""
    if isinstance(error, InvalidObjects):
        found = [{**msgspec.structs.asdict(field), "value": _plain(field.value)} for field in error.errors]
        return {"type": "InvalidObjects", "arguments": [error.subject, found]}
    if type(error).__name__ not in _TRAVELLING:
        return {"type": "TidelogError", "arguments": [str(error)]}
    return {"type": type(error).__name__, "arguments": [_plain(argument) for argument in error.args]}


def _refusal(error: TidelogError) -> bytes:
    try:
        return frame({"error": _described(error)})
    except LogError:
        # It is too long to be sent as it is.
        return frame({"error": _described(TidelogError(printable(str(error))))})


def _plain(value: object) -> object:
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return quoted(value)
    return value


def _raised(described: Any) -> TidelogError:
    """The error that was described."""
    try:
        name, arguments = described["type"], described["arguments"]
        kind = _TRAVELLING[name]
        if kind is InvalidObjects:
            arguments = [arguments[0], msgspec.convert(arguments[1], list[FieldError])]
        raised: TidelogError = kind(*arguments)
        str(raised)  # Arguments of other types may make an error that cannot be told.
        return raised
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, msgspec.MsgspecError):
        pass
    return TidelogError(f"the process that writes the log answered: {quoted(described)}")


async def framed_answer(handler: Handler, message: msgspec.Raw) -> bytes:
    """The frame of the answer to a message: what the handler returned, or what it raised."""
    try:
        return frame({"ok": await handler(message)})
    except TidelogError as error:
        return _refusal(error)
    except RecursionError:
        return _refusal(TidelogError("the request is nested too deeply"))
    except Exception as error:
        _LOG.exception("a request failed")
        return _refusal(InternalError(f"{type(error).__name__}: {error}"))


def _result(answer: Any) -> Any:
    """The value that was answered, or the error raised again."""
    if _is_nested_beyond(answer, NESTING_MAX):
        raise _Malformed("the message is nested too deeply")
    if isinstance(answer, dict) and "ok" in answer:
        return answer["ok"]
    raise _raised(answer.get("error") if isinstance(answer, dict) else answer)


def read_framed_answer(path: str, data: bytes) -> Any:
    """The value in the frame of an answer; raises the error in it."""
    try:
        return _result(msgspec.msgpack.decode(data[_LENGTH.size :]))
    except (_Malformed, msgspec.MsgspecError, ValueError) as error:
        raise NoWriter(path, f"its answer cannot be read ({error})") from error


def message_in(data: bytes) -> msgspec.Raw:
    """The message in a frame, unread."""
    return msgspec.Raw(data[_LENGTH.size :])


# --- addresses ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """A name for this path that is short enough for a socket's address; raises `OSError` if there is none."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    folder = os.open(
        os.path.dirname(path), getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    )
    try:
        short = f"/proc/self/fd/{folder}/{os.path.basename(path)}"
        if len(os.fsencode(short)) > _ADDRESS_BYTES_MAX or not os.path.isdir(os.path.dirname(short)):
            raise OSError(f"{path}: too long for the address of a socket")
        yield short
    finally:
        os.close(folder)


def _private_folder() -> str:
    """A folder of ours alone, for sockets that cannot be beside their log."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    if not os.path.isdir(base):
        base = tempfile.gettempdir()
    folder = os.path.join(base, f"tidelog-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{folder}: must be a directory of the user's own, with mode 0700")
    return folder


def _bind(path: str) -> tuple[socket.socket, str]:
    """A listening socket for the log at `path`, and its address. Whatever stands there is a dead writer's: we hold the
    lock."""
    problems = []
    for place in (_beside, _in_private_folder):
        try:
            address = place(path)
            return _bind_at(address), address
        except OSError as error:
            problems.append(str(error))
    raise LogError(f"{path}: no socket can be made for it: {'; '.join(problems)}")


def _beside(path: str) -> str:
    return path + ".sock"


def _in_private_folder(path: str) -> str:
    return f"{_private_folder()}/{sha256(os.fsencode(path)).hexdigest()[:32]}.sock"


def _bind_at(address: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(address).st_mode):
            raise OSError(f"{address}: is there, and is not a socket")
        os.unlink(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setblocking(False)
        # On Linux the file gets the socket's own mode, so that it is never open to others, not even for a moment.
        os.fchmod(listener.fileno(), 0o600)
        with _short(address) as short:
            listener.bind(short)
        os.chmod(address, 0o600)
        listener.listen(CONNECTIONS_MAX)
    except BaseException:
        listener.close()
        raise
    return listener


# --- the server -----------------------------------------------------------------------------------------------------


class _Large:
    """A large message that is under way."""

    __slots__ = ("arrived", "seen", "size", "slow")

    def __init__(self, size: int) -> None:
        self.size = size
        self.arrived = 0
        self.seen = 0
        """So much had arrived at the last look."""
        self.slow = 0
        """So many looks one after the other saw hardly anything arrive."""


class _ArrivalAt(_Arrival):
    """Of one connection's messages."""

    def __init__(self, server: HandoverServer, task: asyncio.Task[Any]) -> None:
        self._server = server
        self._task = task

    async def begun(self, size: int) -> None:
        await self._server._begun(self._task, size)

    def arrived(self, size: int) -> None:
        large = self._server._large.get(self._task)
        if large is not None:
            large.arrived += size


class HandoverServer(Closing):
    """Takes requests for one log until it is closed."""

    def __init__(self, handler: Handler, address: str, file: os.stat_result | None = None) -> None:
        """`file`: the socket's, which is removed at the end."""
        self.address = address
        self._file = file
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], _Phase] = {}
        """The stage of each; the one that changed last is the last."""
        self._large: dict[asyncio.Task[Any], _Large] = {}
        """The large messages that are under way; the one that began first is the first."""
        self._waiting: dict[asyncio.Task[Any], None] = {}
        """Those whose large message waits for room, in turn."""
        self._room = asyncio.Event()
        """Set when a large message has been answered or closed, and when somebody else's turn has come."""
        self._closing = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._make_way()
        self._connections[task] = "silent"
        try:
            await self._converse(reader, writer, task)
        except (EOFError, OSError, TimeoutError):
            pass  # It hung up, in the middle of a message perhaps, or was too slow.
        except asyncio.CancelledError:
            # `close` does that, and who needs the place. What was not sent yet is not waited for.
            writer.transport.abort()
        finally:
            self._connections.pop(task, None)
            self._large_ended(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[Any]
    ) -> None:
        if len(self._connections) > CONNECTIONS_MAX:  # All of them are being answered.
            writer.write(_refusal(LogError("too many connections; try again later")))
            await writer.drain()
            return
        while not self._closing:
            try:
                message = await _read_message(
                    reader, SECONDS_PER_MESSAGE, msgspec.Raw, _ArrivalAt(self, task)
                )
            except _Malformed as error:
                writer.write(_refusal(TidelogError(str(error))))
                await writer.drain()
                return
            self._is_at(task, "answered")
            answer = await framed_answer(self._handler, message)
            del message
            self._large_ended(task)
            self._is_at(task, "silent")
            writer.write(answer)
            await writer.drain()

    def _is_at(self, task: asyncio.Task[Any], phase: _Phase) -> None:
        self._connections.pop(task, None)
        self._connections[task] = phase

    async def _begun(self, task: asyncio.Task[Any], size: int) -> None:
        """A message has begun, and will have so many bytes. Returns when there is room for it."""
        if size > SMALL_BYTES:
            self._is_at(task, "waiting")
            self._waiting[task] = None
            try:
                await self._has_room(task, size)
            finally:
                del self._waiting[task]
                self._room.set()
            self._large[task] = _Large(size)
        self._is_at(task, "sending")

    async def _has_room(self, task: asyncio.Task[Any], size: int) -> None:
        """Returns when it is this one's turn, and there is room for so many bytes more."""
        while True:
            is_first = next(iter(self._waiting)) is task
            if is_first and sum(large.size for large in self._large.values()) + size <= BUDGET_BYTES:
                return
            self._room.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._room.wait()
            except TimeoutError:
                if is_first:
                    self._look()

    def _look(self) -> None:
        """Close large messages that have been arriving slowly for long."""
        for task, large in list(self._large.items()):
            if self._connections.get(task) == "sending":
                large.slow = large.slow + 1 if large.arrived - large.seen < LOOK_BYTES else 0
                large.seen = large.arrived
                if large.slow >= SLOW_LOOKS:
                    self._end(task)

    def _large_ended(self, task: asyncio.Task[Any]) -> None:
        if self._large.pop(task, None) is not None:
            self._room.set()

    def _make_way(self) -> None:
        """Let one more connection in, if there are too many and one of them is not being answered."""
        if len(self._connections) < CONNECTIONS_MAX:
            return
        for phase in ("silent", "sending", "waiting"):
            for task, found in self._connections.items():
                if found == phase:
                    self._end(task)
                    return

    def _end(self, task: asyncio.Task[Any]) -> None:
        _LOG.warning(
            "closed a connection that kept others out", extra={"fields": {"open": len(self._connections)}}
        )
        self._connections.pop(task, None)
        self._large_ended(task)
        task.cancel()

    async def close(self) -> None:
        """Take no more requests, answer those under way, and remove the socket."""
        self._closing = True
        if self._server is None:
            return
        self._server.close()
        for task, phase in list(self._connections.items()):
            if phase != "answered":
                task.cancel()
        if self._connections:
            _, late = await asyncio.wait(list(self._connections), timeout=SECONDS_AT_CLOSE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late)
        await self._server.wait_closed()
        with contextlib.suppress(OSError):
            # Where the log was taken from this process, its successor's socket stands there.
            if self._file is not None and os.path.samestat(os.stat(self.address), self._file):
                os.unlink(self.address)


@opens
async def serve(log: Log, handler: Handler) -> Closing:
    """Take requests for this log, which this process must be writing. `handler` answers one request; what it
    raises reaches the client."""
    store = log.store
    if is_database(log.name):
        from tidelog.eventlog.postgres.mailbox import MailboxServer

        return await MailboxServer.open(store, handler)
    if not isinstance(store, SqliteStore):
        raise InternalError(f"{log.name} is not a log file")
    listener, address = _bind(store.name)
    server = HandoverServer(handler, address, os.stat(address))
    server._server = await asyncio.start_unix_server(server._serve, sock=listener)
    store.lock.announce(address)
    return server


# --- the client -----------------------------------------------------------------------------------------------------


class HandoverClient(Closing):
    """A connection to the process that writes a log."""

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer

    async def request(self, message: object) -> Any:
        """The answer to this message; raises what the handler raised, or `NoWriter` when its process went away: then
        nobody knows whether the request was carried out."""
        try:
            self._writer.write(frame(message))
            await self._writer.drain()
            answer: Any = await _read_message(self._reader, None, object)
            return _result(answer)
        except (EOFError, OSError, _Malformed) as error:
            why = str(error) or "end of data"
            raise NoWriter(self._path, f"it went away before it answered ({why})") from error

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@opens
async def connect(path: LogAddress) -> HandoverClient | MailboxClient:
    """Connect to the process that writes this log; raises `NoWriter` if none takes requests."""
    if is_database(path):
        from tidelog.eventlog.postgres.mailbox import MailboxClient

        return await MailboxClient.open(path)
    path = log_path(path)
    holder = read_holder(path)
    if holder is None or not holder.socket:
        raise NoWriter(path, f"{holder} has no socket" if holder else "none holds its lock")
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        channel.setblocking(False)
        _check_owner(path, holder.socket)
        with _short(holder.socket) as short:
            await asyncio.get_running_loop().sock_connect(channel, short)
        reader, writer = await asyncio.open_unix_connection(sock=channel)
    except OSError as error:
        channel.close()
        raise NoWriter(path, f"{holder.socket}: {error.strerror or error}") from error
    except BaseException:
        channel.close()
        raise
    return HandoverClient(path, reader, writer)


def _check_owner(path: str, address: str) -> None:
    """A socket of somebody who cannot write the log is not its writer's."""
    found = os.stat(address)
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError("is not a socket")
    if found.st_uid not in (os.geteuid(), os.stat(path + ".lock").st_uid):
        raise OSError("belongs to somebody else")
