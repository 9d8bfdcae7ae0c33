"""TLS on a connection whose socket is left alone while nobody reads.

    connection = Tls(inner, context, server_name)       # for loop.create_connection, without ssl
    await connection.agreed                              # keys; from then on it is the transport of `inner`

The event loop's own TLS empties the socket as fast as the server fills it, record by record, also while reading is paused: of a watch, a read and a
turn of the loop for each event. This one leaves what comes to the kernel until somebody reads on, and then takes all of it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

RECORD_BYTES_MAX = 16_384
"""No record of TLS holds more."""


class Tls(asyncio.Protocol, asyncio.Transport):
    """A protocol for the event loop, and a transport for the protocol within."""

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext, server_name: str | None) -> None:
        super().__init__()
        self.agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when both sides have keys, or with the error that came before that."""
        self._inner = inner
        self._transport: asyncio.Transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._keys = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._is_agreed = False

    # --- what the event loop calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._agree()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if not self._is_agreed:
            self._agree()
        if self._is_agreed:
            self._read()

    def eof_received(self) -> None:
        if self._is_agreed:
            self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_agreed:
            self._inner.connection_lost(exc)
        else:
            self._refuse(exc or ConnectionAbortedError("the connection ended before there were keys"))

    # --- what the protocol within calls -----------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            left = left[self._keys.write(left) :]
        self._flush()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._keys.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- inside -------------------------------------------------------------------------------------------------------------

    def _agree(self) -> None:
        try:
            self._keys.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            # The other side is told why.
            self._flush()
            self._refuse(error)
            self._transport.close()
            return
        self._flush()
        self._is_agreed = True
        self._inner.connection_made(self)
        if not self.agreed.done():
            self.agreed.set_result(None)

    def _refuse(self, error: Exception) -> None:
        if not self.agreed.done():
            self.agreed.set_exception(error)
            self.agreed.exception()  # Nobody may be waiting any more.

    def _read(self) -> None:
        pieces: list[bytes] = []
        has_ended = is_broken = False
        try:
            while piece := self._keys.read(RECORD_BYTES_MAX):
                pieces.append(piece)
            has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            # Somebody has changed what was sent: what is whole counts, and nothing comes after it.
            is_broken = True
        self._flush()
        if pieces:
            self._inner.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if has_ended:
            self._inner.eof_received()
            self._transport.close()
        if is_broken:
            self._transport.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())
