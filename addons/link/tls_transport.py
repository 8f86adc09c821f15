"""TLS by pyOpenSSL on memory buffers, as client or server: an asyncio protocol on a socket, and a transport for the
protocol above.

asyncio's own TLS takes 295 KB a connection, and cannot request a client certificate without verifying it.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Any

from OpenSSL import SSL

from kube.bounds import reached

RECORD = 16 * 1024
"""Maximum bytes of plain text in a TLS record, and the size of each read and write of OpenSSL. A connection has one
buffer of this size."""
TLS_OVERHEAD = 512
"""Bytes that OpenSSL's buffer needs beyond the plain text: more than any cipher adds to a record."""
OWN_RECORDS = 4 * 1024
"""Maximum bytes of one read of OpenSSL's own output (handshake, tickets, alerts), of which there is usually none."""

MAX_UNREAD_KEY_UPDATES = 16 * 1024
"""Maximum bytes of unread answers to the peer's key updates (RFC 8446, 4.6.3).

Each answer has 22 bytes, and no honest peer updates its keys seven hundred times without reading.
"""


class TransportLayer(asyncio.Transport, asyncio.Protocol):
    """A layer between a transport and a protocol that passes every call in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self._below: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None

    def start_protocol(self, protocol: asyncio.Protocol) -> None:
        """Pass received bytes to this protocol from now on."""
        self._protocol = protocol
        protocol.connection_made(self)

    # -- towards the protocol: the transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default) if self._below is not None else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size() if self._below is not None else 0

    def is_closing(self) -> bool:
        return self._below is None or self._below.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._below is not None:
            self._below.write(data)

    def close(self) -> None:
        if self._below is not None:
            self._below.close()

    def abort(self) -> None:
        if self._below is not None:
            self._below.abort()

    def pause_reading(self) -> None:
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._below is not None:
            self._below.resume_reading()

    # -- towards the socket: the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._below = transport

    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else False

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        protocol, self._below, self._protocol = self._protocol, None, None
        if protocol is not None:
            protocol.connection_lost(error)


class TlsTransport(TransportLayer, ABC):
    """One end of TLS. Data received after the handshake is buffered until `start_protocol`."""

    def __init__(self) -> None:
        super().__init__()
        self._tls: SSL.Connection | None = None
        self._is_established = False
        self._is_paused = False
        """Whether the protocol has paused reading."""
        self._error: Exception | None = None
        self._unread_key_updates = 0
        """Bytes of OpenSSL's own output that the peer may not have read."""

    @abstractmethod
    def handshake_done(self, tls: SSL.Connection) -> None:
        """Handle the end of the handshake."""

    @abstractmethod
    def handshake_failed(self, tls: SSL.Connection, why: str) -> None:
        """Handle a failed handshake, after its alert was sent to the peer."""

    def start(self, tls: SSL.Connection, early: bytes = b"") -> None:
        """Begin the handshake. `early` are bytes already received."""
        self._tls = tls
        if early:
            tls.bio_write(early)
        self._do_handshake(tls)

    def fail(self, error: Exception) -> None:
        """Close the connection, and report the first such error to the protocol."""
        self._error = self._error or error
        super().close()

    def start_protocol(self, protocol: asyncio.Protocol) -> None:
        super().start_protocol(protocol)
        self._decrypt()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._tls is None or self._below is None or not self._is_established:
            return
        sealed, error = [], None
        try:
            for at in range(0, len(data), RECORD):
                self._tls.sendall(data[at : at + RECORD])
                sealed.append(_encrypted(self._tls, RECORD + TLS_OVERHEAD))
        except SSL.Error as raised:
            error = raised
        self._below.write(b"".join(sealed))
        if error is not None:
            self.fail(ConnectionResetError(reason_of(error)))

    def close(self) -> None:
        if self.is_closing():
            return
        if self._tls is not None and self._is_established:
            with contextlib.suppress(SSL.Error):
                self._tls.shutdown()
            self._flush(self._tls)
        super().close()

    def pause_reading(self) -> None:
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        super().resume_reading()
        if self._below is not None:
            asyncio.get_running_loop().call_soon(self._decrypt)

    def data_received(self, data: bytes) -> None:
        assert self._tls is not None
        self._tls.bio_write(data)
        if self._is_established:
            self._decrypt()
        else:
            self._do_handshake(self._tls)

    def eof_received(self) -> bool:
        return False  # without a close alert this is a truncation, not the end of the data (RFC 8446, 6.1)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(self._error or error)

    def _do_handshake(self, tls: SSL.Connection) -> None:
        if self.is_closing():
            return
        try:
            tls.do_handshake()
        except SSL.WantReadError:
            self._flush(tls)
        except SSL.Error as error:
            self._flush(tls)  # sends the alert with the reason
            self.handshake_failed(tls, reason_of(error))
        else:
            self._flush(tls)
            self._is_established = True
            self.handshake_done(tls)

    def _decrypt(self) -> None:
        """Pass all available data to the protocol in one call: servers send the head and the body of an answer as two
        records.
        """
        tls, protocol = self._tls, self._protocol
        if tls is None or protocol is None or self._is_paused or self._below is None:
            return
        records: list[bytes] = []
        end: SSL.Error | None = None
        try:
            while True:
                records.append(tls.recv(RECORD))
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            end = error
        self._send_key_updates(tls)
        if records:
            protocol.data_received(records[0] if len(records) == 1 else b"".join(records))
        if end is not None and not self._is_paused:  # otherwise reported when the protocol resumes reading
            self._end(end)

    def _send_key_updates(self, tls: SSL.Connection) -> None:
        """Send OpenSSL's answers to the peer's key updates. Abort if the peer does not read them."""
        self._unread_key_updates += self._flush(tls)
        if self._unread_key_updates and not self.get_write_buffer_size():
            self._unread_key_updates = 0
        if self._unread_key_updates > MAX_UNREAD_KEY_UPDATES:
            reached("answers to new keys of TLS")
            self.abort()

    def _end(self, end: SSL.Error) -> None:
        """Notify the protocol of the end of data."""
        if isinstance(end, SSL.ZeroReturnError):
            if self._protocol is not None:
                self._protocol.eof_received()
            self.close()
        else:
            self.fail(ConnectionResetError(reason_of(end)))

    def _flush(self, tls: SSL.Connection) -> int:
        """Send OpenSSL's output to the peer; return the number of bytes."""
        sealed = _encrypted(tls, OWN_RECORDS)
        if sealed and self._below is not None:
            self._below.write(sealed)
        return len(sealed)


def reason_of(error: SSL.Error) -> str:
    """Return OpenSSL's error as text."""
    errors = error.args[0] if error.args else ()
    return str(errors[-1][-1]) if isinstance(errors, list) and errors else "the connection was closed"


def _encrypted(tls: SSL.Connection, at_once: int) -> bytes:
    """Read all encrypted output for the peer, in reads of `at_once` bytes."""
    parts = []
    with contextlib.suppress(SSL.WantReadError):
        while True:
            parts.append(tls.bio_read(at_once))
            if len(parts[-1]) < at_once:  # a shorter read is the last one
                break
    return parts[0] if len(parts) == 1 else b"".join(parts)
